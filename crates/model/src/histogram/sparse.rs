//! Native histogram with counts of one type: [`IntHistogram`] or [`FloatHistogram`].
//!
//! Not here: either of the two (`histogram`), arithmetic (`arith`), validation (`validate`).

use std::sync::Arc;

use super::buckets::{Buckets, Count};
use super::schema::SCHEMA_CUSTOM;
use crate::sample::is_stale;

/// Reset hint: knowledge about a counter reset between the previous histogram and this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum ResetHint {
    /// Unknown.
    #[default]
    Unknown = 0,
    /// There was a reset.
    Reset = 1,
    /// There was no reset.
    NotReset = 2,
    /// A gauge, which has no resets.
    Gauge = 3,
}

impl ResetHint {
    /// Returns the hint for its number on the wire and in chunks.
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

/// A histogram with counts of type `C`.
#[derive(Debug, Clone)]
pub struct HistogramOf<C> {
    /// Reset hint.
    pub reset_hint: ResetHint,
    /// Schema: bounds of the buckets.
    pub schema: i32,
    /// The zero bucket is from minus this to this, inclusive. 0 with custom bounds.
    pub zero_threshold: f64,
    /// Observations in the zero bucket. 0 with custom bounds.
    pub zero_count: C,
    /// Count of all observations, NaN included.
    pub count: C,
    /// Sum of all observations, or the staleness marker.
    pub sum: f64,
    /// Buckets above zero; all buckets with custom bounds.
    pub positive: Buckets<C>,
    /// Buckets below zero, from zero downwards. Empty with custom bounds.
    pub negative: Buckets<C>,
    /// Upper bounds, strictly ascending and finite; the last bucket is above all. Shared by the histograms of
    /// a series. Empty without custom bounds.
    pub custom_values: Arc<[f64]>,
}

/// A histogram with integer counts.
pub type IntHistogram = HistogramOf<u64>;
/// A histogram with float counts.
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

/// Shared empty bounds.
fn no_custom_values() -> Arc<[f64]> {
    static NONE: std::sync::OnceLock<Arc<[f64]>> = std::sync::OnceLock::new();
    NONE.get_or_init(|| Arc::from([])).clone()
}

impl<C: Count> HistogramOf<C> {
    /// Returns true for custom bounds.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.schema == SCHEMA_CUSTOM
    }

    /// Returns true for the staleness marker.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        is_stale(self.sum)
    }

    /// Returns true if both are equal except for the reset hint, bit for bit; empty spans are ignored.
    #[must_use]
    pub fn is_identical(&self, other: &HistogramOf<C>) -> bool {
        self.schema == other.schema
            && self.count.is_identical(other.count)
            && self.sum.to_bits() == other.sum.to_bits()
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.is_identical(other.zero_count)
            && (!self.is_custom() || self.custom_values == other.custom_values)
            && self.negative.is_identical(&other.negative)
            && self.positive.is_identical(&other.positive)
    }

    /// Bytes on the heap, for budgets. Shared bounds are not counted.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.positive.heap_bytes() + self.negative.heap_bytes()
    }
}

impl<C: Count> PartialEq for HistogramOf<C> {
    /// As [`HistogramOf::is_identical`], with equal hints.
    fn eq(&self, other: &HistogramOf<C>) -> bool {
        self.reset_hint == other.reset_hint && self.is_identical(other)
    }
}

impl IntHistogram {
    /// Converts to float counts. Counts beyond 53 bits are rounded.
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

impl<C: Count> HistogramOf<C> {
    /// Returns true if both are equal except for the reset hint and for empty buckets, bit for bit. Samples
    /// with equivalent histograms are duplicates.
    #[must_use]
    pub fn is_equivalent(&self, other: &HistogramOf<C>) -> bool {
        self.schema == other.schema
            && self.count.is_identical(other.count)
            && self.sum.to_bits() == other.sum.to_bits()
            && self.zero_threshold == other.zero_threshold
            && self.zero_count.is_identical(other.zero_count)
            && (!self.is_custom() || self.custom_values == other.custom_values)
            && self.negative.is_equivalent(&other.negative)
            && self.positive.is_equivalent(&other.positive)
    }
}
