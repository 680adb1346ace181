//! Metrics of a tenant: series and memory in the head, bytes on disk, and queries that selected them.
//!
//! Invariants: the names of the head are visited in place; at most twice as many rows as are asked for are in
//! memory. The order by bytes on disk alone has the names of all blocks in memory, in the query's budget.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::hash::HashMap;
use chronolith_model::{QueryError, ReadContext, TenantId};
use chronolith_service::activity::metric_usage::NameUsage;
use chronolith_tsdb::{MetricDiskBytes, MetricFilter};
use serde_json::{Value, json};

use super::parameters::{LIMIT_DEFAULT, limit, sort};
use crate::http::call;
use crate::http::dispatch;
use crate::http::error::ApiError;
use crate::http::status::success;
use crate::web::Web;

/// Order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    /// Also for memory, which is spread over the series of a tenant.
    Series,
    Disk,
    Queries,
    LastQueried,
    /// Metrics that no query selected first.
    Unused,
}

/// Sizes of a metric, and its use.
#[derive(Debug, Clone, Copy, Default)]
struct MetricStats {
    /// Series in the head.
    series_count: u64,
    usage: Option<NameUsage>,
    /// `None` until they are looked up, and where they are not known.
    disk_bytes: Option<u64>,
}

/// A metric of the list.
#[derive(Debug)]
struct Row {
    name: String,
    stats: MetricStats,
}

/// Rank of a row: the greater one comes first.
type Rank = (i64, u64);

fn rank(order: RowOrder, stats: MetricStats) -> Rank {
    let MetricStats { series_count, usage, disk_bytes } = stats;
    let first = match order {
        RowOrder::Series => 0,
        RowOrder::Disk => disk_bytes.unwrap_or(0) as i64,
        RowOrder::Queries => usage.map_or(0, |usage| usage.query_count as i64),
        RowOrder::LastQueried => usage.map_or(i64::MIN, |usage| usage.last_ms),
        RowOrder::Unused => i64::from(usage.is_none()),
    };
    (first, series_count)
}

/// The first rows of an order.
struct FirstRows {
    order: RowOrder,
    limit: usize,
    rows: Vec<Row>,
    /// Rank of the last row, once there are enough.
    least: Option<Rank>,
    total: u64,
}

impl FirstRows {
    fn offer(&mut self, name: &str, stats: MetricStats) {
        self.total += 1;
        let rank = rank(self.order, stats);
        if self.least.is_some_and(|least| rank <= least) {
            return;
        }
        self.rows.push(Row { name: name.to_owned(), stats });
        if self.rows.len() >= 2 * self.limit {
            self.trim();
        }
    }

    /// Sorts the rows, and removes those after the limit.
    fn trim(&mut self) {
        let order = self.order;
        let rank_of = |row: &Row| rank(order, row.stats);
        self.rows
            .sort_by(|a, b| Reverse(rank_of(a)).cmp(&Reverse(rank_of(b))).then_with(|| a.name.cmp(&b.name)));
        self.rows.truncate(self.limit);
        if self.rows.len() == self.limit {
            self.least = self.rows.last().map(rank_of);
        }
    }
}

pub(in crate::http) async fn metric_usage(
    State(web): State<Arc<Web>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&web, request).await?;
    let limit = limit(&call.params, LIMIT_DEFAULT)?;
    let order = match sort(&call.params, &["series", "memory", "disk", "queries", "last_queried", "unused"])?
    {
        "disk" => RowOrder::Disk,
        "queries" => RowOrder::Queries,
        "last_queried" => RowOrder::LastQueried,
        "unused" => RowOrder::Unused,
        _ => RowOrder::Series,
    };
    let identity = call.identity.clone();
    let value = dispatch::run(&web, &identity, web.service.options.query.timeout_ms, move |web, ctx| {
        let search = call.params.get("search").unwrap_or("").to_lowercase();
        let mut rows = FirstRows { order, limit, rows: Vec::new(), least: None, total: 0 };
        let disk_error = if order == RowOrder::Disk {
            let disk = disk_bytes(web, &call.tenant, MetricFilter::All, ctx)?;
            collect(web, &call.tenant, &search, disk, &mut rows, ctx)?;
            rows.trim();
            None
        } else {
            collect(web, &call.tenant, &search, None, &mut rows, ctx)?;
            rows.trim();
            add_disk_bytes(web, &call.tenant, &mut rows.rows, ctx)?
        };
        let bytes_per_series = bytes_per_series(web, &call.tenant);
        let metrics: Vec<Value> = rows.rows.iter().map(|row| row_value(row, bytes_per_series)).collect();
        Ok(json!({
            "sinceMs": web.service.started_ms,
            "total": rows.total,
            "truncated": rows.total > metrics.len() as u64,
            "metrics": metrics,
            "diskError": disk_error,
        }))
    });
    Ok(success(&value.await?))
}

