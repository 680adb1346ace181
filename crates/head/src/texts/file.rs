//! Files of texts: the texts that words in sealed files, slices and samples frames name, after their own
//! frames have left the WAL.
//!
//! Invariants: a file has two copies with the same bytes; it is appended to, never changed. After a failed
//! write the next texts go to another file.
//! Not here: the bytes (`format::head::text_file`), schedule of saving texts (`checkpoint::texts`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{AppendFile, Disk};
use chronolith_format::head::text_file;

/// Suffixes of the two copies.
pub(crate) const SUFFIXES: [&str; 2] = [".texts", ".texts-mirror"];
/// Payload bytes at which the next frame starts.
pub(crate) const FRAME_BYTES: usize = 4 << 20;
/// A file is not replaced below this many bytes of freed texts.
const FREED_BYTES_MIN: u64 = 16 << 20;

/// Files of texts of this process and of earlier ones.
#[derive(Default)]
pub(crate) struct TextFile {
    /// The file to append to; `None` before the first text.
    file: Option<AppendFile>,
    frame_count: u64,
    /// Highest generation in use.
    generation: u64,
    /// Copies of earlier generations.
    older: Vec<PathBuf>,
    older_bytes: u64,
    /// Number of the last change that freed texts.
    freed_change: u64,
}

impl TextFile {
    /// Returns the state after a start that found the copies `older`, with `bytes` in all.
    pub(crate) fn found(older: Vec<PathBuf>, generation: u64, bytes: u64) -> TextFile {
        TextFile { older, generation, older_bytes: bytes, ..TextFile::default() }
    }

    /// Records that texts were freed by change number `change`.
    pub(crate) fn note_freed(&mut self, change: u64) {
        self.freed_change = change;
    }

    /// Number of the last change that freed texts.
    pub(crate) fn freed_change(&self) -> u64 {
        self.freed_change
    }

    /// Returns true if a file with the `live_bytes` of all texts should replace all others.
    pub(crate) fn has_freed(&self, live_bytes: u64) -> bool {
        let bytes = self.older_bytes + self.file.as_ref().map_or(0, AppendFile::len);
        bytes > live_bytes.saturating_mul(2).saturating_add(FREED_BYTES_MIN) || (live_bytes == 0 && bytes > 0)
    }

    /// Appends payloads of texts, durably.
    ///
    /// # Errors
    /// As the operating system reports; the file is closed then.
    pub(crate) fn append(
        &mut self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        key: u128,
        payloads: &[Vec<u8>],
    ) -> std::io::Result<()> {
        let is_open = self.file.as_ref().is_some_and(AppendFile::is_open);
        if !is_open {
            self.retire();
            self.generation += 1;
            self.frame_count = 0;
            self.file = Some(AppendFile::create(disk.clone(), paths(dir, self.generation))?);
        }
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let mut bytes = Vec::new();
        for payload in payloads {
            bytes.clear();
            text_file::put_frame(key, self.frame_count, payload, &mut bytes);
            self.frame_count += 1;
            file.append(&bytes)?;
        }
        if is_open { file.sync() } else { file.publish() }
    }

    /// Returns true if there are files of earlier processes, or files that were replaced.
    pub(crate) fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    /// Closes the file, so that the next texts go to another one.
    pub(crate) fn close(&mut self) {
        self.file.iter_mut().for_each(AppendFile::close);
    }

    /// Removes the files before the current one.
    ///
    /// # Errors
    /// As the operating system reports, with the path.
    pub(crate) fn remove_older(&mut self, disk: &dyn Disk) -> Result<(), (PathBuf, std::io::Error)> {
        while let Some(path) = self.older.last() {
            if disk.exists(path) {
                disk.remove_file(path).map_err(|error| (path.clone(), error))?;
            }
            self.older.pop();
        }
        self.older_bytes = 0;
        Ok(())
    }

    /// Counts the current file among the earlier ones.
    pub(crate) fn retire(&mut self) {
        if let Some(file) = self.file.take() {
            self.older_bytes += file.len();
            self.older
                .extend(SUFFIXES.map(|suffix| file.path().with_extension(suffix.trim_start_matches('.'))));
        }
    }
}

/// Returns the paths of both copies of a generation.
pub(crate) fn paths(dir: &Path, generation: u64) -> Vec<PathBuf> {
    SUFFIXES.map(|suffix| dir.join(format!("{generation:08}{suffix}"))).to_vec()
}
