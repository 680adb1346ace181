//! Aggregations: series are folded into the columns of their group as they come.
//! Holds: the inner vector is never held as a whole; only `quantile` keeps its values.
//! Not here: `topk` and its like (`aggregate::rank`), `count_values` (`aggregate::distinct`).

pub(crate) mod distinct;
pub(crate) mod rank;

use chronolith_base::hash::HashMap;
use chronolith_model::{Labels, METRIC_NAME};

use super::EvalError;
use super::rollup::moments::{self, Mean, Sum};
use super::run::{Hold, Run};
use super::series::{ABSENT, BoxOperator, SeriesOperator, StepScalar, StepSeries, is_absent};
use crate::ast::{Aggregate, AggregateOp};

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

    /// Labels of the group of a series.
    pub(crate) fn of(&self, labels: &Labels) -> Labels {
        if !self.without && self.labels.is_empty() {
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
    Sum(Vec<Sum>),
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
            AggregateOp::Sum => Columns::Sum(vec![Sum { value: ABSENT, rest: 0.0 }; step_count]),
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
            Columns::Sum(sums) => add_to_sums(sums, values),
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

    /// Appends the result of every step.
    fn finish(self, op: AggregateOp, param: &StepScalar, out: &mut Vec<f64>) {
        match self {
            Columns::Sum(sums) => {
                out.extend(
                    sums.into_iter().map(|s| if is_absent(s.value) { ABSENT } else { s.value + s.rest }),
                );
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

fn add_to_sums(sums: &mut [Sum], values: &[f64]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        if is_absent(value) {
            continue;
        }
        *sum = if is_absent(sum.value) { Sum { value, rest: 0.0 } } else { sum.plus(value) };
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
    results: std::vec::IntoIter<Group>,
    hold: Hold<'q>,
}

impl<'q> Fold<'q> {
    /// `param` is the quantile, and ignored by the others.
    pub(crate) fn new(
        run: &'q Run<'q>,
        inner: BoxOperator<'q>,
        aggregate: &'q Aggregate,
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
            group.columns.add(&series.values);
            if self.op == AggregateOp::Quantile {
                self.hold
                    .grow(series.values.len() as u64, (series.values.len() * size_of::<f64>()) as u64)?;
            }
        }
        Ok(all.groups)
    }

    fn group_of(&mut self, labels: &Labels, all: &mut Groups) -> Result<usize, EvalError> {
        let labels = self.grouping.of(labels);
        if let Some(&at) = all.index.get(&labels) {
            return Ok(at);
        }
        let bytes = labels.heap_bytes() + self.step_count * Columns::bytes_per_step(self.op);
        self.hold.grow(self.step_count as u64, bytes as u64)?;
        all.index.insert(labels.clone(), all.groups.len());
        let columns = Columns::new(self.op, self.step_count);
        all.groups.push(Group { labels, drop_name: false, columns });
        Ok(all.groups.len() - 1)
    }
}

impl SeriesOperator for Fold<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if let Some(inner) = self.inner.take() {
            self.results = self.fold(inner)?.into_iter();
        }
        let Some(group) = self.results.next() else { return Ok(false) };
        out.labels = group.labels;
        out.drop_name = group.drop_name;
        out.values.clear();
        group.columns.finish(self.op, &self.param, &mut out.values);
        Ok(true)
    }
}
