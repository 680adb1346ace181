//! `/federate`: the latest sample of every series that fits a `match[]`, as text for another scraper.
//! Holds: series of one metric follow each other; series that are stale or silent for longer than the
//! lookback are left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use chronolith_base::Reservation;
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, Labels, METRIC_NAME, QueryError, Queryable, ReadContext, Selector, TimeRange,
};

use super::error::ApiError;
use super::series::selectors;
use super::work::{self, Printer};
use crate::app::App;
use crate::json::put_display;
use crate::metrics::exposition::put_line;

/// Text format 0.0.4; names beyond the classic ones are quoted, which the parameter announces.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8";
/// What a series costs beside its labels.
const ENTRY_BYTES: u64 = 96;

pub(super) async fn federate(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    answer(&app, request).await.unwrap_or_else(ApiError::into_text)
}

async fn answer(app: &Arc<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let call = work::open(app, request).await?;
    call.params.well_formed()?;
    let tenant = call.tenant.clone();
    let printed = work::run(app, &tenant, app.options.query.timeout_ms, move |app, ctx| {
        let selectors = selectors(&call.params)?;
        let now_ms = app.env.clock.now_ms();
        let range = TimeRange::inclusive(now_ms.saturating_sub(app.options.query.lookback_ms) + 1, now_ms);
        let source = app.store()?.queryable(&call.tenant);
        let mut latest =
            Latest { series: BTreeMap::new(), held: ctx.budget.reserve(0).map_err(QueryError::from)? };
        for matchers in &selectors {
            latest.collect(&*source, &Selector { matchers, range }, ctx)?;
        }
        print(&latest, ctx)
    });
    Ok(printed.await?.into_response(CONTENT_TYPE))
}

/// Latest samples by metric name, then labels.
struct Latest {
    series: BTreeMap<(String, Labels), (i64, f64)>,
    held: Reservation,
}

impl Latest {
    fn collect(
        &mut self,
        source: &dyn Queryable,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<(), ApiError> {
        let mut batches = source.select(selector, ctx)?;
        let (mut batch, mut columns) = (Vec::new(), Columns::default());
        loop {
            let more = batches.next_batch(&mut batch)?;
            for one in batch.drain(..) {
                ctx.check()?;
                columns.clear();
                one.samples.read(selector.range, &mut columns)?;
                let (Some(&time_ms), Some(&value)) = (columns.times.last(), columns.values.last()) else {
                    continue;
                };
                // The text format has no native histograms.
                if is_stale(value) || columns.histogram_at(columns.len() - 1).is_some() {
                    continue;
                }
                self.held.grow(one.labels.heap_bytes() as u64 + ENTRY_BYTES).map_err(QueryError::from)?;
                let metric = one.labels.metric_name().unwrap_or("").to_owned();
                self.series.insert((metric, one.labels), (time_ms, value));
            }
            if !more {
                return Ok(());
            }
        }
    }
}

fn print(latest: &Latest, ctx: &ReadContext) -> Result<Printer, ApiError> {
    let mut printer = Printer::new(ctx)?;
    let mut metric_before = None;
    for ((metric, labels), (time_ms, value)) in &latest.series {
        if metric.is_empty() {
            continue;
        }
        if metric_before != Some(metric) {
            printer.out.extend_from_slice(b"# TYPE ");
            put_family_name(&mut printer.out, metric);
            printer.out.extend_from_slice(b" untyped\n");
            metric_before = Some(metric);
        }
        let pairs = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
        // A scraper that honours labels must not put its own instance onto series that have none.
        let instance = labels.get("instance").is_none().then_some(("instance", ""));
        put_line(&mut printer.out, metric, pairs.chain(instance), *value);
        put_display(&mut printer.out, format_args!(" {time_ms}\n"));
        printer.settle(ctx)?;
    }
    printer.settle(ctx)?;
    Ok(printer)
}

fn put_family_name(out: &mut Vec<u8>, metric: &str) {
    if chronolith_model::labels::is_legacy_metric_name(metric) {
        out.extend_from_slice(metric.as_bytes());
    } else {
        let mut quoted = String::new();
        let written = chronolith_model::quote::write_quoted(&mut quoted, metric);
        debug_assert!(written.is_ok(), "a String takes all");
        out.extend_from_slice(quoted.as_bytes());
    }
}
