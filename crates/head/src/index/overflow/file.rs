//! Names of the checkpoint files of overflow tables.
//!
//! Not here: bytes (`format::head::overflow_file`), writing (`checkpoint::overflow`), loading
//! (`recovery::overflow`).

use std::path::{Path, PathBuf};

/// Suffixes of the two copies.
pub(crate) const SUFFIXES: [&str; 2] = [".overflow", ".overflow-mirror"];

/// Files of this process and of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct OverflowFiles {
    /// Highest generation in use; 0 = there is none.
    generation: u64,
    /// Copies of all generations.
    paths: Vec<PathBuf>,
}

impl OverflowFiles {
    /// Returns the files that a start found.
    pub(crate) fn found(generation: u64, paths: Vec<PathBuf>) -> OverflowFiles {
        OverflowFiles { generation, paths }
    }

    /// Returns true if there is no file.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns the paths of the next generation in `dir`.
    pub(crate) fn next_paths(&self, dir: &Path) -> Vec<PathBuf> {
        SUFFIXES.map(|suffix| dir.join(format!("{:08}{suffix}", self.generation + 1))).to_vec()
    }

    /// Adds the next generation; returns the paths of the generations before, which can be removed.
    pub(crate) fn add(&mut self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let before = self.paths.clone();
        self.paths.extend(paths);
        self.generation += 1;
        before
    }

    /// Forgets the first `count` paths, whose files were removed.
    pub(crate) fn forget(&mut self, count: usize) {
        self.paths.drain(..count);
    }
}
