//! Rounds: one evaluation of a group at one time, over traits for queries, samples, templates and state.
//!
//! Invariants: rules are evaluated by batches, and a batch is evaluated before it is recorded (ADR 0125).
//! A rule that fails changes neither its alerts nor its series. State is kept before notifications leave.
//! Not here: the times of rounds (`schedule`), threads, sending of notifications (the caller).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub use chronolith_format::rules::{StateFile, StoredGroup, StoredRecordingRule, StoredRounds};
use chronolith_model::{FloatHistogram, Labels};
use chronolith_promql::ast::Expr;
use chronolith_promql::{Value, VectorSample};

use crate::alert::{Alert, Alerts};
use crate::group::Group;
use crate::schedule::NS_PER_MS;
use crate::template_engine::{TemplateEngine, TemplateQueries};

mod alerting;
mod evaluation;
pub mod recording;
mod state;
mod stored_series;

/// An expression of a rule.
#[derive(Debug, Clone, Copy)]
pub struct Expression<'a> {
    /// As Prometheus prints it.
    pub text: &'a str,
    /// The parsed `text`.
    pub expr: &'a Expr,
}

/// The round was ended from outside: a stop of the server, or its time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Evaluates the expressions of a batch.
pub trait Evaluate: TemplateQueries {
    /// Returns the values at `time_ms`, one per expression in their order. Equal parts may be computed once.
    ///
    /// # Errors
    /// [`Interrupted`] ends the round; the text of a single failure does not.
    fn evaluate(
        &mut self,
        expressions: &[Expression<'_>],
        time_ms: i64,
    ) -> Result<Vec<Result<Value, String>>, Interrupted>;
}

/// A sample that a rule writes.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSample {
    /// Labels with the metric name.
    pub labels: Labels,
    /// Time of the round less the query offset, in milliseconds.
    pub time_ms: i64,
    /// The value.
    pub value: SampleValue,
}

/// Value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<FloatHistogram>),
    /// The staleness marker: the series is no longer among the results.
    Stale,
}

/// A sample that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedSample {
    /// Index among the samples of the call.
    pub idx: usize,
    /// Reason as the health of the rule shows it.
    pub reason: String,
}

/// Stores the samples of a batch.
pub trait Record {
    /// Stores samples of several rules as one write, and returns those that were refused. An equal sample at
    /// the same time is no refusal.
    ///
    /// # Errors
    /// Nothing is stored.
    fn record(&mut self, samples: &[RuleSample]) -> Result<Vec<RejectedSample>, String>;
}

/// Stores the state of a group durably.
pub trait StateStore {
    /// Replaces the state of the group; [`StoredGroup::encode`] has its bytes.
    ///
    /// # Errors
    /// The state before may be lost or not.
    fn save(&mut self, state: StoredGroup) -> Result<(), String>;
}

/// Traits and settings that a round uses.
pub struct RoundContext<'a> {
    /// Queries.
    pub evaluate: &'a mut dyn Evaluate,
    /// Samples.
    pub record: &'a mut dyn Record,
    /// State of alerts.
    pub state: &'a mut dyn StateStore,
    /// Templates of alerts.
    pub templates: &'a dyn TemplateEngine,
    /// Settings of the server.
    pub settings: &'a RoundSettings,
}

/// Settings of the server that rounds use.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoundSettings {
    /// Time after which a firing alert is sent again, in nanoseconds.
    pub resend_delay_ns: i64,
    /// `$externalLabels`
    pub external_labels: BTreeMap<String, String>,
    /// `$externalURL`
    pub external_url: String,
}

/// Notifications of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notifications {
    /// Alerts that are due are returned, and count as sent.
    Send,
    /// None: a round is made up, and a newer one follows.
    Hold,
}

/// An alert that is to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    /// Index of the rule in its group.
    pub rule_idx: usize,
    /// Labels of the alert.
    pub labels: Labels,
    /// The alert after the round.
    pub alert: Alert,
    /// Time from which a firing alert counts as resolved without another notification, in nanoseconds.
    pub valid_until_ns: i64,
}

/// Outcome of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleReport {
    /// Reason for `health: err`.
    pub error: Option<String>,
    /// Samples of its result.
    pub sample_count: usize,
    /// Samples that the store refused, staleness markers excluded.
    pub rejected_count: usize,
    /// First template that failed; its text is in the label or annotation.
    pub template_error: Option<String>,
}

