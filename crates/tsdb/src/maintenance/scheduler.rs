//! Priority queues of maintenance jobs, one per kind, with due times, retries and a budget per run.
//!
//! Invariants: the next job is chosen in O(kinds x log jobs), never by a pass over tenants; a key is queued
//! at most once; jobs of an earlier kind run first, due jobs of one kind in turn over tenants
//! (`tenant_turns`), jobs of one tenant by due time and then in order of insertion. A run starts no further
//! job of a kind if its estimated cost would exceed the kind's budget, one job per run aside. A job that
//! fails waits twice as long each time and holds up no other job, unless its kind backs off as a whole.
//! Not here: clocks, locks, owners of stores and the work itself.

mod tenant_turns;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use chronolith_base::hash::HashMap;
use chronolith_model::{StoreId, TenantId};

use self::tenant_turns::TenantTurns;
use super::job::{Found, Job, JobKey, Outcome, Position};
use super::job_kind::JobKind;

/// Pause before the first retry; each further one doubles it.
const RETRY_PAUSE_MIN_MS: i64 = 10_000;
/// Longest pause before a retry.
const RETRY_PAUSE_MAX_MS: i64 = 3_600_000;
/// Jobs at the front of a queue among which a batch of distinct tenants is chosen.
const BATCH_SCAN_MAX: usize = 256;

/// Intervals and limits of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KindRules {
    /// Time between two searches for jobs; `None` if other jobs add the jobs of this kind.
    pub(super) search_interval_ms: Option<i64>,
    /// The first search comes with the first run, else one interval later.
    pub(super) is_searched_at_start: bool,
    /// Limits of jobs that run together.
    pub(super) batch: Limit,
    /// Limits of one run.
    pub(super) run: Limit,
    /// Time after which a run starts no further job of the kind.
    pub(super) run_ns_max: u64,
    pub(super) retry_pause_max_ms: i64,
    /// A failure delays all jobs of the kind, as they need the same resource.
    pub(super) backs_off_as_kind: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) jobs_max: usize,
    /// Sum of estimated costs.
    pub(super) bytes_max: u64,
}

impl Limit {
    const NONE: Limit = Limit { jobs_max: usize::MAX, bytes_max: u64::MAX };
    const ONE_JOB: Limit = Limit { jobs_max: 1, bytes_max: u64::MAX };

    /// Returns true if a job of `cost_bytes` is within the limit after `jobs` jobs of `bytes` in all.
    fn allows(&self, jobs: usize, bytes: u64, cost_bytes: u64) -> bool {
        jobs == 0 || (jobs < self.jobs_max && bytes.saturating_add(cost_bytes) <= self.bytes_max)
    }
}

impl KindRules {
    /// Rules of `kind`. Idle series are searched every `idle_search_ms`.
    pub(super) fn of(kind: JobKind, idle_search_ms: Option<i64>) -> KindRules {
        let every = |interval_ms| KindRules {
            search_interval_ms: Some(interval_ms),
            is_searched_at_start: true,
            batch: Limit::ONE_JOB,
            run: Limit::NONE,
            run_ns_max: u64::MAX,
            retry_pause_max_ms: RETRY_PAUSE_MAX_MS,
            backs_off_as_kind: false,
        };
        let rewriting = KindRules {
            run: Limit { jobs_max: 64, bytes_max: 1 << 20 },
            run_ns_max: 250_000_000,
            backs_off_as_kind: true,
            ..every(10_000)
        };
        match kind {
            // Files of one batch are synced together: 256 open files.
            JobKind::Flush => {
                KindRules { batch: Limit { jobs_max: 64, bytes_max: 16 << 20 }, ..every(10_000) }
            }
            JobKind::IdleFlush => KindRules {
                search_interval_ms: idle_search_ms,
                is_searched_at_start: false,
                ..every(RETRY_PAUSE_MAX_MS)
            },
            JobKind::Checkpoint => KindRules { retry_pause_max_ms: RETRY_PAUSE_MIN_MS, ..every(10_000) },
            JobKind::Retention | JobKind::LocalRetention | JobKind::Metadata => every(60_000),
            JobKind::StoreRemoval => every(1000),
            JobKind::BlockRemoval => KindRules { retry_pause_max_ms: 60_000, ..every(60_000) },
            JobKind::Compaction | JobKind::Rollup => rewriting,
            JobKind::Deletion => KindRules { search_interval_ms: None, ..rewriting },
            JobKind::TenantCleanup => every(10_000),
            JobKind::Scrub => KindRules { run: Limit::ONE_JOB, ..every(0) },
        }
    }
}

