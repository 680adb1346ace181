//! Reloads: all files or none, state that stays, groups that go and come back, limits.

use std::path::Path;
use std::time::Duration;

use chronolith_base::{Clock as _, Disk as _};
use chronolith_model::TenantId;
use chronolith_rules::alert::AlertState;
use chronolith_tsdb::LimitsTable;

use super::environment::{START_MS, started};

const GROUP: &str = "groups: [{name: g, interval: 10s, rules: [{record: r, expr: x}]}]";

#[test]
fn a_file_with_an_error_leaves_all_groups_as_they_are() {
    let server = started(|_| {});
    assert_eq!(server.load("a.yml", GROUP), Ok(1));
    let bad = "groups:\n- name: h\n  rules:\n  - {record: q, expr: sum(}\n";
    let error = server.load("b.yml", bad).expect_err("an error");
    assert!(error.starts_with("/etc/rules/b.yml: 4:"), "{error}");
    assert_eq!(server.service.rules.all().len(), 1);
    assert!(!server.service.rules.engine.counters.is_reload_ok());
    server.disk.remove_file(Path::new("/etc/rules/b.yml")).expect("removed");
    assert_eq!(server.read_files(), Ok(1));
    assert!(server.service.rules.engine.counters.is_reload_ok());
    assert_eq!(server.service.rules.engine.counters.reloaded_ms(), START_MS);
}

#[test]
fn a_file_that_is_named_and_not_there_is_an_error() {
    let server = started(|options| options.rules.files = vec!["/etc/rules/none.yml".into()]);
    assert_eq!(server.read_files(), Err("/etc/rules/none.yml: rule file not found".to_owned()));
}

#[test]
fn patterns_match_in_each_part_of_a_path() {
    let server = started(|options| {
        options.rules.files = vec!["/etc/team-*/rules/[ab].y?l".into(), "/etc/team-1/rules/a.yml".into()];
    });
    for (path, name) in [
        ("/etc/team-1/rules/a.yml", "one"),
        ("/etc/team-2/rules/b.yml", "two"),
        ("/etc/team-2/rules/c.yml", "no"),
        ("/etc/other/rules/a.yml", "no"),
    ] {
        let path = Path::new(path);
        server.disk.create_dir_all(path.parent().expect("a directory")).expect("made");
        server
            .disk
            .write_atomic(path, GROUP.replace("name: g", &format!("name: {name}")).as_bytes())
            .expect("ok");
    }
    assert_eq!(server.read_files(), Ok(2));
    let keys: Vec<String> =
        server.service.rules.all().iter().map(|(_, one)| one.group.key.file.clone()).collect();
    assert_eq!(keys, ["/etc/team-1/rules/a.yml", "/etc/team-2/rules/b.yml"]);
}

#[test]
fn a_rule_that_did_not_change_keeps_its_state() {
    let server = started(|_| {});
    let with = |other: &str| {
        format!("groups: [{{name: g, rules: [{other}, {{alert: A, expr: vector(1), for: 2m}}]}}]")
    };
    server.load("a.yml", &with("{record: r, expr: vector(1)}")).expect("valid");
    server.run_for(Duration::from_secs(120));
    server.load("a.yml", &with("{record: q, expr: vector(2)}, {record: p, expr: vector(3)}")).expect("valid");
    let before = server.status();
    assert_eq!(before.rules[2].alerts.state(), AlertState::Pending);
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.status().rules[2].alerts.state(), AlertState::Firing);
    let now_ms = server.clock.now_ms();
    assert_eq!(server.count(&TenantId::anonymous(), "r", now_ms), 0, "marked as stale");
    assert_eq!(server.count(&TenantId::anonymous(), "q", now_ms), 1);
    let rounds = server.status().rounds;
    assert_eq!((rounds.evaluated, rounds.missed), (3, 0));
}

#[test]
fn series_of_a_removed_group_end_after_two_intervals_at_its_removal() {
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    server.load("a.yml", GROUP).expect("valid");
    server.write(&tenant, &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(30));
    let removed_ms = server.clock.now_ms();
    server.load("a.yml", "groups: []").expect("valid");
    assert!(server.service.rules.all().is_empty());
    server.run_for(Duration::from_secs(10));
    assert_eq!(server.count(&tenant, "r", server.clock.now_ms()), 1, "it may come back");
    server.run_for(Duration::from_secs(10));
    assert_eq!(server.count(&tenant, "r", removed_ms), 0);
    assert_eq!(server.count(&tenant, "r", removed_ms - 1), 1);
    let states = server.disk.list(Path::new("/data/rules/files/anonymous")).expect("a directory");
    assert!(states.is_empty(), "{states:?}");
}

#[test]
fn series_that_another_group_goes_on_with_do_not_end() {
    let server = started(|_| {});
    let tenant = TenantId::anonymous();
    server.load("a.yml", GROUP).expect("valid");
    server.write(&tenant, &[("__name__", "x")], START_MS, 1.0);
    server.run_for(Duration::from_secs(30));
    let removed_ms = server.clock.now_ms();
    server.load("a.yml", &GROUP.replace("name: g", "name: renamed")).expect("valid");
    server.run_for(Duration::from_secs(30));
    assert_eq!(server.count(&tenant, "r", removed_ms), 1);
    assert_eq!(server.times_s("r").len(), 6);
}

#[test]
fn a_group_that_comes_back_continues() {
    let server = started(|_| {});
    let alert = "groups: [{name: g, interval: 1m, rules: [{alert: A, expr: vector(1), for: 3m}]}]";
    server.load("a.yml", alert).expect("valid");
    server.run_for(Duration::from_secs(120));
    server.load("a.yml", "groups: []").expect("valid");
    server.run_for(Duration::from_secs(60));
    server.load("a.yml", alert).expect("valid");
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.status().rules[0].alerts.state(), AlertState::Firing);
    assert_eq!(server.status().rounds.missed, 0);
}

#[test]
fn groups_and_rules_beyond_a_limit_are_refused_with_its_setting() {
    let server = started(|options| {
        let mut limits = options.tsdb.limits.default.clone();
        limits.queries.rules.groups_max = 1;
        limits.queries.rules.group_rules_max = 2;
        options.tsdb.limits = LimitsTable::from(limits);
    });
    let rules = |count: usize| vec!["{record: r, expr: x}"; count].join(", ");
    let file = |count| format!("groups: [{{name: g, rules: [{}]}}]", rules(count));
    assert_eq!(server.load("a.yml", &file(2)), Ok(1));
    let text = "/etc/rules/a.yml: group \"g\" has 3 rules, and rules.per-group-max allows 2";
    assert_eq!(server.load("a.yml", &file(3)), Err(text.to_owned()));
    assert_eq!(server.status().group.rules().len(), 2, "the groups in use stay");
    server.load("a.yml", &file(1)).expect("within the limit");
    let text = "2 rule groups, and rules.groups-max allows 1";
    assert_eq!(server.load("b.yml", &file(1)), Err(text.to_owned()));
}
