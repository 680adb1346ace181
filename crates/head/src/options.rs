//! Options and errors of the head.

use std::io;
use std::path::{Path, PathBuf};

use chronolith_model::log_position::LogPartition;
use chronolith_wal::{FileError, SyncMode, WalError, WalOptions};

/// Options of the head.
#[derive(Debug, Clone)]
pub struct HeadOptions {
    /// Data directory; contains `wal/` and `chunks/`.
    pub dir: PathBuf,
    /// Durability at which a write is acknowledged.
    pub sync: SyncMode,
    /// Partition of a replicated log of which the WAL is a cache.
    pub log: Option<LogPartition>,
    /// Width of the aligned windows that chunks never cross, in milliseconds.
    pub window_ms: i64,
    /// Writes are refused when fewer bytes are free on the disk; 0 = only when the disk is full.
    pub free_bytes_min: u64,
    /// Bytes that a WAL segment reserves. Tests with a disk in memory use few.
    pub wal_segment_bytes: u64,
    /// Memory limit of the whole head above which batches are refused; 0 = no limit.
    pub memory_bytes_max: u64,
    /// Part of `memory_bytes_max`, in percent, that one tenant may use; 100 = all of it, and no tenant is
    /// refused before the others.
    pub tenant_memory_percent: u8,
    /// Bytes of open chunks and out-of-order samples of native histograms above which they are sealed early.
    pub histogram_bytes_max: u64,
    /// Bytes of texts of all tenants above which new texts are refused.
    pub text_bytes_max: u64,
    /// Size of a sealed chunk file at which the next one is begun.
    pub sealed_file_bytes: u64,
    /// Dead series in a series file below which it is not rewritten.
    pub dead_count_min: u64,
    /// Chunks that any append may decode to compare out-of-order samples with stored ones; large batches may
    /// decode one per 512 samples. Conflicts beyond that are accepted, and resolved by the duplicate policy
    /// when they are read.
    pub ooo_lookups_min: u32,
    /// Series ids are below this; tests use few.
    pub series_id_limit: u32,
}

impl HeadOptions {
    /// Returns the defaults for the data directory `dir`.
    #[must_use]
    pub fn new(dir: PathBuf) -> HeadOptions {
        HeadOptions {
            dir,
            sync: SyncMode::Fsync,
            log: None,
            window_ms: 7_200_000,
            free_bytes_min: 64 << 20,
            wal_segment_bytes: 64 << 20,
            memory_bytes_max: 0,
            tenant_memory_percent: 100,
            histogram_bytes_max: 1 << 30,
            text_bytes_max: 256 << 20,
            sealed_file_bytes: 128 << 20,
            dead_count_min: 4096,
            ooo_lookups_min: 4,
            series_id_limit: u32::MAX - 1,
        }
    }

    /// Returns the options of the WAL.
    pub(crate) fn wal(&self) -> WalOptions {
        WalOptions {
            dir: wal_dir(&self.dir),
            sync: self.sync,
            free_bytes_min: self.free_bytes_min,
            segment_bytes: self.wal_segment_bytes,
        }
    }
}

/// Empty file in the directory of the WAL of a data directory that has series of integers or texts. Programs
/// without these kinds refuse to start where a file is named `checkpoint.*`; they would read words as floats.
pub(crate) const TYPED_FILE: &str = "checkpoint.integers-and-texts";

/// Returns the directory of WAL segments and checkpoint.
pub(crate) fn wal_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("wal")
}

