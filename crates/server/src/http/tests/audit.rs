//! The audit log: fields of lines, a full disk, refused requests, queries, and no secret anywhere.

use std::path::Path;

use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronolith_base::MemDisk;
use chronolith_service::access::directory::hash_of_token;

use super::access::{entry, guarded_with, send};
use super::*;

/// Path of the log in the tests.
pub(crate) const AUDIT_FILE: &str = "/audit.json";

/// Lines of the log, in order.
pub(crate) fn lines(server: &Fixture) -> Vec<Value> {
    let text = server.web.service.env.disk.read(Path::new(AUDIT_FILE)).unwrap_or_default();
    let text = String::from_utf8(text).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Lines of the log, as soon as there are `count`: some are written after the response.
pub(crate) async fn wait_for_lines(server: &Fixture, count: usize) -> Vec<Value> {
    for _ in 0..1_000_000 {
        if server.web.service.audit.lines.get() >= count as u64 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let lines = lines(server);
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

fn with_log(change: impl FnOnce(&mut ServerOptions)) -> Fixture {
    Fixture::with(|options| {
        options.web.admin_api = true;
        options.web.lifecycle = true;
        options.service.audit.file = Some(AUDIT_FILE.into());
        change(options);
    })
    .open()
}

/// A server with its disk, which can fill up.
fn on_disk() -> (Fixture, Arc<MemDisk>) {
    let (env, _clock, disk) = Env::fake(NOW_MS, 1);
    let mut options = ServerOptions::new("/data".into());
    options.web.admin_api = true;
    options.service.audit.file = Some(AUDIT_FILE.into());
    options.service.audit.has_queries = true;
    (Fixture::new(Arc::new(Web::new(env, options, None))).open(), disk)
}

#[tokio::test]
async fn a_deletion_has_its_selectors_and_its_number_of_series() {
    let server = with_log(|_| {});
    server.store_series("anonymous", 0, &[&[("__name__", "up"), ("job", "a")], &[("__name__", "up")]]);
    let answer = server.post_form("/api/v1/admin/tsdb/delete_series?start=1", "match[]=up&x=y").await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "{}", answer.text);
    let [begin, done] = &lines(&server)[..] else { panic!("two lines") };
    assert_eq!(begin["target"], serde_json::json!({"match[]": ["up"], "start": "1"}));
    assert_eq!(begin["tenants"], serde_json::json!(["anonymous"]));
    assert_eq!(
        (&begin["result"], &done["result"], &done["status"]),
        (&"begin".into(), &"done".into(), &204.into())
    );
    assert_eq!(done["counts"], serde_json::json!({"series": 2, "blocks": 1}));
    assert_eq!(begin["requestId"], done["requestId"]);
}

#[tokio::test]
async fn a_full_disk_stops_actions_and_neither_writes_nor_queries() {
    let (server, disk) = on_disk();
    server.store_series("anonymous", 0, &[&[("__name__", "up")]]);
    // The room that the log has allocated stays; a new file of the audit log has none.
    disk.set_capacity_bytes(disk.len_bytes());
    let refused = server.post_form("/api/v1/admin/tsdb/delete_series", "match[]=up").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.text.contains("its line cannot be written to the audit log (audit.file)"),
        "{}",
        refused.text
    );
    let refused = server.post_form("/query", "q=CREATE DATABASE a").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    let found = server.get(&format!("/api/v1/query?query=up&time={NOW_S}")).await;
    assert_eq!(found.json()["data"]["result"][0]["value"][1], "1", "nothing was deleted: {}", found.text);
    let written = server.write(&[(&[("__name__", "up")], &[(NOW_MS + 1000, 2.0)])]).await;
    assert_eq!(written.status, StatusCode::NO_CONTENT, "{}", written.text);
    // Two actions, and the lines of two requests for queries, which are written after their responses.
    while server.web.service.audit.failures.get() < 4 {
        tokio::task::yield_now().await;
    }
    assert!(server.get("/metrics").await.text.contains("chronolith_audit_failures_total 4\n"));
    disk.set_capacity_bytes(u64::MAX);
    let deleted = server.post_form("/api/v1/admin/tsdb/delete_series", "match[]=up").await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text);
}

