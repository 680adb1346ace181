//! Admission and execution of requests: a permit, a deadline and a memory budget, then a thread of the pool;
//! small queries begin on the async worker that read them (ADR 0040).
//! Invariants: work stops when its client leaves, when its time is over or when its memory is used up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::MemoryBudget;
use chronolith_model::query::FetchLimit;
use chronolith_model::{QueryLimits, ReadContext, TenantId};
use chronolith_service::admission::small::Candidate;
use chronolith_service::admission::{Class, Permit, TenantBudget};
use chronolith_service::limits::{SMALL_QUERY_SLICE_NS, STATUS_QUEUE_WAIT};

use super::error::{ApiError, ErrorKind};
use crate::app::App;

/// Sets its flag unless disarmed: the client has left.
pub(super) struct CancelOnDrop {
    canceled: Arc<AtomicBool>,
    armed: bool,
}

impl CancelOnDrop {
    /// Stops the reads of `ctx` when it is dropped.
    pub(super) fn of(ctx: &ReadContext) -> CancelOnDrop {
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

/// Read context and permit of a running query.
pub(super) struct Admitted {
    pub(super) ctx: ReadContext,
    deadline_ns: u64,
    limits: QueryLimits,
    _memory: Arc<TenantBudget>,
    permit: Option<Permit>,
}

impl Admitted {
    /// Gives the permit back; what follows needs no core for long.
    pub(super) fn release_permit(&mut self) {
        self.permit = None;
    }
}

/// Refuses a result of which a source has returned a part only, for answers that have no room for warnings.
pub(super) fn refuse_partial(ctx: &ReadContext) -> Result<(), ApiError> {
    let warnings = ctx.warnings();
    if warnings.is_partial() {
        return Err(ApiError::new(ErrorKind::Execution, warnings.texts().join("; ")));
    }
    Ok(())
}

/// Waits for a permit of `class`. `timeout_ms` counts the wait too.
pub(super) async fn admit(
    app: &App,
    class: &Class,
    tenant: &TenantId,
    timeout_ms: u64,
) -> Result<Admitted, ApiError> {
    app.lifecycle.source()?;
    let limits = app.limits_of(tenant).queries;
    let deadline_ns = app.env.clock.mono_ns().saturating_add(timeout_ms.saturating_mul(1_000_000));
    let timeout = Duration::from_millis(timeout_ms);
    let permit = class.acquire(tenant, limits.concurrency_max, timeout).await?;
    Ok(admitted(app, tenant, limits, deadline_ns, permit))
}

/// As [`admit`] on any thread, for work that can be done later: `None` if no permit of `class` is free.
pub(super) fn try_admit(app: &App, class: &Class, tenant: &TenantId, timeout_ms: u64) -> Option<Admitted> {
    let limits = app.limits_of(tenant).queries;
    let permit = class.try_acquire(tenant, limits.concurrency_max)?;
    let deadline_ns = app.env.clock.mono_ns().saturating_add(timeout_ms.saturating_mul(1_000_000));
    Some(admitted(app, tenant, limits, deadline_ns, permit))
}

fn admitted(app: &App, tenant: &TenantId, limits: QueryLimits, deadline_ns: u64, permit: Permit) -> Admitted {
    let memory = app.admission.query_memory.of(tenant, limits.memory_bytes_max);
    let budget = memory.budget.child("query", app.options.service.query.memory_bytes_max);
    let ctx = context(app, limits, deadline_ns, budget);
    Admitted { ctx, deadline_ns, limits, _memory: memory, permit: Some(permit) }
}

/// The context of a read of a tenant with `limits`.
fn context(app: &App, limits: QueryLimits, deadline_ns: u64, budget: MemoryBudget) -> ReadContext {
    let ctx = ReadContext::new(app.env.clock.clone(), deadline_ns, budget).with_fetch_limits(limits.fetch);
    match limits.lookback_ms {
        0 => ctx,
        lookback_ms => ctx.with_start(app.env.clock.now_ms().saturating_sub(lookback_ms)),
    }
}

/// Runs `work` on a thread for queries, once there is a permit. `timeout_ms` counts the wait too.
pub(super) async fn run<T: Send + 'static>(
    app: &Arc<App>,
    tenant: &TenantId,
    timeout_ms: u64,
    work: impl FnOnce(&App, &ReadContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    run_as(app, &app.admission.query, tenant, timeout_ms, work).await
}

/// As [`run`], with a permit of `class`.
pub(super) async fn run_as<T: Send + 'static>(
    app: &Arc<App>,
    class: &Class,
    tenant: &TenantId,
    timeout_ms: u64,
    work: impl FnOnce(&App, &ReadContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let admitted = admit(app, class, tenant, timeout_ms).await?;
    run_aside(app, admitted, work).await
}

/// As [`run`], but `work` begins on this thread if `candidate` says that it may be small. It is restarted on
/// a thread of the pool if it is not, so it must have no side effects before it ends.
// PERF: 1000 small instant queries of 100 000 series, a connection each: 8 -> 1 switches of threads a query;
// with short postings read alone (`head::tables::lookup`) 236 -> 125 ms, 190 -> 80 ms of CPU.
//   cargo xtask bench queries --only chronolith --long-series 0 --value-series 0 --shapes instant_rules
pub(super) async fn run_small_first<T: Send + 'static>(
    app: &Arc<App>,
    tenant: &TenantId,
    timeout_ms: u64,
    candidate: Option<Candidate>,
    work: impl Fn(&App, &ReadContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let admitted = admit(app, &app.admission.query, tenant, timeout_ms).await?;
    let Some(candidate) = candidate else { return run_aside(app, admitted, work).await };
    if let Some(result) = attempt(app, &admitted, candidate, &work) {
        return result;
    }
    let timed = move |app: &App, ctx: &ReadContext| {
        let start_ns = app.env.clock.mono_ns();
        let result = work(app, ctx);
        if app.env.clock.mono_ns().saturating_sub(start_ns) < SMALL_QUERY_SLICE_NS / 2 {
            app.queries.small.shrank(candidate);
        }
        result
    };
    run_aside(app, admitted, timed).await
}

/// Runs `work` here; `None` if it is not small, or if this thread is needed for others.
fn attempt<T>(
    app: &App,
    admitted: &Admitted,
    candidate: Candidate,
    work: &impl Fn(&App, &ReadContext) -> Result<T, ApiError>,
) -> Option<Result<T, ApiError>> {
    let thread_count = tokio::runtime::Handle::current().metrics().num_workers();
    let _here = app.queries.small.enter(candidate, thread_count)?;
    let clock = &app.env.clock;
    let slice_end_ns = clock.mono_ns().saturating_add(SMALL_QUERY_SLICE_NS);
    let ends_here = admitted.deadline_ns <= slice_end_ns;
    let budget = admitted.ctx.budget.clone();
    let ctx = context(app, admitted.limits, slice_end_ns.min(admitted.deadline_ns), budget);
    // A source in a bucket waits for requests, which no async worker may do.
    let ctx = ctx.without_waiting();
    // As a thread of its own would catch it.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(app, &ctx)));
    let Ok(result) = ran else { return Some(Err(bug(&"see the message of the panic"))) };
    if !ends_here && result.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout) {
        app.queries.small.outgrew(candidate);
        return None;
    }
    count_end(app, &ctx, result.as_ref().err());
    Some(result)
}

/// Runs `work` on a thread of the pool, once there is a permit of `class`. It is not cut short when its
/// client leaves, and keeps the permit until its end.
pub(super) async fn run_to_end<T: Send + 'static>(
    app: &Arc<App>,
    class: &Class,
    tenant: &TenantId,
    wait_max: Duration,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let permit = class.acquire(tenant, 0, wait_max).await?;
    let shared = app.clone();
    let done = app.query_threads.run(move || {
        let _permit = permit;
        work(&shared)
    });
    done.await.map_err(|error| {
        tracing::error!(%error, class = class.name, "request panicked");
        ApiError::new(ErrorKind::Internal, "internal error: the request panicked, see the server's log")
    })
}

