//! Texts of a group as its author wrote them, for editors of rules.
//!
//! Invariant: a group that is read, printed and read again is the same.
//! Not here: meaning of the texts (`check`), YAML (`print`).

use super::decode::{RawGroup, RawRule};
use crate::yaml_fields::Entry;

/// Texts of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSource {
    /// Name, unique within its file.
    pub name: String,
    /// Milliseconds; 0 for an absent field.
    pub interval_ms: i64,
    /// Milliseconds; `None` for an absent field.
    pub query_offset_ms: Option<i64>,
    /// Series or alerts per rule and round; 0 for no limit.
    pub limit: i64,
    /// Labels of all rules, in the order of the file.
    pub labels: Vec<(String, String)>,
    /// Rules in the order of the file.
    pub rules: Vec<RuleSource>,
}

/// Texts of a rule; an absent field is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    /// Name of the recorded metric.
    pub record: String,
    /// Name of the alert.
    pub alert: String,
    /// The expression as it was written.
    pub expr: String,
    /// `for` in milliseconds.
    pub hold_ms: i64,
    /// `keep_firing_for` in milliseconds.
    pub keep_firing_ms: i64,
    /// Labels in the order of the file.
    pub labels: Vec<(String, String)>,
    /// Annotations in the order of the file.
    pub annotations: Vec<(String, String)>,
}

impl GroupSource {
    pub(super) fn of(raw: &RawGroup) -> GroupSource {
        GroupSource {
            name: raw.name.clone(),
            interval_ms: raw.interval_ms,
            query_offset_ms: raw.query_offset_ms,
            limit: raw.limit,
            labels: pairs(&raw.labels),
            rules: raw.rules.iter().map(RuleSource::of).collect(),
        }
    }
}

impl RuleSource {
    fn of(raw: &RawRule) -> RuleSource {
        RuleSource {
            record: raw.record.text.clone(),
            alert: raw.alert.text.clone(),
            expr: raw.expr.text.clone(),
            hold_ms: raw.hold_ms,
            keep_firing_ms: raw.keep_firing_ms,
            labels: pairs(&raw.labels),
            annotations: pairs(&raw.annotations),
        }
    }
}

fn pairs(entries: &[Entry]) -> Vec<(String, String)> {
    entries.iter().map(|entry| (entry.name.clone(), entry.value.clone())).collect()
}
