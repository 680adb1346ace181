//! Range vectors (`m[5m]`, `expr[1h:1m]`): for each series the samples of all its windows, and the operator
//! that applies a rollup such as `rate` to each window.
//!
//! Invariants: samples of a series are decoded once, however many windows contain them.
//! Not here: rollups themselves (`rollup`), range selectors fused with their function (`scan`).

use chronolith_model::Labels;

use crate::annotation::Tally;
use crate::column::{Element, SAMPLE_BYTES, StepSeries, is_absent};
use crate::error::{ArgumentError, Error};
use crate::execution::{Execution, OperatorMemory};
use crate::grid::{Grid, Windows};
use crate::histogram::growth::RangeNotes;
use crate::note::{Note, NotedValue, Operation};
use crate::operator::{Blocking, BoxOperator, SeriesOperator};
use crate::position::Origin;
use crate::rollup::extended::RangeExtension;
use crate::rollup::integral::is_bad_strategy;
use crate::rollup::window::mark_present;
use crate::rollup::{Rollup, RollupBuffer};
use crate::samples::RangeSamples;
use crate::select::SeriesReader;
use crate::step_set::{StepRun, StepSet};

/// Returns a note about a series to which a function of counters is applied although it does not look like
/// one.
pub type CounterCheck = fn(&Labels) -> Option<Note>;

/// One series of a range vector.
pub struct WindowSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// As in [`StepSeries::drop_name`].
    pub drop_name: bool,
    /// Samples of all windows, without staleness markers.
    pub samples: RangeSamples,
}

impl Default for WindowSeries {
    fn default() -> Self {
        WindowSeries { labels: Labels::empty(), drop_name: false, samples: RangeSamples::default() }
    }
}

/// Source of the series of a range vector.
pub enum WindowSource<'q> {
    /// A range selector.
    Selector(SeriesReader<'q>),
    /// A subquery, computed on `grid`.
    Subquery {
        /// The inner expression.
        inner: BoxOperator<'q>,
        /// Evaluation times of the subquery.
        grid: Grid,
        /// Current series of the inner operator.
        series: StepSeries,
        /// Memory of that series.
        memory: OperatorMemory<'q>,
    },
    /// A subquery whose window contains no step.
    Void,
}

impl WindowSource<'_> {
    /// The next series; false at the end.
    pub fn next(&mut self, out: &mut WindowSeries) -> Result<bool, Error> {
        match self {
            WindowSource::Void => Ok(false),
            WindowSource::Selector(reader) => {
                let Some(labels) = reader.next(&mut out.samples)? else { return Ok(false) };
                out.labels = labels;
                out.drop_name = false;
                Ok(true)
            }
            WindowSource::Subquery { inner, grid, series, memory } => {
                if !inner.next(series)? {
                    return Ok(false);
                }
                out.samples.clear();
                // Columns of the samples may grow to twice their length.
                let sample_count = series.sample_count();
                memory.raise_to(sample_count, series.heap_bytes() + 2 * SAMPLE_BYTES * sample_count)?;
                out.samples.push_steps(series, grid.times());
                out.labels = series.labels.clone();
                out.drop_name = series.drop_name;
                Ok(true)
            }
        }
    }
}

/// A function of a range vector that returns one value per window.
pub struct RangeFn<'q> {
    /// State of the query.
    pub execution: &'q Execution<'q>,
    /// Windows of the range vector.
    pub windows: Windows,
    /// Computed for each window.
    pub rollup: Rollup,
    /// Values at the ends of a range.
    pub extension: Option<RangeExtension>,
    /// Origin of notes: the range vector; for a subquery the beginning of the query, as in Prometheus.
    pub origin: Origin,
    /// Origin of notes about the parameter: the quantile, the strategy of an integral.
    pub param_origin: Origin,
    /// Applied to the series of functions of counters.
    pub counter_check: CounterCheck,
    /// True if the reader of the results ignores metric names, so that they need not be removed.
    pub keeps_labels: bool,
}

/// Memory that a range function uses again from series to series.
#[derive(Default)]
pub struct RangeScratch {
    buffer: RollupBuffer,
    /// The last note of the counter check, and its steps: the series of a metric follow each other.
    gauge: Option<(Note, Option<StepSet>)>,
}

impl RangeScratch {
    /// Memory of the rollup.
    pub(crate) fn buffer(&mut self) -> &mut RollupBuffer {
        &mut self.buffer
    }
}

