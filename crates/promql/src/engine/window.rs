//! Range vectors: series with the samples of all their windows, and rollups over them.
//! Holds: samples of a series are decoded once, however many windows see them.

use chronolith_model::Labels;

use super::EvalError;
use super::annotation::note::{Note, Operation};
use super::annotation::order::Origin;
use super::annotation::steps::{StepRun, StepSet};
use super::grid::{Grid, Windows};
use super::histogram::growth::RangeNotes;
use super::rollup::integral::is_bad_strategy;
use super::rollup::{Rollup, RollupBuffer};
use super::run::{Hold, Run};
use super::samples::RangeSamples;
use super::select::SeriesReader;
use super::series::{BoxOperator, Element, SeriesOperator, StepSeries, is_absent};
use crate::ast::RangeExtension;
use chronolith_model::histogram::go_float;

/// One series of a range vector.
pub(crate) struct WindowSeries {
    /// Its labels.
    pub(crate) labels: Labels,
    /// As in [`StepSeries::drop_name`].
    pub(crate) drop_name: bool,
    /// Samples of all windows, without staleness markers.
    pub(crate) samples: RangeSamples,
}

impl Default for WindowSeries {
    fn default() -> Self {
        WindowSeries { labels: Labels::empty(), drop_name: false, samples: RangeSamples::default() }
    }
}

/// Yields the series of a range vector.
pub(crate) enum WindowSource<'q> {
    /// A range selector.
    Selector(SeriesReader<'q>),
    /// A subquery, computed on `grid`.
    Subquery {
        /// The inner expression.
        inner: BoxOperator<'q>,
        /// Its evaluation times.
        grid: Grid,
        /// Its current series.
        series: StepSeries,
        /// Memory of that series.
        hold: Hold<'q>,
    },
    /// A subquery whose window holds no step.
    Void,
}

impl WindowSource<'_> {
    /// The next series; false at the end.
    pub(crate) fn next(&mut self, out: &mut WindowSeries) -> Result<bool, EvalError> {
        match self {
            WindowSource::Void => Ok(false),
            WindowSource::Selector(reader) => {
                let Some(labels) = reader.next(&mut out.samples)? else { return Ok(false) };
                out.labels = labels;
                out.drop_name = false;
                Ok(true)
            }
            WindowSource::Subquery { inner, grid, series, hold } => {
                if !inner.next(series)? {
                    return Ok(false);
                }
                out.samples.clear();
                out.samples.push_steps(series, grid.times());
                hold.raise_to(out.samples.sample_count(), 3 * series.heap_bytes())?;
                out.labels = series.labels.clone();
                out.drop_name = series.drop_name;
                Ok(true)
            }
        }
    }
}

/// A function of a range vector that yields one value a window.
pub(crate) struct RangeFn<'q> {
    pub(crate) run: &'q Run<'q>,
    pub(crate) windows: Windows,
    pub(crate) rollup: Rollup,
    /// `anchored` or `smoothed`.
    pub(crate) extension: Option<RangeExtension>,
    /// Where the range vector stands in the query; for a subquery the beginning, as upstream has it.
    pub(crate) origin: Origin,
    /// Where the parameter stands that may be warned of: the quantile, the rule of an integral.
    pub(crate) param_origin: Origin,
}

/// Memory that a range function uses again from series to series.
#[derive(Default)]
pub(crate) struct RangeScratch {
    buffer: RollupBuffer,
    /// The last metric that was taken for a gauge, and the steps with values: its series come one after the other.
    gauge: (String, Option<StepSet>),
}

