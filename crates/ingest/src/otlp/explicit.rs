//! Points of histograms with explicit bounds: classic series, or native histograms with custom buckets.
//!
//! Not here: exponential histograms (`exponential`).

use std::sync::Arc;

use chronolith_model::histogram::SCHEMA_CUSTOM;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Exemplar, Histogram, IntHistogram};

use super::exemplars::{read_exemplars, sort_by_time};
use super::number::is_rounded;
use super::points::{Buckets, ExplicitPoint};
use super::refused::PointReject;
use super::series_names::Extra;
use super::sparse::sparse_buckets;
use super::writer::{PointState, Pushed, SeriesName, Writer};
use crate::remote_write::DecodeError;
use crate::remote_write::wire::Cursor;

/// Memory that points share.
#[derive(Debug)]
pub(super) struct ExplicitScratch {
    buckets: Buckets,
    /// Bounds of the last native histogram.
    bounds: Arc<[f64]>,
}

impl Default for ExplicitScratch {
    fn default() -> ExplicitScratch {
        ExplicitScratch { buckets: Buckets::default(), bounds: Arc::from([]) }
    }
}

/// Writes a point as series `_count`, `_sum` and `_bucket`.
pub(super) fn write_classic<'a>(
    message: Cursor<'a>,
    scratch: &mut ExplicitScratch,
    exemplars: &mut Vec<Exemplar>,
    writer: &mut Writer<'a, '_>,
) -> Result<(), DecodeError> {
    let buckets = &mut scratch.buckets;
    let point = match ExplicitPoint::read(message, buckets) {
        Ok(point) => point,
        Err(error) => {
            writer.malformed(error);
            return Ok(());
        }
    };
    let Some(mut state) = writer.begin(&point.head) else { return Ok(()) };
    exemplars.clear();
    read_exemplars(point.exemplars, point.head.time_ms(), &mut writer.refused, exemplars);
    match push_classic(&point, buckets, exemplars, &mut state, writer)? {
        Some(reason) => writer.roll_back(&state, reason, None),
        None => {
            writer.refused.rounded_count += u64::from(is_rounded(point.count) && state.is_stored());
            writer.finish(&state);
        }
    }
    Ok(())
}

/// Returns the reason if a series is rejected, and with it the point.
fn push_classic<'a>(
    point: &ExplicitPoint<'a>,
    buckets: &Buckets,
    exemplars: &mut Vec<Exemplar>,
    state: &mut PointState<'_, 'a>,
    writer: &mut Writer<'a, '_>,
) -> Result<Option<PointReject>, DecodeError> {
    let or_stale = |value: f64| if point.head.is_stale() { STALE_NAN } else { value };
    let name = writer.series_name(state, "_count", Extra::None);
    if let Pushed::Rejected(reason) = writer.push(state, name, or_stale(point.count as f64))? {
        return Ok(Some(reason));
    }
    if let Some(sum) = point.sum {
        let name = writer.series_name(state, "_sum", Extra::None);
        if let Pushed::Rejected(reason) = writer.push(state, name, or_stale(sum))? {
            return Ok(Some(reason));
        }
    }
    let mut total = 0u64;
    for (&bound, &count) in buckets.bounds.iter().zip(&buckets.counts) {
        total = total.wrapping_add(count);
        // The bucket without an upper bound follows below.
        if bound == f64::INFINITY {
            continue;
        }
        let below = exemplars.iter().position(|exemplar| exemplar.value > bound).unwrap_or(exemplars.len());
        let bucket = Extra::Le(bound);
        if let Some(reason) = push_bucket(bucket, or_stale(total as f64), below, exemplars, state, writer)? {
            return Ok(Some(reason));
        }
    }
    let rest = exemplars.len();
    push_bucket(Extra::Le(f64::INFINITY), or_stale(point.count as f64), rest, exemplars, state, writer)
}

/// Appends a bucket with the first `below` exemplars, which are removed.
fn push_bucket<'a>(
    bucket: Extra,
    value: f64,
    below: usize,
    exemplars: &mut Vec<Exemplar>,
    state: &mut PointState<'_, 'a>,
    writer: &mut Writer<'a, '_>,
) -> Result<Option<PointReject>, DecodeError> {
    let name = writer.series_name(state, "_bucket", bucket);
    let pushed = writer.push(state, name, value)?;
    if below > 0 {
        if let Some(own) = exemplars.get_mut(..below) {
            sort_by_time(own);
        }
        let own = exemplars.drain(..below);
        if pushed == Pushed::Stored {
            writer.push_exemplars(own)?;
        }
    }
    Ok(match pushed {
        Pushed::Rejected(reason) => Some(reason),
        _ => None,
    })
}

/// Writes a point as one native histogram with custom buckets.
pub(super) fn write_custom<'a>(
    message: Cursor<'a>,
    scratch: &mut ExplicitScratch,
    exemplars: &mut Vec<Exemplar>,
    writer: &mut Writer<'a, '_>,
) -> Result<(), DecodeError> {
    let point = match ExplicitPoint::read(message, &mut scratch.buckets) {
        Ok(point) => point,
        Err(error) => {
            writer.malformed(error);
            return Ok(());
        }
    };
    let Some(mut state) = writer.begin(&point.head) else { return Ok(()) };
    let histogram = match custom_histogram(&point, scratch) {
        Ok(histogram) => histogram,
        Err(detail) => {
            writer.roll_back(&state, PointReject::HistogramInvalid, Some(detail));
            return Ok(());
        }
    };
    exemplars.clear();
    read_exemplars(point.exemplars, point.head.time_ms(), &mut writer.refused, exemplars);
    sort_by_time(exemplars);
    write_native(histogram, exemplars, &mut state, writer)
}

/// Writes the only series of a point, a native histogram.
pub(super) fn write_native<'a>(
    histogram: Histogram,
    exemplars: &mut Vec<Exemplar>,
    state: &mut PointState<'_, 'a>,
    writer: &mut Writer<'a, '_>,
) -> Result<(), DecodeError> {
    let name = SeriesName { identity: state.identity, suffix: "", extra: Extra::None };
    match writer.push_histogram(state, name, histogram)? {
        Pushed::Rejected(reason) => {
            writer.roll_back(state, reason, None);
            return Ok(());
        }
        Pushed::Stored => writer.push_exemplars(exemplars.drain(..))?,
        Pushed::Dropped => {}
    }
    writer.finish(state);
    Ok(())
}

fn custom_histogram(point: &ExplicitPoint<'_>, scratch: &mut ExplicitScratch) -> Result<Histogram, String> {
    if point.head.is_stale() {
        return Ok(Histogram::stale());
    }
    if *scratch.bounds != *scratch.buckets.bounds {
        scratch.bounds = Arc::from(scratch.buckets.bounds.as_slice());
    }
    let histogram = Histogram::Int(IntHistogram {
        schema: SCHEMA_CUSTOM,
        count: point.count,
        sum: point.sum.unwrap_or(0.0),
        positive: sparse_buckets(&scratch.buckets.counts, 0, 0)?,
        custom_values: scratch.bounds.clone(),
        ..IntHistogram::default()
    });
    histogram.validate().map_err(|error| error.to_string())?;
    Ok(histogram)
}
