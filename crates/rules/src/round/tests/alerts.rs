//! Alerting rules: `ALERTS`, templates, limits and notifications.

use chronolith_model::FloatHistogram;
use chronolith_promql::Value;

use super::environment::{Environment, SECOND, sample};
use crate::alert::AlertState;
use crate::round::{ActiveGroup, Notifications, RoundReport};
use crate::testing::{group_of, group_of_rules};

const RULE: &str = "  - alert: A\n    expr: x\n    for: 1m\n    labels: {severity: page}\n    annotations: {s: '{{i}} has {{value}}'}\n";

fn active(rules: &str) -> ActiveGroup {
    ActiveGroup::new(group_of_rules(rules))
}

fn sent(report: &RoundReport) -> Vec<(AlertState, String)> {
    report.notifications.iter().map(|sent| (sent.alert.state, sent.labels.to_string())).collect()
}

#[test]
fn states_are_written_as_prometheus_writes_them() {
    let mut group = active(RULE);
    let mut env = Environment::default();
    env.answer("x", &[("x{i=1}", 5.0)]);
    env.round(&mut group, 60);
    let labels = r#"i="1", severity="page""#;
    let pending = format!(r#"ALERTS{{alertname="A", alertstate="pending", {labels}}}"#);
    let firing = format!(r#"ALERTS{{alertname="A", alertstate="firing", {labels}}}"#);
    let for_state = format!(r#"ALERTS_FOR_STATE{{alertname="A", {labels}}}"#);
    assert_eq!(env.written(), [format!("{pending} 1 @60000"), format!("{for_state} 60 @60000")]);
    env.round(&mut group, 120);
    let want = [
        format!("{firing} 1 @120000"),
        format!("{for_state} 60 @120000"),
        format!("{pending} stale @120000"),
    ];
    assert_eq!(env.written(), want);
    env.answer("x", &[]);
    env.round(&mut group, 180);
    assert_eq!(env.written(), [format!("{firing} stale @180000"), format!("{for_state} stale @180000")]);
    let alerts = group.alerts(0).expect("a rule");
    assert_eq!(
        (alerts.state(), alerts.iter().count(), alerts.active().count()),
        (AlertState::Inactive, 1, 0)
    );
}

#[test]
fn an_alert_that_is_kept_firing_is_written_on() {
    let mut group = active("  - alert: A\n    expr: x\n    keep_firing_for: 2m\n");
    let mut env = Environment::default();
    env.answer("x", &[("x", 1.0)]);
    env.round(&mut group, 60);
    env.answer("x", &[]);
    for (time_s, want) in [(120, "1 @120000"), (180, "1 @180000"), (240, "stale @240000")] {
        env.round(&mut group, time_s);
        assert_eq!(env.written()[0], format!(r#"ALERTS{{alertname="A", alertstate="firing"}} {want}"#));
    }
}

#[test]
fn templates_make_labels_and_annotations() {
    let rules = "  - alert: A\n    expr: x\n    labels: {i: 'was {{i}}', gone: '{{nothing}}', alertname: B}\n    annotations: {s: \
                 '{{i}}: {{value}} of {{query}}', empty: '', bad: '{{fail}}'}\n";
    let mut group = active(rules);
    let mut env = Environment::default();
    env.answer("x", &[("x{i=1,gone=2}", 1e6)]);
    let report = env.round(&mut group, 60);
    assert_eq!(report.rules[0].template_error.as_deref(), Some("template A failed"));
    assert_eq!(report.rules[0].error, None);
    let (labels, alert) = group.alerts(0).expect("a rule").iter().next().expect("an alert");
    assert_eq!(labels.to_string(), r#"{alertname="A", i="was 1"}"#);
    let annotation = |name: &str| alert.annotations.get(name).map(String::as_str);
    assert_eq!(annotation("s"), Some("1: 1000000 of 1"));
    assert_eq!(annotation("empty"), Some(""));
    assert_eq!(annotation("bad"), Some("<error expanding template: template A failed>"));
    assert!(env.queries.calls.contains(&(vec!["template: up".to_owned()], 60_000)));
    // As in Prometheus, a label that a template leaves empty has the template's text in `ALERTS`.
    let want = r#"ALERTS{alertname="A", alertstate="firing", gone="{{nothing}}", i="was 1"} 1 @60000"#;
    assert_eq!(env.written()[0], want);
}

#[test]
fn equal_labels_and_too_many_alerts_are_errors() {
    let text = "groups:\n- name: g\n  limit: 1\n  rules:\n  - alert: A\n    expr: x\n    labels: {i: ''}\n  - alert: B\n    expr: y\n";
    let mut group = ActiveGroup::new(group_of(text));
    let mut env = Environment::default();
    env.answer("x", &[("x{i=1}", 1.0), ("x{i=2}", 1.0)]);
    env.answer("y", &[("y{i=1}", 1.0)]);
    let report = env.round(&mut group, 60);
    let want = "vector contains metrics with the same labelset after applying alert labels";
    assert_eq!(report.rules[0].error.as_deref(), Some(want));
    env.answer("y", &[("y{i=1}", 1.0), ("y{i=2}", 1.0)]);
    let report = env.round(&mut group, 120);
    assert_eq!(report.rules[1].error.as_deref(), Some("exceeded limit of 1 with 2 alerts"));
    assert_eq!(group.alerts(1).map(|alerts| alerts.iter().count()), Some(0));
    // The series of the last good round end with the next good one.
    assert!(env.written().is_empty());
    env.answer("y", &[]);
    env.round(&mut group, 180);
    assert_eq!(env.written().len(), 2);
}

#[test]
fn a_rule_that_fails_keeps_its_alerts() {
    let mut group = active(RULE);
    let mut env = Environment::default();
    env.answer("x", &[("x{i=1}", 5.0)]);
    env.round(&mut group, 60);
    env.fail("x", "query timed out");
    assert!(env.round(&mut group, 120).notifications.is_empty());
    env.answer("x", &[("x{i=1}", 6.0)]);
    let report = env.round(&mut group, 180);
    assert_eq!(
        sent(&report),
        [(AlertState::Firing, r#"{alertname="A", i="1", severity="page"}"#.to_owned())]
    );
    let alert = &report.notifications[0].alert;
    assert_eq!((alert.active_at_ns, alert.fired_at_ns), (60 * SECOND, Some(180 * SECOND)));
    assert_eq!(alert.annotations.get("s").map(String::as_str), Some("1 has 6"));
}

#[test]
fn notifications_are_valid_for_four_delays_or_intervals() {
    for (resend_s, want_s) in [(0, 60 + 240), (300, 60 + 1200)] {
        let mut group = active("  - alert: A\n    expr: x\n");
        let mut env = Environment::default();
        env.settings.resend_delay_ns = resend_s * SECOND;
        env.answer("x", &[("x", 1.0)]);
        let report = env.round(&mut group, 60);
        assert_eq!(report.notifications[0].valid_until_ns, want_s * SECOND);
    }
}

#[test]
fn rounds_that_are_made_up_send_nothing_until_the_newest() {
    let mut group = active("  - alert: A\n    expr: x\n  - alert: B\n    expr: y\n");
    let mut env = Environment::default();
    env.answer("x", &[("x", 1.0)]);
    env.answer("y", &[("y", 1.0)]);
    for time_s in [60, 120] {
        let report = env.round_at(&mut group, time_s * SECOND, Notifications::Hold);
        assert!(report.notifications.is_empty());
    }
    env.answer("y", &[]);
    let report = env.round(&mut group, 180);
    let want = [
        (AlertState::Firing, r#"{alertname="A"}"#.to_owned()),
        (AlertState::Inactive, r#"{alertname="B"}"#.to_owned()),
    ];
    assert_eq!(sent(&report), want);
    assert_eq!(report.notifications[0].alert.fired_at_ns, Some(60 * SECOND), "at its own time");
}

#[test]
fn a_histogram_is_an_alert_without_a_value() {
    let mut group = active("  - alert: A\n    expr: x\n");
    let mut env = Environment::default();
    let mut found = sample("x", f64::NAN);
    found.histogram = Some(std::sync::Arc::new(FloatHistogram::default()));
    env.queries.answers.insert("x".to_owned(), Ok(Value::Vector(vec![found])));
    env.round(&mut group, 60);
    let (_, alert) = group.alerts(0).expect("a rule").iter().next().expect("an alert");
    assert_eq!(alert.value.to_bits(), 0f64.to_bits());
}
