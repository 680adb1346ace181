//! `anchored` and `smoothed` ranges: the ends of a range get a value, the one of the sample before (anchored), or one
//! interpolated between neighbours (smoothed). Nothing is extrapolated.
//! Holds: windows bring the samples outside that are needed ([`Windows::before_ms`], [`Windows::after_ms`]).

use std::sync::Arc;

use chronolith_model::histogram::Incompatible;
use chronolith_model::{FloatHistogram, QueryError, ReadContext, ResetHint};

use super::Rollup;
use super::mixed::{Event, MixedWindow, StepResult, for_each_window};
use super::rate::Extrapolation;
use crate::ast::RangeExtension;
use crate::engine::grid::Windows;
use crate::engine::histogram::growth::{GrowthKind, HistogramRange, RangeNotes};
use crate::engine::samples::RangeSamples;
use crate::engine::series::{ABSENT, StepSeries};

/// A window's ends and how they are to be found.
#[derive(Clone, Copy)]
struct Ends {
    start_ms: i64,
    end_ms: i64,
    smoothed: bool,
    counter: bool,
}

/// The samples that decide: indices of the first and the last.
fn decisive(times: &[i64], ends: &Ends) -> Option<(usize, usize)> {
    let all_but_last = times.get(..times.len().checked_sub(1)?)?;
    let first = all_but_last.partition_point(|&time| time <= ends.start_ms).saturating_sub(1);
    let last = if ends.smoothed {
        all_but_last.partition_point(|&time| time < ends.end_ms)
    } else {
        all_but_last.len()
    };
    let outside = times[last] <= ends.start_ms || (ends.smoothed && times[first] > ends.end_ms);
    (!outside).then_some((first, last))
}

impl Rollup {
    /// Fills the columns of `out`; whether any step has something.
    ///
    /// # Errors
    /// The query is to stop.
    pub(crate) fn roll_extended(
        &self,
        extension: RangeExtension,
        samples: &RangeSamples,
        windows: &Windows,
        ctx: &ReadContext,
        out: &mut StepSeries,
        notes: &mut RangeNotes,
    ) -> Result<bool, QueryError> {
        out.clear_steps();
        out.values.resize(windows.grid.count, ABSENT);
        for_each_window(samples, windows, ctx, |window| {
            self.extended_result(extension, &window, notes).store(window.floats.step, out);
        })?;
        Ok(!out.is_void())
    }

    fn extended_result(
        &self,
        extension: RangeExtension,
        window: &MixedWindow<'_>,
        notes: &mut RangeNotes,
    ) -> StepResult {
        let kind = match self {
            Rollup::Rate => Extrapolation::CounterPerSecond,
            Rollup::Increase => Extrapolation::Counter,
            Rollup::Delta => Extrapolation::Gauge,
            Rollup::Resets => return anchored_events(window, Event::Reset),
            _ => return anchored_events(window, Event::Change),
        };
        let floats = &window.floats;
        let ends = Ends {
            start_ms: floats.start_ms,
            end_ms: floats.end_ms,
            smoothed: extension == RangeExtension::Smoothed,
            counter: kind != Extrapolation::Gauge,
        };
        let seconds = (kind == Extrapolation::CounterPerSecond)
            .then(|| (floats.end_ms - floats.start_ms) as f64 / 1000.0);
        match (floats.times.is_empty(), window.histograms.times.is_empty()) {
            (false, false) => {
                notes.mixed = true;
                StepResult::Nothing
            }
            (false, true) => match float_growth(floats.times, floats.values, &ends) {
                Some(growth) => StepResult::Float(seconds.map_or(growth, |seconds| growth / seconds)),
                None => StepResult::Nothing,
            },
            (true, _) => match histogram_growth(&window.histograms, &ends, notes) {
                Some(mut growth) => {
                    if let Some(seconds) = seconds {
                        growth.divide(seconds);
                    }
                    growth.reset_hint = ResetHint::Gauge;
                    growth.compact(0);
                    StepResult::Histogram(Arc::new(growth))
                }
                None => StepResult::Nothing,
            },
        }
    }
}

/// Events from the last sample at or before the start of the range on.
fn anchored_events(window: &MixedWindow<'_>, event: Event) -> StepResult {
    let start_ms = window.floats.start_ms;
    let before = |times: &[i64]| times.partition_point(|&time| time <= start_ms);
    let (floats, histograms) = (before(window.floats.times), before(window.histograms.times));
    if floats == window.floats.times.len() && histograms == window.histograms.times.len() {
        return StepResult::Nothing;
    }
    let last = |times: &[i64], count: usize| count.checked_sub(1).map(|at| times[at]);
    let float_is_anchor = last(window.floats.times, floats) >= last(window.histograms.times, histograms);
    let (first_float, first_histogram) = match (floats, histograms) {
        (0, 0) => (0, 0),
        _ if float_is_anchor => (floats - 1, histograms),
        _ => (floats, histograms - 1),
    };
    StepResult::Float(window.event_count(first_float, first_histogram, event))
}

