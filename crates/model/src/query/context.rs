//! Context of a read: limits, memory and threads that it may use, and warnings for its reader.
//!
//! Not here: the request (`request`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use chronolith_base::{Clock, MemoryBudget, SpareThreads, thread};

use super::error::QueryError;
use super::limits::{Exceeded, FetchCounts, FetchLimit};
use super::warnings::SourceWarnings;
use crate::FetchLimits;
use crate::min_offsets::ReadConsistency;

/// Context of a read: cancellation, deadline, memory budget, and the warnings of sources.
#[derive(Clone)]
pub struct ReadContext {
    canceled: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
    deadline_mono_ns: u64,
    shared: Arc<ReadState>,
    /// Threads that may help, and how many may work with the calling one included; `None` for none.
    helpers: Option<(Arc<SpareThreads>, usize)>,
    /// `None` = the read runs to its end.
    time_slice: Option<Arc<dyn TimeSlice>>,
    /// The calling thread may wait for requests to other machines.
    may_wait: bool,
    /// Deadline of sources, if it is before the deadline of the read.
    source_deadline_mono_ns: Option<u64>,
    limits: FetchLimits,
    /// `None` = the read waits for no record of the replicated log.
    consistency: Option<Arc<ReadConsistency>>,
    /// Memory of this query.
    pub budget: MemoryBudget,
}

/// Part of the time of a read that is left for the rest of its work after a source was given up, and its
/// longest.
const SOURCE_MARGIN_DIVISOR: u64 = 4;
const SOURCE_MARGIN_NS_MAX: u64 = 5_000_000_000;

/// Permit of a read that others get before its end if they wait for one: the read keeps it for a slice of
/// time, gives it to the next read, and goes on when it has one again.
pub trait TimeSlice: Send + Sync {
    /// Returns true if the read is to call [`TimeSlice::give_way`] soon. Cost while no other read waits for a
    /// permit: one atomic read.
    fn is_over(&self) -> bool;

    /// Gives the permit to a waiting read, and returns when the read of `ctx` has one again. Returns at once
    /// if no waiting read is to go first. Blocks the thread; the memory of the read stays reserved.
    ///
    /// # Errors
    /// As [`ReadContext::check`] while it waits; the read has no permit then.
    fn give_way(&self, ctx: &ReadContext) -> Result<(), QueryError>;
}

/// State of a read that all clones of its context share.
struct ReadState {
    /// Time of the next check for long work; `u64::MAX` = never.
    long_work_check_ns: AtomicU64,
    warnings: Mutex<SourceWarnings>,
    fetched: FetchCounts,
}

/// CPU time after which a read is long work, and its threads get a lower priority.
const LONG_WORK_CPU_NS: u64 = 10_000_000;

