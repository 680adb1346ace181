//! Metrics of a tenant: series and memory in the head, and queries that selected them.
//!
//! Invariants: the names of the head are visited in place; at most twice as many rows as are asked for are in
//! memory.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::hash::HashMap;
use chronolith_model::{ReadContext, TenantId};
use serde_json::{Value, json};

use super::parameters::{LIMIT_DEFAULT, limit, sort};
use crate::activity::metric_usage::NameUsage;
use crate::app::App;
use crate::http::call;
use crate::http::dispatch;
use crate::http::error::ApiError;
use crate::http::status::success;

/// Order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowOrder {
    /// Also for memory, which is spread over the series of a tenant, and for bytes on disk, which are not
    /// known.
    Series,
    Queries,
    LastQueried,
    /// Metrics that no query selected first.
    Unused,
}

/// A metric of the list.
#[derive(Debug)]
struct Row {
    name: String,
    series_count: u64,
    usage: Option<NameUsage>,
}

/// Rank of a row: the greater one comes first.
type Rank = (i64, u64);

fn rank(order: RowOrder, series_count: u64, usage: Option<NameUsage>) -> Rank {
    let first = match (order, usage) {
        (RowOrder::Series, _) => 0,
        (RowOrder::Queries, usage) => usage.map_or(0, |usage| usage.query_count as i64),
        (RowOrder::LastQueried, usage) => usage.map_or(i64::MIN, |usage| usage.last_ms),
        (RowOrder::Unused, usage) => i64::from(usage.is_none()),
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
    fn offer(&mut self, name: &str, series_count: u64, usage: Option<NameUsage>) {
        self.total += 1;
        let rank = rank(self.order, series_count, usage);
        if self.least.is_some_and(|least| rank <= least) {
            return;
        }
        self.rows.push(Row { name: name.to_owned(), series_count, usage });
        if self.rows.len() >= 2 * self.limit {
            self.trim();
        }
    }

    /// Sorts the rows, and removes those after the limit.
    fn trim(&mut self) {
        let order = self.order;
        let rank_of = |row: &Row| rank(order, row.series_count, row.usage);
        self.rows
            .sort_by(|a, b| Reverse(rank_of(a)).cmp(&Reverse(rank_of(b))).then_with(|| a.name.cmp(&b.name)));
        self.rows.truncate(self.limit);
        if self.rows.len() == self.limit {
            self.least = self.rows.last().map(rank_of);
        }
    }
}

pub(super) async fn metric_usage(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let call = call::open(&app, request).await?;
    let limit = limit(&call.params, LIMIT_DEFAULT)?;
    let order = match sort(&call.params, &["series", "memory", "disk", "queries", "last_queried", "unused"])?
    {
        "queries" => RowOrder::Queries,
        "last_queried" => RowOrder::LastQueried,
        "unused" => RowOrder::Unused,
        _ => RowOrder::Series,
    };
    let tenant = call.tenant.clone();
    let value = dispatch::run(&app, &tenant, app.options.query.timeout_ms, move |app, ctx| {
        let search = call.params.get("search").unwrap_or("").to_lowercase();
        let mut rows = FirstRows { order, limit, rows: Vec::new(), least: None, total: 0 };
        collect(app, &call.tenant, &search, &mut rows, ctx)?;
        rows.trim();
        let bytes_per_series = bytes_per_series(app, &call.tenant);
        let metrics: Vec<Value> = rows.rows.iter().map(|row| row_value(row, bytes_per_series)).collect();
        Ok(json!({
            "sinceMs": app.started_ms,
            "total": rows.total,
            "truncated": rows.total > metrics.len() as u64,
            "metrics": metrics,
        }))
    });
    Ok(success(&value.await?))
}

/// Offers the metrics of the head, then those that queries selected and the head does not have.
fn collect(
    app: &App,
    tenant: &TenantId,
    search: &str,
    rows: &mut FirstRows,
    ctx: &ReadContext,
) -> Result<(), ApiError> {
    let mut usage: HashMap<Box<str>, NameUsage> = app.queries.metric_usage.of_tenant(tenant);
    let mut lower = String::new();
    let mut is_searched = move |name: &str| {
        lower.clear();
        lower.extend(name.chars().flat_map(char::to_lowercase));
        search.is_empty() || lower.contains(search)
    };
    if let Some(store) = app.lifecycle.opened() {
        store.scan_metrics(tenant, ctx, &mut |name, series_count| {
            if is_searched(name) {
                rows.offer(name, series_count, usage.remove(name));
            }
            true
        })?;
    }
    for (name, of_name) in usage.iter().filter(|(name, _)| is_searched(name)) {
        rows.offer(name, 0, Some(*of_name));
    }
    Ok(())
}

/// Memory of the tenant in the head per series.
fn bytes_per_series(app: &App, tenant: &TenantId) -> f64 {
    let sizes = app.lifecycle.opened().map(|store| store.tenant_sizes()).unwrap_or_default();
    sizes.get(tenant).map_or(0.0, |size| size.memory_bytes as f64 / size.series_count.max(1) as f64)
}

fn row_value(row: &Row, bytes_per_series: f64) -> Value {
    json!({
        "name": row.name,
        "series": row.series_count,
        "memoryBytes": (row.series_count as f64 * bytes_per_series) as u64,
        // A block does not record the bytes of the chunks of a metric.
        "diskBytes": Value::Null,
        "queries": row.usage.map_or(0, |usage| usage.query_count),
        "lastQueriedMs": row.usage.map(|usage| usage.last_ms),
    })
}
