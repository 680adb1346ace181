//! State of a group between processes: alerts of its rules, series of its recording rules, and the time of
//! its last round.
//!
//! Invariant: a state that was stored by any version of the rules restores what still fits: alerts and series
//! of rules with an equal name and labels.
//! Not here: labels of series as they are stored (`stored_series`), the bytes (`format::rules`), files (the
//! caller).

use std::collections::{BTreeMap, HashMap};

use chronolith_format::rules::{
    StoredAlert, StoredAlertState, StoredGroup, StoredRecording, StoredRounds, StoredRule,
};
use chronolith_model::Labels;

use super::{ActiveGroup, alerting, stored_series};
use crate::alert::{Alert, AlertState, Alerts};
use crate::rule::{Rule, RuleIdentity};

/// Name, labels and ordinal of a rule: it finds its state again by them.
type StoredIdentity<'a> = (&'a str, BTreeMap<&'a str, &'a str>, u64);

impl ActiveGroup {
    /// The state after the last round; rules without alerts and without series are left out. Cost: a copy of
    /// the labels of all alerts and series.
    #[must_use]
    pub fn state(&self) -> StoredGroup {
        let ordinals = ordinals(self.group.rules());
        let rules = self.group.rules().iter().zip(&ordinals).zip(&self.rules);
        let with_alerts = rules.filter(|(_, state)| state.alerts.iter().next().is_some()).map(
            |((rule, ordinal), state)| StoredRule {
                name: rule.name.clone(),
                labels: rule.labels.clone().into_iter().collect(),
                ordinal: *ordinal,
                alerts: state.alerts.iter().map(|(labels, alert)| stored(labels, alert)).collect(),
            },
        );
        let key = &self.group.key;
        StoredGroup {
            file: key.file.clone(),
            name: key.name.clone(),
            last_round_ns: self.last_round_ns,
            rules: with_alerts.collect(),
            // The caller knows the rounds.
            rounds: StoredRounds::default(),
            recordings: self.recordings(&ordinals),
        }
    }

    /// Series of recording rules; `None` beyond the bounds of a state.
    fn recordings(&self, ordinals: &[u64]) -> Option<Vec<StoredRecording>> {
        let rules = self.group.rules().iter().zip(ordinals).zip(&self.rules);
        let mut room = stored_series::Room::default();
        let with_series =
            rules.filter(|((rule, _), state)| rule.alerting().is_none() && !state.series.is_empty());
        with_series.map(|((rule, ordinal), state)| room.stored(rule, *ordinal, &state.series)).collect()
    }

    /// Takes over the state of an earlier process that ended before `now_ns`. Firing and resolved alerts
    /// continue; pending ones continue unless the last round is older than `outage_tolerance_ns`. The next
    /// round marks the series of recording rules that end, and all series of rules that are gone.
    pub fn restore(&mut self, stored: &StoredGroup, now_ns: i64, outage_tolerance_ns: i64) {
        self.last_round_ns = stored.last_round_ns.filter(|last_ns| *last_ns <= now_ns);
        let outage_ns = stored.last_round_ns.map(|last_ns| now_ns.saturating_sub(last_ns));
        let is_long = outage_ns.is_none_or(|outage_ns| outage_ns > outage_tolerance_ns);
        let mut by_identity: HashMap<StoredIdentity<'_>, &StoredRule> = HashMap::new();
        for rule in &stored.rules {
            let labels = borrowed(&rule.labels).collect();
            by_identity.insert((&rule.name, labels, rule.ordinal), rule);
        }
        let rules = self.group.rules().iter().zip(ordinals(self.group.rules())).zip(&mut self.rules);
        for ((rule, ordinal), state) in rules.filter(|((rule, _), _)| rule.alerting().is_some()) {
            let labels = rule.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let Some(stored) = by_identity.get(&(rule.name.as_str(), labels, ordinal)) else { continue };
            state.alerts = Alerts::from_stored(stored.alerts.iter().map(restored));
            // Series of the last round; the next one marks each that ends.
            let written = alerting::samples(rule, state.alerts.active(), 0);
            state.series = written.into_iter().map(|sample| sample.labels).collect();
            if is_long {
                state.alerts.drop_pending();
            }
        }
        self.restore_series(stored.recordings.as_deref().unwrap_or_default());
    }

    fn restore_series(&mut self, stored: &[StoredRecording]) {
        let mut states: HashMap<StoredIdentity<'_>, &mut Vec<Labels>> = HashMap::new();
        let rules = self.group.rules().iter().zip(ordinals(self.group.rules())).zip(&mut self.rules);
        for ((rule, ordinal), state) in rules.filter(|((rule, _), _)| rule.alerting().is_none()) {
            let labels = rule.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            states.insert((&rule.name, labels, ordinal), &mut state.series);
        }
        for recording in stored {
            let mut series = stored_series::restored(recording);
            let labels = borrowed(&recording.labels).collect();
            match states.get_mut(&(recording.name.as_str(), labels, recording.ordinal)) {
                Some(of_rule) => **of_rule = series,
                None => self.stale_series.append(&mut series),
            }
        }
    }
}

/// For each rule the number of rules before it with an equal identity.
fn ordinals(rules: &[Rule]) -> Vec<u64> {
    let mut counts: HashMap<RuleIdentity<'_>, u64> = HashMap::new();
    let mut ordinals = Vec::with_capacity(rules.len());
    for rule in rules {
        let count = counts.entry(rule.identity()).or_default();
        ordinals.push(*count);
        *count += 1;
    }
    ordinals
}

fn borrowed(pairs: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

fn stored(labels: &Labels, alert: &Alert) -> StoredAlert {
    StoredAlert {
        state: match alert.state {
            AlertState::Inactive => StoredAlertState::Resolved,
            AlertState::Pending => StoredAlertState::Pending,
            AlertState::Firing => StoredAlertState::Firing,
        },
        labels: labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        annotations: alert.annotations.clone().into_iter().collect(),
        value: alert.value,
        active_at_ns: alert.active_at_ns,
        fired_at_ns: alert.fired_at_ns,
        resolved_at_ns: alert.resolved_at_ns,
        last_sent_at_ns: alert.last_sent_at_ns,
        keep_firing_since_ns: alert.keep_firing_since_ns,
    }
}

fn restored(stored: &StoredAlert) -> (Labels, Alert) {
    let alert = Alert {
        state: match stored.state {
            StoredAlertState::Resolved => AlertState::Inactive,
            StoredAlertState::Pending => AlertState::Pending,
            StoredAlertState::Firing => AlertState::Firing,
        },
        annotations: stored.annotations.iter().cloned().collect(),
        value: stored.value,
        active_at_ns: stored.active_at_ns,
        fired_at_ns: stored.fired_at_ns,
        resolved_at_ns: stored.resolved_at_ns,
        last_sent_at_ns: stored.last_sent_at_ns,
        keep_firing_since_ns: stored.keep_firing_since_ns,
    };
    (Labels::from_pairs(borrowed(&stored.labels)), alert)
}
