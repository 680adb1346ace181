//! One recording or alerting rule, checked and parsed.
//!
//! Invariants: the expression is parsed; labels of the group are overridden by the rule's own.
//! Not here: rule files (`file`), order of evaluation (`group`).

use std::collections::BTreeMap;

use chronolith_promql::ast::Expr;

use crate::yaml::Position;

/// A rule of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Name of the recorded metric, or of the alert.
    pub name: String,
    /// The expression as Prometheus prints it.
    pub query: String,
    /// The parsed `query`.
    pub expr: Expr,
    /// Labels of the group and of the rule. An empty value removes a label from results.
    pub labels: BTreeMap<String, String>,
    /// Recording or alerting, with the fields of that kind.
    pub kind: RuleKind,
    /// Start of the rule in its file.
    pub position: Position,
}

/// Kind of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum RuleKind {
    /// Results are recorded as series of the rule's name.
    Recording,
    /// Results are alerts.
    Alerting(Alerting),
}

/// Kind, name and labels of a rule. The order in the group tells equal ones apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleIdentity<'a> {
    /// Name of the recorded metric, or of the alert.
    pub name: &'a str,
    /// Labels of the group and of the rule.
    pub labels: &'a BTreeMap<String, String>,
    /// True for an alerting rule.
    pub is_alerting: bool,
}

/// Fields of an alerting rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Alerting {
    /// `for`: time from pending to firing, in milliseconds.
    pub hold_ms: i64,
    /// `keep_firing_for`: time without a result before a firing alert is resolved, in milliseconds.
    pub keep_firing_ms: i64,
    /// Templates of the annotations by name.
    pub annotations: BTreeMap<String, String>,
}

impl Rule {
    /// Fields of an alerting rule.
    #[must_use]
    pub fn alerting(&self) -> Option<&Alerting> {
        match &self.kind {
            RuleKind::Recording => None,
            RuleKind::Alerting(alerting) => Some(alerting),
        }
    }

    /// Identity of the rule in its group: a rule with an equal one keeps its state over a reload. As in
    /// Prometheus, the expression and the durations may change.
    #[must_use]
    pub fn identity(&self) -> RuleIdentity<'_> {
        RuleIdentity { name: &self.name, labels: &self.labels, is_alerting: self.alerting().is_some() }
    }
}
