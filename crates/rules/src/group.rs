//! A group of rules: its identity, its limits, and the batches in which its rules are evaluated.
//!
//! Invariants: batches hold every rule once. If the expressions of a batch are evaluated before any of its
//! results is recorded, every rule sees what it sees when rules run one after the other (ADR 0125).
//! Not here: times (`schedule`), evaluation (`round`).

use std::collections::{HashMap, VecDeque};

use crate::file::GroupEntry;
use crate::rule::{Rule, RuleIdentity};

mod reads;
pub mod repair_order;
mod series_pattern;

/// Pairs of rules that are compared. Further rules of a group have a batch of their own each.
const PAIRS_MAX: usize = 4_000_000;

/// Identity of a group. Its state survives a reload and a restart under this key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Path of the file as Prometheus names it: part of the hash that spreads groups over their interval.
    pub file: String,
    /// Name of the group.
    pub name: String,
}

/// Source of groups. Each one replaces its own groups alone, and two groups of different sources may have
/// equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Rule files of the server.
    Files,
    /// Groups that clients have stored by the API.
    Configured,
}

impl Origin {
    /// The word for metrics and for directories on disk.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Files => "files",
            Origin::Configured => "configured",
        }
    }
}

/// Settings of the server that fill fields which a group does not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupDefaults {
    /// `--rules.evaluation-interval` in milliseconds, more than 0.
    pub interval_ms: i64,
    /// `--rules.query-offset` in milliseconds.
    pub query_offset_ms: i64,
}

/// A group that can be evaluated.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// File and name.
    pub key: GroupKey,
    /// Distance between rounds in milliseconds, more than 0.
    pub interval_ms: i64,
    /// Expressions are evaluated at the time of the round less this, in milliseconds.
    pub query_offset_ms: i64,
    /// Series or alerts per rule and round; `None` for no limit.
    pub limit: Option<usize>,
    rules: Vec<Rule>,
    /// Indices of rules.
    batches: Vec<Vec<usize>>,
}

impl Group {
    /// Creates a group of a file. Cost: quadratic in its rules, up to some 2,800 of them.
    ///
    /// # Panics
    /// If the default interval is not positive.
    #[must_use]
    pub fn new(file: &str, entry: GroupEntry, defaults: GroupDefaults) -> Group {
        assert!(defaults.interval_ms > 0, "an interval is more than 0");
        let batches = batches(&entry.rules);
        Group {
            key: GroupKey { file: file.to_owned(), name: entry.name },
            interval_ms: entry.interval_ms.unwrap_or(defaults.interval_ms),
            query_offset_ms: entry.query_offset_ms.unwrap_or(defaults.query_offset_ms),
            limit: entry.limit,
            rules: entry.rules,
            batches,
        }
    }

    /// Rules in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Batches in the order of their evaluation: indices of rules, ascending within a batch.
    #[must_use]
    pub fn batches(&self) -> &[Vec<usize>] {
        &self.batches
    }

    /// For each rule the index of the rule of `before` whose state it keeps. Equal rules are paired in their
    /// order, as in Prometheus.
    #[must_use]
    pub fn kept_rules(&self, before: &Group) -> Vec<Option<usize>> {
        let mut old_rules: HashMap<RuleIdentity<'_>, VecDeque<usize>> = HashMap::new();
        for (idx, rule) in before.rules.iter().enumerate() {
            old_rules.entry(rule.identity()).or_default().push_back(idx);
        }
        self.rules.iter().map(|rule| old_rules.get_mut(&rule.identity())?.pop_front()).collect()
    }
}

/// The batch of each rule is the first one after the batches of the rules that it reads, and not before the
/// batch of a rule that reads it or writes the same series.
fn batches(rules: &[Rule]) -> Vec<Vec<usize>> {
    let reads: Vec<reads::Reads> = rules.iter().map(reads::Reads::of).collect();
    let outputs: Vec<series_pattern::Output> = rules.iter().map(series_pattern::Output::of).collect();
    let mut batch_of: Vec<usize> = Vec::with_capacity(rules.len());
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for (idx, (own_reads, own_output)) in reads.iter().zip(&outputs).enumerate() {
        let is_compared = idx.saturating_mul(idx) / 2 <= PAIRS_MAX;
        let mut batch_idx = if is_compared { 0 } else { batches.len() };
        let earlier = if is_compared { batch_of.len() } else { 0 };
        let earlier = batch_of.iter().zip(&reads).zip(&outputs).take(earlier);
        for ((&earlier_batch, earlier_reads), earlier_output) in earlier {
            if own_reads.may_read(earlier_output) {
                batch_idx = batch_idx.max(earlier_batch + 1);
            } else if earlier_reads.may_read(own_output) || earlier_output.may_equal(own_output) {
                batch_idx = batch_idx.max(earlier_batch);
            }
        }
        batch_of.push(batch_idx);
        if batches.len() == batch_idx {
            batches.push(Vec::new());
        }
        assert!(batch_idx < batches.len(), "a batch follows another one");
        batches[batch_idx].push(idx);
    }
    batches
}

#[cfg(test)]
mod tests;
