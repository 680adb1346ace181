//! Query API: `query` and `query_range` (evaluate PromQL), `format_query` and `parse_query` (parse only).
//!
//! Invariants: texts of refusals equal Prometheus's; a query holds its permit, deadline and memory budget
//! until its response is encoded.
//! Not here: threads (`dispatch`), admission (`service::admission`), evaluation (`promql`), requests through
//! the result cache (`query::cached`).

mod cached;
pub(super) mod cost;
mod explain;
mod start_times;

use std::cell::Cell;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::utc::rfc3339_ms;
use chronolith_model::{FloatHistogram, QueryError, ReadContext};
use chronolith_promql::ast::Expr;
use chronolith_promql::engine::trace::Trace;
use chronolith_promql::engine::{Engine, EvalError, Query, QueryResult, Value, VectorSample};
use chronolith_promql::parser::{parse_expr, pretty};
use chronolith_service::activity::active_queries::{ActiveEntry, StartedQuery};
use chronolith_service::activity::metric_usage::selected_names;
use chronolith_service::activity::top_queries::{FinishedQuery, QueryLanguage};
use chronolith_service::admission::small::Candidate;
use chronolith_service::query::selectors::selectors_of;
use chronolith_service::query::{range_cache, slow};

use self::explain::{StatsMode, Timings};
use self::start_times::StartTimesHeader;
use super::call::{self, Call};
use super::compress::Packing;
use super::dispatch;
use super::error::{ApiError, ErrorKind};
use super::params::{NS_PER_MS, Params, parse_duration_ns, show_duration_ns};
use super::partial::PartialResponse;
use super::printer::{Printer, TRUNCATED_WARNING};
use super::tree;
use crate::app::App;
use crate::http::json;
use crate::http::json::histogram::{put_histogram, put_histograms};
use crate::limits::{POINTS_PER_SERIES_MAX, QUERY_BYTES_MAX};

/// Times at which a query is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvalTimes {
    At(i64),
    /// From, to, and the step between.
    Steps {
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
    },
}

impl EvalTimes {
    /// First time, last time, step; the step of a single time is 0.
    fn bounds(self) -> (i64, i64, i64) {
        match self {
            EvalTimes::At(time_ms) => (time_ms, time_ms, 0),
            EvalTimes::Steps { start_ms, end_ms, step_ms } => (start_ms, end_ms, step_ms),
        }
    }

    /// Steps at multiples of the step, so that requests made at different times ask for the same ones.
    fn aligned(self) -> EvalTimes {
        let EvalTimes::Steps { start_ms, end_ms, step_ms } = self else { return self };
        let floor = |ms: i64| ms.saturating_sub(ms.rem_euclid(step_ms));
        EvalTimes::Steps { start_ms: floor(start_ms), end_ms: floor(end_ms), step_ms }
    }
}

/// True if the response includes the plan (`explain=1`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Explain {
    No,
    Plan,
}

impl Explain {
    fn parse(text: Option<&str>) -> Result<Explain, ApiError> {
        match text {
            None | Some("0" | "false") => Ok(Explain::No),
            Some("1" | "true") => Ok(Explain::Plan),
            Some(other) => Err(ApiError::parameter("explain", format_args!("{other:?} is neither 0 nor 1"))),
        }
    }
}

/// A checked request.
struct Checked {
    call: Call,
    times: EvalTimes,
    timeout_ms: u64,
    lookback_ms: Option<i64>,
    engine: Engine,
    packing: Packing,
    limit: usize,
    stats: StatsMode,
    explain: Explain,
    partial: PartialResponse,
    received_ns: u64,
}

pub(super) async fn instant(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let start_times = StartTimesHeader::of(&request);
    let call = call::open(&app, request).await?;
    let limit = call.params.limit("limit")?;
    let time_ms = call.params.time_ms("time", app.service.env.clock.now_ms())?;
    answer(&app, call, limit, EvalTimes::At(time_ms), &start_times).await
}

pub(super) async fn range(State(app): State<Arc<App>>, request: Request) -> Result<Response<Body>, ApiError> {
    let start_times = StartTimesHeader::of(&request);
    let call = call::open(&app, request).await?;
    let limit = call.params.limit("limit")?;
    let times = steps(&call.params)?;
    let times = if app.service.options.query.align_steps { times.aligned() } else { times };
    answer(&app, call, limit, times, &start_times).await
}

