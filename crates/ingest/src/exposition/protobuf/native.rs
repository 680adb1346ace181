//! Fields of a `Histogram`: totals, and native buckets.
//!
//! Invariant: a native histogram is validated as Prometheus does before it is stored. Empty buckets stay as
//! they were sent.
//! Not here: classic buckets (`metric`).

use std::sync::Arc;

use chronolith_model::histogram::{SCHEMA_MAX, SCHEMA_MAX_RESERVED};
use chronolith_model::{FloatHistogram, Histogram, IntHistogram, ResetHint};

use crate::exposition::value::without_marker;
use crate::remote_write::histogram::{Side, double, sint32};
use crate::remote_write::wire::{Cursor, FIXED64, LEN, VARINT};

use super::fault::Fault;
use super::timestamp::milliseconds;

/// Fields of a histogram but its classic buckets and exemplars, which are counted.
#[derive(Default)]
pub(super) struct HistogramFields {
    count_int: u64,
    count_float: f64,
    pub(super) sum: f64,
    schema: i32,
    zero_threshold: f64,
    zero_count_int: u64,
    zero_count_float: f64,
    negative: Side,
    positive: Side,
    pub(super) start_ms: i64,
    pub(super) bucket_count: usize,
    pub(super) exemplar_count: usize,
}

impl HistogramFields {
    pub(super) fn read(message: Cursor<'_>) -> Result<HistogramFields, Fault> {
        let mut at = message;
        let mut out = HistogramFields::default();
        while !at.is_empty() {
            match at.tag()? {
                (1, VARINT) => out.count_int = at.varint()?,
                (2, FIXED64) => out.sum = double(&mut at)?,
                (3, LEN) => {
                    at.message()?;
                    out.bucket_count += 1;
                }
                (4, FIXED64) => out.count_float = double(&mut at)?,
                (5, VARINT) => out.schema = sint32(&mut at)?,
                (6, FIXED64) => out.zero_threshold = double(&mut at)?,
                (7, VARINT) => out.zero_count_int = at.varint()?,
                (8, FIXED64) => out.zero_count_float = double(&mut at)?,
                (9, LEN) => out.negative.push_span(at.message()?)?,
                (10, wire) => out.negative.push_deltas(&mut at, wire)?,
                (11, wire) => out.negative.push_counts(&mut at, wire)?,
                (12, LEN) => out.positive.push_span(at.message()?)?,
                (13, wire) => out.positive.push_deltas(&mut at, wire)?,
                (14, wire) => out.positive.push_counts(&mut at, wire)?,
                (15, LEN) => out.start_ms = milliseconds(at.message()?)?,
                (16, LEN) => {
                    at.message()?;
                    out.exemplar_count += 1;
                }
                (1..=16, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(out)
    }

    /// Number of observations: the float, unless it is zero.
    pub(super) fn count(&self) -> f64 {
        if self.count_float == 0.0 { self.count_int as f64 } else { self.count_float }
    }

    /// Returns true if there is anything that only native histograms have.
    pub(super) fn is_native(&self) -> bool {
        self.positive.has_spans()
            || self.negative.has_spans()
            || self.zero_threshold > 0.0
            || self.zero_count_int > 0
    }

    fn is_float(&self) -> bool {
        self.count_float > 0.0
            || self.zero_count_float > 0.0
            || self.positive.has_float_counts()
            || self.negative.has_float_counts()
    }

    /// Returns the native histogram, validated.
    pub(super) fn into_histogram(self, is_gauge: bool) -> Result<Histogram, Fault> {
        let reset_hint = if is_gauge { ResetHint::Gauge } else { ResetHint::Unknown };
        let sum = without_marker(self.sum);
        let mut histogram = if self.is_float() {
            Histogram::Float(FloatHistogram {
                reset_hint,
                schema: self.schema,
                zero_threshold: self.zero_threshold,
                zero_count: self.zero_count_float,
                count: self.count_float,
                sum,
                positive: self.positive.into_float(),
                negative: self.negative.into_float(),
                custom_values: Arc::from([]),
            })
        } else {
            Histogram::Int(IntHistogram {
                reset_hint,
                schema: self.schema,
                zero_threshold: self.zero_threshold,
                zero_count: self.zero_count_int,
                count: self.count_int,
                sum,
                positive: self.positive.into_int("positive side")?,
                negative: self.negative.into_int("negative side")?,
                custom_values: Arc::from([]),
            })
        };
        if (SCHEMA_MAX + 1..=SCHEMA_MAX_RESERVED).contains(&histogram.schema()) {
            histogram.reduce_resolution(SCHEMA_MAX)?;
        }
        histogram.validate()?;
        Ok(histogram)
    }
}
