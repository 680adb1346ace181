//! Mistakes of the first hour: a busy port, a directory in use, an address for other hosts. Each error names
//! what to do.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::fs::File;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{Server, free_port, temp_dir};

const NO_SCRAPE: [&str; 2] = ["--self-scrape", "off"];

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chronolith")).args(args).output().expect("chronolith runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn check_refused(args: &[&str], parts: &[&str]) {
    let output = run(args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{args:?}: {stderr:?} does not contain {part:?}");
    }
}

#[track_caller]
fn check_busy(setting: &str, address: &str, value: &str, make_variable: &str) {
    let dir = temp_dir();
    let http = format!("127.0.0.1:{}", free_port());
    let mut args = vec!["serve", "--data-dir", dir.path().to_str().expect("UTF-8"), "--self-scrape", "off"];
    let flag = format!("--{setting}");
    if setting != "http" {
        args.extend(["--http", &http]);
    }
    args.extend([flag.as_str(), value]);
    let output = run(&args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("cannot listen on {address}")), "{stderr}");
    assert!(stderr.contains(&format!("choose another address with --{setting}")), "{stderr}");
    assert!(stderr.contains(make_variable), "{stderr}");
}

/// A busy port 2003 of carbon ended with "choose another address with --http".
#[test]
fn a_busy_port_names_the_setting_of_its_listener() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = tcp.local_addr().expect("an address").to_string();
    check_busy("http", &address, &address, "make run HTTP=");
    for value in [address.clone(), format!("{address}/tenant"), format!("{address}/tenant/prefix.")] {
        check_busy("carbon.listen", &address, &value, "make run CARBON=");
        check_busy("carbon.pickle-listen", &address, &value, "");
    }
    let second = format!("127.0.0.1:{},{address}", free_port());
    check_busy("carbon.listen", &address, &second, "make run CARBON=");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = udp.local_addr().expect("an address").to_string();
    check_busy("influx.udp", &address, &format!("{address}/db"), "");
    check_busy("carbon.listen", &address, &address, "make run CARBON=");
}

/// `export` on the directory of a running server reported that its lock is held, and nothing else; `check`
/// read it and could report damage that was a write under way.
#[test]
fn tools_on_the_directory_of_a_running_server_say_what_to_do() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &NO_SCRAPE);
    let data = dir.path().to_str().expect("UTF-8");
    let out = temp_dir();
    let out = out.path().join("out");
    let out = out.to_str().expect("UTF-8");
    let reads = [
        "used by another process",
        "stop the server; or",
        "/api/v1/admin/tsdb/snapshot",
        "DIR/snapshots/NAME",
    ];
    check_refused(&["check", data], &reads);
    check_refused(&["export", "blocks", "--out", out, "--data-dir", data], &reads);
    check_refused(&["export", "influx", "--out", out, "--data-dir", data], &reads);
    check_refused(&["export", "whisper", out, "--data-dir", data], &reads);
    let source = temp_dir();
    std::fs::create_dir(source.path().join("wal")).expect("a directory");
    let source = source.path().to_str().expect("UTF-8");
    check_refused(
        &["import", "prometheus", source, "--data-dir", data],
        &["used by another process", "stop the server"],
    );
    drop(server);
    assert_eq!(run(&["check", data]).status.code(), Some(0));
}

fn import(source: &Path, flags: &[&str]) -> Output {
    let target = temp_dir();
    let target = target.path().to_str().expect("UTF-8").to_owned();
    let mut args = vec!["import", "prometheus", source.to_str().expect("UTF-8"), "--data-dir", &target];
    args.extend(flags);
    run(&args)
}

fn golden() -> tempfile::TempDir {
    let dir = temp_dir();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../import/testdata/prometheus-3");
    let copied = Command::new("cp").arg("-aT").arg(golden).arg(dir.path()).status().expect("cp runs");
    assert!(copied.success());
    dir
}

