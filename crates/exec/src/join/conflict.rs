//! Error of a join whose matches are not unique.
//! Invariants: the first conflict in order of steps is reported; within a step the "one" side comes before
//! pairs, and pairs before results with equal labels. It is searched only after a join has failed.

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;

use super::{Join, Many};
use crate::cardinality::Cardinality;
use crate::column::{Element, StepSeries, is_absent};
use crate::error::{DuplicateMatch, Error};
use crate::histogram::element::Outcome;

impl Join<'_> {
    /// The error of a join with `many`.
    #[cold]
    pub(super) fn conflict(&self, many: &Many<'_>) -> Error {
        (0..self.step_count)
            .find_map(|step| self.conflict_at(step, many))
            .unwrap_or(Error::AmbiguousMatch(self.matching.card))
    }

    fn conflict_at(&self, step: usize, many: &Many<'_>) -> Option<Error> {
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
        let mut results = HashSet::default();
        let mut equal = false;
        for (series, signature) in many.iter().filter(|(series, _)| present(series)) {
            let (one, element) = match (ones.get(&signature), one_fill) {
                (Some(one), _) => (&one.labels, one.element(step)),
                (None, Some(fill)) => (self.sets.labels(signature), Some(Element::Float(fill))),
                (None, None) => continue,
            };
            let Some((of_many, of_one)) = series.element(step).zip(element) else { continue };
            let outcome = self.meet(of_many, of_one);
            // Elements that an operator refuses do not meet.
            if matches!(outcome, Outcome::Refused(_)) {
                continue;
            }
            let labels = self.result_labels.of(&series.labels, one, &mut LabelsKey::default());
            let unique = match self.matching.card {
                Cardinality::OneToOne => Labels::empty(),
                _ => labels.clone(),
            };
            if !taken.entry(signature).or_default().insert(unique) {
                return Some(Error::AmbiguousMatch(self.matching.card));
            }
            equal |= !matches!(outcome, Outcome::Nothing) && !results.insert(labels);
        }
        // With one step and delayed name removal, equal labels are checked at the end.
        let looks = self.step_count > 1 || !self.execution.delays_names();
        (equal && looks).then_some(Error::SameLabels)
    }

    fn duplicate(&self, group: &Labels, first: &StepSeries, second: &StepSeries) -> Error {
        Error::DuplicateMatch(Box::new(DuplicateMatch {
            is_left: self.matching.is_one_to_many(),
            group: group.clone(),
            series: [first.labels.clone(), second.labels.clone()],
        }))
    }
}