/// Next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Search for jobs of a kind.
    Search(JobKind),
    /// Run jobs of one kind and distinct tenants.
    Run(JobKind, Vec<Job>),
}

/// Jobs of one kind.
struct KindQueue {
    rules: KindRules,
    jobs: BTreeMap<Position, Job>,
    positions: HashMap<JobKey, Position>,
    /// Order of the jobs that are due at `due_until_ms`.
    turns: TenantTurns,
    due_until_ms: i64,
    cost_bytes: u64,
    /// `None` before the first run.
    search_at_ms: Option<i64>,
    /// All jobs of the kind wait until then.
    back_off_until_ms: i64,
    back_off_pause_ms: i64,
    run: RunState,
}

/// Use of a kind's budget in the current run.
#[derive(Default)]
struct RunState {
    is_searched: bool,
    is_over: bool,
    jobs: usize,
    bytes: u64,
    busy_ns: u64,
}

/// State of the queue of one kind, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueStats {
    pub(super) job_count: usize,
    pub(super) cost_bytes: u64,
    pub(super) first_due_ms: Option<i64>,
}

impl KindQueue {
    fn new(rules: KindRules) -> KindQueue {
        KindQueue {
            rules,
            jobs: BTreeMap::new(),
            positions: HashMap::default(),
            turns: TenantTurns::default(),
            due_until_ms: i64::MIN,
            cost_bytes: 0,
            search_at_ms: None,
            back_off_until_ms: i64::MIN,
            back_off_pause_ms: 0,
            run: RunState::default(),
        }
    }

    fn start_run(&mut self, now_ms: i64) {
        self.run = RunState::default();
        if self.search_at_ms.is_none() {
            let interval_ms = self.rules.search_interval_ms.unwrap_or(0);
            let wait_ms = if self.rules.is_searched_at_start { 0 } else { interval_ms };
            self.search_at_ms = Some(now_ms.saturating_add(wait_ms));
        }
    }

    /// Moves all times by `by_ms` after the wall clock was set back.
    fn shift(&mut self, by_ms: i64) {
        self.search_at_ms = self.search_at_ms.map(|at_ms| at_ms.saturating_add(by_ms));
        self.back_off_until_ms = self.back_off_until_ms.saturating_add(by_ms);
        self.due_until_ms = self.due_until_ms.saturating_add(by_ms);
        self.turns.shift(by_ms);
        for (position, mut job) in std::mem::take(&mut self.jobs) {
            job.due_ms = job.due_ms.saturating_add(by_ms);
            let shifted = (job.due_ms, position.1);
            self.positions.insert(job.key.clone(), shifted);
            self.jobs.insert(shifted, job);
        }
    }

    /// Returns true, once per run, if a search is due; the next one is due an interval later.
    fn start_search(&mut self, now_ms: i64) -> bool {
        let Some(interval_ms) = self.rules.search_interval_ms else { return false };
        if self.run.is_searched || self.search_at_ms.is_some_and(|at_ms| now_ms < at_ms) {
            return false;
        }
        self.run.is_searched = true;
        self.search_at_ms = Some(now_ms.saturating_add(interval_ms));
        true
    }

    /// Adds a job; one with a turn keeps it.
    fn insert(&mut self, mut job: Job, sequence: u64, owners: &Owners) {
        job.sequence = sequence;
        let position = (job.due_ms, sequence);
        match &job.turn {
            Some(turn) => self.turns.add_again(turn, position),
            None if job.due_ms <= self.due_until_ms => {
                job.turn = Some(self.turns.add(owners.group_of(&job.key), position));
            }
            None => {}
        }
        self.cost_bytes = self.cost_bytes.saturating_add(job.cost_bytes);
        self.positions.insert(job.key.clone(), position);
        self.jobs.insert(position, job);
    }

    fn remove(&mut self, key: &JobKey) -> Option<(Position, Job)> {
        let position = self.positions.remove(key)?;
        let job = self.jobs.remove(&position);
        assert!(job.as_ref().is_some_and(|job| job.key == *key), "the position of a key is that of its job");
        let job = job?;
        if let Some(turn) = &job.turn {
            self.turns.remove(turn, position);
        }
        self.cost_bytes = self.cost_bytes.saturating_sub(job.cost_bytes);
        Some((position, job))
    }

