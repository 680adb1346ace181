//! Tenants with their counters, sizes, and use of limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_model::TenantId;
use chronolith_service::access::Principal;
use chronolith_service::limit_uses;
use chronolith_service::metrics::tenants::OVERFLOW;
use chronolith_tsdb::{LimitUse, OverflowMetric};
use serde_json::{Value, json};

use super::parameters::{LIMIT_DEFAULT, limit, sort};
use crate::http::dispatch;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::sender::Sender;
use crate::http::status::success;
use crate::http::tenant::TenantError;
use crate::web::Web;

/// Metrics with folded series that are shown of a tenant.
const OVERFLOW_METRIC_COUNT: usize = 20;

/// A tenant of the list.
#[derive(Debug, Default)]
struct Row {
    accepted_count: u64,
    rejected_count: u64,
    query_count: u64,
    series_count: u64,
    memory_bytes: u64,
    is_stored: bool,
}

pub(in crate::http) async fn tenants(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let params = Params::of_url(request.uri())?;
    let limit = limit(&params, LIMIT_DEFAULT)?;
    let sort = sort(&params, &["series", "memory", "rejected", "queries"])?;
    let sender = request.extensions().get::<Sender>().ok_or(TenantError::Missing)?;
    let principal = sender.principal.clone();
    let value = dispatch::run_status(&web, move |web| tenants_value(web, &principal, limit, sort));
    Ok(success(&value.await?))
}

/// Tenants that the principal may name.
fn tenants_value(web: &Web, principal: &Principal, limit: usize, sort: &str) -> Value {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let mut has_overflow = false;
    for (name, stat) in web.service.writes.tenants.list() {
        let rejected_count = stat.rejected.iter().map(|count| count.get()).sum::<u64>();
        if name == OVERFLOW {
            has_overflow = stat.accepted.get() + stat.queries.get() + rejected_count > 0;
            continue;
        }
        let row = rows.entry(name).or_default();
        row.accepted_count = stat.accepted.get();
        row.rejected_count = rejected_count;
        row.query_count = stat.queries.get();
    }
    let sizes =
        web.service.lifecycle.opened().map(|store| store.statistics().tenant_sizes()).unwrap_or_default();
    for (tenant, size) in sizes {
        let row = rows.entry(tenant.as_str().to_owned()).or_default();
        row.series_count = size.series_count;
        row.memory_bytes = size.memory_bytes;
        row.is_stored = true;
    }
    let has_all = principal.check_all_tenants().is_ok() || !web.service.options.multitenancy;
    if !has_all {
        rows.retain(|name, _| TenantId::new(name).is_ok_and(|tenant| principal.may_name(&tenant)));
    }
    let rank = |row: &Row| match sort {
        "memory" => row.memory_bytes,
        "rejected" => row.rejected_count,
        "queries" => row.query_count,
        _ => row.series_count,
    };
    let total = rows.len();
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    rows.sort_by(|(a_name, a), (b_name, b)| rank(b).cmp(&rank(a)).then_with(|| a_name.cmp(b_name)));
    rows.truncate(limit);
    let shown: Vec<Value> = rows.iter().map(|(name, row)| row_value(web, name, row)).collect();
    json!({ "tenants": shown, "total": total, "overflow": has_overflow && has_all })
}

fn row_value(web: &Web, name: &str, row: &Row) -> Value {
    let tenant = TenantId::new(name).ok();
    let limits = tenant.as_ref().map(|tenant| limit_uses(&web.service, tenant)).unwrap_or_default();
    let mut value = json!({
        "tenant": name,
        "samplesAccepted": row.accepted_count,
        "samplesRejected": row.rejected_count,
        "queries": row.query_count,
        "series": row.series_count,
        "memoryBytes": row.memory_bytes,
        // Nothing is known of the data of a read-only server.
        "stored": row.is_stored || web.service.lifecycle.is_storeless(),
        "limits": limits.iter().map(limit_value).collect::<Vec<_>>(),
    });
    let store = web.service.lifecycle.opened();
    let metrics = store
        .zip(tenant)
        .map(|(store, tenant)| store.statistics().overflow_metrics(&tenant, OVERFLOW_METRIC_COUNT));
    if let Some(metrics) = metrics.filter(|metrics| !metrics.is_empty()) {
        value["overflowMetrics"] = metrics.iter().map(overflow_value).collect();
    }
    value
}

/// A metric with series beyond a limit, and its labels by the estimated number of their values.
fn overflow_value(one: &OverflowMetric) -> Value {
    let label = |(name, values): &(String, u64)| json!({ "label": name, "values": values });
    json!({
        "metric": one.metric,
        "series": one.series_count,
        "sinceMs": one.since_ms,
        "labels": one.values_by_label.iter().map(label).collect::<Vec<_>>(),
    })
}

fn limit_value(one: &LimitUse) -> Value {
    json!({ "name": one.name, "setting": one.setting, "used": one.used, "limit": one.limit })
}
