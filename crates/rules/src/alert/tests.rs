//! The state machine against a model that computes each state from the whole history, and known sequences.

use super::*;

const SECOND: i64 = 1_000_000_000;

fn result(value: f64) -> AlertResult {
    AlertResult { annotations: BTreeMap::from([("value".to_owned(), value.to_string())]), value }
}

fn labels(name: &str) -> Labels {
    Labels::from_pairs([("alertname", "A"), ("x", name)])
}

fn terms(hold_s: i64, keep_s: i64) -> AlertTerms {
    AlertTerms { hold_ns: hold_s * SECOND, keep_firing_ns: keep_s * SECOND, limit: None }
}

/// One round with or without a result of the alert `a`.
fn round(alerts: &mut Alerts, terms: &AlertTerms, time_s: i64, has_result: bool) -> Option<AlertState> {
    let results = has_result.then(|| (labels("a"), result(time_s as f64))).into_iter().collect();
    alerts.advance(results, terms, time_s * SECOND).expect("no limit");
    alerts.iter().next().map(|(_, alert)| alert.state)
}

#[track_caller]
fn check(terms: &AlertTerms, rounds: &str, want: &str) {
    let mut alerts = Alerts::default();
    let found: String = rounds
        .chars()
        .enumerate()
        .map(|(idx, c)| match round(&mut alerts, terms, idx as i64 * 60, c == 'x') {
            None => '-',
            Some(AlertState::Inactive) => 'r',
            Some(AlertState::Pending) => 'p',
            Some(AlertState::Firing) => 'f',
        })
        .collect();
    assert_eq!(found, want, "{rounds}");
}

#[test]
fn an_alert_waits_for_its_hold_duration() {
    check(&terms(0, 0), "x.x.", "frfr");
    check(&terms(120, 0), "xxxx.", "ppffr");
    check(&terms(120, 0), "xx.xxx", "pp-ppf");
    check(&terms(90, 0), "xxx", "ppf");
}

#[test]
fn a_firing_alert_is_kept_for_its_duration_after_the_last_result() {
    check(&terms(0, 120), "x...", "fffr");
    check(&terms(0, 120), "x.x...", "fffffr");
    check(&terms(60, 120), "x.xx....", "p-pfffrr");
    check(&terms(0, 30), "x..", "ffr");
}

#[test]
fn a_resolved_alert_is_kept_for_a_quarter_of_an_hour() {
    check(&terms(0, 0), &format!("x{}", ".".repeat(18)), &format!("f{}--", "r".repeat(16)));
    check(&terms(60, 0), "xx..x", "pfrrp");
}

#[test]
fn a_longer_hold_duration_makes_a_firing_alert_pending_again() {
    let mut alerts = Alerts::default();
    assert_eq!(round(&mut alerts, &terms(60, 0), 0, true), Some(AlertState::Pending));
    assert_eq!(round(&mut alerts, &terms(60, 0), 60, true), Some(AlertState::Firing));
    assert_eq!(alerts.take_unsent(60 * SECOND, 0).len(), 1);
    assert_eq!(round(&mut alerts, &terms(180, 0), 120, true), Some(AlertState::Pending));
    let (_, alert) = alerts.iter().next().expect("the alert");
    assert_eq!((alert.fired_at_ns, alert.last_sent_at_ns), (None, None));
    assert_eq!(round(&mut alerts, &terms(180, 0), 180, true), Some(AlertState::Firing));
}

#[test]
fn alerts_beyond_the_limit_clear_all() {
    let mut alerts = Alerts::default();
    let terms = AlertTerms { limit: Some(1), ..AlertTerms::default() };
    let one = BTreeMap::from([(labels("a"), result(1.0))]);
    assert_eq!(alerts.advance(one, &terms, 0), Ok(()));
    // A resolved alert does not count.
    let other = BTreeMap::from([(labels("b"), result(1.0))]);
    assert_eq!(alerts.advance(other, &terms, 60), Ok(()));
    let two = BTreeMap::from([(labels("a"), result(1.0)), (labels("b"), result(2.0))]);
    assert_eq!(alerts.advance(two, &terms, 120), Err(AlertLimitExceeded { limit: 1, alert_count: 2 }));
    assert_eq!(alerts.iter().count(), 0);
}

