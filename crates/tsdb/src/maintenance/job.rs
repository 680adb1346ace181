//! Maintenance jobs: identity, due time, estimated cost and outcome of one unit of background work.
//!
//! Invariants: a job is identified by kind, tenant and range; its estimated cost is known before it starts.
//! Not here: the order of jobs (`scheduler`), the work of a kind (the file named after it).

use std::cell::RefCell;
use std::fmt::Display;

use chronolith_model::{StoreId, TimeRange};

use super::control::Control;
use super::counters::Counters;
use super::job_kind::JobKind;
use crate::storage::Storage;

/// Identity of a job: the queue has at most one job per key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct JobKey {
    pub(super) kind: JobKind,
    /// `None` for work of all tenants.
    pub(super) tenant: Option<StoreId>,
    /// Range of the block of a flush; [`TimeRange::ALL`] for other kinds.
    pub(super) range: TimeRange,
}

/// Position in the queue of a kind: due time and order of insertion.
pub(super) type Position = (i64, u64);

/// Turn of a tenant: place of a due job in the order of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) round: u64,
    /// Default store of the tenant; `None` for work of all tenants.
    pub(super) tenant: Option<StoreId>,
}

/// One unit of background work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) key: JobKey,
    /// Wall time from which the job may run.
    pub(super) due_ms: i64,
    /// Estimate of the bytes that the job reads or writes.
    pub(super) cost_bytes: u64,
    /// Pause before the last retry; 0 if the last attempt did not fail.
    pub(super) retry_pause_ms: i64,
    /// Order of insertion among jobs that are due at the same time; set by the queue.
    pub(super) sequence: u64,
    /// Turn of its tenant; `None` before the job is due. Set by the queue.
    pub(super) turn: Option<Turn>,
}

impl Job {
    /// A job without cost that is due at once.
    pub(super) fn with_key(key: JobKey) -> Job {
        Job { key, due_ms: i64::MIN, cost_bytes: 0, retry_pause_ms: 0, sequence: 0, turn: None }
    }

    /// A job of `kind` for all tenants.
    pub(super) fn global(kind: JobKind, due_ms: i64) -> Job {
        Job { due_ms, ..Job::with_key(JobKey { kind, tenant: None, range: TimeRange::ALL }) }
    }

    /// A job of `kind` for one tenant.
    pub(super) fn of_tenant(kind: JobKind, store: StoreId, due_ms: i64, cost_bytes: u64) -> Job {
        let key = JobKey { kind, tenant: Some(store), range: TimeRange::ALL };
        Job { due_ms, cost_bytes, ..Job::with_key(key) }
    }
}

/// Result of one attempt to run a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The job is complete.
    Done,
    /// An operator, a pause or the shutdown ended the attempt: the job keeps its position in the queue.
    Interrupted,
    /// The disk lacks space: the job is retried after a pause. Not a failure.
    Postponed,
    /// The attempt failed with this error; the job is retried after a pause.
    Failed(String),
    /// The attempt failed with this error; the job is not retried.
    Abandoned(String),
}

impl Outcome {
    /// The outcome of work that is retried if it fails.
    pub(super) fn of(result: Result<(), impl Display>) -> Outcome {
        result.map_or_else(|error| Outcome::Failed(error.to_string()), |()| Outcome::Done)
    }
}

/// Runs jobs one after the other.
pub(super) fn run_each(batch: Vec<Job>, mut run: impl FnMut(&Job) -> Outcome) -> Vec<(Job, Outcome)> {
    let run_one = |job: Job| {
        let outcome = run(&job);
        (job, outcome)
    };
    batch.into_iter().map(run_one).collect()
}

/// Jobs that a search found.
pub(super) enum Found {
    /// Jobs to be added to the queue.
    Some(Vec<Job>),
    /// All jobs of the kind: others of the kind leave the queue.
    All(Vec<Job>),
}

/// Access of a running job to the storage.
pub(super) struct JobContext<'a> {
    pub(super) storage: &'a Storage,
    pub(super) control: &'a Control,
    pub(super) counters: &'a Counters,
    /// Wall time of the run.
    pub(super) now_ms: i64,
    added: RefCell<Vec<Job>>,
}

impl<'a> JobContext<'a> {
    pub(super) fn new(
        storage: &'a Storage,
        control: &'a Control,
        counters: &'a Counters,
        now_ms: i64,
    ) -> JobContext<'a> {
        JobContext { storage, control, counters, now_ms, added: RefCell::default() }
    }

    /// Adds a job to the queue when the current one has ended.
    pub(super) fn add(&self, job: Job) {
        self.added.borrow_mut().push(job);
    }

    /// Takes the added jobs.
    pub(super) fn take_added(&self) -> Vec<Job> {
        self.added.take()
    }
}

/// Work of one kind: finds its jobs and runs them.
pub(super) trait JobRunner {
    /// Searches for jobs. Called at the search interval of the kind.
    fn search(&mut self, cx: &JobContext<'_>) -> Found;

    /// Runs jobs of distinct tenants and returns each of them with its outcome.
    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)>;
}
