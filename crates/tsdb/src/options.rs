//! Options of the database, and errors of its start.
//!
//! Not here: flags and the settings file (the binary), limits per tenant (`limits`).

use std::path::PathBuf;

use crate::limits::LimitsTable;
use crate::window::WINDOW_MS;
use chronolith_base::{Disk, Env, machine};
use chronolith_block::PoolLimits;
use chronolith_head::{HeadError, HeadOptions, SyncMode};
use chronolith_model::log_position::LogPartition;

/// Options of the database.
#[derive(Debug, Clone)]
pub struct TsdbOptions {
    /// Directory of all files.
    pub data_dir: PathBuf,
    /// Durability at which a write is acknowledged.
    pub sync: SyncMode,
    /// Limits of the tenants.
    pub limits: LimitsTable,
    /// Expiry of blocks.
    pub retention: RetentionOptions,
    /// Flush of head windows.
    pub flush: FlushOptions,
    /// Flush of idle series.
    pub idle: IdleOptions,
    /// Write-ahead log.
    pub wal: WalOptions,
    /// Compaction of blocks.
    pub compaction: CompactionOptions,
    /// Free disk space below which writes are refused; 0 = only when the disk is full.
    pub free_bytes_min: u64,
    /// Memory of the head of all tenants beyond which writes are refused.
    pub head_memory: HeadMemoryOptions,
    /// Memory of open chunks and out-of-order samples of native histograms above which chunks are sealed
    /// early.
    pub histogram_bytes_max: u64,
    /// Memory of texts of all tenants.
    pub texts: TextOptions,
    /// Exemplars in memory, of all tenants.
    pub exemplar_count_max: usize,
    /// Budget of open blocks.
    pub open_blocks: PoolLimits,
    /// Text between measurement and field in the metric names that PromQL reads.
    pub field_separator: String,
}

/// Limits of texts in memory.
#[derive(Debug, Clone)]
pub struct TextOptions {
    /// Bytes of different texts in the head above which new texts are refused; at three quarters of it the
    /// windows with most texts are flushed early.
    pub head_bytes_max: u64,
    /// Bytes of events and meta tag rules of Graphite clients, beyond which further ones are refused.
    pub annotation_bytes_max: usize,
}

/// Expiry of blocks by size; the age is a limit of each tenant.
#[derive(Debug, Clone)]
pub struct RetentionOptions {
    /// Size of all blocks above which the oldest are removed; 0 = no limit.
    pub bytes_max: u64,
    /// Time that retention keeps expired blocks after the clock has jumped ahead; 0 = it follows the clock at
    /// once.
    pub clock_guard_ms: i64,
}

/// Flush of head windows to blocks.
#[derive(Debug, Clone)]
pub struct FlushOptions {
    /// Time between the end of a window (or its first sample, if that came later) and its flush.
    pub delay_ms: i64,
    /// Estimated size below which a window waits for others of its day, at most 24 times `delay_ms`; 0 = no
    /// window waits.
    pub small_window_bytes: u64,
    /// Estimated memory of waiting windows beyond which the largest are flushed.
    pub waiting_bytes_max: u64,
}

/// Flush of series that receive no samples.
#[derive(Debug, Clone)]
pub struct IdleOptions {
    /// Time without a sample, by the server's clock, after which a series leaves the head for a block; 0 = it
    /// stays until its windows end.
    pub after_ms: i64,
    /// Number of idle series of a tenant below which no block is written for them.
    pub series_min: usize,
}

/// Write-ahead log.
#[derive(Debug, Clone)]
pub struct WalOptions {
    /// Size of the WAL above which a checkpoint is written even if no window is due.
    pub checkpoint_bytes: u64,
    /// Size that a segment reserves on disk.
    pub segment_bytes: u64,
    /// Partition of a replicated log of which the directory is a cache, in an owner of the partition. Samples
    /// come as its records, and its cuts decide when windows become blocks.
    pub log: Option<LogPartition>,
}

