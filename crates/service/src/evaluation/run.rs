//! Execution of calls: a permit, a deadline and a memory budget, then a thread of the pool; small queries
//! begin on the async worker that read them (ADR 0040).
//!
//! Invariants: work stops when its caller leaves, when its time is over or when its memory is used up; a
//! panic ends the call, not the process.
//! Not here: what runs; the list of running queries (`running`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::MemoryBudget;
use chronolith_model::query::FetchLimit;
use chronolith_model::{QueryLimits, ReadContext, TenantId};

use super::call_context::CallContext;
use crate::access::Identity;
use crate::admission::small::Candidate;
use crate::admission::{Caller, Class, Permit, SlicedPermit, TenantBudget};
use crate::limits::{SMALL_QUERY_SLICE_NS, STATUS_QUEUE_WAIT};
use crate::refusal::Refusal;
use crate::service::Service;

/// End of a call without an answer, for counters and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The caller left, or the query was killed.
    Canceled,
    /// The deadline has passed.
    Timeout,
    /// The text is no query.
    Invalid,
    /// Any other failure.
    Failed,
}

/// An error of a protocol.
pub trait CallError: From<Refusal> + Send + 'static {
    /// Kind of the end.
    fn end(&self) -> End;

    /// Text for the client.
    fn text(&self) -> &str;
}

/// Cancels a read when it is dropped, unless the read has ended: the caller has left.
pub struct CancelOnDrop {
    canceled: Arc<AtomicBool>,
    armed: bool,
}

impl CancelOnDrop {
    /// Stops the reads of `ctx` when it is dropped.
    pub fn of(ctx: &ReadContext) -> CancelOnDrop {
        CancelOnDrop { canceled: ctx.cancel_flag(), armed: true }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.canceled.store(true, Ordering::Relaxed);
        }
    }
}

/// Context and permit of a running query.
pub struct Admitted {
    ctx: CallContext,
    deadline_ns: u64,
    limits: QueryLimits,
    _memory: Arc<TenantBudget>,
    /// Last, so that the memory is free when the next query gets the permit.
    permit: PermitOfCall,
}

/// Permit of a call, given back with it: clones of its context may live longer.
struct PermitOfCall(Arc<SlicedPermit>);

impl Drop for PermitOfCall {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Admitted {
    /// Deadline, memory and cancellation of the query.
    pub fn ctx(&self) -> &CallContext {
        &self.ctx
    }

    /// Gives the permit back; what follows needs no core for long.
    pub fn release_permit(&mut self) {
        self.permit.0.release();
    }
}

/// Returns the deadline of a call that begins now, by the monotonic clock in ns.
fn deadline_ns(service: &Service, timeout_ms: u64) -> u64 {
    service.env.clock.mono_ns().saturating_add(timeout_ms.saturating_mul(1_000_000))
}

impl Service {
    /// Waits for a permit of `class`. `timeout_ms` counts the wait too.
    ///
    /// # Errors
    /// Without a store to read, and if the queue is full or the time is over.
    pub async fn admit(
        &self,
        class: &Class,
        identity: &Identity,
        timeout_ms: u64,
    ) -> Result<Admitted, Refusal> {
        self.lifecycle.source()?;
        self.admit_without_source(class, identity, timeout_ms).await
    }

    /// As [`Service::admit`], for work that reads no series.
    ///
    /// # Errors
    /// If the queue is full or the time is over.
    pub async fn admit_without_source(
        &self,
        class: &Class,
        identity: &Identity,
        timeout_ms: u64,
    ) -> Result<Admitted, Refusal> {
        let limits = identity.query_limits(|tenant| self.limits_of(tenant).queries);
        let deadline_ns = deadline_ns(self, timeout_ms);
        let timeout = Duration::from_millis(timeout_ms);
        let permit = class.acquire(identity, limits.concurrency_max, timeout).await?;
        let memory = self.admission.memory_of(class).of(identity.tenant(), limits.memory_bytes_max);
        Ok(self.admitted(identity, limits, deadline_ns, permit, memory))
    }

    /// As [`Service::admit`] on any thread, for work that can be done later: `None` if no permit of `class`
    /// is free.
    pub fn try_admit(&self, class: &Class, identity: &Identity, timeout_ms: u64) -> Option<Admitted> {
        let limits = identity.query_limits(|tenant| self.limits_of(tenant).queries);
        let permit = class.try_acquire(identity.tenant(), limits.concurrency_max)?;
        let memory = self.admission.memory_of(class).of(identity.tenant(), limits.memory_bytes_max);
        Some(self.admitted(identity, limits, deadline_ns(self, timeout_ms), permit, memory))
    }

