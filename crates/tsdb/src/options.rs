//! How the store runs, and why it does not start.

use std::path::PathBuf;

use crate::limits::LimitsTable;
use chronolith_base::{Disk, machine};
use chronolith_block::PoolLimits;
use chronolith_head::{HeadError, SyncMode};

/// How the store runs.
#[derive(Debug, Clone)]
pub struct TsdbOptions {
    /// Everything on disk is below it.
    pub data_dir: PathBuf,
    /// When a write is acknowledged.
    pub sync: SyncMode,
    /// Limits of the tenants.
    pub limits: LimitsTable,
    /// Bytes of blocks to keep, oldest removed first; 0 = no limit.
    pub retention_bytes: u64,
    /// How long removal of expired blocks waits after the clock has jumped ahead; 0 = it follows the clock at once.
    pub retention_clock_guard_ms: i64,
    /// How long after its end (or its first sample, if that came later) a window is cut to a block.
    pub flush_delay_ms: i64,
    /// Estimated bytes below which a window waits for others of its day, at most 24 times `flush_delay_ms`; 0
    /// = none waits.
    pub small_window_bytes: u64,
    /// Estimated memory of windows that wait so; beyond it the largest are flushed.
    pub waiting_bytes_max: u64,
    /// A series that was offered no sample for this long, by the server's clock, leaves the head to a block; 0 = it
    /// stays until its windows end.
    pub idle_after_ms: i64,
    /// Idle series of a tenant below which no block is written for them.
    pub idle_count_min: usize,
    /// WAL bytes after which a checkpoint is written even if no window is due.
    pub wal_checkpoint_bytes: u64,
    /// Bytes that a WAL segment reserves on disk.
    pub wal_segment_bytes: u64,
    /// Writes are refused when less is free on the disk; 0 = only when the disk is full.
    pub free_bytes_min: u64,
    /// Memory of the head of all tenants beyond which writes are refused.
    pub head_memory: HeadMemory,
    /// Bytes of open chunks and late samples of native histograms above which they are sealed early.
    pub histogram_bytes_max: u64,
    /// Bytes of a block that compaction writes: what would be larger is split by series. A step that only
    /// joins neighbours in time reads at most four times as much, which bounds how long one holds up other
    /// maintenance; overlaps and deletions are resolved whatever the size. 0 = no compaction.
    pub compaction_bytes_max: u64,
    /// Bytes a second that merging blocks reads and writes together at most; 0 = no limit.
    pub compaction_bytes_per_second: u64,
    /// Exemplars kept in memory, all tenants together.
    pub exemplar_count_max: usize,
    /// What open blocks may take.
    pub open_blocks: PoolLimits,
}

impl TsdbOptions {
    /// Defaults for `data_dir`.
    #[must_use]
    pub fn new(data_dir: PathBuf) -> TsdbOptions {
        TsdbOptions {
            data_dir,
            sync: SyncMode::Fsync,
            limits: LimitsTable::default(),
            retention_bytes: 0,
            retention_clock_guard_ms: 24 * 3_600_000,
            flush_delay_ms: 3_600_000,
            small_window_bytes: 1 << 20,
            waiting_bytes_max: 1 << 30,
            idle_after_ms: 900_000,
            idle_count_min: 1000,
            wal_checkpoint_bytes: 4 << 30,
            wal_segment_bytes: 64 << 20,
            free_bytes_min: 64 << 20,
            head_memory: HeadMemory::Percent(50),
            histogram_bytes_max: 1 << 30,
            compaction_bytes_max: 2 << 30,
            compaction_bytes_per_second: 64 << 20,
            exemplar_count_max: 100_000,
            open_blocks: PoolLimits::default(),
        }
    }
}

/// Limit of the memory of the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadMemory {
    /// In bytes; 0 = none.
    Bytes(u64),
    /// Part of the memory of the cgroup or the machine, whichever is less; none where nobody knows that.
    Percent(u8),
}

impl HeadMemory {
    /// In bytes; 0 = none.
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
    /// The head's files cannot be used.
    #[error("{0}")]
    Head(HeadError),
}
