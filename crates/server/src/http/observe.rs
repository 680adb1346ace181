//! The outermost layer of all routes: gives each request its id, counts it by route and code, and writes the
//! access log.
//! Invariants: a response has the id of its request if the client sent one, or if it is an error.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, Response, StatusCode};
use axum::middleware::Next;

use chronolith_model::TenantId;

use super::error::ErrorText;
use crate::http::request::{REQUEST_ID_HEADER, RequestId, RequestInfo};
use crate::http::tenant::named_tenants;
use crate::web::Web;

/// Observes one request. Unknown paths share one route label, so clients cannot create labels.
pub(super) async fn observe(State(web): State<Arc<Web>>, mut request: Request, next: Next) -> Response<Body> {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("other", MatchedPath::as_str).to_owned();
    let info = RequestInfo::read(request.extensions(), request.headers(), &web.service.env.rng);
    request.extensions_mut().insert(info.clone());
    let access = web.options.access_log.then(|| Access::of(&web, &request));
    let start_ns = web.service.env.clock.mono_ns();
    let mut response = next.run(request).await;
    let duration_ns = web.service.env.clock.mono_ns().saturating_sub(start_ns);
    let status = response.status();
    let bytes = response.body().size_hint().exact().unwrap_or(0);
    web.metrics.http.count_request(&route, status.as_u16(), duration_ns, bytes);
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        let error = response.extensions().get::<ErrorText>().map_or("", |text| &text.0);
        tracing::error!(request_id = %info.id, remote = info.remote_text(), route, error, "request failed");
    }
    if let Some(access) = access {
        access.log(&info, status, duration_ns, bytes);
    }
    let is_error = status.is_client_error() || status.is_server_error();
    if (is_error || matches!(info.id, RequestId::Sent(_)))
        && let Some(id) = info.id.to_header()
    {
        response.headers_mut().insert(REQUEST_ID_HEADER, id);
    }
    response
}

/// Fields of a request in the access log.
struct Access {
    method: Method,
    /// Without the query string, which may be long, and which the query log has.
    path: String,
    tenant: String,
}

impl Access {
    fn of(web: &Web, request: &Request) -> Access {
        // As sent: requests that are refused have a line too.
        let tenants = named_tenants(web.service.options.multitenancy, request.headers());
        let names = tenants.iter().flatten().map(TenantId::as_str).collect::<Vec<_>>();
        Access {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            tenant: names.join("|"),
        }
    }

    fn log(&self, info: &RequestInfo, status: StatusCode, duration_ns: u64, bytes: u64) {
        tracing::info!(
            target: "access",
            request_id = %info.id,
            remote = info.remote_text(),
            tenant = self.tenant,
            method = %self.method,
            path = self.path,
            status = status.as_u16(),
            seconds = duration_ns as f64 / 1e9,
            bytes,
            "request"
        );
    }
}
