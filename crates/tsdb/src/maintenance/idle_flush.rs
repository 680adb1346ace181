//! Idle flush job: the idle series of one tenant are written to blocks long before their windows end.
//!
//! Invariants: as for a window, the block is complete and durable before its samples leave the head, and a
//! checkpoint follows: what a deletion later removes from the block must not come back from the WAL.
//! Compaction leaves the blocks alone until the block of the whole window is there, because nothing after the
//! last closed window is compacted. Series that fail are found again in the next generation.
//! Not here: detection of idle series (`head`).

use std::collections::BTreeMap;

use chronolith_head::IdleSeries;
use chronolith_model::TenantId;

use super::flush::plan::block_ranges_of;
use super::flush::writer::{FlushError, FlushWriter};
use super::job::{Found, Job, JobContext, JobKind, JobRunner, Outcome, run_each};

/// The idle series of a tenant are flushed if they are at least one in this many of its series.
const IDLE_PART_MIN: usize = 20;
/// Estimated size of an idle series in a block.
const SERIES_BYTES: u64 = 512;

/// Runs idle flush jobs.
#[derive(Default)]
pub(super) struct IdleFlushJobs {
    /// Idle series of the queued jobs.
    idle: BTreeMap<TenantId, IdleSeries>,
}

impl IdleFlushJobs {
    fn flush(cx: &JobContext<'_>, idle: &IdleSeries) -> Result<(), FlushError> {
        let windows = cx.storage.head().windows();
        let writer = FlushWriter::new(cx.storage, &cx.counters.flush);
        let small_bytes = cx.storage.options().flush.small_window_bytes;
        for range in block_ranges_of(&windows.list_of(&idle.tenant), small_bytes, cx.now_ms) {
            let snapshot = windows.snapshot_idle(idle, range)?;
            if snapshot.series_count() > 0 {
                writer.flush_snapshot(&idle.tenant, range, snapshot)?;
            }
        }
        cx.counters.flush.idle_series.add(idle.idle_count() as u64);
        tracing::info!(tenant = %idle.tenant, series = idle.idle_count(), "idle series flushed to blocks");
        Ok(())
    }
}

impl JobRunner for IdleFlushJobs {
    /// Ends a generation of series; those without samples for two generations are idle. Cost: one scan of the
    /// hot records of the head.
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let count_min = cx.storage.options().idle.series_min;
        let is_due = |idle: &IdleSeries| {
            idle.idle_count() >= count_min && idle.idle_count() >= idle.series_count / IDLE_PART_MIN
        };
        let found = cx.storage.head().windows().age_series().into_iter().filter(is_due);
        self.idle = found.map(|idle| (idle.tenant.clone(), idle)).collect();
        let job = |idle: &IdleSeries| {
            let bytes = idle.idle_count() as u64 * SERIES_BYTES;
            Job::of_tenant(JobKind::IdleFlush, idle.tenant.clone(), cx.now_ms, bytes)
        };
        Found::All(self.idle.values().map(job).collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| {
            let idle = job.key.tenant.as_ref().and_then(|tenant| self.idle.remove(tenant));
            let Some(idle) = idle else { return Outcome::Done };
            match Self::flush(cx, &idle) {
                Ok(()) => {
                    cx.add(Job::global(JobKind::Checkpoint, cx.now_ms));
                    Outcome::Done
                }
                Err(error) => Outcome::Abandoned(error.to_string()),
            }
        })
    }
}
