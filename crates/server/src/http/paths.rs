//! Redirects of unclean paths (`//api`, `/metrics/`), the prefixes of all routes and of Mimir's API, 404
//! for paths without a route, 405 for methods without a handler.
//! Invariants: a redirect leads to this server, and from an unclean path to a clean one only, below the same
//! prefix.

mod hint;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use axum::middleware::Next;

use super::body;
use super::error::text;
use super::routing::table::{Table, is_below_mimir_prefix};
use crate::options::RoutePrefix;
use crate::web::Web;

/// Prefix of Prometheus's API in Mimir (`-http.prometheus-http-prefix`), which its clients have in their
/// addresses.
const MIMIR_PREFIX: &str = "/prometheus";

/// Text for a path without a route, as from Prometheus.
const NOT_FOUND: &str = "404 page not found";

/// Prefix that was removed from the path of a request.
#[derive(Debug, Clone, Default)]
struct RemovedPrefix(String);

/// Mark of a request whose path has not the prefix of all routes.
#[derive(Debug, Clone, Copy)]
struct OutsideOfPrefix;

/// Removes the prefix of all routes, and Mimir's prefix from paths of Prometheus's API and of rules:
/// `/prometheus/api/v1/query` is `/api/v1/query`.
pub(super) async fn strip_prefix(State(web): State<Arc<Web>>, mut request: Request) -> Request {
    if let Some(prefix) = web.options.web.prefix()
        && !remove_prefix(&mut request, prefix.as_str(), |rest| prefix.rest_of(rest))
    {
        request.extensions_mut().insert(OutsideOfPrefix);
        return request;
    }
    remove_prefix(&mut request, MIMIR_PREFIX, |target| {
        target.strip_prefix(MIMIR_PREFIX).filter(|rest| is_below_mimir_prefix(rest))
    });
    request
}

