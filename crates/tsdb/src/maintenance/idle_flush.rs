//! Idle flush job: the idle series of one tenant are written to blocks long before their windows end.
//!
//! Invariants: as for a window, the block is complete and durable before its samples leave the head, and a
//! checkpoint follows: what a deletion later removes from the block must not come back from the WAL.
//! Compaction leaves the blocks alone until the block of the whole window is there, because nothing after the
//! last closed window is compacted. Series that fail are found again in the next generation. Few idle series
//! wait until they are worth a block, but not for ever: at most [`WAIT_GENERATIONS`].
//! Not here: detection of idle series (`head`).

use std::collections::BTreeMap;

use chronolith_format::store_name;
use chronolith_head::IdleSeries;
use chronolith_model::StoreId;

use super::flush::plan::block_ranges_of;
use super::flush::writer::{FlushError, FlushWriter};
use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;

/// The idle series of a tenant are flushed if they are at least one in this many of its series.
const IDLE_PART_MIN: usize = 20;
/// Generations that idle series of a tenant wait while they are too few for a block of their own: eight times
/// `--idle-after`, two hours by default, when most of them have left with their windows.
const WAIT_GENERATIONS: u32 = 16;
/// Estimated size of an idle series in a block.
const SERIES_BYTES: u64 = 512;

/// Runs idle flush jobs.
#[derive(Default)]
pub(super) struct IdleFlushJobs {
    /// Idle series of the queued jobs.
    idle: BTreeMap<StoreId, IdleSeries>,
    /// Generations for which the idle series of a tenant have been too few for a block.
    waiting: BTreeMap<StoreId, u32>,
}

impl IdleFlushJobs {
    /// Returns the tenants whose idle series are flushed: they are many, or have waited long enough.
    fn take_due(&mut self, found: Vec<IdleSeries>, count_min: usize) -> BTreeMap<StoreId, IdleSeries> {
        let mut waited = std::mem::take(&mut self.waiting);
        let mut due = BTreeMap::new();
        for idle in found.into_iter().filter(|idle| idle.idle_count() > 0) {
            let generations = waited.remove(&idle.tenant).unwrap_or(0);
            let is_many =
                idle.idle_count() >= count_min && idle.idle_count() >= idle.series_count / IDLE_PART_MIN;
            if is_many || generations >= WAIT_GENERATIONS {
                due.insert(idle.tenant.clone(), idle);
            } else {
                self.waiting.insert(idle.tenant, generations + 1);
            }
        }
        due
    }

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
        tracing::info!(tenant = %store_name(&idle.tenant), series = idle.idle_count(), "idle series flushed to blocks");
        Ok(())
    }
}

impl JobRunner for IdleFlushJobs {
    /// Ends a generation of series; those without samples for two generations are idle. Cost: one scan of the
    /// hot records of the head.
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let options = cx.storage.options();
        if options.wal.log.is_some() {
            // A series leaves the head with the cut of its windows.
            return Found::All(Vec::new());
        }
        let count_min = options.idle.series_min;
        let found = cx.storage.head().windows().age_series();
        self.idle = self.take_due(found, count_min);
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