/// Compaction of blocks.
#[derive(Debug, Clone)]
pub struct CompactionOptions {
    /// Size of a compacted block: a larger one is split by series. A step that only joins adjacent blocks
    /// reads at most four times as much, which bounds the time that other maintenance waits for it; overlaps
    /// and deletions are resolved whatever the size. 0 = no compaction.
    pub block_bytes_max: u64,
    /// Limit of the bytes read and written per second; 0 = no limit.
    pub bytes_per_second: u64,
}

impl TsdbOptions {
    /// Returns the defaults for `data_dir`.
    #[must_use]
    pub fn new(data_dir: PathBuf) -> TsdbOptions {
        TsdbOptions {
            data_dir,
            sync: SyncMode::Fsync,
            limits: LimitsTable::default(),
            retention: RetentionOptions { bytes_max: 0, clock_guard_ms: 24 * 3_600_000 },
            flush: FlushOptions {
                delay_ms: 3_600_000,
                small_window_bytes: 1 << 20,
                waiting_bytes_max: 1 << 30,
            },
            idle: IdleOptions { after_ms: 900_000, series_min: 1000 },
            wal: WalOptions { checkpoint_bytes: 4 << 30, segment_bytes: 64 << 20, log: None },
            compaction: CompactionOptions { block_bytes_max: 2 << 30, bytes_per_second: 64 << 20 },
            free_bytes_min: 64 << 20,
            head_memory: HeadMemoryOptions { limit: HeadMemory::Percent(50), tenant_percent: 100 },
            histogram_bytes_max: 1 << 30,
            texts: TextOptions { head_bytes_max: 256 << 20, annotation_bytes_max: 256 << 20 },
            exemplar_count_max: 100_000,
            open_blocks: PoolLimits::default(),
            field_separator: "_".to_owned(),
        }
    }
}

/// Memory of the head of all tenants, and of one.
#[derive(Debug, Clone)]
pub struct HeadMemoryOptions {
    /// Limit of all tenants.
    pub limit: HeadMemory,
    /// Part of it, in percent, that one tenant may use; 100 = all of it.
    pub tenant_percent: u8,
}

/// Limit of the memory of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadMemory {
    /// Limit in bytes; 0 = none.
    Bytes(u64),
    /// Percentage of the memory of the cgroup or the machine, whichever is less; no limit if that is unknown.
    Percent(u8),
}

impl HeadMemory {
    /// Returns the limit in bytes; 0 = none.
    #[must_use]
    pub fn bytes(self, disk: &dyn Disk) -> u64 {
        match self {
            HeadMemory::Bytes(bytes) => bytes,
            HeadMemory::Percent(percent) => {
                machine::memory_bytes(disk).unwrap_or(0) / 100 * u64::from(percent)
            }
        }
    }
}

/// Error of a start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the directory.
    #[error("data directory {0} is used by another process (its lock file is held)")]
    Locked(PathBuf),
    /// A disk operation failed.
    #[error("{path}: {error}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// Damage that cannot be contained.
    #[error("{path}: {what}")]
    Corrupt {
        /// File.
        path: PathBuf,
        /// Position, expected and found value.
        what: String,
    },
    /// The head's files cannot be used.
    #[error("{0}")]
    Head(HeadError),
}

impl TsdbOptions {
    /// Options of the head.
    pub(crate) fn head(&self, env: &Env) -> HeadOptions {
        HeadOptions {
            sync: self.sync,
            log: self.wal.log,
            free_bytes_min: self.free_bytes_min,
            window_ms: WINDOW_MS,
            wal_segment_bytes: self.wal.segment_bytes,
            memory_bytes_max: self.head_memory.limit.bytes(&*env.disk),
            tenant_memory_percent: self.head_memory.tenant_percent,
            histogram_bytes_max: self.histogram_bytes_max,
            text_bytes_max: self.texts.head_bytes_max,
            ..HeadOptions::new(self.data_dir.clone())
        }
    }
}

impl OpenError {
    /// An error of the head, with the file if it is one.
    pub(crate) fn of_head(error: HeadError) -> OpenError {
        match error {
            HeadError::Io { path, error } => OpenError::Io { path, error },
            other => OpenError::Head(other),
        }
    }
}
