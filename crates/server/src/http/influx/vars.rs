//! `GET /debug/vars`: counters as JSON, for Telegraf's input `influxdb`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, header};
use chronolith_influxql::storage::Storage as _;
use chronolith_service::access::Identity;
use chronolith_service::evaluation::influxql::databases::TenantDatabases;
use chronolith_service::evaluation::influxql::storage::TenantStorage;
use serde_json::{Map, Value, json};

use super::reply::InfluxError;
use crate::http::dispatch;
use crate::http::error::ApiError;
use crate::http::sender::identity_of;
use crate::web::Web;

pub(in crate::http) async fn vars(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    let identity = identity_of(request.extensions()).map_err(ApiError::from);
    let read = match identity {
        Ok(identity) => read(&web, identity).await,
        Err(error) => Err(error),
    };
    read.unwrap_or_else(|error| InfluxError::from(error).into_response())
}

async fn read(web: &Arc<Web>, identity: Identity) -> Result<Response<Body>, ApiError> {
    let store = web.service.lifecycle.readable_store()?.clone();
    let text = dispatch::run_status(web, move |web| {
        let databases = TenantDatabases::of_store(store, identity.clone());
        let storage = TenantStorage {
            service: &web.service,
            databases,
            tenant: identity.tenant(),
            is_continuous: false,
            call: None,
            deleted_series: AtomicU64::new(0),
        };
        let mut all = Map::new();
        for module in storage.statistics() {
            let tags: Map<String, Value> =
                module.tags.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
            let values: Map<String, Value> =
                module.values.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            let key = tags
                .values()
                .fold(module.module.clone(), |key, tag| format!("{key}:{}", tag.as_str().unwrap_or("")));
            all.insert(key, json!({ "name": module.module, "tags": tags, "values": values }));
        }
        for (name, facts) in storage.diagnostics() {
            let facts: Map<String, Value> =
                facts.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
            all.insert(name, Value::Object(facts));
        }
        Value::Object(all).to_string()
    });
    let mut response = Response::new(Body::from(text.await?));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
