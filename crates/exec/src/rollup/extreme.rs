//! `min_over_time` and `max_over_time` by a sparse table, of which one level is kept: the extremes of all
//! windows from the extremes of runs of 1, 2, 4, ... samples.
//!
//! Invariants: of equal values the first one is returned, which matters for zeros; NaN only if a window has
//! nothing else, and then the last one.

use chronolith_model::{Columns, QueryError, ReadContext};

use super::window::slide;
use crate::column::is_absent;
use crate::grid::Windows;

/// Memory that is reused from series to series.
#[derive(Debug, Default)]
pub(super) struct ExtremeBuffer {
    /// Step, first sample, and number of samples of the windows that have any.
    windows: Vec<(usize, usize, usize)>,
    /// Extreme of the run of samples that begins at each sample.
    runs: Vec<f64>,
}

/// Appends the extreme of each window to `out`, as `slide` does; `beats(a, b)` is true if `b`, a later
/// value, replaces `a`, and false for NaN.
// PERF: each level is one pass without branches over the series. A monotonic queue, whose branches depend on
// the values, took a third of the time of a query with windows of 20 values that slide by one:
//   cargo xtask bench queries --head --only chronolith --shapes max_over_time
#[inline]
pub(super) fn roll(
    columns: &Columns,
    windows: &Windows,
    ctx: &ReadContext,
    buffer: &mut ExtremeBuffer,
    out: &mut Vec<f64>,
    beats: impl Fn(f64, f64) -> bool,
) -> Result<bool, QueryError> {
    let ExtremeBuffer { windows: found, runs } = buffer;
    found.clear();
    let first_step = out.len();
    slide(columns, windows, ctx, out, |w| {
        found.push((first_step + w.step, w.first_idx, w.values.len()));
        0.0
    })?;
    runs.clear();
    runs.extend_from_slice(&columns.values);
    let longest = found.iter().map(|(.., len)| *len).max().unwrap_or(0);
    let later = |a: f64, b: f64| if beats(a, b) | a.is_nan() { b } else { a };
    let mut any = false;
    // Runs have `run_len` samples; those at the end of the series are shorter.
    let mut run_len = 1;
    while run_len <= longest {
        for &(step, first, len) in found.iter().filter(|(.., len)| (run_len..2 * run_len).contains(len)) {
            let extreme = later(runs[first], runs[first + len - run_len]);
            out[step] = if extreme.is_nan() { columns.values[first + len - 1] } else { extreme };
            any |= !is_absent(out[step]);
        }
        if 2 * run_len > longest {
            break;
        }
        combine(runs, run_len, later);
        run_len *= 2;
    }
    Ok(any)
}

/// Doubles the length of the runs.
fn combine(runs: &mut [f64], run_len: usize, later: impl Fn(f64, f64) -> f64) {
    for idx in 0..runs.len().saturating_sub(run_len) {
        runs[idx] = later(runs[idx], runs[idx + run_len]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chronolith_base::{Rng, SystemClock};

    use super::*;
    use crate::grid::{Grid, TimeShift};

    /// One window after the other, value by value.
    fn extreme_of(values: &[f64], beats: impl Fn(f64, f64) -> bool) -> f64 {
        let numbers = values.iter().copied().filter(|value| !value.is_nan());
        let extreme = numbers.reduce(|before, new| if beats(before, new) { new } else { before });
        extreme.unwrap_or(values[values.len() - 1])
    }

    #[test]
    fn extremes_are_those_of_single_windows() {
        let ctx = ReadContext::unlimited(Arc::new(SystemClock::new()));
        let mut buffer = ExtremeBuffer::default();
        for seed in 0..400 {
            let rng = Rng::from_seed(seed);
            let mut columns = Columns::default();
            let mut time = 0;
            for _ in 0..rng.below(90) {
                time += 1 + rng.below(if seed % 3 == 0 { 1 } else { 30 }) as i64;
                let nan = f64::from_bits(0x7ff8_0000_0000_0000 | rng.below(9));
                let value = [0.0, -0.0, nan, rng.below(5) as f64, -1.0, f64::INFINITY][rng.below(6) as usize];
                columns.push(time, value);
            }
            let grid =
                Grid::between(0, 100 * (1 + rng.below(3) as i64), 1 + rng.below(20) as i64).expect("a grid");
            let shift = TimeShift { fixed_ms: None, offset_ms: 0 };
            let windows = Windows::new(grid, shift, 1 + rng.below(120) as i64);
            let check = |beats: fn(f64, f64) -> bool, buffer: &mut ExtremeBuffer| {
                let mut want = vec![0.5];
                slide(&columns, &windows, &ctx, &mut want, |w| extreme_of(w.values, beats))
                    .expect("not canceled");
                let mut out = vec![0.5];
                let any = roll(&columns, &windows, &ctx, buffer, &mut out, beats).expect("not canceled");
                let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&out), bits(&want), "seed {seed}");
                assert_eq!(any, want[1..].iter().any(|value| !is_absent(*value)), "seed {seed}");
            };
            check(|a, b| a < b, &mut buffer);
            check(|a, b| a > b, &mut buffer);
        }
    }
}
