//! How the head runs, and why it refuses: options and errors.

use std::io;
use std::path::{Path, PathBuf};

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// After fdatasync (default): acked samples survive power loss.
    Fsync,
    /// After the write; synced at this interval in milliseconds: power loss takes at most that much.
    Interval(u64),
    /// After the write; the operating system syncs when it likes.
    Os,
}

/// How the head runs.
#[derive(Debug, Clone)]
pub struct HeadOptions {
    /// Data directory; `wal/` and `chunks/` lie below it.
    pub dir: PathBuf,
    /// When a write is acknowledged.
    pub sync: SyncMode,
    /// Width of the aligned windows that chunks never cross, in milliseconds.
    pub window_ms: i64,
    /// Writes are refused when less is free on the disk; 0 = only when the disk is full.
    pub free_bytes_min: u64,
    /// Bytes that a WAL segment reserves. Tests on a disk in memory want it small.
    pub wal_segment_bytes: u64,
    /// Bytes of open chunks and late samples of native histograms above which they are sealed early.
    pub histogram_bytes_max: u64,
    /// Bytes after which a sealed chunk file is followed by the next.
    pub sealed_file_bytes: u64,
    /// Dead series in a definitions file below which it is not written anew.
    pub dead_count_min: u64,
    /// Series ids are below this; tests want few.
    pub series_id_limit: u32,
}

impl HeadOptions {
    /// Defaults for the data directory `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> HeadOptions {
        HeadOptions {
            dir,
            sync: SyncMode::Fsync,
            window_ms: 7_200_000,
            free_bytes_min: 64 << 20,
            wal_segment_bytes: 64 << 20,
            histogram_bytes_max: 1 << 30,
            sealed_file_bytes: 128 << 20,
            dead_count_min: 4096,
            series_id_limit: u32::MAX - 1,
        }
    }
}

/// Why a whole batch is refused; none of it is acknowledged. All are worth a retry by the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No space; writes come back by themselves when there is some.
    #[error("disk is full: writes are refused until space is freed")]
    DiskFull,
    /// Sealed chunks cannot be written since no file can be opened; writes come back by themselves when one can.
    #[error("no file descriptor is left (open files limit): writes are refused until one is free")]
    NoFileDescriptor,
    /// A write or sync of the log failed; writes stay refused until the process is restarted.
    #[error("write-ahead log failed and is closed for writing until restart: {0}")]
    Poisoned(String),
    /// Metadata of the batch cannot be stored; the next batch with some tries again.
    #[error("metadata cannot be stored: {0}")]
    Metadata(String),
    /// The store is shutting down.
    #[error("server is shutting down")]
    Closed,
}

/// Why an operation on the head failed.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// The disk refused.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// As the operating system says.
        error: io::Error,
    },
    /// Damage that cannot be contained.
    #[error("{path}: {what}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// What, where, expected and found.
        what: String,
    },
    /// The log does not take writes.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl HeadError {
    /// For `map_err` behind a disk operation on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> HeadError {
        move |error| HeadError::Io { path: path.to_owned(), error }
    }
}
