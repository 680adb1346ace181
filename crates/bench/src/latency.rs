//! Durations of requests, and their quantiles.
//!
//! Invariants: a quantile is a measured value, the one of the nearest rank and the larger one of two.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs `work` and adds its duration to `list_ms`.
pub(crate) fn timed<T>(list_ms: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    list_ms.push(start.elapsed().as_secs_f64() * 1e3);
    done
}

/// Repeats `request` with a pause after each until `is_over`; returns the durations in milliseconds.
pub(crate) fn repeat(
    pause: Duration,
    is_over: impl Fn() -> bool,
    mut request: impl FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let mut list_ms = Vec::new();
    while !is_over() {
        timed(&mut list_ms, &mut request)?;
        std::thread::sleep(pause);
    }
    Ok(list_ms)
}

/// Returns the value below which the part `quantile` of all lies; NaN of none.
pub(crate) fn at(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    let rank = (sorted.len().saturating_sub(1) as f64 * quantile).round() as usize;
    if rank >= sorted.len() {
        return f64::NAN;
    }
    *sorted.select_nth_unstable_by(rank, f64::total_cmp).1
}

/// Returns the value in the middle; NaN of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    at(values, 0.5)
}

/// Returns the largest value; NaN of none.
pub(crate) fn largest(values: &[f64]) -> f64 {
    at(values, 1.0)
}

#[cfg(test)]
mod tests {
    use super::{at, largest, median, timed};

    #[test]
    fn quantiles_are_measured_values_in_any_order() {
        let values: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!((median(&values), at(&values, 0.99), largest(&values)), (51.0, 100.0, 101.0));
        assert_eq!(median(&[4.0, 1.0]), 4.0);
        assert!(median(&[]).is_nan() && largest(&[]).is_nan());
    }

    #[test]
    fn each_duration_is_kept_and_the_result_returned() {
        let mut list_ms = Vec::new();
        assert_eq!([timed(&mut list_ms, || 1), timed(&mut list_ms, || 2)], [1, 2]);
        assert!(list_ms.len() == 2 && list_ms.iter().all(|ms| *ms >= 0.0));
    }
}