pub(super) async fn format(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&app, request).await?;
    let tenant = call.tenant.clone();
    let printed = dispatch::run(&app, &tenant, app.service.options.query.timeout_ms, move |app, ctx| {
        let expr = parse(app, &call.params)?;
        let mut printer = Printer::open(ctx)?;
        json::put_string(&mut printer.out, &pretty(&expr));
        printer.close(ctx, &[], &[])
    });
    Ok(printed.await?.into_json())
}

pub(super) async fn parse_tree(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&app, request).await?;
    let tenant = call.tenant.clone();
    let printed = dispatch::run(&app, &tenant, app.service.options.query.timeout_ms, move |app, ctx| {
        let expr = parse(app, &call.params)?;
        let mut printer = Printer::open(ctx)?;
        json::put_display(&mut printer.out, tree::translate(&expr));
        printer.close(ctx, &[], &[])
    });
    Ok(printed.await?.into_json())
}

async fn answer(
    app: &Arc<App>,
    call: Call,
    limit: usize,
    times: EvalTimes,
    start_times: &StartTimesHeader,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = timeout_ms(app, &call.params)?;
    let request = Checked {
        timeout_ms,
        lookback_ms: lookback_ms(&call.params)?,
        engine: start_times.engine(app)?,
        packing: Packing::new(app, call.coding),
        limit,
        stats: StatsMode::parse(call.params.get("stats")),
        explain: Explain::parse(call.params.get("explain"))?,
        partial: PartialResponse::parse(&call.params)?,
        received_ns: app.service.env.clock.mono_ns(),
        times,
        call,
    };
    let tenant = request.call.tenant.clone();
    app.service.writes.tenants.of(&tenant, app.service.env.clock.now_ms()).queries.add(1);
    let candidate = Candidate::of(request.call.params.get("query").unwrap_or(""));
    let evaluate =
        move |app: &App, ctx: &ReadContext| request.partial.run(app, ctx, |ctx| evaluate(app, &request, ctx));
    let printed = dispatch::run_small_first(app, &tenant, timeout_ms, candidate, evaluate).await?;
    Ok(printed.into_json())
}

/// The steps of a range query, checked as Prometheus checks them.
fn steps(params: &Params) -> Result<EvalTimes, ApiError> {
    let start_ms = params.time_ms_required("start")?;
    let end_ms = params.time_ms_required("end")?;
    if end_ms < start_ms {
        return Err(ApiError::parameter("end", "end timestamp must not be before start time"));
    }
    let step = parse_duration_ns(params.get("step").unwrap_or(""));
    let step_ns = step.map_err(|why| ApiError::parameter("step", why))?;
    if step_ns <= 0 {
        let why = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        return Err(ApiError::parameter("step", why));
    }
    let width_ns = (i128::from(end_ms) - i128::from(start_ms)) * i128::from(NS_PER_MS);
    if width_ns / i128::from(step_ns) > i128::from(POINTS_PER_SERIES_MAX) {
        let why = "exceeded maximum resolution of 11,000 points per timeseries. \
                   Try decreasing the query resolution (?step=XX)";
        return Err(ApiError::bad_request(why));
    }
    // Steps are whole milliseconds. Where there is one time alone, the step is irrelevant.
    if step_ns < NS_PER_MS && start_ms < end_ms {
        let why = "query resolution step widths below a millisecond are not accepted";
        return Err(ApiError::parameter("step", why));
    }
    Ok(EvalTimes::Steps { start_ms, end_ms, step_ms: (step_ns / NS_PER_MS).max(1) })
}

/// Lookback of this query; zero and negative values mean the default.
fn lookback_ms(params: &Params) -> Result<Option<i64>, ApiError> {
    let Some(text) = params.get("lookback_delta") else { return Ok(None) };
    let parsed = parse_duration_ns(text)
        .map_err(|why| ApiError::bad_request(format!("error parsing lookback delta duration: {why}")))?;
    Ok(Some(parsed / NS_PER_MS).filter(|ms| *ms > 0))
}

/// The server's timeout, or a shorter one of the request.
fn timeout_ms(app: &App, params: &Params) -> Result<u64, ApiError> {
    let most = app.service.options.query.timeout_ms;
    let Some(text) = params.get("timeout") else { return Ok(most) };
    let ns = parse_duration_ns(text).map_err(|why| ApiError::parameter("timeout", why))?;
    match u64::try_from(ns) {
        Ok(ns) if ns > 0 => Ok(ns.div_ceil(NS_PER_MS as u64).min(most)),
        _ => {
            let why = format_args!("timeout must be positive, got {}", show_duration_ns(ns));
            Err(ApiError::parameter("timeout", why))
        }
    }
}