impl RangeFn<'_> {
    /// Computes all windows of a series; returns false if none has a value.
    ///
    /// # Errors
    /// Cancellation and deadline, and invalid arguments.
    pub fn apply(
        &self,
        labels: &Labels,
        drop_name: bool,
        samples: &RangeSamples,
        scratch: &mut RangeScratch,
        out: &mut StepSeries,
    ) -> Result<bool, Error> {
        self.check_params(samples, scratch)?;
        if !self.fill(labels, samples, scratch, out)? {
            return Ok(false);
        }
        self.finish(labels, drop_name, scratch, out);
        Ok(true)
    }

    /// Gives a computed series its labels, and notes what its metric does not look like.
    pub(crate) fn finish(
        &self,
        labels: &Labels,
        drop_name: bool,
        scratch: &mut RangeScratch,
        out: &mut StepSeries,
    ) {
        if self.rollup.wants_counter() {
            self.check_counter(labels, out, &mut scratch.gauge);
        }
        out.drop_name = drop_name;
        out.labels = labels.clone();
        if !self.rollup.keeps_name() && !self.keeps_labels {
            self.execution.drop_name(out);
        }
    }

    /// Fills the columns; returns false if no step has a value.
    fn fill(
        &self,
        labels: &Labels,
        samples: &RangeSamples,
        scratch: &mut RangeScratch,
        out: &mut StepSeries,
    ) -> Result<bool, Error> {
        let windows = &self.windows;
        let ctx = self.execution.ctx;
        let buffer = &mut scratch.buffer;
        let has_starts = !samples.floats.start_times.is_empty() && self.rollup.asks_for_start_times();
        if self.extension.is_none() && samples.histograms.is_empty() && !has_starts {
            out.clear_steps();
            return Ok(self.rollup.roll(&samples.floats, windows, ctx, buffer, &mut out.values)?);
        }
        let mut notes = RangeNotes::default();
        let any = match self.extension {
            Some(extension) => {
                self.rollup.roll_extended(extension, samples, windows, ctx, out, &mut notes)?
            }
            None => self.rollup.roll_mixed(samples, windows, ctx, buffer, out, &mut notes)?,
        };
        let name = labels.metric_name().unwrap_or("");
        emit_notes(self.execution, notes, name, self.origin, self.first_origin());
        Ok(any)
    }

    /// Origin of notes about ignored histograms: the first argument.
    fn first_origin(&self) -> Origin {
        if matches!(self.rollup, Rollup::Quantile(_)) { self.param_origin } else { self.origin }
    }

    /// Checks parameters in steps whose windows contain samples: others do not matter.
    fn check_params(&self, samples: &RangeSamples, scratch: &mut RangeScratch) -> Result<(), Error> {
        let bad_quantile = |value: f64| !(0.0..=1.0).contains(&value);
        // NaN is accepted, and results in NaN.
        let bad_factor = |value: f64| value <= 0.0 || value >= 1.0;
        let any_bad = match &self.rollup {
            Rollup::Quantile(quantile) => quantile.values().iter().any(|&v| bad_quantile(v)),
            Rollup::Integral(strategy) => strategy.values().iter().any(|&v| is_bad_strategy(v)),
            Rollup::Smoothing(level, trend) => {
                level.values().iter().chain(trend.values()).any(|&v| bad_factor(v))
            }
            _ => false,
        };
        if !any_bad {
            return Ok(());
        }
        let mut counts = StepSeries::default();
        if matches!(self.rollup, Rollup::Quantile(_) | Rollup::Integral(_)) {
            // Histograms have neither quantile over time nor integral.
            let floats = &samples.floats;
            let buffer = &mut scratch.buffer;
            Rollup::Count.roll(floats, &self.windows, self.execution.ctx, buffer, &mut counts.values)?;
        } else {
            let windows = &self.windows;
            let ctx = self.execution.ctx;
            let buffer = &mut scratch.buffer;
            Rollup::Count.roll_mixed(
                samples,
                windows,
                ctx,
                buffer,
                &mut counts,
                &mut RangeNotes::default(),
            )?;
        }
        let present = counts.values.iter().enumerate().filter(|(_, count)| !is_absent(**count));
        for (step, _) in present {
            match &self.rollup {
                Rollup::Quantile(quantile) if bad_quantile(quantile.at(step)) => {
                    let note = Note::BadQuantile(NotedValue(quantile.at(step)));
                    self.execution.annotations.add(note, self.param_origin);
                }
                Rollup::Integral(strategy) if is_bad_strategy(strategy.at(step)) => {
                    let note = Note::BadStrategy(NotedValue(strategy.at(step)));
                    self.execution.annotations.add(note, self.param_origin);
                }
                Rollup::Smoothing(level, _) if bad_factor(level.at(step)) => {
                    return Err(Error::Argument(ArgumentError::SmoothingFactor, level.at(step)));
                }
                Rollup::Smoothing(_, trend) if bad_factor(trend.at(step)) => {
                    return Err(Error::Argument(ArgumentError::TrendFactor, trend.at(step)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the note of the counter check, if a step has a float.
    fn check_counter(&self, labels: &Labels, out: &StepSeries, last: &mut Option<(Note, Option<StepSet>)>) {
        let Some(note) = (self.counter_check)(labels) else { return };
        let is_float = |step: &usize| matches!(out.element(*step), Some(Element::Float(_)));
        if !(0..out.values.len()).any(|step| is_float(&step)) {
            return;
        }
        let steps = self.steps_of_query((0..out.values.len()).filter(is_float));
        let known = match last {
            Some((before, Some(known))) if *before == note => steps.and_then(|steps| known.union(&steps)),
            _ => steps,
        };
        let current = Some((note.clone(), known.clone()));
        if current != *last {
            *last = current;
            self.execution.annotations.add_at(note, self.origin, known);
        }
    }

    /// Returns `steps`, ascending, as steps of the query; `None` within a subquery, whose steps are not steps
    /// of the query.
    fn steps_of_query(&self, steps: impl Iterator<Item = usize>) -> Option<StepSet> {
        let grid = &self.windows.grid;
        if self.execution.grid.as_ref() != Some(grid) {
            return None;
        }
        let mut runs: Vec<StepRun> = Vec::new();
        for time_ms in steps.map(|step| grid.time(step)) {
            match runs.last_mut() {
                Some(run) if run.last_ms.saturating_add(grid.step_ms) == time_ms => run.last_ms = time_ms,
                _ => runs.push(StepRun { first_ms: time_ms, last_ms: time_ms }),
            }
        }
        StepSet::new(grid.step_ms, runs)
    }
}

/// Adds the notes about the ranges of metric `name`. `first_origin` points at the first argument of the
/// function.
pub(crate) fn emit_notes(
    execution: &Execution<'_>,
    notes: RangeNotes,
    name: &str,
    origin: Origin,
    first_origin: Origin,
) {
    if notes == RangeNotes::default() {
        return;
    }
    let annotations = &execution.annotations;
    let name = || Box::from(name);
    for (applies, note) in [
        (notes.mixed, Note::MixedRange(name())),
        (notes.mixed_schemas, Note::MixedSchemas(name())),
        (notes.not_counter, Note::NotCounter(name())),
        (notes.not_gauge, Note::NotGauge(name())),
        (notes.reconciled_add, Note::Reconciled(Operation::Addition)),
        (notes.reconciled_sub, Note::Reconciled(Operation::Subtraction)),
        (notes.reconciled_fold, Note::Reconciled(Operation::Aggregation)),
        (notes.collision, Note::Collision(Operation::Aggregation)),
    ] {
        if applies {
            annotations.add(note, origin);
        }
    }
    if notes.start_overlap_count > 0 {
        annotations.count(Note::StartOverlap(name()), origin, Tally::of_count(notes.start_overlap_count));
    }
    if notes.ignored {
        annotations.add(Note::IgnoredInRange(name()), first_origin);
    }
}

/// A function of a subquery.
pub struct RangeCall<'q> {
    source: WindowSource<'q>,
    function: RangeFn<'q>,
    series: WindowSeries,
    scratch: RangeScratch,
}

impl<'q> RangeCall<'q> {
    /// Nothing computed yet.
    pub fn new(source: WindowSource<'q>, function: RangeFn<'q>) -> RangeCall<'q> {
        RangeCall { source, function, series: WindowSeries::default(), scratch: RangeScratch::default() }
    }
}

impl SeriesOperator for RangeCall<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        while self.source.next(&mut self.series)? {
            self.series.samples.forget_hints();
            let WindowSeries { labels, drop_name, samples } = &self.series;
            self.function.execution.ctx.check()?;
            self.function.execution.ctx.yield_point()?;
            // The samples of a subquery count where they are read.
            if matches!(self.source, WindowSource::Selector(_)) {
                self.function.execution.trace.tally_windows(&self.function.windows, &samples.floats.times);
                self.function
                    .execution
                    .trace
                    .tally_windows(&self.function.windows, &samples.histograms.times);
            }
            if self.function.apply(labels, *drop_name, samples, &mut self.scratch, out)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A series with these labels and the value 1 in windows without samples.
pub fn absent_over_time<'q>(
    execution: &'q Execution<'q>,
    mut source: WindowSource<'q>,
    windows: Windows,
    labels: Labels,
) -> BoxOperator<'q> {
    Blocking::boxed(execution, move |_| {
        let mut result = StepSeries::floats(labels, vec![1.0; windows.grid.count]);
        let mut series = WindowSeries::default();
        while source.next(&mut series)? {
            mark_present(&series.samples.floats.times, &windows, &mut result.values);
            mark_present(&series.samples.histograms.times, &windows, &mut result.values);
        }
        Ok(if result.is_void() { Vec::new() } else { vec![result] })
    })
}
