//! File that is appended to and replaced as a whole once it has grown, in one or several copies with equal
//! bytes.
//!
//! Invariants: synced bytes are in all copies. After a failed write or sync the file is replaced under a
//! temporary name, never appended to, so bytes of unknown durability never count.
//! Not here: the bytes and their checksums, the choice between copies at a start.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};

/// A file may grow by this much over twice its size at the last replacement.
const GROWTH_BYTES_MIN: u64 = 1 << 20;

/// See the module. A file that is not open is replaced by the next write.
pub struct AppendFile {
    disk: Arc<dyn Disk>,
    paths: Vec<PathBuf>,
    /// One per path while the file is open.
    files: Vec<Box<dyn DiskFile>>,
    len: u64,
    len_max: u64,
    is_unsynced: bool,
}

impl AppendFile {
    /// A file that is not open, with copies at `paths`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, paths: Vec<PathBuf>) -> AppendFile {
        assert!(!paths.is_empty(), "a file has a name");
        AppendFile { disk, paths, files: Vec::new(), len: 0, len_max: 0, is_unsynced: false }
    }

    /// Opens the copies, whose first `len` bytes are equal and durable, to append after them.
    ///
    /// # Errors
    /// As the operating system reports; the file stays closed.
    pub fn open(&mut self, len: u64) -> io::Result<()> {
        self.files.clear();
        let files: io::Result<Vec<_>> = self.paths.iter().map(|path| self.disk.open(path)).collect();
        self.files = files?;
        self.len = len;
        self.len_max = len.saturating_mul(2).saturating_add(GROWTH_BYTES_MIN);
        self.is_unsynced = false;
        Ok(())
    }

    /// Returns the path of the first copy.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

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
