//! `anchored` and `smoothed` ranges: the ends of a range get a value, the one of the sample before
//! (anchored), or one interpolated between neighbours (smoothed). Nothing is extrapolated.
//! Invariants: windows bring the samples outside that are needed ([`Windows::before_ms`],
//! [`Windows::after_ms`]).

use std::ops::Range;
use std::sync::Arc;

use chronolith_model::histogram::Incompatible;
use chronolith_model::{FloatHistogram, QueryError, ReadContext, ResetHint};

use super::Rollup;
use super::mixed::{Event, MixedWindow, StepResult, for_each_window};
use super::rate::Extrapolation;
use crate::column::{ABSENT, StepSeries};
use crate::grid::Windows;
use crate::histogram::growth::{GrowthKind, HistogramRange, RangeNotes, Started};
use crate::samples::RangeSamples;

/// Extended range selectors: how the ends of a range get a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RangeExtension {
    /// Both ends take the value of the last sample at or before them.
    Anchored,
    /// Both ends take a value interpolated between the samples around them.
    Smoothed,
}

/// A window's ends and how they are to be found.
#[derive(Clone, Copy)]
struct Ends {
    start_ms: i64,
    end_ms: i64,
    /// Samples after this time and before the window are read, too.
    lookback_start_ms: i64,
    smoothed: bool,
    counter: bool,
}

/// A sample, or a value at an end of the range, and when its counter started (0 if unknown).
#[derive(Clone, Copy)]
struct Point {
    time: i64,
    value: f64,
    started_ms: i64,
}

impl Point {
    /// The counter of this sample when it started.
    fn at_start(self) -> Point {
        Point { time: self.started_ms, value: 0.0, started_ms: 0 }
    }

    fn started(self) -> Started {
        Started { start_ms: self.started_ms, time_ms: self.time }
    }

    /// Returns true if this sample belongs to another counter than the one before, by start timestamps.
    fn restarts_after(self, before: Point) -> bool {
        self.started().is_restart_after(before.started())
    }

    /// Returns true if the counter of this sample started after `limit_ms` and before the sample.
    fn started_after(self, limit_ms: i64) -> bool {
        let limit = Started { start_ms: limit_ms, time_ms: limit_ms };
        self.time > limit_ms && self.started_ms > limit_ms && self.started().is_restart_after(limit)
    }

    /// A start beyond the end of the range does not affect the value there.
    fn known_until(self, limit_ms: i64) -> i64 {
        if self.started_ms > limit_ms { 0 } else { self.started_ms }
    }
}

/// Floats around a window.
#[derive(Clone, Copy)]
struct Floats<'s> {
    times: &'s [i64],
    values: &'s [f64],
    /// Has the length of `times`, or is shorter if start timestamps are unknown.
    start_times: &'s [i64],
}

impl Floats<'_> {
    fn at(&self, idx: usize) -> Point {
        let started_ms = self.start_times.get(idx).copied().unwrap_or(0);
        Point { time: self.times[idx], value: self.values[idx], started_ms }
    }
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
    (times[last] > ends.start_ms).then_some((first, last))
}

/// Returns true if a smoothed range ends before its first sample.
fn ends_before(times: &[i64], first: usize, ends: &Ends) -> bool {
    ends.smoothed && times[first] > ends.end_ms
}

