//! Rounds over restarts: state of alerts, rounds that are made up, crashes at each disk operation.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use chronolith_base::{Clock as _, Disk as _};
use chronolith_model::TenantId;
use chronolith_rules::alert::AlertState;
use chronolith_rules::group::{GroupKey, Origin};
use chronolith_rules::round::{StateStore as _, StoredGroup, StoredRounds};

use super::environment::{Environment, Points, START_MS, started};
use crate::evaluation::rules::environment::state_files;
use crate::evaluation::rules::{restore, take_due, wait};
use crate::rules::group_id::GroupId;
use crate::rules::round_permit::RoundPermit;
use crate::rules::state_files::GroupFile;

const RULES: &str = "groups:
- name: g
  interval: 1m
  rules:
  - {record: r, expr: sum(x)}
  - {record: rr, expr: r * 2}
  - {alert: A, expr: r > 0, for: 3m}
";

/// A server that was ready listed no alerts until its scheduler had read their states.
#[test]
fn alerts_are_listed_before_the_first_round() {
    let server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    for step in 0..40 {
        server.write(&TenantId::anonymous(), &[("__name__", "x")], START_MS + step * 15_000, 1.0);
    }
    server.run_for(Duration::from_secs(300));
    let server = server.restart(Duration::from_secs(30));
    restore(&server.service);
    let rule = server.status().rules[2].clone();
    assert_eq!((rule.alerts.state(), rule.evaluated_ns), (AlertState::Firing, None));
}

/// The scheduler spun as long as the replay took: it never took the change that ended its wait.
#[test]
fn a_change_ends_one_wait_alone() {
    let server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    let wait = || wait(&server.service, Duration::ZERO);
    assert!(wait(), "groups have changed");
    assert!(!wait(), "the change is known");
    server.service.rules.engine.wake();
    assert!(wait(), "the store is open");
}

/// A round that became due after the look for due rounds, and before the wait, started up to a second late.
#[test]
fn a_round_that_becomes_due_before_the_wait_ends_it() {
    let server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    server.run_due();
    let wait = || wait(&server.service, Duration::ZERO);
    assert!(!wait(), "no round is due");
    assert!(take_due(&server.service).is_empty());
    server.clock.advance(Duration::from_secs(60));
    assert!(wait(), "a round is due");
    assert!(!wait(), "without rounds being taken, the scheduler waits");
}

/// Everything that a run has recorded, and labels and starts of alerts that it has sent.
#[derive(Debug, PartialEq)]
struct Outcome {
    recorded: BTreeMap<String, Points>,
    sent: Vec<(String, i64, bool)>,
}

/// Ten minutes of rounds; `crash_ops` disk operations after the end of the fourth minute the disk fails, and
/// the process ends for 90 s. Returns the number of refused operations too.
fn run(crash_ops: Option<u64>) -> (Outcome, u64) {
    let tenant = TenantId::anonymous();
    let mut server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    for step in 0..40 {
        server.write(&tenant, &[("__name__", "x")], START_MS + step * 15_000, step as f64);
    }
    server.run_for(Duration::from_secs(240));
    let mut refused_count = 0;
    if let Some(ops) = crash_ops {
        let before = server.disk.refused_count();
        server.disk.fail_after(ops);
        server.run_for(Duration::from_secs(60));
        refused_count = server.disk.refused_count() - before;
        server = server.restart(Duration::from_secs(90));
        server.run_for(Duration::from_secs(210));
    } else {
        server.run_for(Duration::from_secs(360));
    }
    (outcome(&server), refused_count)
}

fn outcome(server: &Environment) -> Outcome {
    let selector = "{__name__=~\"r|rr|ALERTS|ALERTS_FOR_STATE\"}";
    let sent = server.sent.borrow();
    let mut sent: Vec<(String, i64, bool)> = sent
        .iter()
        .map(|alert| (alert.labels.to_string(), alert.starts_at_ms, alert.end.is_resolved()))
        .collect();
    sent.dedup();
    Outcome { recorded: server.samples(&TenantId::anonymous(), selector), sent }
}

/// A crash at any disk operation of a round costs no round, doubles none, and neither begins the clock of
/// `for` again nor changes the start of a firing alert.
#[test]
fn a_crash_at_each_disk_operation_changes_nothing() {
    let (want, _) = run(None);
    assert_eq!(want.recorded["r"].len(), 10);
    assert_eq!(want.sent.len(), 1, "{:?}", want.sent);
    let mut ops = 0;
    loop {
        let (found, refused_count) = run(Some(ops));
        assert_eq!(found, want, "after {ops} operations");
        if refused_count == 0 {
            break;
        }
        ops += 1;
    }
    assert!(ops > 5, "a round has {ops} disk operations");
}

#[test]
fn rounds_of_an_outage_are_made_up_once_and_older_ones_are_lost() {
    let tenant = TenantId::anonymous();
    let server = started(|options| {
        options.rules.catch_up_ms = 600_000;
        options.tsdb.limits.default.future_ms_max = 0;
    });
    server.load("a.yml", RULES).expect("valid");
    for step in 0..120 {
        server.write(&tenant, &[("__name__", "x")], START_MS + step * 30_000, 1.0);
    }
    server.run_for(Duration::from_secs(120));
    let server = server.restart(Duration::from_secs(1800));
    server.run_due();
    let status = server.status();
    assert_eq!((status.rounds.caught_up, status.rounds.lost, status.rounds.missed), (10, 20, 0));
    assert!(status.last_round.is_some_and(|round| round.is_caught_up));
    assert_eq!(server.times_s("r").len(), 12);
    assert_eq!(server.sent.borrow().len(), 1, "the newest round alone sends");
    server.run_for(Duration::from_secs(60));
    let status = server.status();
    assert_eq!((status.rounds.evaluated, status.rounds.missed), (1, 0));
    assert_eq!(server.times_s("r").len(), 13);
}

