//! Native histograms: sparse buckets, exponential (schema -4 to 8) or with custom bounds (schema -53).
//!
//! One layout, two kinds of counts: [`IntHistogram`] is what senders write and storage keeps, bit for bit;
//! [`FloatHistogram`] is what evaluation computes with, and what some senders write. [`Histogram`] is either.
//! The staleness marker is a histogram whose sum is [`STALE_NAN`]. Counts of buckets are absolute; the wire and
//! chunks have differences, see [`Buckets::from_deltas`] and [`Buckets::deltas`].
//!
//! # How histograms travel
//! [`Columns`](crate::Columns) and [`WriteBatch`](crate::WriteBatch) have, beside the columns of times and
//! values, a side column `histograms` of `(index, Arc<Histogram>)`: indices into the columns, ascending. Of such a
//! sample the value is the histogram's sum, bit for bit, so that [`is_stale`](crate::sample::is_stale) over the
//! values finds the staleness markers of both kinds, and times need no second look. The side column of a series of
//! floats is empty and costs nothing. Two samples are equal if values, presence and [`Histogram::same`] say so.
//!
//! Holds: nothing of what is here panics on a histogram that was not validated; results are then meaningless.
//! Not here: bytes (`format`), protocols (`ingest`), quantiles (`promql`).

mod arith;
mod bounds;
mod compact;
mod display;
mod fault;
mod reset;
mod resolution;
mod trim;
mod walk;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub use arith::{Compensation, Incompatible, Merged, kahan_add};
pub use bounds::bound;
pub use display::go_float;
pub use fault::{HistogramError, HistogramFault};
pub use trim::TrimSide;
pub use walk::{Bucket, BucketWalk};

use crate::sample::{STALE_NAN, is_stale};

/// Coarsest exponential schema: each bucket is 2^16 times the one before.
pub const SCHEMA_MIN: i32 = -4;
/// Finest exponential schema: 256 buckets for each power of two.
pub const SCHEMA_MAX: i32 = 8;
/// The schema of histograms that bring their own bounds.
pub const SCHEMA_CUSTOM: i32 = -53;
/// Finest schema that may come from a sender; it has to be reduced to [`SCHEMA_MAX`].
pub const SCHEMA_MAX_RESERVED: i32 = 52;
/// Coarsest schema that is reserved for exponential buckets; it cannot be used.
pub const SCHEMA_MIN_RESERVED: i32 = -9;

/// Buckets of one sign at most: whoever takes histograms in refuses more. The finest schema has half a million in
/// theory; senders keep to some hundreds.
pub const BUCKET_COUNT_MAX: usize = 1 << 16;
/// Spans of one sign at most.
pub const SPAN_COUNT_MAX: usize = 1 << 16;
/// Custom bounds at most.
pub const CUSTOM_BOUND_COUNT_MAX: usize = 1 << 16;

/// What is known about a counter reset between a histogram and the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ResetHint {
    /// Nothing.
    #[default]
    Unknown = 0,
    /// There was one.
    Reset = 1,
    /// There was none.
    NotReset = 2,
    /// It is a gauge: there cannot be one.
    Gauge = 3,
}

impl ResetHint {
    /// From its number on the wire and in chunks; `None` for others.
    #[must_use]
    pub fn from_number(number: u64) -> Option<ResetHint> {
        Some(match number {
            0 => ResetHint::Unknown,
            1 => ResetHint::Reset,
            2 => ResetHint::NotReset,
            3 => ResetHint::Gauge,
            _ => return None,
        })
    }
}

/// Consecutive buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Span {
    /// Index of the first bucket, counted from the end of the span before; of the first span from 0.
    pub offset: i32,
    /// How many buckets.
    pub length: u32,
}

/// The populated buckets of one sign.
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets<C> {
    /// Where they lie.
    pub spans: Vec<Span>,
    /// Observations in each, absolute.
    pub counts: Vec<C>,
}

impl<C> Default for Buckets<C> {
    fn default() -> Buckets<C> {
        Buckets { spans: Vec::new(), counts: Vec::new() }
    }
}

/// A number of observations.
pub trait Count: Copy + PartialEq + PartialOrd + Default + std::ops::AddAssign + sealed::Sealed {
    /// Whether both are the same, bit for bit.
    fn same(self, other: Self) -> bool;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for f64 {}
}

impl Count for u64 {
    fn same(self, other: u64) -> bool {
        self == other
    }
}