#[tokio::test]
async fn refused_requests_name_a_known_user_alone() {
    let user = "- name: ops\n  user: ops\n  password_bcrypt: $2y$04$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG\n  scopes: [admin]\n";
    let entries = [entry("reader", "  scopes: [read]\n"), user.to_owned()];
    let server = guarded_with(&entries, |options| options.service.audit.file = Some(AUDIT_FILE.into()));
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    for credentials in [basic("ops:guess"), basic("secret-token:"), "Bearer reader".to_owned()] {
        let headers = [(AUTHORIZATION.as_str(), credentials.as_str())];
        let answer = send(&server, "POST", "/-/reload", &headers).await;
        assert!(answer.status.is_client_error(), "{}", answer.text);
    }
    let lines = lines(&server);
    let shown: Vec<_> =
        lines.iter().map(|line| (&line["result"], &line["principal"], &line["user"])).collect();
    let refused = Value::from("refused");
    let ops = Value::from("ops");
    let reader = Value::from("reader");
    let null = Value::Null;
    assert_eq!(shown, [(&refused, &null, &ops), (&refused, &null, &null), (&refused, &reader, &null)]);
    assert_eq!(lines[0]["error"], "authentication failed");
    assert!(lines[2]["error"].as_str().expect("text").contains("scope admin is missing"), "{}", lines[2]);
}

