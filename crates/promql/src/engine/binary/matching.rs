//! Which series of two vectors belong together, and what labels their result has.

use std::fmt::Write;

use chronolith_model::Labels;
use chronolith_model::labels::{LabelsKey, is_legacy_label_name};
use chronolith_model::quote::write_quoted;

use crate::ast::{MatchCardinality, VectorMatching};
use crate::engine::METADATA_LABELS;
use crate::engine::arith::ElementOp;

/// Computes the labels by which series are matched.
pub(crate) struct Signatures<'m> {
    /// Ascending; name, type and unit of the metric are among those that `ignoring` names.
    names: Vec<&'m str>,
    on: bool,
}

impl<'m> Signatures<'m> {
    /// As `on` or `ignoring` says; name, type and unit of the metric only count if `on` names them.
    pub(crate) fn new(matching: &'m VectorMatching) -> Signatures<'m> {
        let mut names: Vec<&str> = matching.labels.iter().map(String::as_str).collect();
        if !matching.on {
            names.extend(METADATA_LABELS);
        }
        names.sort_unstable();
        Signatures { names, on: matching.on }
    }

    /// Puts the labels that count into `key`.
    pub(crate) fn key_of(&self, labels: &Labels, key: &mut LabelsKey) {
        if self.on {
            key.keep(labels, &self.names);
        } else {
            key.leave_out(labels, &self.names);
        }
    }
}

/// Computes the labels of the results of pairs.
pub(crate) enum ResultLabels<'m> {
    /// Of the "many" side these alone.
    Keep(Vec<&'m str>),
    /// Of the "many" side all but these.
    LeaveOut(Vec<&'m str>),
    /// Of the "many" side all but the first, of the "one" side the second.
    Merge(Vec<&'m str>, Vec<&'m str>),
}

impl<'m> ResultLabels<'m> {
    /// For an operator; `nameless` if what is computed loses its name at once.
    pub(crate) fn new(op: ElementOp, matching: &'m VectorMatching, nameless: Nameless) -> ResultLabels<'m> {
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
            MatchCardinality::OneToOne if matching.include.is_empty() && matching.on => {
                ResultLabels::Keep(sorted(named().filter(|name| !(drops && is_metadata(name))).collect()))
            }
            MatchCardinality::OneToOne if matching.include.is_empty() => {
                ResultLabels::LeaveOut(sorted(named().chain(left_out()).collect()))
            }
            _ if matching.include.is_empty() => ResultLabels::LeaveOut(sorted(left_out().collect())),
            _ => {
                // What is included comes after names have gone, unless they go at the end.
                ResultLabels::Merge(
                    sorted(left_out().chain(included()).collect()),
                    sorted(included().collect()),
                )
            }
        }
    }

    /// Labels of the result of a pair; `key` is memory to work in.
    pub(crate) fn of(&self, many: &Labels, one: &Labels, key: &mut LabelsKey) -> Labels {
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

/// Whether results lose their names at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// They do.
    Yes,
    /// Names stay, or go at the end of the query.
    No,
}

/// All labels in braces, the metric name among them, as upstream prints them in messages.
pub(crate) fn braced(labels: &Labels) -> String {
    let mut text = String::from("{");
    for (at, (name, value)) in labels.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        // Writing to a String cannot fail.
        let _ = if is_legacy_label_name(name) { text.write_str(name) } else { write_quoted(&mut text, name) };
        text.push('=');
        let _ = write_quoted(&mut text, value);
    }
    text.push('}');
    text
}