/// Outcome of a round.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundReport {
    /// Time of the round.
    pub time_ns: i64,
    /// One per rule.
    pub rules: Vec<RuleReport>,
    /// Alerts to send, in order of rules and labels.
    pub notifications: Vec<Notification>,
    /// Reason why the state could not be kept.
    pub state_error: Option<String>,
}

/// State of one rule between rounds.
#[derive(Debug, Clone, PartialEq, Default)]
struct RuleState {
    alerts: Alerts,
    /// Series of the last round that succeeded, in order.
    series: Vec<Labels>,
}

/// A group with its state between rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveGroup {
    group: Arc<Group>,
    rules: Vec<RuleState>,
    /// Series of rules that were removed, also while the server was down: the next round marks them.
    stale_series: Vec<Labels>,
    last_round_ns: Option<i64>,
}

impl ActiveGroup {
    /// A group without state.
    #[must_use]
    pub fn new(group: impl Into<Arc<Group>>) -> ActiveGroup {
        let group = group.into();
        let rules = vec![RuleState::default(); group.rules().len()];
        ActiveGroup { group, rules, stale_series: Vec::new(), last_round_ns: None }
    }

    /// Continues `before`, the same group before a reload. Rules with an equal name and labels keep their
    /// alerts and series; the series of the others are marked as stale by the next round.
    #[must_use]
    pub fn continue_from(group: impl Into<Arc<Group>>, before: ActiveGroup) -> ActiveGroup {
        let mut after = ActiveGroup::new(group);
        let mut old_rules: Vec<Option<RuleState>> = before.rules.into_iter().map(Some).collect();
        for (rule, kept) in after.rules.iter_mut().zip(after.group.kept_rules(&before.group)) {
            if let Some(old) = kept.and_then(|idx| old_rules.get_mut(idx)?.take()) {
                *rule = old;
            }
        }
        after.stale_series = before.stale_series;
        after.stale_series.extend(old_rules.into_iter().flatten().flat_map(|rule| rule.series));
        after.last_round_ns = before.last_round_ns;
        after
    }

    /// The group as it was loaded.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The group as it was loaded, shared.
    #[must_use]
    pub fn shared_group(&self) -> Arc<Group> {
        self.group.clone()
    }

    /// Time of the last round, of an earlier process too.
    #[must_use]
    pub fn last_round_ns(&self) -> Option<i64> {
        self.last_round_ns
    }

    /// Alerts of a rule; `None` beyond the last one.
    #[must_use]
    pub fn alerts(&self, rule_idx: usize) -> Option<&Alerts> {
        self.rules.get(rule_idx).map(|rule| &rule.alerts)
    }

    /// All series of a group that was removed, which the caller marks as stale after two intervals.
    #[must_use]
    pub fn into_series(self) -> Vec<Labels> {
        let mut series = self.stale_series;
        series.extend(self.rules.into_iter().flat_map(|rule| rule.series));
        series
    }

    /// Removes all series that `other` wrote in its last round: they have not ended with this group.
    pub fn forget_series_of(&mut self, other: &ActiveGroup) {
        let written: HashSet<&Labels> = other.rules.iter().flat_map(|rule| &rule.series).collect();
        self.stale_series.retain(|labels| !written.contains(labels));
        for rule in &mut self.rules {
            rule.series.retain(|labels| !written.contains(labels));
        }
    }

    /// Time of samples of the round at `time_ns`, in milliseconds.
    #[must_use]
    pub fn sample_time_ms(&self, time_ns: i64) -> i64 {
        let offset_ns = self.group.query_offset_ms.saturating_mul(NS_PER_MS);
        time_ns.saturating_sub(offset_ns).div_euclid(NS_PER_MS)
    }
}

/// Prometheus's text for results of other types than vectors and scalars.
pub(crate) const NO_VECTOR: &str = "rule result is not a vector or scalar";

/// The result of a rule as a vector: a scalar has no labels.
///
/// # Errors
/// Prometheus's text for results of other types.
fn vector_of(value: Value) -> Result<Vec<VectorSample>, String> {
    match value {
        Value::Vector(samples) => Ok(samples),
        Value::Scalar { time_ms, value } => {
            Ok(vec![VectorSample { labels: Labels::empty(), time_ms, value, histogram: None }])
        }
        _ => Err(NO_VECTOR.to_owned()),
    }
}

#[cfg(test)]
mod tests;
