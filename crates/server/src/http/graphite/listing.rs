//! `/api/v1/graphite/series`: the series of the Graphite store with the rules of their files, page by page.
//!
//! Invariants: paths ascend, and a page continues after the path that its request names; series of other
//! protocols are not listed; a rewrite rule is not applied to a stored path.
//! Not here: nodes of paths (`find`), series by tags (`tags`).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_ingest::carbon::{AggregationMethod, X_FILES_FACTOR_DEFAULT, path_of_labels};
use chronolith_model::query::SelectRequest;
use chronolith_model::{Labels, QueryError, Selector, TimeRange};
use chronolith_service::carbon::rules::PathRules;
use serde_json::{Value, json};

use super::answer::{self, Reading};
use super::archive_json;
use super::delete::graphite_store;
use crate::http::error::ApiError;
use crate::web::Web;

/// Series of a page, and of one without `limit`.
const PAGE_SERIES_MAX: usize = 10_000;
/// Bytes of a listed series, apart from its labels.
const SERIES_BYTES: u64 = 512;

/// `GET /api/v1/graphite/series`: series after the path `after`, at most `limit`.
pub(crate) async fn series(State(web): State<Arc<Web>>, request: Request) -> Response<Body> {
    answer::of_reading(&web, request, read).await
}

fn read(reading: &Reading<'_>) -> Result<Value, ApiError> {
    let params = &reading.call.params;
    let after = params.get("after").unwrap_or("");
    let limit = match params.get("limit") {
        None => PAGE_SERIES_MAX,
        Some(text) => {
            let parsed = text.parse::<usize>().ok().filter(|limit| (1..=PAGE_SERIES_MAX).contains(limit));
            let expected = format!("{text:?} is not a number from 1 to {PAGE_SERIES_MAX}");
            parsed.ok_or_else(|| ApiError::parameter("limit", expected))?
        }
    };
    let rules = reading.web.service.carbon.rules();
    let page = page_of(reading, after, limit)?;
    let list: Vec<Value> = page.iter().map(|(path, labels)| of_series(path, labels, &rules)).collect();
    Ok(json!({ "status": "success", "data": list }))
}

/// The first `limit` series after a path: the store lists them by their labels.
fn page_of(reading: &Reading<'_>, after: &str, limit: usize) -> Result<BTreeMap<String, Labels>, ApiError> {
    let Reading { web, call, ctx, .. } = *reading;
    let store = web.service.lifecycle.readable_store()?;
    let mut page = BTreeMap::new();
    let Some(graphite) = graphite_store(store, &call.tenant) else { return Ok(page) };
    let mut held = ctx.budget.reserve(0).map_err(QueryError::from)?;
    let source = call.identity.filtered(store.reader().store_queryable(&graphite));
    let selector = Selector { matchers: &[], range: TimeRange::ALL };
    let mut batches = source.open_series(SelectRequest::newest(&selector), ctx)?;
    let mut batch = Vec::new();
    let mut has_more = true;
    while has_more {
        has_more = batches.next_batch(&mut batch)?;
        ctx.check()?;
        for series in batch.drain(..) {
            let path = path_of_labels(&series.labels);
            let is_full = page.len() == limit;
            if path.as_str() <= after
                || is_full && page.last_key_value().is_some_and(|(last, _)| path > *last)
            {
                continue;
            }
            if is_full {
                page.pop_last();
            } else {
                held.grow(4 * path.len() as u64 + SERIES_BYTES).map_err(QueryError::from)?;
            }
            page.insert(path, series.labels);
        }
    }
    Ok(page)
}

fn of_series(path: &str, labels: &Labels, rules: &PathRules) -> Value {
    let schema = rules.schemas().match_path(path);
    let rule = rules.aggregations().match_path(path);
    let average = [AggregationMethod::Average];
    let methods = rule.map_or(&average[..], |rule| rule.methods());
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let archives = schema.map_or(&[][..], |schema| schema.archives());
    json!({
        "path": path,
        "labels": labels,
        "archives": archives.iter().map(archive_json).collect::<Vec<_>>(),
        "methods": methods.iter().map(|method| method.name()).collect::<Vec<_>>(),
        "xFilesFactor": rule.map_or(X_FILES_FACTOR_DEFAULT, |rule| rule.x_files_factor()),
    })
}
