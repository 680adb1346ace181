//! Recent activity: `status/tenants`, `status/rejects`, `status/top_queries`, `status/metric_usage`.
//! Endpoints of our own.
//!
//! Invariants: with multi-tenancy a tenant sees its own entries only, but for `status/tenants`, which is for
//! operators as `status/memory` is: it lists all tenants and needs none. Every list has a limit.
//! Not here: recording (`service::activity`), rows of metrics (`metrics`).

pub(super) mod metrics;
mod parameters;
pub(super) mod tenants;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_service::activity::advice::advice_of;
use chronolith_service::activity::entry::MINUTE_COUNT;
use chronolith_service::activity::rejects::{RejectCounts, RejectExample};
use chronolith_service::activity::top_queries::{QueryCounts, QueryKey, QueryLanguage};
use chronolith_service::metrics::tenants::OVERFLOW;
use serde_json::{Value, json};

use self::parameters::{LIMIT_DEFAULT, limit, sort};
use super::call::{self, Call};
use super::dispatch;
use super::error::ApiError;
use super::status::success;
use crate::web::Web;

/// Default of `limit` for queries.
const QUERIES_DEFAULT: usize = 20;

pub(super) async fn rejects(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let limit = limit(&call.params, LIMIT_DEFAULT)?;
    let value = dispatch::run_status(&web, move |web| {
        let now_ms = web.service.env.clock.now_ms();
        let list = web.service.writes.rejects.list(own_tenant(web, &call), now_ms, limit);
        json!({
            "minutes": MINUTE_COUNT,
            "endMs": now_ms,
            "counts": list.counts.iter().map(counts_value).collect::<Vec<_>>(),
            "examples": list.examples.iter().map(example_value).collect::<Vec<_>>(),
        })
    });
    Ok(success(&value.await?))
}

/// The tenant of the entries in an answer; `None` for all.
fn own_tenant<'a>(web: &Web, call: &'a Call) -> Option<&'a chronolith_model::TenantId> {
    web.service.options.multitenancy.then_some(&call.tenant)
}

fn counts_value(counts: &RejectCounts) -> Value {
    json!({
        "tenant": counts.tenant.as_ref().map_or(OVERFLOW, |tenant| tenant.as_str()),
        "reason": counts.reason,
        "total": counts.total,
        "perMinute": counts.per_minute,
    })
}

fn example_value(entry: &RejectExample) -> Value {
    let advice = advice_of(entry.reason);
    let example = &entry.example;
    json!({
        "tenant": entry.tenant.as_ref().map_or(OVERFLOW, |tenant| tenant.as_str()),
        "reason": entry.reason,
        "series": example.series,
        "timeMs": example.time_ms,
        "seenMs": example.seen_ms,
        "sender": example.sender,
        "count": example.count,
        "setting": advice.setting,
        "advice": advice.text,
    })
}

pub(super) async fn top_queries(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let limit = limit(&call.params, QUERIES_DEFAULT)?;
    let sort = sort(&call.params, &["seconds", "count", "samples"])?;
    let value = dispatch::run_status(&web, move |web| {
        let mut list = web.service.queries.top.list(own_tenant(web, &call), web.service.env.clock.now_ms());
        let rank = |counts: &QueryCounts| match sort {
            "count" => counts.count,
            "samples" => counts.sample_count,
            _ => counts.duration_ns,
        };
        list.queries.sort_by(|(a_key, a), (b_key, b)| {
            rank(b).cmp(&rank(a)).then_with(|| a_key.text.cmp(&b_key.text))
        });
        let shown = list.queries.iter().take(limit);
        json!({
            "minutes": MINUTE_COUNT,
            "queries": shown.map(|(key, counts)| query_value(key, counts)).collect::<Vec<_>>(),
            "dropped": list.dropped_count,
        })
    });
    Ok(success(&value.await?))
}

fn query_value(key: &QueryKey, counts: &QueryCounts) -> Value {
    // The engine of InfluxQL does not count the samples that it reads.
    let samples = (key.language != QueryLanguage::InfluxQl).then_some(counts.sample_count);
    json!({
        "tenant": key.tenant.as_str(),
        "language": key.language.as_str(),
        "query": key.text,
        "count": counts.count,
        "errors": counts.error_count,
        "seconds": counts.duration_ns as f64 / 1e9,
        "maxSeconds": counts.duration_max_ns as f64 / 1e9,
        "samples": samples,
        "lastMs": counts.last_ms,
    })
}
