//! Status API: build and runtime information, settings, progress of the WAL replay, cardinality of the head
//! or of selected series (`status/tsdb`), storage and memory by part.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use chronolith_base::utc::rfc3339_seconds;
use chronolith_model::TimeRange;
use serde_json::{Value, json};

use super::call;
use super::cardinality;
use super::dispatch;
use super::error::ApiError;
use super::params::Params;
use super::series;
use crate::exposition::memory::Memory;
use crate::limits::CARDINALITY_LIMIT_MAX;
use crate::version::BuildInfo;
use crate::web::Web;

/// Prometheus release whose query API and language clients may expect (ADR 0006). Grafana compares it with
/// releases of 2.x only (2.24: label values with `match[]`), so every 3.x number enables the same requests.
const API_VERSION: &str = "3.16.0";
/// Entries of each list of `status/tsdb`, as in Prometheus.
const CARDINALITY_LIMIT: usize = 10;
/// Time before now: a query node counts series with samples in it, since it has no head.
const HEAD_MS: i64 = 2 * 3_600_000;

/// Tenants of `status/memory`, those with most first.
const MEMORY_TENANTS: usize = 10;

pub(super) fn success(data: &Value) -> Response<Body> {
    // The status first, as Prometheus prints it: scripts look for the beginning of the answer.
    plain_json(format!("{{\"status\":\"success\",\"data\":{data}}}"))
}

pub(super) fn plain_json(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn build_value(web: &Web) -> Value {
    let BuildInfo { revision, branch, date, features } = web.options.web.build;
    let mut value = json!({
        "version": API_VERSION,
        "revision": revision,
        "branch": branch,
        "buildUser": "",
        "buildDate": date,
        "goVersion": "",
        "features": features,
        "application": "Chronolith",
        "chronolithVersion": crate::version::VERSION,
    });
    if web.options.web.mimir_buildinfo {
        value["application"] = "Grafana Mimir".into();
        value["chronolithFeatures"] = value["features"].take();
        value["features"] = mimir_features(web);
    }
    value
}

/// Features of a Mimir, as texts. Grafana lets people edit rules if the first one is "true".
fn mimir_features(web: &Web) -> Value {
    let lifecycle = &web.service.lifecycle;
    let has_store = lifecycle.roles.roles().is_all() && !lifecycle.is_read_only();
    let has_rules_api = web.options.web.rules_api && has_store;
    json!({
        "ruler_config_api": if has_rules_api { "true" } else { "false" },
        "alertmanager_config_api": "false",
        "query_sharding": "false",
        "federated_rules": "false",
    })
}

pub(super) async fn build(State(web): State<Arc<Web>>) -> Response<Body> {
    success(&build_value(&web))
}

pub(super) async fn version(State(web): State<Arc<Web>>) -> Response<Body> {
    plain_json(build_value(&web).to_string())
}

/// A list that has no entries: notifications of the web interface of Prometheus.
pub(super) async fn empty_list() -> Response<Body> {
    success(&json!([]))
}

pub(super) async fn runtime(State(web): State<Arc<Web>>) -> Response<Body> {
    let shown = web.configuration.shown.read();
    let stats = web.service.lifecycle.opened().map(|store| store.statistics().stats()).unwrap_or_default();
    let retention = match web.service.default_limits().retention_ms {
        0 => "unlimited".to_owned(),
        ms => chronolith_model::duration::show_duration_ms(ms),
    };
    success(&json!({
        "startTime": rfc3339_seconds(web.service.started_ms),
        "serverTime": rfc3339_seconds(web.service.env.clock.now_ms()),
        "reloadConfigSuccess": shown.reload_ok,
        "lastConfigTime": rfc3339_seconds(shown.reloaded_ms),
        "corruptionCount": stats.replay.notes.len(),
        "goroutineCount": 0,
        "GOMAXPROCS": chronolith_base::thread::core_count(),
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": retention,
        "hostname": "",
        "CWD": "",
    }))
}

fn cardinality_limit(params: &Params) -> Result<usize, ApiError> {
    let Some(number) = params.number("limit") else { return Ok(CARDINALITY_LIMIT) };
    match number.ok().and_then(|number| usize::try_from(number).ok()).filter(|limit| *limit > 0) {
        None => Err(ApiError::bad_request("limit must be a positive number")),
        Some(limit) if limit > CARDINALITY_LIMIT_MAX => {
            Err(ApiError::bad_request(format!("limit must not exceed {CARDINALITY_LIMIT_MAX}")))
        }
        Some(limit) => Ok(limit),
    }
}

pub(super) async fn tsdb(State(web): State<Arc<Web>>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let limit = cardinality_limit(&call.params)?;
    let mut selectors = series::all_selectors(&call.params)?;
    let mut range = series::time_range(&call.params)?;
    let has_parameters =
        ["match[]", "start", "end"].iter().any(|name| call.params.all(name).any(|text| !text.is_empty()));
    // A query node has no head: its owners have the series with samples of the last two hours.
    let is_selected = has_parameters || web.query_node().is_some();
    if is_selected && !has_parameters {
        range = TimeRange::new(web.service.env.clock.now_ms().saturating_sub(HEAD_MS), i64::MAX);
    }
    if selectors.is_empty() {
        selectors.push(Vec::new());
    }
    let identity = call.identity.clone();
    let value = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        // A read-only server has no head.
        let store = web.service.lifecycle.opened();
        let sees_all = call.identity.sees_all_series();
        // Counts of the head are about all series.
        let stats = store.filter(|_| sees_all).map(|store| store.statistics().head_stats_of(&call.tenant));
        let stats = stats.unwrap_or_default();
        let cardinality = if is_selected || !sees_all {
            let source = ctx.source_of(&web.service, &call.identity)?;
            cardinality::of_selected(&*source, &selectors, range, limit, ctx)?
        } else {
            store.map(|store| store.statistics().cardinality(&call.tenant, limit)).unwrap_or_default()
        };
        let list = |entries: &[(String, u64)]| -> Value {
            entries.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
        };
        Ok(json!({
            // With selectors, of the selected series.
            "headStats": {
                "numSeries": cardinality.series_count,
                "numLabelPairs": cardinality.label_pair_count,
                "chunkCount": stats.chunk_count,
                "minTime": stats.min_time_ms.unwrap_or(i64::MAX),
                "maxTime": stats.max_time_ms.unwrap_or(i64::MIN),
            },
            "seriesCountByMetricName": list(&cardinality.series_by_metric),
            "labelValueCountByLabelName": list(&cardinality.values_by_label),
            "memoryInBytesByLabelName": list(&cardinality.bytes_by_label),
            "seriesCountByLabelValuePair": list(&cardinality.series_by_pair),
        }))
    });
    Ok(success(&value.await?))
}

