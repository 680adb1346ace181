//! Sums, means, deviations, quantiles of a slice of values; aggregations over series use the same.
//! Invariants: sums carry a compensation (Kahan's, in Neumaier's form), as Prometheus's do.

use crate::column::ABSENT;

/// A running sum and what rounding took from it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sum {
    /// The rounded sum.
    pub value: f64,
    /// The compensation.
    pub rest: f64,
}

impl Sum {
    /// The sum with `value` added.
    pub fn plus(self, value: f64) -> Sum {
        let sum = self.value + value;
        // Both are computed and one is chosen: a branch on the sizes of values is seldom foreseen.
        let of_value = (self.value - sum) + value;
        let of_sum = (value - sum) + self.value;
        let lost = if self.value.abs() >= value.abs() { of_value } else { of_sum };
        let rest = if sum.is_infinite() { 0.0 } else { self.rest + lost };
        Sum { value: sum, rest }
    }

    /// The best estimate of the sum.
    pub fn total(self) -> f64 {
        if self.value.is_infinite() { self.value } else { self.value + self.rest }
    }
}

/// Sums up.
pub fn fold_sum(values: impl Iterator<Item = f64>) -> Sum {
    values.fold(Sum::default(), Sum::plus)
}

/// `sum_over_time`
pub fn sum(values: &[f64]) -> f64 {
    fold_sum(values.iter().copied()).total()
}

/// A running mean: sum divided by count while the sum is finite, from then on the mean itself is carried
/// along.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mean {
    count: f64,
    /// The sum, or the mean once it is `incremental`.
    sum: Sum,
    incremental: bool,
}

impl Mean {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.incremental {
            let sum = self.sum.plus(value);
            if self.count == 1.0 || !sum.value.is_infinite() {
                self.sum = sum;
                return;
            }
            self.incremental = true;
            self.sum.value /= self.count - 1.0;
            self.sum.rest /= self.count - 1.0;
        }
        let kept = (self.count - 1.0) / self.count;
        let scaled = Sum { value: kept * self.sum.value, rest: kept * self.sum.rest };
        self.sum = scaled.plus(value / self.count);
    }

    /// The mean.
    pub fn value(&self) -> f64 {
        if self.incremental {
            self.sum.value + self.sum.rest
        } else {
            self.sum.value / self.count + self.sum.rest / self.count
        }
    }

    /// Returns true if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0.0
    }
}

/// `avg_over_time`
pub fn mean(values: &[f64]) -> f64 {
    let mut mean = Mean::default();
    values.iter().for_each(|&value| mean.add(value));
    mean.value()
}

/// `b` if it is less than `a` or `a` is NaN.
pub fn lesser(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { b } else { a }
}

/// `b` if it is greater than `a` or `a` is NaN.
pub fn greater(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { b } else { a }
}

/// Index of the last value that `wins` over (or equals) all before it; NaN loses.
pub fn last_extreme(values: &[f64], wins: impl Fn(f64, f64) -> bool) -> usize {
    let mut best = 0;
    for (at, &value) in values.iter().enumerate().skip(1) {
        if wins(value, values[best]) || values[best].is_nan() {
            best = at;
        }
    }
    best
}

/// Population variance.
pub fn variance(values: &[f64]) -> f64 {
    let mut count = 0.0;
    let mut mean = Sum::default();
    let mut squares = Sum::default();
    for &value in values {
        count += 1.0;
        let delta = value - (mean.value + mean.rest);
        mean = mean.plus(delta / count);
        squares = squares.plus(delta * (value - (mean.value + mean.rest)));
    }
    (squares.value + squares.rest) / count
}

/// Sorts ascending, NaN before all numbers.
pub fn sort_nan_first(values: &mut [f64]) {
    values.sort_unstable_by(|a, b| b.is_nan().cmp(&a.is_nan()).then_with(|| a.total_cmp(b)));
}

/// The quantile of values sorted by [`sort_nan_first`], interpolated between neighbours.
pub fn quantile(quantile: f64, sorted: &[f64]) -> f64 {
    if sorted.is_empty() || quantile.is_nan() {
        return f64::NAN;
    }
    if quantile < 0.0 {
        return f64::NEG_INFINITY;
    }
    if quantile > 1.0 {
        return f64::INFINITY;
    }
    let rank = quantile * (sorted.len() - 1) as f64;
    let low = rank.floor();
    let high = (low as usize + 1).min(sorted.len() - 1);
    let weight = rank - low;
    // An infinite neighbour must not turn an exact rank into NaN.
    if weight == 0.0 {
        return sorted[low as usize];
    }
    sorted[low as usize] * (1.0 - weight) + sorted[high] * weight
}

/// Median of the distances from the median; NaN if any value is.
pub fn median_deviation(values: &[f64], buffer: &mut Vec<f64>) -> f64 {
    if values.iter().any(|v| v.is_nan()) {
        return f64::NAN;
    }
    buffer.clear();
    buffer.extend_from_slice(values);
    sort_nan_first(buffer);
    let median = quantile(0.5, buffer);
    buffer.iter_mut().for_each(|v| *v = (*v - median).abs());
    sort_nan_first(buffer);
    quantile(0.5, buffer)
}

/// Holt's linear smoothing: the level after the last sample.
pub fn double_exponential(values: &[f64], level_factor: f64, trend_factor: f64) -> f64 {
    let &[first, second, ..] = values else { return ABSENT };
    let mut before = 0.0;
    let mut level = first;
    let mut trend = second - first;
    for (at, &value) in values.iter().enumerate().skip(1) {
        if at > 1 {
            trend = trend_factor * (level - before) + (1.0 - trend_factor) * trend;
        }
        let smoothed = level_factor * value + (1.0 - level_factor) * (level + trend);
        (before, level) = (level, smoothed);
    }
    level
}