/// The directory of a running Prometheus was imported without a word. Prometheus holds an exclusive `flock`
/// on its `lock` file; a file that no process holds, as in a copy or after a crash, is no obstacle.
#[test]
fn a_running_prometheus_is_not_imported_without_force() {
    let source = golden();
    let lock = source.path().join("lock");
    assert_eq!(import(source.path(), &[]).status.code(), Some(0), "no lock file");
    let file = File::create(&lock).expect("a file");
    assert_eq!(import(source.path(), &[]).status.code(), Some(0), "a lock file that no process holds");
    file.lock().expect("a lock");
    let refused = import(source.path(), &[]);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    for part in ["running Prometheus", "stop it", "/api/v1/admin/tsdb/snapshot", "--force"] {
        assert!(stderr.contains(part), "{stderr}");
    }
    let read_only = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    std::fs::set_permissions(&lock, read_only).expect("permissions");
    assert_eq!(import(source.path(), &[]).status.code(), Some(1), "a file that this user cannot write");
    let forced = import(source.path(), &["--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
    file.unlock().expect("no lock");
    assert_eq!(import(source.path(), &[]).status.code(), Some(0), "stopped");
}

/// `--http 0.0.0.0:9595` opened all data to the network without a word.
#[test]
fn an_address_for_other_hosts_is_one_warning() {
    let warning = "no authentication";
    let output = run(&["serve", "--check-config", "--http", "0.0.0.0:9595", "--carbon.listen", "[::]:2003"]);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), stderr.matches(warning).count()), (Some(0), 1), "{stderr}");
    assert!(stderr.contains("http 0.0.0.0:9595, carbon.listen [::]:2003"), "{stderr}");
    let open = run(&["serve", "--http", "0.0.0.0:0", "--access.required"]);
    let stderr = text(&open.stderr);
    assert_eq!((open.status.code(), stderr.matches(warning).count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("--access.required"), "{stderr}");
    let output = run(&["serve", "--check-config"]);
    assert!(!text(&output.stderr).contains(warning), "{}", text(&output.stderr));
}

#[test]
fn help_says_what_the_program_is_and_lists_the_network_first() {
    let help = text(&run(&["--help"]).stdout);
    for part in ["Prometheus", "InfluxDB", "Graphite", "PromQL", "InfluxQL", "S3", "chronolith serve"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    let help = text(&run(&["serve", "--help"]).stdout);
    let order = [
        "--config",
        "--http",
        "--carbon.listen",
        "--data-dir",
        "--retention",
        "--query.timeout",
        "--bucket",
        "--log.level",
    ];
    let at = order.map(|flag| help.find(&format!("{flag} ")).unwrap_or_else(|| panic!("{flag}: {help}")));
    assert!(at.is_sorted(), "{at:?}: {help}");
    for title in ["Network:", "Storage:", "Queries:", "InfluxDB:", "Graphite:", "Bucket:"] {
        assert!(help.lines().any(|line| line == title), "{title}: {help}");
    }
}

/// Makes empty files below a new directory.
fn dir_with(names: &[&str]) -> tempfile::TempDir {
    let dir = temp_dir();
    for name in names {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, "").expect("a file");
    }
    dir
}

/// Returns the number of files and directories below `dir`.
fn entry_count(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    entries.map(|entry| 1 + if entry.path().is_dir() { entry_count(&entry.path()) } else { 0 }).sum()
}

