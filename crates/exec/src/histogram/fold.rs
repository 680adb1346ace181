//! Sums and means of histograms.
//! Invariants: sums are compensated; a mean is the sum divided by the count as long as the sum is finite,
//! from then on the mean itself is carried along; hints that contradict each other are noticed over all
//! histograms that were added.

use chronolith_model::FloatHistogram;
use chronolith_model::ResetHint;
use chronolith_model::histogram::{Compensation, Incompatible, Merged};

/// Fields below this cannot become infinite by one addition, however many buckets merge.
const SAFE_MAGNITUDE: f64 = 1e295;

/// A running sum or mean.
#[derive(Debug, Clone)]
pub struct HistogramFold {
    /// The sum, or the mean once it is `incremental`.
    value: FloatHistogram,
    rest: Compensation,
    count: f64,
    incremental: bool,
    reset_seen: bool,
    not_reset_seen: bool,
    /// Some custom bounds were different.
    pub reconciled: bool,
    /// Exponential buckets and custom bounds in one fold: there is no result.
    pub incompatible: bool,
    /// A float came first: there will be no result, and nothing is added.
    inert: bool,
}

impl HistogramFold {
    /// The first histogram.
    pub fn new(first: &FloatHistogram) -> HistogramFold {
        let mut fold = HistogramFold {
            value: first.clone(),
            rest: Compensation::of(first),
            count: 1.0,
            incremental: false,
            reset_seen: false,
            not_reset_seen: false,
            reconciled: false,
            incompatible: false,
            inert: false,
        };
        fold.see(first.reset_hint);
        fold
    }

    /// A fold that ignores histograms, for a group that has a float.
    pub fn inert() -> HistogramFold {
        HistogramFold { inert: true, ..HistogramFold::new(&FloatHistogram::default()) }
    }

    fn see(&mut self, hint: ResetHint) {
        self.reset_seen |= hint == ResetHint::Reset;
        self.not_reset_seen |= hint == ResetHint::NotReset;
    }

    /// Returns true if reset hints contradict each other.
    pub fn hints_collide(&self) -> bool {
        self.reset_seen && self.not_reset_seen
    }

    /// Adds to a sum. After the first histogram that does not fit nothing is added.
    pub fn add_to_sum(&mut self, other: &FloatHistogram) {
        if self.incompatible || self.inert {
            return;
        }
        self.count += 1.0;
        self.see(other.reset_hint);
        let merged = self.value.add_compensated(other, &mut self.rest);
        self.note(merged);
    }

    /// Adds to a mean. After the first histogram that does not fit nothing is added.
    pub fn add_to_mean(&mut self, other: &FloatHistogram) {
        if self.incompatible || self.inert {
            return;
        }
        self.count += 1.0;
        self.see(other.reset_hint);
        if !self.incremental && self.add_if_finite(other) {
            return;
        }
        if !self.incremental {
            self.incremental = true;
            self.value.divide(self.count - 1.0);
            self.rest.divide(self.count - 1.0);
        }
        let kept = (self.count - 1.0) / self.count;
        self.value.multiply(kept);
        self.rest.scale(kept);
        let mut share = other.clone();
        share.divide(self.count);
        let merged = self.value.add_compensated(&share, &mut self.rest);
        self.note(merged);
    }

    /// Adds to the sum unless it would become infinite; then nothing has changed.
    fn add_if_finite(&mut self, other: &FloatHistogram) -> bool {
        // The copy, which only a sum near the greatest number needs, is most of the cost.
        if magnitude(&self.value) + magnitude(other) < SAFE_MAGNITUDE {
            let merged = self.value.add_compensated(other, &mut self.rest);
            self.note(merged);
            return true;
        }
        let mut value = self.value.clone();
        let mut rest = self.rest.clone();
        let merged = value.add_compensated(other, &mut rest);
        self.note(merged);
        if value.has_overflow() {
            return false;
        }
        (self.value, self.rest) = (value, rest);
        true
    }

    fn note(&mut self, merged: Result<Merged, Incompatible>) {
        match merged {
            Ok(merged) => self.reconciled |= merged.bounds_reconciled,
            Err(Incompatible) => self.incompatible = true,
        }
    }

    /// The sum.
    pub fn into_sum(mut self) -> FloatHistogram {
        self.value.add_compensation(&self.rest);
        self.value
    }

    /// The mean.
    pub fn into_mean(mut self) -> FloatHistogram {
        if !self.incremental {
            self.value.divide(self.count);
            self.rest.divide(self.count);
        }
        self.value.add_compensation(&self.rest);
        self.value
    }

    /// Bytes for budgets.
    pub fn heap_bytes(&self) -> usize {
        size_of::<HistogramFold>() + self.value.heap_bytes() + self.rest.heap_bytes()
    }
}

/// The greatest amount among all counts and the sum; infinite if something is not finite.
fn magnitude(histogram: &FloatHistogram) -> f64 {
    let counts = histogram.positive.counts.iter().chain(&histogram.negative.counts);
    let all = counts.chain([&histogram.zero_count, &histogram.count, &histogram.sum]);
    all.fold(0.0, |most: f64, value| if value.is_finite() { most.max(value.abs()) } else { f64::INFINITY })
}
