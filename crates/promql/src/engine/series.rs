//! Operators and what flows between them: one series at a time, with a column of values, one a step.
//! Holds: a column has as many values as the operator's grid has steps; a step without a value holds
//! [`ABSENT`]; a yielded series has a value in at least one step.
//! Native histograms stand in a second column, which is empty for series of floats. A step is a histogram if its
//! value is not [`ABSENT`] and the second column has one: so whoever only asks for presence, or takes steps away,
//! looks at the values alone.

use std::sync::Arc;

use chronolith_base::hash::HashTable;
use chronolith_model::sample::{STALE_NAN, is_stale};
use chronolith_model::{FloatHistogram, Labels};

use super::EvalError;
use super::run::{Hold, Run};

/// "No value at this step": the staleness marker, which no selector lets through as a value.
pub(crate) const ABSENT: f64 = STALE_NAN;

/// A time and a number: what a histogram is measured in against the limit of samples.
pub(crate) const SAMPLE_BYTES: u64 = 16;

/// Whether a step has no value.
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// What stands among the values where a step is a histogram.
pub(crate) const HISTOGRAM: f64 = f64::NAN;
const _: () = assert!(HISTOGRAM.to_bits() != STALE_NAN.to_bits());

/// A value of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Element<'a> {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(&'a Arc<FloatHistogram>),
}

/// One series with all its steps.
#[derive(Debug, Clone)]
pub(crate) struct StepSeries {
    /// Its labels.
    pub(crate) labels: Labels,
    /// The metric name is to be dropped at the end of the query (delayed name removal).
    pub(crate) drop_name: bool,
    /// One value a step; [`HISTOGRAM`] where it is one.
    pub(crate) values: Vec<f64>,
    /// Empty, or one a step. Counts only where the value is not [`ABSENT`].
    pub(crate) histograms: Vec<Option<Arc<FloatHistogram>>>,
}

impl Default for StepSeries {
    fn default() -> Self {
        StepSeries::floats(Labels::empty(), Vec::new())
    }
}

impl StepSeries {
    /// A series without histograms, whose name stays.
    pub(crate) fn floats(labels: Labels, values: Vec<f64>) -> StepSeries {
        StepSeries { labels, drop_name: false, values, histograms: Vec::new() }
    }

    /// Whether some step may be a histogram.
    pub(crate) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// What a step holds; `None` if it is absent.
    pub(crate) fn element(&self, step: usize) -> Option<Element<'_>> {
        let value = self.values.get(step).copied().filter(|&value| !is_absent(value))?;
        Some(match self.histograms.get(step) {
            Some(Some(histogram)) => Element::Histogram(histogram),
            _ => Element::Float(value),
        })
    }

    /// The histogram of a step, if it is one.
    pub(crate) fn histogram(&self, step: usize) -> Option<&Arc<FloatHistogram>> {
        match self.element(step) {
            Some(Element::Histogram(histogram)) => Some(histogram),
            _ => None,
        }
    }

    /// Makes a step a number.
    pub(crate) fn set_float(&mut self, step: usize, value: f64) {
        self.values[step] = value;
        if let Some(histogram) = self.histograms.get_mut(step) {
            *histogram = None;
        }
    }

    /// Makes a step a histogram.
    pub(crate) fn set_histogram(&mut self, step: usize, histogram: Arc<FloatHistogram>) {
        if self.histograms.is_empty() {
            self.histograms.resize(self.values.len(), None);
        }
        self.values[step] = HISTOGRAM;
        self.histograms[step] = Some(histogram);
    }

    /// Takes all histograms away: for functions of numbers.
    pub(crate) fn drop_histograms(&mut self) {
        for (value, histogram) in self.values.iter_mut().zip(&self.histograms) {
            if histogram.is_some() {
                *value = ABSENT;
            }
        }
        self.histograms.clear();
    }

    /// Empties its columns.
    pub(crate) fn clear_steps(&mut self) {
        self.values.clear();
        self.histograms.clear();
    }

    /// Copies the steps of `from` into absent ones; false if both have something in some step.
    pub(crate) fn merge(&mut self, from: StepSeries) -> bool {
        if !self.has_histograms() && !from.has_histograms() {
            return merge_values(&mut self.values, &from.values);
        }
        for step in 0..from.values.len() {
            let Some(element) = from.element(step) else { continue };
            if !is_absent(self.values[step]) {
                return false;
            }
            match element {
                Element::Float(value) => self.set_float(step, value),
                Element::Histogram(histogram) => self.set_histogram(step, histogram.clone()),
            }
        }
        true
    }

    /// Whether no step has a value.
    pub(crate) fn is_void(&self) -> bool {
        self.values.iter().all(|&v| is_absent(v))
    }

    /// Bytes for budgets.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let columns = self.values.len() * size_of::<f64>() + size_of::<StepSeries>();
        (self.labels.heap_bytes() + columns) as u64 + self.histogram_bytes()
    }

    /// Bytes of the histograms for budgets, each counted as if it were not shared.
    fn histogram_bytes(&self) -> u64 {
        let bytes = |histogram: &Option<Arc<FloatHistogram>>| {
            let own = histogram.as_ref().map_or(0, |h| size_of::<FloatHistogram>() + h.heap_bytes());
            (own + size_of::<Option<Arc<FloatHistogram>>>()) as u64
        };
        self.histograms.iter().map(bytes).sum()
    }

    /// How many samples it counts for against the limit: a histogram for as many as take its memory.
    pub(crate) fn sample_count(&self) -> u64 {
        self.values.len() as u64 + self.histogram_bytes() / SAMPLE_BYTES
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
        hold.grow(series.sample_count(), series.heap_bytes())?;
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
    let mut index: HashTable<usize> = HashTable::with_capacity(all.len());
    let mut merged: Vec<StepSeries> = Vec::with_capacity(all.len());
    for series in all {
        let hash = series.labels.hash64();
        match index.find(hash, |&at| merged[at].labels == series.labels) {
            None => {
                index.insert_unique(hash, merged.len(), |&at| merged[at].labels.hash64());
                merged.push(series);
            }
            Some(&at) => {
                let target = &mut merged[at];
                target.drop_name |= series.drop_name;
                if !target.merge(series) {
                    return Err(EvalError::same_labels());
                }
            }
        }
    }
    Ok(merged)
}

/// Copies the values of `from` into absent steps of `into`; false if both have a value in some step.
fn merge_values(into: &mut [f64], from: &[f64]) -> bool {
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
        let histogram = out.histogram(0).cloned();
        out.clear_steps();
        out.values.resize(self.count, value);
        if histogram.is_some() {
            out.histograms.resize(self.count, histogram);
        }
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
