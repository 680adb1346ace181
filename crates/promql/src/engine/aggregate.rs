//! Aggregations: series are folded into the columns of their group as they come.
//! Holds: the inner vector is never held as a whole; only `quantile` keeps its values.
//! Not here: `topk` and its like (`aggregate::rank`), `count_values` (`aggregate::distinct`).

pub(crate) mod distinct;
pub(crate) mod rank;

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_model::{Labels, METRIC_NAME};

use super::annotation::note::{Note, Operation};
use super::annotation::order::Origin;
use super::histogram::fold::HistogramFold;
use super::rollup::moments::{self, Mean, Sum};
use super::run::{Hold, Run};
use super::series::{ABSENT, BoxOperator, SAMPLE_BYTES, SeriesOperator, StepScalar, StepSeries, is_absent};
use super::{EvalError, unwrap_parens};
use crate::ast::{Aggregate, AggregateOp, Span};

/// Which labels make a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grouping<'q> {
    labels: &'q [String],
    without: bool,
}

impl<'q> Grouping<'q> {
    /// As `by` or `without` says.
    pub(crate) fn new(aggregate: &'q Aggregate) -> Grouping<'q> {
        Grouping { labels: &aggregate.grouping, without: aggregate.without }
    }

    /// Whether all series are in one group.
    pub(crate) fn is_one(&self) -> bool {
        !self.without && self.labels.is_empty()
    }

    /// Labels of the group of a series.
    pub(crate) fn of(&self, labels: &Labels) -> Labels {
        if self.is_one() {
            return Labels::empty();
        }
        labels.filtered(|name| if self.without { !self.excludes(name) } else { self.names(name) })
    }

    /// Whether `without` takes this label away.
    pub(crate) fn excludes(&self, name: &str) -> bool {
        self.without && (self.names(name) || name == METRIC_NAME)
    }

    fn names(&self, name: &str) -> bool {
        self.labels.iter().any(|label| label == name)
    }
}

/// Columns of one group.
enum Columns {
    Sum(Sums),
    Mean(Vec<Mean>),
    /// Min, max, count, group: what `fold` makes of the value so far and the next one.
    Fold {
        values: Vec<f64>,
        first: fn(f64) -> f64,
        fold: fn(f64, f64) -> f64,
    },
    Spread(Vec<Spread>),
    All(Vec<Vec<f64>>),
}

/// Running mean and sum of squared distances (Welford).
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        if self.count == 1.0 {
            self.mean = value;
            self.squares = if value.is_finite() { 0.0 } else { f64::NAN };
            return;
        }
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }
}

impl Columns {
    fn new(op: AggregateOp, step_count: usize) -> Columns {
        let fold = |first: fn(f64) -> f64, fold: fn(f64, f64) -> f64| Columns::Fold {
            values: vec![ABSENT; step_count],
            first,
            fold,
        };
        match op {
            AggregateOp::Sum => Columns::Sum(Sums::new(step_count)),
            AggregateOp::Avg => Columns::Mean(vec![Mean::default(); step_count]),
            AggregateOp::Min => fold(|value| value, moments::lesser),
            AggregateOp::Max => fold(|value| value, moments::greater),
            AggregateOp::Count => fold(|_| 1.0, |count, _| count + 1.0),
            AggregateOp::Stddev | AggregateOp::Stdvar => Columns::Spread(vec![Spread::default(); step_count]),
            AggregateOp::Quantile => Columns::All(vec![Vec::new(); step_count]),
            _ => fold(|_| 1.0, |one, _| one),
        }
    }

    fn bytes_per_step(op: AggregateOp) -> usize {
        match op {
            AggregateOp::Sum => size_of::<Sum>(),
            AggregateOp::Avg => size_of::<Mean>(),
            AggregateOp::Stddev | AggregateOp::Stdvar => size_of::<Spread>(),
            AggregateOp::Quantile => size_of::<Vec<f64>>(),
            _ => size_of::<f64>(),
        }
    }

