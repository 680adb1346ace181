//! `chronolith cluster` next to a process with roles: partitions, status, and the check of log and bucket.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::cluster::write;
use crate::harness::{Server, free_port, now_ms, temp_dir};

/// A log of two partitions, a bucket and a node token; partition 0 has an owner.
struct Cluster {
    root: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Cluster {
        let root = temp_dir();
        std::fs::create_dir_all(root.path().join("bucket")).expect("a directory");
        std::fs::write(root.path().join("token"), "token-of-the-nodes-1\n").expect("a file");
        Cluster { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn log(&self) -> String {
        format!("dir://{}", self.path("log").display())
    }

    fn bucket(&self) -> String {
        format!("file://{}", self.path("bucket").display())
    }

    fn token(&self) -> String {
        self.path("token").display().to_string()
    }

    fn start(&self) -> Server {
        self.start_with(&[])
    }

    fn start_with(&self, flags: &[&str]) -> Server {
        let (log, bucket, token) = (self.log(), self.bucket(), self.token());
        let roles =
            ["--role", "gateway,owner", "--log", &log, "--log.create-topic", "2", "--bucket", &bucket];
        let owner = ["--owner.partition", "0", "--cluster.node-token-file", &token, "--self-scrape", "off"];
        Server::start(&self.path("data"), &[roles.as_slice(), &owner, flags].concat())
    }

    /// Runs a tool with the bucket; returns its exit code and both outputs.
    fn tool(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let bucket = self.bucket();
        tool(&[args, &["--bucket", &bucket]].concat())
    }

    /// Runs a tool that succeeds; returns its JSON.
    fn json(&self, args: &[&str]) -> Value {
        let (code, out, error) = self.tool(&[args, &["--json"]].concat());
        assert_eq!(code, Some(0), "{args:?}: {error}");
        serde_json::from_str(&out).expect("JSON")
    }
}

fn tool(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    let output = command.arg("cluster").args(args).output().expect("chronolith runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// States of the partitions, by number.
fn states(list: &Value) -> Vec<&str> {
    list["partitions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["state"].as_str().expect("a state"))
        .collect()
}

#[test]
fn partitions_are_listed_drained_and_added_and_mistakes_end_with_1() {
    let cluster = Cluster::new();
    let (code, _, error) = cluster.tool(&["partitions", "list"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("has no partition map"), "{error}");
    drop(cluster.start());
    let list = cluster.json(&["partitions", "list"]);
    assert_eq!((states(&list), &list["partitionMap"]), (vec!["accepting", "accepting"], &1.into()));
    let drained = cluster.json(&["partitions", "drain", "1"]);
    assert_eq!((states(&drained), &drained["partitionMap"]), (vec!["accepting", "drained"], &2.into()));
    assert!(drained["partitions"][1]["ownerNeededUntil"].is_string(), "{drained}");
    let log = cluster.log();
    for (args, want) in [
        (&["drain", "1"][..], "partition 1 does not accept writes"),
        (&["drain", "0"], "no partition would accept writes"),
        (&["add", "0"], "partition 0 accepts writes already"),
        (&["add", "1", "1"], "partition 1 is named twice"),
        (&["add", "1", "2", "--log", &log], "partition 2: the log has 2 partitions, expected more than 2"),
        (&["add", "1", "--log", "dir:///nonexistent"], "topic /nonexistent does not exist"),
        (
            &["remove", "1", "--log", &log],
            // Seconds pass on a busy machine.
            " s ago, and gateways may write to it for 60 s",
        ),
        (&["remove", "0", "--log", &log], "partition 0 accepts writes, drain it first"),
        (&["remove", "7", "--log", &log], "partition 7 is not in the partition map"),
        (&["remove", "1"], "--log: expected the address of the log"),
    ] {
        let (code, out, error) = cluster.tool(&[&["partitions"], args].concat());
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}");
        assert!(error.contains(want), "{args:?}: {error}");
    }
    let (code, out, error) = cluster.tool(&["partitions", "add", "1", "--log", &log]);
    assert_eq!((code, error.as_str()), (Some(0), ""), "{out}");
    assert!(out.ends_with("2 partitions accept writes; partition map 3\n"), "{out}");
    let (code, ..) = cluster.tool(&["partitions", "add", "one"]);
    assert_eq!(code, Some(2));
}

#[test]
fn the_status_has_nodes_and_owners_and_names_what_is_missing() {
    let cluster = Cluster::new();
    let server = cluster.start();
    write(&server, 0, now_ms());
    let url = format!("http://127.0.0.1:{}", server.port);
    let (code, out, error) = tool(&["status", "--url", &url]);
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(out.contains("gateway,owner  ready"), "{out}");
    assert!(out.ends_with("0 partitions without a ready owner\n"), "{out}");
    // The partition map has a partition without an owner.
    let address = format!("127.0.0.1:{}", server.port);
    let token = cluster.token();
    let owners = ["status", "--owners", &address, "--node-token-file", &token];
    let (code, out, error) = cluster.tool(&owners);
    assert_eq!(code, Some(1), "{out}{error}");
    assert!(out.contains("1  -                no owner") && out.contains("0  127.0.0.1:"), "{out}");
    let (code, out, error) = tool(&[&owners[..], &["--json"]].concat());
    assert_eq!(code, Some(0), "{out}{error}");
    let status: Value = serde_json::from_str(&out).expect("JSON");
    let owned = &status["partitions"][0];
    assert_eq!((&owned["owner"], &owned["notReady"]), (&address.clone().into(), &Value::Null));
    assert!(owned["nextOffset"].as_u64() > Some(0) && owned["logStart"] == 0, "{status}");
    // Servers that do not answer, and calls without a place to ask.
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let (code, out, _) = tool(&["status", "--url", &url, &nobody]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("is the server running there?"), "{out}");
    for (args, want) in [
        (&["status"][..], "expected --url with URLs of servers, or --owners"),
        (&["status", "--owners", "a:1"], "cluster.node-token-file: expected the file"),
        (&["status", "--owners", "a"], "--owners: expected HOST:PORT, found \"a\""),
    ] {
        let (code, _, error) = tool(args);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(error.contains(want), "{args:?}: {error}");
    }
}

/// Partition 1 has no owner, so that a deletion stays open.
#[test]
fn an_open_deletion_is_listed_and_keeps_the_partition_that_it_waits_for() {
    let cluster = Cluster::new();
    let server = cluster.start_with(&["--web.enable-admin-api", "--query.timeout", "3s"]);
    let path = "/api/v1/admin/tsdb/delete_series?match[]=up";
    let answer = server.request("POST", path, &[], b"");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("have not passed its record: 1"), "{}", answer.text());
    let url = format!("http://127.0.0.1:{}", server.port);
    let (code, out, error) = cluster.tool(&["status", "--url", &url]);
    assert!(code.is_some(), "{error}");
    let lines = out.lines().filter(|line| line.starts_with("deletion 1 of tenant anonymous is open since "));
    let waits = lines.map(|line| line.split_once(": ").map(|(_, waits)| waits)).next().flatten();
    assert_eq!(waits, Some("waits for partitions 1"), "{out}");
    let (code, out, error) = cluster.tool(&["status", "--url", &url, "--json"]);
    assert!(code.is_some(), "{error}");
    let status: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(status["openDeletions"][0]["missingPartitions"], serde_json::json!([1]), "{status}");
    cluster.json(&["partitions", "drain", "1"]);
    let (code, _, error) = cluster.tool(&["partitions", "remove", "1", "--log", &cluster.log()]);
    assert_eq!(code, Some(1));
    let want = "partition 1: deletion 1 waits until its owner has passed the record";
    assert!(error.contains(want), "{error}");
}

#[test]
fn a_log_is_verified_against_its_bucket() {
    let cluster = Cluster::new();
    let mut server = cluster.start();
    write(&server, 0, now_ms());
    let log = cluster.log();
    let verify = ["verify", "--log", &log];
    let (code, _, error) = cluster.tool(&verify);
    assert_eq!(code, Some(1));
    assert!(error.contains("another process appends to this log"), "{error}");
    assert_eq!(server.stop(), Some(0));
    let (code, out, error) = cluster.tool(&verify);
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(out.ends_with("verified 2 partitions; 0 findings\n"), "{out}");
    // Without an owner, samples that are in no block are in no process. The tenant's partition is 1.
    let token = cluster.token();
    let address = format!("127.0.0.1:{}", free_port());
    let with_owners =
        [&verify[..], &["--owners", &address, "--node-token-file", &token, "--partition", "1"]].concat();
    let (code, out, error) = cluster.tool(&[&with_owners[..], &["--json"]].concat());
    assert_eq!(code, Some(1), "{out}{error}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let finding = report["partitions"][0]["findings"][0].as_str().expect("a finding");
    assert!(finding.starts_with("no owner: offsets 0 to "), "{finding}");
    let (code, _, error) = cluster.tool(&["verify"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("--log: expected the address of the log"), "{error}");
}
