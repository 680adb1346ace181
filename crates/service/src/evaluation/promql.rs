//! Evaluation of a PromQL query for all callers: parsed, listed as running, evaluated with the result cache,
//! handed to the printer of the protocol, counted and logged.
//!
//! Invariants: a query is listed until its answer is printed or it has failed; what the engine found is
//! reserved until then; a killed query says so.
//! Not here: permits, deadlines and threads (`run`), the engine (`promql`), the text of answers
//! (`server`).

mod cached;
mod log_lines;

use std::cell::Cell;
use std::sync::Arc;

use chronolith_model::{FloatHistogram, QueryError};
use chronolith_promql::ast::Expr;
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::engine::{Engine, EvalError, Query, QueryResult, Value, VectorSample};

use super::call_context::CallContext;
use super::run::{CallError, End};
use super::running::RunningQuery;
use crate::access::Identity;
use crate::activity::active_queries::StartedQuery;
use crate::activity::metric_usage::selected_names;
use crate::activity::top_queries::QueryLanguage;
use crate::query::context::check_length;
use crate::query::range_cache;
use crate::query::selectors::selectors_of;
use crate::refusal::Refusal;
use crate::service::Service;

/// Times at which a query is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalTimes {
    /// One time.
    At(i64),
    /// From, to, and the step between.
    Steps {
        /// First step.
        start_ms: i64,
        /// No step is later.
        end_ms: i64,
        /// Distance of steps, at least 1.
        step_ms: i64,
    },
}

impl EvalTimes {
    /// First time, last time, step; the step of a single time is 0.
    #[must_use]
    pub fn bounds(self) -> (i64, i64, i64) {
        match self {
            EvalTimes::At(time_ms) => (time_ms, time_ms, 0),
            EvalTimes::Steps { start_ms, end_ms, step_ms } => (start_ms, end_ms, step_ms),
        }
    }

    /// Steps at multiples of the step, so that requests made at different times ask for the same ones.
    #[must_use]
    pub fn aligned(self) -> EvalTimes {
        let EvalTimes::Steps { start_ms, end_ms, step_ms } = self else { return self };
        assert!(step_ms > 0, "steps of {step_ms} ms");
        let floor = |ms: i64| ms.saturating_sub(ms.rem_euclid(step_ms));
        EvalTimes::Steps { start_ms: floor(start_ms), end_ms: floor(end_ms), step_ms }
    }
}

/// Counts of an evaluation beyond its totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Detail {
    /// Samples by step.
    pub steps: bool,
    /// Time and counts of each operator of the plan.
    pub operators: bool,
}

/// The caller of a query, as logs name it.
pub trait Caller {
    /// Texts about the caller; asked for only if there is a line to write.
    fn describe(&self) -> CallerText;
}

/// Texts about a caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerText {
    /// Address without port; empty if there is none.
    pub client_ip: String,
    /// Address with port.
    pub remote: String,
    /// Method of the request.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// Id of the request.
    pub request_id: String,
}

/// A query to evaluate.
pub struct PromqlQuery<'a> {
    /// Sender, and the tenants whose series it reads.
    pub identity: &'a Identity,
    /// Text as sent.
    pub text: &'a str,
    /// Times at which it is evaluated.
    pub times: EvalTimes,
    /// Lookback of instant selectors; `None` = the setting.
    pub lookback_ms: Option<i64>,
    /// Engine with the options of this query.
    pub engine: &'a Engine,
    /// Longest run.
    pub timeout_ms: u64,
    /// Monotonic clock when the request was received.
    pub received_ns: u64,
    /// Counts that the caller wants.
    pub detail: Detail,
    /// False if no step may come from the result cache.
    pub is_cacheable: bool,
    /// For logs.
    pub caller: &'a dyn Caller,
}

/// Reason that a query has no answer.
#[derive(Debug)]
pub enum PromqlError {
    /// There is no source to read.
    Refused(Refusal),
    /// The text is no expression.
    Syntax(String),
    /// The evaluation failed.
    Evaluation(EvalError),
    /// Killed under this number.
    Killed(u64),
}

/// Durations of the parts of a query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    /// From the request to the thread that runs it.
    pub queue_ns: u64,
    /// Parsing.
    pub preparation_ns: u64,
    /// Evaluation.
    pub evaluation_ns: u64,
}

