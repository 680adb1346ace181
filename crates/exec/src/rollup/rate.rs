//! Slopes: rate, increase, delta and their instant forms, linear regression.
//! Invariants: results equal Prometheus 3's, extrapolation included, bit for bit where the order of
//! operations shows.

use super::moments::{Sum, fold_sum};
use super::window::Window;
use crate::column::ABSENT;
use crate::histogram::growth::starts_anew;

/// A gap at an end of the window of up to this many average distances counts as covered by the series.
pub(super) const EXTRAPOLATION_FACTOR: f64 = 1.1;

/// Kind of growth: rate, increase or delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extrapolation {
    /// `rate`
    CounterPerSecond,
    /// `increase`
    Counter,
    /// `delta`
    Gauge,
}

/// From the first to the last sample of a window.
pub struct Extent {
    first_ms: i64,
    last_ms: i64,
    /// Distances between samples.
    gap_count: usize,
    start_ms: i64,
    end_ms: i64,
}

impl Extent {
    /// Extent of the samples at `times` within `window`; `None` if there are none.
    pub fn of(window: &Window<'_>, times: &[i64]) -> Option<Extent> {
        let first_ms = *times.first()?;
        let last_ms = *times.last()?;
        let Window { start_ms, end_ms, .. } = *window;
        Some(Extent { first_ms, last_ms, gap_count: times.len() - 1, start_ms, end_ms })
    }

    /// The start timestamp of the first sample, if it is known and within the window: the counter was zero
    /// then.
    pub fn origin(&self, kind: Extrapolation, start_times: &[i64]) -> Option<i64> {
        let start = start_times.first().copied().filter(|&start| start != 0)?;
        (kind != Extrapolation::Gauge && start > self.start_ms && start < self.first_ms).then_some(start)
    }

    fn distance(&self) -> f64 {
        if self.gap_count == 0 {
            return 0.0;
        }
        (self.last_ms - self.first_ms) as f64 / 1000.0 / self.gap_count as f64
    }

    fn extended(&self, gap_ms: i64) -> f64 {
        let gap = gap_ms as f64 / 1000.0;
        let distance = self.distance();
        if gap >= distance * EXTRAPOLATION_FACTOR { distance / 2.0 } else { gap }
    }

    /// Covered range plus the extensions before and after it, added in Prometheus's order, to the last bit.
    fn scale(&self, covered: f64, (before, after): (f64, f64), kind: Extrapolation) -> f64 {
        let factor = if covered == 0.0 { 1.0 } else { (covered + before + after) / covered };
        if kind != Extrapolation::CounterPerSecond {
            return factor;
        }
        factor / ((self.end_ms - self.start_ms) as f64 / 1000.0)
    }

    /// Factor of the growth. `zero_share` is the first value divided by the growth, where that tells
    /// when the counter was zero.
    pub fn factor(&self, kind: Extrapolation, zero_share: Option<f64>) -> f64 {
        let covered = (self.last_ms - self.first_ms) as f64 / 1000.0;
        let mut before = self.extended(self.first_ms - self.start_ms);
        let after = self.extended(self.end_ms - self.last_ms);
        if let Some(share) = zero_share.filter(|_| kind != Extrapolation::Gauge) {
            let since_zero = covered * share;
            if since_zero < before {
                before = since_zero;
            }
        }
        self.scale(covered, (before, after), kind)
    }

    /// The same where the counter started at `origin_ms`.
    pub fn factor_from(&self, origin_ms: i64, kind: Extrapolation) -> f64 {
        let covered = (self.last_ms - origin_ms) as f64 / 1000.0;
        self.scale(covered, (0.0, self.extended(self.end_ms - self.last_ms)), kind)
    }
}

/// As [`extrapolated`] for counters with start timestamps.
pub fn extrapolated_with_starts(
    window: &Window<'_>,
    start_times: &[i64],
    kind: Extrapolation,
) -> Option<f64> {
    let &first = window.values.first()?;
    let &last = window.values.last()?;
    let mut growth = last - first;
    for (at, pair) in window.values.windows(2).enumerate() {
        if pair[1] < pair[0] || starts_anew(start_times, window.times, at + 1) {
            growth += pair[0];
        }
    }
    let extent = Extent::of(window, window.times)?;
    if let Some(origin) = extent.origin(kind, start_times) {
        return Some((growth + first) * extent.factor_from(origin, kind));
    }
    if window.times.len() < 2 {
        return None;
    }
    let share = (growth > 0.0 && first >= 0.0).then(|| first / growth);
    Some(growth * extent.factor(kind, share))
}

/// [`instant_rate`] where the counter was reset before the last sample.
pub fn instant_rate_anew(window: &Window<'_>) -> f64 {
    let (&[.., time, last_time], &[.., last]) = (window.times, window.values) else { return ABSENT };
    last / ((last_time - time) as f64 / 1000.0)
}

/// Growth per second between the last two samples; a drop counts as a reset to zero.
pub fn instant_rate(window: &Window<'_>) -> f64 {
    let (&[.., time, last_time], &[.., value, last]) = (window.times, window.values) else { return ABSENT };
    let growth = if last < value { last } else { last - value };
    growth / ((last_time - time) as f64 / 1000.0)
}

/// Difference of the last two samples.
pub fn instant_delta(window: &Window<'_>) -> f64 {
    match window.values {
        [.., value, last] => last - value,
        _ => ABSENT,
    }
}

/// Slope per second of the line through the samples.
pub fn derivative(window: &Window<'_>) -> f64 {
    match window.times {
        [first, _, ..] => regression(window, *first).0,
        _ => ABSENT,
    }
}

/// Value of the regression line through the samples at `ahead` seconds after `now_ms`.
pub fn predict(window: &Window<'_>, now_ms: i64, ahead: f64) -> f64 {
    if window.times.len() < 2 {
        return ABSENT;
    }
    let (slope, intercept) = regression(window, now_ms);
    slope * ahead + intercept
}

/// Slope per second, and value at `origin_ms`, of the line with the least squared distance.
fn regression(window: &Window<'_>, origin_ms: i64) -> (f64, f64) {
    let first = window.values[0];
    if window.values.iter().all(|&value| value == first) {
        return if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) };
    }
    let count = window.values.len() as f64;
    let seconds = || window.times.iter().map(|&time| (time - origin_ms) as f64 / 1000.0);
    let total = |sum: Sum| sum.value + sum.rest;
    let sum_x = total(fold_sum(seconds()));
    let sum_y = total(fold_sum(window.values.iter().copied()));
    let sum_xy = total(fold_sum(seconds().zip(window.values).map(|(x, y)| x * y)));
    let sum_xx = total(fold_sum(seconds().map(|x| x * x)));
    let covariance = sum_xy - sum_x * sum_y / count;
    let variance = sum_xx - sum_x * sum_x / count;
    let slope = covariance / variance;
    (slope, sum_y / count - slope * sum_x / count)
}
