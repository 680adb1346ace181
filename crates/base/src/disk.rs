//! File system interface of the engine: positional writes, explicit syncs, memory maps; on a real disk or in
//! memory.
//!
//! Invariants: nothing is durable before `sync_data` (bytes) and `sync_dir` (names) have returned; `MemDisk`
//! loses everything else at [`MemDisk::crash`].
//! Not here: the content of files (`format`).

mod mem;
mod real;

use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use mem::MemDisk;
pub use real::RealDisk;

/// Length, kind and version of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Length in bytes, including preallocated space.
    pub len: u64,
    /// Set for a directory, which can be opened but not read.
    pub is_dir: bool,
    /// Differs between two consecutive files of one name if the file system shows it; 0 where it is not
    /// known.
    pub version: u64,
    /// Time of the last write in milliseconds since 1970-01-01 UTC, where it is known.
    pub modified_ms: Option<i64>,
}

/// An open file. All methods take `&self`; callers coordinate concurrent writes.
pub trait DiskFile: Send + Sync {
    /// Writes all of `bytes` at `offset`, growing the file when needed.
    ///
    /// # Errors
    /// As the operating system reports; part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Fills `out` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file is shorter.
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;
    /// Length in bytes, including preallocated space.
    ///
    /// # Errors
    /// As the operating system reports.
    fn len(&self) -> io::Result<u64>;
    /// Length, kind and version.
    ///
    /// # Errors
    /// As the operating system reports.
    fn stat(&self) -> io::Result<FileStat> {
        Ok(FileStat { len: self.len()?, is_dir: false, version: 0, modified_ms: None })
    }
    /// Returns true if the file has no bytes.
    ///
    /// # Errors
    /// As the operating system reports.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates or extends (with zeros) to `len`.
    ///
    /// # Errors
    /// As the operating system reports.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves real blocks up to `len`, reading as zeros, so that later writes below it cannot run out of
    /// space.
    ///
    /// # Errors
    /// `StorageFull` if the disk has no room; the content of the file is unchanged then.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Starts writeback of the bytes written before, without waiting and without a guarantee. If several
    /// files are synced one after the other, the first sync then writes all of them.
    fn start_writeback(&self) {}
    /// Makes all bytes written before durable (fdatasync).
    ///
    /// # Errors
    /// After an error, any byte written since the last successful sync may be lost.
    fn sync_data(&self) -> io::Result<()>;
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name without its directory. Names that are not UTF-8 are left out of listings.
    pub name: String,
    /// Directory or file.
    pub is_dir: bool,
    /// Length of a file in bytes; 0 for a directory.
    pub len: u64,
}

/// An open directory: its names become durable without a further descriptor.
pub trait OpenDir: Send + Sync {
    /// As [`Disk::sync_dir`] of the directory.
    ///
    /// # Errors
    /// As the operating system reports.
    fn sync(&self) -> io::Result<()>;
}

/// Files that were not replaced as a whole, by [`Disk::replace_all`].
#[derive(Debug)]
pub struct ReplaceError {
    /// Error of the operating system.
    pub error: io::Error,
    /// True if some of the files may have the new content, at once or after a power cut.
    pub is_in_doubt: bool,
}

/// Returns true if the process or the system is out of file descriptors: a shortage that ends once others
/// close files.
#[must_use]
pub fn is_short_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENFILE | libc::EMFILE))
}

/// Holds the lock on a lock file until it is dropped.
pub trait LockGuard: Send + Sync {}

