//! The start page: one file, nothing loaded from elsewhere. Not here: its look (`page.html`).

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};

const PAGE: &str = include_str!("page.html");
/// The page may run its own script and talk to its own server, nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

pub(super) async fn page() -> Response<Body> {
    let mut response = Response::new(Body::from(PAGE));
    let mut set = |name, value| response.headers_mut().insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::CACHE_CONTROL, "no-cache");
    response
}
