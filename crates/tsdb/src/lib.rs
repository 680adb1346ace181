//! Joins head and blocks; tenants, lifecycle, retention, limits. (Contract first; bodies follow.)

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use chronolith_base::Env;
use chronolith_model::{
    Exemplar, Labels, Matcher, MetadataEntry, Queryable, TenantId, TenantLimits, TimeRange, WriteBatch,
    WriteOutcome,
};

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

/// How the store runs.
#[derive(Debug, Clone)]
pub struct TsdbOptions {
    /// Everything on disk is below it.
    pub data_dir: PathBuf,
    /// When a write is acknowledged.
    pub sync: SyncMode,
    /// Limits of every tenant.
    pub limits: TenantLimits,
    /// Bytes of blocks to keep, oldest removed first; 0 = no limit.
    pub retention_bytes: u64,
    /// How long after its end (or its first sample, if that came later) a window is cut to a block.
    pub flush_delay_ms: i64,
    /// WAL bytes after which a checkpoint is written even if no window is due.
    pub wal_checkpoint_bytes: u64,
    /// Writes are refused when less is free on the disk; 0 = only when the disk is full.
    pub free_bytes_min: u64,
    /// Exemplars kept in memory, all tenants together.
    pub exemplar_count_max: usize,
}

impl TsdbOptions {
    /// Defaults for `data_dir`.
    #[must_use]
    pub fn new(data_dir: PathBuf) -> TsdbOptions {
        TsdbOptions {
            data_dir,
            sync: SyncMode::Fsync,
            limits: TenantLimits::default(),
            retention_bytes: 0,
            flush_delay_ms: 3_600_000,
            wal_checkpoint_bytes: 4 << 30,
            free_bytes_min: 64 << 20,
            exemplar_count_max: 100_000,
        }
    }
}

/// Progress of the replay, readable while [`Tsdb::open`] runs on another thread.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    /// First WAL segment to replay.
    pub segment_first: AtomicU64,
    /// Last WAL segment to replay.
    pub segment_last: AtomicU64,
    /// Segment being replayed.
    pub segment_now: AtomicU64,
    /// Bytes replayed.
    pub bytes_done: AtomicU64,
    /// Bytes to replay.
    pub bytes_total: AtomicU64,
}

/// Why the store cannot be opened. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("data directory {0} is used by another process (its lock file is held)")]
    Locked(PathBuf),
    /// The disk refused.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// As the operating system says.
        error: std::io::Error,
    },
    /// Damage that cannot be contained.
    #[error("{path}: {what}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// What, where, expected and found.
        what: String,
    },
}

/// Why a whole batch is refused; none of it is acknowledged. All are worth a retry by the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// No space; writes come back by themselves when there is some.
    #[error("disk is full: writes are refused until space is freed")]
    DiskFull,
    /// A write or sync of the log failed; writes stay refused until the process is restarted.
    #[error("write-ahead log failed and is closed for writing until restart: {0}")]
    Poisoned(String),
    /// The store is shutting down.
    #[error("server is shutting down")]
    Closed,
}

