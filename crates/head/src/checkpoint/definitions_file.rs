//! State of the current series file, and its path.
//!
//! Not here: appending and rewriting it (`definitions`), its bytes (`format::head::series_file`).

use std::path::{Path, PathBuf};

use chronolith_base::AppendFile;

use crate::index::ids::IdMark;

/// Name suffix of the second copy.
pub(crate) const MIRROR_SUFFIX: &str = ".definitions-mirror";

/// The current series file.
pub(crate) struct DefinitionsFile {
    /// `None` before the first checkpoint.
    pub(super) file: Option<AppendFile>,
    pub(super) generation: u64,
    /// Sequence of the last frame.
    pub(super) frame_sequence: u64,
    /// Series whose ids were assigned by then are in the file.
    pub(super) ids: IdMark,
    /// Series in the file, dead ones included.
    pub(super) series_count: u64,
    is_broken: bool,
}

impl DefinitionsFile {
    /// Returns the state without a file.
    pub(crate) fn none() -> DefinitionsFile {
        let ids = IdMark::fresh(0);
        DefinitionsFile {
            file: None,
            generation: 0,
            frame_sequence: 0,
            ids,
            series_count: 0,
            is_broken: false,
        }
    }

    /// Returns the state of a file of which the last frame has `frame_sequence`, with `series_count` series,
    /// those whose ids were assigned at `ids`. The next checkpoint rewrites a file that is not open.
    pub(crate) fn new(
        file: AppendFile,
        generation: u64,
        frame_sequence: u64,
        ids: IdMark,
        series_count: u64,
    ) -> DefinitionsFile {
        DefinitionsFile { file: Some(file), generation, frame_sequence, ids, series_count, is_broken: false }
    }

    /// Makes the next checkpoint rewrite the file.
    pub(crate) fn set_broken(&mut self) {
        self.is_broken = true;
    }

    /// Returns true if the file must be rewritten: it is damaged, or a write to it has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken || self.file.as_ref().is_some_and(|file| !file.is_open())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, AppendFile::len)
    }
}

/// Returns the paths of both copies of a generation.
pub(crate) fn definitions_paths(dir: &Path, generation: u64) -> Vec<PathBuf> {
    vec![definitions_path(dir, generation, 0), definitions_path(dir, generation, 1)]
}

/// Returns the path of one of the two copies of a generation.
pub(crate) fn definitions_path(dir: &Path, generation: u64, copy_idx: usize) -> PathBuf {
    let suffix = if copy_idx == 0 { ".definitions" } else { MIRROR_SUFFIX };
    dir.join(format!("{generation:08}{suffix}"))
}
