//! Rules and alerts over the router: answers of Prometheus 3.16 byte for byte, rights, tenants.

mod backfill;
mod configure;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::utc::parse_rfc3339_ms;
use chronolith_model::{Labels, TenantId};
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::alert::{Alert, AlertState, Alerts};
use chronolith_rules::file::{self, FileLimits, FileOptions, UnknownFields};
use chronolith_rules::group::{Group, GroupDefaults, Origin};
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use chronolith_rules::status::{GroupStatus, Health, LastRound, RoundCounts, RuleStatus};
use serde_json::Value;

use crate::http::tests::access::{entry, guarded, send};
use crate::http::tests::{Answer, Fixture};

const RULES: &str = include_str!("../../../tests/golden/prometheus-rules/rules.yml");
/// Paths with status and body, as `record.py` next to it has recorded them.
const ANSWERS: &str = include_str!("../../../tests/golden/prometheus-rules/answers.txt");

fn groups(file: &str, text: &str) -> Vec<Arc<Group>> {
    let options = FileOptions {
        parser: ParserOptions::default(),
        unknown_fields: UnknownFields::Refuse,
        templates: &PrometheusTemplates::default(),
        limits: FileLimits::default(),
    };
    let parsed = file::parse(file, text.as_bytes(), &options).expect("a valid file");
    let defaults = GroupDefaults { interval_ms: 60_000, query_offset_ms: 0 };
    parsed.groups.into_iter().map(|entry| Arc::new(Group::new(file, entry, defaults))).collect()
}

/// Recorded answers: path, status, body.
fn recorded() -> impl Iterator<Item = (&'static str, u16, &'static str)> {
    ANSWERS.lines().map(|line| {
        let (path, rest) = line.split_once(' ').expect("a path");
        let (status, body) = rest.split_once(' ').expect("a status");
        (path, status.parse().expect("a number"), body)
    })
}

/// Nanoseconds of a time of Go with any number of digits; `None` for its zero time.
fn time_ns(value: &Value) -> Option<i64> {
    let text = value.as_str().expect("a time");
    if text.starts_with("0001-") {
        return None;
    }
    let (_, fraction) = text.trim_end_matches('Z').split_once('.').unwrap_or((text, "0"));
    let fraction_ns: i64 = format!("{fraction:0<9}").parse().expect("digits");
    let ms = parse_rfc3339_ms(text).expect("a time");
    Some(ms.div_euclid(1000) * 1_000_000_000 + fraction_ns)
}

fn duration_ns(value: &Value) -> u64 {
    (value.as_f64().expect("seconds") * 1e9).round() as u64
}

fn texts(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().expect("an object").iter();
    pairs.map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned())).collect()
}