/// The answer to a query.
pub struct PromqlAnswer<'a> {
    /// Value, warnings and infos.
    pub result: QueryResult,
    /// Durations of its parts.
    pub timings: Timings,
    /// Counts of the evaluation.
    pub trace: &'a Trace,
}

/// A running query: state that its stages share.
struct Evaluation<'a> {
    service: &'a Service,
    query: &'a PromqlQuery<'a>,
    ctx: &'a CallContext,
    trace: Arc<Trace>,
    running: RunningQuery<'a>,
    /// Set once it is evaluated: how long that took, and the most samples at once.
    evaluated: Cell<Option<(Timings, u64)>>,
}

/// Evaluates a query on this thread and has `print` make the answer, which belongs to its time.
///
/// # Errors
/// A [`PromqlError`] or an error of `print`, in the caller's type.
pub fn evaluate<T, E: CallError + From<PromqlError>>(
    service: &Service,
    query: &PromqlQuery<'_>,
    ctx: &CallContext,
    print: impl FnOnce(&PromqlAnswer<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let trace = Arc::new(new_trace(service, query.detail));
    let evaluation = Evaluation::begin(service, query, ctx, trace);
    evaluation.end(evaluation.run(print))
}

/// A query that is parsed already.
pub(super) struct ParsedQuery<'a> {
    pub(super) query: &'a PromqlQuery<'a>,
    pub(super) expr: &'a Expr,
    /// Counts of the evaluation.
    pub(super) trace: Arc<Trace>,
}

/// As [`evaluate`] for a query that `compute` evaluates with the trace of `parsed`; returns its value.
pub(super) fn evaluate_parsed<E: CallError + From<PromqlError>>(
    service: &Service,
    parsed: ParsedQuery<'_>,
    ctx: &CallContext,
    compute: impl FnOnce() -> Result<QueryResult, PromqlError>,
) -> Result<Value, E> {
    let ParsedQuery { query, expr, trace } = parsed;
    let evaluation = Evaluation::begin(service, query, ctx, trace);
    let prepared_ns = evaluation.running.started_ns();
    let computed = check_length(query.text).map_err(PromqlError::Syntax).and_then(|()| compute());
    let take = |result| evaluation.answer(expr, prepared_ns, result, |answer| Ok(answer.result.value));
    evaluation.end(computed.map_err(E::from).and_then(take))
}

/// Counts as much as the caller, or the slow query log, wants to know.
pub(super) fn new_trace(service: &Service, detail: Detail) -> Trace {
    let mut trace = Trace::new();
    if detail.operators || service.options.query.log_slow_ms > 0 {
        trace = trace.with_nodes(service.env.clock.clone());
    }
    if detail.steps { trace.with_steps() } else { trace }
}

