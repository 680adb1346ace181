//! Graphite over HTTP: carbon lines and metrics 2.0 in, the newest refused points, targets, paths, tags and
//! events out.
//!
//! Invariants: 204 means that the points are durable and none was refused; 400 counts the refused ones and
//! names the newest, while the others are stored.
//! Not here: listeners (`serve::carbon`), the append (`service::carbon`).

pub(super) mod absent;
mod answer;
pub(super) mod delete;
pub(super) mod events;
pub(super) mod find;
mod lineage;
pub(super) mod listing;
pub(super) mod meta_tags;
pub(super) mod metadata;
pub(super) mod render;
pub(super) mod showplan;
pub(super) mod tags;
mod write;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::utc::rfc3339_ms;
use chronolith_cluster::gateway::LogOffsets;
use chronolith_ingest::carbon::{Archive, RefusedReason, RuleName};
use serde_json::{Value, json};

use self::write::Form;
use super::error::{ApiError, text};
use super::offsets;
use super::params::Params;
use super::status::success;
use crate::web::Web;

/// Version of graphite-web that clients ask for.
const GRAPHITE_WEB_VERSION: &str = "1.1.10";

/// `GET /version/`: the version of graphite-web whose answers these are; `/version` is Prometheus's.
pub(super) async fn version() -> Response<Body> {
    text(axum::http::StatusCode::OK, GRAPHITE_WEB_VERSION)
}

/// `POST /api/v1/carbon`: plaintext lines, plain or gzip.
pub(super) async fn write_lines(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(write::receive(&web, Form::Lines, request).await)
}

/// `POST /metrics`: metrics 2.0 as JSON, plain or gzip.
pub(super) async fn write_metrics(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer(write::receive(&web, Form::Metrics, request).await)
}

fn answer(received: Result<LogOffsets, ApiError>) -> Response<Body> {
    match received {
        Ok(offsets) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = axum::http::StatusCode::NO_CONTENT;
            offsets::set(&offsets, &mut response);
            response
        }
        Err(error) => text(error.kind.status(), &error.message),
    }
}

/// `GET /api/v1/graphite/refused`: the newest refused point of each input and reason; `reason` selects one.
pub(super) async fn refused(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let mut params = Params::default();
    params.parse(request.uri().query().unwrap_or(""))?;
    let reason = params.get("reason").filter(|reason| !reason.is_empty());
    if let Some(unknown) = reason.filter(|name| RefusedReason::ALL.iter().all(|r| r.label() != *name)) {
        let known = RefusedReason::ALL.map(RefusedReason::label).join(", ");
        let why = format!("unknown reason {unknown:?}, expected one of {known}");
        return Err(ApiError::parameter("reason", why));
    }
    let newest = web.service.carbon.inputs().iter().flat_map(|input| input.newest_refused());
    let selected = newest.filter(|refused| reason.is_none_or(|reason| refused.reason.label() == reason));
    let values: Vec<Value> = selected
        .map(|refused| {
            json!({
                "input": refused.input,
                "reason": refused.reason.label(),
                "why": refused.reason.message(),
                "count": refused.count,
                "line": refused.text,
                "time": rfc3339_ms(refused.time_ms),
            })
        })
        .collect();
    Ok(success(&Value::Array(values)))
}

/// `GET /api/v1/graphite/explain`: the rules that apply to a path.
pub(super) async fn explain(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let mut params = Params::default();
    params.parse(request.uri().query().unwrap_or(""))?;
    let path = params.get("path").filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| ApiError::parameter("path", "is missing"))?;
    let explanation = web.service.carbon.rules().explain(path);
    let rule = |rule: &Option<RuleName>| {
        rule.as_ref().map(|rule| json!({ "section": rule.section, "pattern": rule.pattern }))
    };
    let buffer = explanation
        .reorder_buffer
        .map(|buffer| json!({ "points": buffer.point_count, "allowsUpdate": buffer.allows_update }));
    let methods: Vec<&str> = explanation.methods.iter().map(|method| method.name()).collect();
    Ok(success(&json!({
        "path": explanation.path,
        "rewriteRule": explanation.rewrite_rule.as_ref().map(|rule| &rule.section),
        "storedPath": explanation.stored_path.as_ref().ok(),
        "notStored": explanation.stored_path.as_ref().err().map(|reason| reason.message()),
        "schema": rule(&explanation.schema),
        "archives": explanation.archives.iter().map(archive_json).collect::<Vec<_>>(),
        "reorderBuffer": buffer,
        "aggregation": rule(&explanation.aggregation),
        "methods": methods,
        "xFilesFactor": explanation.x_files_factor,
    })))
}

/// An archive as the rules of a path have it.
fn archive_json(archive: &Archive) -> Value {
    json!({ "stepSeconds": archive.step_s, "points": archive.point_count })
}

#[cfg(test)]
mod tests;