#[tokio::test]
async fn queries_of_all_languages_have_lines_where_they_are_asked_for() {
    let paths = [
        ("/api/v1/query?query=up&time=1", "query", "up"),
        ("/api/v1/query_range?query=up&start=1&end=2&step=1", "query", "up"),
        ("/api/v1/series?match[]=up", "match[]", "[\"up\"]"),
        ("/query?db=a&q=SHOW+DATABASES", "statements", "[\"SHOW DATABASES\"]"),
        ("/render?target=a.b&format=json", "target", "a.b"),
        ("/federate?match[]=up", "match[]", "[\"up\"]"),
    ];
    for has_queries in [false, true] {
        let server = with_log(|options| options.service.audit.has_queries = has_queries);
        for (idx, (path, name, want)) in paths.iter().enumerate() {
            let answer = server.get(path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
            if has_queries {
                let lines = wait_for_lines(&server, idx + 1).await;
                let target = &lines[idx]["target"][name];
                let shown = target.as_str().map_or_else(|| target.to_string(), str::to_owned);
                assert_eq!((shown.as_str(), &lines[idx]["status"]), (*want, &200.into()), "{path}");
            }
        }
        if !has_queries {
            assert_eq!(lines(&server).len(), 0);
        }
    }
}

#[tokio::test]
async fn a_query_as_a_form_has_its_text() {
    let server = with_log(|options| options.service.audit.has_queries = true);
    server.post_form("/api/v1/query", "query=up&time=1").await;
    let lines = wait_for_lines(&server, 1).await;
    assert_eq!(lines[0]["target"], serde_json::json!({"query": "up", "time": "1"}));
}

#[tokio::test]
async fn a_reload_by_signal_has_lines_and_needs_them() {
    let (server, disk) = on_disk();
    crate::http::reload_by_signal(&server.web);
    let results: Vec<_> = lines(&server).iter().map(|line| line["result"].clone()).collect();
    assert_eq!(results, ["begin", "done"]);
    assert_eq!(lines(&server)[0]["action"], "SIGHUP");
    disk.set_capacity_bytes(0);
    crate::http::reload_by_signal(&server.web);
    assert_eq!(lines(&server).len(), 2, "refused before it begins, so there is no line of its end");
}

#[tokio::test]
async fn a_changed_access_file_has_a_line() {
    let entries = [entry("reader", "  scopes: [read]\n")];
    let server = guarded_with(&entries, |options| options.service.audit.file = Some(AUDIT_FILE.into()));
    server.web.refresh_access();
    assert_eq!(lines(&server).len(), 0, "the file is as it was");
    super::access::write_file(
        &server,
        &[entry("reader", "  scopes: [read]\n"), entry("other", "  scopes: [read]\n")],
    );
    server.web.refresh_access();
    super::access::write_file(&server, &["- name: 7".to_owned()]);
    server.web.refresh_access();
    let lines = lines(&server);
    assert_eq!(lines.iter().map(|line| line["action"].clone()).collect::<Vec<_>>(), ["access file read"; 2]);
    assert_eq!((&lines[0]["result"], &lines[0]["counts"]["principals"]), (&"done".into(), &2.into()));
    assert_eq!((&lines[1]["result"], &lines[1]["counts"]["principals"]), (&"failed".into(), &2.into()));
}

/// Part of every secret of the requests below.
const SECRET: &str = "s3cr3t";
const LINES: usize = 10_000;

/// Method, path, form and header with credentials of requests with a secret in every place that has one.
fn requests_with_secrets(number: usize) -> Vec<(&'static str, String, String, Option<String>)> {
    let secret = format!("{SECRET}{number}");
    let create = format!("CREATE+USER+a{number}+WITH+PASSWORD+'{secret}'+WITH+ALL+PRIVILEGES");
    let set = format!("SET+PASSWORD+FOR+a{number}+%3D+'{secret}'");
    let basic = format!("Basic {}", STANDARD.encode(format!("ops:{secret}")));
    let as_user = format!("Basic {}", STANDARD.encode(format!("{secret}:")));
    let delete = "/api/v1/admin/tsdb/delete_series";
    vec![
        ("GET", format!("/query?u=a&p={secret}&q=SHOW+DATABASES"), String::new(), None),
        ("POST", format!("/query?u={secret}&p={secret}"), format!("q={set}&p={secret}&u=a"), None),
        ("GET", format!("/query?q={set}"), String::new(), None),
        ("POST", "/query".to_owned(), format!("q={create}+garbage&params={{\"x\":\"{secret}\"}}"), None),
        (
            "POST",
            format!("{delete}?match[]=up&token={secret}"),
            format!("password={secret}"),
            Some(basic.clone()),
        ),
        ("POST", delete.to_owned(), "match[]=up".to_owned(), Some(as_user)),
        (
            "GET",
            format!("/api/v1/query?query=up&access_token={secret}"),
            String::new(),
            Some(format!("Bearer {secret}")),
        ),
        (
            "GET",
            format!("/render?target=a&format=json&apikey={secret}"),
            String::new(),
            Some(format!("Token a:{secret}")),
        ),
        ("POST", "/-/reload".to_owned(), String::new(), Some(format!("Token {secret}"))),
        (
            "POST",
            "/api/v1/status/active_queries/kill?id=1".to_owned(),
            format!("token={secret}"),
            Some(basic),
        ),
    ]
}

#[tokio::test]
async fn no_secret_is_in_any_line() {
    let open = with_log(|options| options.service.audit.has_queries = true);
    let users = with_log(|options| {
        options.service.audit.has_queries = true;
        options.service.influx.auth_enabled = true;
    });
    let hash: String =
        hash_of_token(&format!("{SECRET}0")).iter().map(|byte| format!("{byte:02x}")).collect();
    let entries = [format!("- name: ops\n  token_sha256: {hash}\n  scopes: [read, admin]\n")];
    let guarded = guarded_with(&entries, |options| {
        options.service.audit.file = Some(AUDIT_FILE.into());
        options.service.audit.has_queries = true;
    });
    let servers = [open, users, guarded];
    let create = format!("q=CREATE USER a0 WITH PASSWORD '{SECRET}0' WITH ALL PRIVILEGES");
    for server in &servers[..2] {
        let created = server.post_form("/query", &create).await;
        assert_eq!(created.status, StatusCode::OK, "{}", created.text);
    }
    let line_count = || servers.iter().map(|server| server.web.service.audit.lines.get()).sum::<u64>();
    let mut number = 0;
    while line_count() < LINES as u64 {
        // Right and wrong credentials everywhere once; then without the slow hashes of passwords.
        let (requests, targets) = match number {
            0 | 1 => (requests_with_secrets(number), &servers[..]),
            _ => (requests_with_secrets(0).split_off(3), &servers[..1]),
        };
        for (method, path, form, authorization) in requests {
            for server in targets {
                let path = path.replace(['[', ']', '\''], "%27").replace("match%27%27", "match[]");
                let request = Request::builder().method(method).uri(path.as_str());
                let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                let request = match &authorization {
                    Some(value) => request.header(AUTHORIZATION, value),
                    None => request,
                };
                server.send(request.body(Body::from(form.clone())).expect("a request")).await;
            }
        }
        number += 1;
    }
    let mut kinds = std::collections::BTreeSet::new();
    for server in &servers {
        let text = server.web.service.env.disk.read(Path::new(AUDIT_FILE)).expect("the log");
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(!text.contains(SECRET), "{}", text.lines().find(|line| line.contains(SECRET)).unwrap_or(""));
        kinds.extend(lines(server).iter().map(|line| line["result"].to_string()));
    }
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["\"begin\"", "\"done\"", "\"failed\"", "\"refused\""]);
}
