//! Maintenance: background jobs on the storage, run one after the other by one thread.
//!
//! Invariants: no two jobs run at the same time, none while an operator's request has the lock, none after
//! the shutdown. A failed job is logged, counted and retried later, and does not stop the jobs of other
//! tenants.
//! Not here: the time of a run (the server's maintenance thread calls `run` every second), the order of jobs
//! (`scheduler`), the work of each kind (the file named after it).

mod block_removal;
mod checkpoint;
pub(crate) mod compaction;
mod control;
mod counters;
mod deletion;
pub(crate) mod flush;
mod idle_flush;
mod job;
mod job_kind;
mod local_retention;
mod metadata;
mod retention;
mod rollup;
mod scheduler;
mod scrub;
pub(crate) mod store_removal;
mod tenant_cleanup;

use chronolith_format::store_name;
use chronolith_model::StoreId;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::storage::Storage;
use block_removal::BlockRemovalJobs;
use checkpoint::CheckpointJobs;
use compaction::CompactionJobs;
use compaction::pace::{RewritePace, Urgency};
use compaction::rewrite::BlockRewriter;
use control::Control;
pub(crate) use counters::{CompactionCounters, Counters};
use deletion::DeletionJobs;
use flush::FlushJobs;
use flush::writer::FlushWriter;
use idle_flush::IdleFlushJobs;
use job::{Job, JobContext, JobRunner, Outcome};
pub use job_kind::JobKind;
use local_retention::LocalRetentionJobs;
use metadata::MetadataJobs;
pub(crate) use retention::GuardedClock;
use retention::RetentionJobs;
use rollup::RollupJobs;
use scheduler::{KindRules, Scheduler, Task};
use scrub::{Scrub, ScrubJobs};
use store_removal::StoreRemovalJobs;
use tenant_cleanup::TenantCleanupJobs;

/// Jobs of one kind since the start, and those that are queued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobStats {
    /// Kind of the jobs.
    pub kind: JobKind,
    /// Attempts that ended, failed ones included.
    pub run_count: u64,
    /// Attempts that failed.
    pub failure_count: u64,
    /// Time spent in searches and attempts.
    pub busy_ns: u64,
    /// Queued jobs.
    pub queued_count: u64,
    /// Estimated bytes of the queued jobs.
    pub queued_bytes: u64,
    /// Time since the first queued job was due, in ms; 0 if none is due.
    pub overdue_ms: u64,
    /// No job of the kind starts.
    pub is_paused: bool,
}

/// The maintenance lock: background jobs wait while an operator's request has it.
pub(crate) struct MaintenanceLock<'a> {
    _state: MutexGuard<'a, State>,
}

/// Kinds of jobs that replace blocks by others, or roll them up.
const REWRITING_KINDS: [JobKind; 3] = [JobKind::Compaction, JobKind::Deletion, JobKind::Rollup];

/// Queue of maintenance jobs, see [`crate::Tsdb::maintenance`].
pub struct Maintenance {
    storage: Arc<Storage>,
    control: Control,
    counters: Counters,
    scrub: Arc<Scrub>,
    state: Mutex<State>,
}

/// Queues, and one runner per kind.
struct State {
    scheduler: Scheduler,
    flush: FlushJobs,
    idle_flush: IdleFlushJobs,
    checkpoint: CheckpointJobs,
    retention: RetentionJobs,
    local_retention: LocalRetentionJobs,
    store_removal: StoreRemovalJobs,
    block_removal: BlockRemovalJobs,
    compaction: CompactionJobs,
    deletion: DeletionJobs,
    rollup: RollupJobs,
    tenant_cleanup: TenantCleanupJobs,
    metadata: MetadataJobs,
    scrub: ScrubJobs,
}

impl State {
    fn runner(&mut self, kind: JobKind) -> &mut dyn JobRunner {
        match kind {
            JobKind::Flush => &mut self.flush,
            JobKind::IdleFlush => &mut self.idle_flush,
            JobKind::Checkpoint => &mut self.checkpoint,
            JobKind::Retention => &mut self.retention,
            JobKind::LocalRetention => &mut self.local_retention,
            JobKind::StoreRemoval => &mut self.store_removal,
            JobKind::BlockRemoval => &mut self.block_removal,
            JobKind::Compaction => &mut self.compaction,
            JobKind::Deletion => &mut self.deletion,
            JobKind::Rollup => &mut self.rollup,
            JobKind::TenantCleanup => &mut self.tenant_cleanup,
            JobKind::Metadata => &mut self.metadata,
            JobKind::Scrub => &mut self.scrub,
        }
    }
}