/// Replaces the target of a request by what `rest_of` returns of it. Returns false if that is nothing.
fn remove_prefix(request: &mut Request, prefix: &str, rest_of: impl Fn(&str) -> Option<&str>) -> bool {
    let target = request.uri().path_and_query().map_or("", PathAndQuery::as_str);
    let Some(target) = rest_of(target).and_then(|rest| PathAndQuery::try_from(rest).ok()) else {
        return false;
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(target);
    let Ok(uri) = Uri::from_parts(parts) else { return false };
    *request.uri_mut() = uri;
    let removed = request.extensions_mut().get_or_insert_default::<RemovedPrefix>();
    removed.0.push_str(prefix);
    true
}

/// Answers requests outside of the prefix of all routes: from `/` and the prefix itself a redirect to the
/// page, as in Prometheus, from other paths 404.
pub(super) async fn refuse_outside(
    State(web): State<Arc<Web>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    if request.extensions().get::<OutsideOfPrefix>().is_none() {
        return next.run(request).await;
    }
    let prefix = web.options.web.prefix().map_or("", RoutePrefix::as_str);
    let path = request.uri().path().to_owned();
    body::discard(request.into_body()).await;
    let location = HeaderValue::from_str(&format!("{prefix}/")).ok();
    let Some(location) = location.filter(|_| path == "/" || path == prefix) else {
        return text(
            StatusCode::NOT_FOUND,
            &format!("{NOT_FOUND}: paths of this server begin with {prefix}/"),
        );
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// Sends clients with `//`, `/./` or `/../` in their path to the path that they mean: base URLs that end with
/// a slash are common.
pub(super) async fn redirect_unclean(request: Request, next: Next) -> Response<Body> {
    let clean = clean_path(request.uri().path());
    if clean == request.uri().path() {
        return next.run(request).await;
    }
    redirect(request, &clean).await
}

/// Answers for paths without a route; one that only has a slash too much is redirected.
pub(super) async fn unrouted(table: &Table, request: Request) -> Response<Body> {
    let path = request.uri().path();
    if let Some(shorter) = path.strip_suffix('/').filter(|path| !path.is_empty()) {
        let shorter = shorter.to_owned();
        return redirect(request, &shorter).await;
    }
    let hint = hint::hint(table, path);
    body::discard(request.into_body()).await;
    // One line: older versions of Prometheus log the first one only.
    text(StatusCode::NOT_FOUND, &hint.map_or(NOT_FOUND.to_owned(), |hint| format!("{NOT_FOUND}: {hint}")))
}

/// Answers for a route that is switched off, as for an unknown path.
pub(super) async fn unknown(request: Request) -> Response<Body> {
    body::discard(request.into_body()).await;
    text(StatusCode::NOT_FOUND, NOT_FOUND)
}

/// Answers for methods that a route does not have; the router adds which ones it has.
pub(super) async fn wrong_method(request: Request) -> Response<Body> {
    let is_options = request.method() == Method::OPTIONS;
    body::discard(request.into_body()).await;
    if is_options {
        Response::new(Body::empty())
    } else {
        text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
    }
}

/// Writes `Allow` as Prometheus does: in order, with blanks, with OPTIONS.
pub(super) async fn complete_allow(mut response: Response<Body>) -> Response<Body> {
    set_allow(response.headers_mut());
    response
}

fn set_allow(headers: &mut HeaderMap) {
    let Some(allowed) = headers.get(header::ALLOW).and_then(|value| value.to_str().ok()) else { return };
    let mut methods: Vec<&str> = allowed.split(',').map(str::trim).collect();
    methods.push("OPTIONS");
    methods.sort_unstable();
    methods.dedup();
    if let Ok(value) = HeaderValue::from_str(&methods.join(", ")) {
        headers.insert(header::ALLOW, value);
    }
}

/// A path without empty, `.` and `..` parts; a slash at its end stays.
fn clean_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if path.ends_with('/') && !parts.is_empty() {
        clean.push('/');
    }
    clean
}

async fn redirect(request: Request, path: &str) -> Response<Body> {
    let (parts, request_body) = request.into_parts();
    body::discard(request_body).await;
    let prefix = parts.extensions.get::<RemovedPrefix>().map_or("", |removed| &removed.0);
    let location = location(&parts.uri, &format!("{prefix}{path}"));
    // Browsers read `/\` as `//`, which names another host.
    let Some(location) = location.filter(|_| !path.contains('\\')) else {
        return text(StatusCode::NOT_FOUND, NOT_FOUND);
    };
    let mut response = Response::new(Body::empty());
    // After a 301 clients send GET without a body, after a 307 what they sent before.
    let is_safe = matches!(parts.method, Method::GET | Method::HEAD);
    let status = if is_safe { StatusCode::MOVED_PERMANENTLY } else { StatusCode::TEMPORARY_REDIRECT };
    *response.status_mut() = status;
    response.headers_mut().insert(header::LOCATION, location);
    response
}

fn location(uri: &Uri, path: &str) -> Option<HeaderValue> {
    let text = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, want: &str) {
        assert_eq!(clean_path(path), want, "{path}");
    }

    #[test]
    fn clean_paths_stay_and_others_become_clean() {
        for path in ["/", "/api/v1/query", "/api/v1/", "/-/ready", "/a.b/..c", "/a%2F%2Fb"] {
            check(path, path);
        }
        check("//api//v1/query", "/api/v1/query");
        check("/api/v1/../v1/./query", "/api/v1/query");
        check("/../../x/..", "/");
        check("//evil.example/", "/evil.example/");
        check("*", "/*");
    }

    #[test]
    fn allow_lists_options_in_order() {
        let mut headers = HeaderMap::new();
        set_allow(&mut headers);
        assert!(headers.is_empty());
        headers.insert(header::ALLOW, HeaderValue::from_static("POST,GET,HEAD"));
        set_allow(&mut headers);
        assert_eq!(headers[header::ALLOW], "GET, HEAD, OPTIONS, POST");
    }
}