/// Parses the parameter `query`.
fn parse(app: &App, params: &Params) -> Result<Expr, ApiError> {
    let text = params.get("query").unwrap_or("");
    parse_text(app, text).map_err(|why| ApiError::parameter("query", why))
}

/// Parses the text of a query or a selector.
pub(super) fn parse_text(app: &App, text: &str) -> Result<Expr, String> {
    check_length(text)?;
    parse_expr(text, app.service.queries.parser).map_err(|why| why.to_string())
}

/// Refuses texts that are too long to be parsed.
pub(super) fn check_length(text: &str) -> Result<(), String> {
    if text.len() <= QUERY_BYTES_MAX {
        return Ok(());
    }
    Err(format!("query of {} bytes is longer than the limit of {QUERY_BYTES_MAX} bytes", text.len()))
}

/// A running query: state that its stages share.
struct Running<'a> {
    request: &'a Checked,
    ctx: &'a ReadContext,
    trace: Arc<Trace>,
    /// First time, last time, step.
    times_ms: (i64, i64, i64),
    started_ns: u64,
    /// Set once it is evaluated: how long that took, and the most samples at once.
    evaluated: Cell<Option<(Timings, u64)>>,
}

fn evaluate(app: &App, request: &Checked, ctx: &ReadContext) -> Result<Printer, ApiError> {
    let times_ms = request.times.bounds();
    let trace = Arc::new(new_trace(app, request));
    let started_ns = app.service.env.clock.mono_ns();
    let running = Running { request, ctx, trace, times_ms, started_ns, evaluated: Cell::new(None) };
    let entry = app.service.queries.active.enter(StartedQuery {
        tenant: &request.call.tenant,
        text: request.call.params.get("query").unwrap_or(""),
        times_ms,
        mono_ns: started_ns,
        ctx,
        trace: running.trace.clone(),
    });
    let outcome = running.evaluate(app).map_err(|error| tell_of_kill(error, &entry));
    running.log(app, outcome.as_ref().err());
    outcome
}

/// Counts as much as the request, or the slow query log, wants to know.
fn new_trace(app: &App, request: &Checked) -> Trace {
    let mut trace = Trace::new();
    if request.explain == Explain::Plan || app.service.options.query.log_slow_ms > 0 {
        trace = trace.with_nodes(app.service.env.clock.clone());
    }
    if request.stats == StatsMode::None { trace } else { trace.with_steps() }
}

/// The client of a killed query gets an error that names the kill, not a cancellation.
fn tell_of_kill(error: ApiError, entry: &ActiveEntry<'_>) -> ApiError {
    match entry.killed_id() {
        Some(id) if error.kind == ErrorKind::Canceled => ApiError::new(
            ErrorKind::Execution,
            format!("query {id} was killed by a request to status/active_queries/kill"),
        ),
        _ => error,
    }
}

