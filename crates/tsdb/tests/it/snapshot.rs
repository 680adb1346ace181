//! Snapshots have all samples acknowledged before them, open as data directories, and are there completely or
//! not at all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronolith_model::{Matcher, StoreId, TenantId, TimeRange};
use chronolith_tsdb::{ReplayProgress, SnapshotHead, Tsdb};

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

fn stores() -> [StoreId; 2] {
    ["a", "b"].map(|name| StoreId::from(TenantId::new(name).expect("legal")))
}

/// Two tenants with a block each, samples in the head, out-of-order ones among them.
fn filled(machine: &Machine) -> Arc<Tsdb> {
    let tsdb = machine.open();
    for tenant in &stores() {
        write(&tsdb, tenant, "m", &row(-6, 200)).expect("stored");
    }
    machine.clock.advance(Duration::from_millis(1));
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    for tenant in &stores() {
        write(&tsdb, tenant, "m", &row(-1, 150)).expect("stored");
        write(&tsdb, tenant, "m", &[(START_MS - 6 * HOUR_MS + 7, 3.0)]).expect("stored");
    }
    tsdb
}

fn row(hour: i64, count: i64) -> Vec<(i64, f64)> {
    (0..count).map(|i| (START_MS + hour * HOUR_MS + i * 10_000, i as f64)).collect()
}

fn snapshots(machine: &Machine) -> Vec<String> {
    let dir = machine.options.data_dir.join("snapshots");
    machine.env.disk.list(&dir).unwrap_or_default().into_iter().map(|e| e.name).collect()
}

fn open_snapshot(machine: &Machine, name: &str) -> Arc<Tsdb> {
    let mut options = machine.options.clone();
    options.data_dir = PathBuf::from("/data/snapshots").join(name);
    Tsdb::open(machine.env.clone(), options, Arc::new(ReplayProgress::default())).expect("opens")
}

#[test]
fn a_snapshot_opens_as_a_data_directory_and_keeps_what_is_deleted_later() {
    let machine = Machine::new(1);
    let tsdb = filled(&machine);
    let name = tsdb.admin().snapshot(&stores(), SnapshotHead::Include).expect("a snapshot");
    assert!(name.starts_with("20261120T000000Z-") && name.len() == 33, "{name}");
    assert_eq!(snapshots(&machine), std::slice::from_ref(&name));
    let want = machine.read(&tsdb, &stores()[0], "m");
    assert_eq!(want.len(), 351);
    let all = [vec![Matcher::equal("__name__", "m")]];
    tsdb.admin().delete_series(&stores()[0], &all, TimeRange::ALL).expect("deletes");
    write(&tsdb, &stores()[1], "m", &[(START_MS, 1.0)]).expect("stored");
    machine.disk.crash();
    let copy = open_snapshot(&machine, &name);
    for tenant in &stores() {
        assert_eq!(machine.read(&copy, tenant, "m"), want, "{tenant:?}");
    }
    assert_eq!((copy.statistics().stats().head.series, copy.statistics().stats().blocks), (0, 6));
}

#[test]
fn without_the_head_it_has_the_blocks_only_and_of_the_tenants_asked_for() {
    let machine = Machine::new(2);
    let tsdb = filled(&machine);
    let name = tsdb.admin().snapshot(&stores()[..1], SnapshotHead::Skip).expect("a snapshot");
    let copy = open_snapshot(&machine, &name);
    assert_eq!(machine.read(&copy, &stores()[0], "m").len(), 200);
    assert_eq!(machine.read(&copy, &stores()[1], "m").len(), 0);
    assert_eq!(machine.read(&tsdb, &stores()[0], "m").len(), 351, "the store is as it was");
}

#[test]
fn a_crash_at_any_disk_operation_leaves_a_whole_snapshot_or_none() {
    let machine = Machine::new(3);
    let tsdb = filled(&machine);
    let before = machine.disk.op_count();
    tsdb.admin().snapshot(&stores(), SnapshotHead::Include).expect("a snapshot");
    let op_count = machine.disk.op_count() - before;
    assert!(op_count > 50, "{op_count}");
    for survived in 0..=op_count {
        let machine = Machine::new(3);
        let tsdb = filled(&machine);
        let want = machine.read(&tsdb, &stores()[0], "m");
        machine.disk.fail_after(survived);
        let made = tsdb.admin().snapshot(&stores(), SnapshotHead::Include);
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let when = format!("crash after {survived} operations");
        assert_eq!(machine.read(&tsdb, &stores()[0], "m"), want, "{when}");
        let found = snapshots(&machine);
        assert!(found.len() <= 1 && found.iter().all(|name| !name.ends_with(".tmp")), "{when}: {found:?}");
        assert!(made.is_err() || found.len() == 1, "{when}: an answer without a snapshot");
        for name in found {
            let copy = open_snapshot(&machine, &name);
            for tenant in &stores() {
                assert_eq!(machine.read(&copy, tenant, "m"), want, "{when}");
            }
        }
    }
}
