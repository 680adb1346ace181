//! In-memory disk with test hooks before writes, syncs and removals of files.
//!
//! Invariant: operations without a hook go to the underlying disk. Not here: power failures
//! (`MemDisk::crash`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::disk::{DirEntry, LockGuard, OpenDir};
use chronolith_base::{Disk, DiskFile, Mapped, MemDisk};

/// Hooks of a test for operations on a file or directory.
pub trait Fault: Send + Sync {
    /// Runs before a write; an error replaces it.
    fn before_write(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Runs before a file is created; an error replaces it.
    fn before_create(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Runs before a read at a position.
    fn before_read(&self, _path: &Path) {}

    /// Runs before a file is mapped; an error replaces it.
    fn before_map(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Runs before the names in a directory become durable.
    fn before_sync_dir(&self, _dir: &Path) {}

    /// Runs before a directory is opened to sync it; an error replaces it.
    fn before_open_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Runs before a file is removed.
    fn before_remove(&self, _path: &Path) {}

    /// Runs instead of a sync of `file`.
    fn sync(&self, _path: &Path, file: &dyn DiskFile) -> io::Result<()> {
        file.sync_data()
    }
}

/// A disk with hooks.
pub struct FaultDisk {
    inner: Arc<MemDisk>,
    fault: Arc<dyn Fault>,
}

impl FaultDisk {
    pub fn new(inner: Arc<MemDisk>, fault: Arc<dyn Fault>) -> FaultDisk {
        FaultDisk { inner, fault }
    }

    fn wrap(&self, path: &Path, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FaultFile { inner, path: path.to_owned(), fault: self.fault.clone() })
    }
}

struct FaultFile {
    inner: Box<dyn DiskFile>,
    path: PathBuf,
    fault: Arc<dyn Fault>,
}

impl DiskFile for FaultFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.fault.before_write(&self.path)?;
        self.inner.write_at(bytes, offset)
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.fault.before_read(&self.path);
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
    fn sync_data(&self) -> io::Result<()> {
        self.fault.sync(&self.path, &*self.inner)
    }
}

struct FaultDir {
    inner: Box<dyn OpenDir>,
    path: PathBuf,
    fault: Arc<dyn Fault>,
}

impl OpenDir for FaultDir {
    fn sync(&self) -> io::Result<()> {
        self.fault.before_sync_dir(&self.path);
        self.inner.sync()
    }
}

impl Disk for FaultDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.fault.before_create(path)?;
        Ok(self.wrap(path, self.inner.create(path)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(path, self.inner.open(path)?))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }
    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.fault.before_map(path)?;
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
        self.fault.before_remove(path);
        self.inner.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.open_dir(dir)?.sync()
    }
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn OpenDir>> {
        self.fault.before_open_dir(dir)?;
        let inner = self.inner.open_dir(dir)?;
        Ok(Box::new(FaultDir { inner, path: dir.to_owned(), fault: self.fault.clone() }))
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
