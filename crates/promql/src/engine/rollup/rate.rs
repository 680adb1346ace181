//! Slopes: rate, increase, delta and their instant forms, linear regression.
//! Holds: results equal Prometheus 3's, extrapolation included, bit for bit where the order of operations shows.

use super::Window;
use super::moments::{Sum, fold_sum};
use crate::engine::series::ABSENT;

/// A gap at an end of the window of up to this many average distances counts as covered by the series.
const EXTRAPOLATION_FACTOR: f64 = 1.1;

/// Which of rate, increase and delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extrapolation {
    /// `rate`
    CounterPerSecond,
    /// `increase`
    Counter,
    /// `delta`
    Gauge,
}

/// The growth within the window, extended to its ends: fully where the series seems to go on beyond the end,
/// else by half an average distance; a counter never to before it was zero.
///
/// `resets` are the indices (into `series`) of samples inside the window that are lower than the one before.
pub(crate) fn extrapolated(
    window: &Window<'_>,
    resets: &[usize],
    series: &[f64],
    kind: Extrapolation,
) -> f64 {
    let (&[first_time, .., last_time], &[first, .., last]) = (window.times, window.values) else {
        return ABSENT;
    };
    let mut growth = last - first;
    for &at in resets {
        growth += series[at - 1];
    }
    let covered = (last_time - first_time) as f64 / 1000.0;
    let distance = covered / (window.times.len() - 1) as f64;
    let limit = distance * EXTRAPOLATION_FACTOR;
    let extend = |gap_ms: i64| {
        let gap = gap_ms as f64 / 1000.0;
        if gap >= limit { distance / 2.0 } else { gap }
    };
    let mut before = extend(first_time - window.start_ms);
    let after = extend(window.end_ms - last_time);
    if kind != Extrapolation::Gauge && growth > 0.0 && first >= 0.0 {
        let since_zero = covered * (first / growth);
        if since_zero < before {
            before = since_zero;
        }
    }
    let mut factor = (covered + before + after) / covered;
    if kind == Extrapolation::CounterPerSecond {
        factor /= (window.end_ms - window.start_ms) as f64 / 1000.0;
    }
    growth * factor
}

/// Growth per second between the last two samples; a drop counts as a reset to zero.
pub(crate) fn instant_rate(window: &Window<'_>) -> f64 {
    let (&[.., time, last_time], &[.., value, last]) = (window.times, window.values) else { return ABSENT };
    let growth = if last < value { last } else { last - value };
    growth / ((last_time - time) as f64 / 1000.0)
}

/// Difference of the last two samples.
pub(crate) fn instant_delta(window: &Window<'_>) -> f64 {
    match window.values {
        [.., value, last] => last - value,
        _ => ABSENT,
    }
}

/// Slope per second of the line through the samples.
pub(crate) fn derivative(window: &Window<'_>) -> f64 {
    match window.times {
        [first, _, ..] => regression(window, *first).0,
        _ => ABSENT,
    }
}

/// Where the line through the samples is `ahead` seconds after `now_ms`.
pub(crate) fn predict(window: &Window<'_>, now_ms: i64, ahead: f64) -> f64 {
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
