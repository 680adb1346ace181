//! File system of the operating system.
//! Invariants: all `unsafe` of this crate is here; each block names its obligation.
#![expect(unsafe_code, reason = "mmap, fallocate and statvfs have no safe interface in std")]
#![expect(clippy::disallowed_methods, reason = "this is the seam")]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use super::{DirEntry, Disk, DiskFile, FileStat, LockGuard, Mapped, OpenDir};

/// Files of the operating system.
#[derive(Default)]
pub struct RealDisk;

impl RealDisk {
    /// The real file system; keeps no state.
    #[must_use]
    pub fn new() -> RealDisk {
        RealDisk
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn stat(&self) -> io::Result<FileStat> {
        let found = self.0.metadata()?;
        let identity = [found.ino(), found.mtime().cast_unsigned(), found.mtime_nsec().cast_unsigned()];
        let bytes = identity.map(u64::to_le_bytes);
        let modified_ms = found.mtime().saturating_mul(1000).saturating_add(found.mtime_nsec() / 1_000_000);
        Ok(FileStat {
            len: found.len(),
            is_dir: found.is_dir(),
            version: crate::hash::hash_bytes(bytes.as_flattened()),
            modified_ms: Some(modified_ms),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        reserve(self, len, |len| fallocate(&self.0, len))
    }

    fn start_writeback(&self) {
        start_writeback(&self.0);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(target_os = "linux")]
fn start_writeback(file: &File) {
    // SAFETY: the descriptor is open for the lifetime of `file`; the call reads no memory of ours.
    let code = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    // A hint; the sync that follows returns errors of the disk.
    let _ = code;
}

#[cfg(not(target_os = "linux"))]
fn start_writeback(_: &File) {}

/// Reserves blocks with `allocate`; without support of the file system, only sets the length.
fn reserve(
    file: &dyn DiskFile,
    len: u64,
    allocate: impl FnOnce(libc::off_t) -> io::Result<()>,
) -> io::Result<()> {
    let end = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    match allocate(end) {
        Err(error) if is_unsupported(&error) => file.set_len(len.max(file.len()?)),
        done => done,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    // EINVAL: returned by ZFS.
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL))
}

/// Calls `fallocate` itself: `posix_fallocate` writes a byte into each block where the file system cannot
/// reserve.
fn fallocate(file: &File, len: libc::off_t) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open for the lifetime of `file`; the call reads no memory of ours.
        let code = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) };
        if code == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

struct RealLock(#[expect(dead_code, reason = "held for its lock, which ends when it is closed")] File);

impl LockGuard for RealLock {}

struct RealDir(File);

impl OpenDir for RealDir {
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(File::open(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn map(&self, path: &Path) -> io::Result<Mapped> {
        self.map_or_copy(path, 0)
    }

    fn map_or_copy(&self, path: &Path, copy_bytes_max: u64) -> io::Result<Mapped> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        if len <= copy_bytes_max {
            let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
            file.read_to_end(&mut bytes)?;
            return Ok(Mapped::from_slice(&bytes));
        }
        // SAFETY: the data directory is locked against other Chronolith processes, and ours never cuts a
        // file that it has mapped (`Disk::map` says so), so pages stay valid. An outsider who truncates the
        // file gets the process a SIGBUS, as with every database that maps its files.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Mapped::Mmap(Arc::new(map)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // The directory has the type of its entries, so that only files need a `stat`.
            let is_dir = entry.file_type()?.is_dir();
            let len = if is_dir { 0 } else { entry.metadata()?.len() };
            entries.push(DirEntry { name, is_dir, len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.open_dir(dir)?.sync()
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn OpenDir>> {
        Ok(Box::new(RealDir(File::open(dir)?)))
    }

    fn free_bytes(&self, path: &Path) -> Option<u64> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `path` ends in NUL and `stat` has room for the struct that the call fills.
        let code = unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) };
        if code != 0 {
            return None;
        }
        // SAFETY: the call returned 0, so it filled the struct.
        let stat = unsafe { stat.assume_init() };
        // A file system without a size (some FUSE ones) does not report its free space either.
        if stat.f_blocks == 0 { None } else { stat.f_bavail.checked_mul(stat.f_frsize) }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        // A shared lock needs no permission to write. It ends with `file`.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that counts writes: emulating a reservation by writing took 7 s at each start.
    struct Counted {
        file: RealFile,
        write_count: std::sync::atomic::AtomicU64,
    }

    impl DiskFile for Counted {
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.write_count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.file.write_at(bytes, offset)
        }
        fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
            self.file.read_at(out, offset)
        }
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }
        fn allocate(&self, len: u64) -> io::Result<()> {
            reserve(self, len, |_| Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
        }
        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }
    }

    #[test]
    fn a_file_system_that_cannot_reserve_space_gets_no_writes_instead() {
        let path = std::env::temp_dir().join(format!("chronolith-base-reserve-{}", std::process::id()));
        let open =
            || OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let file = Counted { file: RealFile(open()), write_count: 0.into() };
        file.write_at(b"x", 9000).unwrap();
        for (len, want) in [(64 << 20, 64 << 20), (4096, 64 << 20)] {
            file.allocate(len).unwrap();
            assert_eq!(file.len().unwrap(), want, "content is not cut");
        }
        assert_eq!(file.write_count.into_inner(), 1);
        for (code, is_done) in [(libc::ENOSYS, true), (libc::EINVAL, true), (libc::ENOSPC, false)] {
            let file = RealFile(open());
            let done = reserve(&file, 100, |_| Err(io::Error::from_raw_os_error(code)));
            assert_eq!((done.is_ok(), file.len().unwrap()), (is_done, if is_done { 100 } else { 0 }));
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_replaced_file_has_another_version() {
        let dir = std::env::temp_dir().join(format!("chronolith-base-stat-{}", std::process::id()));
        let disk = RealDisk::new();
        disk.create_dir_all(&dir).unwrap();
        let path = dir.join("x");
        disk.write_atomic(&path, b"abc").unwrap();
        let file = disk.open_read(&path).unwrap();
        let before = file.stat().unwrap();
        assert_eq!((before.len, before.is_dir), (3, false));
        assert!(before.modified_ms.unwrap() > 1_600_000_000_000);
        assert_eq!(disk.open_read(&path).unwrap().stat().unwrap(), before);
        disk.write_atomic(&path, b"xyz").unwrap();
        assert_ne!(disk.open_read(&path).unwrap().stat().unwrap().version, before.version);
        assert_eq!(file.stat().unwrap().version, before.version, "the open file is the old one");
        assert!(disk.open_read(&dir).unwrap().stat().unwrap().is_dir);
        disk.remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn allocated_space_reads_as_zeros_and_a_second_lock_is_refused() {
        let dir = std::env::temp_dir().join(format!("chronolith-base-{}", std::process::id()));
        let disk = RealDisk::new();
        disk.create_dir_all(&dir).unwrap();
        let path = dir.join("seg");
        let file = disk.create(&path).unwrap();
        file.allocate(8192).unwrap();
        file.write_at(b"abc", 4).unwrap();
        file.sync_data().unwrap();
        let map = disk.map(&path).unwrap();
        assert_eq!((map.len(), &map[..8]), (8192, &b"\0\0\0\0abc\0"[..]));
        let lock = disk.lock(&dir.join("lock")).unwrap();
        assert_eq!(disk.lock(&dir.join("lock")).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        assert!(disk.is_locked(&dir.join("lock")).unwrap());
        drop(lock);
        assert!(!disk.is_locked(&dir.join("lock")).unwrap());
        assert!(!disk.is_locked(&dir.join("missing")).unwrap() && !disk.exists(&dir.join("missing")));
        assert!(disk.lock(&dir.join("lock")).is_ok());
        assert!(disk.free_bytes(&dir).unwrap() > 0);
        disk.remove_dir_all(&dir).unwrap();
    }
}
