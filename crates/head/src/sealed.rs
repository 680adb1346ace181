//! Sealed chunk files: finished chunks leave memory, and are read back by their place.
//!
//! Holds: places ascend in the order of sealing over all files; a chunk is readable from the moment it is
//! pushed, written or not; a file that a reader holds stays readable after it is deleted.
//! Not here: record bytes (`format::sealed`), who refers to a chunk (`stripe`).

mod file;
mod verify;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronolith_base::{Disk, Env};
use chronolith_format::sealed::RecordHeader;
use parking_lot::{Mutex, RwLock};

pub(crate) use file::SealedFile;
pub(crate) use verify::SealedVerification;

use crate::memory::MemoryPart;
use crate::options::HeadError;

/// Buffered bytes at which the next appender writes them out.
const UNWRITTEN_BYTES_MAX: u64 = 256 << 10;
/// Buffered bytes above which writes are refused while no file can be opened.
const WAITING_BYTES_MAX: u64 = 16 << 20;

/// Bytes of the current file from which it ends when nothing refers to it any more.
const DEAD_BYTES_MIN: u64 = 1 << 20;

/// Where a sealed chunk is. Ascends in the order of sealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct SealedPlace {
    pub(crate) file: u32,
    pub(crate) offset: u32,
}

impl SealedPlace {
    /// After all others.
    pub(crate) const MAX: SealedPlace = SealedPlace { file: u32::MAX, offset: u32::MAX };
}

/// All sealed files of the head.
pub(crate) struct SealedStore {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file_bytes_max: u64,
    current: Mutex<Arc<SealedFile>>,
    files: RwLock<BTreeMap<u32, Arc<SealedFile>>>,
    unwritten_bytes: AtomicU64,
    /// Whether the last attempt to write found the process without a free file descriptor.
    is_short_of_files: AtomicBool,
}

/// Returns true if the process, or the system, has no file descriptor left: a shortage that ends when others
/// close files.
pub(crate) fn is_short_of_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

impl SealedStore {
    /// A store whose next file has number `next`; `kept` are files of an earlier run that are still referred to.
    pub(crate) fn new(
        env: &Env,
        data_dir: &Path,
        file_bytes_max: u64,
        next: u32,
        kept: Vec<SealedFile>,
    ) -> SealedStore {
        let dir = sealed_dir(data_dir);
        let current = Arc::new(SealedFile::new(&dir, next));
        let mut files: BTreeMap<_, _> = kept.into_iter().map(|f| (f.number, Arc::new(f))).collect();
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
    pub(crate) fn push(&self, header: &RecordHeader, chunk: &[u8]) -> SealedPlace {
        let mut current = self.current.lock();
        if current.len() >= self.file_bytes_max {
            self.begin_file(&mut current);
        }
        let (offset, added) = current.push(header, chunk);
        self.unwritten_bytes.fetch_add(added, Ordering::Relaxed);
        SealedPlace { file: current.number, offset }
    }

    /// Lets no file get a number below `number`. For a store that nothing was pushed to yet.
    pub(crate) fn skip_to(&self, number: u32) {
        let mut current = self.current.lock();
        if current.number >= number {
            return;
        }
        let mut files = self.files.write();
        files.remove(&current.number);
        *current = Arc::new(SealedFile::new(&self.dir, number));
        files.insert(number, current.clone());
    }

    /// The file with this number, if it is still there.
    pub(crate) fn file(&self, number: u32) -> Option<Arc<SealedFile>> {
        self.files.read().get(&number).cloned()
    }

    /// A chunk is no longer referred to.
    pub(crate) fn release(&self, place: SealedPlace) {
        if let Some(file) = self.file(place.file) {
            file.live_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Behind the newest chunk: chunks sealed later have places at or after it.
    pub(crate) fn end(&self) -> SealedPlace {
        let current = self.current.lock();
        SealedPlace { file: current.number, offset: u32::try_from(current.len()).unwrap_or(u32::MAX) }
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
            let written = file.write(&*self.disk).inspect_err(|error| self.note_shortage(error, &file.path));
            let written = written.map_err(HeadError::io(&file.path))?;
            self.unwritten_bytes.fetch_sub(written, Ordering::Relaxed);
        }
        self.is_short_of_files.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn note_shortage(&self, error: &io::Error, path: &Path) {
        if is_short_of_files(error) && !self.is_short_of_files.swap(true, Ordering::Relaxed) {
            let (path, unwritten_bytes) = (path.display(), self.unwritten_bytes.load(Ordering::Relaxed));
            tracing::warn!(%path, %error, unwritten_bytes, "sealed chunks stay in memory until a file can be opened");
        }
    }

    /// Whether no file can be opened and as many chunks wait in memory for one as may.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_short_of_files.load(Ordering::Relaxed)
            && self.unwritten_bytes.load(Ordering::Relaxed) >= WAITING_BYTES_MAX
    }

    /// Makes all written chunks durable. One caller at a time (see [`SealedFile::sync`]).
    pub(crate) fn sync_all(&self) -> Result<(), HeadError> {
        let files: Vec<_> = self.files.read().values().cloned().collect();
        for file in files {
            file.sync().map_err(HeadError::io(&file.path))?;
        }
        self.disk.sync_dir(&self.dir).map_err(HeadError::io(&self.dir))
    }

    /// Numbers of files that nothing refers to any more. They stay readable, but are not mapped. The current file ends if it
    /// is one of them and not small; otherwise it is never among them.
    pub(crate) fn dead_files(&self) -> Vec<u32> {
        let mut current = self.current.lock();
        // No chunk is pushed while the lock is held.
        if !current.is_live() && current.len() >= DEAD_BYTES_MIN {
            self.begin_file(&mut current);
        }
        let end = current.number;
        drop(current);
        let files = self.files.read();
        let dead: Vec<_> = files.values().filter(|file| file.number < end && !file.is_live()).collect();
        dead.iter().for_each(|file| file.unmap());
        dead.iter().map(|file| file.number).collect()
    }

    fn begin_file(&self, current: &mut Arc<SealedFile>) {
        let next = Arc::new(SealedFile::new(&self.dir, current.number + 1));
        self.files.write().insert(next.number, next.clone());
        *current = next;
    }

    /// Deletes files that nothing refers to, no checkpoint either.
    pub(crate) fn delete(&self, numbers: &[u32]) -> Result<(), HeadError> {
        for number in numbers {
            let Some(file) = self.files.write().remove(number) else { continue };
            if self.disk.exists(&file.path) {
                self.disk.remove_file(&file.path).map_err(HeadError::io(&file.path))?;
            }
            self.unwritten_bytes.fetch_sub(file.unwritten_len(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Numbers of all files but the current one.
    pub(crate) fn finished_files(&self) -> Vec<u32> {
        let current = self.current.lock().number;
        self.files.read().keys().copied().filter(|&number| number < current).collect()
    }

    /// Chunks that wait to be written, and what is known of the files.
    pub(crate) fn memory(&self) -> MemoryPart {
        let files = self.files.read();
        let file_bytes = |file: &Arc<SealedFile>| file.buffer_bytes() + size_of::<SealedFile>() as u64;
        MemoryPart::new("sealed_buffers", files.values().map(file_bytes).sum(), files.len() as u64)
    }

    /// Files and their bytes.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let files = self.files.read();
        (files.len() as u64, files.values().map(|f| f.len()).sum())
    }
}

/// The directory of sealed files.
pub(crate) fn sealed_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("chunks")
}
