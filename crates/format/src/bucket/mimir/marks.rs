//! Markers of blocks, which Mimir and Thanos share: to be deleted, not to be compacted.

use serde::{Deserialize, Serialize};

use super::file::{MimirError, parse_mark};
use crate::block::meta::Ulid;

/// Name of the mark in the folder of a block that is to be deleted.
pub const DELETION_MARK: &str = "deletion-mark.json";
/// Name of the mark in the folder of a block that is not to be compacted.
pub const NO_COMPACT_MARK: &str = "no-compact-mark.json";
/// Folder of a tenant in which Mimir repeats the marks of all blocks, so that one listing finds them.
pub const MARKERS_FOLDER: &str = "markers/";
const VERSION: i64 = 1;
/// Reason of a mark that Chronolith writes.
const REASON: &str = "chronolith";

/// Content of [`DELETION_MARK`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DeletionMark {
    /// Name of the block.
    pub id: Ulid,
    version: i64,
    /// Seconds since 1970 at which it was marked.
    pub deletion_time: i64,
    /// Reason for people.
    #[serde(default)]
    pub details: String,
}

/// Content of [`NO_COMPACT_MARK`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoCompactMark {
    /// Name of the block.
    pub id: Ulid,
    version: i64,
    /// Seconds since 1970 at which it was marked.
    #[serde(default)]
    pub no_compact_time: i64,
    /// Reason for programs, as `manual` or `index-size-exceeding`.
    #[serde(default)]
    pub reason: String,
    /// Reason for people.
    #[serde(default)]
    pub details: String,
}

impl DeletionMark {
    /// Reads the file.
    ///
    /// # Errors
    /// [`MimirError`].
    pub fn decode(text: &[u8]) -> Result<DeletionMark, MimirError> {
        let mark: DeletionMark = parse_mark(DELETION_MARK, text)?;
        check_version(DELETION_MARK, mark.version)?;
        Ok(mark)
    }
}

impl NoCompactMark {
    /// A mark of Chronolith, which compacts the block itself; it has the time of the block, so that equal
    /// blocks have equal marks.
    #[must_use]
    pub fn of_upload(block: Ulid, details: String) -> NoCompactMark {
        let no_compact_time = block.time_ms() / 1000;
        NoCompactMark { id: block, version: VERSION, no_compact_time, reason: REASON.to_owned(), details }
    }

    /// Appends the file to `out`.
    ///
    /// # Panics
    /// Never: every field has a JSON form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect("the mark has a JSON form");
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`MimirError`].
    pub fn decode(text: &[u8]) -> Result<NoCompactMark, MimirError> {
        let mark: NoCompactMark = parse_mark(NO_COMPACT_MARK, text)?;
        check_version(NO_COMPACT_MARK, mark.version)?;
        Ok(mark)
    }
}

fn check_version(file: &'static str, found: i64) -> Result<(), MimirError> {
    if found == VERSION { Ok(()) } else { Err(MimirError::Version { file, expected: "1", found }) }
}

/// Name of the deletion marker of a block within the folder of its tenant.
#[must_use]
pub fn deletion_marker_name(block: Ulid) -> String {
    format!("{MARKERS_FOLDER}{block}-{DELETION_MARK}")
}

/// Returns the block that the object `name` in the folder of a tenant marks for deletion; `None` for other
/// objects.
#[must_use]
pub fn deletion_marker_of(name: &str) -> Option<Ulid> {
    let file = name.strip_prefix(MARKERS_FOLDER)?;
    file.strip_suffix(DELETION_MARK)?.strip_suffix('-')?.parse().ok()
}
