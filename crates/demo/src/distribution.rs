//! Histograms of all three kinds over one distribution: log-logistic, as latencies and sizes are, with a long
//! tail.
//!
//! Invariants: counts never fall but by `reset`; the counts of a histogram add up to its count.

use std::sync::Arc;

use chronolith_model::histogram::{Buckets, SCHEMA_CUSTOM};
use chronolith_model::{Histogram, IntHistogram, Span};

/// Exponent of the tail: one in 100 observations is 3.7 times the median, one in 1,500 eight times.
const SHAPE: f64 = 3.5;
/// Four exponential buckets per factor of two.
const SCHEMA: i32 = 2;
/// Zero threshold of Prometheus's client libraries.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;
/// Upper bounds of the exponential buckets: 2^(idx/4), from 0.2 ms to 90 s.
const FIRST_IDX: i32 = -48;
const EXPONENTIAL_COUNT: usize = 75;

/// Observations of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observed {
    pub(super) count: f64,
    pub(super) median: f64,
}

impl Observed {
    /// Part of the observations that are at most `bound`.
    fn share_to(self, bound: f64) -> f64 {
        1.0 / (1.0 + (self.median / bound).powf(SHAPE))
    }

    /// Sum of the observations: the mean is 1.15 times the median.
    fn sum(self) -> f64 {
        self.count * self.median * 1.15
    }

    /// The observation with this share below it.
    pub(crate) fn quantile(self, share: f64) -> f64 {
        self.median * (share / (1.0 - share)).powf(1.0 / SHAPE)
    }
}

/// Native histogram with exponential buckets.
#[derive(Debug)]
pub(crate) struct Exponential {
    /// Expected observations per bucket so far; emitted counts are whole.
    counts: [f64; EXPONENTIAL_COUNT],
    sum: f64,
}

impl Exponential {
    pub(crate) fn new() -> Exponential {
        Exponential { counts: [0.0; EXPONENTIAL_COUNT], sum: 0.0 }
    }

    pub(crate) fn reset(&mut self) {
        *self = Exponential::new();
    }

    pub(crate) fn observe(&mut self, observed: Observed) {
        // From one bound to the next the ratio is constant, so its power is, too.
        let factor = 2_f64.powf(-SHAPE / f64::from(1 << SCHEMA));
        let first_bound = 2_f64.powf(f64::from(FIRST_IDX) / f64::from(1 << SCHEMA));
        let mut power = (observed.median / first_bound).powf(SHAPE);
        let mut before = 0.0;
        for count in &mut self.counts {
            let share = 1.0 / (1.0 + power);
            *count += observed.count * (share - before);
            before = share;
            power *= factor;
        }
        self.sum += observed.sum();
    }

    pub(crate) fn histogram(&self) -> Histogram {
        let whole = |count: &f64| *count as u64;
        let first = self.counts.iter().position(|count| whole(count) > 0);
        let last = self.counts.iter().rposition(|count| whole(count) > 0);
        let mut positive = Buckets::default();
        if let (Some(first), Some(last)) = (first, last) {
            positive.counts = self.counts[first..=last].iter().map(whole).collect();
            let offset = FIRST_IDX + first as i32;
            positive.spans = vec![Span { offset, length: (last - first + 1) as u32 }];
        }
        Histogram::Int(IntHistogram {
            schema: SCHEMA,
            zero_threshold: ZERO_THRESHOLD,
            count: positive.counts.iter().sum(),
            sum: self.sum,
            positive,
            ..IntHistogram::default()
        })
    }
}

/// Observations at or below bounds: a classic histogram, or a native one with these bounds.
#[derive(Debug)]
pub(crate) struct Bounded {
    bounds: Arc<[f64]>,
    /// Expected observations at or below each bound so far.
    below: Vec<f64>,
    count: f64,
    sum: f64,
}

impl Bounded {
    pub(crate) fn new(bounds: &[f64]) -> Bounded {
        Bounded { bounds: Arc::from(bounds), below: vec![0.0; bounds.len()], count: 0.0, sum: 0.0 }
    }

    pub(crate) fn reset(&mut self) {
        self.below.fill(0.0);
        self.count = 0.0;
        self.sum = 0.0;
    }

    pub(crate) fn observe(&mut self, observed: Observed) {
        for (below, bound) in self.below.iter_mut().zip(self.bounds.iter()) {
            *below += observed.count * observed.share_to(*bound);
        }
        self.count += observed.count;
        self.sum += observed.sum();
    }

    /// Counts of the buckets `le`, the one of all observations last.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = f64> + '_ {
        self.below.iter().copied().chain([self.count]).map(f64::floor)
    }

    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// Index of the bucket that has `value`.
    pub(crate) fn bucket_of(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }

    pub(crate) fn histogram(&self) -> Histogram {
        let mut before = 0;
        let counts: Vec<u64> = self
            .cumulative()
            .map(|below| {
                let count = (below as u64).saturating_sub(before);
                before += count;
                count
            })
            .collect();
        let spans = vec![Span { offset: 0, length: counts.len() as u32 }];
        Histogram::Int(IntHistogram {
            schema: SCHEMA_CUSTOM,
            count: before,
            sum: self.sum,
            positive: Buckets { spans, counts },
            custom_values: self.bounds.clone(),
            ..IntHistogram::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::Histogram;

    use super::{Bounded, Exponential, Observed};

    fn observations() -> impl Iterator<Item = Observed> {
        (1..200).map(|i| Observed { count: f64::from(i % 7) * 3.0, median: 0.003 * f64::from(i) })
    }

    #[test]
    fn histograms_are_valid_after_each_step_and_never_fall() {
        let mut exponential = Exponential::new();
        let mut custom = Bounded::new(&[0.01, 0.1, 1.0]);
        let mut before = (0.0, 0.0);
        for observed in observations() {
            exponential.observe(observed);
            custom.observe(observed);
            for histogram in [exponential.histogram(), custom.histogram()] {
                histogram.validate().expect("valid");
            }
            let after = (count_of(&exponential.histogram()), count_of(&custom.histogram()));
            assert!(before.0 <= after.0 && before.1 <= after.1, "{before:?} {after:?}");
            before = after;
        }
    }

    #[test]
    fn the_median_is_in_the_bucket_with_half_of_the_observations_below_its_end() {
        let observed = Observed { count: 1e6, median: 0.1 };
        let mut bounded = Bounded::new(&[0.1, 0.37, 0.8]);
        bounded.observe(observed);
        let counts: Vec<f64> = bounded.cumulative().collect();
        assert_eq!(counts[0], 500_000.0);
        assert!((counts[1] / 1e6 - 0.99).abs() < 0.001, "{counts:?}");
        assert!((observed.quantile(0.99) - 0.37).abs() < 0.01);
        assert_eq!(bounded.bucket_of(observed.quantile(0.98)), 1);
    }

    #[test]
    fn a_reset_begins_at_zero() {
        let mut exponential = Exponential::new();
        exponential.observe(Observed { count: 100.0, median: 0.1 });
        exponential.reset();
        assert_eq!(count_of(&exponential.histogram()), 0.0);
    }

    fn count_of(histogram: &Histogram) -> f64 {
        match histogram {
            Histogram::Int(histogram) => histogram.count as f64,
            Histogram::Float(histogram) => histogram.count,
        }
    }
}