impl<'a> Evaluation<'a> {
    /// Lists a query as running.
    fn begin(
        service: &'a Service,
        query: &'a PromqlQuery<'a>,
        ctx: &'a CallContext,
        trace: Arc<Trace>,
    ) -> Evaluation<'a> {
        let started = StartedQuery {
            tenant: query.identity.tenant(),
            language: QueryLanguage::PromQl,
            text: query.text,
            times_ms: query.times.bounds(),
            ctx,
            trace: trace.clone(),
        };
        let running = RunningQuery::begin(service, started);
        Evaluation { service, query, ctx, trace, running, evaluated: Cell::new(None) }
    }

    /// Logs the query with its outcome, which it returns.
    fn end<T, E: CallError + From<PromqlError>>(&self, outcome: Result<T, E>) -> Result<T, E> {
        let outcome = outcome.map_err(|error| self.with_kill(error));
        self.log(outcome.as_ref().err());
        outcome
    }

    fn run<T, E: CallError + From<PromqlError>>(
        &self,
        print: impl FnOnce(&PromqlAnswer<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let service = self.service;
        let asked = self.query;
        let clock = &service.env.clock;
        let expr = service.queries.parse(asked.text).map_err(PromqlError::Syntax)?;
        let prepared_ns = clock.mono_ns();
        let source = self.ctx.source_of(service, asked.identity)?;
        let (start_ms, end_ms, step_ms) = asked.times.bounds();
        let lookback_ms = asked.lookback_ms;
        let query = Query { text: asked.text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms };
        let result = self.result(&*source, &query)?;
        self.answer(&expr, prepared_ns, result, |answer| print(&answer))
    }

    /// Has `print` make the answer of this result, and counts the query.
    fn answer<T, E: CallError + From<PromqlError>>(
        &self,
        expr: &Expr,
        prepared_ns: u64,
        result: QueryResult,
        print: impl FnOnce(PromqlAnswer<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let service = self.service;
        let asked = self.query;
        let clock = &service.env.clock;
        let evaluated_ns = clock.mono_ns();
        let started_ns = self.running.started_ns();
        let timings = Timings {
            queue_ns: started_ns.saturating_sub(asked.received_ns),
            preparation_ns: prepared_ns.saturating_sub(started_ns),
            evaluation_ns: evaluated_ns.saturating_sub(prepared_ns),
        };
        self.evaluated.set(Some((timings, result.samples_peak)));
        // The engine gives its memory back when it is done; what it found lives until it is printed.
        let held = self.ctx.budget.reserve(value_bytes(&result.value));
        let _held = held.map_err(|full| PromqlError::from(QueryError::from(full)))?;
        let samples_read = result.samples_read;
        let printed = print(PromqlAnswer { result, timings, trace: &self.trace });
        // A query whose deadline passed during encoding may be restarted, and would count twice.
        if printed.is_ok() {
            let metrics = &service.queries.metrics;
            metrics.samples.add(samples_read);
            let duration = if asked.times.bounds().2 > 0 { &metrics.range } else { &metrics.instant };
            duration.observe_ns(self.running.duration_ns());
            let selectors = selectors_of(expr);
            let names = selectors.iter().flat_map(|matchers| selected_names(matchers));
            service.queries.metric_usage.record(asked.identity.tenant(), names, clock.now_ms());
        }
        printed
    }

    /// The caller of a killed query gets an error that names the kill, not a cancellation.
    fn with_kill<E: CallError + From<PromqlError>>(&self, error: E) -> E {
        match self.running.killed_id() {
            Some(id) if error.end() == End::Canceled => PromqlError::Killed(id).into(),
            _ => error,
        }
    }

    /// Writes to the lists and logs that this query belongs to.
    fn log<E: CallError>(&self, error: Option<&E>) {
        let service = self.service;
        let query = self.query;
        let now_ns = service.env.clock.mono_ns();
        // The slice of small queries is over, not the query's deadline: it is restarted on the pool.
        let is_given_up = error.is_some_and(|error| error.end() == End::Timeout)
            && now_ns.saturating_sub(query.received_ns) < query.timeout_ms.saturating_mul(1_000_000);
        if is_given_up {
            return;
        }
        let error_text = error.map(CallError::text);
        self.note_slow(now_ns, error_text);
        // As in Prometheus, a query that cannot be parsed is none.
        if error.is_some_and(|error| error.end() == End::Invalid) {
            return;
        }
        self.running.record(self.trace.samples_read(), error.is_some());
        if service.queries.log.is_on() {
            service.queries.log.write(self.query_log_line(error_text).to_string());
        }
    }
}

impl PromqlError {
    /// Kind of the end of the query.
    #[must_use]
    pub fn end(&self) -> End {
        match self {
            PromqlError::Syntax(_) | PromqlError::Evaluation(EvalError::Invalid(_)) => End::Invalid,
            PromqlError::Evaluation(EvalError::Query(QueryError::Canceled)) => End::Canceled,
            PromqlError::Evaluation(EvalError::Query(QueryError::Timeout)) => End::Timeout,
            _ => End::Failed,
        }
    }
}

impl From<Refusal> for PromqlError {
    fn from(refusal: Refusal) -> PromqlError {
        PromqlError::Refused(refusal)
    }
}

impl From<QueryError> for PromqlError {
    fn from(error: QueryError) -> PromqlError {
        PromqlError::Evaluation(EvalError::Query(error))
    }
}

/// Memory of a result, labels included.
pub(super) fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Scalar { .. } => 0,
        Value::String { value, .. } => value.len() as u64,
        Value::Vector(samples) => {
            let one_bytes = |one: &VectorSample| {
                let histogram = one.histogram.as_deref().map_or(0, histogram_bytes);
                (size_of_val(one) + one.labels.heap_bytes() + histogram) as u64
            };
            samples.iter().map(one_bytes).sum()
        }
        Value::Matrix(series) => range_cache::bytes_of(series),
    }
}

fn histogram_bytes(histogram: &FloatHistogram) -> usize {
    size_of_val(histogram) + histogram.heap_bytes()
}
