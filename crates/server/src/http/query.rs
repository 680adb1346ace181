//! Query API: `query` and `query_range` (evaluate PromQL), `format_query` and `parse_query` (parse only).
//!
//! Invariant: texts of refusals equal Prometheus's.
//! Not here: evaluation, result cache and logs (`service::evaluation`).

pub(super) mod cost;
mod explain;
mod start_times;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::ReadContext;
use chronolith_promql::ast::Expr;
use chronolith_promql::engine::{Engine, EvalError, Value};
use chronolith_promql::parser::pretty;
use chronolith_service::admission::small::Candidate;
use chronolith_service::evaluation::call_context::CallContext;
use chronolith_service::evaluation::plan;
use chronolith_service::evaluation::promql::{
    self, Caller, CallerText, Detail, EvalTimes, PromqlAnswer, PromqlError, PromqlQuery,
};

use self::explain::StatsMode;
use self::start_times::StartTimesHeader;
use super::call::{self, Call};
use super::compress::Packing;
use super::dispatch;
use super::error::{ApiError, ErrorKind};
use super::params::{NS_PER_MS, Params, parse_duration_ns, show_duration_ns};
use super::partial::PartialResponse;
use super::printer::{Printer, TRUNCATED_WARNING};
use super::tree;
use crate::json;
use crate::json::histogram::{put_histogram, put_histograms};
use crate::limits::POINTS_PER_SERIES_MAX;
use crate::web::Web;

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
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let start_times = StartTimesHeader::of(&request);
    let call = call::open(&web, request).await?;
    let limit = call.params.limit("limit")?;
    let time_ms = call.params.time_ms("time", web.service.env.clock.now_ms())?;
    answer(&web, call, limit, EvalTimes::At(time_ms), &start_times).await
}

pub(super) async fn range(State(web): State<Arc<Web>>, request: Request) -> Result<Response<Body>, ApiError> {
    let start_times = StartTimesHeader::of(&request);
    let call = call::open(&web, request).await?;
    let limit = call.params.limit("limit")?;
    let times = steps(&call.params)?;
    let times = if web.service.options.query.align_steps { times.aligned() } else { times };
    answer(&web, call, limit, times, &start_times).await
}

pub(super) async fn format(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let identity = call.identity.clone();
    let printed = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let expr = parse(web, &call.params)?;
        let mut printer = Printer::open(ctx)?;
        json::put_string(&mut printer.out, &pretty(&expr));
        printer.close(ctx, &[], &[])
    });
    Ok(printed.await?.into_json())
}

pub(super) async fn parse_tree(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let identity = call.identity.clone();
    let printed = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let expr = parse(web, &call.params)?;
        let mut printer = Printer::open(ctx)?;
        json::put_display(&mut printer.out, tree::translate(&expr));
        printer.close(ctx, &[], &[])
    });
    Ok(printed.await?.into_json())
}

async fn answer(
    web: &Arc<Web>,
    call: Call,
    limit: usize,
    times: EvalTimes,
    start_times: &StartTimesHeader,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = timeout_ms(web, &call.params)?;
    let request = Checked {
        timeout_ms,
        lookback_ms: lookback_ms(&call.params)?,
        engine: start_times.engine(web)?,
        packing: Packing::new(web, call.coding),
        limit,
        stats: StatsMode::parse(call.params.get("stats")),
        explain: Explain::parse(call.params.get("explain"))?,
        partial: PartialResponse::parse(&call.params)?,
        received_ns: web.service.env.clock.mono_ns(),
        times,
        call,
    };
    let identity = request.call.identity.clone();
    web.service.writes.tenants.of(identity.tenant(), web.service.env.clock.now_ms()).queries.add(1);
    let candidate = Candidate::of(request.call.params.get("query").unwrap_or(""));
    let evaluate =
        move |web: &Web, ctx: &CallContext| request.partial.run(web, ctx, |ctx| request.evaluate(web, ctx));
    let printed = dispatch::run_small_first(web, &identity, timeout_ms, candidate, evaluate).await?;
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
fn timeout_ms(web: &Web, params: &Params) -> Result<u64, ApiError> {
    let most = web.service.options.query.timeout_ms;
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
fn parse(web: &Web, params: &Params) -> Result<Expr, ApiError> {
    let text = params.get("query").unwrap_or("");
    web.service.queries.parse(text).map_err(|why| ApiError::parameter("query", why))
}

impl Checked {
    fn text(&self) -> &str {
        self.call.params.get("query").unwrap_or("")
    }

    fn evaluate(&self, web: &Web, ctx: &CallContext) -> Result<Printer, ApiError> {
        let has_plan = self.explain == Explain::Plan;
        let has_stats = self.stats != StatsMode::None;
        let is_refused = matches!(self.call.params.get("nocache"), Some("1" | "true"));
        let query = PromqlQuery {
            identity: &self.call.identity,
            text: self.text(),
            times: self.times,
            lookback_ms: self.lookback_ms,
            engine: &self.engine,
            timeout_ms: self.timeout_ms,
            received_ns: self.received_ns,
            detail: Detail { steps: has_stats, operators: has_plan },
            is_cacheable: !(has_stats || has_plan || is_refused),
            caller: &self.call,
        };
        promql::evaluate(&web.service, &query, ctx, |answer| self.print(answer, ctx))
    }

    fn print(&self, answer: &PromqlAnswer<'_>, ctx: &ReadContext) -> Result<Printer, ApiError> {
        let PromqlAnswer { result, timings, trace } = answer;
        let mut printer = Printer::open_packed(ctx, &self.packing)?;
        let truncated = print_value(&result.value, self.limit, &mut printer, ctx)?;
        if self.stats != StatsMode::None {
            let peak = result.samples_peak;
            explain::put_stats(&mut printer.out, self.stats, *timings, trace, peak);
        }
        if self.explain == Explain::Plan {
            let plan = plan::report(trace, self.text());
            json::put_display(&mut printer.out, format_args!(",\"explain\":{plan}"));
        }
        printer.out.push(b'}');
        let mut warnings = result.warnings.clone();
        warnings.extend(truncated.then(|| TRUNCATED_WARNING.to_owned()));
        warnings.extend(explain::stats_warning(self.call.params.get("stats")));
        printer.close(ctx, &warnings, &result.infos)
    }
}

impl Caller for Call {
    fn describe(&self) -> CallerText {
        CallerText {
            client_ip: self.info.remote.map_or_else(String::new, |address| address.ip().to_string()),
            remote: self.info.remote_text(),
            method: self.method.to_string(),
            path: self.path.clone(),
            request_id: self.info.id.to_string(),
        }
    }
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

impl From<PromqlError> for ApiError {
    fn from(error: PromqlError) -> ApiError {
        match error {
            PromqlError::Refused(refusal) => refusal.into(),
            PromqlError::Syntax(why) => ApiError::parameter("query", why),
            PromqlError::Evaluation(error) => eval_error(error),
            PromqlError::Killed(id) => {
                let text = format!("query {id} was killed by a request to status/active_queries/kill");
                ApiError::new(ErrorKind::Execution, text)
            }
        }
    }
}

/// Maps a failed evaluation to Prometheus's kinds.
fn eval_error(error: EvalError) -> ApiError {
    match error {
        EvalError::Query(error) => error.into(),
        // Prometheus finds it before it runs the query.
        EvalError::Invalid(why) => ApiError::parameter("query", why),
        other => ApiError::new(ErrorKind::Execution, other),
    }
}
