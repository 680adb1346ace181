//! Pages of graphite-web that Grafana replaces: dashboards, composer, browser, accounts.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::routing::get;

use crate::http::body;
use crate::http::error::text;

/// Routes of pages that do not exist.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/dashboard", get(refuse).post(refuse))
        .route("/dashboard/{*page}", get(refuse).post(refuse))
        .route("/composer", get(refuse).post(refuse))
        .route("/composer/{*page}", get(refuse).post(refuse))
        .route("/browser", get(refuse).post(refuse))
        .route("/browser/{*page}", get(refuse).post(refuse))
        .route("/account", get(refuse).post(refuse))
        .route("/account/{*page}", get(refuse).post(refuse))
}

async fn refuse(request: Request) -> Response<Body> {
    body::discard(request.into_body()).await;
    text(StatusCode::NOT_FOUND, "use Grafana; /render is here")
}