    /// Gives turns to the jobs that have become due, or takes them from jobs that are not due at an earlier
    /// time than the last one. Cost: O(log jobs) for each of these jobs.
    fn update_due(&mut self, now_ms: i64, owners: &Owners) {
        let between = |from_ms: i64, until_ms: i64| {
            (Bound::Excluded((from_ms, u64::MAX)), Bound::Included((until_ms, u64::MAX)))
        };
        if now_ms > self.due_until_ms {
            for (position, job) in self.jobs.range_mut(between(self.due_until_ms, now_ms)) {
                job.turn = Some(self.turns.add(owners.group_of(&job.key), *position));
            }
        } else if now_ms < self.due_until_ms {
            for (position, job) in self.jobs.range_mut(between(now_ms, self.due_until_ms)) {
                if let Some(turn) = job.turn.take() {
                    self.turns.remove(&turn, *position);
                }
            }
        }
        self.due_until_ms = now_ms;
    }

    /// Takes due jobs of distinct stores within the limits of a batch and a run.
    fn take_batch(&mut self, now_ms: i64, owners: &Owners) -> Vec<Job> {
        self.update_due(now_ms, owners);
        let run = &self.run;
        if run.is_over || run.busy_ns > self.rules.run_ns_max || now_ms < self.back_off_until_ms {
            return Vec::new();
        }
        let (mut keys, mut bytes) = (Vec::new(), 0u64);
        let mut tenants: BTreeSet<&Option<StoreId>> = BTreeSet::new();
        for position in self.turns.positions().take(BATCH_SCAN_MAX) {
            let job = &self.jobs[&position];
            let is_within = self.rules.batch.allows(keys.len(), bytes, job.cost_bytes)
                && self.rules.run.allows(
                    run.jobs + keys.len(),
                    run.bytes.saturating_add(bytes),
                    job.cost_bytes,
                );
            if !is_within {
                break;
            }
            if tenants.insert(&job.key.tenant) {
                keys.push(job.key.clone());
                bytes = bytes.saturating_add(job.cost_bytes);
            }
        }
        let first = keys.first().and_then(|key| self.jobs[&self.positions[key]].turn.as_ref());
        if let Some(turn) = first {
            self.turns.advance(turn);
        }
        let batch: Vec<Job> = keys.iter().filter_map(|key| self.remove(key)).map(|(_, job)| job).collect();
        self.run.jobs += batch.len();
        self.run.bytes = self.run.bytes.saturating_add(bytes);
        batch
    }
}

/// Tenant of a numbered store; `None` if the store was dropped.
pub(super) type OwnerOf = Box<dyn Fn(&StoreId) -> Option<TenantId> + Send>;

/// Tenants of stores.
struct Owners(OwnerOf);

impl Owners {
    /// Returns the default store of the tenant of a job; a store without a tenant is one of its own.
    fn group_of(&self, key: &JobKey) -> Option<StoreId> {
        let store = key.tenant.as_ref()?;
        let owner = if store.is_default() { None } else { (self.0)(store) };
        Some(owner.map_or_else(|| store.clone(), StoreId::from))
    }
}

/// Queues of all kinds.
pub(super) struct Scheduler {
    kinds: [KindQueue; JobKind::COUNT],
    owners: Owners,
    next_sequence: u64,
    /// Wall time of the last run.
    last_run_ms: i64,
}

impl Scheduler {
    pub(super) fn new(rules: impl Fn(JobKind) -> KindRules, owner_of: OwnerOf) -> Scheduler {
        let kinds = JobKind::ALL.map(|kind| KindQueue::new(rules(kind)));
        Scheduler { kinds, owners: Owners(owner_of), next_sequence: 1, last_run_ms: i64::MIN }
    }

    /// Starts a run with fresh budgets. Cost: O(kinds), or O(jobs) if the wall clock was set back.
    pub(super) fn start_run(&mut self, now_ms: i64) {
        if now_ms < self.last_run_ms {
            let by_ms = now_ms.saturating_sub(self.last_run_ms);
            self.kinds.iter_mut().for_each(|kind| kind.shift(by_ms));
        }
        self.last_run_ms = now_ms;
        self.kinds.iter_mut().for_each(|kind| kind.start_run(now_ms));
    }

    /// Gives `kind` a fresh budget within a run.
    pub(super) fn reset_run(&mut self, kind: JobKind) {
        self.queue(kind).run = RunState::default();
    }

