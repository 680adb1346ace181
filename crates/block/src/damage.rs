//! A damaged item of a block, as verification reports it.

use std::path::PathBuf;

/// Damages of a block that are listed at most.
pub(crate) const DAMAGES_MAX: usize = 1000;

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
