//! Progress file, lines of a server, and refusals. The tool as a process is in `tests/it/rules_backfill.rs`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::progress_file::Counts;
use super::*;

const FILE: &str = "groups:\n- name: g\n  rules:\n  - {record: a, expr: b}\n";

fn env_with_file() -> Env {
    let (env, _clock, _disk) = Env::fake(1_700_000_000_000, 1);
    env.disk.write_atomic(Path::new("a.yml"), FILE.as_bytes()).expect("a file in memory");
    for dir in [".", "/work"] {
        env.disk.create_dir_all(Path::new(dir)).expect("a directory in memory");
    }
    env
}

fn matches(arguments: &[&str]) -> ArgMatches {
    let line = ["backfill"].into_iter().chain(arguments.iter().copied());
    command().try_get_matches_from(line).expect("valid arguments")
}

/// Serves one request with these lines, or a refusal; returns the outcome of the tool and the request.
fn exchange(
    env: &Env,
    arguments: &[&str],
    status: &str,
    lines: &[&str],
) -> (anyhow::Result<ExitCode>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = listener.local_addr().expect("an address").to_string();
    let body = lines.concat();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    std::thread::scope(|scope| {
        let request = scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut request, mut byte) = (Vec::new(), [0]);
            // The body is JSON that ends with these bytes.
            while !request.ends_with(b"}]}") {
                stream.read_exact(&mut byte).expect("a request");
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).expect("answered");
            String::from_utf8(request).expect("UTF-8")
        });
        // The hash of the command has the URL, so the position is tied to a file of a fixed name.
        let all: Vec<&str> = ["--url", &url].into_iter().chain(arguments.iter().copied()).collect();
        let outcome = run(&matches(&all), env);
        (outcome, request.join().expect("served"))
    })
}

const BEGIN: &str = "{\"event\":\"begin\",\"rules\":1,\"rounds\":9,\"skippedAlertingRuleCount\":1,\"skippedAlertingRules\":[\"A\"]}\n";
const PROGRESS: &str = "{\"event\":\"progress\",\"group\":\"g\",\"done\":4,\"rounds\":9,\"until\":1.5,\"totals\":{\"rounds\":4,\"added\":4},\"resume\":\"abc.0.5\"}\n";
const END: &str = "{\"event\":\"end\",\"status\":\"success\",\"totals\":{\"rounds\":9,\"added\":9}}\n";
const ARGUMENTS: [&str; 7] =
    ["--start", "1699990000", "--group", "g", "--progress-file", "/work/p.json", "a.yml"];

#[test]
fn a_backfill_asks_the_server_and_removes_its_progress_file() {
    let env = env_with_file();
    let (outcome, request) = exchange(&env, &ARGUMENTS, "200 OK", &[BEGIN, PROGRESS, END]);
    assert_eq!(outcome.expect("done"), ExitCode::SUCCESS);
    let first = request.lines().next().expect("a line");
    assert_eq!(
        first,
        "POST /api/v1/admin/rules/backfill?start=1699990000&end=1700000000&group%5B%5D=g HTTP/1.1"
    );
    let body = request.split("\r\n\r\n").nth(1).expect("a body");
    let sent: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(sent, serde_json::json!({ "files": [{ "name": "a.yml", "content": FILE }] }));
    assert!(env.disk.read(Path::new("/work/p.json")).is_err(), "no progress file is left");
}

