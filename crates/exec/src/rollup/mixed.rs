//! Rollups of series with histograms or start timestamps.
//! Invariants: the result of a window of floats does not depend on histograms elsewhere in the series;
//! results of windows of both kinds, and notes about them, are Prometheus's.
//! Not here: `anchored` and `smoothed` (`extended`).

use std::sync::Arc;

use chronolith_model::{FloatHistogram, QueryError, ReadContext};

use super::rate::{Extent, Extrapolation};
use super::window::Window;
use super::{Rollup, RollupBuffer, rate};
use crate::column::{ABSENT, StepSeries, is_absent};
use crate::grid::Windows;
use crate::histogram::fold::HistogramFold;
use crate::histogram::growth::{self, GrowthKind, HistogramRange, RangeNotes};
use crate::samples::RangeSamples;

/// A window over both kinds.
#[derive(Clone, Copy)]
pub struct MixedWindow<'a> {
    /// The floats.
    pub floats: Window<'a>,
    /// Start timestamps of the floats, one per float; may be empty.
    pub float_starts: &'a [i64],
    /// The histograms.
    pub histograms: HistogramRange<'a>,
}

/// Result of a window.
pub enum StepResult {
    /// Nothing.
    Nothing,
    /// A number.
    Float(f64),
    /// A histogram.
    Histogram(Arc<FloatHistogram>),
}

impl StepResult {
    fn of(histogram: FloatHistogram) -> StepResult {
        StepResult::Histogram(Arc::new(histogram))
    }

    /// Writes it into a step whose value is absent.
    pub fn store(self, step: usize, out: &mut StepSeries) {
        match self {
            StepResult::Nothing => out.set_float(step, ABSENT),
            StepResult::Float(value) => out.set_float(step, value),
            StepResult::Histogram(histogram) => out.set_histogram(step, histogram),
        }
    }
}

impl Rollup {
    /// Fills the columns of `out`; returns true if any step has a value.
    ///
    /// # Errors
    /// The query is to stop.
    pub fn roll_mixed(
        &self,
        samples: &RangeSamples,
        windows: &Windows,
        ctx: &ReadContext,
        buffer: &mut RollupBuffer,
        out: &mut StepSeries,
        notes: &mut RangeNotes,
    ) -> Result<bool, QueryError> {
        out.clear_steps();
        self.roll(&samples.floats, windows, ctx, buffer, &mut out.values)?;
        for_each_window(samples, windows, ctx, |window| {
            let step = window.floats.step;
            let of_floats = out.values[step];
            if window.histograms.times.is_empty() && window.float_starts.is_empty() {
                return;
            }
            self.combine(&window, of_floats, notes).store(step, out);
        })?;
        Ok(!out.is_void())
    }

    /// The result of a window; `of_floats` is the result of its floats alone.
    fn combine(&self, window: &MixedWindow<'_>, of_floats: f64, notes: &mut RangeNotes) -> StepResult {
        let float_count = window.floats.times.len();
        let histogram_count = window.histograms.times.len();
        let alone = if is_absent(of_floats) { StepResult::Nothing } else { StepResult::Float(of_floats) };
        let both = float_count > 0 && histogram_count > 0;
        match self {
            Rollup::Rate | Rollup::Increase | Rollup::Delta | Rollup::Sum | Rollup::Avg if both => {
                notes.mixed = true;
                StepResult::Nothing
            }
            Rollup::Rate => self.extrapolated(window, Extrapolation::CounterPerSecond, alone, notes),
            Rollup::Increase => self.extrapolated(window, Extrapolation::Counter, alone, notes),
            Rollup::Delta => self.extrapolated(window, Extrapolation::Gauge, alone, notes),
            Rollup::InstantRate => window.last_step(GrowthKind::Counter, alone, notes),
            Rollup::InstantDelta => window.last_step(GrowthKind::Gauge, alone, notes),
            Rollup::Sum | Rollup::Avg if histogram_count > 0 => self.folded(window, notes),
            Rollup::Count => StepResult::Float((float_count + histogram_count) as f64),
            Rollup::Present => StepResult::Float(1.0),
            Rollup::First | Rollup::Last => self.edge(window),
            Rollup::TimeOfFirst => {
                let first = [window.floats.times.first(), window.histograms.times.first()];
                let first = first.into_iter().flatten().min().copied();
                first.map_or(StepResult::Nothing, |time| StepResult::Float(time as f64 / 1000.0))
            }
            Rollup::TimeOfLast => {
                let last = [window.floats.times.last(), window.histograms.times.last()];
                let last = last.into_iter().flatten().max().copied();
                last.map_or(StepResult::Nothing, |time| StepResult::Float(time as f64 / 1000.0))
            }
            Rollup::Resets => StepResult::Float(window.event_count(0, 0, Event::Reset)),
            Rollup::Changes => StepResult::Float(window.event_count(0, 0, Event::Change)),
            _ => {
                notes.ignored |= both;
                alone
            }
        }
    }

