//! Windows that slide over the samples of a series, each handed to a kernel.
//! Invariants: windows slide forwards, so a series is walked once.

use std::ops::Range;

use chronolith_model::{Columns, QueryError, ReadContext};

use crate::column::{ABSENT, is_absent};
use crate::grid::Windows;

/// Samples that kernels process between two checks for cancellation.
const SAMPLES_BETWEEN_CHECKS: usize = 1 << 16;

/// The samples of one window.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// Milliseconds, ascending, all inside the window.
    pub times: &'a [i64],
    /// One value a time.
    pub values: &'a [f64],
    /// The window is `(start_ms, end_ms]`.
    pub start_ms: i64,
    /// End of the window.
    pub end_ms: i64,
    /// Index of the first sample within the series.
    pub first_idx: usize,
    /// Index of its step.
    pub step: usize,
}

/// Calls `kernel` for each window that has samples and appends its result, [`ABSENT`] for the others; returns
/// true if any window has a value.
// PERF: inlined, so that each kernel gets a loop of its own.
#[inline]
pub(super) fn slide<'a>(
    columns: &'a Columns,
    windows: &Windows,
    ctx: &ReadContext,
    out: &mut Vec<f64>,
    kernel: impl FnMut(Window<'a>) -> f64,
) -> Result<bool, QueryError> {
    slide_steps(columns, windows, 0..windows.grid.count, ctx, out, kernel)
}

/// As [`slide`] for some of the steps.
pub(super) fn slide_steps<'a>(
    columns: &'a Columns,
    windows: &Windows,
    steps: Range<usize>,
    ctx: &ReadContext,
    out: &mut Vec<f64>,
    mut kernel: impl FnMut(Window<'a>) -> f64,
) -> Result<bool, QueryError> {
    let times = &columns.times[..];
    let values = &columns.values[..];
    let mut low = 0;
    let mut high = 0;
    let mut any = false;
    let mut unchecked_count = 0;
    let mut low_stride = 0;
    let mut high_stride = 0;
    out.reserve(steps.len());
    let even_ends = windows.even_ends();
    let populated = windows.populated_steps(times);
    let first = populated.start.clamp(steps.start, steps.end);
    let end = populated.end.clamp(first, steps.end);
    out.resize(out.len() + (first - steps.start), ABSENT);
    for step in first..end {
        let end_ms = match even_ends {
            Some((first_ms, step_ms)) => first_ms + step_ms * step as i64,
            None => windows.end(step),
        };
        let start_ms = end_ms.saturating_sub(windows.width_ms);
        high = first_after(times, high, &mut high_stride, end_ms);
        low = first_after(times, low, &mut low_stride, start_ms);
        if low >= high {
            out.push(ABSENT);
            continue;
        }
        unchecked_count += high - low;
        if unchecked_count > SAMPLES_BETWEEN_CHECKS {
            ctx.check()?;
            unchecked_count = 0;
        }
        let times = &times[low..high];
        let values = &values[low..high];
        let value = kernel(Window { times, values, start_ms, end_ms, first_idx: low, step });
        any |= !is_absent(value);
        out.push(value);
    }
    out.resize(out.len() + (steps.end - end), ABSENT);
    Ok(any)
}

/// The first index from `from` on whose time is after `limit_ms`; `times` ascend, and those before `from` are
/// not after it. `stride` is the distance of the last call: samples and steps are regular, so it is mostly
/// right again.
fn first_after(times: &[i64], from: usize, stride: &mut usize, limit_ms: i64) -> usize {
    let guess = from + *stride;
    let reached = guess == from || times.get(guess - 1).is_some_and(|&time| time <= limit_ms);
    if reached && times.get(guess).is_none_or(|&time| time > limit_ms) {
        return guess;
    }
    // Widths double until one reaches beyond the limit.
    let mut at = from;
    let mut width = 1;
    while times.get(at + width - 1).is_some_and(|&time| time <= limit_ms) {
        at += width;
        width *= 2;
    }
    let end = times.len().min(at + width);
    at += times[at..end].partition_point(|&time| time <= limit_ms);
    *stride = at - from;
    at
}

/// Sets [`ABSENT`] in every step whose window contains one of `times`.
pub fn mark_present(times: &[i64], windows: &Windows, steps: &mut [f64]) {
    let mut high = 0;
    for (step, value) in steps.iter_mut().enumerate() {
        let end_ms = windows.end(step);
        while high < times.len() && times[high] <= end_ms {
            high += 1;
        }
        if high > 0 && times[high - 1] > windows.start(step) {
            *value = ABSENT;
        }
    }
}
