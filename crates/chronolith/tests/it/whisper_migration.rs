//! Migration of Graphite: whisper files to a running server, and back from its data directory.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use chronolith_import::whisper::{FileBuilder, FilePoints, TimeSelection};
use chronolith_ingest::carbon::{AggregationMethod, Archive};

use crate::harness::{Server, now_ms, temp_dir};

const ARCHIVE: Archive = Archive { step_s: 60, point_count: 600 };
/// Files and the numbers of their points.
const FILES: [(&str, u32); 3] =
    [("a/b.wsp", 50), ("a/c d.wsp", 5), ("_tagged/000/000/disk_DOT_used;host=x.wsp", 70)];

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.args(args).current_dir(dir).stdin(Stdio::null()).output().expect("chronolith runs")
}

#[track_caller]
fn check(output: &Output, code: i32, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// Bytes of a file whose newest point is ten minutes old.
fn file(count: u32, now_s: u32) -> Vec<u8> {
    let mut builder = FileBuilder::new(AggregationMethod::Last, 0.0, &[ARCHIVE]).expect("a method");
    let point = |back: u32| (now_s - 600 - back * 60, f64::from(back) / 8.0);
    builder.put_points(0, (0..count).rev().map(point));
    builder.into_bytes()
}

fn points(bytes: &[u8], now_s: u32) -> FilePoints {
    let mut points = FilePoints::default();
    points.read(bytes, i64::from(now_s), TimeSelection::ALL).expect("a sound file");
    points
}

#[test]
fn files_go_to_a_running_server_and_come_back() {
    let dir = temp_dir();
    let now_s = u32::try_from(now_ms() / 1000).expect("before 2106");
    for (name, count) in FILES {
        let path = dir.path().join("whisper").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, file(count, now_s)).expect("a file");
    }
    let mut server = Server::start(&dir.path().join("data"), &["--self-scrape", "off"]);
    let url = format!("http://127.0.0.1:{}", server.port);
    let data = server.dir.to_str().expect("UTF-8").to_owned();
    // No line can have a path with a blank.
    let blank = "left out: 1 files: the path has a blank";
    let import = ["import", "whisper", "whisper", "--to", &url];
    check(&run(dir.path(), &import), 1, &["120 points of 2 files", "compared: 1 files", " 0 differ", blank]);
    check(&run(dir.path(), &import), 1, &["0 points of 0 files", "(2 files were imported already)", blank]);
    let count =
        server.query_value("sum(count_over_time({__name__=~\"a.b|disk.used\"}[1d]))", f64::from(now_s));
    assert_eq!(count, Some(120.0));
    // The directory of a running server is locked.
    check(&run(dir.path(), &["import", "whisper", "whisper", "--data-dir", &data]), 1, &["lock"]);
    check(&run(dir.path(), &["import", "whisper", "nowhere", "--to", &url]), 1, &["nowhere"]);
    check(&run(dir.path(), &["import", "whisper"]), 2, &[]);
    assert_eq!(server.stop(), Some(0));
    let export = ["export", "whisper", "out", "--data-dir", &data, "--retentions", "1m:10h"];
    check(&run(dir.path(), &export), 0, &["exported 120 points to 2 files"]);
    let wanted = points(&file(50, now_s), now_s);
    let found = points(&fs::read(dir.path().join("out/a/b.wsp")).expect("a file"), now_s);
    assert_eq!((found.times, found.values), (wanted.times, wanted.values));
}