/// Bytes in local blocks; `None` on a server without any.
fn disk_bytes(
    web: &Web,
    tenant: &TenantId,
    filter: MetricFilter<'_>,
    ctx: &ReadContext,
) -> Result<Option<MetricDiskBytes>, QueryError> {
    web.service
        .lifecycle
        .opened()
        .map(|store| store.statistics().metric_disk_bytes(tenant, filter, ctx))
        .transpose()
}

/// Adds the bytes on disk. Returns the damage because of which they are not known: the rest of the list is
/// good without them.
fn add_disk_bytes(
    web: &Web,
    tenant: &TenantId,
    rows: &mut [Row],
    ctx: &ReadContext,
) -> Result<Option<String>, QueryError> {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    match disk_bytes(web, tenant, MetricFilter::Named(&names), ctx) {
        Ok(mut found) => {
            for row in rows {
                row.stats.disk_bytes = found.as_mut().map(|found| found.remove(&row.name));
            }
            Ok(None)
        }
        Err(error) if error.is_of_source() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Offers the metrics of the head, then those that queries selected or that have bytes on disk, and that the
/// head does not have.
fn collect(
    web: &Web,
    tenant: &TenantId,
    search: &str,
    mut disk: Option<MetricDiskBytes>,
    rows: &mut FirstRows,
    ctx: &ReadContext,
) -> Result<(), ApiError> {
    let mut usage: HashMap<Box<str>, NameUsage> = web.service.queries.metric_usage.of_tenant(tenant);
    let mut lower = String::new();
    let mut is_searched = move |name: &str| {
        lower.clear();
        lower.extend(name.chars().flat_map(char::to_lowercase));
        search.is_empty() || lower.contains(search)
    };
    if let Some(store) = web.service.lifecycle.opened() {
        store.statistics().scan_metrics(tenant, ctx, &mut |name, series_count| {
            let usage = usage.remove(name);
            let disk_bytes = disk.as_mut().map(|disk| disk.remove(name));
            if is_searched(name) {
                rows.offer(name, MetricStats { series_count, usage, disk_bytes });
            }
            true
        })?;
    }
    for (name, usage) in usage {
        let disk_bytes = disk.as_mut().map(|disk| disk.remove(&name));
        if is_searched(&name) {
            rows.offer(&name, MetricStats { series_count: 0, usage: Some(usage), disk_bytes });
        }
    }
    for (name, bytes) in disk.iter().flat_map(MetricDiskBytes::iter) {
        if is_searched(name) {
            rows.offer(name, MetricStats { disk_bytes: Some(bytes), ..MetricStats::default() });
        }
    }
    Ok(())
}

/// Memory of the tenant in the head per series.
fn bytes_per_series(web: &Web, tenant: &TenantId) -> f64 {
    let sizes =
        web.service.lifecycle.opened().map(|store| store.statistics().tenant_sizes()).unwrap_or_default();
    sizes.get(tenant).map_or(0.0, |size| size.memory_bytes as f64 / size.series_count.max(1) as f64)
}

fn row_value(row: &Row, bytes_per_series: f64) -> Value {
    let MetricStats { series_count, usage, disk_bytes } = row.stats;
    json!({
        "name": row.name,
        "series": series_count,
        "memoryBytes": (series_count as f64 * bytes_per_series) as u64,
        "diskBytes": disk_bytes,
        "queries": usage.map_or(0, |usage| usage.query_count),
        "lastQueriedMs": usage.map(|usage| usage.last_ms),
    })
}
