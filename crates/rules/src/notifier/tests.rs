//! Bodies against Prometheus's, relabelling of alerts, discovery, and the queue with a clock of its own.

mod queue;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::utc::parse_rfc3339_ms;
use chronolith_model::Labels;
use serde_json::Value;

use super::config::{AlertingConfig, TargetGroup};
use super::discovery::{Discovered, discover};
use super::{Alert, AlertEnd, body, generator_url, relabel_alerts};

/// Alerts and the bodies in which Prometheus 3.16 sent them, written by `tools/notifier-golden`.
const GOLDEN: &str = include_str!("golden.jsonl");

fn labels_of(value: &Value) -> Labels {
    let set: BTreeMap<String, String> = serde_json::from_value(value.clone()).expect("a label set");
    Labels::from_pairs(set.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

fn alert_of(value: &Value) -> Arc<Alert> {
    let ms = |key: &str| parse_rfc3339_ms(value[key].as_str().expect("a time")).expect("RFC 3339");
    Arc::new(Alert {
        labels: labels_of(&value["labels"]),
        annotations: labels_of(&value["annotations"]),
        starts_at_ms: ms("startsAt"),
        end: AlertEnd::ValidUntilMs(ms("endsAt")),
        generator_url: value["generatorURL"].as_str().unwrap_or("").to_owned(),
    })
}

#[test]
fn bodies_are_those_of_prometheus_byte_for_byte() {
    let cases: Vec<Value> = GOLDEN.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(cases.len() > 5);
    for case in &cases {
        let alerts: Vec<Arc<Alert>> =
            case["alerts"].as_array().expect("alerts").iter().map(alert_of).collect();
        assert_eq!(body(&alerts), case["body"].as_str().expect("a body"));
    }
    assert_eq!(body(&[]), "[]");
}

#[test]
fn links_to_expressions_are_escaped_as_in_prometheus() {
    let url = generator_url("http://p:9090", "up{job=~\"a+|é\"} == 0 # ~_-.");
    let escaped = "up%7Bjob%3D~%22a%2B%7C%C3%A9%22%7D+%3D%3D+0+%23+~_-.";
    assert_eq!(url, format!("http://p:9090/graph?g0.expr={escaped}&g0.tab=1"));
}

/// An alert that fires, with these labels.
fn alert(pairs: &[(&str, &str)]) -> Arc<Alert> {
    Arc::new(Alert {
        labels: Labels::from_pairs(pairs.iter().copied()),
        annotations: Labels::empty(),
        starts_at_ms: 0,
        end: AlertEnd::ValidUntilMs(240_000),
        generator_url: String::new(),
    })
}

fn config(text: &str) -> AlertingConfig {
    AlertingConfig::parse(text.as_bytes(), Path::new("/etc")).expect("a configuration")
}

#[test]
fn external_labels_are_added_before_alerts_are_relabelled() {
    let config = config(
        "alerting:\n  alert_relabel_configs:\n  - {regex: replica, action: labeldrop}\n  - {source_labels: [dc], \
         regex: test, action: drop}\n",
    );
    let external = Labels::from_pairs([("replica", "a"), ("dc", "eu")]);
    let alerts =
        [alert(&[("alertname", "a")]), alert(&[("alertname", "b"), ("dc", "test")]), alert(&[("dc", "us")])];
    let sent = relabel_alerts(&config.alert_relabel, &external, &alerts);
    let labels: Vec<String> = sent.iter().map(|alert| alert.labels.to_string()).collect();
    assert_eq!(labels, [r#"{alertname="a", dc="eu"}"#, r#"{dc="us"}"#]);
    assert!(Arc::ptr_eq(&sent[1], &alerts[2]), "an alert with the same labels is not copied");
}

fn discovered(lines: &str) -> Discovered {
    let config = config(&format!("alerting:\n  alertmanagers:\n  -\n{lines}"));
    let set = &config.alertmanagers[0];
    discover(set, set.static_groups.iter())
}

#[test]
fn urls_are_those_of_prometheus_and_each_is_used_once() {
    let one = |lines: &str| discovered(lines).active;
    assert_eq!(
        one("    static_configs: [{targets: ['a:9093', '[::1]:9093', 'a:9093']}]\n"),
        ["http://a:9093/api/v2/alerts", "http://[::1]:9093/api/v2/alerts"]
    );
    for (prefix, path) in [
        ("/", "/api/v2/alerts"),
        ("am", "/am/api/v2/alerts"),
        ("/am//x/../y/", "/am/y/api/v2/alerts"),
        ("/ä b?#(%)", "/%C3%A4%20b%3F%23%28%25%29/api/v2/alerts"),
    ] {
        let lines = format!(
            "    path_prefix: '{prefix}'\n    scheme: https\n    static_configs: [{{targets: [a]}}]\n"
        );
        assert_eq!(one(&lines), [format!("https://a{path}")]);
    }
    // Labels of a group change the scheme and the path, never the address.
    let labels = "{__scheme__: https, __alerts_path__: /x, __address__: b}";
    let lines = format!("    static_configs: [{{targets: [a], labels: {labels}}}]\n");
    assert_eq!(one(&lines), ["https://a/x"]);
}

#[test]
fn targets_are_relabelled_and_dropped() {
    let found = discovered(
        "    static_configs: [{targets: [a, b]}, {targets: ['http://c']}, {targets: [d]}]\n    relabel_configs:\n    - \
         {source_labels: [__address__], regex: b, action: drop}\n    - {source_labels: [__address__], regex: d, \
         target_label: __address__, replacement: 'e:1'}\n",
    );
    assert_eq!(found.active, ["http://a/api/v2/alerts", "http://e:1/api/v2/alerts"]);
    assert_eq!(found.dropped, ["http://b/api/v2/alerts"]);
    assert_eq!(found.faults, ["\"http://c\" is not a valid hostname"]);
    let group = TargetGroup { targets: vec![String::new()], labels: BTreeMap::new() };
    let set = &config("alerting: {alertmanagers: [{}]}").alertmanagers[0];
    assert_eq!(discover(set, [&group].into_iter()).faults, ["\"\" is not a valid hostname"]);
}