#[test]
fn an_interrupted_backfill_names_its_position_and_keeps_it() {
    let env = env_with_file();
    let interrupted = "{\"event\":\"end\",\"status\":\"error\",\"error\":\"stopped\",\"resume\":\"abc.0.7\",\"totals\":{\"added\":6}}\n";
    let (outcome, _) = exchange(&env, &ARGUMENTS, "200 OK", &[BEGIN, PROGRESS, interrupted]);
    let error = format!("{:#}", outcome.expect_err("interrupted"));
    assert!(error.starts_with("stopped\n") && error.contains("p.json"), "{error}");
    let kept: serde_json::Value =
        serde_json::from_slice(&env.disk.read(Path::new("/work/p.json")).expect("kept")).expect("JSON");
    assert_eq!((&kept["resume"], &kept["counts"]["added"]), (&"abc.0.7".into(), &6.into()));
    assert_eq!(kept["rangeMs"], serde_json::json!([1_699_990_000_000_i64, 1_700_000_000_000_i64]));
    // A connection that breaks leaves the position of the last chunk.
    let env = env_with_file();
    let (outcome, _) = exchange(&env, &ARGUMENTS, "200 OK", &[BEGIN, PROGRESS]);
    let error = format!("{:#}", outcome.expect_err("no last line"));
    assert!(error.contains("ends before its last line") && error.contains("p.json"), "{error}");
    let kept = String::from_utf8(env.disk.read(Path::new("/work/p.json")).expect("kept")).expect("UTF-8");
    assert!(kept.contains("abc.0.5"), "{kept}");
}

#[test]
fn the_same_command_goes_on_with_its_range_and_another_one_is_refused() {
    let env = env_with_file();
    let all = matches(&["--url", "h", "--start", "1699990000", "a.yml"]);
    let files = read_files(&all, &env).expect("read");
    let path = progress_path(&all, &files);
    let mut stored = ProgressFile::new(hash_of(&all, &files), (5, 6));
    stored.resume = Some("x".to_owned());
    stored.write(&env, &path).expect("written");
    assert_eq!(ProgressFile::read(&env, &path, hash_of(&all, &files)).expect("its own"), Some(stored));
    for other in [
        &["--url", "h", "--start", "1699990001", "a.yml"][..],
        &["--url", "h", "--start", "1699990000", "--dry-run", "a.yml"],
        &["--url", "h", "--start", "1699990000", "--as", "b.yml", "a.yml"],
        &["--url", "i", "--start", "1699990000", "a.yml"],
    ] {
        let other = matches(other);
        let files = read_files(&other, &env).expect("read");
        assert_ne!(progress_path(&other, &files), path);
        let error = ProgressFile::read(&env, &path, hash_of(&other, &files)).expect_err("of another command");
        assert!(error.to_string().contains("--progress-file"), "{error}");
    }
}

#[test]
fn refusals_and_refused_samples_are_failures() {
    let env = env_with_file();
    let refusal = "{\"status\":\"error\",\"errorType\":\"conflict\",\"error\":\"a backfill runs\"}";
    let (outcome, _) = exchange(&env, &ARGUMENTS, "409 Conflict", &[refusal]);
    assert_eq!(outcome.expect_err("refused").to_string(), "the server answered 409: a backfill runs");
    let rejected = END.replace("\"added\":9", "\"added\":9,\"rejected\":2");
    let (outcome, _) = exchange(&env, &ARGUMENTS, "200 OK", &[BEGIN, &rejected]);
    assert_eq!(outcome.expect("an end"), ExitCode::FAILURE);
    assert!(run(&matches(&["--url", "h", "--start", "then", "a.yml"]), &env).is_err());
    assert!(run(&matches(&["--url", "h", "--start", "1", "absent.yml"]), &env).is_err());
    assert!(run(&matches(&["--url", "h", "--start", "1", "--as", "b", "a.yml", "a.yml"]), &env).is_err());
    let without_target = ["backfill", "--start", "1", "a.yml"];
    assert!(command().try_get_matches_from(without_target).is_err());
}

#[test]
fn times_are_seconds_or_rfc_3339() {
    for (text, want) in [("1.5", 1500), ("1970-01-01T00:00:02Z", 2000), ("1970-01-01T01:00:00.25+01:00", 250)]
    {
        assert_eq!(time_ms(text).expect("a time"), want, "{text}");
    }
    assert!(time_ms("yesterday").is_err() && time_ms("nan").is_err() && time_ms("1e30").is_err());
}

#[test]
fn counts_of_several_runs_add_up() {
    let one = Counts { rounds: 2, added: 3, series: 4, ..Counts::default() };
    let sum = one.plus(Counts { rounds: 1, equal: 5, series: 2, ..Counts::default() });
    assert_eq!(sum, Counts { rounds: 3, added: 3, equal: 5, series: 4, ..Counts::default() });
}
