//! `status/active_queries` and its `kill`: endpoints of our own.
//! Invariants: with multi-tenancy a tenant sees and kills its own queries only. Not here: the list
//! (`service::activity::active_queries`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_service::activity::active_queries::ActiveQuery;
use serde_json::{Value, json};

use super::call;
use super::error::{ApiError, ErrorKind};
use super::status::success;
use crate::web::Web;

pub(super) async fn list(State(web): State<Arc<Web>>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let tenant = web.service.options.multitenancy.then_some(&call.tenant);
    let now_ns = web.service.env.clock.mono_ns();
    let queries: Value =
        web.service.queries.active.list(tenant).iter().map(|query| show(query, now_ns)).collect();
    Ok(success(&json!({
        "queries": queries, "waiting": web.service.admission.query.queue.waiting(), "killed": web.service.queries.active.killed_count(),
    })))
}

pub(super) async fn kill(State(web): State<Arc<Web>>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let tenant = web.service.options.multitenancy.then_some(&call.tenant);
    let id = match call.params.number("id") {
        None => return Err(ApiError::parameter("id", "the id of a query at work is missing")),
        Some(number) => number.ok().and_then(|id| u64::try_from(id).ok()),
    };
    let id = id.ok_or_else(|| ApiError::parameter("id", "not a positive whole number"))?;
    if !web.service.queries.active.kill(id, tenant) {
        let why = format!("no active query with id {id}; it may have ended");
        return Err(ApiError::new(ErrorKind::NotFound, why));
    }
    tracing::info!(id, tenant = %call.tenant, "query killed");
    Ok(success(&json!({ "killed": id })))
}

fn show(query: &ActiveQuery, now_ns: u64) -> Value {
    let (start_ms, end_ms, step_ms) = query.times_ms;
    json!({
        "id": query.id,
        "tenant": query.tenant.as_str(),
        "language": query.language.as_str(),
        "query": query.text,
        "startMs": start_ms,
        "endMs": end_ms,
        "stepMs": step_ms,
        "ageMs": now_ns.saturating_sub(query.started_mono_ns) / 1_000_000,
        "memoryBytes": query.budget.used_bytes(),
        "memoryPeakBytes": query.budget.peak_bytes(),
        "series": query.trace.series_selected(),
        "samples": query.trace.samples_read(),
    })
}
