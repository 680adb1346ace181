//! Backfills over HTTP: lines, repetition, refusals, positions, tenants, rights.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::Value;

use super::*;
use crate::http::tests::access::guarded_with;
use crate::http::tests::audit::{AUDIT_FILE, lines as audit_lines, wait_for_lines};
use crate::http::tests::{NOW_MS, Pairs};

const PATH: &str = "/api/v1/admin/rules/backfill";
const RULES: &str = "groups:
- name: g
  interval: 30s
  rules:
  - {record: a, expr: sum by (job) (x)}
  - {record: b, expr: a * 2}
  - {alert: C, expr: b > 1}
";
const START_S: i64 = NOW_MS / 1000 - 3600;

fn enabled() -> Fixture {
    Fixture::with(|options| options.web.admin_api = true).open()
}

/// Writes an hour of two series.
async fn write_samples(server: &Fixture) {
    let samples: Vec<(i64, f64)> =
        (0..240).map(|step| (NOW_MS - 3_600_000 + step * 15_000, step as f64)).collect();
    let series: [Pairs<'_>; 2] = [&[("__name__", "x"), ("job", "1")], &[("__name__", "x"), ("job", "2")]];
    let written = server.write(&series.map(|labels| (labels, &samples[..]))).await;
    assert_eq!(written.status.as_u16(), 204, "{}", written.text);
}

async fn post(
    server: &Fixture,
    parameters: &str,
    kind: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let request = Request::post(format!("{PATH}?{parameters}")).header(header::CONTENT_TYPE, kind);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    server.send(request.body(Body::from(body.to_owned())).expect("a request")).await
}

async fn post_yaml(server: &Fixture, parameters: &str, body: &str) -> Answer {
    post(server, parameters, "application/yaml", &[], body).await
}

#[track_caller]
fn json_lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/x-ndjson");
    answer.text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[track_caller]
fn totals(lines: &[Value]) -> [u64; 4] {
    let last = lines.last().expect("a line");
    assert_eq!((&last["event"], &last["status"]), (&"end".into(), &"success".into()), "{last}");
    ["added", "replaced", "removed", "equal"].map(|name| last["totals"][name].as_u64().expect("a number"))
}

fn range() -> String {
    format!("start={START_S}&end={}", NOW_MS / 1000)
}

#[tokio::test]
async fn history_is_recorded_with_its_progress_and_once() {
    let server = enabled();
    write_samples(&server).await;
    let dry = json_lines(&post_yaml(&server, &format!("{}&dry_run=true", range()), RULES).await);
    assert_eq!(dry[0]["estimate"], true);
    assert!(totals(&dry)[0] > 200, "{dry:?}");
    let lines = json_lines(&post_yaml(&server, &range(), RULES).await);
    let begin = &lines[0];
    assert_eq!((&begin["event"], &begin["rules"], &begin["stages"]), (&"begin".into(), &2.into(), &2.into()));
    assert_eq!(begin["skippedAlertingRules"], serde_json::json!(["C"]));
    let progress: Vec<&Value> = lines.iter().filter(|line| line["event"] == "progress").collect();
    assert_eq!(lines.len(), progress.len() + 2);
    assert_eq!((&progress[0]["group"], &progress[0]["rule"]), (&"g".into(), &"a".into()));
    let last = progress.last().expect("progress");
    assert_eq!((&last["rule"], &last["done"], &last["stage"]), (&"b".into(), &begin["rounds"], &2.into()));
    let [added, replaced, removed, equal] = totals(&lines);
    assert!(added > 470 && (replaced, removed, equal) == (0, 0, 0), "{added}");
    let again = totals(&json_lines(&post_yaml(&server, &range(), RULES).await));
    assert_eq!(again, [0, 0, 0, added]);
    let form = format!("query=count(b %3D%3D on (job) 2 * a)&time={}", START_S + 1800);
    let found = server.post_form("/api/v1/query", &form).await.json();
    assert_eq!(found["data"]["result"][0]["value"][1], "2", "{found}");
    // Several files are one run; the name of a file decides the times of its rounds.
    let files = serde_json::json!({ "files": [
        { "name": "1.yml", "content": RULES.replace("record: b", "record: c") },
        { "name": "2.yml", "content": "groups: [{name: h, interval: 30s, rules: [{record: d, expr: c + 1}]}]" },
    ]});
    let several = post(&server, &range(), "application/json", &[], &files.to_string()).await;
    let lines = json_lines(&several);
    assert_eq!((&lines[0]["groups"], &lines[0]["rules"]), (&2.into(), &3.into()));
    assert!(lines.iter().any(|line| line["file"] == "2.yml" && line["rule"] == "d"));
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("\nchronolith_rule_backfill_rounds_total "), "{metrics}");
}

