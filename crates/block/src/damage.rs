//! A damaged item of a block, as verification reports it.

use std::path::PathBuf;

/// A damaged item of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// File.
    pub path: PathBuf,
    /// Offset in the file.
    pub offset: u64,
    /// Item, expected and found.
    pub what: String,
}
