//! Matching of a join: labels by which series are matched, and labels of the results.

use std::hash::{Hash, Hasher};

use chronolith_model::Labels;
use chronolith_model::labels::LabelsKey;

use crate::arith::ElementOp;
use crate::cardinality::Cardinality;
use crate::metric_name::METADATA_LABELS;

/// Labels by which the operands of a join are matched, and labels of the results.
#[derive(Debug, Clone, Default)]
pub struct Matching {
    /// Cardinality.
    pub card: Cardinality,
    /// Labels that are matched, or ignored.
    pub labels: Vec<String>,
    /// True if `labels` are matched; false if all others are.
    pub on: bool,
    /// Labels that results take from the "one" side.
    pub include: Vec<String>,
    /// Value for a missing series of the left operand.
    pub fill_left: Option<f64>,
    /// Value for a missing series of the right operand.
    pub fill_right: Option<f64>,
}

impl Matching {
    /// Fields that equal matchings share: fill values are compared by their bits.
    fn key(&self) -> impl PartialEq + Hash + '_ {
        let fills = [self.fill_left, self.fill_right].map(|fill| fill.map(f64::to_bits));
        (self.card, &self.labels, self.on, &self.include, fills)
    }

    /// Returns true if the left operand is the "one" side.
    #[must_use]
    pub fn is_one_to_many(&self) -> bool {
        self.card == Cardinality::OneToMany
    }
}

impl PartialEq for Matching {
    fn eq(&self, other: &Matching) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Matching {}

impl Hash for Matching {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// Computes the labels by which series are matched.
pub struct Signatures<'m> {
    /// Ascending; name, type and unit of the metric are among those that `ignoring` names.
    names: Vec<&'m str>,
    on: bool,
}

impl<'m> Signatures<'m> {
    /// The signatures of a matching; name, type and unit of the metric only count if `on` names them.
    pub fn new(matching: &'m Matching) -> Signatures<'m> {
        let mut names: Vec<&str> = matching.labels.iter().map(String::as_str).collect();
        if !matching.on {
            names.extend(METADATA_LABELS);
        }
        names.sort_unstable();
        Signatures { names, on: matching.on }
    }

    /// Puts the labels that count into `key`.
    pub fn key_of(&self, labels: &Labels, key: &mut LabelsKey) {
        if self.on {
            key.keep(labels, &self.names);
        } else {
            key.leave_out(labels, &self.names);
        }
    }
}

/// Computes the labels of the results of pairs.
pub enum ResultLabels<'m> {
    /// The result has these labels of the series on the "many" side.
    Keep(Vec<&'m str>),
    /// The result has all labels of the series on the "many" side but these.
    LeaveOut(Vec<&'m str>),
    /// The result has all labels of the "many" side but the first list, and those in the second list from the
    /// "one" side (`group_left`, `group_right`).
    Merge(Vec<&'m str>, Vec<&'m str>),
}

impl<'m> ResultLabels<'m> {
    /// Labels for an operator; `nameless` if the operator removes the metric name from its results.
    pub fn new(op: ElementOp, matching: &'m Matching, nameless: Nameless) -> ResultLabels<'m> {
        let sorted = |mut names: Vec<&'m str>| {
            names.sort_unstable();
            names
        };
        let is_metadata = |name: &&str| METADATA_LABELS.contains(name);
        let drops = matches!(op, ElementOp::Compute(_)) || nameless == Nameless::Yes;
        let metadata: &[&str] = if drops { &METADATA_LABELS } else { &[] };
        let named = || matching.labels.iter().map(String::as_str);
        let included = || matching.include.iter().map(String::as_str);
        let left_out = || metadata.iter().copied();
        match matching.card {
            Cardinality::OneToOne if matching.include.is_empty() && matching.on => {
                ResultLabels::Keep(sorted(named().filter(|name| !(drops && is_metadata(name))).collect()))
            }
            Cardinality::OneToOne if matching.include.is_empty() => {
                ResultLabels::LeaveOut(sorted(named().chain(left_out()).collect()))
            }
            _ if matching.include.is_empty() => ResultLabels::LeaveOut(sorted(left_out().collect())),
            _ => {
                // Labels are included after names are removed, unless those are removed at the end.
                ResultLabels::Merge(
                    sorted(left_out().chain(included()).collect()),
                    sorted(included().collect()),
                )
            }
        }
    }

    /// Labels of the result of a pair; `key` is memory to work in.
    pub fn of(&self, many: &Labels, one: &Labels, key: &mut LabelsKey) -> Labels {
        match self {
            ResultLabels::Keep(names) => {
                key.keep(many, names);
                key.to_labels()
            }
            ResultLabels::LeaveOut(names) => many.without(names),
            ResultLabels::Merge(left_out, kept) => {
                key.merge(many, left_out, one, kept);
                key.to_labels()
            }
        }
    }
}

/// Removal of names from results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nameless {
    /// Names are removed by the join.
    Yes,
    /// Names stay, or are removed at the end of the query.
    No,
}
