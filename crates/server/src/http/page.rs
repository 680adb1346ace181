//! The web interface over HTTP: one document at the addresses of all pages, and its files.
//!
//! Invariants: every answer has the policy, which lets a page load and ask nothing but this server; a file is
//! `immutable`, since its path has the content hash; addresses in the document are relative, so that a proxy
//! may add a prefix to the path.
//! Not here: the files (`chronolith-ui`), what a page shows (`crates/ui/web`).

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use chronolith_ui::Files;

use super::compress;
use super::error::text;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      require-trusted-types-for 'script'";
/// Caches keep a file for a year and do not ask for it again.
const FOREVER: &str = "public, max-age=31536000, immutable";
/// Parameters of an InfluxQL request; Prometheus's pages have neither.
const INFLUXQL_PARAMETERS: [&str; 2] = ["q", "db"];
/// Prefix of the parameters of Prometheus's query page.
const PANEL_PREFIX: &str = "g0.";

static FILES: LazyLock<Files> = LazyLock::new(Files::load);

/// The document, which reads its address by itself.
pub(super) async fn page() -> Response<Body> {
    answer(Body::from(FILES.page()), "text/html; charset=utf-8", "no-cache")
}

/// Returns true if a request to `/query` means the page, not an InfluxQL statement.
pub(super) fn is_page_request(request: &Request) -> bool {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return false;
    }
    let query = request.uri().query().unwrap_or("");
    let mut names = query.split('&').map(|pair| pair.split('=').next().unwrap_or(pair));
    if names.clone().any(|name| INFLUXQL_PARAMETERS.contains(&name)) {
        return false;
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    names.any(|name| name.starts_with(PANEL_PREFIX)) || accept.contains("text/html")
}

pub(super) async fn file(Path(address): Path<(String, String)>, headers: HeaderMap) -> Response<Body> {
    let found = (address.0 == FILES.hash()).then(|| FILES.get(&address.1)).flatten();
    let Some(file) = found else {
        let mut response = text(StatusCode::NOT_FOUND, "404 page not found");
        set(&mut response, header::CONTENT_SECURITY_POLICY, POLICY);
        return response;
    };
    let packed = file.gzip.as_ref().filter(|_| compress::takes_stored_gzip(&headers));
    let bytes = packed.unwrap_or(&file.bytes).clone();
    let mut response = answer(Body::from(bytes), file.content_type, FOREVER);
    if packed.is_some() {
        set(&mut response, header::CONTENT_ENCODING, "gzip");
    }
    set(&mut response, header::VARY, "accept-encoding");
    response
}

fn answer(body: Body, content_type: &'static str, caching: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    set(&mut response, header::CONTENT_TYPE, content_type);
    set(&mut response, header::CACHE_CONTROL, caching);
    set(&mut response, header::CONTENT_SECURITY_POLICY, POLICY);
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut response, header::REFERRER_POLICY, "no-referrer");
    response
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}
