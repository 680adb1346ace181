//! Sealed chunk files: finished chunks leave memory and are read back by [`ChunkRef`].
//!
//! Invariants: references ascend in the order of sealing over all files; a chunk is readable from the moment
//! it is pushed, written or not; a file that a reader holds stays readable after it is deleted.
//! Not here: record bytes (`format::head::sealed`), the owners of references (`stripe`).

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::disk::is_short_of_files;
use chronolith_base::{Disk, Env};
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_format::head::sealed::RecordHeader;
use chronolith_model::{Columns, QueryError, TimeRange};
use parking_lot::{Mutex, RwLock};

pub(crate) use file::SealedFile;

use crate::memory_part::MemoryPart;
use crate::options::HeadError;
use crate::series::sealed_chunks::{ChunkRef, SealedChunk};

/// Buffered bytes at which the next appender writes them to disk.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Buffered bytes from which writes are refused while no file can be opened.
const WAITING_BYTES_MAX: u64 = 16 << 20;

/// Bytes from which the current file is closed once no chunk of it is referenced.
const DEAD_BYTES_MIN: u64 = 1 << 20;

/// All sealed files of the head.
pub(crate) struct SealedStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file_bytes_max: u64,
    current: Mutex<Arc<SealedFile>>,
    files: RwLock<BTreeMap<u32, Arc<SealedFile>>>,
    unwritten_bytes: AtomicU64,
    /// Set if the last attempt to write found no free file descriptor.
    is_short_of_files: AtomicBool,
}

impl SealedStore {
    /// Returns a store whose next file has number `next`; `kept` are files of an earlier process.
    pub(crate) fn new(
        env: &Env,
        data_dir: &Path,
        file_bytes_max: u64,
        next: u32,
        kept: Vec<SealedFile>,
    ) -> SealedStore {
        let dir = sealed_dir(data_dir);
        let current = Arc::new(SealedFile::new(&dir, next));
        let mut files: BTreeMap<_, _> = kept.into_iter().map(|f| (f.number(), Arc::new(f))).collect();
        files.insert(next, current.clone());
        SealedStore {
            disk: env.disk.clone(),
            dir,
            file_bytes_max: file_bytes_max.min(u64::from(u32::MAX) / 2),
            current: Mutex::new(current),
            files: RwLock::new(files),
            unwritten_bytes: AtomicU64::new(0),
            is_short_of_files: AtomicBool::new(false),
        }
    }

    /// Adds a chunk; it is readable at once and written later.
    pub(crate) fn push(&self, header: &RecordHeader, chunk: &[u8]) -> ChunkRef {
        let mut current = self.current.lock();
        if current.len() >= self.file_bytes_max {
            self.begin_file(&mut current);
        }
        let (offset, added) = current.push(header, chunk);
        self.unwritten_bytes.fetch_add(added, Ordering::Relaxed);
        ChunkRef::new(current.number(), offset)
    }

    /// Raises the number of the file for further chunks to at least `number`.
    pub(crate) fn skip_to(&self, number: u32) {
        let mut current = self.current.lock();
        if current.number() >= number {
            return;
        }
        let mut files = self.files.write();
        if !current.is_live() {
            files.remove(&current.number());
        }
        *current = Arc::new(SealedFile::new(&self.dir, number));
        files.insert(number, current.clone());
    }

    /// Returns the file with this number, if it exists.
    pub(crate) fn file(&self, number: u32) -> Option<Arc<SealedFile>> {
        self.files.read().get(&number).cloned()
    }

    /// Appends the samples in `range` of a chunk to `out`; appends nothing if it cannot be read.
    ///
    /// # Errors
    /// [`QueryError`]; damage includes a wrong number of samples where all are read.
    pub(crate) fn decode(
        &self,
        disk: &dyn Disk,
        node: &SealedChunk,
        range: TimeRange,
        out: &mut Columns,
    ) -> Result<(), QueryError> {
        let before = out.len();
        let file = self.file_of(node)?;
        let mut decoded = file.decode(disk, node, range, out);
        if range == TimeRange::ALL && decoded.is_ok() && out.len() - before != usize::from(node.count()) {
            decoded =
                Err(file.corrupt(format!("chunk at offset {}: sample count", node.chunk_ref().offset())));
        }
        decoded.inspect_err(|_| out.truncate(before))
    }

    /// Returns a copy of a chunk.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`] or [`QueryError::Io`].
    pub(crate) fn copy(&self, disk: &dyn Disk, node: &SealedChunk) -> Result<EncodedChunk, QueryError> {
        self.file_of(node)?.copy(disk, node)
    }

    fn file_of(&self, node: &SealedChunk) -> Result<Arc<SealedFile>, QueryError> {
        let number = node.chunk_ref().file();
        let missing = || QueryError::Corrupt {
            path: self.dir.display().to_string(),
            what: format!("sealed file {number} is missing"),
        };
        self.file(number).ok_or_else(missing)
    }