    /// Folds a series in.
    fn add(&mut self, values: &[f64]) {
        let present = |pair: &(usize, &f64)| !is_absent(*pair.1);
        match self {
            Columns::Sum(sums) => add_to_sums(&mut sums.values, &mut sums.rests, values),
            Columns::Mean(means) => {
                values.iter().enumerate().filter(present).for_each(|(step, &v)| means[step].add(v));
            }
            Columns::Fold { values: folded, first, fold } => {
                for (step, &value) in values.iter().enumerate().filter(present) {
                    let before = folded[step];
                    folded[step] = if is_absent(before) { first(value) } else { fold(before, value) };
                }
            }
            Columns::Spread(spreads) => {
                values.iter().enumerate().filter(present).for_each(|(step, &v)| spreads[step].add(v));
            }
            Columns::All(all) => {
                values.iter().enumerate().filter(present).for_each(|(step, &v)| all[step].push(v));
            }
        }
    }

    /// Whether a sum or mean has something in a step.
    fn has_float(&self, step: usize) -> bool {
        match self {
            Columns::Sum(sums) => !is_absent(sums.values[step]),
            Columns::Mean(means) => !means[step].is_empty(),
            _ => false,
        }
    }

    /// Appends the result of every step.
    fn finish(self, op: AggregateOp, param: &StepScalar, out: &mut Vec<f64>) {
        match self {
            Columns::Sum(sums) => {
                let total = |(value, rest): (f64, f64)| if is_absent(value) { ABSENT } else { value + rest };
                out.extend(sums.values.into_iter().zip(sums.rests).map(total));
            }
            Columns::Mean(means) => {
                out.extend(means.into_iter().map(|m| if m.is_empty() { ABSENT } else { m.value() }));
            }
            Columns::Fold { values, .. } => out.extend(values),
            Columns::Spread(spreads) => out.extend(spreads.into_iter().map(|s| match op {
                _ if s.count == 0.0 => ABSENT,
                AggregateOp::Stddev => (s.squares / s.count).sqrt(),
                _ => s.squares / s.count,
            })),
            Columns::All(all) => out.extend(all.into_iter().enumerate().map(|(step, mut values)| {
                if values.is_empty() {
                    return ABSENT;
                }
                moments::sort_nan_first(&mut values);
                moments::quantile(param.at(step), &values)
            })),
        }
    }
}

/// Running sums, one a step, each with what rounding took from it; [`ABSENT`] before the first value.
struct Sums {
    values: Vec<f64>,
    rests: Vec<f64>,
}

impl Sums {
    fn new(step_count: usize) -> Sums {
        Sums { values: vec![ABSENT; step_count], rests: vec![0.0; step_count] }
    }
}

/// Adds to each sum as [`Sum::plus`] does.
// PERF: columns and choices instead of branches, so that several steps are added an instruction:
//   cargo xtask bench rate-kernel
fn add_to_sums(sums: &mut [f64], rests: &mut [f64], values: &[f64]) {
    for ((sum, rest), &value) in sums.iter_mut().zip(rests).zip(values) {
        let before = Sum { value: *sum, rest: *rest };
        let after = before.plus(value);
        let (is_first, is_missing) = (is_absent(before.value), is_absent(value));
        let (new_sum, new_rest) = if is_first { (value, 0.0) } else { (after.value, after.rest) };
        *sum = if is_missing { before.value } else { new_sum };
        *rest = if is_missing { before.rest } else { new_rest };
    }
}

/// Groups in order of first appearance.
struct Groups {
    index: HashMap<Labels, usize>,
    groups: Vec<Group>,
}

struct Group {
    labels: Labels,
    drop_name: bool,
    columns: Columns,
    /// Sums or means of histograms: empty, or one a step.
    histograms: Vec<Option<Box<HistogramFold>>>,
}

/// One of the aggregations that yield one series a group.
pub(crate) struct Fold<'q> {
    run: &'q Run<'q>,
    inner: Option<BoxOperator<'q>>,
    op: AggregateOp,
    grouping: Grouping<'q>,
    /// The quantile.
    param: StepScalar,
    step_count: usize,
    /// The inner vector in the query, for what is to be said.
    origin: Origin,
    results: std::vec::IntoIter<Group>,
    hold: Hold<'q>,
}

impl<'q> Fold<'q> {
    /// `param` is the quantile, and ignored by the others; `speaker` is the whole aggregation.
    pub(crate) fn new(
        run: &'q Run<'q>,
        inner: BoxOperator<'q>,
        (aggregate, speaker): (&'q Aggregate, Span),
        param: StepScalar,
        step_count: usize,
    ) -> Fold<'q> {
        Fold {
            run,
            inner: Some(inner),
            op: aggregate.op,
            grouping: Grouping::new(aggregate),
            param,
            step_count,
            origin: Origin { span: unwrap_parens(&aggregate.expr).span, speaker },
            results: Vec::new().into_iter(),
            hold: run.hold(),
        }
    }

