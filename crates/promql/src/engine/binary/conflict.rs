//! Which error a join ends with, where elements meet that must not.
//! Holds: the first one in the order of steps, and within a step that of the "one" side before pairs; so the text
//! does not depend on how the join walks. Looked for only after a join has failed.

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;

use super::matching::braced;
use super::{Join, Many};
use crate::ast::MatchCardinality;
use crate::engine::EvalError;
use crate::engine::histogram::element::{self, Outcome};
use crate::engine::series::{Element, StepSeries, is_absent};

impl Join<'_> {
    /// The error of a join with `many`.
    #[cold]
    pub(super) fn conflict(&self, many: &Many<'_>) -> EvalError {
        (0..self.step_count)
            .find_map(|step| self.conflict_at(step, many))
            .unwrap_or_else(|| EvalError::Execution(self.ambiguous().to_owned()))
    }

    fn conflict_at(&self, step: usize, many: &Many<'_>) -> Option<EvalError> {
        let (one_fill, many_fill) = self.fills();
        let present = |series: &&StepSeries| !is_absent(series.values[step]);
        if many.series.iter().find(present).is_none() && one_fill.is_none() && many_fill.is_none() {
            return None;
        }
        let mut ones: HashMap<usize, &StepSeries> = HashMap::default();
        for &(signature, at) in &self.one_order {
            let series = &self.groups[signature][at];
            if !present(&series) {
                continue;
            }
            if let Some(first) = ones.insert(signature, series) {
                return Some(self.duplicate(self.sets.labels(signature), first, series));
            }
        }
        let mut taken: HashMap<usize, HashSet<Labels>> = HashMap::default();
        for (series, signature) in many.iter().filter(|(series, _)| present(series)) {
            let one = match ones.get(&signature) {
                Some(one) if one.element(step).is_some_and(|one| self.refuses(series, one, step)) => continue,
                Some(one) => &one.labels,
                None => match one_fill {
                    Some(fill) if !self.refuses(series, Element::Float(fill), step) => {
                        self.sets.labels(signature)
                    }
                    _ => continue,
                },
            };
            let labels = match self.matching.card {
                MatchCardinality::OneToOne => Labels::empty(),
                _ => self.result_labels.of(&series.labels, one, &mut LabelsKey::default()),
            };
            if !taken.entry(signature).or_default().insert(labels) {
                return Some(EvalError::Execution(self.ambiguous().to_owned()));
            }
        }
        None
    }

    /// Whether the operator takes no elements of these kinds: then they do not meet.
    fn refuses(&self, many: &StepSeries, one: Element<'_>, step: usize) -> bool {
        let Some(many) = many.element(step) else { return false };
        let (left, right) = if self.is_swapped() { (one, many) } else { (many, one) };
        matches!(element::apply(self.op, left, right), Outcome::Refused(_))
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

    fn ambiguous(&self) -> &'static str {
        match self.matching.card {
            MatchCardinality::OneToOne => {
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            }
            _ => "multiple matches for labels: grouping labels must ensure unique matches",
        }
    }
}