/// Runs `work`, which reads what the server knows of itself: see [`run_to_end`].
pub(super) async fn run_status<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let class = &app.admission.status;
    run_to_end(app, class, &TenantId::anonymous(), STATUS_QUEUE_WAIT, work).await
}

async fn run_aside<T: Send + 'static>(
    app: &Arc<App>,
    admitted: Admitted,
    work: impl FnOnce(&App, &ReadContext) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let mut guard = CancelOnDrop::of(&admitted.ctx);
    let shared = app.clone();
    let done = app.query_threads.run(move || {
        // The whole value is moved, or the closure takes the context alone and a client that leaves frees the
        // permit of work that goes on.
        let admitted = admitted;
        admitted.ctx.begin_long_work();
        let result = work(&shared, &admitted.ctx);
        count_end(&shared, &admitted.ctx, result.as_ref().err());
        result
    });
    let result = done.await;
    guard.armed = false;
    result.unwrap_or_else(|error| Err(bug(&error)))
}

#[cold]
fn bug(error: &dyn std::fmt::Display) -> ApiError {
    tracing::error!(%error, "query panicked");
    ApiError::new(ErrorKind::Internal, "internal error: the query panicked, see the server's log")
}

pub(super) fn count_end(app: &App, ctx: &ReadContext, error: Option<&ApiError>) {
    let query = &app.metrics.query;
    query.moved_starts.add(u64::from(ctx.is_start_moved()));
    for limit in FetchLimit::ALL {
        query.fetch_limits[limit as usize].add(u64::from(error.is_some() && ctx.is_exceeded(limit)));
    }
    match error.map(|error| error.kind) {
        None => {}
        Some(ErrorKind::Canceled) => query.canceled.add(1),
        Some(ErrorKind::Timeout) => query.timed_out.add(1),
        Some(_) => query.failed.add(1),
    }
}

#[cfg(test)]
mod tests;
