//! Buckets of a float histogram with their bounds, in order.

use super::bounds::bound;
use super::sparse::FloatHistogram;

/// One bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// The lower bound is inclusive.
    pub lower_inclusive: bool,
    /// The upper bound is inclusive.
    pub upper_inclusive: bool,
    /// Observations.
    pub count: f64,
}

impl Bucket {
    /// Interpolates the fraction of the bucket at or below `value`, which is strictly inside: linearly if
    /// `linear`, else exponentially.
    #[must_use]
    pub fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        if linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let (lower, upper) = (self.lower.abs().log2(), self.upper.abs().log2());
        let at = value.abs().log2();
        if value > 0.0 { (at - lower) / (upper - lower) } else { 1.0 - (at - upper) / (lower - upper) }
    }

    /// Code of the query API for the inclusive bounds: 0 upper, 1 lower, 2 none, 3 both.
    #[must_use]
    pub fn boundary_rule(&self) -> u8 {
        match (self.lower_inclusive, self.upper_inclusive) {
            (false, true) => 0,
            (true, false) => 1,
            (false, false) => 2,
            (true, true) => 3,
        }
    }
}

impl FloatHistogram {
    /// Positive buckets, from zero upwards; empty ones included.
    pub fn positive_buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let custom = self.is_custom();
        self.positive.walk().map(move |(idx, count)| {
            let lower = bound(idx.saturating_sub(1), self.schema, &self.custom_values);
            let upper = bound(idx, self.schema, &self.custom_values);
            Bucket { lower, upper, lower_inclusive: custom && idx == 0, upper_inclusive: true, count }
        })
    }

    /// Negative buckets, from zero downwards; empty ones included.
    pub fn negative_buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.negative.walk().map(move |(idx, count)| {
            let lower = -bound(idx, self.schema, &[]);
            let upper = -bound(idx.saturating_sub(1), self.schema, &[]);
            Bucket { lower, upper, lower_inclusive: true, upper_inclusive: false, count }
        })
    }

    /// The zero bucket.
    #[must_use]
    pub fn zero_bucket(&self) -> Bucket {
        Bucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            lower_inclusive: true,
            upper_inclusive: true,
            count: self.zero_count,
        }
    }

    /// Replaces `out` by all buckets, ascending; the zero bucket only if it is populated. Buckets that
    /// overlap the zero bucket are cut at its bounds.
    pub fn all_buckets(&self, out: &mut Vec<Bucket>) {
        out.clear();
        out.extend(self.negative_buckets().map(|mut bucket| {
            if bucket.upper < 0.0 && bucket.upper > -self.zero_threshold {
                bucket.upper = -self.zero_threshold;
            }
            bucket
        }));
        out.reverse();
        if self.zero_count > 0.0 {
            out.push(self.zero_bucket());
        }
        out.extend(self.positive_buckets().map(|mut bucket| {
            if bucket.lower > 0.0 && bucket.lower < self.zero_threshold {
                bucket.lower = self.zero_threshold;
            }
            bucket
        }));
    }
}