fn alert_of(value: &Value) -> (Labels, Alert) {
    let labels = texts(&value["labels"]);
    let labels = Labels::from_pairs(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let state = if value["state"] == "firing" { AlertState::Firing } else { AlertState::Pending };
    let alert = Alert {
        state,
        annotations: texts(&value["annotations"]),
        value: value["value"].as_str().and_then(|text| text.parse().ok()).expect("a number"),
        active_at_ns: time_ns(&value["activeAt"]).expect("a time"),
        fired_at_ns: None,
        resolved_at_ns: None,
        last_sent_at_ns: None,
        keep_firing_since_ns: value.get("keepFiringSince").map(|since| time_ns(since).expect("a time")),
    };
    (labels, alert)
}

/// The state of a rule that Prometheus describes.
fn rule_status_of(value: &Value) -> RuleStatus {
    let health = match value["health"].as_str() {
        Some("ok") => Health::Ok,
        Some("err") => Health::Err(value["lastError"].as_str().expect("a text").to_owned()),
        _ => Health::Unknown,
    };
    let alerts = value.get("alerts").and_then(Value::as_array).into_iter().flatten().map(alert_of);
    RuleStatus {
        health,
        evaluated_ns: time_ns(&value["lastEvaluation"]),
        duration_ns: duration_ns(&value["evaluationTime"]),
        sample_count: 0,
        alerts: Arc::new(Alerts::from_stored(alerts)),
    }
}

/// Fills the list of groups of a tenant with the state in which Prometheus was recorded.
fn put_recorded(server: &Fixture, tenant: &TenantId) {
    let (_, _, body) = recorded().find(|(path, ..)| *path == "/api/v1/rules").expect("recorded");
    let answer: Value = serde_json::from_str(body).expect("JSON");
    let described = answer["data"]["groups"].as_array().expect("a list");
    let groups = groups("rules.yml", RULES);
    assert_eq!(groups.len(), described.len());
    for (group, value) in groups.into_iter().zip(described) {
        let round = time_ns(&value["lastEvaluation"]).map(|started_ns| LastRound {
            time_ns: started_ns,
            started_ns,
            duration_ns: duration_ns(&value["evaluationTime"]),
            is_caught_up: false,
        });
        let rules = value["rules"].as_array().expect("a list").iter().map(rule_status_of).collect();
        let status = GroupStatus { last_round: round, rules, ..GroupStatus::new(group, Origin::Files) };
        server.web.service.rules.put(tenant, Arc::new(status));
    }
}

/// A request path without characters that a URI cannot have.
fn encoded(path: &str) -> String {
    path.replace('{', "%7B").replace('}', "%7D").replace('"', "%22")
}

#[tokio::test]
async fn answers_equal_those_of_prometheus_byte_for_byte() {
    let server = Fixture::ready();
    put_recorded(&server, &TenantId::anonymous());
    let mut compared_count = 0;
    for (path, status, body) in recorded() {
        let answer = server.get(&encoded(path)).await;
        assert_eq!(answer.status.as_u16(), status, "{path}: {}", answer.text);
        if status == 200 {
            assert_eq!(answer.text, body, "{path}");
        } else {
            // Texts of errors are not escaped for HTML.
            let want: Value = serde_json::from_str(body).expect("JSON");
            assert_eq!(answer.json(), want, "{path}");
        }
        compared_count += 1;
    }
    assert_eq!(compared_count, 17);
}

#[tokio::test]
async fn extended_answers_have_counts_besides() {
    let server = Fixture::ready();
    put_recorded(&server, &TenantId::anonymous());
    let mut status = GroupStatus::clone(&server.web.service.rules.groups(&TenantId::anonymous())[0]);
    status.rounds = RoundCounts { evaluated: 9, missed: 1, caught_up: 2, lost: 3, repaired: 4 };
    status.rules[0].sample_count = 7;
    server.web.service.rules.put(&TenantId::anonymous(), Arc::new(status));
    let group = server.get("/api/v1/rules?extended=1").await.json()["data"]["groups"][0].clone();
    let counts = ["missedRounds", "caughtUpRounds", "lostRounds", "repairedRounds"].map(|name| &group[name]);
    assert_eq!(counts, [1, 2, 3, 4]);
    assert_eq!(group["rules"][0]["samples"], 7);
    let plain = server.get("/api/v1/rules").await.text;
    assert!(!plain.contains("Rounds") && !plain.contains("samples"), "{plain}");
}

/// Covers filters that leave groups out between two pages.
#[tokio::test]
async fn pages_have_each_group_once() {
    let server = Fixture::ready();
    put_recorded(&server, &TenantId::anonymous());
    for (filter, want) in [("", 3), ("&type=record", 2), ("&rule_name[]=Later", 1), ("&file[]=x", 0)] {
        let mut names = Vec::new();
        let mut token = String::new();
        loop {
            let next = if token.is_empty() { String::new() } else { format!("&group_next_token={token}") };
            let answer = server.get(&format!("/api/v1/rules?group_limit=1{filter}{next}")).await.json();
            let groups = answer["data"]["groups"].as_array().expect("a list").clone();
            names.extend(groups.iter().map(|group| group["name"].to_string()));
            match answer["data"]["groupNextToken"].as_str() {
                Some(next) => next.clone_into(&mut token),
                None => break,
            }
        }
        assert_eq!(names.len(), want, "{filter}: {names:?}");
        names.dedup();
        assert_eq!(names.len(), want, "{filter}");
    }
}

/// Checks both lists: a group of the API hid the group of a file with the same file and name, and with equal
/// tokens, pages would never come to an end.
#[tokio::test]
async fn equal_groups_of_a_file_and_of_the_api_are_both_listed() {
    let server = Fixture::ready();
    for origin in [Origin::Files, Origin::Configured] {
        let group = groups("f", "groups: [{name: g, rules: [{record: a, expr: up}]}]").remove(0);
        server.web.service.rules.put(&TenantId::anonymous(), Arc::new(GroupStatus::new(group, origin)));
    }
    let all = server.get("/api/v1/rules").await.json();
    assert_eq!(all["data"]["groups"].as_array().map(Vec::len), Some(2));
    let first = server.get("/api/v1/rules?group_limit=1").await.json();
    let token = first["data"]["groupNextToken"].as_str().expect("a second page");
    let second = server.get(&format!("/api/v1/rules?group_limit=1&group_next_token={token}")).await.json();
    assert_eq!(second["data"]["groups"].as_array().map(Vec::len), Some(1));
    assert!(second["data"]["groupNextToken"].is_null(), "{second}");
    let metrics = server.get("/metrics").await.text;
    for origin in ["files", "configured"] {
        let labels = format!("tenant=\"anonymous\",rule_group=\"f;g\",origin=\"{origin}\"");
        assert!(metrics.contains(&format!("chronolith_rule_group_rules{{{labels}}} 1")), "{metrics}");
    }
}

/// Covers a reload that uses the files before the bad one.
#[tokio::test]
async fn a_reload_with_a_bad_file_keeps_all_groups() {
    let server = Fixture::with(|options| {
        options.web.lifecycle = true;
        options.service.rules.files = vec!["/etc/rules/*.yml".into()];
    });
    let server = server.open();
    let disk = server.web.service.env.disk.clone();
    disk.create_dir_all(Path::new("/etc/rules")).expect("a directory");
    let put = |file: &str, group: &str, expr: &str| {
        let text = format!("groups: [{{name: {group}, rules: [{{record: a, expr: '{expr}'}}]}}]");
        disk.write_atomic(&Path::new("/etc/rules").join(file), text.as_bytes()).expect("written");
    };
    let names = async || -> Vec<String> {
        let answer = server.get("/api/v1/rules").await.json();
        let groups = answer["data"]["groups"].as_array().expect("a list").clone();
        groups.iter().map(|group| group["name"].as_str().expect("a name").to_owned()).collect()
    };
    put("a.yml", "one", "up");
    put("b.yml", "two", "up");
    let good = send(&server, "POST", "/-/reload", &[]).await;
    assert_eq!((good.status.as_u16(), names().await), (200, vec!["one".to_owned(), "two".to_owned()]));
    put("a.yml", "three", "up");
    put("b.yml", "two", "sum(");
    let bad = send(&server, "POST", "/-/reload", &[]).await;
    assert_eq!(bad.status.as_u16(), 500, "{}", bad.text);
    assert!(bad.text.contains("/etc/rules/b.yml: 1:"), "{}", bad.text);
    assert_eq!(names().await, ["one", "two"]);
    let is_shown = async |line: &str| server.get("/metrics").await.text.lines().any(|found| found == line);
    assert!(is_shown("chronolith_rules_last_reload_successful 0").await);
    put("b.yml", "two", "sum(up)");
    assert_eq!(send(&server, "POST", "/-/reload", &[]).await.status.as_u16(), 200);
    assert_eq!(names().await, ["three", "two"]);
    assert!(is_shown("chronolith_rules_last_reload_successful 1").await);
}

/// Covers state that was stored before a restart: it is shown before the first round.
#[tokio::test]
async fn a_restored_alert_is_not_unknown() {
    let server = Fixture::ready();
    let group = groups("f", "groups: [{name: g, rules: [{alert: A, expr: up}]}]").remove(0);
    let alert = alert_of(&serde_json::json!({
        "labels": {"alertname": "A"}, "annotations": {}, "state": "firing", "value": "1",
        "activeAt": "2026-01-01T00:00:00Z"
    }));
    let mut status = GroupStatus::new(group, Origin::Files);
    status.rules[0].alerts = Arc::new(Alerts::from_stored([alert]));
    server.web.service.rules.put(&TenantId::anonymous(), Arc::new(status));
    let answer = server.get("/api/v1/rules").await.json();
    let rule = &answer["data"]["groups"][0]["rules"][0];
    assert_eq!((&rule["state"], &rule["health"]), (&"firing".into(), &"unknown".into()));
}

async fn get_as(server: &Fixture, token: &str, tenant: &str, path: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("x-scope-orgid", tenant)];
    send(server, "GET", path, &headers).await
}

