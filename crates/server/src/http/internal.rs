//! Calls of other nodes of the cluster: routes below `/internal/v1`, for holders of the node token alone.
//!
//! Invariants: without `--cluster.node-token-file` these routes do not exist; each handler runs after the
//! check of the token, whatever principals there are, since a call may name any tenant. The routes are in no
//! list for clients, and layers for clients (origins, hosts, prefixes, compression) are not around them.
//! Not here: the token (`peers`), bytes of calls and answers, what a source answers (`tsdb`).

mod node;
mod select;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};

use super::body;
use super::error::{ApiError, ErrorKind};
use crate::limits::{NODE_PATH, SELECT_PATH};
use crate::metrics::select::SelectResult;
use crate::web::Web;

/// All routes, or none.
pub(super) fn router(web: &Arc<Web>) -> Router<Arc<Web>> {
    if !web.has_node_token() {
        return Router::new();
    }
    let routes = Router::new().route(SELECT_PATH, post(select::select)).route(NODE_PATH, get(node::node));
    routes.route_layer(from_fn_with_state(web.clone(), check_token))
}

/// Refuses requests without the token of the nodes.
async fn check_token(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response<Body> {
    let sent = request.headers().get(header::AUTHORIZATION);
    if web.is_node(sent) {
        return next.run(request).await;
    }
    web.metrics.select().count(SelectResult::Unauthorized);
    let what = if sent.is_none() { "no node token" } else { "another node token" };
    body::discard(request.into_body()).await;
    let why = format!("{what}: nodes of a cluster have the same cluster.node-token-file");
    let mut response = ApiError::new(ErrorKind::Unauthorized, why).into_text();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests;