    /// Drops one reference to a chunk.
    pub(crate) fn release(&self, chunk_ref: ChunkRef) {
        if let Some(file) = self.file(chunk_ref.file()) {
            file.remove_reference();
        }
    }

    /// Returns a position after the newest chunk: chunks sealed later are at or after it.
    pub(crate) fn end(&self) -> ChunkRef {
        let current = self.current.lock();
        ChunkRef::new(current.number(), u32::try_from(current.len()).unwrap_or(u32::MAX))
    }

    /// Writes buffered chunks once there are many.
    pub(crate) fn write_if_many(&self) -> Result<(), HeadError> {
        if self.unwritten_bytes.load(Ordering::Relaxed) < UNWRITTEN_BYTES_MAX {
            return Ok(());
        }
        self.write_all()
    }

    /// Writes all buffered chunks.
    pub(crate) fn write_all(&self) -> Result<(), HeadError> {
        let files: Vec<_> = self.files.read().values().cloned().collect();
        for file in files {
            let written = file.write(&*self.disk).inspect_err(|error| self.note_shortage(error, file.path()));
            let written = written.map_err(HeadError::io(file.path()))?;
            self.unwritten_bytes.fetch_sub(written, Ordering::Relaxed);
        }
        self.is_short_of_files.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn note_shortage(&self, error: &io::Error, path: &Path) {
        if is_short_of_files(error) && !self.is_short_of_files.swap(true, Ordering::Relaxed) {
            let (path, unwritten_bytes) = (path.display(), self.unwritten_bytes.load(Ordering::Relaxed));
            tracing::warn!(%path, %error, unwritten_bytes, "opening a sealed chunk file failed, sealed chunks stay in memory until one can be opened");
        }
    }

    /// Returns true if no file can be opened and the buffer limit for that case is reached.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_short_of_files.load(Ordering::Relaxed)
            && self.unwritten_bytes.load(Ordering::Relaxed) >= WAITING_BYTES_MAX
    }

    /// Makes all written chunks durable. Callers must not run concurrently (see [`SealedFile::sync`]).
    pub(crate) fn sync_all(&self) -> Result<(), HeadError> {
        let files: Vec<_> = self.files.read().values().cloned().collect();
        for file in files {
            file.sync().map_err(HeadError::io(file.path()))?;
        }
        self.disk.sync_dir(&self.dir).map_err(HeadError::io(&self.dir))
    }

    /// Returns the numbers of files without referenced chunks. They stay readable, but are not mapped. The
    /// current file is closed if it is one of them and not small; otherwise it is never among them.
    pub(crate) fn dead_files(&self) -> Vec<u32> {
        let mut current = self.current.lock();
        // No chunk is pushed while the lock is held.
        if !current.is_live() && current.len() >= DEAD_BYTES_MIN {
            self.begin_file(&mut current);
        }
        let end = current.number();
        drop(current);
        let files = self.files.read();
        let dead: Vec<_> = files.values().filter(|file| file.number() < end && !file.is_live()).collect();
        dead.iter().for_each(|file| file.unmap());
        dead.iter().map(|file| file.number()).collect()
    }

    fn begin_file(&self, current: &mut Arc<SealedFile>) {
        let next = Arc::new(SealedFile::new(&self.dir, current.number() + 1));
        self.files.write().insert(next.number(), next.clone());
        *current = next;
    }

    /// Deletes files that neither the head nor a checkpoint references.
    pub(crate) fn delete(&self, numbers: &[u32]) -> Result<(), HeadError> {
        for number in numbers {
            let Some(file) = self.files.write().remove(number) else { continue };
            if self.disk.exists(file.path()) {
                self.disk.remove_file(file.path()).map_err(HeadError::io(file.path()))?;
            }
            self.unwritten_bytes.fetch_sub(file.unwritten_len(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the numbers of all files but the current one.
    pub(crate) fn finished_files(&self) -> Vec<u32> {
        let current = self.current.lock().number();
        self.files.read().keys().copied().filter(|&number| number < current).collect()
    }

    /// Returns the memory of unwritten chunks and of file records.
    pub(crate) fn memory(&self) -> MemoryPart {
        let files = self.files.read();
        let file_bytes = |file: &Arc<SealedFile>| file.buffer_bytes() + size_of::<SealedFile>() as u64;
        MemoryPart::new("sealed_buffers", files.values().map(file_bytes).sum(), files.len() as u64)
    }

    /// Returns the number of files and their total bytes.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let files = self.files.read();
        (files.len() as u64, files.values().map(|f| f.len()).sum())
    }
}

/// Returns the directory of sealed files.
pub(crate) fn sealed_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("chunks")
}
