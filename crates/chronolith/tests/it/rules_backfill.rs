//! `chronolith rules backfill` as a process: on a running server, in its data directory, and after kills.
#![expect(clippy::disallowed_methods, reason = "tests of a real process touch the real world")]

use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{SeriesToSend, Server, now_ms, temp_dir};

const FLAGS: [&str; 4] =
    ["--self-scrape", "off", "--web.enable-admin-api", "--rules.evaluation-interval=15s"];
const RULES: &str = "groups:
- name: g
  rules:
  - {record: a, expr: 'sum by (job) (x)'}
  - {record: b, expr: 'a * 2'}
  - {alert: C, expr: 'b > 1'}
";
const SPAN_S: i64 = 7200;

/// Two hours of a series per job, and the rule file.
fn prepare(server: &Server, dir: &Path) -> i64 {
    let end_ms = now_ms() / 1000 * 1000;
    let samples: Vec<(i64, f64)> =
        (0..SPAN_S / 30).map(|step| (end_ms - step * 30_000, step as f64)).rev().collect();
    for job in ["one", "two"] {
        let labels = [("__name__", "x"), ("job", job)];
        let answer = server.write(&[SeriesToSend { labels: &labels, samples: &samples }]);
        assert!(answer.status < 300, "{}", answer.text());
    }
    std::fs::write(dir.join("rules.yml"), RULES).expect("a rule file");
    end_ms / 1000
}

fn backfill(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronolith"));
    command.current_dir(dir).args(["rules", "backfill"]).args(arguments).arg("rules.yml");
    command.output().expect("chronolith runs")
}

#[track_caller]
fn totals(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_backfill_of_a_server_and_of_its_directory_agree() {
    let (dir, work) = (temp_dir(), temp_dir());
    let mut server = Server::start(dir.path(), &FLAGS);
    let end_s = prepare(&server, work.path());
    let url = format!("http://127.0.0.1:{}", server.port);
    let (start, end) = ((end_s - SPAN_S).to_string(), end_s.to_string());
    let on_server = ["--url", &url, "--start", &start, "--end", &end];
    let dry: Vec<&str> = on_server.into_iter().chain(["--dry-run"]).collect();
    assert!(totals(&backfill(work.path(), &dry)).contains("would be added"));
    assert_eq!(server.query_value("count({__name__=~\"a|b\"})", end_s as f64), None);
    let first = backfill(work.path(), &on_server);
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(said.contains("1 skipped: C") && said.contains("2 recording rules"), "{said}");
    let line = totals(&first);
    assert!(line.contains(" 4 series: ") && line.contains(" 0 equal"), "{line}");
    let added =
        line.split(" series: ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number").to_owned();
    assert!(added.parse::<u64>().expect("a number") > 1800, "{line}");
    let again = totals(&backfill(work.path(), &on_server));
    assert!(
        again.contains(": 0 samples added, 0 replaced, 0 removed")
            && again.contains(&format!("{added} equal")),
        "{again}"
    );
    // A round is at most 15 s older, and later than the sample of x at half of the range.
    let half = (end_s - SPAN_S / 2 + 16) as f64;
    assert_eq!(server.query_value("b{job=\"one\"} - 2 * x{job=\"one\"}", half), Some(0.0));
    let in_directory = ["--data-dir", dir.path().to_str().expect("UTF-8"), "--start", &start, "--end", &end];
    let locked = backfill(work.path(), &in_directory);
    let said = String::from_utf8_lossy(&locked.stderr).into_owned();
    assert!(locked.status.code() == Some(1) && said.contains("rules backfill --url"), "{said}");
    assert_eq!(server.stop(), Some(0));
    let settings = work.path().join("settings.yml");
    std::fs::write(&settings, "rules.evaluation-interval: 15s\n").expect("settings");
    let with_settings: Vec<&str> =
        in_directory.into_iter().chain(["--config", settings.to_str().expect("UTF-8")]).collect();
    assert!(
        totals(&backfill(work.path(), &with_settings))
            .contains(&format!("0 samples added, 0 replaced, 0 removed, {added} equal"))
    );
    // Other times of rounds: samples next to those that are there.
    let renamed: Vec<&str> = in_directory.into_iter().chain(["--as", "other.yml"]).collect();
    let others = totals(&backfill(work.path(), &renamed));
    assert!(!others.contains(": 0 samples added") && others.contains(" 0 replaced, 0 removed"), "{others}");
    let left: Vec<_> = std::fs::read_dir(work.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().contains("backfill")),
        "no progress file is left: {left:?}"
    );
    let server = Server::start(dir.path(), &FLAGS);
    assert_eq!(server.query_value("b{job=\"one\"} - 2 * x{job=\"one\"}", half), Some(0.0));
}

/// The server and the tool are killed, and the same command goes on.
#[test]
fn a_backfill_goes_on_after_kills() {
    let (dir, work) = (temp_dir(), temp_dir());
    let mut server = Server::start(dir.path(), &FLAGS);
    let end_s = prepare(&server, work.path());
    let (start, end) = ((end_s - SPAN_S).to_string(), end_s.to_string());
    let url = format!("http://127.0.0.1:{}", server.port);
    let arguments = ["--url", &url, "--start", &start, "--end", &end, "--progress-file", "p.json"];
    for kills_server in [true, false] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_chronolith"));
        tool.current_dir(work.path()).args(["rules", "backfill"]).args(arguments).arg("rules.yml");
        let mut child = tool.spawn().expect("chronolith runs");
        let has_progress = || work.path().join("p.json").exists();
        while !has_progress() && child.try_wait().expect("a state").is_none() {
            std::thread::yield_now();
        }
        if kills_server {
            server.kill();
        } else {
            // The tool may have ended by now.
            drop(child.kill());
        }
        let is_done = child.wait().expect("an end").success();
        assert!(is_done || has_progress(), "the position is kept");
        if kills_server {
            server.start_again(&FLAGS);
        }
    }
    totals(&backfill(work.path(), &arguments));
    // A full run finds each sample, so none is missing and none is another one.
    let again = totals(&backfill(work.path(), &arguments));
    let equal = again.rsplit(", ").next().and_then(|rest| rest.split(' ').next()).expect("a number");
    assert!(again.contains(" 4 series: 0 samples added, 0 replaced, 0 removed"), "{again}");
    // Samples of x begin 30 s after the range.
    let round_count = (SPAN_S - 30) / 15;
    let rounds = equal.parse::<i64>().expect("a number") / 4;
    assert!(rounds == round_count || rounds == round_count + 1, "{again}");
    assert!(!work.path().join("p.json").exists());
}
