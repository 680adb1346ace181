//! Rate limit and headers of the web configuration file, around all routes.
//!
//! Invariants: a request over the limit costs nothing more and reaches no login, as in Prometheus; each
//! other response has the headers.
//! Not here: users of the file (`access`), its format (`web_config`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse as _;

use crate::web::Web;

/// Answers 429 over the rate limit, and adds the headers of the file to the response.
pub(super) async fn apply(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response<Body> {
    let Some(file) = web.web_config() else { return next.run(request).await };
    let in_use = file.current();
    let now_ns = web.service.env.clock.mono_ns();
    if in_use.limiter().is_some_and(|limiter| !limiter.admit(now_ns)) {
        return (StatusCode::TOO_MANY_REQUESTS, "Too Many Requests\n").into_response();
    }
    let mut response = next.run(request).await;
    for (name, value) in in_use.config().headers() {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}
