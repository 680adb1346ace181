//! Alerts of one rule: the state machine inactive -> pending -> firing -> resolved of Prometheus 3.16.
//!
//! Invariants: alerts are distinct by labels; a resolved alert is kept until 15 minutes have passed, so that
//! it is sent again if a notification was lost. Times are times of rounds, in nanoseconds since 1970.
//! Not here: evaluation and templates (`round`), sending (the caller).

use std::collections::BTreeMap;

use chronolith_model::Labels;

/// Metric of the states of alerts.
pub const ALERTS: &str = "ALERTS";
/// Metric of the start times of alerts.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";
/// Label with the name of an alert.
pub const ALERT_NAME: &str = "alertname";
/// Label with the state of an alert, of [`ALERTS`] alone.
pub const ALERT_STATE: &str = "alertstate";

/// Time for which a resolved alert is kept.
const RESOLVED_RETENTION_NS: i64 = 15 * 60 * 1_000_000_000;

/// State of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertState {
    /// Resolved: it fired, and its expression has no result any more.
    Inactive,
    /// Active for less than `for`.
    Pending,
    /// Active for `for`, or kept firing.
    Firing,
}

impl AlertState {
    /// The word of Prometheus's API and of `ALERTS`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AlertState::Inactive => "inactive",
            AlertState::Pending => "pending",
            AlertState::Firing => "firing",
        }
    }
}

/// One alert, without its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// State after the last round.
    pub state: AlertState,
    /// Expanded annotations by name.
    pub annotations: BTreeMap<String, String>,
    /// Value of the last result; 0 for a native histogram.
    pub value: f64,
    /// First round of the results without a gap.
    pub active_at_ns: i64,
    /// First round in which it fired.
    pub fired_at_ns: Option<i64>,
    /// First round without a result after it had fired.
    pub resolved_at_ns: Option<i64>,
    /// Round of the last notification.
    pub last_sent_at_ns: Option<i64>,
    /// First round without a result, of an alert that is kept firing.
    pub keep_firing_since_ns: Option<i64>,
}

/// A result of the expression of an alert: the alert as it is in this round.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertResult {
    /// Expanded annotations by name.
    pub annotations: BTreeMap<String, String>,
    /// Value of the result; 0 for a native histogram.
    pub value: f64,
}

/// Durations and limit of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AlertTerms {
    /// `for`, in nanoseconds.
    pub hold_ns: i64,
    /// `keep_firing_for`, in nanoseconds.
    pub keep_firing_ns: i64,
    /// Pending and firing alerts at the same time.
    pub limit: Option<usize>,
}

/// More alerts than the limit of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlertLimitExceeded {
    /// The limit.
    pub limit: usize,
    /// Pending and firing alerts.
    pub alert_count: usize,
}

/// The alerts of a rule by their labels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Alerts {
    alerts: BTreeMap<Labels, Alert>,
}

impl Alerts {
    /// Alerts that were stored.
    #[must_use]
    pub fn from_stored(alerts: impl IntoIterator<Item = (Labels, Alert)>) -> Alerts {
        Alerts { alerts: alerts.into_iter().collect() }
    }

    /// All alerts, resolved ones too, in order of their labels.
    pub fn iter(&self) -> impl Iterator<Item = (&Labels, &Alert)> {
        self.alerts.iter()
    }

    /// Pending and firing alerts.
    pub fn active(&self) -> impl Iterator<Item = (&Labels, &Alert)> {
        self.alerts.iter().filter(|(_, alert)| alert.state != AlertState::Inactive)
    }

    /// The highest state of all alerts.
    #[must_use]
    pub fn state(&self) -> AlertState {
        self.alerts.values().map(|alert| alert.state).max().unwrap_or(AlertState::Inactive)
    }

