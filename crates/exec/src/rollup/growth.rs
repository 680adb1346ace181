//! `rate`, `increase` and `delta` over all windows of a series, with Prometheus's extrapolation.
//!
//! Invariants: the increase between the first and the last sample of a window is extrapolated to the ends of
//! the window: completely if the first (last) sample is within 1.1 average intervals of the end, otherwise by
//! half an interval, and for a counter never beyond the time at which it would have been zero. The order of
//! operations is Prometheus's, since it decides the last bits.
//! Factors that depend only on timestamps are cached: they are recomputed only if the samples lie differently
//! in the window than in the one before it. If samples are evenly spaced and the step is a multiple of their
//! interval, timestamps are not read at all.
//! Not here: single windows and instant rates (`rate`), `anchored` and `smoothed` (`extended`).

use std::ops::Range;

use chronolith_model::{Columns, QueryError, ReadContext};

use super::event::Inside;
use super::rate::{EXTRAPOLATION_FACTOR, Extrapolation};
use super::window::{Window, slide, slide_steps};
use crate::column::ABSENT;
use crate::grid::Windows;

/// Placement of samples in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placement {
    /// From the start of the window to the first sample.
    before_ms: i64,
    /// From the first to the last sample.
    covered_ms: i64,
    /// From the last sample to the end of the window.
    after_ms: i64,
    sample_count: usize,
}

/// Factors that follow from a placement.
#[derive(Debug, Clone, Copy)]
struct Scale {
    covered: f64,
    /// Seconds by which the growth is extended to either side.
    before: f64,
    after: f64,
    width: f64,
    /// Growth is multiplied by it, unless the counter was zero within `before`.
    factor: f64,
}

/// Appends the growth in each window to `out`; returns true if any window has one. `resets` are the indices
/// of samples that are lower than the one before.
///
/// # Errors
/// The query is to stop.
pub(super) fn roll(
    columns: &Columns,
    windows: &Windows,
    ctx: &ReadContext,
    resets: &[usize],
    kind: Extrapolation,
    out: &mut Vec<f64>,
) -> Result<bool, QueryError> {
    out.reserve(windows.grid.count);
    let mut growth = Growth::new(&columns.values, resets, kind);
    let even = if resets.is_empty() { Even::of(&columns.times, windows) } else { None };
    let Some(even) = even else {
        return slide(columns, windows, ctx, out, |w| growth.of(&w));
    };
    let start = 0..even.steps.start;
    let end = even.steps.end..windows.grid.count;
    let mut any = slide_steps(columns, windows, start, ctx, out, |w| growth.of(&w))?;
    any |= even.roll(&columns.values, kind, out);
    any |= slide_steps(columns, windows, end, ctx, out, |w| growth.of(&w))?;
    Ok(any)
}

/// Same as [`roll`], over values some of which stand for several samples. `sample_count` takes the index of
/// the first value and the number of values; it returns the number of their samples, or `None` if the first
/// or the last value is not one sample. The result is then `None`, too.
///
/// # Errors
/// The query is to stop.
pub(super) fn roll_counted(
    columns: &Columns,
    windows: &Windows,
    ctx: &ReadContext,
    resets: &[usize],
    kind: Extrapolation,
    sample_count: impl Fn(usize, usize) -> Option<usize>,
    out: &mut Vec<f64>,
) -> Result<Option<bool>, QueryError> {
    let mut growth = Growth::new(&columns.values, resets, kind);
    let mut is_known = true;
    let any = slide(columns, windows, ctx, out, |w| match sample_count(w.first_idx, w.values.len()) {
        Some(count) => growth.of_counted(&w, count),
        None => {
            is_known = false;
            ABSENT
        }
    })?;
    Ok(is_known.then_some(any))
}

/// Fewer samples are not worth a look at their distances.
const EVEN_SAMPLES_MIN: usize = 8;

/// Windows that are placed alike over samples at even distances.
#[derive(Debug, PartialEq, Eq)]
struct Even {
    /// Steps of these windows.
    steps: Range<usize>,
    /// Index of the first sample in the first of them.
    first_idx: usize,
    /// From a window to the next, in samples.
    stride: usize,
    placement: Placement,
}

impl Even {
    /// `None` if there are none, or fewer than two samples in each.
    fn of(times: &[i64], windows: &Windows) -> Option<Even> {
        let (&[start_ms, second_ms, ..], step_ms) = (times, windows.grid.step_ms) else { return None };
        let distance_ms = second_ms.checked_sub(start_ms).filter(|&ms| ms > 0)?;
        let is_fixed = windows.shift.fixed_ms.is_some();
        if times.len() < EVEN_SAMPLES_MIN || is_fixed || step_ms % distance_ms != 0 {
            return None;
        }
        // Windows at the ends of time are cut off, so they are placed differently.
        let last_step = windows.grid.count - 1;
        let span_ms = step_ms.checked_mul(i64::try_from(last_step).ok()?)?;
        let first_end_ms = windows.end(0);
        first_end_ms.checked_add(span_ms).filter(|&end| end == windows.end(last_step))?;
        first_end_ms.checked_sub(windows.width_ms)?;
        if !is_even(times, distance_ms) {
            return None;
        }
        let idx_after = |limit_ms: i64| Some(limit_ms.checked_sub(start_ms)?.div_euclid(distance_ms) + 1);
        let low = idx_after(windows.start(0))?;
        let high = idx_after(first_end_ms)?;
        let stride = step_ms / distance_ms;
        let sample_count = usize::try_from(high - low).ok()?;
        if sample_count < 2 {
            return None;
        }
        // The first step whose window starts within the series, and the last whose window ends there.
        let first = if low < 0 { low.unsigned_abs().div_ceil(stride.unsigned_abs()) } else { 0 };
        let room = u64::try_from(i64::try_from(times.len()).ok()?.checked_sub(high)?).ok()?;
        let first = usize::try_from(first).ok()?;
        let end = usize::try_from(room / stride.unsigned_abs()).ok()?.saturating_add(1);
        let steps = first..end.min(windows.grid.count);
        let stride = usize::try_from(stride).ok()?;
        if steps.is_empty() {
            return None;
        }
        let first_idx = usize::try_from(low.checked_add(i64::try_from(first * stride).ok()?)?).ok()?;
        let first_time = *times.get(first_idx)?;
        let last_time = *times.get(first_idx + sample_count - 1)?;
        let placement = Placement {
            before_ms: first_time - windows.start(first),
            covered_ms: last_time - first_time,
            after_ms: windows.end(first) - last_time,
            sample_count,
        };
        Some(Even { steps, first_idx, stride, placement })
    }

