//! Rotation, failures of the disk, and the bound of lines of refused requests.

use std::path::Path;

use chronolith_base::{Disk as _, MemDisk};

use super::*;

const NOW_MS: i64 = 1_700_000_000_000;
const FILE: &str = "/log/audit.json";

fn log(change: impl FnOnce(&mut AuditOptions)) -> (AuditLog, Env, std::sync::Arc<MemDisk>) {
    let (env, _clock, disk) = Env::fake(NOW_MS, 1);
    disk.create_dir_all(Path::new("/log")).expect("a directory");
    let mut options = AuditOptions { file: Some(FILE.into()), ..AuditOptions::default() };
    change(&mut options);
    (AuditLog::new(options), env, disk)
}

fn subject(action: &str) -> AuditSubject {
    AuditSubject { action: action.to_owned(), ..AuditSubject::default() }
}

fn refuse(log: &AuditLog, env: &Env, user: Option<&str>, reason: &str) {
    if let Some(line) = log.admit_refused(env.clock.now_ms()) {
        log.refused(env, &subject("a"), user, reason, line);
    }
}

/// Actions and results of the lines of a file, in order.
#[track_caller]
fn lines(env: &Env, path: &str) -> Vec<String> {
    let text = String::from_utf8(env.disk.read(Path::new(path)).expect("a file")).expect("UTF-8");
    let one = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        format!("{} {}", line["action"].as_str().expect("text"), line["result"].as_str().expect("text"))
    };
    text.lines().filter(|line| line.starts_with('{') && line.ends_with('}')).map(one).collect()
}

#[test]
fn a_line_has_every_field() {
    let (log, env, _) = log(|_| {});
    let subject = AuditSubject {
        request_id: "id".to_owned(),
        principal: Some("ops".to_owned()),
        address: Some("10.0.0.1:9".to_owned()),
        certificate: Some("CN=ops".to_owned()),
        tenants: vec!["a".to_owned()],
        action: "POST /x".to_owned(),
        target: [("match[]".to_owned(), json!(["up"]))].into_iter().collect(),
    };
    let counts = [("series".to_owned(), json!(2))].into_iter().collect();
    log.end(&env, &subject, AuditOutcome { status: 500, error: Some("why".to_owned()), counts });
    let text = String::from_utf8(env.disk.read(Path::new(FILE)).unwrap()).unwrap();
    let want = json!({
        "time": "2023-11-14T22:13:20.000Z", "requestId": "id", "principal": "ops", "address": "10.0.0.1:9",
        "certificate": "CN=ops", "tenants": ["a"], "action": "POST /x", "target": {"match[]": ["up"]},
        "result": "failed", "status": 500, "error": "why", "counts": {"series": 2},
    });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), want);
    assert_eq!((log.lines.get(), log.bytes.get()), (1, text.len() as u64));
}

#[test]
fn files_are_renamed_by_size_and_the_oldest_goes() {
    let (log, env, disk) = log(|options| {
        options.file_bytes_max = 1;
        options.file_count_max = 2;
    });
    for action in ["a", "b", "c", "d"] {
        log.begin(&env, &subject(action)).expect("written");
    }
    assert_eq!(lines(&env, FILE), ["d begin"]);
    assert_eq!(lines(&env, "/log/audit.json.1"), ["c begin"]);
    assert_eq!(lines(&env, "/log/audit.json.2"), ["b begin"]);
    assert!(disk.read(Path::new("/log/audit.json.3")).is_err(), "two renamed files are kept");
}

#[test]
fn lines_of_actions_survive_a_power_cut_also_across_a_rotation() {
    let (log, env, disk) = log(|options| options.file_bytes_max = 1);
    log.begin(&env, &subject("a")).expect("written");
    log.begin(&env, &subject("b")).expect("written");
    disk.crash();
    assert_eq!(lines(&env, FILE), ["b begin"]);
    assert_eq!(lines(&env, "/log/audit.json.1"), ["a begin"]);
}

