//! Aggregations that fold series into the columns of their group.
//! Invariants: the input is never collected; only `quantile` keeps its values.
//! Not here: the table of groups (`hash_aggregate`), `topk` and its like (`topk`).

pub mod hash_aggregate;
pub mod topk;

use crate::column::{ABSENT, StepScalar, is_absent};
use crate::rollup::moments::{self, Mean, Sum};

/// Aggregations that return one series per group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregation {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    /// 1 for each group.
    Group,
    Stddev,
    Stdvar,
    Quantile,
}

impl Aggregation {
    /// Name of the aggregation in notes and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Aggregation::Sum => "sum",
            Aggregation::Avg => "avg",
            Aggregation::Min => "min",
            Aggregation::Max => "max",
            Aggregation::Count => "count",
            Aggregation::Group => "group",
            Aggregation::Stddev => "stddev",
            Aggregation::Stdvar => "stdvar",
            Aggregation::Quantile => "quantile",
        }
    }
}

/// Columns of one group.
enum Columns {
    Sum(Sums),
    Mean(Vec<Mean>),
    Fold { values: Vec<f64>, fold: Fold },
    Spread(Vec<Spread>),
    All(Vec<Vec<f64>>),
}

/// Makes one value of the value of a step so far and the next one.
#[derive(Debug, Clone, Copy)]
enum Fold {
    Min,
    Max,
    Count,
    Group,
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
    fn new(op: Aggregation, step_count: usize) -> Columns {
        let fold = |fold: Fold| Columns::Fold { values: vec![ABSENT; step_count], fold };
        match op {
            Aggregation::Sum => Columns::Sum(Sums::new(step_count)),
            Aggregation::Avg => Columns::Mean(vec![Mean::default(); step_count]),
            Aggregation::Min => fold(Fold::Min),
            Aggregation::Max => fold(Fold::Max),
            Aggregation::Count => fold(Fold::Count),
            Aggregation::Stddev | Aggregation::Stdvar => Columns::Spread(vec![Spread::default(); step_count]),
            Aggregation::Quantile => Columns::All(vec![Vec::new(); step_count]),
            Aggregation::Group => fold(Fold::Group),
        }
    }

    fn bytes_per_step(op: Aggregation) -> usize {
        match op {
            Aggregation::Sum => size_of::<Sum>(),
            Aggregation::Avg => size_of::<Mean>(),
            Aggregation::Stddev | Aggregation::Stdvar => size_of::<Spread>(),
            Aggregation::Quantile => size_of::<Vec<f64>>(),
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
            Columns::Fold { values: folded, fold } => match fold {
                Fold::Min => fold_into(folded, values, |value| value, moments::lesser),
                Fold::Max => fold_into(folded, values, |value| value, moments::greater),
                Fold::Count => fold_into(folded, values, |_| 1.0, |count, _| count + 1.0),
                Fold::Group => fold_into(folded, values, |_| 1.0, |one, _| one),
            },
            Columns::Spread(spreads) => {
                values.iter().enumerate().filter(present).for_each(|(step, &v)| spreads[step].add(v));
            }
            Columns::All(all) => {
                values.iter().enumerate().filter(present).for_each(|(step, &v)| all[step].push(v));
            }
        }
    }

    /// Returns true if a sum or mean has a value in a step.
    fn has_float(&self, step: usize) -> bool {
        match self {
            Columns::Sum(sums) => !is_absent(sums.values[step]),
            Columns::Mean(means) => !means[step].is_empty(),
            _ => false,
        }
    }

    /// Appends the result of every step.
    fn finish(self, op: Aggregation, param: &StepScalar, out: &mut Vec<f64>) {
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
                Aggregation::Stddev => (s.squares / s.count).sqrt(),
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

/// Running sums, one per step, each with its rounding error; [`ABSENT`] before the first value.
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
        let is_first = is_absent(before.value);
        let is_missing = is_absent(value);
        let (new_sum, new_rest) = if is_first { (value, 0.0) } else { (after.value, after.rest) };
        *sum = if is_missing { before.value } else { new_sum };
        *rest = if is_missing { before.rest } else { new_rest };
    }
}

/// Folds each value that is present into the value of its step.
// PERF: a copy for each pair of functions, with choices instead of branches, so that several steps are folded
// by an instruction: 1.7 -> 1.0 ns per value of `max`, 78 steps (a loop of both alone, minimum of 200 runs).
//   cargo xtask bench queries --head --shapes max_over_time
fn fold_into(folded: &mut [f64], values: &[f64], first: impl Fn(f64) -> f64, fold: impl Fn(f64, f64) -> f64) {
    for (folded, &value) in folded.iter_mut().zip(values) {
        let before = *folded;
        let after = if is_absent(before) { first(value) } else { fold(before, value) };
        *folded = if is_absent(value) { before } else { after };
    }
}

#[cfg(test)]
mod tests;
