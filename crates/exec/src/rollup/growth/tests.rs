//! Sliding windows against the plain form, bit for bit.

use chronolith_base::Env;
use chronolith_model::{Columns, ReadContext};

use super::{Even, Growth, Window, roll};
use crate::column::ABSENT;
use crate::grid::{Grid, TimeShift, Windows};
use crate::rollup::event::{self, is_reset};
use crate::rollup::rate::{EXTRAPOLATION_FACTOR, Extrapolation};

/// Windows over samples at `times` with `values` must give what the plain function gives, bit for bit.
fn check(times: &[i64], values: &[f64]) {
    let mut resets = Vec::new();
    event::find(values, is_reset, &mut resets);
    for kind in [Extrapolation::CounterPerSecond, Extrapolation::Counter, Extrapolation::Gauge] {
        for (width, step) in [(300_000, 60_000), (60_000, 60_000), (61_000, 7_000), (1_000_000, 1_000_000)] {
            let found = if kind == Extrapolation::Gauge { &[][..] } else { &resets[..] };
            let mut growth = Growth::new(values, found, kind);
            let mut end_ms = times[0];
            while end_ms < times[times.len() - 1] + width {
                let start_ms = end_ms - width;
                let low = times.partition_point(|&time| time <= start_ms);
                let high = times.partition_point(|&time| time <= end_ms);
                let (times, inside) = (&times[low..high], &values[low..high]);
                let window = Window { times, values: inside, start_ms, end_ms, first_idx: low, step: 0 };
                let from = found.partition_point(|&at| at <= low);
                let to = found.partition_point(|&at| at < high).max(from);
                let want = extrapolated(&window, &found[from..to], values, kind);
                let got = growth.of(&window);
                assert_eq!(got.to_bits(), want.to_bits(), "{kind:?} {window:?}: {got} and {want}");
                end_ms += step;
            }
        }
    }
}

/// Requires that the whole path over a grid of steps equals the plain function, bit for bit.
fn check_grid(times: &[i64], values: &[f64], start_ms: i64, step_ms: i64, width_ms: i64) {
    let mut resets = Vec::new();
    event::find(values, is_reset, &mut resets);
    let shift = TimeShift { fixed_ms: None, offset_ms: 0 };
    let grid = Grid::between(start_ms, start_ms + 400 * 15_000, step_ms).expect("a grid");
    let windows = Windows::new(grid, shift, width_ms);
    let columns = Columns { times: times.to_vec(), values: values.to_vec(), ..Columns::default() };
    let ctx = ReadContext::unlimited(Env::fake(0, 1).0.clock);
    for kind in [Extrapolation::CounterPerSecond, Extrapolation::Counter, Extrapolation::Gauge] {
        let found = if kind == Extrapolation::Gauge { &[][..] } else { &resets[..] };
        let mut got = Vec::new();
        roll(&columns, &windows, &ctx, found, kind, &mut got).expect("not stopped");
        assert_eq!(got.len(), grid.count);
        for (step, got) in got.into_iter().enumerate() {
            let (start_ms, end_ms) = (windows.start(step), windows.end(step));
            let low = times.partition_point(|&time| time <= start_ms);
            let high = times.partition_point(|&time| time <= end_ms);
            let (times, inside) = (&times[low..high], &values[low..high]);
            let window = Window { times, values: inside, start_ms, end_ms, first_idx: low, step };
            let from = found.partition_point(|&at| at <= low);
            let to = found.partition_point(|&at| at < high).max(from);
            let want = extrapolated(&window, &found[from..to], values, kind);
            assert_eq!(got.to_bits(), want.to_bits(), "{kind:?} step {step} {window:?}: {got} and {want}");
        }
    }
}

#[test]
fn even_samples_give_what_the_plain_function_says() {
    let even: Vec<i64> = (0..200).map(|k| 1_000_000 + k * 15_000).collect();
    let mut holed = even.clone();
    holed.remove(77);
    let old: Vec<f64> = (0..200).map(|k| 1e6 + f64::from(k * k)).collect();
    let young: Vec<f64> = (0..200).map(|k| f64::from(k) * 0.1).collect();
    let resetting: Vec<f64> = (0..200).map(|k| f64::from(k % 90)).collect();
    for start_ms in [-900_000, 999_999, 1_000_000, 1_003_500, 1_400_000, 3_900_000, 5_000_000] {
        for step_ms in [15_000, 60_000, 600_000, 20_000, 7_001] {
            for width_ms in [300_000, 29_999, 30_000, 15_000, 10_000_000] {
                for values in [&old, &young, &resetting] {
                    check_grid(&even, values, start_ms, step_ms, width_ms);
                    check_grid(&holed, &values[1..], start_ms, step_ms, width_ms);
                }
            }
        }
    }
    let windows = |start_ms| {
        let grid = Grid::between(start_ms, start_ms + 600_000, 60_000).expect("a grid");
        Windows::new(grid, TimeShift { fixed_ms: None, offset_ms: 0 }, 300_000)
    };
    let found = Even::of(&even, &windows(1_600_000)).expect("it is even");
    assert_eq!((found.steps, found.stride), (0..11, 4));
    assert_eq!(Even::of(&holed, &windows(1_600_000)), None);
    assert_eq!(Even::of(&even, &windows(i64::MIN + 5)), None);
    assert_eq!(Even::of(&even, &windows(9_000_000)), None);
}

#[test]
fn growth_is_what_the_plain_function_says() {
    let regular: Vec<i64> = (0..400).map(|k| 1_000 + k * 15_000).collect();
    let jittered: Vec<i64> = (0..400).map(|k| k * 15_000 + (k * k * 7919) % 5_000).collect();
    let gappy: Vec<i64> = (0..400).map(|k| (k + k / 37 * 30) * 15_000).collect();
    let counter: Vec<f64> = (0..400).map(|k| f64::from(k * 3 % 1000)).collect();
    let resetting: Vec<f64> = (0..400).map(|k| f64::from(k % 29) * 0.1).collect();
    let young: Vec<f64> = (0..400).map(|k| f64::from(k) * f64::from(k)).collect();
    let odd: Vec<f64> = (0..400)
        .map(|k| match k % 7 {
            0 => f64::INFINITY,
            1 => f64::NAN,
            2 => -0.0,
            3 => f64::MIN_POSITIVE / 2.0,
            4 => -1e300,
            5 => f64::MAX,
            _ => f64::from(k),
        })
        .collect();
    for times in [&regular, &jittered, &gappy] {
        for values in [&counter, &resetting, &young, &odd] {
            check(times, values);
        }
    }
}

/// The plain form, one window at a time.
///
/// `resets` are the indices (into `series`) of samples inside the window that are lower than the one before.
fn extrapolated(window: &Window<'_>, resets: &[usize], series: &[f64], kind: Extrapolation) -> f64 {
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
