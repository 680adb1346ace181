//! `/federate`: the latest sample of every series that a `match[]` selects, for another scraper: as text, or
//! as protobuf, which has native histograms too.
//! Holds: series of one metric and type follow each other; series that are stale or silent for longer than
//! the lookback are left out. Memory is that of the latest samples, and of the parts that wait for the
//! client. Not here: formats (`print`), which of them the client wants (`accept`).

mod accept;
mod print;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use chronolith_base::Reservation;
use chronolith_ingest::metric_family::FamilyType;
use chronolith_model::histogram::ResetHint;
use chronolith_model::sample::is_stale;
use chronolith_model::{Columns, Histogram, Labels, QueryError, Queryable, ReadContext, Selector, TimeRange};

use self::accept::Format;
use super::error::ApiError;
use super::series::selectors;
use super::stream::{self, StreamKind};
use super::work;
use crate::app::App;

/// Memory of a series, labels and histogram aside.
const ENTRY_BYTES: u64 = 96;

pub(super) async fn federate(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    answer(&app, request).await.unwrap_or_else(ApiError::into_text)
}

async fn answer(app: &Arc<App>, request: Request) -> Result<Response<Body>, ApiError> {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::negotiate(accept.unwrap_or(""));
    let call = work::open(app, request).await?;
    call.params.well_formed()?;
    let timeout_ms = app.options.query.timeout_ms;
    let timeout = Duration::from_millis(timeout_ms);
    // A slow client holds this one until it has everything, and the one of queries only while samples are
    // read.
    let streaming = app.admission.federate.acquire(&call.tenant, 0, timeout).await?;
    let admitted = work::admit(app, &app.admission.query, &call.tenant, timeout_ms).await?;
    let kind = StreamKind {
        name: "federation",
        content_type: format.content_type(),
        timeout,
        metrics: |metrics| &metrics.federate,
    };
    let written = stream::answer(app, admitted, kind, move |app, mut admitted, parts| {
        let _streaming = streaming;
        let selectors = selectors(&call.params)?;
        let now_ms = app.env.clock.now_ms();
        let range = TimeRange::inclusive(now_ms.saturating_sub(app.options.query.lookback_ms) + 1, now_ms);
        let source = app.store()?.queryable(&call.tenant);
        let mut latest = Latest::new(format, &admitted.ctx)?;
        for matchers in &selectors {
            latest.collect(&*source, &Selector { matchers, range }, &admitted.ctx)?;
        }
        drop(source);
        admitted.release_permit();
        print::print(&latest.samples, format, &admitted.ctx, parts)
    });
    written.await
}

/// A series as it is sorted: by metric name, type, labels.
#[derive(Debug, PartialEq, Eq)]
struct SeriesKey {
    family_type: FamilyType,
    labels: Labels,
}

impl SeriesKey {
    fn metric(&self) -> &str {
        self.labels.metric_name().unwrap_or("")
    }
}

impl Ord for SeriesKey {
    fn cmp(&self, other: &SeriesKey) -> std::cmp::Ordering {
        let by_family =
            self.metric().cmp(other.metric()).then_with(|| self.family_type.cmp(&other.family_type));
        by_family.then_with(|| self.labels.cmp(&other.labels))
    }
}

impl PartialOrd for SeriesKey {
    fn partial_cmp(&self, other: &SeriesKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The latest sample of a series.
struct LatestSample {
    time_ms: i64,
    value: LatestValue,
}

enum LatestValue {
    Float(f64),
    Histogram(Arc<Histogram>),
}

type Samples = BTreeMap<SeriesKey, LatestSample>;

/// Latest samples that `format` can express, and their memory.
struct Latest {
    format: Format,
    samples: Samples,
    held: Reservation,
}

impl Latest {
    fn new(format: Format, ctx: &ReadContext) -> Result<Latest, ApiError> {
        let held = ctx.budget.reserve(0).map_err(QueryError::from)?;
        Ok(Latest { format, samples: BTreeMap::new(), held })
    }

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
                self.push_last(one.labels, &columns)?;
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Keeps the last sample of a series, unless it is stale, nameless or none that the format has.
    fn push_last(&mut self, labels: Labels, columns: &Columns) -> Result<(), ApiError> {
        let (Some(&time_ms), Some(&value)) = (columns.times.last(), columns.values.last()) else {
            return Ok(());
        };
        if is_stale(value) || labels.metric_name().is_none_or(str::is_empty) {
            return Ok(());
        }
        let mut bytes = labels.heap_bytes() as u64 + ENTRY_BYTES;
        let (family_type, value) = match columns.histogram_at(columns.len() - 1) {
            None => (FamilyType::Untyped, LatestValue::Float(value)),
            Some(histogram) if !self.format.has(histogram) => return Ok(()),
            Some(histogram) => {
                bytes += memory_bytes(histogram);
                let family_type = match histogram.reset_hint() {
                    ResetHint::Gauge => FamilyType::GaugeHistogram,
                    _ => FamilyType::Histogram,
                };
                (family_type, LatestValue::Histogram(histogram.clone()))
            }
        };
        self.held.grow(bytes).map_err(QueryError::from)?;
        let key = SeriesKey { family_type, labels };
        if self.samples.insert(key, LatestSample { time_ms, value }).is_some() {
            // Another selector has found the series already.
            self.held.shrink(bytes);
        }
        Ok(())
    }
}

/// Memory of a histogram with its bounds, which the histograms of a series share, but not those of different
/// series.
fn memory_bytes(histogram: &Histogram) -> u64 {
    let bound_count = match histogram {
        Histogram::Int(histogram) => histogram.custom_values.len(),
        Histogram::Float(histogram) => histogram.custom_values.len(),
    };
    (histogram.memory_bytes() + bound_count * size_of::<f64>()) as u64
}
