//! Errors of invalid histograms, with Prometheus's texts.
//!
//! Not here: the checks (`validate`).

use std::fmt;

use super::schema::{SCHEMA_CUSTOM, SCHEMA_MAX, SCHEMA_MIN};

/// Kinds of invalid histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistogramFault {
    /// The count is smaller than the sum of the buckets.
    CountNotBigEnough,
    /// The count differs from the sum of the buckets.
    CountMismatch,
    /// A negative count.
    NegativeCount,
    /// A negative bucket count.
    NegativeBucketCount,
    /// A count beyond 63 bits.
    CountOverflow,
    /// A span that overlaps the previous one.
    SpanNegativeOffset,
    /// A bucket index beyond 32 bits.
    SpanIndexOutOfRange,
    /// Spans with another number of buckets than there are counts.
    SpansBucketsMismatch,
    /// Fewer custom bounds than buckets.
    CustomBoundsTooFew,
    /// Custom bounds out of order.
    CustomBoundsOrder,
    /// A custom bound that is infinite.
    CustomBoundsInfinite,
    /// A custom bound that is NaN.
    CustomBoundsNan,
    /// Custom bounds together with a zero bucket or negative buckets.
    CustomBoundsExtra,
    /// Custom bounds with an exponential schema.
    ExponentialWithBounds,
    /// An invalid schema.
    Schema,
}

/// Kind and message for the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramError {
    /// Kind.
    pub fault: HistogramFault,
    message: String,
}

impl fmt::Display for HistogramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for HistogramError {}

impl HistogramError {
    /// Adds `prefix: ` before the message ("positive side", "negative side", "custom buckets").
    #[must_use]
    pub fn within(mut self, prefix: &str) -> HistogramError {
        self.message = format!("{prefix}: {}", self.message);
        self
    }
}

pub(super) fn error(fault: HistogramFault, message: String) -> HistogramError {
    HistogramError { fault, message }
}

/// The first bucket has number 1.
#[cold]
pub(super) fn negative_bucket(number: usize, count: &dyn fmt::Display) -> HistogramError {
    let text = "histogram has a bucket whose observation count is negative";
    let message = format!("bucket number {number} has observation count of {count}: {text}");
    error(HistogramFault::NegativeBucketCount, message)
}

#[cold]
pub(super) fn count_overflow(number: usize) -> HistogramError {
    let message = format!("bucket number {number} has an observation count beyond 63 bits");
    error(HistogramFault::CountOverflow, message)
}

#[cold]
pub(super) fn spans_mismatch(needed: usize, present: usize) -> HistogramError {
    let text = "histogram spans specify different number of buckets than provided";
    let message = format!("spans need {needed} buckets, have {present} buckets: {text}");
    error(HistogramFault::SpansBucketsMismatch, message)
}

#[cold]
pub(super) fn reduce_custom() -> HistogramError {
    let message = "cannot reduce resolution when there are custom buckets".to_owned();
    error(HistogramFault::Schema, message)
}

#[cold]
pub(super) fn negative_offset(at: usize, offset: i32) -> HistogramError {
    let message =
        format!("span number {} with offset {offset}: histogram has a span whose offset is negative", at + 1);
    error(HistogramFault::SpanNegativeOffset, message)
}

/// A span that starts or ends (`edge`) at a bucket index out of range.
#[cold]
pub(super) fn span_out_of_range(at: usize, edge: &str, idx: i64) -> HistogramError {
    let text = "histogram has a span whose bucket index is out of range";
    let message = format!("span number {} {edge} at bucket index {idx}: {text}", at + 1);
    error(HistogramFault::SpanIndexOutOfRange, message)
}

#[cold]
pub(super) fn bad_schema(schema: i32) -> HistogramError {
    let message = format!(
        "histogram has an invalid schema, which must be between {SCHEMA_MIN} and {SCHEMA_MAX} for exponential \
         buckets, or {SCHEMA_CUSTOM} for custom buckets, got schema {schema}"
    );
    error(HistogramFault::Schema, message)
}
