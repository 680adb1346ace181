//! Migration of Graphite: events and tags of graphite-web to a running server.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::{Server, temp_dir};

fn run(dir: &Path, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("chronolith runs");
    // A process that does not read its input closes it.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("chronolith ends")
}

#[track_caller]
fn check(output: &Output, code: i32, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

const EVENTS: &str = r#"[
    {"id": 1, "what": "release", "when": 1700000000, "tags": ["deploy", "web"], "data": "a \"b\" ü"},
    {"id": 2, "what": "restart", "when": 1700000060, "tags": "web  db", "data": null},
    {"id": 3, "what": "no time", "tags": []},
    {"id": 4, "what": "release", "when": 1700000000, "tags": "deploy web", "data": "a \"b\" ü"}
]"#;

#[test]
fn events_of_graphite_web_are_imported_once() {
    let dir = temp_dir();
    fs::write(dir.path().join("events.json"), EVENTS).expect("a file");
    let server = Server::start(&dir.path().join("data"), &["--self-scrape", "off"]);
    let url = format!("http://127.0.0.1:{}", server.port);
    let stored = || {
        let answer = server.request("GET", "/events/get_data", &[], b"");
        let list: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        list.as_array().expect("a list").clone()
    };
    let import = ["import", "graphite-events", "events.json", "--to", &url];
    let bad = "left out: entry 2: \"when\" is missing";
    check(&run(dir.path(), &[&import[..], &["--dry-run"]].concat(), ""), 1, &["3 events\n", bad]);
    assert!(stored().is_empty());
    let first = run(dir.path(), &import, "");
    check(&first, 1, &["3 events imported, 0 were there already", bad]);
    check(&run(dir.path(), &import, ""), 1, &["0 events imported, 3 were there already", bad]);
    let events = stored();
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["data"], "a \"b\" ü");
    assert_eq!((&events[2]["tags"], &events[2]["data"]), (&serde_json::json!(["web", "db"]), &"".into()));
    // The list of a server is an input, too; what it has grown by is added.
    let mut list = events;
    list.push(serde_json::json!({"what": "new", "when": 1_700_000_100, "tags": [], "data": ""}));
    list.push(serde_json::json!({"what": "x".repeat(100_000), "when": 1_700_000_100}));
    let input = serde_json::Value::from(list).to_string();
    let import = ["import", "graphite-events", "-", "--to", &url];
    let grown = run(dir.path(), &import, &input);
    check(&grown, 1, &["1 events imported, 3 were there already", "left out: entry 4: status 422: "]);
    assert_eq!(stored().len(), 4);
    check(&run(dir.path(), &import, "{}"), 1, &["- is no list of graphite-web as JSON"]);
    check(&run(dir.path(), &["import", "graphite-events", "no.json"], ""), 1, &["no.json"]);
    check(&run(dir.path(), &["import", "graphite-events"], ""), 2, &[]);
}

#[test]
fn tags_of_graphite_web_are_registered() {
    let dir = temp_dir();
    let server = Server::start(&dir.path().join("data"), &["--self-scrape", "off"]);
    let url = format!("http://127.0.0.1:{}", server.port);
    let mut input = String::from(r#"["disk;dc=x;host=a", "disk;novalue", 7, "#);
    for idx in 0..450 {
        let _ = write!(input, r#""disk;host=h{idx}","#);
    }
    input.push_str(r#"{"model":"tags.tag","pk":1,"fields":{"tag":"dc"}},"#);
    input.push_str(r#"{"model":"tags.series","pk":1,"fields":{"hash":"0","path":"mem;host=a"}}]"#);
    let import = ["import", "graphite-tags", "-", "--to", &url];
    let wrong = ["left out: entry 1: \"disk;novalue\": ", "left out: entry 2: neither a path"];
    let dry = run(dir.path(), &[&import[..], &["--dry-run"]].concat(), &input);
    check(&dry, 1, &["453 series\n", wrong[1]]);
    check(&run(dir.path(), &import, &input), 1, &["452 series registered", wrong[0], wrong[1]]);
    check(&run(dir.path(), &import, r#"["disk;dc=x"]"#), 0, &["1 series registered"]);
}
