//! InfluxDB 1.x API: `/write`, `/query`, `/ping` and what goes with them.
//!
//! Invariants: every response has InfluxDB's headers; an error is `{"error": ...}` and the header
//! `X-Influxdb-Error`, in the words of InfluxDB 1.8.
//! Not here: the line protocol (`ingest`), statements (`influxql`), databases (`tsdb`).

pub(crate) mod credentials;
pub(super) mod ping;
mod printer;
pub(super) mod prometheus;
pub(super) mod query;
pub(super) mod refused;
pub(crate) mod reply;
pub(super) mod vars;
pub(super) mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Response};
use axum::middleware::Next;

use super::request::{REQUEST_ID_HEADER, RequestInfo};
use crate::web::Web;

const VERSION_HEADER: HeaderName = HeaderName::from_static("x-influxdb-version");
const BUILD_HEADER: HeaderName = HeaderName::from_static("x-influxdb-build");
const ID_HEADER: HeaderName = HeaderName::from_static("request-id");

/// Adds version, build and request id to a response.
pub(super) async fn add_headers(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response<Body> {
    let info = RequestInfo::of(request.extensions());
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if let Ok(version) = HeaderValue::try_from(web.service.options.influx.version.as_str()) {
        headers.insert(VERSION_HEADER, version);
    }
    headers.insert(BUILD_HEADER, HeaderValue::from_static("OSS"));
    if let Some(id) = info.id.to_header() {
        headers.insert(ID_HEADER, id.clone());
        headers.insert(REQUEST_ID_HEADER, id);
    }
    response
}
