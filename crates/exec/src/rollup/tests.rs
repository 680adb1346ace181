//! Kernels against hand-computed values, and windows at their borders.

use std::sync::Arc;

use chronolith_base::SystemClock;

use super::*;
use crate::grid::{Grid, TimeShift};

fn columns(samples: &[(i64, f64)]) -> Columns {
    let mut columns = Columns::default();
    samples.iter().for_each(|&(time, value)| columns.push(time, value));
    columns
}

fn windows(start_ms: i64, step_ms: i64, count: usize, width_ms: i64) -> Windows {
    let shift = TimeShift { fixed_ms: None, offset_ms: 0 };
    Windows::new(Grid { start_ms, step_ms, count, end_ms: start_ms }, shift, width_ms)
}

#[track_caller]
fn check(rollup: Rollup, samples: &[(i64, f64)], windows: Windows, want: &[f64]) {
    let mut out = Vec::new();
    let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
    rollup.roll(&columns(samples), &windows, &ctx, &mut RollupBuffer::default(), &mut out).unwrap();
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&out), bits(want), "{out:?} instead of {want:?}");
}

#[test]
fn window_excludes_its_start_and_includes_its_end() {
    let samples = [(0, 1.0), (10, 2.0), (20, 4.0)];
    check(Rollup::Sum, &samples, windows(0, 10, 5, 10), &[1.0, 2.0, 4.0, ABSENT, ABSENT]);
    check(Rollup::Count, &samples, windows(20, 10, 2, 20), &[2.0, 1.0]);
}

#[test]
fn rate_needs_two_samples_and_counts_resets() {
    let samples = [(0, 0.0), (10_000, 10.0), (20_000, 4.0), (30_000, 14.0)];
    check(Rollup::Increase, &samples, windows(30_000, 1, 1, 30_000), &[14.0 * (30.0 / 20.0)]);
    check(Rollup::Rate, &samples, windows(5_000, 1, 1, 10_000), &[ABSENT]);
    check(Rollup::Resets, &samples, windows(30_000, 1, 1, 40_000), &[1.0]);
    check(Rollup::Changes, &samples, windows(30_000, 1, 1, 20_000), &[1.0]);
}

#[test]
fn huge_values_that_cancel_leave_the_small_ones() {
    let samples = [(1, 1.0), (2, 1e100), (3, 1.0), (4, -1e100)];
    check(Rollup::Sum, &samples, windows(4, 1, 1, 10), &[2.0]);
    check(Rollup::Avg, &samples, windows(4, 1, 1, 10), &[0.5]);
}

/// The time of a last sample before 1970 was reported as 0: a kind of sample that a window lacks counted as
/// one at 0.
#[test]
fn last_sample_may_be_before_1970() {
    check(Rollup::TimeOfLast, &[(-20_000, 1.0), (-10_000, 1.0)], windows(-5_000, 1, 1, 60_000), &[-10.0]);
}

/// An exact rank was NaN next to an infinite value: the neighbour was weighted with zero.
#[test]
fn exact_rank_ignores_its_neighbour() {
    let samples = [(1, 1.0), (2, 2.0), (3, f64::INFINITY)];
    check(Rollup::Quantile(StepScalar::Constant(0.5)), &samples, windows(3, 1, 1, 10), &[2.0]);
    let samples = [(1, f64::NEG_INFINITY), (2, 2.0), (3, 3.0)];
    check(Rollup::Quantile(StepScalar::Constant(0.5)), &samples, windows(3, 1, 1, 10), &[2.0]);
}

#[test]
fn mean_survives_an_overflowing_sum() {
    let big = f64::MAX / 1.5;
    check(Rollup::Avg, &[(1, big), (2, big)], windows(2, 1, 1, 10), &[big]);
}

#[test]
fn sliding_extremes_equal_those_of_each_window() {
    // A fixed walk with equal neighbours, NaN, both zeros and both infinities.
    let pool =
        [3.0, 1.0, 1.0, f64::NAN, -0.0, 0.0, 2.0, f64::INFINITY, 5.0, f64::NEG_INFINITY, f64::NAN, 4.0];
    let samples: Vec<(i64, f64)> = (0..200_i64).map(|i| (i * 10, pool[(i * i % 97 % 12) as usize])).collect();
    for (width_ms, step_ms) in [(10, 10), (35, 10), (100, 7), (500, 30), (15, 100)] {
        let windows = windows(0, step_ms, 300, width_ms);
        for (rollup, fold) in
            [(Rollup::Max, moments::greater as fn(f64, f64) -> f64), (Rollup::Min, moments::lesser)]
        {
            let naive = |step: usize| {
                let inside = |time: i64| time > windows.start(step) && time <= windows.end(step);
                samples.iter().filter(|s| inside(s.0)).map(|s| s.1).reduce(fold).unwrap_or(ABSENT)
            };
            let want: Vec<f64> = (0..300).map(naive).collect();
            // One window alone takes another way.
            for step in (0..300).step_by(7) {
                let alone = self::windows(windows.end(step), 1, 1, width_ms);
                check(rollup.clone(), &samples, alone, &want[step..=step]);
            }
            check(rollup, &samples, windows, &want);
        }
    }
}