    fn admitted(
        &self,
        identity: &Identity,
        limits: QueryLimits,
        deadline_ns: u64,
        permit: Permit,
        memory: Arc<TenantBudget>,
    ) -> Admitted {
        let budget = memory.budget.child("query", self.options.query.memory_bytes_max);
        let caller = Caller::from(identity);
        let permit = Arc::new(SlicedPermit::new(permit, caller, self.admission.weights.of(caller.tenant)));
        let mut read = self.read_context(limits, deadline_ns, budget);
        read = read.with_consistency(identity.consistency().cloned());
        if permit.is_sliced() {
            read = read.with_time_slice(permit.clone());
        }
        let ctx = self.call_context(read, limits);
        Admitted { ctx, deadline_ns, limits, _memory: memory, permit: PermitOfCall(permit) }
    }

    /// The context of a read of a tenant with `limits`.
    fn read_context(&self, limits: QueryLimits, deadline_ns: u64, budget: MemoryBudget) -> ReadContext {
        ReadContext::new(self.env.clock.clone(), deadline_ns, budget).with_fetch_limits(limits.fetch)
    }

    /// The context of a call of a tenant with `limits`.
    fn call_context(&self, read: ReadContext, limits: QueryLimits) -> CallContext {
        let lookback_ms = Some(limits.lookback_ms).filter(|lookback_ms| *lookback_ms > 0);
        let now_ms = self.env.clock.now_ms();
        CallContext::new(read, lookback_ms.map(|lookback_ms| now_ms.saturating_sub(lookback_ms)))
            .with_limits(limits.selection, now_ms)
    }

    /// Runs `work` on a thread for queries, once there is a permit of `class`. `timeout_ms` counts the wait
    /// too.
    ///
    /// # Errors
    /// Errors of [`Service::admit`] and of `work`, and [`Refusal::Panicked`].
    pub async fn run<T: Send + 'static, E: CallError>(
        self: &Arc<Self>,
        class: &Class,
        identity: &Identity,
        timeout_ms: u64,
        work: impl FnOnce(&CallContext) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let admitted = self.admit(class, identity, timeout_ms).await?;
        self.run_aside(admitted, work).await
    }