impl Count for f64 {
    fn same(self, other: f64) -> bool {
        self.to_bits() == other.to_bits()
    }
}

/// A histogram with counts of type `C`.
#[derive(Debug, Clone)]
pub struct HistogramOf<C> {
    /// What is known about a reset.
    pub reset_hint: ResetHint,
    /// Which bounds the buckets have.
    pub schema: i32,
    /// The zero bucket reaches from minus this to this, both included. 0 with custom bounds.
    pub zero_threshold: f64,
    /// Observations in the zero bucket. 0 with custom bounds.
    pub zero_count: C,
    /// All observations, NaN included.
    pub count: C,
    /// Sum of all observations; the staleness marker if it is one.
    pub sum: f64,
    /// Buckets above zero; all buckets with custom bounds.
    pub positive: Buckets<C>,
    /// Buckets below zero, from zero downwards. Empty with custom bounds.
    pub negative: Buckets<C>,
    /// Upper bounds, strictly ascending and finite; the last bucket is above all. Shared by the histograms of a
    /// series. Empty without custom bounds.
    pub custom_values: Arc<[f64]>,
}

/// A histogram with counts as senders write them.
pub type IntHistogram = HistogramOf<u64>;
/// A histogram to compute with.
pub type FloatHistogram = HistogramOf<f64>;

impl<C: Count> Default for HistogramOf<C> {
    fn default() -> HistogramOf<C> {
        HistogramOf {
            reset_hint: ResetHint::Unknown,
            schema: 0,
            zero_threshold: 0.0,
            zero_count: C::default(),
            count: C::default(),
            sum: 0.0,
            positive: Buckets::default(),
            negative: Buckets::default(),
            custom_values: no_custom_values(),
        }
    }
}

/// No bounds, without an allocation each.
fn no_custom_values() -> Arc<[f64]> {
    static NONE: std::sync::OnceLock<Arc<[f64]>> = std::sync::OnceLock::new();
    NONE.get_or_init(|| Arc::from([])).clone()
}

impl<C: Count> HistogramOf<C> {
    /// Whether it brings its own bounds.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.schema == SCHEMA_CUSTOM
    }

    /// Whether it is the staleness marker.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        is_stale(self.sum)
    }

    /// Whether both are the same but for the reset hint: bit for bit, however empty spans lie.
    #[must_use]
    pub fn same(&self, other: &HistogramOf<C>) -> bool {
        self.schema == other.schema
            && self.count.same(other.count)
            && self.sum.to_bits() == other.sum.to_bits()
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.same(other.zero_count)
            && (!self.is_custom() || self.custom_values == other.custom_values)
            && self.negative.same(&other.negative)
            && self.positive.same(&other.positive)
    }

    /// Bytes on the heap beside the struct itself, for budgets. Shared bounds are not counted.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.positive.heap_bytes() + self.negative.heap_bytes()
    }
}

impl<C: Count> Buckets<C> {
    /// Bytes on the heap.
    fn heap_bytes(&self) -> usize {
        self.spans.len() * size_of::<Span>() + self.counts.len() * size_of::<C>()
    }

    /// Whether both have the same counts in the same buckets.
    fn same(&self, other: &Buckets<C>) -> bool {
        self.counts.len() == other.counts.len()
            && self.counts.iter().zip(&other.counts).all(|(&a, &b)| a.same(b))
            && (self.spans == other.spans || normal_spans(&self.spans).eq(normal_spans(&other.spans)))
    }
}

/// The spans that are not empty; the offsets of empty ones are added to those of the next.
fn normal_spans(spans: &[Span]) -> impl Iterator<Item = Span> + '_ {
    let mut before = 0i32;
    spans.iter().filter_map(move |span| {
        let offset = span.offset.wrapping_add(before);
        before = if span.length == 0 { offset } else { 0 };
        (span.length > 0).then_some(Span { offset, length: span.length })
    })
}

impl Buckets<u64> {
    /// From differences as they are on the wire and in chunks: the first count, then what each next one is more.
    ///
    /// # Errors
    /// A count would be negative (upstream's text, without the side) or beyond 63 bits.
    pub fn from_deltas(
        spans: Vec<Span>,
        deltas: impl IntoIterator<Item = i64>,
    ) -> Result<Buckets<u64>, HistogramError> {
        let mut count = 0i64;
        let mut counts = Vec::new();
        for (at, delta) in deltas.into_iter().enumerate() {
            count = count.checked_add(delta).ok_or_else(|| fault::count_overflow(at + 1))?;
            counts.push(u64::try_from(count).map_err(|_| fault::negative_bucket(at + 1, &count))?);
        }
        Ok(Buckets { spans, counts })
    }