impl Running<'_> {
    fn text(&self) -> &str {
        self.request.call.params.get("query").unwrap_or("")
    }

    fn evaluate(&self, app: &App) -> Result<Printer, ApiError> {
        let (clock, request, ctx) = (&app.service.env.clock, self.request, self.ctx);
        let expr = parse(app, &request.call.params)?;
        let prepared_ns = clock.mono_ns();
        let source = app.service.lifecycle.source()?.queryable(&request.call.tenant);
        let (start_ms, end_ms, step_ms) = self.times_ms;
        let lookback_ms = request.lookback_ms;
        let query = Query { text: self.text(), expr: &expr, start_ms, end_ms, step_ms, lookback_ms };
        let result = self.result(app, &*source, &query)?;
        let evaluated_ns = clock.mono_ns();
        let timings = Timings {
            queue_ns: self.started_ns.saturating_sub(request.received_ns),
            preparation_ns: prepared_ns.saturating_sub(self.started_ns),
            evaluation_ns: evaluated_ns.saturating_sub(prepared_ns),
        };
        self.evaluated.set(Some((timings, result.samples_peak)));
        // The engine gives its memory back when it is done; what it found lives until it is printed.
        let _held = ctx.budget.reserve(value_bytes(&result.value)).map_err(QueryError::from)?;
        let printed = self.print(&result, timings);
        // A query whose deadline passed during encoding may be restarted, and would count twice.
        if printed.is_ok() {
            app.service.queries.metrics.samples.add(result.samples_read);
            let duration = if step_ms > 0 {
                &app.service.queries.metrics.range
            } else {
                &app.service.queries.metrics.instant
            };
            duration.observe_ns(clock.mono_ns().saturating_sub(self.started_ns));
            let selectors = selectors_of(&expr);
            let names = selectors.iter().flat_map(|matchers| selected_names(matchers));
            app.service.queries.metric_usage.record(&request.call.tenant, names, clock.now_ms());
        }
        printed
    }

    fn print(&self, result: &QueryResult, timings: Timings) -> Result<Printer, ApiError> {
        let (request, ctx) = (self.request, self.ctx);
        let mut printer = Printer::open_packed(ctx, &request.packing)?;
        let truncated = print_value(&result.value, request.limit, &mut printer, ctx)?;
        if request.stats != StatsMode::None {
            let peak = result.samples_peak;
            explain::put_stats(&mut printer.out, request.stats, timings, &self.trace, peak);
        }
        if request.explain == Explain::Plan {
            json::put_display(&mut printer.out, format_args!(",\"explain\":{}", self.plan()));
        }
        printer.out.push(b'}');
        let mut warnings = result.warnings.clone();
        warnings.extend(truncated.then(|| TRUNCATED_WARNING.to_owned()));
        warnings.extend(explain::stats_warning(request.call.params.get("stats")));
        printer.close(ctx, &warnings, &result.infos)
    }

    fn plan(&self) -> serde_json::Value {
        self.trace.report(self.text()).as_ref().map(explain::tree).into()
    }

    /// Writes to the query log, and to the slow query log if this query belongs there.
    fn log(&self, app: &App, error: Option<&ApiError>) {
        let now_ns = app.service.env.clock.mono_ns();
        // Not its deadline, but the one of small queries: it is restarted on the pool.
        let is_given_up = error.is_some_and(|error| error.kind == ErrorKind::Timeout)
            && now_ns.saturating_sub(self.request.received_ns)
                < self.request.timeout_ms.saturating_mul(NS_PER_MS as u64);
        if is_given_up {
            return;
        }
        self.note_slow(app, now_ns, error);
        // As in Prometheus, a query that cannot be parsed is none.
        if error.is_some_and(|error| error.kind == ErrorKind::BadRequest) {
            return;
        }
        app.service.queries.top.record(&FinishedQuery {
            tenant: &self.request.call.tenant,
            language: QueryLanguage::PromQl,
            text: self.text(),
            duration_ns: now_ns.saturating_sub(self.started_ns),
            sample_count: self.trace.samples_read(),
            is_error: error.is_some(),
            ended_ms: app.service.env.clock.now_ms(),
        });
        if app.service.queries.log.is_on() {
            app.service.queries.log.write(self.log_line(app, error).to_string());
        }
    }

    /// The line of the query log, in Prometheus's field names; `tenant` and `requestID` are additions.
    fn log_line(&self, app: &App, error: Option<&ApiError>) -> serde_json::Value {
        let call = &self.request.call;
        let (start_ms, end_ms, step_ms) = self.times_ms;
        let (timings, peak) = self.evaluated.get().unwrap_or_default();
        let client_ip = call.info.remote.map_or_else(String::new, |address| address.ip().to_string());
        let mut line = serde_json::json!({
            "time": rfc3339_ms(app.service.env.clock.now_ms()),
            "level": "INFO",
            "source": "query_log",
            "msg": "promql query logged",
            "params": {
                "query": self.text(),
                "start": rfc3339_ms(start_ms),
                "end": rfc3339_ms(end_ms),
                "step": step_ms / 1000,
            },
            "stats": {
                "timings": timings.to_json(),
                "samples": { "totalQueryableSamples": self.trace.samples_read(), "peakSamples": peak },
            },
            "httpRequest": { "clientIP": client_ip, "method": call.method.as_str(), "path": call.path },
            "tenant": call.tenant.as_str(),
            "requestID": call.info.id.to_string(),
        });
        if let Some(error) = error {
            line["error"] = error.message.as_str().into();
        }
        line
    }

    /// Writes to the slow query log if this query took long enough.
    fn note_slow(&self, app: &App, now_ns: u64, error: Option<&ApiError>) {
        let limit_ms = app.service.options.query.log_slow_ms;
        let took_ns = now_ns.saturating_sub(self.started_ns);
        if limit_ms == 0 || took_ns < limit_ms.saturating_mul(NS_PER_MS as u64) {
            return;
        }
        let (start_ms, end_ms, step_ms) = self.times_ms;
        let about = || {
            serde_json::json!({
                "time": app.service.env.clock.now_ms(),
                "tenant": self.request.call.tenant.as_str(),
                "requestID": self.request.call.info.id.to_string(),
                "remote": self.request.call.info.remote_text(),
                "query": self.text(),
                "startMs": start_ms,
                "endMs": end_ms,
                "stepMs": step_ms,
                "seconds": took_ns as f64 / 1e9,
                "queueSeconds": self.started_ns.saturating_sub(self.request.received_ns) as f64 / 1e9,
                "series": self.trace.series_selected(),
                "samples": self.trace.samples_read(),
                "memoryPeakBytes": self.ctx.budget.peak_bytes(),
                "error": error.map(|error| error.message.as_str()),
            })
        };
        app.service.queries.slow_log.write(now_ns, || slow::line(about(), self.plan()));
    }
}

