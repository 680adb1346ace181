//! `query`, `query_range`, `format_query`. Holds: texts of refusals equal upstream's; a query holds a place,
//! a deadline and a budget while it runs, its answer included.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::{QueryError, ReadContext};
use chronolith_promql::ast::Expr;
use chronolith_promql::engine::{EvalError, MatrixSeries, Query, QueryResult, Value};
use chronolith_promql::parser::parse_expr;

use super::error::{ApiError, ErrorKind};
use super::params::{NS_PER_MS, Params, parse_duration_ns};
use super::work::{self, Call, Printer, TRUNCATED_WARNING};
use crate::app::App;
use crate::json;
use crate::limits::{POINTS_PER_SERIES_MAX, QUERY_BYTES_MAX};

/// Which moments are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moments {
    /// One.
    At(i64),
    /// From, to, and the step between.
    Steps { start_ms: i64, end_ms: i64, step_ms: i64 },
}

/// A checked request.
struct Checked {
    call: Call,
    moments: Moments,
    timeout_ms: u64,
    lookback_ms: Option<i64>,
    limit: usize,
    with_stats: bool,
    received_ns: u64,
}

pub(super) async fn instant(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = work::open(&app, request).await?;
    let limit = call.params.limit("limit")?;
    let time_ms = call.params.time_ms("time", app.env.clock.now_ms())?;
    answer(&app, call, limit, Moments::At(time_ms)).await
}

pub(super) async fn range(State(app): State<Arc<App>>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = work::open(&app, request).await?;
    let limit = call.params.limit("limit")?;
    let moments = steps(&call.params)?;
    answer(&app, call, limit, moments).await
}

pub(super) async fn format(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = work::open(&app, request).await?;
    let printed = work::run(&app, app.options.query.timeout_ms, move |app, ctx| {
        let expr = parse(app, &call.params)?;
        let mut printer = Printer::open(ctx)?;
        json::put_string(&mut printer.out, &expr.to_string());
        printer.close(ctx, &[], &[])
    });
    Ok(printed.await?.into_json())
}

async fn answer(
    app: &Arc<App>,
    call: Call,
    limit: usize,
    moments: Moments,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = timeout_ms(app, &call.params)?;
    let request = Checked {
        timeout_ms,
        lookback_ms: lookback_ms(&call.params)?,
        limit,
        with_stats: call.params.get("stats").is_some(),
        received_ns: app.env.clock.mono_ns(),
        moments,
        call,
    };
    let printed = work::run(app, timeout_ms, move |app, ctx| evaluate(app, &request, ctx)).await?;
    Ok(printed.into_json())
}

/// The steps of a range query, checked as upstream checks them.
fn steps(params: &Params) -> Result<Moments, ApiError> {
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
    // Steps are whole milliseconds, and a shorter one is one.
    Ok(Moments::Steps { start_ms, end_ms, step_ms: (step_ns / NS_PER_MS).max(1) })
}

/// How far this query looks back; what is not positive means the default.
fn lookback_ms(params: &Params) -> Result<Option<i64>, ApiError> {
    let Some(text) = params.get("lookback_delta") else { return Ok(None) };
    let parsed = parse_duration_ns(text)
        .map_err(|why| ApiError::bad_request(format!("error parsing lookback delta duration: {why}")))?;
    Ok(Some(parsed / NS_PER_MS).filter(|ms| *ms > 0))
}

/// The server's timeout, or a shorter one of the request. One that is not positive is over when it starts.
fn timeout_ms(app: &App, params: &Params) -> Result<u64, ApiError> {
    let most = app.options.query.timeout_ms;
    let Some(text) = params.get("timeout") else { return Ok(most) };
    let ns = parse_duration_ns(text).map_err(|why| ApiError::parameter("timeout", why))?;
    Ok(u64::try_from(ns).unwrap_or(0).div_ceil(NS_PER_MS as u64).min(most))
}

/// Parses the parameter `query`.
fn parse(app: &App, params: &Params) -> Result<Expr, ApiError> {
    let text = params.get("query").unwrap_or("");
    parse_text(app, text).map_err(|why| ApiError::parameter("query", why))
}

/// Parses the text of a query or a selector.
pub(super) fn parse_text(app: &App, text: &str) -> Result<Expr, String> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(format!(
            "query of {} bytes is longer than the limit of {QUERY_BYTES_MAX} bytes",
            text.len()
        ));
    }
    parse_expr(text, app.parser).map_err(|why| why.to_string())
}

