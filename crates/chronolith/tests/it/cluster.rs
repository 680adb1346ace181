//! A gateway and an owner in one process, over a log in a directory: kills, a lost data directory, starts
//! that end with 2.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::path::Path;

use crate::harness::{SeriesToSend, Server, now_ms, percent, temp_dir};

/// Flags of a process over the log and bucket of `root`.
fn flags(root: &Path, roles: &str) -> Vec<String> {
    let url = |scheme: &str, name: &str| format!("{scheme}://{}", root.join(name).display());
    let pairs = [
        ("--role", roles.to_owned()),
        ("--log", url("dir", "log")),
        ("--log.create-topic", "1".to_owned()),
        ("--bucket", url("file", "bucket")),
        ("--owner.partition", "0".to_owned()),
        ("--self-scrape", "off".to_owned()),
    ];
    std::fs::create_dir_all(root.join("bucket")).expect("a directory");
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn start(root: &Path) -> Server {
    start_as(root, "gateway,owner")
}

fn start_as(root: &Path, roles: &str) -> Server {
    let flags = flags(root, roles);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Server::start(&root.join("data"), &flags)
}

/// Number of samples of `hits` that the log has.
fn count(server: &Server, now: i64) -> f64 {
    let expr = percent("sum(count_over_time(hits[1h]))");
    let path = format!("/api/v1/query?query={expr}&time={}", now as f64 / 1000.0);
    let answer = server.request("GET", &path, &["X-Chronolith-Read-Consistency: strong"], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    let value = body["data"]["result"][0]["value"][1].as_str().map(str::parse);
    value.and_then(Result::ok).unwrap_or(0.0)
}

pub(crate) fn write(server: &Server, round: i64, now: i64) {
    let samples: Vec<(i64, f64)> = (0..100).map(|idx| (now - round * 1000 - idx, idx as f64)).collect();
    let job = round.to_string();
    let series = [SeriesToSend { labels: &[("__name__", "hits"), ("job", &job)], samples: &samples }];
    assert_eq!(server.write(&series).status, 204);
}

#[test]
fn acknowledged_samples_survive_kills_and_a_lost_data_directory() {
    let root = temp_dir();
    let now = now_ms();
    let mut server = start(root.path());
    for round in 0..20 {
        write(&server, round, now);
    }
    assert_eq!(count(&server, now), 2000.0);
    server.kill();
    let mut server = start(root.path());
    assert_eq!(count(&server, now), 2000.0);
    for round in 20..40 {
        write(&server, round, now);
    }
    // Nothing waits for the owner before the kill.
    server.kill();
    std::fs::remove_dir_all(root.path().join("data")).expect("removes");
    let mut server = start(root.path());
    assert_eq!(count(&server, now), 4000.0);
    assert_eq!(server.stop(), Some(0), "a clean stop");
    let server = start(root.path());
    assert_eq!(count(&server, now), 4000.0);
}

#[test]
fn a_data_directory_of_an_owner_is_refused_by_a_server_of_its_own() {
    let root = temp_dir();
    let now = now_ms();
    let mut server = start(root.path());
    write(&server, 0, now);
    assert_eq!(server.stop(), Some(0));
    // The WAL of an owner names the position of the records that it has.
    let mut wal = std::process::Command::new(env!("CARGO_BIN_EXE_chronolith"));
    let stat = wal.args(["wal", "stat"]).arg(root.path().join("data")).output().expect("chronolith runs");
    let stat = String::from_utf8_lossy(&stat.stdout).into_owned();
    assert!(stat.contains("\nnext offset ") && stat.contains(" of partition 0 of topic "), "{stat}");
    assert!(stat.contains("\npositions: ") && !stat.contains("other: "), "{stat}");
    let mut alone = Server::launch(&root.path().join("data"), &["--self-scrape", "off"]);
    assert_eq!(alone.child.wait().expect("wait").code(), Some(1));
}

/// Starts a process that ends at once; returns exit code and standard error.
fn ended(root: &Path, flags: &[String]) -> (Option<i32>, String) {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut server = Server::launch(&root.join("data"), &flags);
    let code = server.child.wait().expect("wait").code();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut server.child.stderr.take().expect("stderr"), &mut text).expect("text");
    (code, text)
}

#[test]
fn starts_that_cannot_be_end_with_2_and_say_what_was_expected() {
    let root = temp_dir();
    let (code, text) = ended(root.path(), &["--role".to_owned(), "owner".to_owned()]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("log: expected the address of a log"), "{text}");
    let mut wrong = flags(root.path(), "owner");
    let at = wrong.iter().position(|flag| flag == "--owner.partition").expect("is there") + 1;
    wrong[at] = "1".to_owned();
    let (code, text) = ended(root.path(), &wrong);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("owner.partition: expected a number below 1"), "{text}");
    // One process at a time has the log in a directory.
    let _first = start(root.path());
    let (code, text) = ended(root.path(), &flags(root.path(), "gateway"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("the replicated log: "), "{text}");
}

#[test]
fn the_bucket_is_maintained_by_a_process_of_its_own_or_next_to_other_roles() {
    let root = temp_dir();
    let now = now_ms();
    let mut all = start_as(root.path(), "gateway,owner,store");
    write(&all, 0, now);
    assert_eq!(count(&all, now), 100.0);
    let url = format!("file://{}", root.path().join("bucket").display());
    let flags = ["--role", "store", "--bucket", &url, "--self-scrape", "off"];
    let mut alone = Server::start(&root.path().join("scratch"), &flags);
    let answer = alone.request("GET", "/api/v1/query?query=up", &[], b"");
    assert_eq!(answer.status, 405, "{}", answer.text());
    let metrics = alone.request("GET", "/metrics", &[], b"");
    assert!(metrics.text().contains("chronolith_bucket_compactions_total"), "{}", metrics.text());
    assert_eq!(alone.stop(), Some(0), "a clean stop");
    assert_eq!(all.stop(), Some(0), "a clean stop");
}
