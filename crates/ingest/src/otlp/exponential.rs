//! Points of exponential histograms: native histograms of schema -4 to 8.
//!
//! Invariant: finer scales are merged down exactly, coarser ones are rejected.
//! Not here: spans (`sparse`).

use chronolith_model::histogram::{SCHEMA_MAX, SCHEMA_MIN};
use chronolith_model::{Exemplar, Histogram, IntHistogram};

use super::exemplars::{read_exemplars, sort_by_time};
use super::explicit::write_native;
use super::points::{ExponentialPoint, Side};
use super::refused::PointReject;
use super::sparse::sparse_buckets;
use super::writer::Writer;
use crate::remote_write::DecodeError;
use crate::remote_write::wire::Cursor;

/// Zero threshold of points without one, as in Prometheus.
const ZERO_THRESHOLD: f64 = 1e-128;

/// Memory that points share.
#[derive(Debug, Default)]
pub(super) struct ExponentialScratch {
    positive: Side,
    negative: Side,
}

/// Writes a point as one native histogram.
pub(super) fn write_exponential<'a>(
    message: Cursor<'a>,
    scratch: &mut ExponentialScratch,
    exemplars: &mut Vec<Exemplar>,
    writer: &mut Writer<'a, '_>,
) -> Result<(), DecodeError> {
    let point = match ExponentialPoint::read(message, &mut scratch.positive, &mut scratch.negative) {
        Ok(point) => point,
        Err(error) => {
            writer.malformed(error);
            return Ok(());
        }
    };
    let Some(mut state) = writer.begin(&point.head) else { return Ok(()) };
    if point.scale < SCHEMA_MIN {
        let detail = format!("scale {}", point.scale);
        writer.roll_back(&state, PointReject::ScaleTooLow, Some(detail));
        return Ok(());
    }
    let histogram = match native_histogram(&point, scratch) {
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

fn native_histogram(point: &ExponentialPoint<'_>, scratch: &ExponentialScratch) -> Result<Histogram, String> {
    if point.head.is_stale() {
        return Ok(Histogram::stale());
    }
    let schema = point.scale.min(SCHEMA_MAX);
    let shift = point.scale.saturating_sub(schema).unsigned_abs();
    debug_assert!(point.scale >= SCHEMA_MIN && schema <= SCHEMA_MAX, "coarser scales are rejected");
    let is_zero_wide = point.zero_threshold > 0.0;
    let histogram = Histogram::Int(IntHistogram {
        schema,
        zero_threshold: if is_zero_wide { point.zero_threshold } else { ZERO_THRESHOLD },
        zero_count: point.zero_count,
        count: point.count,
        sum: point.sum.unwrap_or(0.0),
        positive: side(&scratch.positive, shift)?,
        negative: side(&scratch.negative, shift)?,
        ..IntHistogram::default()
    });
    histogram.validate().map_err(|error| error.to_string())?;
    Ok(histogram)
}

/// Buckets of OTLP are named by their lower bound, of native histograms by their upper bound.
fn side(side: &Side, shift: u32) -> Result<chronolith_model::histogram::Buckets<u64>, String> {
    let mut buckets = sparse_buckets(&side.counts, i64::from(side.offset), shift)?;
    if let Some(first) = buckets.spans.first_mut() {
        first.offset = first.offset.checked_add(1).ok_or("bucket index has more than 32 bits")?;
    }
    Ok(buckets)
}
