//! Range vectors: series with the samples of all their windows, and rollups over them.
//! Holds: samples of a series are decoded once, however many windows see them.

use chronolith_model::{Columns, Labels};

use super::EvalError;
use super::annotation::go_general;
use super::grid::{Grid, Windows};
use super::rollup::{Rollup, RollupBuffer};
use super::run::{Hold, Run};
use super::select::{SeriesReader, drop_stale};
use super::series::{BoxOperator, SeriesOperator, StepSeries, is_absent};
use crate::ast::Span;

/// One series of a range vector.
pub(crate) struct WindowSeries {
    /// Its labels.
    pub(crate) labels: Labels,
    /// As in [`StepSeries::drop_name`].
    pub(crate) drop_name: bool,
    /// Samples of all windows, without staleness markers.
    pub(crate) columns: Columns,
}

impl Default for WindowSeries {
    fn default() -> Self {
        WindowSeries { labels: Labels::empty(), drop_name: false, columns: Columns::default() }
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
                let Some(labels) = reader.next(&mut out.columns)? else { return Ok(false) };
                drop_stale(&mut out.columns);
                out.labels = labels;
                out.drop_name = false;
                Ok(true)
            }
            WindowSource::Subquery { inner, grid, series, hold } => {
                if !inner.next(series)? {
                    return Ok(false);
                }
                out.columns.clear();
                for (time, &value) in grid.times().zip(&series.values) {
                    if !is_absent(value) {
                        out.columns.push(time, value);
                    }
                }
                hold.raise_to(out.columns.len() as u64, 3 * series.heap_bytes())?;
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
    /// Where the range vector stands in the query; for a subquery the beginning, as upstream has it.
    pub(crate) span: Span,
    /// Where the first argument stands: for the quantile.
    pub(crate) param_span: Span,
}

/// Memory that a range function uses again from series to series.
#[derive(Default)]
pub(crate) struct RangeScratch {
    buffer: RollupBuffer,
    /// The last metric that was taken for a gauge: its series come one behind the other.
    gauge: String,
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
        columns: &Columns,
        scratch: &mut RangeScratch,
        out: &mut StepSeries,
    ) -> Result<bool, EvalError> {
        out.values.clear();
        let (windows, ctx) = (&self.windows, self.run.ctx);
        self.check_params(columns, scratch)?;
        self.run.trace.tally_windows(windows, &columns.times);
        if !self.rollup.roll(columns, windows, ctx, &mut scratch.buffer, &mut out.values)? {
            return Ok(false);
        }
        if self.rollup.wants_counter() {
            self.inform_of_gauge(labels.metric_name().unwrap_or(""), &mut scratch.gauge);
        }
        out.drop_name = drop_name;
        out.labels = labels.clone();
        if !self.rollup.keeps_name() {
            self.run.drop_name(out);
        }
        Ok(true)
    }

    /// Says what is wrong with parameters in steps whose windows hold samples: others do not matter.
    fn check_params(&self, columns: &Columns, scratch: &mut RangeScratch) -> Result<(), EvalError> {
        let bad_quantile = |value: f64| !(0.0..=1.0).contains(&value);
        // NaN is let through, and gives NaN.
        let bad_factor = |value: f64| value <= 0.0 || value >= 1.0;
        let any_bad = match &self.rollup {
            Rollup::Quantile(quantile) => quantile.values().iter().any(|&v| bad_quantile(v)),
            Rollup::Smoothing(level, trend) => {
                level.values().iter().chain(trend.values()).any(|&v| bad_factor(v))
            }
            _ => false,
        };
        if !any_bad {
            return Ok(());
        }
        let mut counts = Vec::new();
        Rollup::Count.roll(columns, &self.windows, self.run.ctx, &mut scratch.buffer, &mut counts)?;
        let steps = counts.iter().enumerate().filter(|(_, count)| !is_absent(**count)).map(|(step, _)| step);
        for step in steps {
            match &self.rollup {
                Rollup::Quantile(quantile) if bad_quantile(quantile.at(step)) => {
                    let message = super::annotation::bad_quantile(quantile.at(step));
                    self.run.annotations.warn(&message, self.param_span);
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

    fn inform_of_gauge(&self, name: &str, last: &mut String) {
        let counter = ["_total", "_sum", "_count", "_bucket"].iter().any(|suffix| name.ends_with(suffix));
        if name == last || counter {
            return;
        }
        name.clone_into(last);
        let mut message =
            String::from("metric might not be a counter, name does not end in _total/_sum/_count/_bucket: ");
        // Writing to a String cannot fail.
        let _ = chronolith_model::quote::write_quoted(&mut message, name);
        self.run.annotations.inform(&message, self.span);
    }
}

fn invalid_factor(what: &str, factor: f64) -> EvalError {
    let factor = if factor.is_infinite() { go_general(factor) } else { format!("{factor:.6}") };
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
            let WindowSeries { labels, drop_name, columns } = &self.series;
            self.function.run.ctx.check()?;
            if self.function.apply(labels, *drop_name, columns, &mut self.scratch, out)? {
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
        out.values.clear();
        out.values.resize(self.windows.grid.count, 1.0);
        while self.source.next(&mut series)? {
            super::rollup::mark_present(&series.columns.times, &self.windows, &mut out.values);
        }
        out.labels = labels;
        out.drop_name = false;
        Ok(!out.is_void())
    }
}
