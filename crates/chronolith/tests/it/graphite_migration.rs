//! Migration of Graphite by running servers: whisper files from one, events and tags of graphite-web to one.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use chronolith_import::whisper::{FilePoints, TimeSelection};

use crate::harness::{SeriesToSend, Server, now_ms, temp_dir};

/// Rules of the server: a path with many points, and all others.
const SCHEMAS: &str =
    "[fine]\npattern = ^fine\\.\nretentions = 1s:4d\n[all]\npattern = .*\nretentions = 60s:2h,5m:10h\n";
const AGGREGATION: &str = "[all]\npattern = .*\nxFilesFactor = 0\naggregationMethod = sum\n";
/// Samples of one path: more than one response of an export has.
const MANY: i64 = 210_000;

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

/// Sends points to a server as lines, some thousand at a time.
fn send(server: &Server, lines: &[String]) {
    for part in lines.chunks(50_000) {
        let answer = server.request("POST", "/api/v1/carbon", &[], part.concat().as_bytes());
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
}

fn files_below(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files_below(&path, found),
            false => found.push(path.to_str().expect("UTF-8").to_owned()),
        }
    }
    found.sort();
}

/// The export of a running server equals the export of its data directory, to the byte.
#[test]
fn a_running_server_is_exported_as_its_data_directory() {
    let dir = temp_dir();
    fs::write(dir.path().join("schemas.conf"), SCHEMAS).expect("a file");
    fs::write(dir.path().join("aggregation.conf"), AGGREGATION).expect("a file");
    let rules = ["schemas.conf", "aggregation.conf"].map(|name| dir.path().join(name));
    let [schemas, aggregation] = rules.each_ref().map(|path| path.to_str().expect("UTF-8"));
    let flags =
        ["--self-scrape", "off", "--graphite.schemas", schemas, "--graphite.aggregation", aggregation];
    let mut server = Server::start(&dir.path().join("data"), &flags);
    let url = format!("http://127.0.0.1:{}", server.port);
    let end_s = now_ms() / 1000 / 300 * 300 - 600;
    let mut lines: Vec<String> =
        (0..MANY).map(|idx| format!("fine.a {} {}\n", idx as f64 / 8.0, end_s - MANY + idx)).collect();
    for (path, factor) in [("a.b", 1), ("disk", 2), ("disk;host=x", 3), ("disk;dc=\u{fc};host=x", 4)] {
        lines.extend((0..60).map(|idx| format!("{path} {} {}\n", idx * factor, end_s - 3600 + idx * 60)));
    }
    send(&server, &lines);
    // A series of another protocol is none of Graphite's.
    let samples = [(end_s * 1000, 1.0)];
    let other = SeriesToSend { labels: &[("__name__", "other"), ("job", "j")], samples: &samples };
    assert_eq!(server.write(&[other]).status, 204);
    let points = MANY + 4 * 60;
    let export = ["export", "whisper", "live", "--from", &url];
    check(&run(dir.path(), &export, ""), 0, &[&format!("exported {points} points to 5 files")]);
    check(&run(dir.path(), &export, ""), 1, &["exported 0 points to 0 files", "5 series: the file exists"]);
    // A part of an export is completed.
    fs::remove_file(dir.path().join("live/a/b.wsp")).expect("a file");
    check(&run(dir.path(), &export, ""), 1, &["exported 60 points to 1 files", "4 series: the file exists"]);
    let export = ["export", "whisper", "short", "--from", &url, "--retentions", "1m:3h"];
    let short = run(dir.path(), &export, "");
    check(&short, 0, &["to 5 files", "points that are older than the archives keep"]);
    // Each point is exported or counted as left out.
    let numbers = |output: &str| -> Vec<u64> {
        output.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let text = String::from_utf8_lossy(&short.stdout).into_owned();
    let [exported, 5, left_out] = numbers(&text)[..] else { panic!("{text}") };
    assert_eq!(exported + left_out, u64::try_from(points).expect("positive"), "{text}");
    assert!(left_out > 0 && exported > 4 * 60, "{text}");
    assert_eq!(server.stop(), Some(0));
    check(&run(dir.path(), &export, ""), 1, &[&url]);
    let data = server.dir.to_str().expect("UTF-8");
    let export =
        ["export", "whisper", "dead", "--data-dir", data, "--schemas", schemas, "--aggregation", aggregation];
    check(&run(dir.path(), &export, ""), 0, &[&format!("exported {points} points to 5 files")]);
    let mut live = Vec::new();
    files_below(&dir.path().join("live"), &mut live);
    assert_eq!(live.len(), 5, "{live:?}");
    for path in &live {
        let same =
            fs::read(path).expect("a file") == fs::read(path.replace("/live/", "/dead/")).expect("a file");
        assert!(same, "{path}");
    }
    let mut found = FilePoints::default();
    let bytes = fs::read(dir.path().join("live/a/b.wsp")).expect("a file");
    found.read(&bytes, end_s + 600, TimeSelection::ALL).expect("a sound file");
    assert_eq!(found.values, (0..60).map(f64::from).collect::<Vec<_>>());
    assert_eq!(found.times.first(), Some(&((end_s - 3600) * 1000)));
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

/// Several requests are sent at a time, but requests of one second in the order of the list.
#[test]
fn many_events_keep_their_order_within_a_second() {
    let dir = temp_dir();
    let server = Server::start(&dir.path().join("data"), &["--self-scrape", "off"]);
    let url = format!("http://127.0.0.1:{}", server.port);
    let mut list: Vec<serde_json::Value> = (0..400)
        .map(|n| serde_json::json!({"what": format!("e{n}"), "when": 1_700_000_000 + n / 7, "tags": []}))
        .collect();
    list.insert(100, serde_json::json!({"what": "y".repeat(100_000), "when": 1_700_000_003}));
    list.insert(300, serde_json::json!({"what": "y".repeat(100_001), "when": 1_700_000_003}));
    let input = serde_json::Value::from(list).to_string();
    let import = ["import", "graphite-events", "-", "--to", &url, "--concurrency", "6"];
    let refused = ["left out: entry 100: status 422: ", "left out: entry 300: status 422: "];
    let first = run(dir.path(), &import, &input);
    check(&first, 1, &[&["400 events imported, 0 were there already"][..], &refused].concat());
    let answer = server.request("GET", "/events/get_data", &[], b"");
    let list: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    let names: Vec<&str> =
        list.as_array().expect("a list").iter().filter_map(|e| e["what"].as_str()).collect();
    assert_eq!(names, (0..400).map(|n| format!("e{n}")).collect::<Vec<_>>());
    check(&run(dir.path(), &import, &input), 1, &["0 events imported, 400 were there already"]);
    check(&run(dir.path(), &[&import[..6], &["0"]].concat(), &input), 2, &[]);
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
