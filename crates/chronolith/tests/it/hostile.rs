//! Clients that mean harm, and a data directory that was damaged: clear errors, bounded memory, server alive.
#![expect(clippy::disallowed_methods, reason = "damages real files on purpose")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chronolith_base::Rng;

use crate::harness::{SeriesToSend, Server, now_ms, temp_dir};

/// Resident memory that hostile requests may cost at most.
const RSS_MIB_MAX: u64 = 600;
const NO_SCRAPE: [&str; 2] = ["--self-scrape", "off"];
/// Twice the time that the server waits for a header.
const HEADER_WAIT_MAX: Duration = Duration::from_secs(20);

fn assert_alive(server: &Server) {
    assert_eq!(server.request("GET", "/-/healthy", &[], b"").status, 200);
    assert!(server.rss_mib() < RSS_MIB_MAX, "{} MiB resident", server.rss_mib());
}

#[test]
fn a_body_of_one_gigabyte_is_refused_without_being_kept() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &NO_SCRAPE);
    for announce in ["Content-Length: 1073741824", "Transfer-Encoding: chunked"] {
        let mut stream = server.connect().expect("connect");
        let head = format!(
            "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\n{announce}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("head");
        let part = vec![b'x'; 1 << 20];
        let chunked = announce.starts_with("Transfer");
        for _ in 0..1024 {
            let sent = if chunked {
                stream
                    .write_all(b"100000\r\n")
                    .and_then(|()| stream.write_all(&part))
                    .and_then(|()| stream.write_all(b"\r\n"))
            } else {
                stream.write_all(&part)
            };
            if sent.is_err() {
                break;
            }
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        // A reset instead of an answer is possible when the server closes while bytes are on their way.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{announce}: {answer:.80}");
        assert_alive(&server);
    }
}

#[test]
fn slow_senders_are_cut_off_and_hold_nobody_up() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &NO_SCRAPE);
    let mut slow = Vec::new();
    for i in 0..300 {
        let mut stream = server.connect().expect("connect");
        let part: &[u8] = if i % 2 == 0 {
            b"GET /api/v1/query?query=1 HTTP/1.1\r\nHos"
        } else {
            b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc"
        };
        stream.write_all(part).expect("part");
        slow.push(stream);
    }
    let started = Instant::now();
    assert_eq!(server.query_value("1+1", 1.0), None, "a scalar has no series");
    assert!(started.elapsed() < HEADER_WAIT_MAX / 2, "others wait {:?}", started.elapsed());
    // Headers that never end are given up on.
    slow[0].set_read_timeout(Some(HEADER_WAIT_MAX * 3)).expect("timeout");
    let mut rest = Vec::new();
    let closed = slow[0].read_to_end(&mut rest);
    assert!(closed.is_ok(), "the connection is closed: {closed:?}");
    assert_alive(&server);
}

#[test]
fn thousands_of_idle_connections_do_not_hurt() {
    let dir = temp_dir();
    let server = Server::start(dir.path(), &NO_SCRAPE);
    let wanted = open_files_limit().saturating_sub(200).min(10_000);
    let held: Vec<_> = (0..wanted).map_while(|_| server.connect().ok()).collect();
    let started = Instant::now();
    // At the connection limit a new client may be turned away until an idle one is closed, but not for long.
    while server.try_request("GET", "/-/healthy", &[], b"").map_or(0, |a| a.status) != 200 {
        assert!(started.elapsed() < HEADER_WAIT_MAX * 3, "{} connections held", held.len());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(server.rss_mib() < RSS_MIB_MAX, "{} MiB with {} connections", server.rss_mib(), held.len());
    drop(held);
    assert_alive(&server);
}

fn open_files_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap_or("");
    line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).unwrap_or(1024)
}

#[test]
fn times_at_both_ends_are_answered_clearly_and_spoil_nothing() {
    let dir = temp_dir();
    let mut server = Server::start(dir.path(), &NO_SCRAPE);
    let now = now_ms();
    for time in [i64::MAX, i64::MIN, i64::MAX / 2, i64::MIN / 2, i64::MAX - 1, i64::MIN + 1, 0, -1, 1] {
        let samples = [(time, 1.0)];
        let answer = server.write(&[SeriesToSend { labels: &[("__name__", "edge")], samples: &samples }]);
        assert!(answer.status == 204 || answer.status == 400, "{time}: {} {}", answer.status, answer.text());
        if answer.status == 400 {
            assert!(answer.text().contains("out of bounds"), "{time}: {}", answer.text());
        }
    }
    let good = [(now, 7.0)];
    assert_eq!(server.write(&[SeriesToSend { labels: &[("__name__", "edge")], samples: &good }]).status, 204);
    for time in ["-9223372036854775808", "9223372036854775807", "-1e300", "1e18", "9223372036854775.807"] {
        let path = format!("/api/v1/query?query=edge&time={time}");
        let status = server.request("GET", &path, &[], b"").status;
        assert!(status == 200 || status == 400, "{time}: {status}");
    }
    let at = now as f64 / 1000.0;
    assert_eq!(server.query_value("edge", at), Some(7.0));
    server.kill();
    let server = Server::start(dir.path(), &NO_SCRAPE);
    assert_eq!(server.query_value("edge", at), Some(7.0));
    assert_eq!(server.query_value("edge", 0.0), Some(1.0), "1970 is a time like any other");
}