    fn fold(&mut self, mut inner: BoxOperator<'q>) -> Result<Vec<Group>, EvalError> {
        let mut all = Groups { index: HashMap::default(), groups: Vec::new() };
        let mut series = StepSeries::default();
        while inner.next(&mut series)? {
            self.run.ctx.check()?;
            let at = self.group_of(&series.labels, &mut all)?;
            let group = &mut all.groups[at];
            group.drop_name |= series.drop_name;
            if series.has_histograms() || !group.histograms.is_empty() {
                self.add_mixed(group, &mut series)?;
            }
            group.columns.add(&series.values);
            if self.op == AggregateOp::Quantile {
                self.hold
                    .grow(series.values.len() as u64, (series.values.len() * size_of::<f64>()) as u64)?;
            }
        }
        Ok(all.groups)
    }

    /// Adds the histograms of a series to a group, where the aggregation takes them; they are floats, or gone, then.
    fn add_mixed(&mut self, group: &mut Group, series: &mut StepSeries) -> Result<(), EvalError> {
        match self.op {
            AggregateOp::Count | AggregateOp::Group => return Ok(()),
            AggregateOp::Sum | AggregateOp::Avg => {}
            op => {
                if series.histograms.iter().zip(&series.values).any(|(h, v)| h.is_some() && !is_absent(*v)) {
                    self.run.annotations.note(Note::IgnoredInGroup(op.as_str()), self.origin);
                }
                series.drop_histograms();
                return Ok(());
            }
        }
        group.histograms.resize_with(self.step_count, || None);
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
            if self.op == AggregateOp::Sum {
                fold.add_to_sum(histogram)
            } else {
                fold.add_to_mean(histogram)
            }
            if could && fold.incompatible {
                let name = series.labels.metric_name().unwrap_or("");
                self.run.annotations.note(Note::MixedSchemas(name), self.origin);
            }
        }
        series.drop_histograms();
        self.hold.grow(bytes as u64 / SAMPLE_BYTES, bytes as u64)
    }

    /// Puts sums and means of histograms into their steps.
    fn finish_histograms(&self, folds: Vec<Option<Box<HistogramFold>>>, out: &mut StepSeries) {
        let say = |note: Note<'_>| self.run.annotations.note(note, self.origin);
        for (step, fold) in folds.into_iter().enumerate() {
            let Some(fold) = fold else { continue };
            if fold.reconciled {
                say(Note::Reconciled(Operation::Aggregation));
            }
            if !is_absent(out.values[step]) {
                say(Note::MixedGroup);
                out.values[step] = ABSENT;
                continue;
            }
            if fold.incompatible {
                continue;
            }
            if fold.hints_collide() {
                say(Note::Collision(Operation::Aggregation));
            }
            let mut result = if self.op == AggregateOp::Sum { fold.into_sum() } else { fold.into_mean() };
            result.compact(0);
            out.set_histogram(step, Arc::new(result));
        }
    }

    fn group_of(&mut self, labels: &Labels, all: &mut Groups) -> Result<usize, EvalError> {
        if self.grouping.is_one() && !all.groups.is_empty() {
            return Ok(0);
        }
        let labels = self.grouping.of(labels);
        if let Some(&at) = all.index.get(&labels) {
            return Ok(at);
        }
        let bytes = labels.heap_bytes() + self.step_count * Columns::bytes_per_step(self.op);
        self.hold.grow(self.step_count as u64, bytes as u64)?;
        all.index.insert(labels.clone(), all.groups.len());
        let columns = Columns::new(self.op, self.step_count);
        all.groups.push(Group { labels, drop_name: false, columns, histograms: Vec::new() });
        Ok(all.groups.len() - 1)
    }
}

impl SeriesOperator for Fold<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if let Some(inner) = self.inner.take() {
            self.results = self.fold(inner)?.into_iter();
        }
        while let Some(group) = self.results.next() {
            out.labels = group.labels;
            out.drop_name = group.drop_name;
            out.clear_steps();
            group.columns.finish(self.op, &self.param, &mut out.values);
            self.finish_histograms(group.histograms, out);
            // Histograms may have been ignored, or fit nothing.
            if !out.is_void() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
