//! Roles, the log, the partition of an owner.

use std::ops::Range;
use std::time::Duration;

use chronolith_cluster::options::{Compression, LogOptions, NewTopic, PartitionChoice, SaslMechanism};

use super::*;

const DIR: [&str; 4] = ["--log", "dir:///topic", "--bucket", "file:///bucket"];

/// Returns the error, and the exit code of the process.
#[track_caller]
fn refused(args: &[&str], disk: &MemDisk) -> (String, u8) {
    let all = std::iter::once("serve").chain(args.iter().copied());
    let flags = add_flags(Command::new("serve")).try_get_matches_from(all).expect("flags");
    let sources = Sources { flags: &flags, environment: &std::collections::BTreeMap::new(), disk };
    let error = sources.resolve().map(|_| ()).expect_err("refused");
    (error.to_string(), error.exit_code())
}

/// Checks a refusal of settings on a machine without a host name.
#[track_caller]
fn check_refused(args: &[&str], want: &str) {
    assert_eq!(refused(args, &MemDisk::new()), (want.to_owned(), 2), "{args:?}");
}

fn with<'a>(args: &[&'a str]) -> Vec<&'a str> {
    DIR.iter().chain(args).copied().collect()
}

#[test]
fn roles_that_cannot_be_end_with_2_and_name_the_setting() {
    check_refused(
        &["--role", "owner"],
        "log: expected the address of a log, kafka://HOST:PORT,HOST:PORT/TOPIC or dir:///PATH, for role owner",
    );
    check_refused(
        &["--role", "all,owner"],
        "--role: all excludes other roles, expected all, or a list of gateway, owner, query and store",
    );
    check_refused(
        &["--role", "gatway"],
        "--role: unknown role \"gatway\", expected all, or a list of gateway, owner, query and store",
    );
    check_refused(
        &with(&[]),
        "role: expected gateway, owner or both with --log: a server with role all has no log",
    );
    check_refused(
        &["--role", "gateway", "--log", "dir:///topic"],
        "bucket: expected the URL of the bucket that all roles share, such as s3://BUCKET",
    );
    check_refused(
        &with(&["--role", "gateway", "--read-only"]),
        "read-only: expected false for the roles gateway, owner and store",
    );
    check_refused(
        &with(&["--role", "gateway", "--bucket.layout", "thanos"]),
        "bucket.layout: expected mimir, the layout thanos has no place for a cluster",
    );
    check_refused(
        &with(&["--role", "store"]),
        "log: expected none for role store, which maintains the bucket alone",
    );
    check_refused(
        &["--role", "store"],
        "bucket: expected the URL of the bucket that all roles share, such as s3://BUCKET",
    );
    check_refused(
        &["--role", "query,store", "--bucket", "file:///bucket"],
        "role: expected query alone, or gateway,query",
    );
}

#[test]
fn parts_that_write_to_a_store_of_their_own_are_refused() {
    check_refused(
        &with(&["--role", "gateway", "--rules.files", "a.yml"]),
        "rules.files: expected none for role gateway: rules read and write, use --role gateway,query for them",
    );
    check_refused(
        &with(&["--role", "gateway,store", "--rules.files", "a.yml"]),
        "rules.files: expected none for role gateway,store: rules read and write, use --role gateway,query for them",
    );
    let query = ["--role", "query", "--bucket", "file:///bucket", "--owners", "a:1"];
    let with_rules = ["--cluster.node-token-file", "/token", "--rules.files", "a.yml"];
    check_refused(
        &[&query[..], &with_rules].concat(),
        "rules.files: expected none for role query: rules read and write, use --role gateway,query for them",
    );
    check_refused(
        &with(&["--role", "owner", "--owner.partition", "0", "--influx.udp", "127.0.0.1:8089/db"]),
        "influx.udp: expected none without the role gateway",
    );
    check_refused(
        &with(&["--role", "owner", "--owner.partition", "0", "--carbon.listen", "127.0.0.1:2003"]),
        "carbon.listen, carbon.pickle-listen: expected none without the role gateway",
    );
}

