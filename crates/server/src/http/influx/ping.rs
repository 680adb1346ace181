//! Liveness, health and version: `/ping`, `/health`, `/status`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};

use crate::http::params::Params;
use crate::web::Web;

/// `GET|HEAD /ping`: 204; with `verbose` 200 and the version.
pub(in crate::http) async fn ping(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let mut params = Params::default();
    // A query string that cannot be read asks for nothing.
    let _ = params.parse(request.uri().query().unwrap_or(""));
    let is_verbose = params.get("verbose").is_some_and(|value| !matches!(value, "" | "0" | "false"));
    if !is_verbose {
        return empty();
    }
    json(StatusCode::OK, serde_json::json!({ "version": web.service.options.influx.version }))
}

/// `GET /status`: 204.
pub(in crate::http) async fn status() -> Response<Body> {
    empty()
}

/// `GET /health`: 200 if queries and writes are answered, else 503.
pub(in crate::http) async fn health(State(web): State<Arc<Web>>) -> Response<Body> {
    let reason = web.service.lifecycle.unready_reason();
    let (code, status) = match reason {
        None => (StatusCode::OK, "pass"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "fail"),
    };
    let message = reason.unwrap_or_else(|| "ready for queries and writes".to_owned());
    let version = web.service.options.influx.version.as_str();
    json(
        code,
        serde_json::json!({
            "checks": [], "message": message, "name": "influxdb", "status": status, "version": version,
        }),
    )
}

fn empty() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn json(status: StatusCode, value: serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
