//! Pages of graphite-web that Grafana replaces: dashboards, composer, browser, accounts.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};

use crate::http::body;
use crate::http::error::text;

pub(in crate::http) async fn refuse(request: Request) -> Response<Body> {
    body::discard(request.into_body()).await;
    text(StatusCode::NOT_FOUND, "use Grafana; /render is here")
}
