//! Map operators: the series of an instant vector with other values; `absent` and scalars of vectors.
//! Invariants: absent steps stay absent, except in `absent`.
//! Not here: functions of range vectors (`rollup`), names of functions, which are the language's.

use std::sync::Arc;

use chronolith_model::{FloatHistogram, Labels};

use crate::arith::{go_max, go_min};
use crate::column::{ABSENT, StepScalar, StepSeries, is_absent};
use crate::error::Error;
use crate::execution::Execution;
use crate::grid::Grid;
use crate::operator::{Blocking, BoxOperator, filter_map};

/// A function of one value.
#[derive(Debug, Clone)]
pub enum ElementFn {
    /// A function without parameters.
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
    /// The result for a value that is present; [`ABSENT`] drops it.
    pub fn apply(&self, step: usize, value: f64) -> f64 {
        match self {
            ElementFn::Plain(function) => function(value),
            ElementFn::Negate => -value,
            ElementFn::Clamp(least, greatest) => {
                let least = least.at(step);
                let greatest = greatest.at(step);
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

/// Applies a function to every value, which is then no longer one of the metric.
pub fn map_values<'q>(
    execution: &'q Execution<'q>,
    inner: BoxOperator<'q>,
    function: ElementFn,
) -> BoxOperator<'q> {
    filter_map(inner, move |series| {
        let negated = if series.has_histograms() { take_negated(&function, series) } else { Vec::new() };
        let mut any = !negated.is_empty();
        for (step, value) in series.values.iter_mut().enumerate() {
            if !is_absent(*value) {
                *value = function.apply(step, *value);
                any |= !is_absent(*value);
            }
        }
        for (step, histogram) in negated {
            series.set_histogram(step, histogram);
        }
        if any {
            execution.drop_name(series);
        }
        any
    })
}

/// Drops the histograms of a series and returns those that the function keeps: negation negates them.
fn take_negated(function: &ElementFn, series: &mut StepSeries) -> Vec<(usize, Arc<FloatHistogram>)> {
    let negate = |step| {
        let mut negated = FloatHistogram::clone(series.histogram(step)?);
        negated.multiply(-1.0);
        Some((step, Arc::new(negated)))
    };
    let negated = match function {
        ElementFn::Negate => (0..series.values.len()).filter_map(negate).collect(),
        _ => Vec::new(),
    };
    series.drop_histograms();
    negated
}

/// The times of the steps of `grid` in which `inner` has values.
pub fn step_times<'q>(execution: &'q Execution<'q>, inner: BoxOperator<'q>, grid: Grid) -> BoxOperator<'q> {
    filter_map(inner, move |series| {
        for (value, time) in series.values.iter_mut().zip(grid.times()) {
            if !is_absent(*value) {
                *value = time as f64 / 1000.0;
            }
        }
        series.histograms.clear();
        execution.drop_name(series);
        true
    })
}

/// The series of `inner` without metric names.
pub fn drop_name<'q>(execution: &'q Execution<'q>, inner: BoxOperator<'q>) -> BoxOperator<'q> {
    filter_map(inner, move |series| {
        execution.drop_name(series);
        true
    })
}

/// A series with these labels and the value 1 in steps in which `inner` has none.
pub fn absent<'q>(
    execution: &'q Execution<'q>,
    mut inner: BoxOperator<'q>,
    step_count: usize,
    labels: Labels,
) -> BoxOperator<'q> {
    Blocking::boxed(execution, move |_| {
        let mut result = StepSeries::floats(labels, vec![1.0; step_count]);
        let mut series = StepSeries::default();
        while inner.next(&mut series)? {
            for (value, &other) in result.values.iter_mut().zip(&series.values) {
                if !is_absent(other) {
                    *value = ABSENT;
                }
            }
        }
        Ok(if result.is_void() { Vec::new() } else { vec![result] })
    })
}

/// The value of the only element of each step, NaN if there is none or more than one.
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