#[test]
fn without_catching_up_the_first_round_is_the_next_one() {
    let server = started(|options| options.rules.catch_up_ms = 0);
    server.load("a.yml", RULES).expect("valid");
    server.write(&TenantId::anonymous(), &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(60));
    let server = server.restart(Duration::from_secs(175));
    server.run_due();
    assert_eq!(server.times_s("r").len(), 1);
    server.run_for(Duration::from_secs(60));
    let rounds = server.status().rounds;
    assert_eq!((rounds.evaluated, rounds.caught_up, rounds.missed), (1, 0, 0));
    assert!((2..=3).contains(&rounds.lost), "{rounds:?}");
}

#[test]
fn a_damaged_state_is_put_aside_and_the_group_starts_anew() {
    let server = started(|_| {});
    server.load("a.yml", "groups: [{name: g, rules: [{alert: A, expr: vector(1)}]}]").expect("valid");
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.status().rules[0].alerts.state(), AlertState::Firing);
    let dir = Path::new("/data/rules/files/anonymous");
    let files = server.disk.list(dir).expect("a directory");
    assert_eq!(files.len(), 1);
    let path = dir.join(&files[0].name);
    let len = server.disk.open(&path).and_then(|file| file.len()).expect("a file");
    server.disk.write_atomic(&path, &vec![0; len as usize]).expect("written");
    let server = server.restart(Duration::from_secs(1));
    server.run_due();
    assert_eq!(server.service.rules.engine.counters.damaged_states.get(), 1);
    assert!(server.disk.exists(&path.with_extension("state.damaged")));
    assert_eq!(server.status().rules[0].alerts.state(), AlertState::Inactive);
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.status().rules[0].alerts.state(), AlertState::Firing);
    assert!(server.disk.exists(&path));
}

/// A series that ended while the server was down was seen by queries for five minutes more.
#[test]
fn a_recorded_series_that_ends_while_the_server_is_down_is_stale() {
    let tenant = TenantId::anonymous();
    let server = started(|options| options.rules.catch_up_ms = 0);
    server.load("a.yml", "groups: [{name: g, rules: [{record: r, expr: x}]}]").expect("valid");
    server.write(&tenant, &[("__name__", "x"), ("a", "1")], START_MS, 1.0);
    for step in 0..40 {
        server.write(&tenant, &[("__name__", "x"), ("b", "1")], START_MS + step * 15_000, 1.0);
    }
    server.run_for(Duration::from_secs(240));
    assert_eq!(server.count(&tenant, "r", server.clock.now_ms()), 2);
    let server = server.restart(Duration::from_secs(90));
    server.run_for(Duration::from_secs(70));
    assert_eq!(server.status().rounds.caught_up, 0);
    assert_eq!(server.count(&tenant, "r", server.clock.now_ms()), 1);
}

#[test]
fn a_state_without_series_is_counted() {
    let server = started(|_| {});
    let key = GroupKey { file: "a.yml".to_owned(), name: "g".to_owned() };
    let id = GroupId { tenant: TenantId::anonymous(), origin: Origin::Files, key };
    let files = || state_files(&server.service);
    let file = || GroupFile {
        files: files(),
        id: &id,
        rounds: StoredRounds::default(),
        permit: &RoundPermit::Unlimited,
    };
    let mut state = StoredGroup {
        file: "a.yml".to_owned(),
        name: "g".to_owned(),
        last_round_ns: None,
        rules: Vec::new(),
        rounds: StoredRounds::default(),
        recordings: Some(Vec::new()),
    };
    file().save(state.clone()).expect("stored");
    assert_eq!(server.service.rules.engine.counters.states_without_series.get(), 0);
    state.recordings = None;
    file().save(state.clone()).expect("stored");
    assert_eq!(server.service.rules.engine.counters.states_without_series.get(), 1);
    assert_eq!(files().load(&id), Some(state));
}

#[test]
fn alerts_are_shown_before_the_first_round_after_a_restart() {
    let server = started(|options| options.rules.catch_up_ms = 0);
    server.load("a.yml", "groups: [{name: g, rules: [{alert: A, expr: vector(1)}]}]").expect("valid");
    server.run_for(Duration::from_secs(60));
    let server = server.restart(Duration::from_secs(1));
    server.run_due();
    let status = server.status();
    assert_eq!((status.last_round, status.rules[0].alerts.state()), (None, AlertState::Firing));
    assert_eq!(server.clock.now_ms(), START_MS + 61_000);
}

#[test]
fn states_of_groups_that_were_removed_while_the_server_was_down_go_after_the_outage_tolerance() {
    let server = started(|_| {});
    server.load("a.yml", RULES).expect("valid");
    server.run_for(Duration::from_secs(60));
    let dir = Path::new("/data/rules/files/anonymous");
    let count = |server: &Environment| server.disk.list(dir).expect("a directory").len();
    server.disk.write_atomic(Path::new("/etc/rules/a.yml"), b"groups: []").expect("written");
    let server = server.restart(Duration::from_secs(600));
    server.run_due();
    assert_eq!(count(&server), 1, "the group may come back");
    let server = server.restart(Duration::from_secs(3600));
    server.run_due();
    assert_eq!(count(&server), 0);
}