impl Maintenance {
    pub(crate) fn new(storage: Arc<Storage>, clock: GuardedClock) -> Maintenance {
        let idle_after_ms = storage.options().idle.after_ms;
        // A series is idle after it had no sample for one whole generation and part of another.
        let idle_search_ms = (idle_after_ms > 0).then(|| idle_after_ms.div_euclid(2).max(1));
        let scrub = Arc::new(Scrub::default());
        let databases = storage.databases().clone();
        let owner_of = Box::new(move |store: &StoreId| databases.owner_of(store));
        let state = State {
            scheduler: Scheduler::new(|kind| KindRules::of(kind, idle_search_ms), owner_of),
            flush: FlushJobs::default(),
            idle_flush: IdleFlushJobs::default(),
            checkpoint: CheckpointJobs,
            retention: RetentionJobs::new(clock),
            local_retention: LocalRetentionJobs,
            store_removal: StoreRemovalJobs,
            block_removal: BlockRemovalJobs,
            compaction: CompactionJobs::default(),
            deletion: DeletionJobs,
            rollup: RollupJobs::default(),
            tenant_cleanup: TenantCleanupJobs,
            metadata: MetadataJobs,
            scrub: ScrubJobs(scrub.clone()),
        };
        let (control, counters) = (Control::default(), Counters::default());
        Maintenance { storage, control, counters, scrub, state: Mutex::new(state) }
    }

    /// Runs the jobs that are due, within the budget of each kind: flush, retention, checkpoint, compaction,
    /// scrub and others. To be called every second, on a thread of its own. Ends early, after one batch of
    /// jobs at least, if an operator waits. A job that fails is logged, counted and retried by a later run.
    pub fn run(&self) {
        let mut state = self.state.lock();
        if self.control.is_stopped() {
            return;
        }
        let now_ms = self.storage.env().clock.now_ms();
        state.retention.observe_clock(&self.context(now_ms));
        state.scheduler.start_run(now_ms);
        let mut has_run = false;
        while !(self.control.is_stopped() || has_run && self.control.is_operator_waiting()) {
            let is_paused = |kind| self.control.is_paused(kind as usize);
            let Some(task) = state.scheduler.next(now_ms, is_paused) else { break };
            has_run |= matches!(task, Task::Run(..));
            self.execute(&mut state, task, now_ms);
        }
        self.storage.blocks().commit();
        self.publish_queues(&state.scheduler);
    }

    /// Flushes every window that ends before `now_ms` to a block, due or not, and writes a checkpoint. For
    /// tools and tests; the server waits until windows are due.
    ///
    /// # Errors
    /// The text of the last failure; nothing is lost then.
    pub fn flush_closed(&self, now_ms: i64) -> Result<(), String> {
        let mut state = self.state.lock();
        state.scheduler.clear(JobKind::Flush);
        FlushJobs::closed_windows(&self.storage, now_ms).into_iter().for_each(|job| state.scheduler.add(job));
        state.scheduler.reset_run(JobKind::Flush);
        let mut result = Ok(());
        loop {
            let batch = state.scheduler.take_batch(JobKind::Flush, now_ms);
            // At the end of time a retry is due at once; the next search finds the window again.
            if batch.is_empty() || batch.iter().any(|job| job.retry_pause_ms > 0) {
                break;
            }
            if let Some(error) = self.execute(&mut state, Task::Run(JobKind::Flush, batch), now_ms) {
                result = Err(error);
            }
        }
        state.scheduler.clear(JobKind::Checkpoint);
        self.storage.blocks().commit();
        self.publish_queues(&state.scheduler);
        result?;
        self.storage.head().checkpointer().checkpoint().map(drop).map_err(|error| error.to_string())
    }

    /// Runs one step of the verification of all blocks after a start, as every run does; returns true once
    /// all are verified. Cost: 32 MiB read or 50 ms.
    pub fn verify_blocks(&self) -> bool {
        self.scrub.step(self.storage.env(), self.storage.blocks())
    }

    /// Starts no jobs of `kinds` ([`JobKind::ALL`] for all) until [`Maintenance::resume`]. A running
    /// compaction ends at its next series, jobs of other kinds are completed.
    pub fn pause(&self, kinds: &[JobKind]) {
        for kind in kinds {
            self.control.set_paused(*kind as usize, true);
            tracing::info!("{} paused", kind.name());
        }
    }

    /// Starts jobs of `kinds` again.
    pub fn resume(&self, kinds: &[JobKind]) {
        for kind in kinds {
            self.control.set_paused(*kind as usize, false);
            tracing::info!("{} resumed", kind.name());
        }
    }

    /// Pauses compactions, and the rewriting of blocks with deletions, until
    /// [`Maintenance::resume_compaction`].
    pub fn pause_compaction(&self) {
        self.pause(&REWRITING_KINDS);
    }

    /// Starts compactions again.
    pub fn resume_compaction(&self) {
        self.resume(&REWRITING_KINDS);
    }

    /// Returns true if `kind` is paused.
    pub(crate) fn is_paused(&self, kind: JobKind) -> bool {
        self.control.is_paused(kind as usize)
    }