/// Memory of a result, labels included.
fn value_bytes(value: &Value) -> u64 {
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

/// Prints the value without the brace that closes it; true if `limit` cut series off.
fn print_value(
    value: &Value,
    limit: usize,
    printer: &mut Printer,
    ctx: &ReadContext,
) -> Result<bool, ApiError> {
    let out = &mut printer.out;
    match value {
        Value::Scalar { time_ms, value } => {
            out.extend_from_slice(b"{\"resultType\":\"scalar\",\"result\":");
            json::put_scalar(out, *time_ms, *value);
            Ok(false)
        }
        Value::String { time_ms, value } => {
            out.extend_from_slice(b"{\"resultType\":\"string\",\"result\":[");
            json::put_time_short(out, *time_ms);
            out.push(b',');
            json::put_string(out, value);
            out.push(b']');
            Ok(false)
        }
        Value::Vector(samples) => {
            out.extend_from_slice(b"{\"resultType\":\"vector\",\"result\":[");
            let shown = shown_count(samples.len(), limit);
            for (idx, sample) in samples.iter().take(shown).enumerate() {
                open_series(&mut printer.out, idx, &sample.labels);
                if let Some(histogram) = &sample.histogram {
                    printer.out.extend_from_slice(b",\"histogram\":");
                    put_histogram(&mut printer.out, sample.time_ms, histogram);
                } else {
                    printer.out.extend_from_slice(b",\"value\":");
                    json::put_sample(&mut printer.out, sample.time_ms, sample.value);
                }
                printer.out.push(b'}');
                printer.settle(ctx)?;
            }
            printer.out.push(b']');
            Ok(shown < samples.len())
        }
        Value::Matrix(series) => {
            out.extend_from_slice(b"{\"resultType\":\"matrix\",\"result\":[");
            let shown = shown_count(series.len(), limit);
            for (idx, one) in series.iter().take(shown).enumerate() {
                open_series(&mut printer.out, idx, &one.labels);
                if one.histograms.is_empty() || !one.times.is_empty() {
                    printer.out.extend_from_slice(b",\"values\":");
                    put_samples(&mut printer.out, &one.times, &one.values);
                }
                if !one.histograms.is_empty() {
                    printer.out.extend_from_slice(b",\"histograms\":");
                    put_histograms(&mut printer.out, &one.histograms);
                }
                printer.out.push(b'}');
                printer.settle(ctx)?;
            }
            printer.out.push(b']');
            Ok(shown < series.len())
        }
    }
}

fn shown_count(count: usize, limit: usize) -> usize {
    if limit == 0 { count } else { count.min(limit) }
}

fn open_series(out: &mut Vec<u8>, idx: usize, labels: &chronolith_model::Labels) {
    if idx > 0 {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"metric\":");
    json::put_labels(out, labels);
}

fn put_samples(out: &mut Vec<u8>, times: &[i64], values: &[f64]) {
    out.push(b'[');
    for (idx, (time_ms, value)) in times.iter().zip(values).enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        json::put_sample(out, *time_ms, *value);
    }
    out.push(b']');
}

/// Maps what stopped an evaluation to Prometheus's kinds.
fn eval_error(error: EvalError) -> ApiError {
    match error {
        EvalError::Query(error) => error.into(),
        // Prometheus finds it before it runs the query.
        EvalError::Invalid(why) => ApiError::parameter("query", why),
        other => ApiError::new(ErrorKind::Execution, other),
    }
}
