//! Functions of instant vectors.
//! Holds: each operator here yields the series of its argument with other values or other labels; absent steps
//! stay absent unless the function is about absence.
//! Not here: functions of range vectors (`rollup`), which function is meant by a name (`plan`).

use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels};

use crate::arith::{go_max, go_min};
use crate::column::{ABSENT, StepScalar, StepSeries, is_absent};
use crate::error::Error;
use crate::execution::Execution;
use crate::grid::Grid;
use crate::operator::{BoxOperator, SeriesOperator};

/// What happens to every value of a vector.
#[derive(Debug, Clone)]
pub enum ElementFn {
    /// A plain function.
    Plain(fn(f64) -> f64),
    /// `-x`
    Negate,
    /// `clamp` with least and greatest value.
    Clamp(StepScalar, StepScalar),
    /// `clamp_min`
    ClampMin(StepScalar),
    /// `clamp_max`
    ClampMax(StepScalar),
    /// `round` with the unit to round to.
    Round(StepScalar),
}

impl ElementFn {
    /// The result for a value that is there; [`ABSENT`] drops it.
    pub fn apply(&self, step: usize, value: f64) -> f64 {
        match self {
            ElementFn::Plain(function) => function(value),
            ElementFn::Negate => -value,
            ElementFn::Clamp(least, greatest) => {
                let (least, greatest) = (least.at(step), greatest.at(step));
                if greatest < least { ABSENT } else { go_max(least, go_min(greatest, value)) }
            }
            ElementFn::ClampMin(least) => go_max(least.at(step), value),
            ElementFn::ClampMax(greatest) => go_min(greatest.at(step), value),
            ElementFn::Round(unit) => {
                // Multiplying by the inverse gives 0.3 where dividing gives 0.30000000000000004.
                let inverse = 1.0 / unit.at(step);
                (value * inverse + 0.5).floor() / inverse
            }
        }
    }
}

/// Applies a function to every value.
pub struct MapValues<'q> {
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    function: ElementFn,
}

impl<'q> MapValues<'q> {
    /// Applies `function` to the series of `inner`.
    #[must_use]
    pub fn new(execution: &'q Execution<'q>, inner: BoxOperator<'q>, function: ElementFn) -> MapValues<'q> {
        MapValues { execution, inner, function }
    }

    /// Takes the histograms out; negation, the only function for which there is more to do, gives them back.
    fn negate_histograms(&self, series: &mut StepSeries) -> Vec<(usize, Arc<FloatHistogram>)> {
        let negate = |step| {
            let mut negated = FloatHistogram::clone(series.histogram(step)?);
            negated.multiply(-1.0);
            Some((step, Arc::new(negated)))
        };
        let negated = match self.function {
            ElementFn::Negate => (0..series.values.len()).filter_map(negate).collect(),
            _ => Vec::new(),
        };
        series.drop_histograms();
        negated
    }
}

impl SeriesOperator for MapValues<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        while self.inner.next(out)? {
            let negated = if out.has_histograms() { self.negate_histograms(out) } else { Vec::new() };
            let mut any = !negated.is_empty();
            for (step, value) in out.values.iter_mut().enumerate() {
                if !is_absent(*value) {
                    *value = self.function.apply(step, *value);
                    any |= !is_absent(*value);
                }
            }
            for (step, histogram) in negated {
                out.set_histogram(step, histogram);
            }
            if any {
                self.execution.drop_name(out);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// `timestamp` of a computed vector: the evaluation time.
pub struct StepTimes<'q> {
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    grid: Grid,
}

impl<'q> StepTimes<'q> {
    /// The times of the steps of `grid` in which `inner` has values.
    #[must_use]
    pub fn new(execution: &'q Execution<'q>, inner: BoxOperator<'q>, grid: Grid) -> StepTimes<'q> {
        StepTimes { execution, inner, grid }
    }
}

impl SeriesOperator for StepTimes<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        for (value, time) in out.values.iter_mut().zip(self.grid.times()) {
            if !is_absent(*value) {
                *value = time as f64 / 1000.0;
            }
        }
        out.histograms.clear();
        self.execution.drop_name(out);
        Ok(true)
    }
}

/// `timestamp` of a selector, whose values are sample times already: only the name goes.
pub struct DropName<'q> {
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
}

impl<'q> DropName<'q> {
    /// The series of `inner` without metric names.
    #[must_use]
    pub fn new(execution: &'q Execution<'q>, inner: BoxOperator<'q>) -> DropName<'q> {
        DropName { execution, inner }
    }
}

impl SeriesOperator for DropName<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        self.execution.drop_name(out);
        Ok(true)
    }
}

/// `absent`: 1 where no series has a value.
pub struct Absent<'q> {
    inner: BoxOperator<'q>,
    step_count: usize,
    /// Taken when the result is returned.
    labels: Option<Labels>,
}

impl<'q> Absent<'q> {
    /// A series with these labels and a value where `inner` has none.
    #[must_use]
    pub fn new(inner: BoxOperator<'q>, step_count: usize, labels: Labels) -> Absent<'q> {
        Absent { inner, step_count, labels: Some(labels) }
    }
}

impl SeriesOperator for Absent<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        let Some(labels) = self.labels.take() else { return Ok(false) };
        let mut values = vec![1.0; self.step_count];
        while self.inner.next(out)? {
            for (value, &other) in values.iter_mut().zip(&out.values) {
                if !is_absent(other) {
                    *value = ABSENT;
                }
            }
        }
        *out = StepSeries::floats(labels, values);
        Ok(!out.is_void())
    }
}

/// `scalar`: the value of the only element, NaN where there is none or more than one.
pub fn to_scalar(mut inner: BoxOperator<'_>, step_count: usize) -> Result<StepScalar, Error> {
    let mut values = vec![f64::NAN; step_count];
    let mut seen = vec![0_u8; step_count];
    let mut series = StepSeries::default();
    while inner.next(&mut series)? {
        series.drop_histograms();
        for (step, &value) in series.values.iter().enumerate().filter(|(_, v)| !is_absent(**v)) {
            seen[step] = seen[step].saturating_add(1);
            values[step] = if seen[step] == 1 { value } else { f64::NAN };
        }
    }
    Ok(StepScalar::PerStep(values))
}
