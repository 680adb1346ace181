//! A file written front to back through a buffer. Not durable before [`FileSink::sync`].

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chronolith_base::{DiskFile, Env};

use crate::BlockError;

/// Buffered bytes at which they are written: large writes, small enough to have one for each open file.
const BUFFER_BYTES: usize = 1 << 20;

pub(crate) struct FileSink {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    buffer: Vec<u8>,
    written: u64,
}

impl FileSink {
    pub(crate) fn create(env: &Env, path: &Path) -> Result<FileSink, BlockError> {
        let file = env.disk.create(path).map_err(BlockError::io(path))?;
        Ok(FileSink { file, path: path.to_owned(), buffer: Vec::new(), written: 0 })
    }

    /// Bytes so far, buffered ones included.
    pub(crate) fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The buffer, to append to; [`FileSink::drain`] follows.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes the buffer out if it is full.
    pub(crate) fn drain(&mut self) -> Result<(), BlockError> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush().map_err(BlockError::io(&self.path))?;
        }
        Ok(())
    }

    /// Writes everything out and asks for it to be sent to the disk; [`FileSink::sync`] follows, best after
    /// the same was done with the other files that are synced then.
    pub(crate) fn write_out(&mut self) -> Result<(), BlockError> {
        self.flush().map_err(BlockError::io(&self.path))?;
        self.buffer = Vec::new();
        self.file.start_writeback();
        Ok(())
    }

    /// Writes everything and makes it durable.
    pub(crate) fn sync(&mut self) -> Result<(), BlockError> {
        self.flush().and_then(|()| self.file.sync_data()).map_err(BlockError::io(&self.path))
    }
}

impl Write for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_at(&self.buffer, self.written)?;
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