    fn extrapolated(
        &self,
        window: &MixedWindow<'_>,
        kind: Extrapolation,
        alone: StepResult,
        notes: &mut RangeNotes,
    ) -> StepResult {
        if !window.histograms.times.is_empty() {
            return window.histogram_growth(kind, notes);
        }
        if window.float_starts.is_empty() || kind == Extrapolation::Gauge {
            return alone;
        }
        notes.start_overlap_count += u64::from(growth::any_overlap(window.float_starts, window.floats.times));
        match rate::extrapolated_with_starts(&window.floats, window.float_starts, kind) {
            Some(value) => StepResult::Float(value),
            None => StepResult::Nothing,
        }
    }

    /// Sum or mean of histograms.
    fn folded(&self, window: &MixedWindow<'_>, notes: &mut RangeNotes) -> StepResult {
        let [first, rest @ ..] = window.histograms.histograms else { return StepResult::Nothing };
        let mut fold = HistogramFold::new(first);
        let mean = *self == Rollup::Avg;
        for histogram in rest {
            if mean { fold.add_to_mean(histogram) } else { fold.add_to_sum(histogram) }
        }
        if fold.incompatible {
            notes.mixed_schemas = true;
            return StepResult::Nothing;
        }
        notes.collision |= fold.hints_collide();
        notes.reconciled_fold |= fold.reconciled;
        StepResult::of(if mean { fold.into_mean() } else { fold.into_sum() })
    }

    /// The first or last sample, of either kind.
    fn edge(&self, window: &MixedWindow<'_>) -> StepResult {
        let floats = &window.floats;
        let histograms = &window.histograms;
        let (float, histogram, float_wins) = if *self == Rollup::First {
            let wins = floats.times.first().zip(histograms.times.first()).is_none_or(|(f, h)| f < h);
            (floats.values.first(), histograms.histograms.first(), wins)
        } else {
            let wins = floats.times.last().zip(histograms.times.last()).is_none_or(|(f, h)| f > h);
            (floats.values.last(), histograms.histograms.last(), wins)
        };
        match (float, histogram) {
            (Some(&value), histogram) if float_wins || histogram.is_none() => StepResult::Float(value),
            (_, Some(histogram)) => StepResult::Histogram(histogram.clone()),
            _ => StepResult::Nothing,
        }
    }
}

/// Event between two neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A counter fell, or the kind changed.
    Reset,
    /// The value changed.
    Change,
}

