//! Which series of two vectors belong together, and what labels their result has.

use std::fmt::Write;

use chronolith_model::labels::is_legacy_label_name;
use chronolith_model::quote::write_quoted;
use chronolith_model::{Labels, METRIC_NAME};

use crate::ast::{MatchCardinality, VectorMatching};
use crate::engine::METADATA_LABELS;
use crate::engine::arith::ElementOp;

/// Computes the labels by which series are matched.
pub(crate) struct Signatures<'m>(&'m VectorMatching);

impl<'m> Signatures<'m> {
    /// As `on` or `ignoring` says; the metric name only counts if `on` names it.
    pub(crate) fn new(matching: &'m VectorMatching) -> Signatures<'m> {
        Signatures(matching)
    }

    /// The labels that count.
    pub(crate) fn of(&self, labels: &Labels) -> Labels {
        let named = |name: &str| self.0.labels.iter().any(|label| label == name);
        if self.0.on {
            labels.filtered(named)
        } else {
            labels.filtered(|name| name != METRIC_NAME && !named(name))
        }
    }
}

/// Labels of the result of a pair.
pub(crate) fn result_labels(many: &Labels, one: &Labels, op: ElementOp, matching: &VectorMatching) -> Labels {
    let named = |name: &str| matching.labels.iter().any(|label| label == name);
    let keep = |name: &str| {
        if METADATA_LABELS.contains(&name) && matches!(op, ElementOp::Compute(_)) {
            return false;
        }
        matching.card != MatchCardinality::OneToOne || named(name) == matching.on
    };
    let kept = many.filtered(keep);
    if matching.include.is_empty() {
        return kept;
    }
    let mut builder = kept.to_builder();
    for name in &matching.include {
        builder.set(name, one.get(name).unwrap_or(""));
    }
    builder.finish()
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
