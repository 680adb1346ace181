//! State of the current series file, and its path.
//!
//! Not here: appending and rewriting it (`definitions`), its bytes (`format::head::series_file`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::DiskFile;

use crate::index::ids::IdMark;

/// Name suffix of the second copy.
pub(crate) const MIRROR_SUFFIX: &str = ".definitions-mirror";

/// The current series file.
pub(crate) struct DefinitionsFile {
    /// Both copies; `None` before the first checkpoint, or if the next one rewrites them.
    pub(super) files: Option<[Arc<dyn DiskFile>; 2]>,
    pub(super) generation: u64,
    /// Offset of the next frame.
    pub(super) offset: u64,
    /// Sequence of the last frame.
    pub(super) frame_sequence: u64,
    /// Series whose ids were assigned by then are in the file.
    pub(super) ids: IdMark,
    /// Series in the file, dead ones included.
    pub(super) series_count: u64,
    /// Set if the file must be rewritten: it is damaged, or a write to it has failed.
    pub(super) is_broken: bool,
    /// Set if bytes of an earlier process may not be durable.
    pub(super) is_dirty: bool,
}

impl DefinitionsFile {
    /// Returns the state without a file.
    pub(crate) fn none() -> DefinitionsFile {
        DefinitionsFile {
            files: None,
            generation: 0,
            offset: 0,
            frame_sequence: 0,
            ids: IdMark::fresh(0),
            series_count: 0,
            is_broken: false,
            is_dirty: false,
        }
    }

    /// Returns the state after startup: the last frame has `frame_sequence` and ends at `offset`, and the file
    /// has `series_count` series with ids below `next_id`. Without `files`, the next checkpoint rewrites it.
    pub(crate) fn opened(
        files: Option<[Arc<dyn DiskFile>; 2]>,
        generation: u64,
        offset: u64,
        frame_sequence: u64,
        next_id: u32,
        series_count: u64,
    ) -> DefinitionsFile {
        let (ids, is_broken) = (IdMark::fresh(next_id), files.is_none());
        let is_dirty = true;
        DefinitionsFile { files, generation, offset, frame_sequence, ids, series_count, is_broken, is_dirty }
    }

    /// Makes the next checkpoint rewrite the file.
    pub(crate) fn set_broken(&mut self) {
        self.is_broken = true;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.offset
    }
}

/// Returns the path of one of the two copies of a generation.
pub(crate) fn definitions_path(dir: &Path, generation: u64, copy_idx: usize) -> PathBuf {
    let suffix = if copy_idx == 0 { ".definitions" } else { MIRROR_SUFFIX };
    dir.join(format!("{generation:08}{suffix}"))
}
