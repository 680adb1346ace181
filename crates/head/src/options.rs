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
    /// Memory of the whole head beyond which batches are refused; 0 = no limit.
    pub memory_bytes_max: u64,
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
            memory_bytes_max: 0,
            histogram_bytes_max: 1 << 30,
            sealed_file_bytes: 128 << 20,
            dead_count_min: 4096,
            series_id_limit: u32::MAX - 1,
        }
    }
}

/// Why a whole batch is refused; none of it is acknowledged. All but [`WriteError::NeverFits`] and
/// [`WriteError::BurstExceeded`] are worth a retry by the client.
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
    /// The head is at its limit of memory; there is room again when windows are flushed or idle series leave.
    #[error(
        "head is at its memory limit (head-memory-limit): {used_bytes} of {limit_bytes} bytes used, retry later"
    )]
    HeadFull {
        /// Bytes in use.
        used_bytes: u64,
        /// Bytes allowed.
        limit_bytes: u64,
    },
    /// The batch alone needs more memory than the limit of the head. No retry helps.
    #[error(
        "request needs {needed_bytes} bytes of the head, more than its limit (head-memory-limit) of {limit_bytes}"
    )]
    NeverFits {
        /// Bytes that it needs, by estimate.
        needed_bytes: u64,
        /// Bytes allowed.
        limit_bytes: u64,
    },
    /// The tenant sends more samples per second than it may.
    #[error(
        "tenant is above its ingestion rate limit (ingestion_rate) of {rate} samples/s with a burst (ingestion_burst) of {burst}"
    )]
    RateLimited {
        /// Samples per second.
        rate: u64,
        /// Samples at once.
        burst: u64,
        /// When a retry may succeed.
        retry_after_ms: u64,
    },
    /// The request has more samples than the tenant may ever send at once. No retry helps.
    #[error(
        "request of {sample_count} samples is above the tenant's ingestion burst limit (ingestion_burst) of {burst}"
    )]
    BurstExceeded {
        /// Samples of the request.
        sample_count: u64,
        /// Samples at once.
        burst: u64,
    },
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