/// Fails each disk operation of a line, a rotation included: the action is refused, and the line after it is
/// whole.
#[test]
fn a_failure_of_the_disk_refuses_the_action_and_spoils_no_other_line() {
    let mut refused_count = 0;
    for op in 0..12 {
        let (log, env, disk) = log(|options| options.file_bytes_max = 200);
        log.begin(&env, &subject("a")).expect("written");
        disk.fail_some(op, 1);
        let failed = (0..3).filter(|_| log.begin(&env, &subject("b")).is_err()).count();
        disk.heal();
        refused_count += failed;
        assert_eq!(log.failures.get(), failed as u64, "operation {op}");
        log.begin(&env, &subject("c")).expect("written");
        let all = [FILE, "/log/audit.json.1", "/log/audit.json.2", "/log/audit.json.3", "/log/audit.json.4"];
        let all: Vec<String> = all
            .iter()
            .filter(|path| disk.read(Path::new(path)).is_ok())
            .flat_map(|path| lines(&env, path))
            .collect();
        for want in ["a begin", "c begin"] {
            assert!(all.iter().any(|line| line == want), "operation {op}: {all:?}");
        }
        // A line whose sync failed may be there.
        let written = all.iter().filter(|line| *line == "b begin").count();
        assert!((3 - failed..=3).contains(&written), "operation {op}: {all:?}");
    }
    assert!(refused_count > 0);
}

#[test]
fn a_full_disk_refuses_actions_and_counts_the_others() {
    let (log, env, disk) = log(|_| {});
    log.begin(&env, &subject("a")).expect("written");
    disk.set_capacity_bytes(0);
    let error = log.begin(&env, &subject("b")).expect_err("full").to_string();
    assert!(error.starts_with("refused, because its line cannot be written to the audit log (audit.file): "));
    log.query(&env, &subject("c"), AuditOutcome::default());
    refuse(&log, &env, None, "why");
    assert_eq!(log.failures.get(), 3);
    disk.set_capacity_bytes(u64::MAX);
    log.begin(&env, &subject("e")).expect("written");
    assert_eq!(lines(&env, FILE), ["a begin", "e begin"]);
}

#[test]
fn refused_requests_have_a_bounded_rate_of_lines() {
    let (env, clock, disk) = Env::fake(NOW_MS, 1);
    disk.create_dir_all(Path::new("/log")).unwrap();
    let log = AuditLog::new(AuditOptions { file: Some(FILE.into()), ..AuditOptions::default() });
    for _ in 0..REFUSED_LINES_MAX + 7 {
        refuse(&log, &env, Some("ops"), "authentication failed");
    }
    assert_eq!((log.lines.get(), log.suppressed.get()), (REFUSED_LINES_MAX, 7));
    clock.advance(std::time::Duration::from_millis(REFUSED_WINDOW_MS.unsigned_abs()));
    refuse(&log, &env, None, "authentication failed");
    let text = String::from_utf8(disk.read(Path::new(FILE)).unwrap()).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["suppressed"], 7);
    assert_eq!(last["error"], "authentication failed");
}

#[test]
fn the_rest_of_a_torn_line_is_a_line_of_its_own() {
    let (log, env, disk) = log(|_| {});
    disk.create(Path::new(FILE)).unwrap().write_at(b"{\"action\":", 0).unwrap();
    log.begin(&env, &subject("a")).expect("written");
    assert_eq!(lines(&env, FILE), ["a begin"]);
}

#[test]
fn long_texts_are_cut() {
    let (log, env, _) = log(|_| {});
    let mut long = subject(&"x".repeat(100_000));
    long.target.insert("query".to_owned(), json!(["ä".repeat(50_000)]));
    log.begin(&env, &long).expect("written");
    assert!(log.bytes.get() < 4 * TEXT_BYTES_MAX as u64);
    assert_eq!(lines(&env, FILE).len(), 1);
}
