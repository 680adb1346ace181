//! Operators between a vector and a scalar, and between two vectors.
//! Holds: vectors meet step by step: a match in one step says nothing about another.
//! Not here: the operators on two numbers (`arith`), matching of labels (`binary::matching`), `and or unless`
//! (`binary::set`).

pub(crate) mod matching;
pub(crate) mod set;

use chronolith_base::hash::HashMap;
use chronolith_model::Labels;

use super::EvalError;
use super::arith::ElementOp;
use super::run::{Hold, Run};
use super::series::{
    ABSENT, BoxOperator, SeriesOperator, StepScalar, StepSeries, collect, is_absent, merge_equal_labels,
};
use crate::ast::{MatchCardinality, VectorMatching};
use matching::{Signatures, braced, result_labels};

/// Which side of an operator the scalar stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarSide {
    /// `2 - x`
    Left,
    /// `x - 2`
    Right,
}

/// A vector and a scalar.
pub(crate) struct VectorScalar<'q> {
    pub(crate) run: &'q Run<'q>,
    pub(crate) inner: BoxOperator<'q>,
    pub(crate) scalar: StepScalar,
    pub(crate) side: ScalarSide,
    pub(crate) op: ElementOp,
}

impl SeriesOperator for VectorScalar<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        while self.inner.next(out)? {
            let mut any = false;
            for (step, value) in out.values.iter_mut().enumerate() {
                if is_absent(*value) {
                    continue;
                }
                let scalar = self.scalar.at(step);
                let result = match self.side {
                    ScalarSide::Left => self.op.apply(scalar, *value),
                    ScalarSide::Right => self.op.apply(*value, scalar),
                };
                any |= result.is_some();
                *value = result.unwrap_or(ABSENT);
            }
            if any {
                if self.op.drops_name() {
                    self.run.drop_name(out);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Two vectors, arithmetic or comparison.
pub(crate) struct VectorVector<'q> {
    run: &'q Run<'q>,
    sides: Option<(BoxOperator<'q>, BoxOperator<'q>)>,
    matching: &'q VectorMatching,
    op: ElementOp,
    results: std::vec::IntoIter<StepSeries>,
    hold: Hold<'q>,
}

impl<'q> VectorVector<'q> {
    /// Both sides on the same grid.
    pub(crate) fn new(
        run: &'q Run<'q>,
        left: BoxOperator<'q>,
        right: BoxOperator<'q>,
        matching: &'q VectorMatching,
        op: ElementOp,
    ) -> VectorVector<'q> {
        let (sides, results) = (Some((left, right)), Vec::new().into_iter());
        VectorVector { run, sides, matching, op, results, hold: run.hold() }
    }
}

impl SeriesOperator for VectorVector<'_> {
    fn next(&mut self, out: &mut StepSeries) -> Result<bool, EvalError> {
        if let Some((left, right)) = self.sides.take() {
            self.results = self.join(left, right)?.into_iter();
        }
        let Some(series) = self.results.next() else { return Ok(false) };
        *out = series;
        Ok(true)
    }
}

impl VectorVector<'_> {
    fn join(
        &mut self,
        mut left: BoxOperator<'_>,
        mut right: BoxOperator<'_>,
    ) -> Result<Vec<StepSeries>, EvalError> {
        let swapped = self.matching.card == MatchCardinality::OneToMany;
        let left = collect(&mut *left, &mut self.hold)?;
        let right = collect(&mut *right, &mut self.hold)?;
        let (many, one) = if swapped { (right, left) } else { (left, right) };
        let join = Join::new(self.run, self.matching, self.op, &many, one)?;
        let results = join.run(&many)?;
        for series in &results {
            self.hold.grow(series.values.len() as u64, series.heap_bytes())?;
        }
        merge_equal_labels(results)
    }
}

/// The join of the "many" side (left unless `group_right`) with the "one" side.
struct Join<'j> {
    run: &'j Run<'j>,
    matching: &'j VectorMatching,
    op: ElementOp,
    /// Series of the "one" side by signature.
    groups: HashMap<Labels, Vec<StepSeries>>,
    signatures: Signatures<'j>,
    step_count: usize,
}

/// What has been matched of a signature.
#[derive(Default)]
struct Matched {
    /// In these steps.
    steps: Vec<bool>,
    /// And, where one series of the "one" side serves many, by labels of the result.
    by_labels: HashMap<Labels, Vec<bool>>,
}

