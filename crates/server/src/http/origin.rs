//! Pages of other origins: which may read answers (CORS), and which may change something.
//!
//! Invariants: without `--web.cors.origin` no page of another origin reads an answer (no CORS headers), and
//! none writes, deletes, reloads or kills: browsers send such requests without asking first, so they are
//! refused here. Requests that no browser sent have no `Origin` and pass.
//! Not here: access (`access`), effects of routes (`routes`); a name that an attacker points at this machine
//! (DNS rebinding) counts as this origin.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;

use super::body;
use super::error::{ApiError, ErrorKind};
use super::routing::table::Table;
use crate::web::Web;

/// Set by browsers, and by them alone: how the page's origin and ours are related.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Refuses changes asked for by foreign pages; answers preflight requests; adds CORS headers for origins that
/// are allowed.
pub(super) async fn check(
    State((web, table)): State<(Arc<Web>, &'static Table)>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let is_api = table.is_cors(&request);
    let origin = request.headers().get(header::ORIGIN).filter(|origin| !origin.is_empty()).cloned();
    let cors = web.options.web.cors_origin.as_ref();
    let allowed = allowed_origin(&web, request.headers());
    if allowed.is_none() && table.is_change(&request) && is_foreign(request.headers()) {
        let path = request.uri().path().to_owned();
        body::discard(request.into_body()).await;
        return refusal(&path, origin.as_ref()).into_response();
    }
    let mut response = if is_api && request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    if is_api && cors.is_some() {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(allowed) = allowed.filter(|_| is_api) {
        set_cors(response.headers_mut(), allowed);
    }
    response
}

/// Returns the value of the CORS header for the origin of the request, if `--web.cors.origin` has it.
fn allowed_origin(web: &Web, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN).filter(|origin| !origin.is_empty())?;
    let cors = web.options.web.cors_origin.as_ref()?;
    cors.matches(origin).then(|| cors.allow(origin))
}

/// Returns true if a page of an origin that is not allowed sent the request.
pub(super) fn is_foreign_and_not_allowed(web: &Web, headers: &HeaderMap) -> bool {
    is_foreign(headers) && allowed_origin(web, headers).is_none()
}

fn set_cors(headers: &mut HeaderMap, allowed: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
    let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS");
    set(header::ACCESS_CONTROL_ALLOW_HEADERS, "Accept, Authorization, Content-Type, Origin, X-Scope-OrgID");
    set(header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date");
}

/// Returns true if a page of another origin sent the request, as Go's `http.CrossOriginProtection` decides
/// it: what the browser says comes first, since a proxy may have changed `Host`.
fn is_foreign(headers: &HeaderMap) -> bool {
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => return false,
        Some(_) => return true,
        None => {}
    }
    let Some(origin) = headers.get(header::ORIGIN).filter(|origin| !origin.is_empty()) else { return false };
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let authority = origin.as_bytes().splitn(2, |&byte| byte == b':').nth(1);
    let authority = authority.and_then(|rest| rest.strip_prefix(b"//"));
    authority.is_none_or(|authority| !authority.eq_ignore_ascii_case(host))
}

fn refusal(path: &str, origin: Option<&HeaderValue>) -> ApiError {
    let origin = origin.and_then(|origin| origin.to_str().ok()).unwrap_or("another site");
    tracing::warn!(path, origin, "cross-origin request refused");
    let why = format!(
        "cross-origin request from {origin} refused: changes need an origin allowed by --web.cors.origin"
    );
    ApiError::new(ErrorKind::Forbidden, why)
}

#[cfg(test)]
mod tests;