impl MixedWindow<'_> {
    fn histogram_growth(&self, kind: Extrapolation, notes: &mut RangeNotes) -> StepResult {
        let range = &self.histograms;
        let growth_kind = if kind == Extrapolation::Gauge { GrowthKind::Gauge } else { GrowthKind::Counter };
        let mut growth = None;
        if range.times.len() > 1 {
            match range.growth(growth_kind) {
                Ok((found, of_range)) => {
                    notes.join(of_range);
                    growth = Some(found);
                }
                Err(of_range) => {
                    notes.join(of_range);
                    return StepResult::Nothing;
                }
            }
        }
        let (Some(extent), Some(first)) = (Extent::of(&self.floats, range.times), range.histograms.first())
        else {
            return StepResult::Nothing;
        };
        let origin = extent.origin(kind, range.start_times);
        let factor = match (origin, &mut growth) {
            (Some(origin), growth) => {
                match growth {
                    None => *growth = Some(FloatHistogram::clone(first)),
                    Some(growth) => match growth.add(first) {
                        Ok(merged) => notes.reconciled_add |= merged.bounds_reconciled,
                        Err(_) => {
                            notes.mixed_schemas = true;
                            return StepResult::Nothing;
                        }
                    },
                }
                extent.factor_from(origin, kind)
            }
            (None, None) => return StepResult::Nothing,
            (None, Some(growth)) => {
                let share = (growth.count > 0.0 && first.count >= 0.0).then(|| first.count / growth.count);
                extent.factor(kind, share)
            }
        };
        match growth {
            Some(mut growth) => {
                growth.multiply(factor);
                StepResult::of(growth)
            }
            None => StepResult::Nothing,
        }
    }

    /// `irate` and `idelta`: growth between the last two samples, which have to be of one kind.
    fn last_step(&self, kind: GrowthKind, alone: StepResult, notes: &mut RangeNotes) -> StepResult {
        let floats = &self.floats;
        let range = &self.histograms;
        let time_from_end = |times: &[i64], back: usize| {
            times.len().checked_sub(back).and_then(|at| times.get(at)).copied().unwrap_or(i64::MIN)
        };
        let histogram_is_last = time_from_end(range.times, 1) > time_from_end(floats.times, 1);
        if floats.times.len() + range.times.len() < 2 {
            return StepResult::Nothing;
        }
        let (last_kind, other_kind) =
            if histogram_is_last { (range.times, floats.times) } else { (floats.times, range.times) };
        if time_from_end(last_kind, 2) < time_from_end(other_kind, 1) || last_kind.len() < 2 {
            notes.mixed = true;
            return StepResult::Nothing;
        }
        if !histogram_is_last {
            let anew = kind == GrowthKind::Counter
                && growth::starts_anew(self.float_starts, floats.times, floats.times.len() - 1);
            return if anew { StepResult::Float(rate::instant_rate_anew(floats)) } else { alone };
        }
        let (step, of_step) = range.last_step(kind);
        notes.join(of_step);
        let Some(mut step) = step else { return StepResult::Nothing };
        if kind == GrowthKind::Counter {
            let interval_ms = time_from_end(range.times, 1) - time_from_end(range.times, 2);
            step.divide(interval_ms as f64 / 1000.0);
        }
        StepResult::of(step)
    }

    /// Events between neighbours, beginning with the given float and histogram.
    pub fn event_count(&self, first_float: usize, first_histogram: usize, event: Event) -> f64 {
        let mut float_at = first_float;
        let mut histogram_at = first_histogram;
        let mut before = None;
        let mut count = 0u64;
        loop {
            let float = self.floats.times.get(float_at);
            let histogram = self.histograms.times.get(histogram_at);
            let now = match (float, histogram) {
                (None, None) => return count as f64,
                (Some(float), Some(histogram)) if float > histogram => SampleIdx::Histogram(histogram_at),
                (None, Some(_)) => SampleIdx::Histogram(histogram_at),
                (Some(_), _) => SampleIdx::Float(float_at),
            };
            match now {
                SampleIdx::Float(_) => float_at += 1,
                SampleIdx::Histogram(_) => histogram_at += 1,
            }
            if let Some(before) = before {
                count += u64::from(self.happened(before, now, event));
            }
            before = Some(now);
        }
    }

    fn happened(&self, before: SampleIdx, now: SampleIdx, event: Event) -> bool {
        let anew = || {
            let (start, time) = self.start_of(now);
            let (start_before, time_before) = self.start_of(before);
            growth::starts_anew(&[start_before, start], &[time_before, time], 1)
        };
        match (before, now) {
            (SampleIdx::Float(before), SampleIdx::Float(now)) => {
                let a = self.floats.values[before];
                let b = self.floats.values[now];
                match event {
                    Event::Reset => b < a || anew(),
                    Event::Change => a != b && !(a.is_nan() && b.is_nan()),
                }
            }
            (SampleIdx::Histogram(before), SampleIdx::Histogram(now)) => {
                let a = &self.histograms.histograms[before];
                let b = &self.histograms.histograms[now];
                match event {
                    Event::Reset => anew() || b.is_reset_after(a),
                    Event::Change => !b.is_identical(a),
                }
            }
            _ => true,
        }
    }

    /// The start timestamp of a sample (0 if unknown), and its time.
    fn start_of(&self, sample: SampleIdx) -> (i64, i64) {
        match sample {
            SampleIdx::Float(at) => (self.float_starts.get(at).copied().unwrap_or(0), self.floats.times[at]),
            SampleIdx::Histogram(at) => {
                let range = &self.histograms;
                (range.start_times.get(at).copied().unwrap_or(0), range.times[at])
            }
        }
    }
}