/// `serve` on the directory of a Prometheus mixed its files into the WAL there, after which Prometheus did
/// not start any more ("checkpoint.wal-version-3 is not a directory"). `check` reported 0 damages for any
/// directory.
#[test]
fn directories_of_other_databases_are_refused_before_a_write() {
    let sources: [(&[&str], &str, &str); 5] = [
        (&["wal/00000000", "chunks_head/000001"], "Prometheus", "import prometheus"),
        (&["meta/meta.db", "data/a/b/1/1.tsm"], "InfluxDB 1.x", "import influx --data"),
        (&["servers/web01/cpu.wsp"], "whisper", "import whisper"),
        (&["flock.lock", "data/x"], "VictoriaMetrics", "--data-dir"),
        (&["influxd.bolt"], "InfluxDB 2.x", "--data-dir"),
    ];
    let source = golden();
    let source = source.path().to_str().expect("UTF-8");
    let out = temp_dir();
    let out = out.path().join("out");
    let out = out.to_str().expect("UTF-8");
    for (names, program, advice) in sources {
        let dir = dir_with(names);
        let before = entry_count(dir.path());
        let path = dir.path().to_str().expect("UTF-8");
        let parts = ["is a directory of", program, advice];
        check_refused(&["serve", "--data-dir", path, "--http", "127.0.0.1:0"], &parts);
        check_refused(&["import", "prometheus", source, "--data-dir", path], &parts);
        for args in [&["check", path][..], &["export", "blocks", "--out", out, "--data-dir", path]] {
            check_refused(args, &["is a directory of", program, "name a data directory of Chronolith"]);
        }
        assert_eq!(entry_count(dir.path()), before, "{program}: nothing is written");
    }
}

#[test]
fn a_directory_without_data_is_not_verified_or_exported() {
    let out = temp_dir();
    let out = out.path().join("out");
    let out = out.to_str().expect("UTF-8");
    for (names, why) in
        [(&[][..], "is empty"), (&["notes.txt", "a/b"], "no data of Chronolith, found a, notes.txt")]
    {
        let dir = dir_with(names);
        let path = dir.path().to_str().expect("UTF-8");
        check_refused(&["check", path], &[path, why]);
        check_refused(&["export", "influx", "--out", out, "--data-dir", path], &[path, why]);
    }
}

/// A directory with unknown files may be meant, such as one with a file of settings: a warning, and the
/// start.
#[test]
fn unknown_files_in_the_data_directory_are_one_warning() {
    let dir = dir_with(&["chronolith.yml"]);
    let warning_count = || {
        let mut server = Server::start(dir.path(), &NO_SCRAPE);
        let mut stderr = server.child.stderr.take().expect("a pipe");
        server.stop();
        let mut log = String::new();
        stderr.read_to_string(&mut log).expect("a log");
        log.matches("files of another program and none of Chronolith, found chronolith.yml").count()
    };
    assert_eq!(warning_count(), 1);
    assert_eq!(warning_count(), 0, "the directory is Chronolith's by then");
}

/// The reason stood twice in the message, since it was text and source of one error.
#[test]
fn a_refused_connection_is_reported_once() {
    let dir = temp_dir();
    let closed = format!("http://127.0.0.1:{}", free_port());
    for args in [&["query", &closed, "up"][..], &["import", "influx", "--url", &closed]] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_chronolith")).args(args).current_dir(dir.path()).output();
        let stderr = text(&output.expect("chronolith runs").stderr);
        assert_eq!(stderr.matches("Connection refused").count(), 1, "{args:?}: {stderr}");
        assert!(stderr.contains(&closed), "{args:?}: {stderr}");
    }
}

/// A query without a tenant ended with "no org id", which names neither the flag nor the header.
#[test]
fn a_query_without_a_tenant_names_the_flag() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &["--self-scrape", "off", "--multitenancy"]);
    let url = format!("http://127.0.0.1:{}", server.port);
    check_refused(&["query", &url, "up"], &["no org id", "name the tenant with --tenant"]);
    let output = run(&["query", &url, "up", "--tenant", "team-a"]);
    assert_eq!((output.status.code(), text(&output.stdout).trim()), (Some(0), "(no series)"));
    let refused = text(&run(&["query", &url, "up", "--tenant", "a/b"]).stderr);
    assert!(!refused.contains("name the tenant with"), "{refused}");
}