/// Sizes for the start page. An endpoint of our own; answers during the replay, too.
pub(super) async fn storage(State(web): State<Arc<Web>>) -> Result<Response<Body>, ApiError> {
    let value = dispatch::run_status(&web, storage_value).await?;
    Ok(success(&value))
}

fn storage_value(web: &Web) -> Value {
    let stats = web.service.lifecycle.opened().map(|store| store.statistics().stats()).unwrap_or_default();
    let is_ready = web.service.lifecycle.unready_reason().is_none();
    json!({
        "ready": is_ready,
        "progress": if is_ready { Value::Null } else { Value::from(web.service.lifecycle.replay_text()) },
        "version": crate::version::VERSION,
        "startTime": rfc3339_seconds(web.service.started_ms),
        "tenants": stats.tenants,
        "headSeries": stats.head.series,
        "headChunks": stats.head.chunks,
        "headMinTime": stats.head.min_time_ms,
        "headMaxTime": stats.head.max_time_ms,
        "blocks": stats.blocks,
        "blockBytes": stats.block_bytes,
        "diskFreeBytes": stats.disk_free_bytes,
        "walBytes": stats.head.wal.segment_bytes + stats.head.checkpoint.bytes,
        "samplesAppended": stats.head.samples.appended,
        "samplesRejected": web.service.writes.metrics.samples_rejected_count(),
        "replayMs": stats.replay.ms,
        "replayNotes": stats.replay.notes,
        "walPoisoned": stats.head.wal.is_poisoned,
        "diskFull": stats.head.wal.is_disk_full,
        "multitenancy": web.service.options.multitenancy,
    })
}

/// Memory of the process by consumer. An endpoint of our own; answers during the replay, too.
pub(super) async fn memory(State(web): State<Arc<Web>>) -> Result<Response<Body>, ApiError> {
    let value = dispatch::run_status(&web, |web| Memory::read(web, MEMORY_TENANTS).to_json()).await?;
    Ok(success(&value))
}

pub(super) async fn flags(State(web): State<Arc<Web>>) -> Response<Body> {
    let shown = web.configuration.shown.read();
    let settings = shown.settings.iter().map(|one| (one.name.clone(), Value::from(one.value.as_str())));
    success(&Value::Object(settings.collect()))
}

/// Settings with their defaults and sources. An endpoint of our own.
pub(super) async fn settings(State(web): State<Arc<Web>>) -> Response<Body> {
    let shown = web.configuration.shown.read();
    let settings = shown.settings.iter().map(
        |one| json!({ "name": one.name, "value": one.value, "default": one.default, "origin": one.origin }),
    );
    success(&settings.collect())
}

pub(super) async fn config(State(web): State<Arc<Web>>) -> Response<Body> {
    success(&json!({ "yaml": web.configuration.shown.read().config_yaml }))
}

pub(super) async fn replay(State(web): State<Arc<Web>>) -> Response<Body> {
    let at = web.service.lifecycle.replay_snapshot();
    success(&json!({ "min": at.segment_first, "max": at.segment_last, "current": at.segment_now }))
}
