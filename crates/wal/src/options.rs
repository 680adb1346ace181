//! Options and errors of the log.

use std::io;
use std::path::{Path, PathBuf};

/// Durability at which a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// After fdatasync (default): acknowledged samples survive a power failure.
    Fsync,
    /// After the write; synced at this interval in milliseconds: a power failure loses at most that much.
    Interval(u64),
    /// After the write; the operating system decides when to sync.
    Os,
}

/// Options of the log.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Directory of the segments.
    pub dir: PathBuf,
    /// Durability at which a write is acknowledged.
    pub sync: SyncMode,
    /// Appends are refused when fewer bytes are free on the disk; 0 = only when the disk is full.
    pub free_bytes_min: u64,
    /// Bytes that a segment reserves.
    pub segment_bytes: u64,
}

/// Reasons why the log refuses frames, or cannot guarantee that they are durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalError {
    /// No space; appends are accepted again once there is some.
    #[error("no space left on disk, writes are refused until space is freed")]
    DiskFull,
    /// No file can be opened for the next segment; appends are accepted again once one can.
    #[error("too many open files (ulimit -n), writes are refused until a descriptor is free")]
    NoFileDescriptor,
    /// A write or sync failed; the log stays closed until the process is restarted.
    #[error("WAL write failed, writes are refused until restart: {0}")]
    Poisoned(String),
    /// The store is shutting down.
    #[error("server is shutting down")]
    Closed,
}

/// A failed operation on a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FileError {
    /// File or directory.
    pub path: PathBuf,
    /// Error of the operating system.
    pub error: io::Error,
}

impl FileError {
    /// Returns a function for `map_err` after a disk operation on `path`.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> FileError {
        move |error| FileError { path: path.to_owned(), error }
    }
}
