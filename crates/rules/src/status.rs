//! A group of rules as pages and metrics show it: the group as it was loaded, and its last round.
//!
//! Invariants: a status is a value that does not change; each round makes a new one.
//! Not here: texts and JSON (`server`).

use std::sync::Arc;

use crate::alert::Alerts;
use crate::group::{Group, Origin};

/// A group and its last round.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupStatus {
    /// The group as it was loaded.
    pub group: Arc<Group>,
    /// Source of the group.
    pub origin: Origin,
    /// The last round; `None` before the first one of this process.
    pub last_round: Option<LastRound>,
    /// One per rule, in the order of the group.
    pub rules: Vec<RuleStatus>,
    /// Rounds since the start by their end.
    pub rounds: RoundCounts,
    /// Evaluations of its rules since the start.
    pub evaluations: EvaluationCounts,
}

/// The last round of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRound {
    /// Time of the round, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Wall clock at its start, in nanoseconds since 1970.
    pub started_ns: i64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// True if the server was down at its time, and the round was made up.
    pub is_caught_up: bool,
}

/// Rounds since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundCounts {
    /// Evaluated at their time.
    pub evaluated: u64,
    /// Not evaluated, as the round before took too long.
    pub missed: u64,
    /// Evaluated after a restart, for times at which the server was down.
    pub caught_up: u64,
    /// Older than `--rules.catch-up` after a restart, and never evaluated.
    pub lost: u64,
    /// Evaluated again, as samples came in for times that they had read.
    pub repaired: u64,
}

/// Evaluations of the rules of a group since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EvaluationCounts {
    /// All evaluations.
    pub all: u64,
    /// Evaluations that failed.
    pub failed: u64,
}

/// Last evaluation of a rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleStatus {
    /// Outcome of the last evaluation.
    pub health: Health,
    /// Wall clock at its start, in nanoseconds since 1970; `None` before the first.
    pub evaluated_ns: Option<i64>,
    /// Duration of its expression in nanoseconds.
    pub duration_ns: u64,
    /// Samples of its result.
    pub sample_count: usize,
    /// Alerts after it, resolved ones too; empty for a recording rule.
    pub alerts: Arc<Alerts>,
}

/// Outcome of the last evaluation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// Not evaluated yet.
    #[default]
    Unknown,
    /// Evaluated and recorded.
    Ok,
    /// Failed, with the reason.
    Err(String),
}

impl Health {
    /// The word of Prometheus's API.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Health::Unknown => "unknown",
            Health::Ok => "ok",
            Health::Err(_) => "err",
        }
    }
}

impl GroupStatus {
    /// Status of a group before its first round.
    #[must_use]
    pub fn new(group: Arc<Group>, origin: Origin) -> GroupStatus {
        let rules = vec![RuleStatus::default(); group.rules().len()];
        let rounds = RoundCounts::default();
        let evaluations = EvaluationCounts::default();
        GroupStatus { group, origin, last_round: None, rules, rounds, evaluations }
    }
}
