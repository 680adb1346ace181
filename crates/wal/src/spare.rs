//! Spare segments, recycled or zeroed ahead of need, so that commits overwrite allocated blocks. Syncing
//! blocks that were only reserved also changes metadata of the file system, which takes twice as long.
//!
//! Invariants: a spare is named `NUMBER-SEQUENCE.spare` and has no frame after that sequence. A freed segment
//! becomes a spare by a rename that is durable before its content changes, so that a power failure never
//! leaves new content under an old name. There are at most [`SPARE_COUNT_MAX`].
//! Not here: their use (`segment`).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile};

/// Freed segments beyond these are removed.
pub(crate) const SPARE_COUNT_MAX: usize = 3;
/// Zeros are written in pieces of this size, each synced, so that a commit waits for at most one.
const ZERO_PIECE_BYTES: usize = 1 << 20;
const EXTENSION: &str = "spare";

/// A file ready to become a segment.
pub(crate) struct Spare {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Sequence of the last frame that it may contain; 0 if it is all zeros.
    stale_sequence: u64,
}

/// Number and size of a spare to create.
pub(crate) struct SpareOrder {
    number: u64,
    len: u64,
}

impl SpareOrder {
    pub(crate) fn new(number: u64, len: u64) -> SpareOrder {
        SpareOrder { number, len }
    }

    /// Creates the spare, filled with zeros; returns `None` if `goes_on` returns false between two pieces.
    pub(crate) fn fill(
        &self,
        disk: &dyn Disk,
        dir: &Path,
        goes_on: impl Fn() -> bool,
    ) -> io::Result<Option<Spare>> {
        let path = spare_path(dir, self.number, 0);
        let tmp = path.with_extension("tmp");
        let file = match write_zeros(disk, &tmp, self.len, goes_on) {
            Ok(Some(file)) => file,
            other => {
                let _ = disk.remove_file(&tmp);
                return other.map(|_| None);
            }
        };
        disk.rename(&tmp, &path)?;
        Ok(Some(Spare { path, file, stale_sequence: 0 }))
    }
}

impl Spare {
    /// Creates a file of `len` bytes whose blocks are reserved, not written.
    pub(crate) fn reserved(disk: &dyn Disk, path: &Path, len: u64) -> io::Result<Spare> {
        let file = disk.create(path)?;
        file.allocate(len).inspect_err(|_| drop(disk.remove_file(path)))?;
        Ok(Spare { path: path.to_owned(), file, stale_sequence: 0 })
    }

    /// Renames the freed segment `from`. The caller syncs the directory before the spare is used.
    pub(crate) fn retire(
        disk: &dyn Disk,
        dir: &Path,
        from: &Path,
        number: u64,
        last_sequence: u64,
    ) -> io::Result<Spare> {
        let path = spare_path(dir, number, last_sequence);
        // Opened first: a file that was renamed and cannot be opened would be neither segment nor spare.
        let file = disk.open(from)?;
        disk.rename(from, &path)?;
        Ok(Spare { file, path, stale_sequence: last_sequence })
    }

    /// Sequence of the last frame that the file may contain; 0 if there is none.
    pub(crate) fn stale_sequence(&self) -> u64 {
        self.stale_sequence
    }

    /// Turns the file into a durable segment of the log named `path`, in `dir`.
    pub(crate) fn into_segment(
        self,
        disk: &dyn Disk,
        dir: &Path,
        path: &Path,
        header: &[u8],
    ) -> io::Result<Box<dyn DiskFile>> {
        let make = || {
            let dir = disk.open_dir(dir)?;
            self.file.write_at(header, 0)?;
            self.file.sync_data()?;
            disk.rename(&self.path, path)?;
            dir.sync()
        };
        match make() {
            Ok(()) => Ok(self.file),
            Err(error) => {
                self.remove(disk);
                Err(error)
            }
        }
    }

    /// Removes the file; one that remains is removed at the next startup.
    pub(crate) fn remove(self, disk: &dyn Disk) {
        let _ = disk.remove_file(&self.path);
    }
}

fn write_zeros(
    disk: &dyn Disk,
    path: &Path,
    len: u64,
    goes_on: impl Fn() -> bool,
) -> io::Result<Option<Box<dyn DiskFile>>> {
    let file = disk.create(path)?;
    // One allocation keeps the blocks together and detects a full disk before anything is written.
    file.allocate(len)?;
    let zeros = vec![0; ZERO_PIECE_BYTES.min(usize::try_from(len).unwrap_or(ZERO_PIECE_BYTES))];
    let mut at = 0;
    while at < len {
        if !goes_on() {
            return Ok(None);
        }
        let piece = usize::try_from(len - at).unwrap_or(ZERO_PIECE_BYTES).min(zeros.len());
        file.write_at(&zeros[..piece], at)?;
        file.sync_data()?;
        at += piece as u64;
    }
    Ok(Some(file))
}

/// Keeps the spares found at startup that have `len` bytes and no frame after `sequence`, and removes the
/// others.
pub(crate) fn keep_spares(
    disk: &dyn Disk,
    dir: &Path,
    found: &[(String, u64)],
    len: u64,
    sequence: u64,
) -> io::Result<VecDeque<Spare>> {
    let mut spares = VecDeque::new();
    for (name, found_len) in found {
        let path = dir.join(name);
        match stale_sequence_of(name) {
            Some(stale) if *found_len == len && stale <= sequence && spares.len() < SPARE_COUNT_MAX => {
                spares.push_back(Spare { file: disk.open(&path)?, path, stale_sequence: stale });
            }
            _ => disk.remove_file(&path)?,
        }
    }
    Ok(spares)
}

/// Returns true if `name` is the name of a spare segment.
pub(crate) fn is_spare(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == EXTENSION)
}

fn stale_sequence_of(name: &str) -> Option<u64> {
    let (number, sequence) = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.split_once('-')?;
    number.parse::<u64>().ok()?;
    sequence.parse().ok()
}

fn spare_path(dir: &Path, number: u64, stale_sequence: u64) -> PathBuf {
    dir.join(format!("{number:08}-{stale_sequence}.{EXTENSION}"))
}
