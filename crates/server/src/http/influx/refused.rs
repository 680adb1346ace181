//! Endpoints of InfluxDB that are refused.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, StatusCode, header};

use crate::http::body;

/// `POST /api/v2/query`: Flux. The answer is plain text: Chronograf takes JSON here for a server with Flux.
pub(in crate::http) async fn flux(request: Request) -> Response<Body> {
    body::discard(request.into_body()).await;
    let text = "Flux query service disabled. Verify flux-enabled=true in the [http] section of the InfluxDB config.\n";
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
