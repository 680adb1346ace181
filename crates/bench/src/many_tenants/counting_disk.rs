//! A real disk that counts syncs and files made.
//! Not here: counting bytes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::disk::{DirEntry, LockGuard};
use chronolith_base::{Disk, DiskFile, Mapped, RealDisk};

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DiskCounts {
    pub(super) files: u64,
    pub(super) file_syncs: u64,
    pub(super) dir_syncs: u64,
}

impl DiskCounts {
    pub(super) fn since(self, earlier: DiskCounts) -> DiskCounts {
        DiskCounts {
            files: self.files - earlier.files,
            file_syncs: self.file_syncs - earlier.file_syncs,
            dir_syncs: self.dir_syncs - earlier.dir_syncs,
        }
    }

    pub(super) fn add(&mut self, other: DiskCounts) {
        self.files += other.files;
        self.file_syncs += other.file_syncs;
        self.dir_syncs += other.dir_syncs;
    }
}

/// See the module.
pub(super) struct CountingDisk {
    inner: RealDisk,
    files: AtomicU64,
    file_syncs: Arc<AtomicU64>,
    dir_syncs: AtomicU64,
}

impl CountingDisk {
    pub(super) fn new(inner: RealDisk) -> CountingDisk {
        let (files, dir_syncs) = (AtomicU64::new(0), AtomicU64::new(0));
        CountingDisk { inner, files, file_syncs: Arc::default(), dir_syncs }
    }

    pub(super) fn counts(&self) -> DiskCounts {
        DiskCounts {
            files: self.files.load(Ordering::Relaxed),
            file_syncs: self.file_syncs.load(Ordering::Relaxed),
            dir_syncs: self.dir_syncs.load(Ordering::Relaxed),
        }
    }

    fn wrap(&self, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(CountingFile { inner, syncs: self.file_syncs.clone() })
    }
}

struct CountingFile {
    inner: Box<dyn DiskFile>,
    syncs: Arc<AtomicU64>,
}

impl DiskFile for CountingFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
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
        self.inner.start_writeback();
    }
    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_data()
    }
}

impl Disk for CountingDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.files.fetch_add(1, Ordering::Relaxed);
        Ok(self.wrap(self.inner.create(path)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(self.inner.open(path)?))
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
        self.dir_syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_dir(dir)
    }
    fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.inner.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }
}
