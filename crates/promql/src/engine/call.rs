//! Functions of instant vectors.
//! Holds: each operator here yields the series of its argument with other values or other labels; absent steps
//! stay absent unless the function is about absence.
//! Not here: functions of range vectors (`rollup`), which function is meant by a name (`plan`).

pub(crate) mod buckets;
pub(crate) mod calendar;

pub(crate) mod label;
pub(crate) mod math;
pub(crate) mod order;
pub(crate) mod stats;
pub(crate) mod target_info;

use std::sync::Arc;

use chronolith_model::matcher::MatchOp;
use chronolith_model::{FloatHistogram, Labels, LabelsBuilder, Matcher};

use super::run::Run;
use super::series::{ABSENT, BoxOperator, SeriesOperator, StepScalar, StepSeries, is_absent};
use super::{EvalError, METADATA_LABELS};
use math::ElementFn;

/// Applies a function to every value.
pub(crate) struct MapValues<'q> {
    pub(crate) run: &'q Run<'q>,
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) function: ElementFn,
}

impl MapValues<'_> {
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
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
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
                self.run.drop_name(out);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// `timestamp` of a computed vector: the evaluation time.
pub(crate) struct StepTimes<'q> {
    pub(crate) run: &'q Run<'q>,
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) grid: super::grid::Grid,
}

impl SeriesOperator for StepTimes<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        for (value, time) in out.values.iter_mut().zip(self.grid.times()) {
            if !is_absent(*value) {
                *value = time as f64 / 1000.0;
            }
        }
        out.histograms.clear();
        self.run.drop_name(out);
        Ok(true)
    }
}

/// `timestamp` of a selector, whose values are sample times already: only the name goes.
pub(crate) struct DropName<'q> {
    pub(crate) run: &'q Run<'q>,
    pub(crate) inner: BoxOperator<'q>,
}

impl SeriesOperator for DropName<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        self.run.drop_name(out);
        Ok(true)
    }
}

/// `absent`: 1 where no series has a value.
pub(crate) struct Absent<'q> {
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) step_count: usize,
    /// Taken when the result is yielded.
    pub(crate) labels: Option<Labels>,
}

impl SeriesOperator for Absent<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
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

/// Labels that a missing series would surely have: those that exactly one matcher asks for, by equality.
pub(crate) fn labels_of_absent(matchers: &[Matcher]) -> Labels {
    let mut builder = LabelsBuilder::new();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in matchers.iter().filter(|m| !METADATA_LABELS.contains(&&*m.name)) {
        if matcher.op == MatchOp::Equal && !seen.contains(&&*matcher.name) {
            builder.set(&matcher.name, &matcher.value);
            seen.push(&matcher.name);
        } else {
            builder.remove(&matcher.name);
        }
    }
    builder.finish()
}

/// `scalar`: the value of the only element, NaN where there is none or more than one.
pub(crate) fn to_scalar(mut inner: BoxOperator<'_>, step_count: usize) -> Result<StepScalar, EvalError> {
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
