//! One segment of WAL or WBL, read in windows of several pages.
//!
//! Not here: page and fragment layout (`format::prometheus::segment`).

use std::io;

use chronolith_base::Env;
use chronolith_base::disk::DiskFile;
use chronolith_format::prometheus::segment::{Item, PAGE_BYTES, SegmentReader};

use super::data_dir::SourceFile;

/// Bytes per read.
const WINDOW_BYTES: usize = 8 * PAGE_BYTES;

/// An open segment.
pub(crate) struct SegmentFile {
    file: Box<dyn DiskFile>,
    len: u64,
    /// Bytes that have been read.
    offset: u64,
    window: Vec<u8>,
    reader: SegmentReader,
}

impl SegmentFile {
    /// Opens `file` for reading from its start.
    pub(crate) fn open(env: &Env, file: &SourceFile) -> io::Result<SegmentFile> {
        let opened = env.disk.open_read(&file.path)?;
        let (window, reader) = (Vec::new(), SegmentReader::new());
        Ok(SegmentFile { file: opened, len: file.len, offset: 0, window, reader })
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Calls `visit` with the records and damage of the next window; returns its length, 0 at the end.
    pub(crate) fn read_window(&mut self, visit: &mut dyn FnMut(Item<'_>)) -> io::Result<u64> {
        let len = (self.len - self.offset).min(WINDOW_BYTES as u64);
        if len == 0 {
            self.reader.finish(visit);
            return Ok(0);
        }
        self.window.resize(len as usize, 0);
        self.file.read_at(&mut self.window, self.offset)?;
        for page in self.window.chunks(PAGE_BYTES) {
            self.reader.page(page, visit);
        }
        self.offset += len;
        Ok(len)
    }
}
