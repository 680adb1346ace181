//! Series that a rule may write: labels whose values are known before the rule is evaluated.
//!
//! Invariant: a series that a rule writes has one of the names, and the value of each fixed label.
//! Not here: selectors (`reads`).

use std::collections::BTreeMap;

use chronolith_model::{METRIC_NAME, Matcher};

use crate::alert::{ALERT_NAME, ALERT_STATE, ALERTS, ALERTS_FOR_STATE};
use crate::rule::Rule;

/// Series that a rule may write.
pub(super) struct Output {
    /// Names of metrics.
    names: Vec<String>,
    /// Labels whose value is known; an empty one is an absent label.
    fixed: BTreeMap<String, String>,
}

impl Output {
    pub(super) fn of(rule: &Rule) -> Output {
        let mut fixed = rule.labels.clone();
        if rule.alerting().is_none() {
            return Output { names: vec![rule.name.clone()], fixed };
        }
        // A template may have any value; the state is replaced in one of the two series alone.
        fixed.retain(|name, value| !value.contains("{{") && name != ALERT_STATE);
        fixed.insert(ALERT_NAME.to_owned(), rule.name.clone());
        Output { names: vec![ALERTS.to_owned(), ALERTS_FOR_STATE.to_owned()], fixed }
    }

    /// Returns true unless some matcher refuses all series of the rule.
    pub(super) fn may_match(&self, matchers: &[Matcher]) -> bool {
        matchers.iter().all(|matcher| {
            if &*matcher.name == METRIC_NAME {
                return self.names.iter().any(|name| matcher.matches(name));
            }
            self.fixed.get(&*matcher.name).is_none_or(|value| matcher.matches(value))
        })
    }

    /// Returns true unless no series of both can be equal.
    pub(super) fn may_equal(&self, other: &Output) -> bool {
        self.names.iter().any(|name| other.names.contains(name))
            && self.fixed.iter().all(|(name, value)| other.fixed.get(name).is_none_or(|other| other == value))
    }
}
