//! Roll-up file of a block: the windows of one archive, series by series (`docs/block/rollup.md`).
//!
//! Invariants: a series has its windows in parts of at most [`PART_WINDOWS_MAX`], whose columns share the
//! list of windows; head and parts have checksums, so that a missing window is an empty one. Readers take
//! untrusted bytes, never panic, and allocate for no more windows than a part may have.
//! Not here: values of windows (`model::rollup`), writing and use of a file (`block`, `tsdb`).

mod file;
mod part;
mod section;

pub use file::{
    ENTRY_BYTES, HEADER_BYTES, RollupTable, RollupTail, TRAILER_BYTES, TableSection, decode_header,
    encode_header, encode_trailer, put_entry,
};
pub use part::PART_WINDOWS_MAX;
pub use section::{Section, encode_section};

use chronolith_model::rollup::RollupSpan;

/// Name of the directory of roll-up files within a block.
pub const ROLLUPS_DIR: &str = "rollups";

/// Name of the file of an archive.
#[must_use]
pub fn file_name(span: RollupSpan) -> String {
    let RollupSpan { span_ms, slot_ms } = span;
    format!("{span_ms}-{slot_ms}")
}

/// The archive by the name of its file; `None` for names of other files.
#[must_use]
pub fn archive_of_name(name: &str) -> Option<RollupSpan> {
    let (span, slot) = name.split_once('-')?;
    let archive = RollupSpan { span_ms: span.parse().ok()?, slot_ms: slot.parse().ok()? };
    (name == file_name(archive)).then_some(archive)
}

#[cfg(test)]
mod tests;
