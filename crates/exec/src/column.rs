//! Columns: one series with a value per step of a grid, and scalars per step.
//! Invariants: a column has as many values as the grid has steps; a step without a value holds [`ABSENT`].
//! Native histograms are in a second column, which is empty for series of floats. A step is a histogram if
//! its value is not [`ABSENT`] and the second column has one, so presence is decided by the values alone.
//! Not here: samples with their own timestamps (`samples`).

use std::sync::Arc;

use chronolith_model::query::TypedValues;
use chronolith_model::sample::{STALE_NAN, is_stale};
use chronolith_model::{FloatHistogram, Labels};

/// "No value at this step": the staleness marker, which no selector returns as a value.
pub const ABSENT: f64 = STALE_NAN;

/// Bytes of a float sample; histograms count as several against the limit of samples.
pub const SAMPLE_BYTES: u64 = 16;

/// Returns true if a step has no value.
pub fn is_absent(value: f64) -> bool {
    is_stale(value)
}

/// Value of a step that is a histogram, or of a type other than floats.
pub const HISTOGRAM: f64 = f64::NAN;
const _: () = assert!(HISTOGRAM.to_bits() != STALE_NAN.to_bits());

/// A value of a step.
#[derive(Debug, Clone, Copy)]
pub enum Element<'a> {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(&'a Arc<FloatHistogram>),
}

/// One series with all its steps.
#[derive(Debug, Clone)]
pub struct StepSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// The metric name is to be dropped at the end of the query (delayed name removal).
    pub drop_name: bool,
    /// One value per step; [`HISTOGRAM`] if the step is a histogram.
    pub values: Vec<f64>,
    /// Empty, or one per step. Counts only if the value is not [`ABSENT`].
    pub histograms: Vec<Option<Arc<FloatHistogram>>>,
    /// Steps of a series of another type than floats: then `values` has only their presence.
    pub typed: Option<Box<TypedSteps>>,
}

/// Steps of another type than floats, those that are present.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedSteps {
    /// Numbers of the steps, ascending.
    pub steps: Vec<u32>,
    /// One per step that is present.
    pub values: TypedValues,
}

impl Default for StepSeries {
    fn default() -> Self {
        StepSeries::floats(Labels::empty(), Vec::new())
    }
}

impl StepSeries {
    /// A series without histograms, whose name stays.
    pub fn floats(labels: Labels, values: Vec<f64>) -> StepSeries {
        StepSeries { labels, drop_name: false, values, histograms: Vec::new(), typed: None }
    }