/// Alerts have labels and annotations of series, and expressions name them.
#[tokio::test]
async fn a_principal_with_matchers_sees_the_alerts_that_it_may_read_and_no_rules() {
    let reader = |matchers: &str| format!("  tenants: [a]\n  scopes: [read]\n  matchers: '{matchers}'\n");
    let server = guarded(
        true,
        &[
            entry("all", "  tenants: [a, b]\n  scopes: [read]\n"),
            entry("page", &reader("{severity=\"page\"}")),
            entry("pending", &reader("{__name__=\"ALERTS\", alertstate=\"pending\"}")),
            entry("up", &reader("{__name__=\"up\"}")),
            entry("writer", "  tenants: [a]\n  scopes: [write]\n"),
        ],
    );
    let tenant = TenantId::new("a").expect("a name");
    put_recorded(&server, &tenant);
    for (token, want) in [
        ("all", &["Kept", "Firing", "Pending", "Large"][..]),
        ("page", &["Firing"]),
        ("pending", &["Pending"]),
        ("up", &[]),
    ] {
        let answer = get_as(&server, token, "a", "/api/v1/alerts").await;
        let json = answer.json();
        let alerts = json["data"]["alerts"].as_array().expect("a list");
        let names: Vec<_> = alerts.iter().map(|alert| alert["labels"]["alertname"].as_str()).collect();
        assert_eq!(names, want.iter().map(|name| Some(*name)).collect::<Vec<_>>(), "{token}");
        let rules = get_as(&server, token, "a", "/api/v1/rules").await;
        assert_eq!(rules.status.as_u16(), if token == "all" { 200 } else { 403 }, "{token}: {}", rules.text);
    }
    for path in ["/api/v1/rules", "/api/v1/alerts"] {
        assert_eq!(get_as(&server, "writer", "a", path).await.status.as_u16(), 403, "{path}");
        let of_other = get_as(&server, "all", "b", path).await;
        assert!(of_other.text.contains("[]"), "{path} of another tenant: {}", of_other.text);
        let of_both = get_as(&server, "all", "a|b", path).await;
        assert_eq!(of_both.status.as_u16(), 400, "{path} of two tenants: {}", of_both.text);
    }
}
