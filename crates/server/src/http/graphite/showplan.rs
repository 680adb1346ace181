//! `/showplan`: what `/render` with the same parameters fetches, without reading points.
//!
//! Invariants: targets are evaluated over series without values, so that fetches of functions for other
//! ranges are shown; a request that `/render` refuses before it reads points is refused with the same text.
//! Not here: the choice of archives, the series (`service::graphite`).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_graphite::{Consolidation, Request as Targets};
use chronolith_model::GraphiteLimits;
use chronolith_service::graphite::fetch_log::{FetchLog, LoggedFetch};
use chronolith_service::graphite::source::Reading;
use serde_json::{Value, json};

use super::answer;
use super::render::{evaluated, targets_of};
use crate::http::call;
use crate::http::dispatch;
use crate::http::error::{ApiError, text};
use crate::http::printer::Printer;
use crate::web::Web;

/// `GET` and `POST /showplan`.
pub(in crate::http) async fn showplan(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    match respond(&web, request).await {
        Ok(response) => response,
        Err(error) => text(error.kind.status(), &error.message),
    }
}

async fn respond(web: &Arc<Web>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = call::open(web, request).await?;
    let now_s = web.service.env.clock.now_ms().div_euclid(1000);
    let targets = targets_of(&call, now_s)?;
    let identity = call.identity.clone();
    let timeout_ms = web.service.options.query.timeout_ms;
    let printed = dispatch::run(web, &identity, timeout_ms, move |web, ctx| {
        let log = evaluated(web, &call, &targets, Reading::Plan, ctx)?.log;
        let plan = plan_of(&targets, &log, web.service.limits_of(&call.tenant).queries.graphite);
        let mut printer = Printer::new(ctx)?;
        printer.out = answer::text_of(&plan, &call).into_bytes();
        printer.settle(ctx)?;
        Ok(printer)
    });
    Ok(printed.await?.into_response("application/json"))
}

fn plan_of(targets: &Targets, log: &FetchLog, limits: GraphiteLimits) -> Value {
    json!({
        "targets": targets.targets,
        "from": targets.range.start.seconds,
        "until": targets.range.end.seconds,
        "max-data-points": targets.max_data_points,
        "fetches": log.fetches.iter().map(|fetch| fetch_of(fetch, log)).collect::<Vec<_>>(),
        "limits": {
            "graphite.max-series": limits.series_max,
            "graphite.max-points": limits.points_max,
            "graphite.max-points-soft": limits.points_soft,
            "graphite.max-targets": limits.targets_max,
            "graphite.max-nodes": limits.nodes_max,
        },
    })
}

fn fetch_of(fetch: &LoggedFetch, log: &FetchLog) -> Value {
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    for series in &fetch.series {
        *counts.entry(series.archive_idx).or_default() += 1;
    }
    let archives = counts.iter().filter_map(|(idx, count)| Some(log.archive(*idx)?.to_json(*count)));
    let request = &fetch.request;
    json!({
        "expression": request.expression,
        "from": request.from,
        "until": request.until,
        "consolidation-hint": request.consolidation_hint.as_ref().map(Consolidation::name),
        "max-points-hint": request.points_hint,
        "max-points-per-series": fetch.points_max,
        "archives": archives.collect::<Vec<_>>(),
    })
}