    /// Appends the growth in each of the windows; whether there is any.
    // PERF: two loads, a subtraction, two comparisons and a product a window: cargo xtask bench rate-kernel
    fn roll(&self, values: &[f64], kind: Extrapolation, out: &mut Vec<f64>) -> bool {
        let scale = Scale::new(self.placement, kind);
        let behind = |idx: usize| values.get(idx..).unwrap_or(&[]).iter().step_by(self.stride);
        let pairs = behind(self.first_idx).zip(behind(self.first_idx + self.placement.sample_count - 1));
        let before = out.len();
        out.extend(pairs.take(self.steps.len()).map(|(&first, &last)| scale.of(kind, first, last - first)));
        debug_assert_eq!(out.len() - before, self.steps.len(), "one value a window");
        true
    }
}

/// Returns true if all neighbours are `distance_ms` apart.
fn is_even(times: &[i64], distance_ms: i64) -> bool {
    let after = times.get(1..).unwrap_or(&[]);
    let is_even = |(before, after): (&[i64], &[i64])| {
        let pairs = before.iter().zip(after);
        pairs.fold(true, |even, (before, after)| even & (after.wrapping_sub(*before) == distance_ms))
    };
    times.chunks(EVEN_STRETCH_LEN).zip(after.chunks(EVEN_STRETCH_LEN)).all(is_even)
}

/// Distances that are compared together.
const EVEN_STRETCH_LEN: usize = 256;

/// Windows one by one.
struct Growth<'s> {
    series: &'s [f64],
    resets: Inside<'s>,
    kind: Extrapolation,
    last: Option<(Placement, Scale)>,
}

impl<'s> Growth<'s> {
    /// `resets` are the indices of samples of `series` that are lower than the one before.
    fn new(series: &'s [f64], resets: &'s [usize], kind: Extrapolation) -> Growth<'s> {
        Growth { series, resets: Inside::new(resets), kind, last: None }
    }

    /// Growth in the next window.
    fn of(&mut self, window: &Window<'_>) -> f64 {
        self.of_counted(window, window.times.len())
    }

    /// Growth in the next window, whose values stand for `sample_count` samples.
    fn of_counted(&mut self, window: &Window<'_>, sample_count: usize) -> f64 {
        let (&[first_time, .., last_time], &[first, .., last]) = (window.times, window.values) else {
            return ABSENT;
        };
        let placement = Placement {
            before_ms: first_time - window.start_ms,
            covered_ms: last_time - first_time,
            after_ms: window.end_ms - last_time,
            sample_count,
        };
        let scale = match self.last {
            Some((of, scale)) if of == placement => scale,
            _ => {
                let scale = Scale::new(placement, self.kind);
                self.last = Some((placement, scale));
                scale
            }
        };
        let mut growth = last - first;
        for &at in self.resets.of(window) {
            growth += self.series[at - 1];
        }
        scale.of(self.kind, first, growth)
    }
}

impl Scale {
    fn new(placement: Placement, kind: Extrapolation) -> Scale {
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let covered = seconds(placement.covered_ms);
        let distance = covered / (placement.sample_count - 1) as f64;
        let limit = distance * EXTRAPOLATION_FACTOR;
        let extend = |gap_ms: i64| {
            let gap = seconds(gap_ms);
            if gap >= limit { distance / 2.0 } else { gap }
        };
        let before = extend(placement.before_ms);
        let after = extend(placement.after_ms);
        let width = seconds(placement.before_ms + placement.covered_ms + placement.after_ms);
        let scale = Scale { covered, before, after, width, factor: 0.0 };
        Scale { factor: scale.factor_after(before, kind), ..scale }
    }

    /// The growth from the value `first` on, extended.
    fn of(&self, kind: Extrapolation, first: f64, growth: f64) -> f64 {
        // A counter whose value is twice its growth was zero longer ago than any gap is wide: the samples
        // cover at least one distance, and gaps are filled up to 1.1 distances. That spares most windows a
        // division.
        let may_reach_zero =
            kind != Extrapolation::Gauge && growth > 0.0 && first >= 0.0 && first < 2.0 * growth;
        if may_reach_zero {
            let since_zero = self.covered * (first / growth);
            if since_zero < self.before {
                return growth * self.factor_after(since_zero, kind);
            }
        }
        growth * self.factor
    }

    /// Growth is multiplied by it if it is extended by `before` seconds into the past.
    fn factor_after(&self, before: f64, kind: Extrapolation) -> f64 {
        let factor = (self.covered + before + self.after) / self.covered;
        if kind == Extrapolation::CounterPerSecond { factor / self.width } else { factor }
    }
}

#[cfg(test)]
mod tests;
