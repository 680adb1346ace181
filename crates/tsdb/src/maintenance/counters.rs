//! Statistics of maintenance: per kind of job, and of flushes, retention and compaction.
//!
//! Invariants: written by the thread that runs jobs, read by any thread without a lock.
//! Not here: names and help texts of metrics (`stats`).

use super::job_kind::JobKind;
use crate::metric::MetricValue;

/// Statistics of maintenance since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) flush: FlushCounters,
    pub(crate) retention: RetentionCounters,
    pub(crate) compaction: CompactionCounters,
    pub(crate) rollup: RollupCounters,
    /// Failed jobs of all kinds, and failed writes of the checkpoint and metadata next to them.
    pub(crate) errors: MetricValue,
    jobs: [KindCounters; JobKind::COUNT],
}

/// Flushes, also of idle series.
#[derive(Default)]
pub(crate) struct FlushCounters {
    pub(crate) windows: MetricValue,
    pub(crate) idle_series: MetricValue,
    /// Damaged chunks that are missing in their blocks.
    pub(crate) damaged_chunks: MetricValue,
    /// Small windows that wait beyond the flush delay, as of the last search.
    pub(crate) waiting_windows: MetricValue,
    /// Estimated memory of these windows.
    pub(crate) waiting_bytes: MetricValue,
}

/// Retention, and the clock that it follows.
#[derive(Default)]
pub(crate) struct RetentionCounters {
    pub(crate) removed_blocks: MetricValue,
    /// Forward jumps of the clock that retention did not follow at once.
    pub(crate) clock_jumps: MetricValue,
    /// Seconds until retention follows a clock that has jumped.
    pub(crate) clock_wait_seconds: MetricValue,
    /// Time by which blocks expire, in ms since 1970; 0 before the first run.
    pub(crate) trusted_ms: MetricValue,
    /// Blocks that are expired by the clock and are kept until then.
    pub(crate) held_blocks: MetricValue,
}

/// Compactions, also those that apply deletions.
#[derive(Default)]
pub(crate) struct CompactionCounters {
    pub(crate) runs: MetricValue,
    pub(crate) read_bytes: MetricValue,
    pub(crate) written_bytes: MetricValue,
    pub(crate) failures: MetricValue,
    /// Compactions refused because an input is damaged.
    pub(crate) refused: MetricValue,
    pub(crate) space_skips: MetricValue,
    /// Time that compactions slept to keep to their rate.
    pub(crate) throttled_ns: MetricValue,
    /// Size of the inputs of the running compaction; 0 if there is none.
    pub(crate) step_bytes: MetricValue,
    /// Bytes that the running compaction has read and written.
    pub(crate) step_moved_bytes: MetricValue,
}

/// Roll-ups of blocks.
#[derive(Default)]
pub(crate) struct RollupCounters {
    /// Blocks that were rolled up.
    pub(crate) blocks: MetricValue,
    pub(crate) windows: MetricValue,
    pub(crate) written_bytes: MetricValue,
    /// Blocks whose roll-ups were damaged.
    pub(crate) damaged: MetricValue,
}

/// Jobs of one kind.
#[derive(Default)]
pub(crate) struct KindCounters {
    pub(super) runs: MetricValue,
    pub(super) failures: MetricValue,
    pub(super) busy_ns: MetricValue,
    pub(super) queued: MetricValue,
    pub(super) queued_bytes: MetricValue,
    /// Due time of the first job in the queue, in ms since 1970; 0 if the queue is empty.
    pub(super) first_due_ms: MetricValue,
}

impl Counters {
    pub(super) fn of(&self, kind: JobKind) -> &KindCounters {
        &self.jobs[kind as usize]
    }
}