impl Rollup {
    /// Fills the columns of `out`; returns true if any step has a value.
    ///
    /// # Errors
    /// The query is to stop.
    pub fn roll_extended(
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
            let lookback_start_ms = window.floats.start_ms.saturating_sub(windows.before_ms);
            self.extended_result(extension, &window, lookback_start_ms, notes).store(window.floats.step, out);
        })?;
        Ok(!out.is_void())
    }

    fn extended_result(
        &self,
        extension: RangeExtension,
        window: &MixedWindow<'_>,
        lookback_start_ms: i64,
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
            lookback_start_ms,
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
            (false, true) => match float_growth(
                Floats { times: floats.times, values: floats.values, start_times: window.float_starts },
                &ends,
            ) {
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
    let floats = before(window.floats.times);
    let histograms = before(window.histograms.times);
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
fn interpolate(before: Point, after: Point, time: i64, counter: bool) -> f64 {
    let from = if counter && after.value < before.value { 0.0 } else { before.value };
    from + (after.value - from) * (time - before.time) as f64 / (after.time - before.time) as f64
}

/// The value at the start of the range; `first` is the last sample up to there, or the first of all.
fn left_end(floats: Floats<'_>, first: usize, ends: &Ends) -> Point {
    let sample = floats.at(first);
    let end = |value, started_ms| Point { time: ends.start_ms, value, started_ms };
    let started_ms = sample.known_until(ends.start_ms);
    if sample.time == ends.start_ms {
        return end(sample.value, sample.started_ms);
    }
    if sample.time > ends.start_ms {
        return end(value_before_first(sample, ends.start_ms, ends), started_ms);
    }
    if first + 1 >= floats.times.len() {
        return end(sample.value, started_ms);
    }
    let mut before = sample;
    let mut after = floats.at(first + 1);
    let mut started_ms = started_ms;
    if ends.counter && after.started_after(ends.start_ms) {
        after = after.at_start();
    } else if ends.counter && after.restarts_after(sample) {
        started_ms = after.started_ms;
        before = after.at_start();
    }
    let value =
        if ends.smoothed { interpolate(before, after, ends.start_ms, ends.counter) } else { before.value };
    end(value, started_ms)
}

/// The value at the end of the range; `last` is the first sample from there on, or the last of all.
fn right_end(floats: Floats<'_>, last: usize, ends: &Ends) -> Point {
    let sample = floats.at(last);
    let end = |value, started_ms| Point { time: ends.end_ms, value, started_ms };
    let started_ms = sample.known_until(ends.end_ms);
    if sample.time <= ends.end_ms {
        return end(sample.value, started_ms);
    }
    let Some(before) = last.checked_sub(1).map(|idx| floats.at(idx)) else {
        return end(value_before_first(sample, ends.end_ms, ends), started_ms);
    };
    let mut from = before;
    let mut to = sample;
    let mut started_ms = started_ms;
    if ends.counter && sample.started_after(ends.end_ms) {
        started_ms = before.started_ms;
        to = sample.at_start();
    } else if ends.counter && sample.restarts_after(before) {
        from = sample.at_start();
    }
    let value = if ends.smoothed { interpolate(from, to, ends.end_ms, ends.counter) } else { from.value };
    end(value, started_ms)
}

/// The value at an end that lies before the first sample: zero where a counter had not started, else the
/// sample's.
fn value_before_first(sample: Point, end_ms: i64, ends: &Ends) -> f64 {
    if !ends.counter || !sample.started_after(ends.lookback_start_ms) {
        return sample.value;
    }
    if sample.started_after(end_ms) || !ends.smoothed {
        return 0.0;
    }
    interpolate(sample.at_start(), sample, end_ms, ends.counter)
}

fn float_growth(floats: Floats<'_>, ends: &Ends) -> Option<f64> {
    let (first, last) = decisive(floats.times, ends)?;
    if ends_before(floats.times, first, ends) {
        let sample = floats.at(first);
        let started_inside =
            sample.started_after(ends.lookback_start_ms) && !sample.started_after(ends.end_ms);
        if !ends.counter || !started_inside {
            return None;
        }
    }
    let left = left_end(floats, first, ends);
    let right = right_end(floats, last, ends);
    // Apart until the end, as in Prometheus: the sum of a large and a small number depends on the order.
    let mut lost = 0.0;
    if ends.counter {
        let mut before = left;
        let between = inside(floats.times, first, last, ends).map(|idx| floats.at(idx));
        for point in between.chain([right]) {
            if point.value < before.value || point.restarts_after(before) {
                lost += before.value;
            }
            before = point;
        }
    }
    Some(right.value - left.value + lost)
}

/// Indices of the samples strictly between the ends.
fn inside(times: &[i64], first: usize, last: usize, ends: &Ends) -> Range<usize> {
    let from = if times[first] <= ends.start_ms { first + 1 } else { first };
    let to = if times[last] >= ends.end_ms { last } else { last + 1 };
    from..to
}

/// Samples of a bare range selector: those inside, with values at both ends; empty if there are none.
pub fn extend(
    extension: RangeExtension,
    times: &[i64],
    values: &[f64],
    start_ms: i64,
    end_ms: i64,
) -> (Vec<i64>, Vec<f64>) {
    let smoothed = extension == RangeExtension::Smoothed;
    // The selector is not known to be a counter, so start timestamps do not matter.
    let ends = Ends { start_ms, end_ms, lookback_start_ms: start_ms, smoothed, counter: false };
    let floats = Floats { times, values, start_times: &[] };
    let Some((first, last)) = decisive(times, &ends) else { return (Vec::new(), Vec::new()) };
    let left = left_end(floats, first, &ends);
    let right = right_end(floats, last, &ends);
    let between = inside(times, first, last, &ends).map(|idx| floats.at(idx));
    std::iter::once(left).chain(between).chain([right]).map(|point| (point.time, point.value)).unzip()
}

/// A histogram between two; `Err` if they do not fit each other.
fn interpolate_histogram(
    range: &HistogramRange<'_>,
    before: usize,
    time: i64,
    counter: bool,
    notes: &mut RangeNotes,
) -> Result<FloatHistogram, Incompatible> {
    let a = &range.histograms[before];
    let b = &range.histograms[before + 1];
    let start = range.times[before];
    let end = range.times[before + 1];
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
    if ends_before(range.times, first, ends) {
        return None;
    }
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

/// `x smoothed` as an instant selector: a value at each step, interpolated between the samples around it, or
/// taken from the sample before.
///
/// # Errors
/// The query is to stop.
pub fn smooth(
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
    let at = |idx: usize| Point { time: times[idx], value: values[idx], started_ms: 0 };
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
        // The hint is about the sample and the one before it, not about the value at this time.
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
