//! Mimir's API that changes rules: answers, errors, rights, tenants, the audit log.

use axum::body::Body;
use axum::http::{Method, Request, header};

use super::*;
use crate::http::tests::access::guarded_with;
use crate::http::tests::audit::{AUDIT_FILE, lines, wait_for_lines};

const GROUP: &str = "name: g\ninterval: 1m\nrules:\n- alert: Down\n  expr: 'up == 0'\n  for: 5m\n";
const PRINTED: &str =
    "name: g\ninterval: 1m\nrules:\n    - alert: Down\n      expr: up == 0\n      for: 5m\n";
const ACCEPTED: &str = r#"{"status":"success","data":null,"errorType":"","error":""}"#;

async fn request(server: &Fixture, method: Method, path: &str, body: &str) -> Answer {
    request_as(server, "", "", method, path, body).await
}

async fn request_as(
    server: &Fixture,
    token: &str,
    tenant: &str,
    method: Method,
    path: &str,
    body: &str,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if !token.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if !tenant.is_empty() {
        request = request.header("x-scope-orgid", tenant);
    }
    server.send(request.body(Body::from(body.to_owned())).expect("a request")).await
}

#[track_caller]
fn check(answer: &Answer, status: u16, text: &str) {
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (status, text));
}

#[tokio::test]
async fn a_group_is_set_listed_and_deleted_as_in_mimir() {
    let server = Fixture::ready();
    let root = "/config/v1/rules";
    let empty = server.get(root).await;
    check(&empty, 200, "{}\n");
    assert_eq!(empty.headers[header::CONTENT_TYPE], "application/yaml");
    let set = request(&server, Method::POST, &format!("{root}/a%2Fb%20c"), GROUP).await;
    check(&set, 202, ACCEPTED);
    assert_eq!(set.headers[header::CONTENT_TYPE], "application/json");
    let second = GROUP.replace("name: g", "name: 'h/i'").replace("Down", "Other");
    check(
        &request(&server, Method::POST, &format!("/prometheus{root}/second"), &second).await,
        202,
        ACCEPTED,
    );
    let listed = "a/b c:\n    - name: g\n      interval: 1m\n      rules:\n        - alert: Down\n          \
                  expr: up == 0\n          for: 5m\n";
    let all = server.get(root).await.text;
    assert!(all.starts_with(&format!("{listed}second:\n    - name: h/i\n")), "{all}");
    assert_eq!(server.get(&format!("/prometheus{root}")).await.text, all);
    check(&server.get(&format!("{root}/a%2Fb%20c")).await, 200, listed);
    check(&server.get(&format!("{root}/a%2Fb%20c/g")).await, 200, PRINTED);
    assert_eq!(server.get(&format!("{root}/second/h%2Fi")).await.status.as_u16(), 200);
    check(&server.get(&format!("{root}/none")).await, 200, "{}\n");
    check(&server.get(&format!("{root}/second/g")).await, 404, "group does not exist\n");
    // The file of a group is its namespace; it is not evaluated yet.
    let rules = server.get("/api/v1/rules?file[]=a/b%20c").await.json();
    let group = &rules["data"]["groups"][0];
    assert_eq!((&group["name"], &group["rules"][0]["health"]), (&"g".into(), &"unknown".into()));
    let replaced = GROUP.replace("5m", "10m");
    check(&request(&server, Method::POST, &format!("{root}/a%2Fb%20c"), &replaced).await, 202, ACCEPTED);
    let rules = server.get("/api/v1/rules?file[]=a/b%20c").await.json();
    assert_eq!(rules["data"]["groups"][0]["rules"][0]["duration"], 600);
    check(&request(&server, Method::DELETE, &format!("{root}/a%2Fb%20c/g"), "").await, 202, ACCEPTED);
    let gone = request(&server, Method::DELETE, &format!("{root}/a%2Fb%20c/g"), "").await;
    check(&gone, 404, "group does not exist\n");
    check(&request(&server, Method::DELETE, &format!("{root}/second"), "").await, 202, ACCEPTED);
    let gone = request(&server, Method::DELETE, &format!("{root}/second"), "").await;
    check(&gone, 404, "group namespace does not exist\n");
    assert_eq!(server.get("/api/v1/rules").await.text, r#"{"status":"success","data":{"groups":[]}}"#);
}

#[tokio::test]
async fn wrong_groups_get_400_with_their_faults() {
    let server = Fixture::ready();
    for (path, body, want) in [
        (
            "a",
            "name: g\nrules:\n- {record: r, expr: 'sum('}\n",
            "could not parse expression: 1:5: parse error",
        ),
        ("a", "name: g\n", "invalid rules configuration: rule group 'g' has no rules"),
        ("a", "", "Groupname must not be empty"),
        ("a", "name: [", "yaml: "),
        (
            "a",
            "name: g\nevaluation_delay: 1m\n",
            "field evaluation_delay not found in type rulefmt.RuleGroup",
        ),
        ("%ff", GROUP, "is not UTF-8"),
        (&"a".repeat(300), GROUP, "bytes of the encoded name of the namespace: 300, the limit is 240"),
    ] {
        let answer = request(&server, Method::POST, &format!("/config/v1/rules/{path}"), body).await;
        assert_eq!(answer.status.as_u16(), 400, "{}", answer.text);
        assert!(answer.text.contains(want), "{}", answer.text);
    }
    let large = format!("{GROUP}#{}", "x".repeat(1 << 20));
    let answer = request(&server, Method::POST, "/config/v1/rules/a", &large).await;
    assert_eq!(answer.status.as_u16(), 413, "{}", answer.text);
    check(&server.get("/config/v1/rules").await, 200, "{}\n");
}

#[tokio::test]
async fn an_api_that_is_switched_off_is_unknown() {
    let server = Fixture::with(|options| options.web.rules_api = false).open();
    for (method, path) in [
        (Method::GET, "/config/v1/rules"),
        (Method::POST, "/config/v1/rules/a"),
        (Method::DELETE, "/prometheus/config/v1/rules/a/b"),
    ] {
        check(&request(&server, method, path, GROUP).await, 404, "404 page not found\n");
    }
}

#[tokio::test]
async fn tenants_and_scopes_of_configured_rules_are_apart() {
    let server = guarded(
        true,
        &[
            entry("editor", "  tenants: [a, b]\n  scopes: [rules]\n"),
            entry("reader", "  tenants: [a]\n  scopes: [read]\n"),
            entry("some", "  tenants: [a]\n  scopes: [rules]\n  matchers: '{team=\"x\"}'\n"),
        ],
    );
    let path = "/config/v1/rules/ns";
    let set = |token: &'static str, tenant: &'static str| {
        request_as(&server, token, tenant, Method::POST, path, GROUP)
    };
    assert_eq!(set("editor", "a").await.status.as_u16(), 202);
    for (token, tenant) in [("reader", "a"), ("some", "a"), ("editor", "c"), ("reader", "b")] {
        assert_eq!(set(token, tenant).await.status.as_u16(), 403, "{token} {tenant}");
    }
    assert_eq!(set("editor", "a|b").await.status.as_u16(), 400);
    let read = async |token: &str, tenant: &str| get_as(&server, token, tenant, "/config/v1/rules").await;
    assert_eq!(read("some", "a").await.status.as_u16(), 403);
    assert!(read("reader", "a").await.text.starts_with("ns:\n    - name: g\n"));
    check(&read("editor", "b").await, 200, "{}\n");
    let deleted = request_as(&server, "editor", "b", Method::DELETE, path, "").await;
    assert_eq!(deleted.status.as_u16(), 404, "the namespace of another tenant");
}

#[tokio::test]
async fn a_change_has_two_lines_in_the_audit_log() {
    let server = guarded_with(&[entry("editor", "  tenants: '*'\n  scopes: [rules]\n")], |options| {
        options.service.audit.file = Some(AUDIT_FILE.into());
    });
    server.web.service.audit.open(&*server.web.service.env.disk).expect("opens");
    let before = lines(&server).len();
    let answer = request_as(&server, "editor", "", Method::POST, "/config/v1/rules/ns", GROUP).await;
    check(&answer, 202, ACCEPTED);
    let written = wait_for_lines(&server, before + 2).await;
    let shown: Vec<_> = written[before..].iter().map(|line| (&line["result"], &line["action"])).collect();
    let action = Value::from("POST /config/v1/rules/ns");
    assert_eq!(shown, [(&"begin".into(), &action), (&"done".into(), &action)]);
    assert_eq!(written[before + 1]["principal"], "editor");
    assert_eq!(written[before + 1]["counts"]["group"], "g");
}

/// Covers rules that come back after the deletion of their tenant, and its series with them.
#[tokio::test]
async fn rules_go_with_their_tenant_and_cannot_be_added_meanwhile() {
    let server = Fixture::with(|options| {
        options.service.multitenancy = true;
        options.web.admin_api = true;
    });
    let server = server.open();
    for tenant in ["a", "b"] {
        let set = request_as(&server, "", tenant, Method::POST, "/config/v1/rules/ns", GROUP).await;
        check(&set, 202, ACCEPTED);
    }
    assert_eq!(send(&server, "DELETE", "/api/v1/admin/tenants/a", &[]).await.status.as_u16(), 202);
    let list =
        async |tenant: &str| request_as(&server, "", tenant, Method::GET, "/config/v1/rules", "").await;
    check(&list("a").await, 200, "{}\n");
    assert!(list("b").await.text.starts_with("ns:\n"));
    let refused = request_as(&server, "", "a", Method::POST, "/config/v1/rules/ns", GROUP).await;
    check(&refused, 503, "the tenant is being deleted\n");
    let store = server.web.service.lifecycle.store().expect("open").clone();
    tokio::task::spawn_blocking(move || store.tenant_deletions().run(|_| Ok(true))).await.expect("no panic");
    let set = request_as(&server, "", "a", Method::POST, "/config/v1/rules/ns", GROUP).await;
    check(&set, 202, ACCEPTED);
}

#[tokio::test]
async fn metrics_count_configured_groups() {
    let server = Fixture::ready();
    check(&request(&server, Method::POST, "/config/v1/rules/ns", GROUP).await, 202, ACCEPTED);
    let metrics = server.get("/metrics").await.text;
    for line in [
        "chronolith_rules_configured_groups 1",
        "chronolith_rules_configured_damaged_namespaces 0",
        "chronolith_rules_configured_write_failures_total 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}");
    }
}