    /// As [`Service::run`] with a permit for queries, but `work` begins on this thread if `candidate` says
    /// that it may be small. It is restarted on a thread of the pool if it is not, so it must have no side
    /// effects before it ends.
    ///
    /// # Errors
    /// As [`Service::run`].
    // PERF: 1000 small instant queries of 100 000 series, a connection each: 8 -> 1 switches of threads a
    // query; with short postings read alone (`head::tables::lookup`) 236 -> 125 ms, 190 -> 80 ms of CPU.
    //   cargo xtask bench queries --only chronolith --long-series 0 --value-series 0 --shapes instant_rules
    pub async fn run_small_first<T: Send + 'static, E: CallError>(
        self: &Arc<Self>,
        identity: &Identity,
        timeout_ms: u64,
        candidate: Option<Candidate>,
        work: impl Fn(&CallContext) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let admitted = self.admit(&self.admission.query, identity, timeout_ms).await?;
        let Some(candidate) = candidate else { return self.run_aside(admitted, work).await };
        if let Some(result) = self.attempt(&admitted, candidate, &work) {
            return result;
        }
        let shared = self.clone();
        let timed = move |ctx: &CallContext| {
            let clock = &shared.env.clock;
            let start_ns = clock.mono_ns();
            let result = work(ctx);
            if clock.mono_ns().saturating_sub(start_ns) < SMALL_QUERY_SLICE_NS / 2 {
                shared.queries.small.shrank(candidate);
            }
            result
        };
        self.run_aside(admitted, timed).await
    }

    /// Runs `work` here; `None` if it is not small, or if this thread is needed for others.
    fn attempt<T, E: CallError>(
        &self,
        admitted: &Admitted,
        candidate: Candidate,
        work: &impl Fn(&CallContext) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let thread_count = tokio::runtime::Handle::current().metrics().num_workers();
        let _here = self.queries.small.enter(candidate, thread_count)?;
        let slice_end_ns = self.env.clock.mono_ns().saturating_add(SMALL_QUERY_SLICE_NS);
        let ends_here = admitted.deadline_ns <= slice_end_ns;
        let slice_end_ns = slice_end_ns.min(admitted.deadline_ns);
        // A source in a bucket waits for requests, which no async worker may do.
        let ctx = read_again(self, admitted, slice_end_ns).without_waiting();
        let ctx = self.call_context(ctx, admitted.limits);
        // As a thread of its own would catch it.
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&ctx)));
        let Ok(result) = ran else { return Some(Err(panicked(&"see the message of the panic").into())) };
        if !ends_here && result.as_ref().is_err_and(|error| error.end() == End::Timeout) {
            self.queries.small.outgrew(candidate);
            return None;
        }
        self.count_end(&ctx, result.as_ref().err().map(CallError::end));
        Some(result)
    }

    /// Runs `work` on a thread of the pool, once there is a permit of `class`. It is not cut short when its
    /// caller leaves, and keeps the permit until its end.
    ///
    /// # Errors
    /// If there is no permit within `wait_max`, and [`Refusal::Panicked`].
    pub async fn run_to_end<T: Send + 'static>(
        self: &Arc<Self>,
        class: &Class,
        caller: impl Into<Caller<'_>>,
        wait_max: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let permit = class.acquire(caller, 0, wait_max).await?;
        let done = self.threads.run(move || {
            let _permit = permit;
            work()
        });
        done.await.map_err(|error| {
            tracing::error!(%error, class = class.name, "request panicked");
            Refusal::Panicked("request")
        })
    }

    /// Runs `work`, which reads what the server knows of itself: see [`Service::run_to_end`].
    ///
    /// # Errors
    /// As [`Service::run_to_end`].
    pub async fn run_status<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.run_to_end(&self.admission.status, &TenantId::anonymous(), STATUS_QUEUE_WAIT, work).await
    }

    async fn run_aside<T: Send + 'static, E: CallError>(
        self: &Arc<Self>,
        admitted: Admitted,
        work: impl FnOnce(&CallContext) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let mut guard = CancelOnDrop::of(&admitted.ctx);
        let shared = self.clone();
        let done = self.threads.run(move || {
            // The whole value is moved, or the closure takes the context alone and a caller that leaves frees
            // the permit of work that goes on.
            let admitted = admitted;
            admitted.ctx.begin_long_work();
            let result = work(&admitted.ctx);
            shared.count_end(&admitted.ctx, result.as_ref().err().map(CallError::end));
            result
        });
        let result = done.await;
        guard.armed = false;
        result.unwrap_or_else(|error| Err(panicked(&error).into()))
    }

    /// Counts a call that has ended, by its end; `None` = it has an answer.
    pub fn count_end(&self, ctx: &CallContext, end: Option<End>) {
        let query = &self.queries.metrics;
        query.moved_starts.add(u64::from(ctx.is_start_moved()));
        for limit in FetchLimit::ALL {
            query.fetch_limits[limit as usize].add(u64::from(end.is_some() && ctx.is_exceeded(limit)));
        }
        match end {
            None => {}
            Some(End::Canceled) => query.canceled.add(1),
            Some(End::Timeout) => query.timed_out.add(1),
            Some(End::Invalid | End::Failed) => query.failed.add(1),
        }
    }
}

/// The context of a further read of a call, which can be canceled alone and ends at `deadline_ns`.
fn read_again(service: &Service, admitted: &Admitted, deadline_ns: u64) -> ReadContext {
    let read = service.read_context(admitted.limits, deadline_ns, admitted.ctx.budget.clone());
    read.with_consistency(admitted.ctx.consistency().cloned())
}

/// The context of a further query under the permit, the deadline and the memory of a call, which can be
/// canceled alone.
#[must_use]
pub fn further_query(service: &Service, admitted: &Admitted) -> CallContext {
    let read = read_again(service, admitted, admitted.deadline_ns);
    service.call_context(read, admitted.limits)
}

/// As [`further_query`], for a call that runs longer than a query may: the query has `timeout_ms`, and what
/// it selects counts from 0.
#[must_use]
pub fn further_query_within(service: &Service, admitted: &Admitted, timeout_ms: u64) -> CallContext {
    let deadline_ns = deadline_ns(service, timeout_ms).min(admitted.deadline_ns);
    let read = read_again(service, admitted, deadline_ns);
    service.call_context(read, admitted.limits)
}

#[cold]
fn panicked(error: &dyn std::fmt::Display) -> Refusal {
    tracing::error!(%error, "query panicked");
    Refusal::Panicked("query")
}

#[cfg(test)]
mod tests;
