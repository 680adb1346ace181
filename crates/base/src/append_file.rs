//! File that is appended to and replaced as a whole once it has grown, in one or several copies with equal
//! bytes.
//!
//! Invariants: synced bytes are in all copies. After a failed write or sync the file is closed and is
//! replaced under a temporary name, never appended to, so bytes of unknown durability never count.
//! Not here: the bytes and their checksums, the choice between copies at a start.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};

/// A file may grow by this much over twice its size at the last replacement.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// Open copies of an append-only file. One that is not open is replaced by the next write.
pub struct AppendFile {
    disk: Arc<dyn Disk>,
    paths: Vec<PathBuf>,
    /// One per path while the file is open.
    files: Vec<Box<dyn DiskFile>>,
    len: u64,
    len_max: u64,
    is_unsynced: bool,
    /// Set if a power cut may lose the names of the copies.
    has_unsynced_names: bool,
}

impl AppendFile {
    /// A file that is not open, with copies at `paths`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, paths: Vec<PathBuf>) -> AppendFile {
        assert!(!paths.is_empty(), "a file has a name");
        let is_unsynced = false;
        let has_unsynced_names = false;
        AppendFile { disk, paths, files: Vec::new(), len: 0, len_max: 0, is_unsynced, has_unsynced_names }
    }

    /// Creates an empty file under temporary names, which [`AppendFile::publish`] replaces by `paths`.
    ///
    /// # Errors
    /// As the operating system reports.
    pub fn create(disk: Arc<dyn Disk>, paths: Vec<PathBuf>) -> io::Result<AppendFile> {
        let mut file = AppendFile::new(disk, paths);
        let files: io::Result<Vec<_>> =
            file.paths.iter().map(|path| file.disk.create(&temporary(path))).collect();
        file.files = files?;
        (file.len_max, file.is_unsynced) = (u64::MAX, true);
        Ok(file)
    }

    /// Makes a created file durable and gives it its names, the last copy first.
    ///
    /// # Errors
    /// As the operating system reports; each name then refers to the new file or to the file before, and the
    /// file is closed.
    pub fn publish(&mut self) -> io::Result<()> {
        let mut publish = || {
            self.sync()?;
            for path in self.paths.iter().rev() {
                self.disk.rename(&temporary(path), path)?;
            }
            self.has_unsynced_names = true;
            self.sync()
        };
        publish().inspect_err(|_| self.close())
    }

    /// Opens the copies, whose first `len` bytes are equal and durable, to append after them; cuts what
    /// follows.
    ///
    /// # Errors
    /// As the operating system reports; the file stays closed.
    pub fn open(&mut self, len: u64) -> io::Result<()> {
        self.files.clear();
        let open = |path: &PathBuf| {
            let file = self.disk.open(path)?;
            if file.len()? > len {
                file.set_len(len)?;
            }
            Ok(file)
        };
        let files: io::Result<Vec<_>> = self.paths.iter().map(open).collect();
        self.files = files?;
        self.len = len;
        self.len_max = len.saturating_mul(2).saturating_add(GROWTH_BYTES_MIN);
        self.is_unsynced = false;
        Ok(())
    }

    /// As [`AppendFile::open`], where neither the bytes nor the names of the copies may be durable.
    ///
    /// # Errors
    /// As the operating system reports; the file stays closed.
    pub fn open_unsynced(&mut self, len: u64) -> io::Result<()> {
        self.open(len)?;
        (self.is_unsynced, self.has_unsynced_names) = (true, true);
        Ok(())
    }

    /// Closes the file, so that it is replaced.
    pub fn close(&mut self) {
        self.files.clear();
    }

    /// Returns the bytes of one copy.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the path of the first copy.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.paths[0]
    }

    /// Returns true if the file can be appended to.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns true if `more_bytes` go with a replacement of the file: it is not open or has grown too much.
    #[must_use]
    pub fn must_be_replaced(&self, more_bytes: usize) -> bool {
        !self.is_open() || self.len.saturating_add(more_bytes as u64) > self.len_max
    }

    /// Returns true if a power cut may lose appended bytes.
    #[must_use]
    pub fn is_unsynced(&self) -> bool {
        self.is_unsynced
    }

    /// Appends `bytes` to all copies; durable after [`AppendFile::sync`].
    ///
    /// # Errors
    /// As the operating system reports, or `NotFound` if the file is not open; it is closed then.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_unsynced = true;
        let len = self.len;
        self.on_each_copy(|file| file.write_at(bytes, len))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Makes appended bytes durable.
    ///
    /// # Errors
    /// As the operating system reports, or `NotFound` if the file is not open; it is closed then.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.is_unsynced {
            self.on_each_copy(|file| file.sync_data())?;
            self.is_unsynced = false;
        }
        if self.has_unsynced_names {
            self.sync_names().inspect_err(|_| self.files.clear())?;
            self.has_unsynced_names = false;
        }
        Ok(())
    }

    /// Replaces all copies by files with `bytes`, the last copy first, durably.
    ///
    /// # Errors
    /// As the operating system reports; each copy is then either the old or the new one, and the file is
    /// closed.
    pub fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_unsynced = true;
        self.files.clear();
        for path in self.paths.iter().rev() {
            self.disk.write_atomic(path, bytes)?;
        }
        self.open(bytes.len() as u64)
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut dirs: Vec<_> = self.paths.iter().filter_map(|path| path.parent()).collect();
        dirs.dedup();
        dirs.into_iter().try_for_each(|dir| self.disk.sync_dir(dir))
    }

    fn on_each_copy(&mut self, operation: impl Fn(&dyn DiskFile) -> io::Result<()>) -> io::Result<()> {
        let done = match self.files.as_slice() {
            [] => Err(io::ErrorKind::NotFound.into()),
            files => files.iter().try_for_each(|file| operation(&**file)),
        };
        if done.is_err() {
            self.files.clear();
        }
        done
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemDisk;

    const COPIES: [&str; 2] = ["/d/a", "/d/b"];

    fn file(disk: &Arc<MemDisk>) -> AppendFile {
        disk.create_dir_all(Path::new("/d"))
            .and_then(|()| disk.sync_dir(Path::new("/")))
            .expect("a directory");
        AppendFile::new(disk.clone(), COPIES.map(PathBuf::from).to_vec())
    }

    #[track_caller]
    fn check(disk: &MemDisk, want: &[u8]) {
        for path in COPIES {
            assert_eq!(disk.read(Path::new(path)).expect("there"), want, "{path}");
        }
    }

    #[test]
    fn synced_bytes_are_in_both_copies_after_a_crash() {
        let disk = Arc::new(MemDisk::new());
        let mut file = file(&disk);
        assert!(file.must_be_replaced(0) && file.append(b"x").is_err());
        file.replace(b"ab").expect("works");
        file.append(b"c").expect("works");
        assert!(file.is_unsynced());
        file.sync().expect("works");
        assert!(!file.is_unsynced());
        disk.crash();
        check(&disk, b"abc");
        file.open(3).expect("opens");
        file.append(b"d").and_then(|()| file.sync()).expect("works");
        check(&disk, b"abcd");
    }

    /// Cut at every operation: names refer to whole files, old or new.
    #[test]
    fn a_created_file_has_its_names_once_it_is_whole() {
        for op_count in 0..40 {
            let disk = Arc::new(MemDisk::new());
            let mut old = file(&disk);
            old.replace(b"old").expect("works");
            disk.fail_after(op_count);
            let paths = COPIES.map(PathBuf::from).to_vec();
            let made = AppendFile::create(disk.clone(), paths).and_then(|mut new| {
                new.append(b"n")?;
                new.append(b"ew")?;
                new.publish().inspect_err(|_| assert!(!new.is_open()))?;
                Ok(new)
            });
            disk.heal();
            disk.crash();
            if let Ok(new) = made {
                check(&disk, b"new");
                return assert_eq!((new.len(), new.is_unsynced()), (3, false));
            }
            for path in COPIES {
                let bytes = disk.read(Path::new(path)).expect("there");
                assert!([&b"old"[..], b"new"].contains(&bytes.as_slice()), "{bytes:?}");
            }
        }
        panic!("the operations never come to their end");
    }

    /// A crash left bytes after those that count, and nothing is known to be durable.
    #[test]
    fn a_torn_end_is_cut_when_the_file_is_opened() {
        let disk = Arc::new(MemDisk::new());
        let mut file = file(&disk);
        file.replace(b"abc").and_then(|()| file.append(b"torn")).and_then(|()| file.sync()).expect("works");
        file.open_unsynced(3).expect("opens");
        assert!(file.is_unsynced());
        file.append(b"d").and_then(|()| file.sync()).expect("works");
        disk.crash();
        check(&disk, b"abcd");
    }

    #[test]
    fn a_file_that_has_grown_to_twice_its_size_is_replaced() {
        let disk = Arc::new(MemDisk::new());
        let mut file = file(&disk);
        file.replace(&[7; 100]).expect("works");
        let room = 100 + GROWTH_BYTES_MIN as usize;
        assert!(!file.must_be_replaced(room) && file.must_be_replaced(room + 1));
        file.append(&vec![8; room]).expect("works");
        assert!(file.must_be_replaced(1));
    }

    /// Cut at every operation: a failure closes the file, and a replacement leaves the old or the new bytes.
    #[test]
    fn after_a_failure_the_file_is_replaced_and_never_appended_to() {
        for op_count in 0..20 {
            let disk = Arc::new(MemDisk::new());
            let mut file = file(&disk);
            file.replace(b"old").expect("works");
            disk.fail_after(op_count);
            let appended = file.append(b"+").and_then(|()| file.sync());
            let replaced = appended.and_then(|()| file.replace(b"new"));
            disk.heal();
            if replaced.is_ok() {
                return check(&disk, b"new");
            }
            assert!(file.must_be_replaced(0), "failed after {op_count} operations");
            for path in COPIES {
                let bytes = disk.read(Path::new(path)).expect("there");
                assert!([&b"old"[..], b"old+", b"new"].contains(&bytes.as_slice()), "{bytes:?}");
            }
            file.replace(b"last").expect("works");
            check(&disk, b"last");
        }
        panic!("the operations never come to their end");
    }
}
