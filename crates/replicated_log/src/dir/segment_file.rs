//! Bytes of a segment, read through a window.
//!
//! Invariant: bytes beyond the length that the caller knows to be durable are never returned.

use std::path::PathBuf;

use chronolith_base::{Disk, DiskFile};

use crate::error::LogError;

/// Bytes that one read of the file asks for.
const WINDOW_BYTES: usize = 256 << 10;

/// An open segment.
pub(super) struct SegmentFile {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    len: u64,
    /// Bytes of the file from `window_start` on.
    window: Vec<u8>,
    window_start: u64,
}

impl SegmentFile {
    /// Opens the file, of which the first `len` bytes count.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn open(disk: &dyn Disk, path: PathBuf, len: u64) -> Result<SegmentFile, LogError> {
        let file = disk.open_read(&path).map_err(LogError::at(&path))?;
        Ok(SegmentFile { path, file, len, window: Vec::new(), window_start: 0 })
    }

    /// Returns the path, for messages.
    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Returns the bytes that count.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns bytes from `at` on: at least `wanted`, fewer only at the end of the segment.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn bytes_at(&mut self, at: u64, wanted: usize) -> Result<&[u8], LogError> {
        let left = self.len.saturating_sub(at);
        let wanted = (wanted as u64).min(left);
        let window_end = self.window_start + self.window.len() as u64;
        if at < self.window_start || at + wanted > window_end {
            let len = (wanted.max(WINDOW_BYTES as u64)).min(left);
            self.window.resize(len as usize, 0);
            self.window_start = at;
            self.file.read_at(&mut self.window, at).map_err(LogError::at(&self.path))?;
        }
        let skipped = (at - self.window_start) as usize;
        Ok(self.window.get(skipped..).unwrap_or_default())
    }
}