/// Reasons to refuse a whole batch; none of it is acknowledged. All but [`WriteError::NeverFits`],
/// [`WriteError::NeverFitsShare`] and [`WriteError::BurstExceeded`] are worth a retry by the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The WAL refuses appends, or may not have made the batch durable.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Sealed chunks cannot be written since no file can be opened; writes are accepted again once one can.
    #[error("too many open files (ulimit -n), writes are refused until a descriptor is free")]
    NoFileDescriptor,
    /// The file that marks a data directory with integers or texts cannot be written; the next such batch
    /// retries.
    #[error("data directory cannot be marked as one with integers or texts: {0}")]
    Marker(String),
    /// Metadata of the batch cannot be stored; the next batch with metadata retries.
    #[error("metadata cannot be stored: {0}")]
    Metadata(String),
    /// The tenant is being deleted; writes are accepted again once that is done.
    #[error("tenant {tenant:?} is being deleted, writes to it are refused until that is done, retry later")]
    TenantDeleted {
        /// The tenant.
        tenant: String,
    },
    /// The head is at its memory limit; flushes and evictions of idle series make room.
    #[error(
        "head is at its memory limit (head-memory-limit): {used_bytes} of {limit_bytes} bytes used, retry later"
    )]
    HeadFull {
        /// Bytes in use.
        used_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The batch alone needs more memory than the limit of the head. No retry helps.
    #[error(
        "request needs {needed_bytes} bytes of the head, more than its limit (head-memory-limit) of {limit_bytes}"
    )]
    NeverFits {
        /// Estimated bytes that it needs.
        needed_bytes: u64,
        /// The limit in bytes.
        limit_bytes: u64,
    },
    /// The tenant is at its share of the memory of the head; flushes and evictions of its idle series make
    /// room. Other tenants are not refused.
    #[error(
        "tenant {tenant:?} is at its share of the head's memory (head-memory-tenant-share): {used_bytes} of {share_bytes} bytes used, retry later"
    )]
    TenantFull {
        /// The tenant.
        tenant: String,
        /// Bytes that it uses.
        used_bytes: u64,
        /// Memory share of the tenant in bytes.
        share_bytes: u64,
    },
    /// The batch alone needs more memory than the share of its tenant. No retry helps.
    #[error(
        "request of tenant {tenant:?} needs {needed_bytes} bytes of the head, more than the tenant's share (head-memory-tenant-share) of {share_bytes}"
    )]
    NeverFitsShare {
        /// The tenant.
        tenant: String,
        /// Estimated bytes that it needs.
        needed_bytes: u64,
        /// Memory share of the tenant in bytes.
        share_bytes: u64,
    },
    /// The tenant exceeds its ingestion rate.
    #[error(
        "tenant is above its ingestion rate limit (ingestion-rate) of {rate} samples/s with a burst (ingestion-burst) of {burst}: {used} in use, {sample_count} more requested"
    )]
    RateLimited {
        /// Limit in samples per second.
        rate: u64,
        /// Limit of samples in one burst.
        burst: u64,
        /// Samples of the burst in use, rounded down.
        used: u64,
        /// Samples of the request.
        sample_count: u64,
        /// Milliseconds after which a retry may succeed.
        retry_after_ms: u64,
    },
    /// The request has more samples than the burst limit of the tenant. No retry helps.
    #[error(
        "request of {sample_count} samples is above the tenant's ingestion burst limit (ingestion-burst) of {burst}"
    )]
    BurstExceeded {
        /// Samples of the request.
        sample_count: u64,
        /// Limit of samples in one burst.
        burst: u64,
    },
    /// The tenant exceeds its ingestion rate in bytes.
    #[error(
        "tenant is above its ingestion rate limit (ingestion-bytes-rate) of {rate} bytes/s with a burst (ingestion-bytes-burst) of {burst}: {used} in use, {byte_count} more requested"
    )]
    BytesRateLimited {
        /// Limit in bytes per second.
        rate: u64,
        /// Limit of bytes in one burst.
        burst: u64,
        /// Bytes of the burst in use, rounded down.
        used: u64,
        /// Bytes of the request.
        byte_count: u64,
        /// Milliseconds after which a retry may succeed.
        retry_after_ms: u64,
    },
    /// The request has more bytes than the burst limit of the tenant. No retry helps.
    #[error(
        "request of {byte_count} bytes unpacked is above the tenant's ingestion burst limit (ingestion-bytes-burst) of {burst}"
    )]
    BytesBurstExceeded {
        /// Bytes of the request.
        byte_count: u64,
        /// Limit of bytes in one burst.
        burst: u64,
    },
}

impl WriteError {
    /// Returns true if the same batch never fits the memory limits, so that no retry helps.
    #[must_use]
    pub fn never_fits(&self) -> bool {
        matches!(self, WriteError::NeverFits { .. } | WriteError::NeverFitsShare { .. })
    }
}

/// Reasons why an operation on the head failed.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// The disk reported an error.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Damage that cannot be contained.
    #[error("{path}: {what}")]
    Corrupt {
        /// Damaged file.
        path: PathBuf,
        /// Description: what, where, expected and found.
        what: String,
    },
    /// The directory of an owner of a partition of a replicated log cannot be continued. Nothing is lost: the
    /// log and the bucket have its samples.
    #[error("the cache of the replicated log cannot be continued: {0}")]
    LogCache(String),
    /// The directory of an owner is a cache of another partition, or of a topic that was made again. Samples
    /// before its position that are in no block may be nowhere else.
    #[error("the directory is the cache of {found}, and the owner is of {expected}")]
    OtherPartition {
        /// Partition of the directory.
        found: LogPartition,
        /// Partition of the owner.
        expected: LogPartition,
    },
    /// Writes are refused.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<WalError> for HeadError {
    fn from(error: WalError) -> HeadError {
        HeadError::Write(WriteError::Wal(error))
    }
}

impl From<FileError> for HeadError {
    fn from(FileError { path, error }: FileError) -> HeadError {
        HeadError::Io { path, error }
    }
}

impl HeadError {
    /// Returns a function for `map_err` after a disk operation on `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> HeadError {
        move |error| HeadError::Io { path: path.to_owned(), error }
    }
}
