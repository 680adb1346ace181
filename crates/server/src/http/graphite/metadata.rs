//! `/metrics/get-metadata` and `/metrics/set-metadata`: what graphite-web asks carbon for.
//!
//! Not here: rules of aggregation (`chronolith_service::carbon::rules`).

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_ingest::carbon::AggregationMethod;
use serde_json::{Value, json};

use super::answer::{self, Reading, repeated};
use crate::http::call;
use crate::http::error::ApiError;
use crate::web::Web;

/// The only key that carbon knows.
const AGGREGATION_METHOD: &str = "aggregationMethod";

/// Method by which points of a path are aggregated, the first of several.
fn aggregation_method(web: &Web, path: &str) -> &'static str {
    let rules = web.service.carbon.rules();
    let method = rules.aggregations().match_path(path).and_then(|rule| rule.methods().first().copied());
    method.unwrap_or(AggregationMethod::Average).name()
}

/// `GET` and `POST /metrics/get-metadata`.
pub(in crate::http) async fn get(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read).await
}

fn read(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let key = reading.call.params.get("key").unwrap_or("");
    let of_path = |path: &String| match key {
        AGGREGATION_METHOD => json!({ "value": aggregation_method(reading.web, path) }),
        other => json!({ "error": format!("Unsupported metadata key \"{other}\"") }),
    };
    let paths = repeated(reading.call, "metric");
    Ok(Value::Object(paths.iter().map(|path| (path.clone(), of_path(path))).collect()))
}

/// `GET` and `POST /metrics/set-metadata`: refused.
pub(in crate::http) async fn set(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let refused = match call::open(&web, request).await {
        Ok(_) => ApiError::bad_request("the method of a path is that of its storage rule and cannot be set"),
        Err(error) => error,
    };
    answer::of_error(refused)
}
