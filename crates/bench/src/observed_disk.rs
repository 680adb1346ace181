//! A real disk whose operations an observer sees: benchmarks measure the store from outside, so that binaries
//! of all versions are measured alike.

use std::io;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::disk::{DirEntry, LockGuard, OpenDir};
use chronolith_base::{Disk, DiskFile, Mapped, RealDisk};

/// Sees the operations of an [`ObservedDisk`].
pub(crate) trait DiskObserver: Send + Sync {
    /// Observes the creation of a file.
    fn creates_file(&self) {}
    /// Observes the sync of a directory.
    fn syncs_dir(&self) {}
    /// Observer of a file that is opened or created; `None` if its operations are of no interest.
    fn observe_file(&self, path: &Path) -> Option<Box<dyn FileObserver>>;
}

/// Sees the operations of one open file.
pub(crate) trait FileObserver: Send + Sync {
    /// Observes a write of `bytes` at `offset`, before it.
    fn writes(&self, _bytes: &[u8], _offset: u64) {}
    /// Observes a sync, after it.
    fn synced(&self) {}
}

/// The real disk, seen by an observer.
pub(crate) struct ObservedDisk {
    inner: RealDisk,
    observer: Arc<dyn DiskObserver>,
    /// False if syncs do nothing.
    syncs: bool,
}

impl ObservedDisk {
    pub(crate) fn new(inner: RealDisk, observer: Arc<dyn DiskObserver>) -> ObservedDisk {
        ObservedDisk { inner, observer, syncs: true }
    }

    /// A disk whose syncs do nothing: files are in the page cache only.
    pub(crate) fn unsynced(inner: RealDisk) -> ObservedDisk {
        ObservedDisk { inner, observer: Arc::new(NoObserver), syncs: false }
    }

    fn observed(&self, path: &Path, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let observer = self.observer.observe_file(path);
        if self.syncs && observer.is_none() {
            return inner;
        }
        let observer = observer.unwrap_or_else(|| Box::new(NoObserver));
        Box::new(ObservedFile { inner, observer, syncs: self.syncs })
    }
}

/// Ignores all operations.
struct NoObserver;

impl DiskObserver for NoObserver {
    fn observe_file(&self, _path: &Path) -> Option<Box<dyn FileObserver>> {
        None
    }
}

impl FileObserver for NoObserver {}

struct ObservedFile {
    inner: Box<dyn DiskFile>,
    observer: Box<dyn FileObserver>,
    syncs: bool,
}

struct UnsyncedDir;

impl OpenDir for UnsyncedDir {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for ObservedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.observer.writes(bytes, offset);
        self.inner.write_at(bytes, offset)
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(out, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.inner.allocate(len)
    }
    fn start_writeback(&self) {
        if self.syncs {
            self.inner.start_writeback();
        }
    }
    fn sync_data(&self) -> io::Result<()> {
        let done = if self.syncs { self.inner.sync_data() } else { Ok(()) };
        self.observer.synced();
        done
    }
}

impl Disk for ObservedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.observer.creates_file();
        Ok(self.observed(path, self.inner.create(path)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.observed(path, self.inner.open(path)?))
    }
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open_read(path)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }
    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.inner.map(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        self.inner.exists(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.hard_link(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.observer.syncs_dir();
        if self.syncs { self.inner.sync_dir(dir) } else { Ok(()) }
    }
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn OpenDir>> {
        self.observer.syncs_dir();
        if self.syncs { self.inner.open_dir(dir) } else { Ok(Box::new(UnsyncedDir)) }
    }
    fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.inner.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }
}