impl RangeFn<'_> {
    /// Computes all windows of a series; false if none has a value.
    ///
    /// # Errors
    /// The query is to stop.
    pub(crate) fn apply(
        &self,
        labels: &Labels,
        drop_name: bool,
        samples: &RangeSamples,
        scratch: &mut RangeScratch,
        out: &mut StepSeries,
    ) -> Result<bool, EvalError> {
        self.check_params(samples, scratch)?;
        self.run.trace.tally_windows(&self.windows, &samples.floats.times);
        self.run.trace.tally_windows(&self.windows, &samples.histograms.times);
        if !self.fill(labels, samples, scratch, out)? {
            return Ok(false);
        }
        if self.rollup.wants_counter() {
            self.inform_of_gauge(labels, out, &mut scratch.gauge);
        }
        out.drop_name = drop_name;
        out.labels = labels.clone();
        if !self.rollup.keeps_name() {
            self.run.drop_name(out);
        }
        Ok(true)
    }

    /// Fills the columns; false if no step has anything.
    fn fill(
        &self,
        labels: &Labels,
        samples: &RangeSamples,
        scratch: &mut RangeScratch,
        out: &mut StepSeries,
    ) -> Result<bool, EvalError> {
        let (windows, ctx, buffer) = (&self.windows, self.run.ctx, &mut scratch.buffer);
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
        emit_notes(self.run, notes, name, self.origin, self.first_origin());
        Ok(any)
    }

    /// Where the first argument stands, which is what is pointed at where histograms are left out.
    fn first_origin(&self) -> Origin {
        if matches!(self.rollup, Rollup::Quantile(_)) { self.param_origin } else { self.origin }
    }

    /// Says what is wrong with parameters in steps whose windows hold samples: others do not matter.
    fn check_params(&self, samples: &RangeSamples, scratch: &mut RangeScratch) -> Result<(), EvalError> {
        let bad_quantile = |value: f64| !(0.0..=1.0).contains(&value);
        // NaN is let through, and gives NaN.
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
            // Of histograms alone there is no quantile, and no integral.
            let (floats, buffer) = (&samples.floats, &mut scratch.buffer);
            Rollup::Count.roll(floats, &self.windows, self.run.ctx, buffer, &mut counts.values)?;
        } else {
            let (windows, ctx, buffer) = (&self.windows, self.run.ctx, &mut scratch.buffer);
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
                    let message = super::annotation::bad_quantile(quantile.at(step));
                    self.run.annotations.warn(&message, self.param_origin);
                }
                Rollup::Integral(strategy) if is_bad_strategy(strategy.at(step)) => {
                    let strategy = go_float(strategy.at(step));
                    let message = format!("strategy should be 0, 1, or 2 (default), using 2, got {strategy}");
                    self.run.annotations.warn(&message, self.param_origin);
                }
                Rollup::Smoothing(level, _) if bad_factor(level.at(step)) => {
                    return Err(invalid_factor("smoothing factor. Expected: 0 < sf < 1", level.at(step)));
                }
                Rollup::Smoothing(_, trend) if bad_factor(trend.at(step)) => {
                    return Err(invalid_factor("trend factor. Expected: 0 < tf < 1", trend.at(step)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the info that a function for counters is applied to a metric that is none, if a step has a float.
    fn inform_of_gauge(&self, labels: &Labels, out: &StepSeries, last: &mut (String, Option<StepSet>)) {
        let name = labels.metric_name().unwrap_or("");
        let is_typed = self.run.options.type_and_unit_labels;
        let kind = labels.get("__type__").unwrap_or("");
        let is_counter = if is_typed {
            kind == "counter" || kind == "histogram"
        } else {
            ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix))
        };
        let is_float = |step: usize| matches!(out.element(step), Some(Element::Float(_)));
        if name.is_empty() || is_counter || !(0..out.values.len()).any(is_float) {
            return;
        }
        let steps = self.steps_of_query((0..out.values.len()).filter(|&step| is_float(step)));
        let is_same = name == last.0 && !is_typed;
        let known = match (&last.1, steps) {
            (Some(before), Some(steps)) if is_same => before.union(&steps),
            (_, steps) => steps,
        };
        if is_same && known == last.1 {
            return;
        }
        *last = (name.to_owned(), known.clone());
        let mut message = if is_typed {
            format!(
                "metric might not be a counter, __type__ label is not set to \"counter\" or \"histogram\", got \
                 {kind:?}: "
            )
        } else {
            String::from("metric might not be a counter, name does not end in _total/_sum/_count/_bucket: ")
        };
        // Writing to a String cannot fail.
        let _ = chronolith_model::quote::write_quoted(&mut message, name);
        self.run.annotations.inform_at(&message, self.origin, known);
    }

    /// These steps, ascending; `None` within a subquery, whose steps are not those of the query.
    fn steps_of_query(&self, steps: impl Iterator<Item = usize>) -> Option<StepSet> {
        let (grid, query) = (&self.windows.grid, self.run.query);
        if Grid::between(query.start_ms, query.end_ms, query.step_ms).as_ref() != Some(grid) {
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

/// Says what there is to say about ranges with histograms of metric `name`. `first_origin` is where the first argument
/// stands.
pub(crate) fn emit_notes(run: &Run<'_>, notes: RangeNotes, name: &str, origin: Origin, first_origin: Origin) {
    if notes == RangeNotes::default() {
        return;
    }
    let say = |condition: bool, note: Note<'_>| {
        if condition {
            run.annotations.note(note, origin);
        }
    };
    say(notes.mixed, Note::MixedRange(name));
    say(notes.mixed_schemas, Note::MixedSchemas(name));
    say(notes.not_counter, Note::NotCounter(name));
    say(notes.not_gauge, Note::NotGauge(name));
    say(notes.reconciled_add, Note::Reconciled(Operation::Addition));
    say(notes.reconciled_sub, Note::Reconciled(Operation::Subtraction));
    say(notes.reconciled_fold, Note::Reconciled(Operation::Aggregation));
    say(notes.collision, Note::Collision(Operation::Aggregation));
    say(notes.start_overlap_count > 0, Note::StartOverlap(name, notes.start_overlap_count));
    if notes.ignored {
        run.annotations.note(Note::IgnoredInRange(name), first_origin);
    }
}

fn invalid_factor(what: &str, factor: f64) -> EvalError {
    let factor = if factor.is_infinite() { go_float(factor) } else { format!("{factor:.6}") };
    EvalError::Execution(format!("invalid {what}, got: {factor}"))
}

/// A function of a subquery.
pub(crate) struct RangeCall<'q> {
    source: WindowSource<'q>,
    function: RangeFn<'q>,
    series: WindowSeries,
    scratch: RangeScratch,
}

impl<'q> RangeCall<'q> {
    /// Nothing computed yet.
    pub(crate) fn new(source: WindowSource<'q>, function: RangeFn<'q>) -> RangeCall<'q> {
        RangeCall { source, function, series: WindowSeries::default(), scratch: RangeScratch::default() }
    }
}

impl SeriesOperator for RangeCall<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        while self.source.next(&mut self.series)? {
            self.series.samples.forget_hints();
            let WindowSeries { labels, drop_name, samples } = &self.series;
            self.function.run.ctx.check()?;
            if self.function.apply(labels, *drop_name, samples, &mut self.scratch, out)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// `absent_over_time`: 1 where no series has a sample.
pub(crate) struct AbsentOverTime<'q> {
    /// What is looked at.
    pub(crate) source: WindowSource<'q>,
    /// Its windows.
    pub(crate) windows: Windows,
    /// Labels of the result; taken when it is yielded.
    pub(crate) labels: Option<Labels>,
}

impl SeriesOperator for AbsentOverTime<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        let Some(labels) = self.labels.take() else { return Ok(false) };
        let mut series = WindowSeries::default();
        out.clear_steps();
        out.values.resize(self.windows.grid.count, 1.0);
        while self.source.next(&mut series)? {
            super::rollup::mark_present(&series.samples.floats.times, &self.windows, &mut out.values);
            super::rollup::mark_present(&series.samples.histograms.times, &self.windows, &mut out.values);
        }
        out.labels = labels;
        out.drop_name = false;
        Ok(!out.is_void())
    }
}
