//! One sealed file: written bytes are read through a memory map, the rest from the write buffer.
//!
//! Invariant: a record lies entirely in the written part or entirely in the buffer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::disk::is_short_of_files;
use chronolith_base::{DecodeError, Disk, DiskFile, Mapped};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_format::head::sealed::{
    self, FILE_HEADER_BYTES, RECORD_HEADER_BYTES, RECORD_OVERHEAD_BYTES, RecordHeader,
};
use chronolith_model::{Columns, QueryError, TimeRange};
use parking_lot::{Mutex, RwLock};

use crate::series::sealed_chunks::SealedChunk;

/// Written bytes after the end of the map at which it is made again; fewer are read with positional reads.
const REMAP_BYTES: u64 = 1 << 20;

struct Tail {
    handle: Option<Arc<dyn DiskFile>>,
    written: u64,
    buffer: Vec<u8>,
    is_dirty: bool,
}

/// A sealed file: its write buffer, handle and memory map.
pub(crate) struct SealedFile {
    number: u32,
    path: PathBuf,
    /// Chunks that the head references.
    live_count: AtomicU64,
    tail: Mutex<Tail>,
    mapped: RwLock<Option<Mapped>>,
}

impl SealedFile {
    /// Returns a new file; it is created on disk by the first write.
    pub(crate) fn new(dir: &Path, number: u32) -> SealedFile {
        let buffer = sealed::encode_file_header(u64::from(number)).to_vec();
        let tail = Tail { handle: None, written: 0, buffer, is_dirty: false };
        SealedFile::build(dir, number, tail, None)
    }