    /// Returns true if some step may be a histogram.
    pub fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// Element of a step; `None` if it is absent.
    pub fn element(&self, step: usize) -> Option<Element<'_>> {
        let value = self.values.get(step).copied().filter(|&value| !is_absent(value))?;
        Some(match self.histograms.get(step) {
            Some(Some(histogram)) => Element::Histogram(histogram),
            _ => Element::Float(value),
        })
    }

    /// The histogram of a step, if it is one.
    pub fn histogram(&self, step: usize) -> Option<&Arc<FloatHistogram>> {
        match self.element(step) {
            Some(Element::Histogram(histogram)) => Some(histogram),
            _ => None,
        }
    }

    /// Makes a step a number.
    pub fn set_float(&mut self, step: usize, value: f64) {
        self.values[step] = value;
        if let Some(histogram) = self.histograms.get_mut(step) {
            *histogram = None;
        }
    }

    /// Makes a step a histogram.
    pub fn set_histogram(&mut self, step: usize, histogram: Arc<FloatHistogram>) {
        if self.histograms.is_empty() {
            self.histograms.resize(self.values.len(), None);
        }
        self.values[step] = HISTOGRAM;
        self.histograms[step] = Some(histogram);
    }

    /// Takes all histograms away: for functions of numbers.
    pub fn drop_histograms(&mut self) {
        for (value, histogram) in self.values.iter_mut().zip(&self.histograms) {
            if histogram.is_some() {
                *value = ABSENT;
            }
        }
        self.histograms.clear();
    }

    /// Empties its columns.
    pub fn clear_steps(&mut self) {
        self.values.clear();
        self.histograms.clear();
        self.typed = None;
    }

    /// Replaces its columns by steps of a type; floats among them become its values.
    pub fn set_typed(&mut self, step_count: usize, typed: TypedSteps) {
        self.clear_steps();
        self.values.resize(step_count, ABSENT);
        let present = typed.steps.iter().map(|step| *step as usize);
        match &typed.values {
            TypedValues::Floats(values) => {
                present.zip(values).for_each(|(step, value)| self.values[step] = *value);
            }
            _ => {
                present.for_each(|step| self.values[step] = HISTOGRAM);
                self.typed = Some(Box::new(typed));
            }
        }
    }

    /// Copies the steps of `from` into absent ones; returns false if both have a value in some step.
    pub fn merge(&mut self, from: StepSeries) -> bool {
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

    /// Returns true if no step has a value.
    pub fn is_void(&self) -> bool {
        self.values.iter().all(|&v| is_absent(v))
    }

    /// Returns the first step with a value; the number of steps if there is none.
    pub fn first_step(&self) -> usize {
        self.values.iter().position(|&v| !is_absent(v)).unwrap_or(self.values.len())
    }

    /// Bytes for budgets.
    pub fn heap_bytes(&self) -> u64 {
        let columns = self.values.len() * size_of::<f64>() + size_of::<StepSeries>();
        let typed = self.typed.as_ref().map_or(0, |typed| 4 * typed.steps.len() + typed.values.heap_bytes());
        (self.labels.heap_bytes() + columns + typed) as u64 + self.histogram_bytes()
    }

    /// Bytes of the histograms for budgets, each counted as if it were not shared.
    fn histogram_bytes(&self) -> u64 {
        let bytes = |histogram: &Option<Arc<FloatHistogram>>| {
            let own = histogram.as_ref().map_or(0, |h| size_of::<FloatHistogram>() + h.heap_bytes());
            (own + size_of::<Option<Arc<FloatHistogram>>>()) as u64
        };
        self.histograms.iter().map(bytes).sum()
    }

    /// Samples counted against the limit: a histogram counts as many as take its memory.
    pub fn sample_count(&self) -> u64 {
        // Steps without a value are none: a subquery may have many of them.
        let present = self.values.iter().filter(|value| !is_absent(**value)).count();
        present as u64 + self.histogram_bytes() / SAMPLE_BYTES
    }
}

/// A scalar for every step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepScalar {
    /// The same in all steps.
    Constant(f64),
    /// One per step.
    PerStep(Vec<f64>),
}

impl StepScalar {
    /// Value of the scalar in `step`.
    pub fn at(&self, step: usize) -> f64 {
        match self {
            StepScalar::Constant(value) => *value,
            StepScalar::PerStep(values) => values[step],
        }
    }

    /// The values in order of steps, one if all are the same.
    pub fn values(&self) -> &[f64] {
        match self {
            StepScalar::Constant(value) => std::slice::from_ref(value),
            StepScalar::PerStep(values) => values,
        }
    }

    /// Applies `f` to every value.
    pub fn map(self, f: impl Fn(f64) -> f64) -> StepScalar {
        match self {
            StepScalar::Constant(value) => StepScalar::Constant(f(value)),
            StepScalar::PerStep(mut values) => {
                values.iter_mut().for_each(|v| *v = f(*v));
                StepScalar::PerStep(values)
            }
        }
    }

    /// Applies `f` to both, step by step.
    pub fn combine(self, other: StepScalar, f: impl Fn(f64, f64) -> f64) -> StepScalar {
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

/// Copies the values of `from` into absent steps of `into`; returns false if both have a value in some step.
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