fn evaluate(app: &App, request: &Checked, ctx: &ReadContext) -> Result<Printer, ApiError> {
    let clock = &app.env.clock;
    let started_ns = clock.mono_ns();
    let expr = parse(app, &request.call.params)?;
    let prepared_ns = clock.mono_ns();
    if request.timeout_ms == 0 {
        return Err(ApiError::new(ErrorKind::Timeout, "query timed out in query queue"));
    }
    let source = app.store()?.queryable(&request.call.tenant);
    let (start_ms, end_ms, step_ms, duration) = match request.moments {
        Moments::At(time_ms) => (time_ms, time_ms, 0, &app.metrics.query.instant),
        Moments::Steps { start_ms, end_ms, step_ms } => (start_ms, end_ms, step_ms, &app.metrics.query.range),
    };
    let (text, lookback_ms) = (request.call.params.get("query").unwrap_or(""), request.lookback_ms);
    let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms };
    let result = app.engine.run(&*source, &query, ctx).map_err(eval_error)?;
    app.metrics.query.samples.add(result.samples_read);
    let evaluated_ns = clock.mono_ns();
    let timings = Timings {
        queue_ns: started_ns.saturating_sub(request.received_ns),
        preparation_ns: prepared_ns.saturating_sub(started_ns),
        evaluation_ns: evaluated_ns.saturating_sub(prepared_ns),
    };
    // The engine gives its memory back when it is done; what it found lives until it is printed.
    let _held = ctx.budget.reserve(value_bytes(&result.value)).map_err(QueryError::from)?;
    let printed = print(&result, request, timings, ctx);
    duration.observe_ns(clock.mono_ns().saturating_sub(started_ns));
    printed
}

/// Memory of a result, labels included.
fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Scalar { .. } => 0,
        Value::String { value, .. } => value.len() as u64,
        Value::Vector(samples) => {
            samples.iter().map(|one| (size_of_val(one) + one.labels.heap_bytes()) as u64).sum()
        }
        Value::Matrix(series) => {
            let samples = |times: usize, values: usize| 8 * (times + values);
            let one_bytes = |one: &MatrixSeries| {
                let samples = samples(one.times.capacity(), one.values.capacity());
                (size_of_val(one) + one.labels.heap_bytes() + samples) as u64
            };
            series.iter().map(one_bytes).sum()
        }
    }
}

/// How long the parts of a query took.
#[derive(Clone, Copy)]
struct Timings {
    queue_ns: u64,
    preparation_ns: u64,
    evaluation_ns: u64,
}

fn print(
    result: &QueryResult,
    request: &Checked,
    timings: Timings,
    ctx: &ReadContext,
) -> Result<Printer, ApiError> {
    let mut printer = Printer::open(ctx)?;
    let truncated = print_value(&result.value, request.limit, &mut printer, ctx)?;
    if request.with_stats {
        put_stats(&mut printer.out, timings, result);
    }
    printer.out.push(b'}');
    if truncated {
        let mut warnings = result.warnings.clone();
        warnings.push(TRUNCATED_WARNING.to_owned());
        return printer.close(ctx, &warnings, &result.infos);
    }
    printer.close(ctx, &result.warnings, &result.infos)
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
                printer.out.extend_from_slice(b",\"value\":");
                json::put_sample(&mut printer.out, sample.time_ms, sample.value);
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
                printer.out.extend_from_slice(b",\"values\":");
                put_samples(&mut printer.out, &one.times, &one.values);
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

fn put_stats(out: &mut Vec<u8>, timings: Timings, result: &QueryResult) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let (queue, preparation) = (seconds(timings.queue_ns), seconds(timings.preparation_ns));
    let inner = seconds(timings.evaluation_ns);
    let evaluation = preparation + inner;
    let total = queue + evaluation;
    let (read, peak) = (result.samples_read, result.samples_peak);
    json::put_display(
        out,
        format_args!(
            ",\"stats\":{{\"timings\":{{\"evalTotalTime\":{evaluation},\"resultSortTime\":0,\
             \"queryPreparationTime\":{preparation},\"innerEvalTime\":{inner},\"execQueueTime\":{queue},\
             \"execTotalTime\":{total}}},\"samples\":{{\"totalQueryableSamples\":{read},\"peakSamples\":{peak}}}}}"
        ),
    );
}

/// What the engine says of a query that has no steps; upstream finds it before it runs the query.
const WRONG_TYPE_TEXT: &str = "invalid expression type";

/// Maps what stopped an evaluation to upstream's kinds.
fn eval_error(error: EvalError) -> ApiError {
    match error {
        EvalError::Query(error) => error.into(),
        EvalError::Execution(why) if why.starts_with(WRONG_TYPE_TEXT) => ApiError::parameter("query", why),
        other => ApiError::new(ErrorKind::Execution, other),
    }
}