    /// Takes the results of a round over.
    ///
    /// # Errors
    /// [`AlertLimitExceeded`]; all alerts of the rule are gone then, as in Prometheus.
    pub fn advance(
        &mut self,
        results: BTreeMap<Labels, AlertResult>,
        terms: &AlertTerms,
        time_ns: i64,
    ) -> Result<(), AlertLimitExceeded> {
        self.alerts.retain(|labels, alert| {
            results.contains_key(labels) || alert.continue_without_result(terms, time_ns)
        });
        for (labels, result) in results {
            self.alerts
                .entry(labels)
                .and_modify(|alert| alert.take(&result, time_ns))
                .or_insert_with(|| Alert::new(&result, time_ns));
        }
        for alert in self.alerts.values_mut() {
            alert.fire_or_wait(terms, time_ns);
        }
        let alert_count = self.active().count();
        match terms.limit.filter(|&limit| alert_count > limit) {
            Some(limit) => {
                self.alerts.clear();
                Err(AlertLimitExceeded { limit, alert_count })
            }
            None => Ok(()),
        }
    }

    /// Marks all alerts that are due as sent, and returns them: firing ones that were not sent within
    /// `resend_delay_ns`, and those that were resolved after their last notification.
    pub fn take_unsent(&mut self, time_ns: i64, resend_delay_ns: i64) -> Vec<(Labels, Alert)> {
        let mut unsent = Vec::new();
        for (labels, alert) in &mut self.alerts {
            if alert.needs_sending(time_ns, resend_delay_ns) {
                alert.last_sent_at_ns = Some(time_ns);
                unsent.push((labels.clone(), alert.clone()));
            }
        }
        unsent
    }

    /// Drops pending alerts, whose clock starts again after a long outage.
    pub fn drop_pending(&mut self) {
        self.alerts.retain(|_, alert| alert.state != AlertState::Pending);
    }
}

impl Alert {
    fn new(result: &AlertResult, time_ns: i64) -> Alert {
        Alert {
            state: AlertState::Pending,
            annotations: result.annotations.clone(),
            value: result.value,
            active_at_ns: time_ns,
            fired_at_ns: None,
            resolved_at_ns: None,
            last_sent_at_ns: None,
            keep_firing_since_ns: None,
        }
    }

    /// Takes a result over; a resolved alert begins again.
    fn take(&mut self, result: &AlertResult, time_ns: i64) {
        if self.state == AlertState::Inactive {
            *self = Alert::new(result, time_ns);
            return;
        }
        self.annotations.clone_from(&result.annotations);
        self.value = result.value;
        self.keep_firing_since_ns = None;
    }

    /// Moves an alert without a result on; returns true if it is kept.
    fn continue_without_result(&mut self, terms: &AlertTerms, time_ns: i64) -> bool {
        match self.state {
            AlertState::Pending => false,
            AlertState::Inactive => self
                .resolved_at_ns
                .is_none_or(|resolved_ns| time_ns.saturating_sub(resolved_ns) <= RESOLVED_RETENTION_NS),
            AlertState::Firing => {
                if !self.is_kept_firing(terms, time_ns) {
                    self.state = AlertState::Inactive;
                    self.resolved_at_ns = Some(time_ns);
                }
                true
            }
        }
    }

    fn is_kept_firing(&mut self, terms: &AlertTerms, time_ns: i64) -> bool {
        if terms.keep_firing_ns <= 0 {
            return false;
        }
        let since_ns = *self.keep_firing_since_ns.get_or_insert(time_ns);
        time_ns.saturating_sub(since_ns) < terms.keep_firing_ns
    }

    /// Fires after `for`; a longer `for` than before makes a firing alert pending again.
    fn fire_or_wait(&mut self, terms: &AlertTerms, time_ns: i64) {
        let is_held = time_ns.saturating_sub(self.active_at_ns) >= terms.hold_ns;
        match self.state {
            AlertState::Pending if is_held => {
                self.state = AlertState::Firing;
                self.fired_at_ns = Some(time_ns);
            }
            AlertState::Firing if !is_held => {
                self.state = AlertState::Pending;
                self.fired_at_ns = None;
                self.last_sent_at_ns = None;
                self.keep_firing_since_ns = None;
            }
            _ => {}
        }
    }

    fn needs_sending(&self, time_ns: i64, resend_delay_ns: i64) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        let Some(sent_ns) = self.last_sent_at_ns else { return true };
        self.resolved_at_ns.is_some_and(|resolved_ns| resolved_ns > sent_ns)
            || sent_ns.saturating_add(resend_delay_ns) < time_ns
    }
}

#[cfg(test)]
mod tests;