    /// The differences, as [`Buckets::from_deltas`] takes them. Counts beyond 63 bits wrap around.
    pub fn deltas(&self) -> impl Iterator<Item = i64> + '_ {
        let mut before = 0u64;
        self.counts.iter().map(move |&count| count.wrapping_sub(std::mem::replace(&mut before, count)) as i64)
    }
}

impl IntHistogram {
    /// The same with float counts. Counts beyond 53 bits are rounded.
    #[must_use]
    pub fn to_float(&self) -> FloatHistogram {
        let side = |buckets: &Buckets<u64>| Buckets {
            spans: buckets.spans.clone(),
            counts: buckets.counts.iter().map(|&count| count as f64).collect(),
        };
        FloatHistogram {
            reset_hint: self.reset_hint,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero_count as f64,
            count: self.count as f64,
            sum: self.sum,
            positive: side(&self.positive),
            negative: side(&self.negative),
            custom_values: self.custom_values.clone(),
        }
    }
}

/// A histogram as it is stored.
#[derive(Debug, Clone)]
pub enum Histogram {
    /// With integer counts.
    Int(IntHistogram),
    /// With float counts.
    Float(FloatHistogram),
}

impl PartialEq for Histogram {
    /// As [`Histogram::same`], and the hints are equal.
    fn eq(&self, other: &Histogram) -> bool {
        self.reset_hint() == other.reset_hint() && self.same(other)
    }
}

impl<C: Count> PartialEq for HistogramOf<C> {
    /// As [`HistogramOf::same`], and the hints are equal.
    fn eq(&self, other: &HistogramOf<C>) -> bool {
        self.reset_hint == other.reset_hint && self.same(other)
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

    /// What is known about a reset.
    #[must_use]
    pub fn reset_hint(&self) -> ResetHint {
        match self {
            Histogram::Int(histogram) => histogram.reset_hint,
            Histogram::Float(histogram) => histogram.reset_hint,
        }
    }

    /// Sets what is known about a reset.
    pub fn set_reset_hint(&mut self, hint: ResetHint) {
        match self {
            Histogram::Int(histogram) => histogram.reset_hint = hint,
            Histogram::Float(histogram) => histogram.reset_hint = hint,
        }
    }

    /// Which bounds the buckets have.
    #[must_use]
    pub fn schema(&self) -> i32 {
        match self {
            Histogram::Int(histogram) => histogram.schema,
            Histogram::Float(histogram) => histogram.schema,
        }
    }

    /// Whether both are of one kind and the same but for the reset hint, bit for bit. Duplicates of a sample are
    /// judged by this.
    #[must_use]
    pub fn same(&self, other: &Histogram) -> bool {
        match (self, other) {
            (Histogram::Int(a), Histogram::Int(b)) => a.same(b),
            (Histogram::Float(a), Histogram::Float(b)) => a.same(b),
            _ => false,
        }
    }

    /// To compute with: without a copy if the counts are floats already.
    #[must_use]
    pub fn to_float(&self) -> Cow<'_, FloatHistogram> {
        match self {
            Histogram::Int(histogram) => Cow::Owned(histogram.to_float()),
            Histogram::Float(histogram) => Cow::Borrowed(histogram),
        }
    }

    /// Bytes that it takes, for budgets.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Histogram>()
            + match self {
                Histogram::Int(histogram) => histogram.heap_bytes(),
                Histogram::Float(histogram) => histogram.heap_bytes(),
            }
    }

    /// Checks what upstream checks when a histogram is written. Staleness markers need no check.
    ///
    /// # Errors
    /// Upstream's text.
    pub fn validate(&self) -> Result<(), HistogramError> {
        match self {
            Histogram::Int(histogram) => histogram.validate(),
            Histogram::Float(histogram) => histogram.validate(),
        }
    }

    /// Merges buckets until `schema` is reached, where it is coarser than the histogram's.
    ///
    /// # Errors
    /// Spans and counts do not fit each other; there are custom bounds.
    pub fn reduce_resolution(&mut self, schema: i32) -> Result<(), HistogramError> {
        match self {
            Histogram::Int(histogram) => histogram.reduce_resolution(schema),
            Histogram::Float(histogram) => histogram.reduce_resolution(schema),
        }
    }
}