#[test]
fn an_owner_has_a_partition_by_number_or_host_name() {
    check_refused(
        &with(&["--role", "owner"]),
        "owner.partition: expected the number of a partition, or auto",
    );
    check_refused(
        &["--owner.partition", "10000"],
        "--owner.partition: invalid partition \"10000\", expected 0 to 9999, or auto",
    );
    check_refused(
        &["--owner.partition", "-"],
        "--owner.partition: invalid partition \"-\", expected 0 to 9999, or auto",
    );
    let auto = with(&["--role", "owner", "--owner.partition", "auto"]);
    let (error, _) = refused(&auto, &MemDisk::new());
    assert!(
        error.starts_with("owner.partition: expected a number, the host name for auto is not known"),
        "{error}"
    );
    let disk = MemDisk::new();
    let path = Path::new("/proc/sys/kernel/hostname");
    disk.create_dir_all(path.parent().unwrap()).unwrap();
    disk.create(path).unwrap().write_at(b"metrics\n", 0).unwrap();
    let want = "owner.partition: expected for auto a host name with a number from 0 to 9999 at its end, such as \
                owner-0, found \"metrics\"";
    assert_eq!(refused(&auto, &disk), (want.to_owned(), 2));
}

#[test]
fn options_of_the_log_need_each_other() {
    let kafka = "log.tls, log.sasl-mechanism: expected none for a directory (dir://)";
    check_refused(&with(&["--role", "gateway", "--log.tls"]), kafka);
    check_refused(
        &with(&["--role", "gateway", "--log.tls-ca-file", "a"]),
        "--log.tls-ca-file: expected log.tls as well",
    );
    check_refused(
        &with(&["--role", "gateway", "--log.sasl-user", "u"]),
        "--log.sasl-user: expected log.sasl-mechanism as well",
    );
    check_refused(
        &with(&["--role", "gateway", "--log.linger", "10s"]),
        "log.linger: expected less than log.ack-timeout",
    );
    check_refused(&["--log.ack-timeout", "999ms"], "--log.ack-timeout: must be at least 1 s");
    check_refused(
        &["--log.compression", "gzip"],
        "--log.compression: invalid value \"gzip\", expected none, lz4 or zstd",
    );
    for wrong in ["0", "10001", "3:0", "3:", "x"] {
        let want = format!(
            "--log.create-topic: invalid value {wrong:?}, expected 1 to 10000 partitions, for example 6, or 6:3 \
             for 3 copies"
        );
        check_refused(&["--log.create-topic", wrong], &want);
    }
    for wrong in ["7", "7-7", "8-7", "a-b"] {
        let want = format!(
            "--owner.accept-gap: invalid offsets {wrong:?}, expected FROM-TO as the error of the owner has them"
        );
        check_refused(&["--owner.accept-gap", wrong], &want);
    }
}

/// An address may have a password.
#[test]
fn an_address_that_cannot_be_used_is_not_repeated() {
    let (error, code) = refused(&["--log", "nats://user:secret@host/x"], &MemDisk::new());
    assert!(!error.contains("secret") && code == 2, "{error}");
    let (error, code) = refused(&["--log", "kafka://user:secret@broker:9092"], &MemDisk::new());
    assert!(!error.contains("secret") && code == 2, "{error}");
}

