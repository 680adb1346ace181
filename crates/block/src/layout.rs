//! Names of a block's files and directories.

use std::path::{Path, PathBuf};

use chronolith_format::block::chunks;
use chronolith_format::block::meta::Ulid;

/// Suffix of a block's directory while it is written.
pub const SUFFIX_CREATING: &str = ".tmp-for-creation";
/// Suffix of a block's directory while it is removed.
pub const SUFFIX_DELETING: &str = ".tmp-for-deletion";

pub(crate) const INDEX_FILE: &str = "index";
pub(crate) const META_FILE: &str = "meta.json";
/// Suffix of the directory of a block's roll-ups while it is written.
pub(crate) const SUFFIX_ROLLUPS_CREATING: &str = ".tmp";
/// File with the deleted intervals of a block, within its directory.
pub const TOMBSTONES_FILE: &str = "tombstones";
pub(crate) const CHUNKS_DIR: &str = "chunks";

/// Directory of the block `ulid` below `parent_dir`.
#[must_use]
pub fn block_dir(parent_dir: &Path, ulid: Ulid) -> PathBuf {
    parent_dir.join(ulid.to_string())
}

/// Returns true if a file of this name in `chunks/` is a segment.
pub(crate) fn is_segment_name(name: &str) -> bool {
    name.len() >= 6 && name.bytes().all(|b| b.is_ascii_digit())
}

/// File of segment `segment_idx` of the block in `dir`.
pub(crate) fn segment_path(dir: &Path, segment_idx: u32) -> PathBuf {
    dir.join(CHUNKS_DIR).join(chunks::segment_name(segment_idx))
}
