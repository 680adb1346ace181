//! `query_cost` and `query_range_cost`: estimates of what a query would read, without running it.
//!
//! Invariants: parameters are the ones of `query` and `query_range`, checked in Prometheus's order and with
//! its texts, also parameters that an estimate does not use. Without the feature `query-cost` there are no
//! such paths.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::response::IntoResponse as _;
use chronolith_promql::engine::Query;

use super::start_times::StartTimesHeader;
use super::{EvalTimes, eval_error, explain, lookback_ms, parse, steps, timeout_ms};
use crate::http::call::{self, Call};
use crate::http::error::{ApiError, ErrorKind};
use crate::http::params::{NS_PER_MS, Params, int_fault, parse_duration_ns, show_duration_ns};
use crate::http::printer::Printer;
use crate::http::{dispatch, paths};
use crate::json;
use crate::web::Web;

pub(in crate::http) async fn instant(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    if !web.service.options.features.query_cost {
        return paths::unknown(request).await;
    }
    let start_times = StartTimesHeader::of(&request);
    let answer = async {
        let call = call::open(&web, request).await?;
        check_unused(&call.params)?;
        let time_ms = call.params.time_ms("time", web.service.env.clock.now_ms())?;
        estimate(&web, call, EvalTimes::At(time_ms), &start_times).await
    };
    answer.await.unwrap_or_else(|error: ApiError| error.into_response())
}

pub(in crate::http) async fn range(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    if !web.service.options.features.query_cost {
        return paths::unknown(request).await;
    }
    let start_times = StartTimesHeader::of(&request);
    let answer = async {
        let call = call::open(&web, request).await?;
        check_unused(&call.params)?;
        let times = steps(&call.params)?;
        let times = if web.service.options.query.align_steps { times.aligned() } else { times };
        estimate(&web, call, times, &start_times).await
    };
    answer.await.unwrap_or_else(|error: ApiError| error.into_response())
}

/// Checks parameters that only shape the response of a query that runs.
fn check_unused(params: &Params) -> Result<(), ApiError> {
    params.limit("limit")?;
    let is_bool = |text: &&str| {
        matches!(*text, "1" | "t" | "T" | "TRUE" | "true" | "True")
            || matches!(*text, "0" | "f" | "F" | "FALSE" | "false" | "False")
    };
    match params.get("cost").filter(|text| !is_bool(text)) {
        None => Ok(()),
        Some(_) => Err(ApiError::parameter("cost", "must be a boolean")),
    }
}

/// Checks the limits that a request sets itself, and returns the shortest time limit. An estimate counts
/// neither series nor samples against them, as in Prometheus.
fn own_limits(web: &Web, params: &Params) -> Result<u64, ApiError> {
    for name in ["max_series", "max_samples_read"] {
        let Some(text) = params.get(name) else { continue };
        // Rust reads a sign that Go does not.
        let number = if text.starts_with('+') { "+".parse::<u64>() } else { text.parse() };
        number.map_err(|error| {
            let why = int_fault(text, &error, "ParseUint");
            ApiError::bad_request(format_args!("error parsing {name}: {why}"))
        })?;
    }
    let most_ms = web.service.options.query.timeout_ms;
    let Some(text) = params.get("max_query_duration") else { return Ok(most_ms) };
    let refused =
        |why: String| ApiError::bad_request(format_args!("error parsing max_query_duration: {why}"));
    let ns = parse_duration_ns(text).map_err(refused)?;
    let Ok(positive_ns) = u64::try_from(ns) else {
        return Err(refused(format!("must not be negative, got {}", show_duration_ns(ns))));
    };
    let most_ns = most_ms.saturating_mul(NS_PER_MS as u64);
    if positive_ns > most_ns {
        let ceiling = show_duration_ns(i64::try_from(most_ns).unwrap_or(i64::MAX));
        return Err(ApiError::bad_request(format_args!(
            "requested max_query_duration of {} exceeds the server limit of {ceiling}",
            show_duration_ns(ns)
        )));
    }
    Ok(if positive_ns == 0 { most_ms } else { positive_ns.div_ceil(NS_PER_MS as u64) })
}

async fn estimate(
    web: &Arc<Web>,
    call: Call,
    times: EvalTimes,
    start_times: &StartTimesHeader,
) -> Result<Response<Body>, ApiError> {
    let timeout_ms = timeout_ms(web, &call.params)?;
    let lookback_ms = lookback_ms(&call.params)?;
    let engine = start_times.engine(web)?;
    let timeout_ms = timeout_ms.min(own_limits(web, &call.params)?);
    let identity = call.identity.clone();
    let (start_ms, end_ms, step_ms) = times.bounds();
    let printed = dispatch::run(web, &identity, timeout_ms, move |web, ctx| {
        let expr = parse(web, &call.params)?;
        let text = call.params.get("query").unwrap_or("");
        let query = Query { text, expr: &expr, start_ms, end_ms, step_ms, lookback_ms };
        let source = ctx.source_of(&web.service, &call.identity)?;
        let cost =
            engine.estimate_cost(&*source, &query, ctx).map_err(|error| too_slow(eval_error(error)))?;
        let mut printer = Printer::open(ctx)?;
        let series = cost.series;
        let samples = cost.samples;
        json::put_display(
            &mut printer.out,
            format_args!("{{\"estimate\":{{\"seriesTouched\":{series},\"samplesRead\":{samples}}}}}"),
        );
        let mut warnings = cost.warnings;
        warnings.extend(explain::stats_warning(call.params.get("stats")));
        printer.close(ctx, &warnings, &[])
    });
    Ok(printed.await?.into_json())
}

/// An estimate that is over time has another text than a query.
fn too_slow(error: ApiError) -> ApiError {
    if error.kind != ErrorKind::Timeout {
        return error;
    }
    let why = "cost estimation exceeded the query duration limit: context deadline exceeded";
    ApiError::new(ErrorKind::Timeout, why)
}
