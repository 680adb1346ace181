//! Deletion of a tenant: its states go, its rounds stop meanwhile, other tenants keep theirs.

use std::path::Path;
use std::time::Duration;

use chronolith_base::Disk as _;
use chronolith_model::{RuleLimits, TenantId};
use chronolith_rules::alert::AlertState;

use super::environment::{Environment, started};
use crate::evaluation::rules::due_round::{DueRound, DueWork};
use crate::evaluation::rules::{delete_tenant, take_due};

const ALERT: &str = "groups: [{name: g, rules: [{alert: A, expr: vector(1)}, {record: r, expr: vector(1)}]}]";
const CONFIGURED: &str = "{name: c, rules: [{record: c, expr: vector(1)}]}";

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a name")
}

/// Rules of files of the tenant `a`, and configured ones of `a` and `b`, after a minute of rounds.
fn environment() -> Environment {
    let server = started(|options| options.rules.tenant = tenant("a"));
    server.load("a.yml", ALERT).expect("valid");
    for name in ["a", "b"] {
        let configured = &server.service.rules.configured;
        let limits = RuleLimits::default();
        let set = configured.set_group(&tenant(name), "ns", CONFIGURED.as_bytes(), &limits, |_| false);
        set.expect("stored");
    }
    server.run_for(Duration::from_secs(70));
    server
}

fn begin(server: &Environment) {
    let store = server.service.lifecycle.opened().expect("open");
    store.tenant_deletions().begin(&tenant("a")).expect("marked");
}

fn run(server: &Environment) {
    let store = server.service.lifecycle.opened().expect("open");
    store.tenant_deletions().run(|tenant| delete_tenant(&server.service, tenant));
}

fn is_done(server: &Environment) -> bool {
    server.service.lifecycle.opened().expect("open").tenant_deletions().running_count() == 0
}

fn tenant_of_round(due: &DueRound) -> Option<String> {
    match &due.0 {
        DueWork::Group(taken, _) => Some(taken.id.tenant.to_string()),
        DueWork::Repair(_) => None,
    }
}

/// Files below the directories of a tenant.
fn file_count(server: &Environment, name: &str) -> usize {
    let dirs = ["files", "configured"].map(|origin| Path::new("/data/rules").join(origin).join(name));
    dirs.iter().map(|dir| server.disk.list(dir).map_or(0, |files| files.len())).sum()
}

/// States of a deleted tenant stayed on disk, and its alerts fired on.
#[test]
fn states_of_a_deleted_tenant_are_removed_and_groups_of_files_begin_again() {
    let server = environment();
    assert_eq!((file_count(&server, "a"), file_count(&server, "b")), (3, 2));
    assert_eq!(server.status().rules[0].alerts.state(), AlertState::Firing);
    begin(&server);
    server.clock.advance(Duration::from_secs(60));
    let due = take_due(&server.service);
    let tenants: Vec<String> = due.iter().filter_map(tenant_of_round).collect();
    assert_eq!(tenants, ["b"], "no round of the deleted tenant begins");
    due.into_iter().for_each(|round| round.give_up(&server.service));
    run(&server);
    assert!(is_done(&server));
    assert_eq!((file_count(&server, "a"), file_count(&server, "b")), (0, 2));
    let groups = server.service.rules.groups(&tenant("a"));
    assert_eq!(groups.iter().map(|one| &one.group.key.name[..]).collect::<Vec<_>>(), ["g"]);
    assert_eq!(groups[0].rules[0].alerts.state(), AlertState::Inactive);
    server.run_for(Duration::from_secs(60));
    assert_eq!(server.status().rules[0].alerts.state(), AlertState::Firing, "the file names the group");
    assert_eq!(file_count(&server, "a"), 1);
}

/// A round that ended after the removal stored its state again.
#[test]
fn a_deletion_waits_for_the_rounds_that_run() {
    let server = environment();
    server.clock.advance(Duration::from_secs(60));
    let due = take_due(&server.service);
    begin(&server);
    run(&server);
    assert!(!is_done(&server), "a round runs");
    for round in due {
        round.run(&server.service, &Default::default(), &|_| {});
    }
    assert!(file_count(&server, "a") > 0);
    run(&server);
    assert!(is_done(&server));
    assert_eq!(file_count(&server, "a"), 0);
}

#[test]
fn a_crash_at_each_disk_operation_of_a_deletion_leaves_no_state() {
    let mut ops = 0;
    loop {
        let server = environment();
        begin(&server);
        let before = server.disk.refused_count();
        server.disk.fail_after(ops);
        run(&server);
        let refused_count = server.disk.refused_count() - before;
        let server = server.restart(Duration::from_secs(1));
        let store = server.service.lifecycle.opened().expect("open").clone();
        server.service.rules.configured.load(|tenant| store.tenant_deletions().is_running(tenant));
        server.run_due();
        run(&server);
        assert!(is_done(&server), "after {ops} operations");
        assert_eq!((file_count(&server, "a"), file_count(&server, "b")), (0, 2), "after {ops} operations");
        if refused_count == 0 {
            break;
        }
        ops += 1;
    }
    assert!(ops > 5, "a deletion has {ops} disk operations");
}
