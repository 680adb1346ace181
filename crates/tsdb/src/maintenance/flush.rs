//! Flush job: head windows of one tenant are written to one block.
//!
//! Invariants: a job stands for one block; jobs of distinct tenants run in batches, whose files are synced
//! together. A window that fails is retried alone, and a checkpoint follows each batch.
//! Not here: which windows are due (`plan`, `resting`), writing blocks (`writer`).

mod own_policy;
pub(in crate::maintenance) mod plan;
mod resting;
pub(crate) mod writer;

use chronolith_head::WindowStat;
use chronolith_model::TimeRange;

use super::counters::FlushCounters;
use super::job::{Found, Job, JobContext, JobKey, JobRunner, Outcome};
use super::job_kind::JobKind;
use crate::storage::Storage;
use plan::{FlushPlan, FlushPlanner, FlushRules, Waiting};
use resting::RestingWindows;
use writer::{FlushWriter, WrittenWindow};

/// Bytes of written blocks after which they are synced, whatever the estimate of the batch was.
const SYNC_BYTES_MAX: u64 = 16 << 20;

/// Runs flush jobs.
#[derive(Default)]
pub(super) struct FlushJobs {
    resting: RestingWindows,
}

impl FlushJobs {
    /// Returns jobs for all windows that end before `now_ms`, due or not.
    pub(super) fn closed_windows(storage: &Storage, now_ms: i64) -> Vec<Job> {
        let rules = FlushRules { now_ms, delay_ms: 0, small_bytes: 0, waiting_bytes_max: 0 };
        let mut planner = FlushPlanner::new(rules);
        let windows = storage.head().windows();
        windows.visit(|series_count, windows| {
            let end_ms = |window: &WindowStat| window.tenant.time_unit().to_ms_ceil(window.range.end);
            let closed = windows.partition_point(|window| end_ms(window) <= now_ms);
            // Closed windows are due whenever their first sample came.
            let mut closed = windows[..closed].to_vec();
            closed.iter_mut().for_each(|window| window.first_arrival_ms = end_ms(window));
            planner.add_tenant(series_count, &closed);
        });
        jobs_of(planner.finish().0)
    }
}

impl JobRunner for FlushJobs {
    /// Cost: one pass over the windows of all tenants.
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let options = cx.storage.options();
        if options.wal.log.is_some() {
            // Cuts of the log decide.
            return Found::All(Vec::new());
        }
        let mut planner = FlushPlanner::new(FlushRules {
            now_ms: cx.now_ms,
            delay_ms: options.flush.delay_ms,
            small_bytes: options.flush.small_window_bytes,
            waiting_bytes_max: waiting_bytes_max(cx.storage),
        });
        cx.storage.head().windows().visit(|series_count, windows| {
            planner.add_tenant(series_count, windows);
            for window in windows {
                if self.resting.is_resting(window, cx.now_ms, options.flush.delay_ms) {
                    planner.add_resting(window);
                }
            }
        });
        self.resting.end_search();
        planner.add_texts(cx.storage.head().statistics());
        let (due, waiting) = planner.finish();
        publish_waiting(&cx.counters.flush, waiting);
        Found::All(jobs_of(due))
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        let writer = FlushWriter::new(cx.storage, &cx.counters.flush);
        let job_count = batch.len();
        let mut finished = Vec::with_capacity(batch.len());
        let mut written: Vec<(Job, WrittenWindow)> = Vec::with_capacity(batch.len());
        let mut bytes = 0;
        for job in batch {
            let has_begun = !written.is_empty() || !finished.is_empty();
            if has_begun && (cx.control.is_operator_waiting() || cx.control.is_stopped()) {
                finished.push((job, Outcome::Interrupted));
                continue;
            }
            let Some(tenant) = &job.key.tenant else { continue };
            let range = job.key.range;
            let snapshot = cx.storage.head().windows().snapshot(tenant, range).map_err(Into::into);
            match snapshot.and_then(|snapshot| writer.write(tenant, range, snapshot)) {
                Ok(window) => {
                    bytes += window.bytes();
                    written.push((job, window));
                }
                Err(error) => finished.push((job, failed(range, &error))),
            }
            if bytes >= SYNC_BYTES_MAX {
                publish(&writer, &mut written, &mut finished);
                bytes = 0;
            }
        }
        publish(&writer, &mut written, &mut finished);
        assert_eq!(finished.len(), job_count, "each job ends with an outcome");
        if finished.iter().any(|(_, outcome)| *outcome == Outcome::Done) {
            cx.add(Job::global(JobKind::Checkpoint, cx.now_ms));
        }
        finished
    }
}

fn publish(
    writer: &FlushWriter<'_>,
    written: &mut Vec<(Job, WrittenWindow)>,
    finished: &mut Vec<(Job, Outcome)>,
) {
    let (jobs, windows): (Vec<Job>, Vec<WrittenWindow>) = std::mem::take(written).into_iter().unzip();
    let results = writer.publish(windows);
    assert_eq!(results.len(), jobs.len(), "each window has its result");
    for (job, published) in jobs.into_iter().zip(results) {
        let outcome = published.map_or_else(|error| failed(job.key.range, &error), |()| Outcome::Done);
        finished.push((job, outcome));
    }
}

fn failed(range: TimeRange, error: &writer::FlushError) -> Outcome {
    Outcome::Failed(format!("window from {} to {}: {error}", range.start, range.end))
}

fn jobs_of(plan: FlushPlan) -> Vec<Job> {
    let job = |((tenant, range), due): (_, plan::DueFlush)| Job {
        due_ms: due.due_ms,
        cost_bytes: due.bytes,
        ..Job::with_key(JobKey { kind: JobKind::Flush, tenant: Some(tenant), range })
    };
    plan.into_iter().map(job).collect()
}

/// Returns the limit of the memory of waiting windows: at most a quarter of the head's memory limit, and 0
/// when three quarters of that are used.
fn waiting_bytes_max(storage: &Storage) -> u64 {
    let waiting_bytes_max = storage.options().flush.waiting_bytes_max;
    match storage.head().statistics().memory_used_and_limit() {
        (_, 0) => waiting_bytes_max,
        (used_bytes, limit_bytes) if used_bytes > limit_bytes / 4 * 3 => 0,
        (_, limit_bytes) => waiting_bytes_max.min(limit_bytes / 4),
    }
}

fn publish_waiting(counters: &FlushCounters, waiting: Waiting) {
    counters.waiting_windows.set(waiting.window_count);
    counters.waiting_bytes.set(waiting.heap_bytes);
}
