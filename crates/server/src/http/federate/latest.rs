//! Latest sample of each selected series, in the order in which families are printed.
//! Invariants: series that are stale, nameless or of no kind that the format has are left out; memory is
//! reserved.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_ingest::metric_family::FamilyType;
use chronolith_model::histogram::ResetHint;
use chronolith_model::sample::is_stale;
use chronolith_model::{
    Columns, Histogram, Labels, METRIC_NAME, QueryError, Queryable, ReadContext, Selector,
};

use super::accept::Negotiated;
use super::escaping::Escaping;
use crate::http::error::ApiError;

/// Memory of a series, labels and histogram aside.
const ENTRY_BYTES: u64 = 96;

/// A series as it is sorted: by metric name, type, labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SeriesKey {
    pub(super) family_type: FamilyType,
    pub(super) labels: Labels,
}

impl SeriesKey {
    pub(super) fn metric(&self) -> &str {
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
pub(super) struct LatestSample {
    pub(super) time_ms: i64,
    pub(super) value: LatestValue,
    /// All labels but the name, if the name of one of them is escaped.
    pub(super) escaped: Option<Box<[(String, String)]>>,
}

pub(super) enum LatestValue {
    Float(f64),
    Histogram(Arc<Histogram>),
}

pub(super) type Samples = BTreeMap<SeriesKey, LatestSample>;

/// Latest samples that `format` can express, and their memory.
pub(super) struct Latest {
    negotiated: Negotiated,
    samples: Samples,
    held: Reservation,
}

impl Latest {
    pub(super) fn new(negotiated: Negotiated, ctx: &ReadContext) -> Result<Latest, ApiError> {
        let held = ctx.budget.reserve(0).map_err(QueryError::from)?;
        Ok(Latest { negotiated, samples: BTreeMap::new(), held })
    }

    pub(super) fn collect(
        &mut self,
        source: &dyn Queryable,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<(), ApiError> {
        let mut batches = source.select(selector, ctx)?;
        let mut batch = Vec::new();
        let mut columns = Columns::default();
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

    pub(super) fn samples(&self) -> &Samples {
        &self.samples
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
            Some(histogram) if !self.negotiated.format.has(histogram) => return Ok(()),
            Some(histogram) => {
                bytes += memory_bytes(histogram);
                let family_type = match histogram.reset_hint() {
                    ResetHint::Gauge => FamilyType::GaugeHistogram,
                    _ => FamilyType::Histogram,
                };
                (family_type, LatestValue::Histogram(histogram.clone()))
            }
        };
        let escaped = escaped_labels(&labels, self.negotiated.escaping);
        if escaped.is_some() {
            bytes += 2 * labels.heap_bytes() as u64;
        }
        self.held.grow(bytes).map_err(QueryError::from)?;
        let key = SeriesKey { family_type, labels };
        if self.samples.insert(key, LatestSample { time_ms, value, escaped }).is_some() {
            // Another selector has found the series already.
            self.held.shrink(bytes);
        }
        Ok(())
    }
}

/// All labels but the name with escaped names; `None` if they stay as they are.
fn escaped_labels(labels: &Labels, escaping: Escaping) -> Option<Box<[(String, String)]>> {
    let needs_escaping = |(name, _): (&str, &str)| escaping.label_name(name) != name;
    if escaping == Escaping::AllowUtf8 || !labels.iter().any(needs_escaping) {
        return None;
    }
    let others = labels.iter().filter(|(name, _)| *name != METRIC_NAME);
    Some(others.map(|(name, value)| (escaping.label_name(name).into_owned(), value.to_owned())).collect())
}

/// Memory of a histogram with its bounds, which the histograms of one series share; histograms of different
/// series do not.
fn memory_bytes(histogram: &Histogram) -> u64 {
    let bound_count = match histogram {
        Histogram::Int(histogram) => histogram.custom_values.len(),
        Histogram::Float(histogram) => histogram.custom_values.len(),
    };
    (histogram.memory_bytes() + bound_count * size_of::<f64>()) as u64
}
