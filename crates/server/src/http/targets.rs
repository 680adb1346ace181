//! Endpoints of scrape targets and scrape pools. The server scrapes nothing, so lists are empty and no pool
//! is found; parameters are checked as Prometheus checks them.

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use chronolith_model::quote::write_quoted;
use serde_json::json;

use super::error::ApiError;
use super::go_json::check_string_map;
use super::params::Params;
use super::status::success;

pub(super) async fn targets() -> Response<Body> {
    success(&json!({ "activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {} }))
}

pub(super) async fn scrape_pools() -> Response<Body> {
    success(&json!({ "scrapePools": [] }))
}

/// `scrape_pools/config`: the configuration of the pool `scrapePool`.
pub(super) async fn pool_config(request: Request) -> Result<Response<Body>, ApiError> {
    let params = Params::of_url(request.uri())?;
    Err(no_pool(required(&params, "scrapePool")?))
}

/// `targets/relabel_steps`: the labels of a target after each relabeling rule of the pool `scrapePool`.
pub(super) async fn relabel_steps(request: Request) -> Result<Response<Body>, ApiError> {
    let params = Params::of_url(request.uri())?;
    let pool = required(&params, "scrapePool")?;
    let labels = required(&params, "labels")?;
    check_string_map(labels)
        .map_err(|why| ApiError::bad_request(format_args!("error parsing labels: {why}")))?;
    Err(no_pool(pool))
}

fn required<'a>(params: &'a Params, name: &str) -> Result<&'a str, ApiError> {
    let missing = || ApiError::bad_request(format_args!("no {name} parameter provided"));
    params.get(name).ok_or_else(missing)
}

fn no_pool(pool: &str) -> ApiError {
    let mut quoted = String::new();
    // Writing to a String cannot fail.
    let _ = write_quoted(&mut quoted, pool);
    ApiError::bad_request(format_args!("error retrieving scrape config: scrape pool {quoted} not found"))
}