fn files_below(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("directory") {
        let path = entry.expect("entry").path();
        if path.is_dir() { files_below(&path, out) } else { out.push(path) }
    }
    out.sort();
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("directory");
    for entry in std::fs::read_dir(from).expect("directory") {
        let path = entry.expect("entry").path();
        let target = to.join(path.file_name().expect("name"));
        if path.is_dir() {
            copy_dir(&path, &target)
        } else {
            std::fs::copy(&path, &target).map(|_| ()).expect("copy")
        }
    }
}

/// Fills a directory with a checkpoint, a block and a WAL after them.
fn lived_in(dir: &Path) {
    let now = now_ms();
    let mut server = Server::start(dir, &["--self-scrape", "off", "--flush-delay", "0s"]);
    for i in 0..50i64 {
        let samples: Vec<_> = (0..20).map(|k| (now - 20_000_000 + (i * 20 + k) * 15_000, k as f64)).collect();
        let value = i.to_string();
        let labels = [("__name__", "lived"), ("i", &*value)];
        server.write(&[SeriesToSend { labels: &labels, samples: &samples }]);
    }
    server.wait_for_block();
    assert_eq!(server.stop(), Some(0));
    let mut server = Server::start(dir, &NO_SCRAPE);
    let samples = [(now, 1.0)];
    server.write(&[SeriesToSend { labels: &[("__name__", "tail")], samples: &samples }]);
    server.kill();
}

#[test]
fn every_file_cut_at_random_gives_a_start_or_a_clear_error() {
    let rng = Rng::from_seed(11);
    let original = temp_dir();
    lived_in(original.path());
    let mut files = Vec::new();
    files_below(original.path(), &mut files);
    files.retain(|f| f.file_name().is_some_and(|n| n != "lock"));
    assert!(files.iter().any(|f| f.ends_with("index")), "a block was written: {files:?}");
    for file in &files {
        let dir = temp_dir();
        copy_dir(original.path(), dir.path());
        let victim = dir.path().join(file.strip_prefix(original.path()).expect("below"));
        let len = std::fs::metadata(&victim).expect("length").len();
        let cut = rng.below(len.max(1));
        std::fs::OpenOptions::new().write(true).open(&victim).expect("open").set_len(cut).expect("cut");
        let mut server = Server::launch(dir.path(), &NO_SCRAPE);
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = server.child.try_wait().expect("status") {
                let mut said = String::new();
                server.child.stderr.take().expect("stderr").read_to_string(&mut said).expect("text");
                assert_eq!(status.code(), Some(1), "{} cut to {cut}: {said}", victim.display());
                assert!(!said.contains("panicked"), "{said}");
                break;
            }
            if server.try_request("GET", "/-/ready", &[], b"").is_ok_and(|a| a.status == 200) {
                // A damaged block is named by the queries that need it.
                let all =
                    format!("/api/v1/query?query=count(%7B__name__=~%22.%2B%22%7D)&time={}", now_ms() / 1000);
                let answer = server.request("GET", &all, &[], b"");
                let names_block = answer.text().contains("/tenants/anonymous/");
                assert!(answer.status == 200 || answer.status == 500 && names_block, "{}", answer.text());
                let path = format!(
                    "/api/v1/query_range?query=lived&start={0}&end={1}&step=60",
                    now_ms() / 1000 - 20_000,
                    now_ms() / 1000
                );
                let status = server.request("GET", &path, &[], b"").status;
                assert!(status == 200 || status == 422 || status == 500, "{status}");
                let samples = [(now_ms(), 3.0)];
                let answer =
                    server.write(&[SeriesToSend { labels: &[("__name__", "after")], samples: &samples }]);
                assert_eq!(answer.status, 204, "{}", answer.text());
                break;
            }
            assert!(Instant::now() < end, "{} cut to {cut}: neither up nor down", victim.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn check(dir: &Path) -> (Option<i32>, String) {
    let binary = env!("CARGO_BIN_EXE_chronolith");
    let out = std::process::Command::new(binary).arg("check").arg(dir).output().expect("runs");
    (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn check_names_the_damaged_file_and_the_offset() {
    let dir = temp_dir();
    lived_in(dir.path());
    let (code, said) = check(dir.path());
    assert_eq!(code, Some(0), "a kill leaves no damage: {said}");
    let mut files = Vec::new();
    files_below(dir.path(), &mut files);
    let victim = files.iter().find(|f| f.ends_with("chunks/000001")).expect("chunks of a block");
    let mut bytes = std::fs::read(victim).expect("chunks");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(victim, bytes).expect("damage");
    let (code, said) = check(dir.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("chunks/000001: offset "), "{said}");
}
