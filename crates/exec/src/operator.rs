//! Operators pull series one by one from the operators below them.
//! Invariants: all series of an operator have the steps of its grid; a series that is returned has a value in
//! at least one step.

use chronolith_base::hash::HashTable;
use chronolith_model::query::TypedValues;

use crate::column::{ABSENT, StepSeries, TypedSteps};
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};
use crate::trace::NodeHandle;

/// Returns series one by one.
pub trait SeriesOperator {
    /// Replaces `out` by the next series; false at the end, and from then on.
    ///
    /// # Errors
    /// Errors of the operator and of the operators below.
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error>;
}

/// An operator that lives as long as its query.
pub type BoxOperator<'q> = Box<dyn SeriesOperator + 'q>;

/// Computes all series of a blocking operator; what it reserves stays reserved until the operator is dropped.
type Compute<'q> = Box<dyn FnOnce(&mut OperatorMemory<'q>) -> Result<Vec<StepSeries>, Error> + 'q>;

/// Blocking operator: computes all its series when the first one is pulled.
pub struct Blocking<'q> {
    compute: Option<Compute<'q>>,
    results: std::vec::IntoIter<StepSeries>,
    memory: OperatorMemory<'q>,
}

impl<'q> Blocking<'q> {
    /// An operator that returns the series of `compute`, in that order.
    pub fn boxed(
        execution: &'q Execution<'q>,
        compute: impl FnOnce(&mut OperatorMemory<'q>) -> Result<Vec<StepSeries>, Error> + 'q,
    ) -> BoxOperator<'q> {
        let memory = execution.operator_memory();
        Box::new(Blocking { compute: Some(Box::new(compute)), results: Vec::new().into_iter(), memory })
    }

    /// Joins series of `inner` with equal labels, as [`merge_equal_labels`].
    pub fn merge(execution: &'q Execution<'q>, mut inner: BoxOperator<'q>) -> BoxOperator<'q> {
        Blocking::boxed(execution, move |memory| merge_equal_labels(collect(&mut *inner, memory)?))
    }
}

impl SeriesOperator for Blocking<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if let Some(compute) = self.compute.take() {
            self.results = compute(&mut self.memory)?.into_iter();
        }
        let Some(series) = self.results.next() else { return Ok(false) };
        *out = series;
        Ok(true)
    }
}

/// Applies `map` to the series of `inner` and returns those for which it is true.
pub fn filter_map<'q>(
    inner: BoxOperator<'q>,
    map: impl FnMut(&mut StepSeries) -> bool + 'q,
) -> BoxOperator<'q> {
    Box::new(FilterMap { inner, map })
}

struct FilterMap<'q, F> {
    inner: BoxOperator<'q>,
    map: F,
}

impl<F: FnMut(&mut StepSeries) -> bool> SeriesOperator for FilterMap<'_, F> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        while self.inner.next(out)? {
            if (self.map)(out) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Collects all series of `inner`, counted in `memory`.
///
/// # Errors
/// Errors of `inner`, and limits.
pub fn collect(
    inner: &mut dyn SeriesOperator,
    memory: &mut OperatorMemory<'_>,
) -> Result<Vec<StepSeries>, Error> {
    let mut all = Vec::new();
    let mut series = StepSeries::default();
    while inner.next(&mut series)? {
        memory.grow(series.sample_count(), series.heap_bytes())?;
        all.push(std::mem::take(&mut series));
    }
    Ok(all)
}

/// Joins series with equal labels, in order of first appearance. The one with the earliest step decides
/// whether the name is removed, as in Prometheus.
///
/// # Errors
/// [`Error::SameLabels`] if two of them have a value in the same step.
pub fn merge_equal_labels(all: Vec<StepSeries>) -> Result<Vec<StepSeries>, Error> {
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
                if series.first_step() < target.first_step() {
                    target.drop_name = series.drop_name;
                }
                if !target.merge(series) {
                    return Err(Error::SameLabels);
                }
            }
        }
    }
    Ok(merged)
}

/// Repeats the single step of `inner` in all steps of a longer grid.
pub struct Repeat<'q> {
    inner: BoxOperator<'q>,
    step_count: usize,
}

impl<'q> Repeat<'q> {
    /// An operator over `inner`, whose grid has one step.
    #[must_use]
    pub fn new(inner: BoxOperator<'q>, step_count: usize) -> Repeat<'q> {
        Repeat { inner, step_count }
    }
}

impl SeriesOperator for Repeat<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        if !self.inner.next(out)? {
            return Ok(false);
        }
        let value = out.values.first().copied().unwrap_or(ABSENT);
        let histogram = out.histogram(0).cloned();
        if let Some(typed) = out.typed.take() {
            let mut values = TypedValues::new(typed.values.column_type());
            (0..self.step_count).for_each(|_| values.push_from(&typed.values, 0));
            out.set_typed(
                self.step_count,
                TypedSteps { steps: (0..self.step_count as u32).collect(), values },
            );
            return Ok(true);
        }
        out.clear_steps();
        out.values.resize(self.step_count, value);
        if histogram.is_some() {
            out.histograms.resize(self.step_count, histogram);
        }
        Ok(true)
    }
}

/// Counts time and series of an operator in a node of the trace.
pub struct Traced<'q> {
    inner: BoxOperator<'q>,
    node: NodeHandle<'q>,
}

impl<'q> Traced<'q> {
    /// `inner`, counted in `node`; `inner` itself if there is none.
    #[must_use]
    pub fn boxed(inner: BoxOperator<'q>, node: Option<NodeHandle<'q>>) -> BoxOperator<'q> {
        match node {
            None => inner,
            Some(node) => Box::new(Traced { inner, node }),
        }
    }
}

impl SeriesOperator for Traced<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        let any = self.node.run(|| self.inner.next(out))?;
        if any {
            self.node.count_yielded();
        }
        Ok(any)
    }
}
