//! A bucket with its bounds.
//!
//! Not here: the buckets of a histogram in order (`operations`).

use crate::go_math::log2;

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
        let [lower, upper, at] = [self.lower, self.upper, value].map(|bound| log2(bound.abs()));
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
