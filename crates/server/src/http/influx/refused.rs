//! Endpoints of InfluxDB that are refused.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};

use super::reply::InfluxError;
use crate::http::body;

/// `POST /api/v2/query`: Flux.
pub(super) async fn flux(request: Request) -> Response<Body> {
    body::discard(request.into_body()).await;
    let text =
        "Flux query service disabled. Verify flux-enabled=true in the [http] section of the InfluxDB config.";
    InfluxError::new(StatusCode::FORBIDDEN, text).into_response()
}
