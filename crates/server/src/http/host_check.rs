//! Check of the host that a request names, against DNS rebinding.
//!
//! Invariants: it is around all routes of the HTTP port, so no protocol and no unknown path is without it.
//! Not here: comparison of hosts (`allowed_hosts`), origins of pages (`origin`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;

use super::body;
use super::error::{ApiError, ErrorKind};
use crate::web::Web;

/// Refuses requests to hosts that are not in `--web.allowed-hosts`, if it is set. Each host that a request
/// names must be allowed; a request that names none is refused.
pub(super) async fn check(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response<Body> {
    let Some(allowed) = &web.options.web.allowed_hosts else { return next.run(request).await };
    let target = request.uri().authority().map(|authority| authority.as_str());
    let headers = request.headers().get_all(header::HOST).iter();
    let named: Vec<&str> =
        target.into_iter().chain(headers.map(|host| HeaderValue::to_str(host).unwrap_or(""))).collect();
    if !named.is_empty() && named.iter().all(|host| allowed.allows(host)) {
        return next.run(request).await;
    }
    let host = named.into_iter().find(|host| !allowed.allows(host)).unwrap_or("").to_owned();
    tracing::warn!(
        path = request.uri().path(),
        host,
        "refused a request: its host is not in --web.allowed-hosts"
    );
    body::discard(request.into_body()).await;
    let why = format!("request to host {host:?} refused: it is not in --web.allowed-hosts");
    ApiError::new(ErrorKind::Forbidden, why).into_response()
}
