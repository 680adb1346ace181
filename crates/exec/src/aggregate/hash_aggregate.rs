//! Hash aggregate: folds series into a table of groups and returns one series per group.
//! Invariants: groups are in order of first appearance; a series of a known group costs no allocation.
//! Not here: the arithmetic of a group (`aggregate`).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use chronolith_model::Labels;

use super::{Aggregation, Columns};
use crate::column::{ABSENT, SAMPLE_BYTES, StepScalar, StepSeries, is_absent};
use crate::error::Error;
use crate::execution::{Execution, OperatorMemory};
use crate::grouping::Grouping;
use crate::histogram::fold::HistogramFold;
use crate::label_sets::{Entry, LabelSets};
use crate::note::{Note, Operation};
use crate::operator::{BoxOperator, SeriesOperator};
use crate::position::Origin;
use crate::share::{SharedPart, SharedUse};

/// One group; its labels are the set of the same number.
struct Group {
    drop_name: bool,
    columns: Columns,
    /// Sums or means of histograms: empty, or one per step.
    histograms: Vec<Option<Box<HistogramFold>>>,
}

/// Input of an aggregation.
pub enum AggregateInput<'q> {
    /// Series that are computed for it.
    Alone(BoxOperator<'q>),
    /// Series that others use, too.
    Shared(SharedUse<'q>),
}

/// Progress of an aggregation.
enum Stage<'q> {
    Alone(BoxOperator<'q>),
    Shared { part: Rc<SharedPart<'q>>, sink: usize },
    Folded,
}

/// Table of groups, and the columns folded so far.
struct GroupTable<'q> {
    execution: &'q Execution<'q>,
    op: Aggregation,
    grouping: Grouping<'q>,
    step_count: usize,
    /// Origin of notes: the inner vector.
    origin: Origin,
    sets: LabelSets,
    groups: Vec<Group>,
    /// Some series had histograms.
    has_histograms: bool,
    memory: OperatorMemory<'q>,
}

/// An aggregation that returns one series per group.
pub struct HashAggregate<'q> {
    table: Rc<RefCell<GroupTable<'q>>>,
    stage: Stage<'q>,
    param: StepScalar,
    results: std::iter::Enumerate<std::vec::IntoIter<Group>>,
}

impl<'q> HashAggregate<'q> {
    /// `param` is the quantile; other aggregations ignore it.
    #[must_use]
    pub fn new(
        execution: &'q Execution<'q>,
        input: AggregateInput<'q>,
        op: Aggregation,
        grouping: Grouping<'q>,
        param: StepScalar,
        step_count: usize,
        origin: Origin,
    ) -> HashAggregate<'q> {
        let table = Rc::new(RefCell::new(GroupTable {
            execution,
            op,
            grouping,
            step_count,
            origin,
            sets: LabelSets::default(),
            groups: Vec::new(),
            has_histograms: false,
            memory: execution.operator_memory(),
        }));
        let stage = match input {
            AggregateInput::Alone(inner) => Stage::Alone(inner),
            AggregateInput::Shared(shared) => {
                let table = table.clone();
                let part = shared.part.clone();
                let sink = shared.add_sink(Box::new(move |series| table.borrow_mut().take(series)));
                Stage::Shared { part, sink }
            }
        };
        HashAggregate { table, stage, param, results: Vec::new().into_iter().enumerate() }
    }

    /// Folds all series; returns false if that has been done.
    fn fold(&mut self) -> Result<bool, Error> {
        match std::mem::replace(&mut self.stage, Stage::Folded) {
            Stage::Folded => return Ok(false),
            Stage::Alone(mut inner) => {
                let mut series = StepSeries::default();
                while inner.next(&mut series)? {
                    self.table.borrow_mut().add(&mut series)?;
                }
            }
            Stage::Shared { part, sink } => part.fill(sink)?,
        }
        let mut table = self.table.borrow_mut();
        self.results = std::mem::take(&mut table.groups).into_iter().enumerate();
        Ok(true)
    }
}