/// A value between two samples. A counter that fell is taken to have started at zero.
fn interpolate(before: (i64, f64), after: (i64, f64), time: i64, counter: bool) -> f64 {
    let from = if counter && after.1 < before.1 { 0.0 } else { before.1 };
    from + (after.1 - from) * (time - before.0) as f64 / (after.0 - before.0) as f64
}

/// Values at both ends.
fn float_ends(times: &[i64], values: &[f64], first: usize, last: usize, ends: &Ends) -> (f64, f64) {
    let at = |idx: usize| (times[idx], values[idx]);
    let left = if ends.smoothed && times[first] < ends.start_ms && first + 1 < times.len() {
        interpolate(at(first), at(first + 1), ends.start_ms, ends.counter)
    } else {
        values[first]
    };
    let right = if ends.smoothed && last > 0 && times[last] > ends.end_ms {
        interpolate(at(last - 1), at(last), ends.end_ms, ends.counter)
    } else {
        values[last]
    };
    (left, right)
}

fn float_growth(times: &[i64], values: &[f64], ends: &Ends) -> Option<f64> {
    let (first, last) = decisive(times, ends)?;
    let (left, right) = float_ends(times, values, first, last, ends);
    // Apart until the end, as upstream: the sum of a large and a small number depends on the order.
    let mut lost = 0.0;
    if ends.counter {
        let mut before = left;
        let mut fell = |value: f64| {
            if value < before {
                lost += before;
            }
            before = value;
        };
        inside(times, values, first, last, ends).1.iter().for_each(|&value| fell(value));
        fell(right);
    }
    Some(right - left + lost)
}

/// The samples strictly between the ends.
fn inside<'v>(
    times: &'v [i64],
    values: &'v [f64],
    first: usize,
    last: usize,
    ends: &Ends,
) -> (&'v [i64], &'v [f64]) {
    let from = if times[first] <= ends.start_ms { first + 1 } else { first };
    let to = if times[last] >= ends.end_ms { last } else { last + 1 };
    (times.get(from..to).unwrap_or(&[]), values.get(from..to).unwrap_or(&[]))
}

/// What a bare range selector yields: the samples inside with values at both ends; empty if there is nothing.
pub(crate) fn extend(
    extension: RangeExtension,
    times: &[i64],
    values: &[f64],
    start_ms: i64,
    end_ms: i64,
) -> (Vec<i64>, Vec<f64>) {
    let smoothed = extension == RangeExtension::Smoothed;
    let ends = Ends { start_ms, end_ms, smoothed, counter: false };
    let Some(all_but_last) = times.len().checked_sub(1) else { return (Vec::new(), Vec::new()) };
    let first = times[..all_but_last].partition_point(|&time| time <= start_ms).saturating_sub(1);
    let last = match extension {
        RangeExtension::Smoothed => times[..all_but_last].partition_point(|&time| time < end_ms),
        RangeExtension::Anchored => all_but_last,
    };
    if times[last] <= start_ms {
        return (Vec::new(), Vec::new());
    }
    let (left, right) = float_ends(times, values, first, last, &ends);
    let (times, values) = inside(times, values, first, last, &ends);
    let with_ends = |start, inside: &mut dyn Iterator<Item = (i64, f64)>, end| {
        std::iter::once(start).chain(inside).chain([end]).unzip()
    };
    let mut samples = times.iter().copied().zip(values.iter().copied());
    with_ends((start_ms, left), &mut samples, (end_ms, right))
}

/// A histogram between two; `Err` if they do not fit each other.
fn interpolate_histogram(
    range: &HistogramRange<'_>,
    before: usize,
    time: i64,
    counter: bool,
    notes: &mut RangeNotes,
) -> Result<FloatHistogram, Incompatible> {
    let (a, b) = (&range.histograms[before], &range.histograms[before + 1]);
    let (start, end) = (range.times[before], range.times[before + 1]);
    if time == start {
        return Ok(FloatHistogram::clone(a));
    }
    let mut result = FloatHistogram::clone(b);
    if time == end {
        return Ok(result);
    }
    let share = (time - start) as f64 / (end - start) as f64;
    if counter && b.is_reset_after(a) {
        result.multiply(share);
        return Ok(result);
    }
    notes.reconciled_sub |= result.subtract(a)?.bounds_reconciled;
    result.multiply(share);
    notes.reconciled_add |= result.add(a)?.bounds_reconciled;
    Ok(result)
}

fn histogram_growth(
    range: &HistogramRange<'_>,
    ends: &Ends,
    notes: &mut RangeNotes,
) -> Option<FloatHistogram> {
    let (first, last) = decisive(range.times, ends)?;
    let custom = range.histograms[first].is_custom();
    for histogram in &range.histograms[first..=last] {
        if histogram.is_custom() != custom {
            notes.mixed_schemas = true;
            return None;
        }
        notes.not_counter |= ends.counter && histogram.reset_hint == ResetHint::Gauge;
    }
    let grown = grow_between(range, ends, first, last, notes);
    if grown.is_err() {
        notes.mixed_schemas = true;
    }
    grown.ok()
}