/// A sample of a window.
#[derive(Clone, Copy)]
enum SampleIdx {
    Float(usize),
    Histogram(usize),
}

/// Calls `visit` with every window that has a sample.
///
/// # Errors
/// The query is to stop.
pub fn for_each_window<'a>(
    samples: &'a RangeSamples,
    windows: &Windows,
    ctx: &ReadContext,
    mut visit: impl FnMut(MixedWindow<'a>),
) -> Result<(), QueryError> {
    let floats = &samples.floats;
    let histograms = &samples.histograms;
    let mut of_floats = Slider::default();
    let mut of_histograms = Slider::default();
    for step in 0..windows.grid.count {
        let start_ms = windows.start(step);
        let end_ms = windows.end(step);
        let from = start_ms.saturating_sub(windows.before_ms);
        let to = end_ms.saturating_add(windows.after_ms);
        let (low, high) = of_floats.slide(&floats.times, from, to);
        let (first, last) = of_histograms.slide(&histograms.times, from, to);
        if low == high && first == last {
            continue;
        }
        if step % STEPS_BETWEEN_CHECKS == 0 {
            ctx.check()?;
        }
        let times = &floats.times[low..high];
        let values = &floats.values[low..high];
        visit(MixedWindow {
            floats: Window { times, values, start_ms, end_ms, first_idx: low, step },
            float_starts: part(&floats.start_times, low, high),
            histograms: HistogramRange {
                times: &histograms.times[first..last],
                histograms: &histograms.histograms[first..last],
                start_times: part(&histograms.start_times, first, last),
            },
        });
    }
    Ok(())
}

/// Windows between two checks for cancellation.
const STEPS_BETWEEN_CHECKS: usize = 64;

/// The start timestamps of a window; missing ones at the end are unknown.
fn part(start_times: &[i64], low: usize, high: usize) -> &[i64] {
    &start_times[low.min(start_times.len())..high.min(start_times.len())]
}

/// Indices of the samples in a window that slides forwards.
#[derive(Default)]
struct Slider {
    low: usize,
    high: usize,
}

impl Slider {
    /// The samples in `(from, to]`.
    fn slide(&mut self, times: &[i64], from: i64, to: i64) -> (usize, usize) {
        while times.get(self.high).is_some_and(|&time| time <= to) {
            self.high += 1;
        }
        while self.low < self.high && times[self.low] <= from {
            self.low += 1;
        }
        (self.low, self.high)
    }
}