    /// Returns the next search or batch of a kind that is not paused; `None` if nothing is due within the
    /// budgets.
    pub(super) fn next(&mut self, now_ms: i64, is_paused: impl Fn(JobKind) -> bool) -> Option<Task> {
        for kind in JobKind::ALL.into_iter().filter(|kind| !is_paused(*kind)) {
            if self.queue(kind).start_search(now_ms) {
                return Some(Task::Search(kind));
            }
            let batch = self.take_batch(kind, now_ms);
            if !batch.is_empty() {
                return Some(Task::Run(kind, batch));
            }
        }
        None
    }

    /// Takes the next due jobs of `kind` that may run together.
    pub(super) fn take_batch(&mut self, kind: JobKind, now_ms: i64) -> Vec<Job> {
        self.kinds[kind as usize].take_batch(now_ms, &self.owners)
    }

    /// Adds a job; one with the same key keeps its due time, its pause and its turn.
    pub(super) fn add(&mut self, mut job: Job) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let queue = &mut self.kinds[job.key.kind as usize];
        match queue.remove(&job.key) {
            Some((position, queued)) => {
                job.due_ms = queued.due_ms;
                job.retry_pause_ms = queued.retry_pause_ms;
                job.turn = queued.turn;
                queue.insert(job, position.1, &self.owners);
            }
            None => queue.insert(job, sequence, &self.owners),
        }
    }

    /// Adds the jobs that a search of `kind` found.
    pub(super) fn add_found(&mut self, kind: JobKind, found: Found) {
        let jobs = match found {
            Found::Some(jobs) => jobs,
            Found::All(jobs) => {
                let keys: BTreeSet<&JobKey> = jobs.iter().map(|job| &job.key).collect();
                let queue = self.queue(kind);
                let gone: Vec<JobKey> =
                    queue.positions.keys().filter(|key| !keys.contains(key)).cloned().collect();
                gone.iter().for_each(|key| drop(queue.remove(key)));
                jobs
            }
        };
        jobs.into_iter().for_each(|job| self.add(job));
    }

    /// Removes all jobs of `kind`.
    pub(super) fn clear(&mut self, kind: JobKind) {
        self.add_found(kind, Found::All(Vec::new()));
    }

    /// Requeues a job that ended without success. Returns the pause before its retry.
    pub(super) fn finish(&mut self, mut job: Job, outcome: &Outcome, now_ms: i64) -> Option<i64> {
        let next_sequence = self.next_sequence;
        self.next_sequence += 1;
        let queue = &mut self.kinds[job.key.kind as usize];
        let pause_max_ms = queue.rules.retry_pause_max_ms;
        let doubled = |pause_ms: i64| pause_ms.saturating_mul(2).clamp(RETRY_PAUSE_MIN_MS, pause_max_ms);
        match outcome {
            Outcome::Done => {
                queue.back_off_pause_ms = 0;
                None
            }
            Outcome::Abandoned(_) => None,
            Outcome::Interrupted => {
                queue.run.is_over = true;
                let sequence = job.sequence;
                queue.insert(job, sequence, &self.owners);
                None
            }
            Outcome::Postponed | Outcome::Failed(_) if queue.rules.backs_off_as_kind => {
                let pause_ms = doubled(queue.back_off_pause_ms);
                queue.back_off_pause_ms = pause_ms;
                queue.back_off_until_ms = now_ms.saturating_add(pause_ms);
                job.due_ms = now_ms;
                job.turn = None;
                queue.insert(job, next_sequence, &self.owners);
                Some(pause_ms)
            }
            Outcome::Postponed | Outcome::Failed(_) => {
                let pause_ms = doubled(job.retry_pause_ms);
                job.retry_pause_ms = pause_ms;
                job.due_ms = now_ms.saturating_add(pause_ms);
                job.turn = None;
                queue.insert(job, next_sequence, &self.owners);
                Some(pause_ms)
            }
        }
    }

    /// Counts time of searches and jobs of `kind` in the current run.
    pub(super) fn add_busy(&mut self, kind: JobKind, elapsed_ns: u64) {
        let run = &mut self.queue(kind).run;
        run.busy_ns = run.busy_ns.saturating_add(elapsed_ns);
    }

    pub(super) fn stats(&self, kind: JobKind) -> QueueStats {
        let queue = &self.kinds[kind as usize];
        QueueStats {
            job_count: queue.jobs.len(),
            cost_bytes: queue.cost_bytes,
            first_due_ms: queue.jobs.keys().next().map(|position| position.0),
        }
    }

    fn queue(&mut self, kind: JobKind) -> &mut KindQueue {
        &mut self.kinds[kind as usize]
    }
}

#[cfg(test)]
mod tests;
