//! Native histograms: sparse buckets, exponential (schema -4 to 8) or with custom bounds (schema -53).
//!
//! One layout, two kinds of counts: [`IntHistogram`] is what senders write and storage keeps, bit for bit;
//! [`FloatHistogram`] is what evaluation computes with, and what some senders write. [`Histogram`] is either.
//! The staleness marker is a histogram whose sum is [`STALE_NAN`]. Bucket counts are absolute; the wire and
//! chunks have deltas, see [`Buckets::from_deltas`] and [`Buckets::deltas`].
//!
//! # Histograms in columns
//! [`Columns`](crate::Columns) and [`WriteBatch`](crate::WriteBatch) have, in addition to the columns of
//! times and values, a side column `histograms` of `(index, Arc<Histogram>)`: indices into the columns,
//! ascending. The value of a histogram sample is the histogram's sum, bit for bit, so that
//! [`is_stale`](crate::sample::is_stale) on the values finds the staleness markers of both kinds. The side
//! column of a series of floats is empty and costs nothing.
//!
//! Invariants: no function here panics on a histogram that was not validated; its result is meaningless then.
//! Not here: bytes (`format`), protocols (`ingest`), quantiles (`promql`).

mod arith;
mod bounds;
mod buckets;
mod compact;
mod display;
mod fault;
mod go_float;
mod kahan;
mod operations;
mod reset;
mod resolution;
mod schema;
mod sparse;
mod trim;
mod validate;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use arith::{Compensation, Incompatible, Merged};
pub use bounds::bound;
pub use buckets::{BucketWalk, Buckets, Count, Span};
pub use fault::{HistogramError, HistogramFault};
pub use go_float::go_float;
pub use kahan::kahan_add;
pub use schema::{
    BUCKET_COUNT_MAX, CUSTOM_BOUND_COUNT_MAX, SCHEMA_CUSTOM, SCHEMA_MAX, SCHEMA_MAX_RESERVED, SCHEMA_MIN,
    SCHEMA_MIN_RESERVED, SPAN_COUNT_MAX,
};
pub use sparse::{FloatHistogram, HistogramOf, IntHistogram, ResetHint};
pub use trim::TrimSide;
pub use walk::Bucket;

use crate::sample::STALE_NAN;

/// A stored histogram.
#[derive(Debug, Clone)]
pub enum Histogram {
    /// With integer counts.
    Int(IntHistogram),
    /// With float counts.
    Float(FloatHistogram),
}

impl PartialEq for Histogram {
    /// As [`Histogram::is_identical`], with equal hints.
    fn eq(&self, other: &Histogram) -> bool {
        self.reset_hint() == other.reset_hint() && self.is_identical(other)
    }
}

impl Histogram {
    /// The staleness marker.
    #[must_use]
    pub fn stale() -> Histogram {
        Histogram::Float(FloatHistogram { sum: STALE_NAN, ..FloatHistogram::default() })
    }

    /// Sum of the observations: the value of the sample in columns.
    #[must_use]
    pub fn sum(&self) -> f64 {
        match self {
            Histogram::Int(histogram) => histogram.sum,
            Histogram::Float(histogram) => histogram.sum,
        }
    }

    /// Reset hint.
    #[must_use]
    pub fn reset_hint(&self) -> ResetHint {
        match self {
            Histogram::Int(histogram) => histogram.reset_hint,
            Histogram::Float(histogram) => histogram.reset_hint,
        }
    }

    /// Sets the reset hint.
    pub fn set_reset_hint(&mut self, hint: ResetHint) {
        match self {
            Histogram::Int(histogram) => histogram.reset_hint = hint,
            Histogram::Float(histogram) => histogram.reset_hint = hint,
        }
    }

    /// Schema: bounds of the buckets.
    #[must_use]
    pub fn schema(&self) -> i32 {
        match self {
            Histogram::Int(histogram) => histogram.schema,
            Histogram::Float(histogram) => histogram.schema,
        }
    }

    /// Returns true if both are of one kind and equal except for the reset hint, bit for bit.
    #[must_use]
    pub fn is_identical(&self, other: &Histogram) -> bool {
        match (self, other) {
            (Histogram::Int(a), Histogram::Int(b)) => a.is_identical(b),
            (Histogram::Float(a), Histogram::Float(b)) => a.is_identical(b),
            _ => false,
        }
    }

    /// Converts to float counts; without a copy if they are floats already.
    #[must_use]
    pub fn to_float(&self) -> Cow<'_, FloatHistogram> {
        match self {
            Histogram::Int(histogram) => Cow::Owned(histogram.to_float()),
            Histogram::Float(histogram) => Cow::Borrowed(histogram),
        }
    }

    /// Bytes in memory, for budgets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Histogram>()
            + match self {
                Histogram::Int(histogram) => histogram.heap_bytes(),
                Histogram::Float(histogram) => histogram.heap_bytes(),
            }
    }

    /// Validates as Prometheus does on append. Staleness markers need no validation.
    ///
    /// # Errors
    /// Prometheus's text.
    pub fn validate(&self) -> Result<(), HistogramError> {
        match self {
            Histogram::Int(histogram) => histogram.validate(),
            Histogram::Float(histogram) => histogram.validate(),
        }
    }

    /// Merges buckets down to `schema`, if that is coarser than the histogram's.
    ///
    /// # Errors
    /// If spans and counts do not match, or there are custom bounds.
    pub fn reduce_resolution(&mut self, schema: i32) -> Result<(), HistogramError> {
        match self {
            Histogram::Int(histogram) => histogram.reduce_resolution(schema),
            Histogram::Float(histogram) => histogram.reduce_resolution(schema),
        }
    }

    /// As [`HistogramOf::is_equivalent`]; false for different kinds.
    #[must_use]
    pub fn is_equivalent(&self, other: &Histogram) -> bool {
        match (self, other) {
            (Histogram::Int(a), Histogram::Int(b)) => a.is_equivalent(b),
            (Histogram::Float(a), Histogram::Float(b)) => a.is_equivalent(b),
            _ => false,
        }
    }
}