fn grow_between(
    range: &HistogramRange<'_>,
    ends: &Ends,
    first: usize,
    last: usize,
    notes: &mut RangeNotes,
) -> Result<FloatHistogram, Incompatible> {
    let histograms = range.histograms;
    let cut_left = ends.smoothed && range.times[first] < ends.start_ms && first + 1 < histograms.len();
    let left = if cut_left {
        interpolate_histogram(range, first, ends.start_ms, ends.counter, notes)?
    } else {
        FloatHistogram::clone(&histograms[first])
    };
    let right = if ends.smoothed && last > 0 && range.times[last] > ends.end_ms {
        interpolate_histogram(range, last - 1, ends.end_ms, ends.counter, notes)?
    } else {
        FloatHistogram::clone(&histograms[last])
    };
    if !ends.counter {
        notes.not_gauge |= left.reset_hint != ResetHint::Gauge || right.reset_hint != ResetHint::Gauge;
    }
    let mut growth = right.clone();
    notes.reconciled_sub |= growth.subtract(&left)?.bounds_reconciled;
    if !ends.counter {
        return Ok(growth);
    }
    // A reset that the left end was cut from is in it already.
    let spanned = cut_left && histograms[first + 1].is_reset_after(&histograms[first]);
    let (mut before, from) = if spanned { (&*histograms[first + 1], first + 2) } else { (&left, first + 1) };
    if from > last {
        return Ok(growth);
    }
    let mut correction: Option<FloatHistogram> = None;
    let between = histograms.get(from..last).unwrap_or(&[]).iter().map(|histogram| &**histogram);
    for histogram in between.chain([&right]) {
        if histogram.is_reset_after(before) {
            match &mut correction {
                None => correction = Some(before.clone()),
                Some(sum) => notes.reconciled_add |= sum.add(before)?.bounds_reconciled,
            }
        }
        before = histogram;
    }
    if let Some(correction) = correction {
        notes.reconciled_add |= growth.add(&correction)?.bounds_reconciled;
    }
    Ok(growth)
}

/// `x smoothed` as an instant selector: a value at each step, interpolated between the samples around it, or that of
/// the sample before.
///
/// # Errors
/// The query is to stop.
pub(crate) fn smooth(
    samples: &RangeSamples,
    windows: &Windows,
    ctx: &ReadContext,
    out: &mut StepSeries,
    notes: &mut RangeNotes,
) -> Result<bool, QueryError> {
    out.clear_steps();
    out.values.resize(windows.grid.count, ABSENT);
    for_each_window(samples, windows, ctx, |window| {
        let time = window.floats.end_ms;
        let result = match (window.floats.times.is_empty(), window.histograms.times.is_empty()) {
            (false, false) => {
                notes.mixed = true;
                StepResult::Nothing
            }
            (false, true) => smooth_float(window.floats.times, window.floats.values, time),
            (true, _) => smooth_histogram(&window.histograms, time, notes),
        };
        result.store(window.floats.step, out);
    })?;
    Ok(!out.is_void())
}

fn smooth_float(times: &[i64], values: &[f64], time: i64) -> StepResult {
    let after = times.partition_point(|&other| other < time);
    let at = |idx: usize| (times[idx], values[idx]);
    match after {
        _ if times.get(after) == Some(&time) => StepResult::Float(values[after]),
        0 => StepResult::Nothing,
        _ if after == times.len() => StepResult::Float(values[after - 1]),
        _ => StepResult::Float(interpolate(at(after - 1), at(after), time, false)),
    }
}

fn smooth_histogram(range: &HistogramRange<'_>, time: i64, notes: &mut RangeNotes) -> StepResult {
    let after = range.times.partition_point(|&other| other < time);
    if range.times.get(after) == Some(&time) {
        return StepResult::Histogram(range.histograms[after].clone());
    }
    let Some(before) = after.checked_sub(1) else { return StepResult::Nothing };
    if after == range.times.len() {
        let mut last = FloatHistogram::clone(&range.histograms[before]);
        // The hint tells of the sample and the one before it, not of the value at this time.
        last.reset_hint = ResetHint::Unknown;
        return StepResult::Histogram(Arc::new(last));
    }
    let gauge = |at: usize| range.histograms[at].reset_hint == ResetHint::Gauge;
    let kind = if gauge(before) && gauge(after) { GrowthKind::Gauge } else { GrowthKind::Counter };
    let fits = range.histograms[before].is_custom() == range.histograms[after].is_custom();
    match interpolate_histogram(range, before, time, kind == GrowthKind::Counter, notes) {
        Ok(result) if fits => StepResult::Histogram(Arc::new(result)),
        _ => {
            notes.mixed_schemas = true;
            StepResult::Nothing
        }
    }
}