#[test]
fn notifications_are_due_at_once_and_after_the_resend_delay() {
    let mut alerts = Alerts::default();
    let sent = |alerts: &mut Alerts, time_s: i64| {
        let unsent = alerts.take_unsent(time_s * SECOND, 60 * SECOND);
        unsent.into_iter().map(|(_, alert)| alert.state).collect::<Vec<_>>()
    };
    round(&mut alerts, &terms(60, 0), 0, true);
    assert_eq!(sent(&mut alerts, 0), [], "pending");
    round(&mut alerts, &terms(60, 0), 60, true);
    assert_eq!(sent(&mut alerts, 60), [AlertState::Firing]);
    assert_eq!(sent(&mut alerts, 120), [], "not more than the delay");
    assert_eq!(sent(&mut alerts, 121), [AlertState::Firing]);
    round(&mut alerts, &terms(60, 0), 130, false);
    assert_eq!(sent(&mut alerts, 130), [AlertState::Inactive], "resolved");
    assert_eq!(sent(&mut alerts, 190), []);
    assert_eq!(sent(&mut alerts, 191), [AlertState::Inactive], "again after the delay");
}

#[test]
fn values_and_annotations_are_those_of_the_last_result() {
    let mut alerts = Alerts::default();
    for time_s in [0, 60, 120] {
        round(&mut alerts, &terms(0, 600), time_s, time_s < 120);
        let (_, alert) = alerts.iter().next().expect("the alert");
        let want_s = time_s.min(60);
        assert_eq!((alert.value, alert.annotations.get("value")), (want_s as f64, Some(&want_s.to_string())));
        assert_eq!((alert.active_at_ns, alert.fired_at_ns), (0, Some(0)));
    }
}

/// One alert, computed from the history alone: `present[i]` says that round `i` had a result. Every round is
/// assigned a phase by looking backwards, without a state that is carried along.
struct Model<'a> {
    present: &'a [bool],
    /// Time of each round, in seconds.
    times: &'a [i64],
    hold_s: i64,
    keep_s: i64,
}

impl Model<'_> {
    /// Start of the episode that round `idx` belongs to: the first result after a time in which the alert
    /// was inactive.
    fn episode_start(&self, idx: usize) -> Option<usize> {
        let mut start = None;
        for at in 0..=idx {
            start = match start {
                None => self.present[at].then_some(at),
                Some(begun) => (!self.is_over(begun, at)).then_some(begun),
            };
        }
        start
    }

    /// Returns true if an episode that began at `start` ends in round `at`, since there is no result: at once
    /// while it is pending, otherwise once results have been missing for `keep_s`.
    fn is_over(&self, start: usize, at: usize) -> bool {
        if self.present[at] {
            return false;
        }
        let last = (start..at).rev().find(|&idx| self.present[idx]).unwrap_or(start);
        if self.fired(start, last).is_none() {
            return true;
        }
        let gap = self.times[at] - self.times[last + 1];
        self.keep_s == 0 || gap >= self.keep_s
    }

    /// The round in which an episode fired, at or before `idx`.
    fn fired(&self, start: usize, idx: usize) -> Option<usize> {
        (start..=idx).find(|&at| self.times[at] - self.times[start] >= self.hold_s)
    }

    fn state(&self, idx: usize) -> Option<(AlertState, Option<usize>)> {
        if let Some(start) = self.episode_start(idx) {
            let fired = self.fired(start, idx);
            let state = if fired.is_some() { AlertState::Firing } else { AlertState::Pending };
            return Some((state, fired));
        }
        // The newest end of an episode that had fired.
        let end = (1..=idx)
            .rev()
            .find(|&at| self.episode_start(at).is_none() && self.episode_start(at - 1).is_some())?;
        let start = self.episode_start(end - 1)?;
        let fired = self.fired(start, end - 1)?;
        (self.times[idx] - self.times[end] <= 15 * 60).then_some((AlertState::Inactive, Some(fired)))
    }
}

proptest::proptest! {
    #[test]
    fn states_are_those_of_the_model(
        present in proptest::collection::vec(proptest::prelude::any::<bool>(), 1..60),
        steps in proptest::collection::vec(proptest::sample::select(vec![15i64, 30, 30, 60, 600]), 60),
        hold_s in proptest::sample::select(vec![0i64, 15, 45, 60, 120]),
        keep_s in proptest::sample::select(vec![0i64, 15, 45, 60, 300]),
    ) {
        let times: Vec<i64> = steps.iter().scan(0, |sum, step| { *sum += step; Some(*sum) }).collect();
        let model = Model { present: &present, times: &times, hold_s, keep_s };
        let mut alerts = Alerts::default();
        for idx in 0..present.len() {
            round(&mut alerts, &terms(hold_s, keep_s), times[idx], present[idx]);
            let found = alerts.iter().next().map(|(_, alert)| (alert.state, alert.fired_at_ns));
            let want = model.state(idx).map(|(state, fired)| (state, fired.map(|at| times[at] * SECOND)));
            proptest::prop_assert_eq!(found, want, "round {} of {:?}", idx, present);
        }
    }
}