    /// Opens a file of an earlier process.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, number: u32) -> io::Result<SealedFile> {
        let path = file_path(dir, number);
        let mapped = disk.map(&path)?;
        let found =
            sealed::decode_file_header(&mapped).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        if found != u64::from(number) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("header says file {found}")));
        }
        let (handle, written) = (Some(disk.open(&path)?.into()), mapped.len() as u64);
        let tail = Tail { handle, written, buffer: Vec::new(), is_dirty: false };
        Ok(SealedFile::build(dir, number, tail, Some(mapped)))
    }

    fn build(dir: &Path, number: u32, tail: Tail, mapped: Option<Mapped>) -> SealedFile {
        SealedFile {
            number,
            path: file_path(dir, number),
            live_count: AtomicU64::new(0),
            tail: Mutex::new(tail),
            mapped: RwLock::new(mapped),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a reference to a chunk of the file.
    pub(crate) fn add_reference(&self) {
        self.live_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a reference to a chunk of the file.
    pub(super) fn remove_reference(&self) {
        self.live_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if the head references a chunk of the file.
    pub(crate) fn is_live(&self) -> bool {
        self.live_count.load(Ordering::Relaxed) > 0
    }

    /// Drops the map; later reads map the file again or use positional reads.
    pub(crate) fn unmap(&self) {
        *self.mapped.write() = None;
    }

    /// Returns the length in bytes, written or not.
    pub(crate) fn len(&self) -> u64 {
        let tail = self.tail.lock();
        tail.written + tail.buffer.len() as u64
    }

    /// Returns the bytes allocated for the buffer.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.tail.lock().buffer.capacity() as u64
    }

    pub(crate) fn unwritten_len(&self) -> u64 {
        self.tail.lock().buffer.len() as u64
    }

    /// Adds a chunk; returns its offset and the bytes of its record.
    pub(crate) fn push(&self, header: &RecordHeader, chunk: &[u8]) -> (u32, u64) {
        let mut tail = self.tail.lock();
        let before = tail.buffer.len();
        let offset = u32::try_from(tail.written + before as u64).expect("files end far below 4 GiB");
        sealed::encode_record(header, chunk, &mut tail.buffer);
        self.add_reference();
        (offset, (tail.buffer.len() - before) as u64)
    }

    /// Writes the buffer; returns the chunk bytes written.
    pub(crate) fn write(&self, disk: &dyn Disk) -> io::Result<u64> {
        let mut tail = self.tail.lock();
        let tail = &mut *tail;
        let is_new = tail.handle.is_none();
        // A file is not created for its header alone.
        if tail.buffer.len() <= if is_new { FILE_HEADER_BYTES } else { 0 } {
            return Ok(0);
        }
        let file = match &tail.handle {
            Some(file) => file,
            None => tail.handle.insert(disk.create(&self.path)?.into()),
        };
        file.write_at(&tail.buffer, tail.written)?;
        let header = if tail.written == 0 { FILE_HEADER_BYTES } else { 0 };
        let len = tail.buffer.len();
        tail.written += len as u64;
        tail.is_dirty = true;
        // Most files are never pushed to again; their buffers must not stay allocated.
        tail.buffer = Vec::new();
        Ok((len - header) as u64)
    }

    /// Makes written bytes durable. Callers must not run concurrently: a second one would not wait for the
    /// first.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut tail = self.tail.lock();
        if !tail.is_dirty {
            return Ok(());
        }
        // Appends and reads must not wait for the disk; bytes written meanwhile make the file dirty again.
        tail.is_dirty = false;
        let handle = tail.handle.clone();
        drop(tail);
        let synced = handle.map_or(Ok(()), |file| file.sync_data());
        if synced.is_err() {
            self.tail.lock().is_dirty = true;
        }
        synced
    }

    /// Calls `with` with the bytes of the chunk whose record starts at `offset`, after verifying the
    /// checksum.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] or [`QueryError::Io`].
    pub(crate) fn read_chunk<T>(
        &self,
        disk: &dyn Disk,
        offset: u32,
        chunk_len: Option<usize>,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, QueryError> {
        self.read_record(disk, offset, chunk_len, |_, chunk| with(chunk))
    }

    /// As [`SealedFile::read_chunk`], with the header of the record.
    fn read_record<T>(
        &self,
        disk: &dyn Disk,
        offset: u32,
        chunk_len: Option<usize>,
        with: impl FnOnce(&RecordHeader, &[u8]) -> T,
    ) -> Result<T, QueryError> {
        let chunk_len = match chunk_len {
            Some(len) => len,
            None => self
                .read_bytes(disk, offset, RECORD_HEADER_BYTES, sealed::record_chunk_len)?
                .map_err(|error| self.bad_record(offset, error))?,
        };
        let record_len = (chunk_len + RECORD_OVERHEAD_BYTES) as u64;
        if u64::from(offset) + record_len > self.len() {
            return Err(self.corrupt(format!("chunk record at offset {offset}: ends after the file")));
        }
        self.read_bytes(
            disk,
            offset,
            chunk_len + RECORD_OVERHEAD_BYTES,
            |record| match sealed::decode_record(record, 0) {
                Ok((header, chunk)) => Ok(with(&header, chunk)),
                Err(error) => Err(self.bad_record(offset, error)),
            },
        )?
    }

    /// Returns a copy of the chunk `node`.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] or [`QueryError::Io`].
    pub(crate) fn copy(&self, disk: &dyn Disk, node: &SealedChunk) -> Result<EncodedChunk, QueryError> {
        let (encoding, count) = (node.encoding(), node.count());
        let min_time = node.min_time();
        let (bytes, max_time) =
            self.read_record(disk, node.chunk_ref().offset(), node.byte_len(), |header, bytes| {
                (bytes.to_vec(), if node.is_bound() { header.max_time } else { node.max_time() })
            })?;
        Ok(EncodedChunk { encoding, min_time, max_time, count, bytes })
    }

    /// Appends the samples in `range` of the chunk `node` to `out`.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] or [`QueryError::Io`]; samples before the damage have been appended.
    pub(crate) fn decode(
        &self,
        disk: &dyn Disk,
        node: &SealedChunk,
        range: TimeRange,
        out: &mut Columns,
    ) -> Result<(), QueryError> {
        let offset = node.chunk_ref().offset();
        self.read_chunk(disk, offset, node.byte_len(), |bytes| {
            kinds::decode(node.encoding(), bytes, range, out)
        })?
        .map_err(|error| self.corrupt(format!("chunk at offset {offset}: {error}")))
    }

    /// Calls `with` with `len` bytes at `offset`, or with none if they are not there.
    fn read_bytes<T>(
        &self,
        disk: &dyn Disk,
        offset: u32,
        len: usize,
        with: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, QueryError> {
        let start = offset as usize;
        let end = start + len;
        let map = self.mapped.read().clone();
        if let Some(record) = map.as_ref().and_then(|m| m.get(start..end)) {
            return Ok(with(record));
        }
        let tail = self.tail.lock();
        if let Some(at) = u64::from(offset).checked_sub(tail.written) {
            let record = tail.buffer.get(at as usize..).unwrap_or(&[]);
            return Ok(with(record));
        }
        let unmapped = tail.written - map.map_or(0, |m| m.len() as u64);
        if unmapped >= REMAP_BYTES {
            // If there is no descriptor for the map, the open handle can still read.
            match disk.map(&self.path) {
                Err(error) if !is_short_of_files(&error) || tail.handle.is_none() => {
                    return Err(self.io(error));
                }
                Err(_) => {}
                Ok(map) => {
                    drop(tail);
                    *self.mapped.write() = Some(map.clone());
                    return Ok(with(map.get(start..end).unwrap_or(&[])));
                }
            }
        }
        let mut record = vec![0; end - start];
        match &tail.handle {
            Some(file) => file.read_at(&mut record, u64::from(offset)).map_err(|e| self.io(e))?,
            None => record.clear(),
        }
        drop(tail);
        Ok(with(&record))
    }

    fn bad_record(&self, offset: u32, error: DecodeError) -> QueryError {
        self.corrupt(format!("chunk record at offset {offset}: {error}"))
    }

    /// Returns a corruption error with the path of this file.
    pub(crate) fn corrupt(&self, what: String) -> QueryError {
        QueryError::Corrupt { path: self.path.display().to_string(), what }
    }

    fn io(&self, error: io::Error) -> QueryError {
        QueryError::Io { path: self.path.display().to_string(), error }
    }
}

/// Returns the path of sealed file `number`.
fn file_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:08}.sealed"))
}