impl<'j> Join<'j> {
    fn new(
        run: &'j Run<'j>,
        matching: &'j VectorMatching,
        op: ElementOp,
        many: &[StepSeries],
        one: Vec<StepSeries>,
    ) -> Result<Join<'j>, EvalError> {
        let signatures = Signatures::new(matching);
        let step_count = many.first().or(one.first()).map_or(0, |series| series.values.len());
        let mut groups: HashMap<Labels, Vec<StepSeries>> = HashMap::default();
        for series in one {
            groups.entry(signatures.of(&series.labels)).or_default().push(series);
        }
        let join = Join { run, matching, op, groups, signatures, step_count };
        join.check_one_side(many)?;
        Ok(join)
    }

    fn is_swapped(&self) -> bool {
        self.matching.card == MatchCardinality::OneToMany
    }

    /// Two series of the "one" side must not meet in a step in which the other side has anything.
    fn check_one_side(&self, many: &[StepSeries]) -> Result<(), EvalError> {
        for (signature, group) in self.groups.iter().filter(|(_, group)| group.len() > 1) {
            for step in 0..self.step_count {
                let mut present = group.iter().filter(|series| !is_absent(series.values[step]));
                let (Some(first), Some(second)) = (present.next(), present.next()) else { continue };
                if many.iter().any(|series| !is_absent(series.values[step])) {
                    return Err(self.duplicate(signature, first, second));
                }
            }
        }
        Ok(())
    }

    fn duplicate(&self, signature: &Labels, first: &StepSeries, second: &StepSeries) -> EvalError {
        let side = if self.is_swapped() { "left" } else { "right" };
        EvalError::Execution(format!(
            "found duplicate series for the match group {} on the {side} hand-side of the operation: [{}, {}];\
             many-to-many matching not allowed: matching labels must be unique on one side",
            braced(signature),
            braced(&second.labels),
            braced(&first.labels)
        ))
    }

    fn run(&self, many: &[StepSeries]) -> Result<Vec<StepSeries>, EvalError> {
        let mut results: Vec<StepSeries> = Vec::new();
        let mut by_signature: HashMap<Labels, Matched> = HashMap::default();
        let (one_fill, many_fill) = if self.is_swapped() {
            (self.matching.fill_left, self.matching.fill_right)
        } else {
            (self.matching.fill_right, self.matching.fill_left)
        };
        for left in many {
            self.run.ctx.check()?;
            let signature = self.signatures.of(&left.labels);
            let group = self.groups.get(&signature).map_or(&[][..], Vec::as_slice);
            let matched = by_signature.entry(signature.clone()).or_default();
            for right in group {
                let pairs = |step: usize| (left.values[step], right.values[step]);
                results.extend(self.pair(left, &right.labels, pairs, matched)?);
            }
            if let Some(fill) = one_fill {
                let lonely = |step: usize| group.iter().all(|right| is_absent(right.values[step]));
                let pairs = |step: usize| (left.values[step], if lonely(step) { fill } else { ABSENT });
                results.extend(self.pair(left, &signature, pairs, matched)?);
            }
        }
        let Some(fill) = many_fill else { return Ok(results) };
        for (signature, group) in &self.groups {
            let matched = by_signature.entry(signature.clone()).or_default();
            let taken = matched.steps.clone();
            let free = |step: usize| !taken.get(step).copied().unwrap_or(false);
            let left = StepSeries { labels: signature.clone(), ..StepSeries::default() };
            for right in group {
                let pairs = |step: usize| (if free(step) { fill } else { ABSENT }, right.values[step]);
                results.extend(self.pair(&left, &right.labels, pairs, matched)?);
            }
        }
        Ok(results)
    }

    /// Computes all steps of a pair of series; `None` if no step has a result. `pairs` gives the values of a
    /// step, that of the "many" side first.
    fn pair(
        &self,
        many: &StepSeries,
        one_labels: &Labels,
        pairs: impl Fn(usize) -> (f64, f64),
        matched: &mut Matched,
    ) -> Result<Option<StepSeries>, EvalError> {
        let labels = result_labels(&many.labels, one_labels, self.op, self.matching);
        matched.steps.resize(self.step_count, false);
        let one_to_one = self.matching.card == MatchCardinality::OneToOne;
        let mut by_labels = (!one_to_one)
            .then(|| matched.by_labels.entry(labels.clone()).or_insert_with(|| vec![false; self.step_count]));
        let (mut values, mut any) = (vec![ABSENT; self.step_count], false);
        for (step, value) in values.iter_mut().enumerate() {
            let (of_many, of_one) = pairs(step);
            if is_absent(of_many) || is_absent(of_one) {
                continue;
            }
            let taken = std::mem::replace(&mut matched.steps[step], true);
            let taken = by_labels.as_mut().map_or(taken, |steps| std::mem::replace(&mut steps[step], true));
            if taken {
                return Err(EvalError::Execution(conflict(self.matching.card).to_owned()));
            }
            let (left, right) = if self.is_swapped() { (of_one, of_many) } else { (of_many, of_one) };
            if let Some(result) = self.op.apply(left, right) {
                *value = result;
                any = true;
            }
        }
        let mut series = StepSeries { labels, drop_name: many.drop_name, values };
        if matches!(self.op, ElementOp::Truth(_)) {
            self.run.drop_name(&mut series);
        }
        Ok(any.then_some(series))
    }
}

fn conflict(card: MatchCardinality) -> &'static str {
    match card {
        MatchCardinality::OneToOne => {
            "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
        }
        _ => "multiple matches for labels: grouping labels must ensure unique matches",
    }
}