#[tokio::test]
async fn a_position_goes_on_where_a_backfill_was() {
    let server = enabled();
    write_samples(&server).await;
    let lines = json_lines(&post_yaml(&server, &range(), RULES).await);
    let first = lines[1]["resume"].as_str().expect("a position");
    let rest = json_lines(&post_yaml(&server, &format!("{}&resume={first}", range()), RULES).await);
    let number = |line: &Value, name: &str| line[name].as_u64().expect("a number");
    assert!(number(&rest[1], "done") > number(&lines[1], "done"), "without the first chunk");
    let [added, .., equal] = totals(&rest);
    let before = number(&lines[1]["totals"], "added");
    assert_eq!((added, equal + before), (0, totals(&lines)[0]));
    let other = format!("start={}&end={}&resume={first}", START_S + 1, NOW_MS / 1000);
    let refused = post_yaml(&server, &other, RULES).await;
    assert_eq!(refused.status.as_u16(), 400, "{}", refused.text);
    assert!(refused.text.contains("of other rules, or of another range"), "{}", refused.text);
}

#[tokio::test]
async fn wrong_requests_get_errors_in_json() {
    let server = enabled();
    let end = NOW_MS / 1000;
    for (parameters, body, want) in [
        (String::new(), RULES, "invalid parameter \\\"start\\\""),
        (format!("start={end}&end={end}"), RULES, "start has to be before end"),
        (format!("start=5&end={}", end + 60), RULES, "in the future"),
        (format!("{}&group[]=z", range()), RULES, "there is no group \\\"z\\\""),
        (format!("{}&dry_run=maybe", range()), RULES, "unable to parse boolean"),
        (format!("{}&resume=x", range()), RULES, "is no position of a backfill"),
        (
            format!("{}&name=f.yml", range()),
            "groups: [{name: g, rules: [{record: a, expr: 'b ='}]}]",
            "f.yml: 1:",
        ),
        (range(), "groups: []", "there is no recording rule"),
    ] {
        let answer = post_yaml(&server, &parameters, body).await;
        assert_eq!(answer.status.as_u16(), 400, "{parameters}: {}", answer.text);
        assert!(
            answer.text.starts_with("{\"status\":\"error\",\"errorType\":\"bad_data\"")
                && answer.text.contains(want),
            "{}",
            answer.text
        );
    }
    let no_files = post(&server, &range(), "application/json", &[], "{}").await;
    assert!(no_files.status.as_u16() == 400 && no_files.text.contains("files"), "{}", no_files.text);
    let off = post_yaml(&Fixture::ready(), &range(), RULES).await;
    assert!(off.status.as_u16() == 503 && off.text.contains("web.enable-admin-api"), "{}", off.text);
    assert_eq!(post_yaml(&Fixture::read_only_store(), &range(), RULES).await.status.as_u16(), 405);
    assert_eq!(post_yaml(&Fixture::read_only(), &range(), RULES).await.status.as_u16(), 405);
}

#[tokio::test]
async fn a_backfill_needs_the_scope_of_rules_and_is_of_its_tenant() {
    let entries = [
        entry("editor", "  tenants: '*'\n  scopes: [rules]\n"),
        entry("reader", "  tenants: '*'\n  scopes: [read]\n"),
        entry("some", "  tenants: '*'\n  scopes: [rules]\n  matchers: '{job=\"1\"}'\n"),
    ];
    let server = guarded_with(&entries, |options| {
        options.service.multitenancy = true;
        options.service.audit.file = Some(AUDIT_FILE.into());
    });
    server.web.service.audit.open(&*server.web.service.env.disk).expect("opens");
    let before = audit_lines(&server).len();
    let send = async |token: &str, tenant: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("x-scope-orgid", tenant)];
        let rules = "groups: [{name: g, rules: [{record: a, expr: 'vector(1)'}]}]";
        post(&server, &format!("{}&name=r.yml", range()), "application/yaml", &headers, rules).await
    };
    assert_eq!(send("reader", "a").await.status.as_u16(), 403);
    assert_eq!(send("some", "a").await.status.as_u16(), 403);
    let added = totals(&json_lines(&send("editor", "a").await))[0];
    assert_eq!(totals(&json_lines(&send("editor", "b").await)), [added, 0, 0, 0], "another tenant");
    assert_eq!(totals(&json_lines(&send("editor", "a").await)), [0, 0, 0, added]);
    let written = wait_for_lines(&server, before + 8).await;
    let action = Value::from(format!("POST {PATH}"));
    let shown: Vec<_> =
        written.iter().filter(|line| line["action"] == action && line["principal"] == "editor").collect();
    assert_eq!(shown.len(), 6, "{written:?}");
    assert_eq!((&shown[0]["result"], &shown[0]["target"]["name"]), (&"begin".into(), &"r.yml".into()));
}