/// Applies settings one by one: roles that this version does not have are refused by the check of all.
fn applied(values: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::unresolved(Vec::new());
    for (name, value) in values {
        let setting = all_settings().find(|setting| setting.name == *name).expect("a setting");
        setting.apply(&mut settings, value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    settings
}

#[test]
fn values_reach_the_options() {
    let settings = applied(&[
        ("role", "gateway,owner"),
        ("log", "dir:///topic"),
        ("log.ack-timeout", "3s"),
        ("log.linger", "0s"),
        ("log.compression", "zstd"),
        ("log.create-topic", "6:2"),
        ("log.tenant-partitions", "3"),
        ("log.tls", "true"),
        ("log.tls-ca-file", "ca.pem"),
        ("log.tls-cert-file", "cert.pem"),
        ("log.tls-key-file", "key.pem"),
        ("log.tls-server-name", "broker"),
        ("log.sasl-mechanism", "scram-sha-512"),
        ("log.sasl-user", "me"),
        ("log.sasl-secret-file", "password"),
        ("owner.partition", "4"),
        ("owner.ready-lag", "5s"),
        ("owner.accept-gap", "17-42"),
    ]);
    let cluster = settings.server.service.cluster;
    let log: LogOptions = cluster.log.expect("a log");
    assert_eq!((log.ack_timeout, log.linger), (Duration::from_secs(3), Duration::ZERO));
    assert_eq!(log.compression, Compression::Zstd);
    assert_eq!(log.new_topic, Some(NewTopic { partition_count: 6, replication_factor: 2 }));
    assert_eq!(cluster.gateway.tenant_partitions_min, 3);
    let tls = log.security.tls.expect("TLS");
    let files = [tls.ca_file, tls.cert_file, tls.key_file].map(|file| file.expect("a file"));
    assert_eq!(files, ["ca.pem", "cert.pem", "key.pem"].map(PathBuf::from));
    assert_eq!(tls.server_name.as_deref(), Some("broker"));
    let login = log.security.login.expect("a login");
    assert_eq!((login.mechanism, &*login.user), (SaslMechanism::ScramSha512, "me"));
    assert_eq!(login.secret_file, PathBuf::from("password"));
    assert_eq!(cluster.owner.partition, Some(PartitionChoice::Number(4)));
    assert_eq!(cluster.owner.ready_lag, Duration::from_secs(5));
    let gap: Option<Range<u64>> = cluster.owner.accepted_gap;
    assert_eq!(gap, Some(17..42));
}

/// One file of settings may serve processes with and without a log.
#[test]
fn options_of_the_log_without_a_log_are_only_checked() {
    let settings = resolve(&["--log.linger", "1ms", "--owner.partition", "auto", "--log.tls"], &[], None);
    assert!(settings.expect("valid").server.service.cluster.log.is_none());
}

#[test]
fn a_query_node_needs_owners_the_bucket_and_the_token() {
    let all = ["--role", "query", "--bucket", "file:///bucket", "--owners", "a:1,b:2"];
    let refused: [(&[&str], &str); 6] = [
        (&all[..2], "bucket: expected the URL of the bucket of the owners, for role query"),
        (&all[..4], "owners: expected dns://NAME:PORT, file:///PATH or HOST:PORT,HOST:PORT, for role query"),
        (&all[..], "cluster.node-token-file: expected the file with the token of the owners, for role query"),
        (&all[4..], "owners: expected none without role query or gateway"),
        (&["--role", "query,owner"], "role: expected query alone, or gateway,query"),
        (
            &["--role", "query", "--log", "dir:///topic"],
            "log: expected none for role query, which asks owners and not the log",
        ),
    ];
    refused.into_iter().for_each(|(args, want)| check_refused(args, want));
    check_refused(
        &["--role", "gateway,query,owner", "--bucket", "file:///bucket"],
        "role: expected query alone, or gateway,query",
    );
    let both = [&["--role", "gateway,query"], &all[2..], &["--cluster.node-token-file", "/token"]].concat();
    check_refused(
        &both,
        "log: expected the address of a log, kafka://HOST:PORT,HOST:PORT/TOPIC or dir:///PATH, for role gateway,query",
    );
    check_refused(
        &[&both[..], &["--log", "dir:///topic", "--read-only"]].concat(),
        "read-only: expected false for the roles gateway, owner and store",
    );
    let gateway =
        ["--role", "gateway", "--log", "dir:///topic", "--bucket", "file:///bucket", "--owners", "a:1"];
    check_refused(
        &gateway,
        "cluster.node-token-file: expected the file with the token of the owners, for owners",
    );
    let resolve = |args: Vec<&str>| {
        let disk = MemDisk::new();
        let args = std::iter::once("serve").chain(args);
        let flags = add_flags(Command::new("serve")).try_get_matches_from(args).expect("flags");
        let sources = Sources { flags: &flags, environment: &std::collections::BTreeMap::new(), disk: &disk };
        sources.resolve().expect("settings").server
    };
    let server = resolve([&all[..], &["--cluster.node-token-file", "/token"]].concat());
    assert!(server.bucket.is_some_and(|bucket| bucket.is_read_only), "it has no data directory");
    assert_eq!(server.nodes.owners, Some("a:1,b:2".parse().expect("owners")));
    let of_rules = ["--log", "dir:///topic", "--rules.files", "a.yml", "--rules.lease-duration", "10s"];
    let server = resolve([&both[..], &of_rules].concat());
    assert!(server.bucket.is_some_and(|bucket| !bucket.is_read_only), "a gateway writes to it");
    assert_eq!(server.service.rules.lease_duration, Duration::from_secs(10));
}