/// The file system below a data directory.
pub trait Disk: Send + Sync {
    /// Creates an empty file, or empties an existing one.
    ///
    /// # Errors
    /// As the operating system reports.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// As the operating system reports.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file read-only, for directories without write permission.
    ///
    /// # Errors
    /// As the operating system reports.
    fn open_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }
    /// Reads a whole file.
    ///
    /// # Errors
    /// As the operating system reports.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Maps the current bytes of a file; bytes appended later are not visible. The file must not shrink while
    /// mapped.
    ///
    /// # Errors
    /// As the operating system reports.
    fn map(&self, path: &Path) -> io::Result<Mapped>;
    /// As [`Disk::map`], but a file of at most `copy_bytes_max` bytes is copied into memory: a map costs the
    /// process one of the few that the kernel allows it, and at least a page.
    ///
    /// # Errors
    /// As the operating system reports.
    fn map_or_copy(&self, path: &Path, copy_bytes_max: u64) -> io::Result<Mapped> {
        let _ = copy_bytes_max;
        self.map(path)
    }
    /// Entries of a directory, sorted by name.
    ///
    /// # Errors
    /// As the operating system reports.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;
    /// Returns true if a file or directory has this name.
    fn exists(&self, path: &Path) -> bool;
    /// Renames, replacing the target if it is a file. Durable after `sync_dir` of the directory.
    ///
    /// # Errors
    /// As the operating system reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a hard link: the file `from` has the name `to` as well. Neither may be written to afterwards.
    /// Durable after `sync_dir`.
    ///
    /// # Errors
    /// As the operating system reports; `Unsupported` where files have one name only.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let _ = (from, to);
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system reports.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all below it.
    ///
    /// # Errors
    /// As the operating system reports.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory and its parents; an existing one is no error.
    ///
    /// # Errors
    /// As the operating system reports.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in `dir` durable.
    ///
    /// # Errors
    /// As the operating system reports.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Opens a directory to sync it later: what follows then fails for no lack of descriptors.
    ///
    /// # Errors
    /// As the operating system reports.
    fn open_dir(&self, dir: &Path) -> io::Result<Box<dyn OpenDir>>;
    /// Free bytes for this process in the file system of `path`; `None` if the file system does not report
    /// them.
    fn free_bytes(&self, path: &Path) -> Option<u64>;
    /// Takes an exclusive lock on `path` (created if missing).
    ///
    /// # Errors
    /// `WouldBlock` if another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
    /// Returns true if a process holds the lock on `path`, as [`Disk::lock`] or Prometheus takes it
    /// (`flock`). Needs permission to read the file alone, and creates none.
    ///
    /// # Errors
    /// As the operating system reports, except for a missing file.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// Replaces the content of `path` atomically, also if a crash interrupts it:
    /// temporary file, sync, rename, directory sync.
    ///
    /// # Errors
    /// As the operating system reports. The old content is then untouched, unless the last step failed: the
    /// sync of the directory, which is open before the rename.
    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.replace_all(&[path.to_owned()], bytes).map_err(|failed| failed.error)
    }

    /// Replaces the content of several files, each as [`Disk::write_atomic`] does. All new content is durable
    /// and all directories are open before the first rename, so that a full disk or a lack of descriptors
    /// changes none of the files.
    ///
    /// # Errors
    /// [`ReplaceError`], which tells whether some of the files may have the new content.
    fn replace_all(&self, paths: &[PathBuf], bytes: &[u8]) -> Result<(), ReplaceError> {
        let remove_from = |first: usize| {
            for path in paths.iter().skip(first) {
                let _ = self.remove_file(&temporary_path(path));
            }
        };
        let prepare = || -> io::Result<Vec<Box<dyn OpenDir>>> {
            for path in paths {
                let file = self.create(&temporary_path(path))?;
                file.write_at(bytes, 0)?;
                file.sync_data()?;
            }
            let dirs: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            dirs.into_iter().map(|dir| self.open_dir(dir)).collect()
        };
        let dirs = prepare().map_err(|error| {
            remove_from(0);
            ReplaceError { error, is_in_doubt: false }
        })?;
        for (idx, path) in paths.iter().enumerate() {
            self.rename(&temporary_path(path), path).map_err(|error| {
                remove_from(idx);
                ReplaceError { error, is_in_doubt: idx > 0 }
            })?;
        }
        dirs.iter().try_for_each(|dir| dir.sync()).map_err(|error| ReplaceError { error, is_in_doubt: true })
    }
}

/// Makes `dir` and the missing directories above it, durably.
///
/// # Errors
/// As the disk reports.
pub fn make_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|path| !disk.exists(path)).collect();
    disk.create_dir_all(dir)?;
    // The parent of an existing `dir` is synced, too: a process may have ended between making and syncing it.
    for parent in std::iter::once(dir).chain(missing).filter_map(Path::parent) {
        // The parent of a relative path of one part has the empty name.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        disk.sync_dir(parent)?;
    }
    Ok(())
}

/// Name of the new content of a file until it is whole.
fn temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    PathBuf::from(temporary)
}

/// Bytes of a file, mapped or copied; cheap to clone.
#[derive(Clone)]
pub enum Mapped {
    /// Pages of the page cache.
    Mmap(Arc<memmap2::Mmap>),
    /// A copy in memory.
    Owned(Arc<[u8]>),
}

impl Mapped {
    /// A copy of `bytes`, for tests.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Mapped {
        Mapped::Owned(Arc::from(bytes))
    }
}

impl Mapped {
    /// Bytes on the heap; `None` for pages of the page cache, which cost a memory map instead.
    #[must_use]
    pub fn copied_bytes(&self) -> Option<usize> {
        match self {
            Mapped::Mmap(_) => None,
            Mapped::Owned(bytes) => Some(bytes.len()),
        }
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Mapped::Mmap(map) => map,
            Mapped::Owned(bytes) => bytes,
        }
    }
}