    /// Waits for the running job to yield, and keeps others out until the lock is dropped; `None` after the
    /// shutdown.
    pub(crate) fn lock(&self) -> Option<MaintenanceLock<'_>> {
        let waiting = self.control.announce_operator();
        let state = self.state.lock();
        drop(waiting);
        (!self.control.is_stopped()).then_some(MaintenanceLock { _state: state })
    }

    /// Ends the running job at its next step and starts no others. Saves the clock of retention.
    pub(crate) fn stop(&self) {
        self.control.stop();
        let state = self.state.lock();
        if let Err(error) = state.retention.clock().save(self.storage.env()) {
            self.counters.errors.increment();
            tracing::error!(%error, "writing the retention clock failed, the next start uses the state of the last successful write");
        }
    }

    /// Returns the writer of flushes; the caller has the lock.
    pub(crate) fn flush_writer(&self, _: &MaintenanceLock<'_>) -> FlushWriter<'_> {
        FlushWriter::new(&self.storage, &self.counters.flush)
    }

    /// Returns the rewriter of blocks; the caller has the lock.
    pub(crate) fn block_rewriter(&self, _: &MaintenanceLock<'_>) -> BlockRewriter<'_> {
        BlockRewriter::new(&self.storage, &self.control, &self.counters.compaction)
    }

    /// Returns the time by which blocks expire, as of the last run; `None` before the first one.
    pub(crate) fn trusted_ms(&self) -> Option<i64> {
        let trusted_ms = self.counters.retention.trusted_ms.get().cast_signed();
        (trusted_ms != 0).then_some(trusted_ms)
    }

    /// Returns the pace of a compaction on another thread, which ends for a pause of compaction and for the
    /// shutdown.
    pub(crate) fn detached_pace<'a>(&'a self, counters: &'a CompactionCounters) -> RewritePace<'a> {
        let bytes_per_second = self.storage.options().compaction.bytes_per_second;
        let clock = &*self.storage.env().clock;
        RewritePace::new(clock, bytes_per_second, Urgency::Detached, &self.control, counters)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// Returns the statistics of all kinds of jobs. Takes no lock.
    pub(crate) fn job_stats(&self) -> Vec<JobStats> {
        let now_ms = self.storage.env().clock.now_ms();
        let of_kind = |kind| {
            let counters = self.counters.of(kind);
            let (queued_count, first_due_ms) = (counters.queued.get(), counters.first_due_ms.get());
            let overdue_ms = now_ms.saturating_sub(first_due_ms.cast_signed()).max(0).unsigned_abs();
            JobStats {
                kind,
                run_count: counters.runs.get(),
                failure_count: counters.failures.get(),
                busy_ns: counters.busy_ns.get(),
                queued_count,
                queued_bytes: counters.queued_bytes.get(),
                overdue_ms: if queued_count == 0 { 0 } else { overdue_ms },
                is_paused: self.control.is_paused(kind as usize),
            }
        };
        JobKind::ALL.map(of_kind).to_vec()
    }

    fn context(&self, now_ms: i64) -> JobContext<'_> {
        JobContext::new(&self.storage, &self.control, &self.counters, now_ms)
    }

    /// Returns the error of the last job that failed.
    fn execute(&self, state: &mut State, task: Task, now_ms: i64) -> Option<String> {
        let cx = self.context(now_ms);
        let clock = &self.storage.env().clock;
        let started_ns = clock.mono_ns();
        let (kind, finished) = match task {
            Task::Search(kind) => {
                let found = state.runner(kind).search(&cx);
                state.scheduler.add_found(kind, found);
                (kind, Vec::new())
            }
            Task::Run(kind, batch) => (kind, state.runner(kind).run(&cx, batch)),
        };
        let elapsed_ns = clock.mono_ns() - started_ns;
        self.counters.of(kind).busy_ns.add(elapsed_ns);
        state.scheduler.add_busy(kind, elapsed_ns);
        let mut failure = None;
        for (job, outcome) in finished {
            self.finish(&mut state.scheduler, job, &outcome, now_ms);
            if let Outcome::Failed(error) | Outcome::Abandoned(error) = outcome {
                failure = Some(error);
            }
        }
        cx.take_added().into_iter().for_each(|job| state.scheduler.add(job));
        self.publish_queues(&state.scheduler);
        failure
    }

    fn finish(&self, scheduler: &mut Scheduler, job: Job, outcome: &Outcome, now_ms: i64) {
        let kind = job.key.kind;
        let tenant = job.key.tenant.clone();
        let tenant = tenant.as_ref().map(|store| tracing::field::display(store_name(store)));
        let retry_ms = scheduler.finish(job, outcome, now_ms);
        let counters = self.counters.of(kind);
        if !matches!(outcome, Outcome::Interrupted | Outcome::Postponed) {
            counters.runs.increment();
        }
        if let Outcome::Failed(error) | Outcome::Abandoned(error) = outcome {
            counters.failures.increment();
            self.counters.errors.increment();
            let kind = kind.name();
            match retry_ms {
                Some(retry_ms) => {
                    tracing::error!(tenant, error, retry_ms, "{kind} failed, retrying after retry_ms")
                }
                None => tracing::error!(tenant, error, "{kind} failed"),
            }
        }
    }

    fn publish_queues(&self, scheduler: &Scheduler) {
        for kind in JobKind::ALL {
            let (stats, counters) = (scheduler.stats(kind), self.counters.of(kind));
            counters.queued.set(stats.job_count as u64);
            counters.queued_bytes.set(stats.cost_bytes);
            counters.first_due_ms.set(stats.first_due_ms.unwrap_or(0).cast_unsigned());
        }
    }
}

#[cfg(test)]
mod tests;
