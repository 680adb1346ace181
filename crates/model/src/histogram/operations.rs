//! Methods of histograms whose work is done by a module for each.
//!
//! Not here: the type (`sparse`), sums and multiples (`arith`).

use super::bounds::bound;
use super::buckets::Count;
use super::fault::HistogramError;
use super::sparse::{FloatHistogram, HistogramOf, IntHistogram};
use super::trim::TrimSide;
use super::walk::Bucket;
use super::{display, reset, resolution, trim, validate};

impl<C: Count> HistogramOf<C> {
    /// Merges buckets down to `schema`, if that is coarser than the histogram's. Schemas up to
    /// [`SCHEMA_MAX_RESERVED`](super::SCHEMA_MAX_RESERVED) can be reduced.
    ///
    /// # Errors
    /// If spans and counts do not match, or there are custom bounds.
    pub fn reduce_resolution(&mut self, schema: i32) -> Result<(), HistogramError> {
        resolution::reduce(self, schema)
    }
}

impl IntHistogram {
    /// Checks spans, bounds, and that the count is the sum of the buckets (at least, if the sum is NaN).
    ///
    /// # Errors
    /// Prometheus's text.
    pub fn validate(&self) -> Result<(), HistogramError> {
        validate::check_integers(self)
    }
}

impl FloatHistogram {
    /// Checks spans, bounds, and that no count is negative.
    ///
    /// # Errors
    /// Prometheus's text.
    pub fn validate(&self) -> Result<(), HistogramError> {
        validate::check_floats(self)
    }

    /// Returns true if there was a counter reset between `previous` and this histogram: by the hint, because
    /// a count decreased, or because the layout became finer, which happens only at a reset.
    #[must_use]
    pub fn is_reset_after(&self, previous: &FloatHistogram) -> bool {
        reset::is_reset_between(previous, self)
    }

    /// Removes the observations on one side of `at`. Count and sum are computed again from the remaining
    /// ones; they are unchanged if none is removed.
    pub fn trim(&mut self, at: f64, side: TrimSide) {
        trim::trim(self, at, side);
    }

    /// Formats as in Prometheus's test scripts: `{{schema:1 count:3 sum:4 offset:1 buckets:[3]}}`.
    #[must_use]
    pub fn test_expression(&self) -> String {
        display::test_expression(self)
    }

    /// Removes empty buckets at both ends, and inner runs of more than `empty_max`; fills in shorter gaps.
    pub fn compact(&mut self, empty_max: usize) {
        self.positive.compact(None, empty_max);
        self.negative.compact(None, empty_max);
    }

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