impl GroupTable<'_> {
    /// Folds a series in that others read, too.
    fn take(&mut self, series: &StepSeries) -> Result<(), Error> {
        // With histograms, `add` drops values of the series that do not fit; other readers need them, so it
        // gets a copy.
        if series.has_histograms() || self.has_histograms {
            return self.add(&mut series.clone());
        }
        self.add_floats(series)
    }

    /// Folds a series in; values that do not fit are dropped.
    fn add(&mut self, series: &mut StepSeries) -> Result<(), Error> {
        if !series.has_histograms() && !self.has_histograms {
            return self.add_floats(series);
        }
        self.has_histograms = true;
        let at = self.group_of(&series.labels)?;
        let Some(group) = self.groups.get_mut(at) else { return Ok(()) };
        let bytes = add_mixed(self.execution, self.op, self.origin, self.step_count, group, series);
        self.memory.grow(bytes / SAMPLE_BYTES, bytes)?;
        self.add_floats(series)
    }

    fn add_floats(&mut self, series: &StepSeries) -> Result<(), Error> {
        let at = self.group_of(&series.labels)?;
        let Some(group) = self.groups.get_mut(at) else { return Ok(()) };
        group.drop_name |= series.drop_name;
        group.columns.add(&series.values);
        if self.op == Aggregation::Quantile {
            self.memory.grow(series.values.len() as u64, (series.values.len() * size_of::<f64>()) as u64)?;
        }
        Ok(())
    }

    fn group_of(&mut self, labels: &Labels) -> Result<usize, Error> {
        if self.grouping.is_one() && !self.groups.is_empty() {
            return Ok(0);
        }
        let number = match self.sets.number(|key| self.grouping.key_of(labels, key)) {
            Entry::Old(number) => return Ok(number),
            Entry::New(number) => number,
        };
        let bytes =
            self.sets.labels(number).heap_bytes() + self.step_count * Columns::bytes_per_step(self.op);
        self.memory.grow(0, bytes as u64)?;
        let columns = Columns::new(self.op, self.step_count);
        self.groups.push(Group { drop_name: false, columns, histograms: Vec::new() });
        Ok(number)
    }

    /// Puts sums and means of histograms into their steps.
    fn finish_histograms(&self, folds: Vec<Option<Box<HistogramFold>>>, out: &mut StepSeries) {
        let add = |note: Note| self.execution.annotations.add(note, self.origin);
        for (step, fold) in folds.into_iter().enumerate() {
            let Some(fold) = fold else { continue };
            if fold.reconciled {
                add(Note::Reconciled(Operation::Aggregation));
            }
            if !is_absent(out.values[step]) {
                add(Note::MixedGroup);
                out.values[step] = ABSENT;
                continue;
            }
            if fold.incompatible {
                continue;
            }
            if fold.hints_collide() {
                add(Note::Collision(Operation::Aggregation));
            }
            let mut result = if self.op == Aggregation::Sum { fold.into_sum() } else { fold.into_mean() };
            result.compact(0);
            out.set_histogram(step, Arc::new(result));
        }
    }
}

/// Adds the histograms of a series to a group, or drops them if the aggregation ignores histograms, so that
/// only floats are left. Returns the bytes that the group grew by.
fn add_mixed(
    execution: &Execution<'_>,
    aggregate: Aggregation,
    origin: Origin,
    step_count: usize,
    group: &mut Group,
    series: &mut StepSeries,
) -> u64 {
    match aggregate {
        Aggregation::Count | Aggregation::Group => return 0,
        Aggregation::Sum | Aggregation::Avg => {}
        op => {
            if series.histograms.iter().zip(&series.values).any(|(h, v)| h.is_some() && !is_absent(*v)) {
                execution.annotations.add(Note::IgnoredInGroup(op.name()), origin);
            }
            series.drop_histograms();
            return 0;
        }
    }
    if !series.has_histograms() && group.histograms.is_empty() {
        return 0;
    }
    group.histograms.resize_with(step_count, || None);
    let mut bytes = 0;
    for (step, fold) in group.histograms.iter_mut().enumerate() {
        let Some(histogram) = series.histogram(step) else {
            // After histograms that do not fit each other nothing counts.
            if fold.as_ref().is_some_and(|fold| fold.incompatible) {
                series.values[step] = ABSENT;
            }
            continue;
        };
        let Some(fold) = fold else {
            let floats_first = group.columns.has_float(step);
            let new = if floats_first { HistogramFold::inert() } else { HistogramFold::new(histogram) };
            bytes += new.heap_bytes();
            *fold = Some(Box::new(new));
            continue;
        };
        let could = !fold.incompatible;
        if aggregate == Aggregation::Sum {
            fold.add_to_sum(histogram)
        } else {
            fold.add_to_mean(histogram)
        }
        if could && fold.incompatible {
            let name = series.labels.metric_name().unwrap_or("");
            execution.annotations.add(Note::MixedSchemas(name.into()), origin);
        }
    }
    series.drop_histograms();
    bytes as u64
}

impl SeriesOperator for HashAggregate<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, Error> {
        self.fold()?;
        let table = self.table.borrow();
        for (number, group) in self.results.by_ref() {
            out.labels = table.sets.labels(number).clone();
            out.drop_name = group.drop_name;
            out.clear_steps();
            group.columns.finish(table.op, &self.param, &mut out.values);
            table.finish_histograms(group.histograms, out);
            // Histograms may have been ignored, or fit nothing.
            if !out.is_void() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
