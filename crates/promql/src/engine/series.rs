//! Operators and what flows between them: one series at a time, with a column of values, one a step.
//! Holds: a column has as many values as the operator's grid has steps; a step without a value holds
//! [`ABSENT`]; a yielded series has a value in at least one step.
//! Native histograms will stand in a second column of [`StepSeries`], in steps whose float is [`ABSENT`].

use chronolith_base::hash::HashMap;
use chronolith_model::Labels;
use chronolith_model::sample::{STALE_NAN, is_stale};

use super::EvalError;
use super::run::{Hold, Run};

/// "No value at this step": the staleness marker, which no selector lets through as a value.
pub(crate) const ABSENT: f64 = STALE_NAN;

/// Whether a step has no value.
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// One series with all its steps.
#[derive(Debug, Clone)]
pub(crate) struct StepSeries {
    /// Its labels.
    pub(crate) labels: Labels,
    /// The metric name is to be dropped at the end of the query (delayed name removal).
    pub(crate) drop_name: bool,
    /// One value a step.
    pub(crate) values: Vec<f64>,
}

impl Default for StepSeries {
    fn default() -> Self {
        StepSeries { labels: Labels::empty(), drop_name: false, values: Vec::new() }
    }
}

impl StepSeries {
    /// Whether no step has a value.
    pub(crate) fn is_void(&self) -> bool {
        self.values.iter().all(|&v| is_absent(v))
    }

    /// Bytes for budgets.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.labels.heap_bytes() + self.values.len() * size_of::<f64>() + size_of::<StepSeries>()) as u64
    }
}

/// Yields series one by one.
pub(crate) trait SeriesOperator {
    /// Fills `out` with the next series, replacing all that was in it; false at the end, and from then on.
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError>;
}

/// An operator that lives as long as its query.
pub(crate) type BoxOperator<'q> = Box<dyn SeriesOperator + 'q>;

/// Yields series that are at hand.
pub(crate) struct Ready(pub(crate) std::vec::IntoIter<StepSeries>);

impl Ready {
    /// In the order of the vector.
    pub(crate) fn boxed<'q>(series: Vec<StepSeries>) -> BoxOperator<'q> {
        Box::new(Ready(series.into_iter()))
    }
}

impl SeriesOperator for Ready {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        let Some(series) = self.0.next() else { return Ok(false) };
        *out = series;
        Ok(true)
    }
}

/// Takes all series of `inner` into memory, counted in `hold`.
pub(crate) fn collect<'q>(
    inner: &mut dyn SeriesOperator,
    hold: &mut Hold<'q>,
) -> Result<Vec<StepSeries>, EvalError> {
    let mut all = Vec::new();
    let mut series = StepSeries::default();
    while inner.next(&mut series)? {
        hold.grow(series.values.len() as u64, series.heap_bytes())?;
        all.push(std::mem::take(&mut series));
    }
    Ok(all)
}

/// Joins series with equal labels: allowed where no step has values of two of them.
pub(crate) struct Merge<'q> {
    inner: Option<BoxOperator<'q>>,
    merged: std::vec::IntoIter<StepSeries>,
    hold: Hold<'q>,
}

impl<'q> Merge<'q> {
    /// Takes all of `inner` into memory at the first call of `next`.
    pub(crate) fn boxed(inner: BoxOperator<'q>, run: &'q Run<'q>) -> BoxOperator<'q> {
        Box::new(Merge { inner: Some(inner), merged: Vec::new().into_iter(), hold: run.hold() })
    }
}

impl SeriesOperator for Merge<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if let Some(mut inner) = self.inner.take() {
            let all = collect(&mut *inner, &mut self.hold)?;
            self.merged = merge_equal_labels(all)?.into_iter();
        }
        let Some(series) = self.merged.next() else { return Ok(false) };
        *out = series;
        Ok(true)
    }
}

/// Joins series with equal labels, keeping the order of first appearance.
///
/// # Errors
/// Two of them have a value in the same step.
pub(crate) fn merge_equal_labels(all: Vec<StepSeries>) -> Result<Vec<StepSeries>, EvalError> {
    let mut index: HashMap<Labels, usize> = HashMap::default();
    let mut merged: Vec<StepSeries> = Vec::with_capacity(all.len());
    for series in all {
        match index.get(&series.labels) {
            None => {
                index.insert(series.labels.clone(), merged.len());
                merged.push(series);
            }
            Some(&at) => {
                let target = &mut merged[at];
                target.drop_name |= series.drop_name;
                if !merge_values(&mut target.values, &series.values) {
                    return Err(EvalError::same_labels());
                }
            }
        }
    }
    Ok(merged)
}

/// Copies the values of `from` into absent steps of `into`; false if both have a value in some step.
pub(crate) fn merge_values(into: &mut [f64], from: &[f64]) -> bool {
    for (into, &from) in into.iter_mut().zip(from) {
        if is_absent(from) {
            continue;
        }
        if !is_absent(*into) {
            return false;
        }
        *into = from;
    }
    true
}

/// Repeats the single step of `inner` in all steps of a longer grid.
pub(crate) struct Repeat<'q> {
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) count: usize,
}

impl SeriesOperator for Repeat<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        let value = out.values.first().copied().unwrap_or(ABSENT);
        out.values.clear();
        out.values.resize(self.count, value);
        Ok(true)
    }
}

/// A scalar for every step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StepScalar {
    /// The same in all steps.
    Constant(f64),
    /// One a step.
    PerStep(Vec<f64>),
}

impl StepScalar {
    /// Its value in `step`.
    pub(crate) fn at(&self, step: usize) -> f64 {
        match self {
            StepScalar::Constant(value) => *value,
            StepScalar::PerStep(values) => values[step],
        }
    }

    /// The different values in order, for checks that speak once about a parameter.
    pub(crate) fn values(&self) -> &[f64] {
        match self {
            StepScalar::Constant(value) => std::slice::from_ref(value),
            StepScalar::PerStep(values) => values,
        }
    }

    /// Applies `f` to every value.
    pub(crate) fn map(self, f: impl Fn(f64) -> f64) -> StepScalar {
        match self {
            StepScalar::Constant(value) => StepScalar::Constant(f(value)),
            StepScalar::PerStep(mut values) => {
                values.iter_mut().for_each(|v| *v = f(*v));
                StepScalar::PerStep(values)
            }
        }
    }

    /// Applies `f` to both, step by step.
    pub(crate) fn combine(self, other: StepScalar, f: impl Fn(f64, f64) -> f64) -> StepScalar {
        match (self, other) {
            (StepScalar::Constant(a), StepScalar::Constant(b)) => StepScalar::Constant(f(a, b)),
            (StepScalar::Constant(a), b) => b.map(|b| f(a, b)),
            (a, StepScalar::Constant(b)) => a.map(|a| f(a, b)),
            (StepScalar::PerStep(mut a), StepScalar::PerStep(b)) => {
                a.iter_mut().zip(b).for_each(|(a, b)| *a = f(*a, b));
                StepScalar::PerStep(a)
            }
        }
    }
}