impl ReadContext {
    /// A context that ends at `deadline_mono_ns` of `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, deadline_mono_ns: u64, budget: MemoryBudget) -> ReadContext {
        let canceled = Arc::new(AtomicBool::new(false));
        let long_work_check_ns = AtomicU64::new(u64::MAX);
        let shared = Arc::new(ReadState {
            long_work_check_ns,
            warnings: Mutex::default(),
            fetched: FetchCounts::default(),
        });
        ReadContext {
            canceled,
            clock,
            deadline_mono_ns,
            shared,
            helpers: None,
            time_slice: None,
            may_wait: true,
            source_deadline_mono_ns: None,
            limits: FetchLimits::default(),
            consistency: None,
            budget,
        }
    }

    /// The same read with limits of what it reads from blocks in object storage.
    #[must_use]
    pub fn with_fetch_limits(self, limits: FetchLimits) -> ReadContext {
        ReadContext { limits, ..self }
    }

    /// The same read with records of the replicated log that it has to see.
    #[must_use]
    pub fn with_consistency(self, consistency: Option<Arc<ReadConsistency>>) -> ReadContext {
        ReadContext { consistency, ..self }
    }

    /// Records of the replicated log that the read has to see; `None` = it waits for none.
    #[must_use]
    pub fn consistency(&self) -> Option<&Arc<ReadConsistency>> {
        self.consistency.as_ref()
    }

    /// Adds the bytes or objects that the read is about to fetch from object storage to its count.
    ///
    /// # Errors
    /// [`QueryError::Limit`] if the count of the read is above its limit.
    pub fn add_fetched(&self, limit: FetchLimit, count: u64) -> Result<(), QueryError> {
        self.shared.fetched.add(&self.limits, limit, count).map_err(limit_error)
    }

    /// Returns true if the read has a limit of the kind `limit`.
    #[must_use]
    pub fn counts_fetched(&self, limit: FetchLimit) -> bool {
        limit.of(&self.limits) > 0
    }

    /// Checks the count of a part of the read, which is counted elsewhere.
    ///
    /// # Errors
    /// [`QueryError::Limit`] if it is above the limit of the whole read.
    pub fn check_fetched(&self, limit: FetchLimit, count: u64) -> Result<(), QueryError> {
        self.shared.fetched.check(&self.limits, limit, count).map_err(limit_error)
    }

    /// Returns true if the read failed because of `limit`.
    #[must_use]
    pub fn is_exceeded(&self, limit: FetchLimit) -> bool {
        self.shared.fetched.is_exceeded(limit)
    }

    /// The same read with time left for a result in part: a source that does not answer is given up some time
    /// before the deadline.
    #[must_use]
    pub fn with_source_deadline(&self) -> ReadContext {
        let left_ns = self.remaining_ns();
        let margin_ns = (left_ns / SOURCE_MARGIN_DIVISOR).min(SOURCE_MARGIN_NS_MAX);
        let source_deadline_mono_ns = match self.deadline_mono_ns {
            u64::MAX => u64::MAX,
            deadline_ns => deadline_ns.saturating_sub(margin_ns),
        };
        ReadContext { source_deadline_mono_ns: Some(source_deadline_mono_ns), ..self.clone() }
    }

    /// Returns true if sources have a deadline of their own, before the deadline of the read.
    #[must_use]
    pub fn has_source_deadline(&self) -> bool {
        self.source_deadline_mono_ns.is_some()
    }

    /// The same read, which pauses at [`ReadContext::yield_point`] when `slice` is over.
    #[must_use]
    pub fn with_time_slice(self, slice: Arc<dyn TimeSlice>) -> ReadContext {
        ReadContext { time_slice: Some(slice), ..self }
    }

    /// Returns true if [`ReadContext::yield_point`] pauses the read; threads that help it end their part
    /// then. Cost while no other read waits: one atomic read.
    #[must_use]
    pub fn is_slice_over(&self) -> bool {
        self.time_slice.as_ref().is_some_and(|slice| slice.is_over())
    }

    /// Lets other reads run first if they wait for a permit and the time slice of this one is over. Called by
    /// the thread of the read between two parts of its work, while no other thread helps it and the thread
    /// holds no lock that another read takes.
    ///
    /// # Errors
    /// As [`ReadContext::check`]; the read has no permit then.
    pub fn yield_point(&self) -> Result<(), QueryError> {
        match &self.time_slice {
            Some(slice) if slice.is_over() => slice.give_way(self),
            _ => Ok(()),
        }
    }

    /// The same read on a thread that must not wait for requests to other machines.
    #[must_use]
    pub fn without_waiting(self) -> ReadContext {
        ReadContext { may_wait: false, ..self }
    }

    /// Marks the start of a wait: a source calls it before it waits for requests to other machines.
    ///
    /// # Errors
    /// [`QueryError::Timeout`] if the thread must not wait: the read has to start again on another one.
    pub fn begin_wait(&self) -> Result<(), QueryError> {
        if self.may_wait { Ok(()) } else { Err(QueryError::Timeout) }
    }

    /// Begins work that lowers the priority of its threads once it is long. Called on the thread that does
    /// the work; if its priority was lowered, the thread should end with the work.
    pub fn begin_long_work(&self) {
        thread::begin_work();
        self.shared.long_work_check_ns.store(self.clock.mono_ns() + LONG_WORK_CPU_NS, Ordering::Relaxed);
    }

    /// The same read with threads of `spare` to help, `thread_max` at most with the calling one.
    #[must_use]
    pub fn with_spare_threads(&self, spare: Arc<SpareThreads>, thread_max: usize) -> ReadContext {
        ReadContext { helpers: Some((spare, thread_max)), ..self.clone() }
    }

    /// Runs `work` on the calling thread and on at most `helper_max` spare ones. Returns the results, the
    /// calling thread's first.
    pub fn run_in_parallel<T: Send>(&self, helper_max: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        match &self.helpers {
            Some((spare, thread_max)) => spare.run(helper_max.saturating_add(1).min(*thread_max), work),
            None => vec![work()],
        }
    }

    /// No deadline, no limit: tools and tests.
    #[must_use]
    pub fn unlimited(clock: Arc<dyn Clock>) -> ReadContext {
        ReadContext::new(clock, u64::MAX, MemoryBudget::new("query", u64::MAX))
    }

    /// Cancels the query at its next check.
    pub fn cancel(&self) {
        self.canceled.store(true, Ordering::Relaxed);
    }

    /// The flag that [`ReadContext::cancel`] sets, for the task that watches the client.
    #[must_use]
    pub fn cancel_flag(&self) -> Arc<AtomicBool> {
        self.canceled.clone()
    }

    /// Checks deadline and cancellation. Called at least once per series and once per few thousand samples.
    ///
    /// # Errors
    /// [`QueryError::Canceled`] or [`QueryError::Timeout`].
    pub fn check(&self) -> Result<(), QueryError> {
        if self.canceled.load(Ordering::Relaxed) {
            return Err(QueryError::Canceled);
        }
        if self.deadline_mono_ns == u64::MAX {
            return Ok(());
        }
        let now_ns = self.clock.mono_ns();
        if now_ns > self.deadline_mono_ns {
            return Err(QueryError::Timeout);
        }
        if now_ns > self.shared.long_work_check_ns.load(Ordering::Relaxed) {
            self.lower_priority(now_ns);
        }
        Ok(())
    }

    /// Time that is left; `u64::MAX` without a deadline.
    #[must_use]
    pub fn remaining_ns(&self) -> u64 {
        self.ns_until(self.deadline_mono_ns)
    }

    /// Time that is left for a source, which passes it on; `u64::MAX` without a deadline.
    #[must_use]
    pub fn source_remaining_ns(&self) -> u64 {
        self.ns_until(self.source_deadline_mono_ns.unwrap_or(self.deadline_mono_ns))
    }

    fn ns_until(&self, deadline_mono_ns: u64) -> u64 {
        match deadline_mono_ns {
            u64::MAX => u64::MAX,
            deadline_ns => deadline_ns.saturating_sub(self.clock.mono_ns()),
        }
    }

    /// As [`ReadContext::check`] for a thread that waits for a source.
    ///
    /// # Errors
    /// [`QueryError::Canceled`]; [`QueryError::Timeout`] also if the time of sources has ended.
    pub fn check_source(&self) -> Result<(), QueryError> {
        self.check()?;
        if self.source_remaining_ns() == 0 { Err(QueryError::Timeout) } else { Ok(()) }
    }

    /// Adds a warning for the reader of the result.
    pub fn warn(&self, text: String) {
        self.with_warnings(|warnings| warnings.add(text));
    }

    /// Notes that a part of the source failed, and that its series or samples are missing in the result. Of
    /// several failures of a part, the first one is in the warnings.
    ///
    /// # Errors
    /// `error` if more parts failed than the warnings can name.
    pub fn warn_partial(&self, part: &str, error: QueryError) -> Result<(), QueryError> {
        let is_named = self.with_warnings(|warnings| {
            warnings.add_failure(part, || format!("partial result: {part} failed: {error}"))
        });
        if is_named { Ok(()) } else { Err(error) }
    }

    /// Warnings so far.
    #[must_use]
    pub fn warnings(&self) -> SourceWarnings {
        self.with_warnings(|warnings| warnings.clone())
    }

    fn with_warnings<T>(&self, apply: impl FnOnce(&mut SourceWarnings) -> T) -> T {
        apply(&mut self.shared.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lowers the priority of this thread if its work is long, and otherwise schedules the next check.
    #[cold]
    fn lower_priority(&self, now_ns: u64) {
        if let Some(left_ns) = thread::lower_priority_of_long_work(LONG_WORK_CPU_NS) {
            self.shared.long_work_check_ns.fetch_max(now_ns + left_ns, Ordering::Relaxed);
        }
    }
}

fn limit_error(exceeded: Exceeded) -> QueryError {
    QueryError::Limit { what: exceeded.what, limit: exceeded.max }
}