/// Counters and sizes, for `/metrics`, `/api/v1/status/tsdb` and the start page.
#[derive(Debug, Clone, Default)]
pub struct TsdbStats {
    /// Series in the head, all tenants.
    pub head_series: u64,
    /// Chunks in the head (open, late, sealed).
    pub head_chunks: u64,
    /// Earliest sample in the head; `None` when it is empty.
    pub head_min_time_ms: Option<i64>,
    /// Latest sample in the head.
    pub head_max_time_ms: Option<i64>,
    /// Tenants with data.
    pub tenants: u64,
    /// Blocks of all tenants.
    pub blocks: u64,
    /// Their bytes.
    pub block_bytes: u64,
    /// Bytes of WAL segments and checkpoint.
    pub wal_bytes: u64,
    /// Syncs of the WAL.
    pub wal_sync_count: u64,
    /// Nanoseconds spent in them.
    pub wal_sync_ns: u64,
    /// Batches that were made durable.
    pub wal_batch_count: u64,
    /// Bytes written to the WAL.
    pub wal_written_bytes: u64,
    /// Whether the WAL is poisoned.
    pub wal_poisoned: bool,
    /// Whether writes are refused for lack of space.
    pub disk_full: bool,
    /// Samples accepted since start.
    pub samples_appended: u64,
    /// Samples that came late.
    pub samples_late: u64,
    /// Windows cut to blocks since start.
    pub flush_count: u64,
    /// Failed flushes, checkpoints, retention runs.
    pub maintenance_error_count: u64,
    /// Blocks removed by retention.
    pub retention_removed_count: u64,
    /// Checkpoints written.
    pub checkpoint_count: u64,
    /// How long the last replay took.
    pub replay_ms: u64,
    /// What the last replay could not use (torn tail, damaged frames), for people.
    pub replay_notes: Vec<String>,
    /// Further gauges by name (without prefix), such as memory by part.
    pub gauges: Vec<(&'static str, f64)>,
}

/// Head cardinality of one tenant, largest first (`/api/v1/status/tsdb`).
#[derive(Debug, Clone, Default)]
pub struct Cardinality {
    /// Series.
    pub series_count: u64,
    /// Label pairs.
    pub label_pair_count: u64,
    /// Series by metric name.
    pub series_by_metric: Vec<(String, u64)>,
    /// Values by label name.
    pub values_by_label: Vec<(String, u64)>,
    /// Bytes of values by label name.
    pub bytes_by_label: Vec<(String, u64)>,
    /// Series by `name=value`.
    pub series_by_pair: Vec<(String, u64)>,
}

/// The store of all tenants.
pub struct Tsdb {
    _private: (),
}

impl Tsdb {
    /// Locks the directory, loads blocks, replays. Blocks the thread; `progress` may be watched meanwhile.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(env: Env, options: TsdbOptions, progress: Arc<ReplayProgress>) -> Result<Arc<Tsdb>, OpenError> {
        let _ = (env, options, progress);
        Ok(Arc::new(Tsdb { _private: () }))
    }

    /// Stores a batch; returns when it is durable as the sync mode promises. Blocks the thread.
    ///
    /// # Errors
    /// [`WriteError`]: nothing of the batch is acknowledged. Rejected samples are no error: see the outcome.
    pub fn append(&self, tenant: &TenantId, batch: &WriteBatch) -> Result<WriteOutcome, WriteError> {
        let _ = (tenant, batch);
        Err(WriteError::Closed)
    }

    /// Head and blocks of `tenant` as one; empty for a tenant without data.
    #[must_use]
    pub fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        let _ = tenant;
        unreachable!("contract only")
    }

    /// Metadata of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    #[must_use]
    pub fn metadata(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        let _ = (tenant, metric, limit);
        Vec::new()
    }

    /// Exemplars of the series that fit any of `selectors`, by series labels, times ascending.
    #[must_use]
    pub fn exemplars(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        let _ = (tenant, selectors, range);
        Vec::new()
    }

    /// Tenants with data, sorted.
    #[must_use]
    pub fn tenants(&self) -> Vec<TenantId> {
        Vec::new()
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> TsdbStats {
        TsdbStats::default()
    }

    /// Head cardinality of `tenant`, `limit` entries a list.
    #[must_use]
    pub fn cardinality(&self, tenant: &TenantId, limit: usize) -> Cardinality {
        let _ = (tenant, limit);
        Cardinality::default()
    }

    /// Replaces the limits of all tenants (configuration reload).
    pub fn set_limits(&self, limits: TenantLimits) {
        let _ = limits;
    }

    /// One round of background work: due windows to blocks, retention, checkpoint, disk-full recovery.
    /// Failures are logged and counted; the next round tries again.
    pub fn tick(&self) {}

    /// Refuses further writes, makes everything durable, writes a checkpoint so that the next start replays
    /// nothing, releases the lock when the last reference goes.
    ///
    /// # Errors
    /// If the checkpoint cannot be written; nothing is lost then, the next start replays the log.
    pub fn close(&self) -> Result<(), WriteError> {
        Ok(())
    }
}
