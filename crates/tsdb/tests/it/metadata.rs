//! Metadata is as durable as samples: crashes at every disk operation, restarts, damage, snapshots.

use std::path::Path;
use std::sync::Arc;

use chronolith_base::{Disk, Env};
use chronolith_model::{Labels, MetadataEntry, MetricKind, StoreId, TenantId, WriteBatch};
use chronolith_tsdb::{OpenError, ReplayProgress, SnapshotHead, SyncMode, Tsdb};

use crate::fixture::{Machine, START_MS};

const FILE: &str = "/data/metadata.log";
const MIRROR: &str = "/data/metadata.mirror";

fn entry(metric: &str, help: &str) -> MetadataEntry {
    MetadataEntry {
        metric: metric.to_owned(),
        kind: MetricKind::Gauge,
        help: help.to_owned(),
        unit: "bytes".to_owned(),
    }
}

/// Sends one sample with metadata; whether it was acknowledged.
fn send(tsdb: &Tsdb, tenant: &StoreId, time: i64, entries: &[MetadataEntry]) -> bool {
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&Labels::from_pairs([("__name__", "x")]), &[(START_MS + time, 1.0)]);
    batch.metadata = entries.to_vec();
    tsdb.append(tenant, &batch).is_ok()
}

fn tenants() -> [StoreId; 2] {
    ["a", "b"].map(|name| StoreId::from(TenantId::new(name).expect("a name")))
}

/// All that is known of both tenants.
fn all(tsdb: &Tsdb) -> Vec<Vec<MetadataEntry>> {
    tenants()
        .iter()
        .map(|tenant| tsdb.reader().metadata(tenant.tenant().expect("a default store"), None, 0))
        .collect()
}

/// Acknowledged and sent entries, by tenant.
#[derive(Default)]
struct Told {
    acked: [Vec<MetadataEntry>; 2],
    sent: [Vec<MetadataEntry>; 2],
}

impl Told {
    fn send(&mut self, tsdb: &Tsdb, tenant_idx: usize, time: i64, entries: &[MetadataEntry]) {
        self.sent[tenant_idx].extend_from_slice(entries);
        if send(tsdb, &tenants()[tenant_idx], time, entries) {
            self.acked[tenant_idx].extend_from_slice(entries);
        }
    }

    fn check(&self, tsdb: &Tsdb) {
        for (idx, found) in all(tsdb).iter().enumerate() {
            for entry in &self.acked[idx] {
                assert!(found.contains(entry), "{entry:?} was acknowledged; there is {found:?}");
            }
            assert!(found.iter().all(|entry| self.sent[idx].contains(entry)), "{found:?}");
        }
    }
}

/// Runs a short life with new, known and returning entries and a file that is replaced.
fn script(machine: &Machine, told: &mut Told) {
    let progress = || Arc::new(ReplayProgress::default());
    let open = || Tsdb::open(machine.env.clone(), machine.options.clone(), progress());
    let Ok(tsdb) = open() else { return };
    told.send(&tsdb, 0, 0, &[entry("m", "one"), entry("n", "")]);
    told.send(&tsdb, 0, 1, &[entry("m", "one")]);
    told.send(&tsdb, 1, 2, &[entry("m", "two")]);
    told.send(&tsdb, 0, 3, &[entry("m", "two")]);
    told.send(&tsdb, 0, 4, &[entry("m", "one")]);
    tsdb.maintenance().run();
    // More than the file may grow by: it is replaced.
    let large: Vec<_> = (0..80).map(|i| entry(&format!("large_{i}"), &"x".repeat(16_000))).collect();
    told.send(&tsdb, 1, 5, &large);
    told.send(&tsdb, 0, 6, &[entry("o", "")]);
    let _ = tsdb.close();
    drop(tsdb);
    let Ok(tsdb) = open() else { return };
    told.send(&tsdb, 0, 7, &[entry("p", "after a restart")]);
    told.send(&tsdb, 1, 8, &[entry("p", "after a restart")]);
}

#[test]
fn a_crash_at_any_disk_operation_loses_nothing_acknowledged() {
    let (mut op_count, mut crash_count) = (0, 0);
    loop {
        let machine = Machine::new(op_count);
        let mut told = Told::default();
        machine.disk.fail_after(op_count);
        script(&machine, &mut told);
        let ended = machine.disk.op_count() <= op_count;
        if op_count % 2 == 0 {
            machine.disk.crash();
        } else {
            machine.disk.crash_partly(&machine.env.rng);
        }
        machine.disk.heal();
        let tsdb = machine.open();
        told.check(&tsdb);
        // Life goes on, and survives the next power loss.
        told.send(&tsdb, 0, 100, &[entry("later", "")]);
        assert!(told.acked[0].contains(&entry("later", "")), "op {op_count}");
        drop(tsdb);
        machine.disk.crash();
        told.check(&machine.open());
        crash_count += 1;
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(crash_count > 40, "the script has many crash points, found {crash_count}");
}

#[test]
fn after_a_kill_answers_are_the_same_in_every_sync_mode() {
    for sync in [SyncMode::Fsync, SyncMode::Interval(1000), SyncMode::Os] {
        let mut machine = Machine::new(7);
        machine.options.sync = sync;
        let mut told = Told::default();
        script(&machine, &mut told);
        let tsdb = machine.open();
        assert!(send(&tsdb, &tenants()[0], 9, &[entry("q", "one"), entry("q", "two")]));
        let before = all(&tsdb);
        assert_eq!(
            before[0].iter().map(|e| &*e.help).collect::<Vec<_>>()[..2],
            ["one", "two"],
            "the newest first"
        );
        machine.disk.kill();
        drop(tsdb);
        assert_eq!(all(&machine.open()), before, "{sync:?}");
    }
}

#[test]
fn a_power_loss_takes_at_most_an_interval() {
    let mut machine = Machine::new(8);
    machine.options.sync = SyncMode::Interval(1000);
    let tsdb = machine.open();
    let tenant = &tenants()[0];
    assert!(send(&tsdb, tenant, 0, &[entry("first", "")]));
    assert!(send(&tsdb, tenant, 1, &[entry("second", "")]));
    tsdb.wal_jobs().sync();
    machine.disk.crash();
    drop(tsdb);
    assert_eq!(
        machine.open().reader().metadata(tenant.tenant().expect("a default store"), None, 0),
        [entry("first", ""), entry("second", "")]
    );
}

#[test]
fn what_is_unchanged_is_not_written() {
    let machine = Machine::new(9);
    let tsdb = machine.open();
    let tenant = &tenants()[0];
    let entries: Vec<_> = (0..100).map(|i| entry(&format!("m{i}"), "help")).collect();
    assert!(send(&tsdb, tenant, 0, &entries));
    let len = machine.disk.read(Path::new(FILE)).expect("a file").len();
    let op_count = machine.disk.op_count();
    assert!(send(&tsdb, tenant, 1, &[]));
    let without = machine.disk.op_count() - op_count;
    assert!(send(&tsdb, tenant, 2, &entries));
    assert_eq!(machine.disk.op_count() - op_count, 2 * without, "metadata costs no disk operation");
    assert_eq!(machine.disk.read(Path::new(FILE)).expect("a file").len(), len);
}

#[test]
fn a_full_disk_refuses_and_comes_back() {
    let machine = Machine::new(10);
    let tsdb = machine.open();
    let tenant = &tenants()[0];
    assert!(send(&tsdb, tenant, 0, &[entry("m", "one")]));
    // The log has reserved its space, the metadata has not.
    machine.disk.set_capacity_bytes(machine.disk.len_bytes() + 10);
    assert!(!send(&tsdb, tenant, 1, &[entry("m", &"x".repeat(1000))]), "it cannot be stored");
    assert!(!send(&tsdb, tenant, 1, &[entry("m", &"x".repeat(1000))]), "nor is it known");
    machine.disk.set_capacity_bytes(u64::MAX);
    tsdb.wal_jobs().sync();
    assert!(send(&tsdb, tenant, 1, &[entry("m", &"x".repeat(1000))]));
    machine.disk.crash();
    drop(tsdb);
    assert_eq!(
        machine.open().reader().metadata(tenant.tenant().expect("a default store"), Some("m"), 0).len(),
        2
    );
}

/// Covers a regression: one flipped bit in the only file emptied `/api/v1/metadata`. Each of two copies
/// stands in for the other, which the start writes again.
#[test]
fn one_damaged_copy_of_the_metadata_loses_nothing() {
    let machine = Machine::new(12);
    let tsdb = machine.open();
    let tenant = &tenants()[0];
    for (at, name) in [(0, "first"), (1, "second"), (2, "third")] {
        assert!(send(&tsdb, tenant, at, &[entry(name, "")]));
    }
    tsdb.close().expect("closes");
    drop(tsdb);
    for file in [FILE, MIRROR].map(Path::new) {
        let whole = machine.disk.read(file).expect("a file");
        for at in 0..=2 * whole.len() {
            let mut bytes = machine.disk.read(file).expect("a file");
            match at {
                0 => machine.disk.remove_file(file).expect("removed"),
                _ if at <= bytes.len() => {
                    bytes[at - 1] ^= 1 << (at % 8);
                    machine.disk.write_atomic(file, &bytes).expect("written");
                }
                _ => {
                    bytes.truncate((2 * whole.len() - at).min(bytes.len()));
                    machine.disk.write_atomic(file, &bytes).expect("written");
                }
            }
            let tsdb = machine.open();
            assert_eq!(
                tsdb.reader().metadata(tenant.tenant().expect("a default store"), None, 0).len(),
                3,
                "{file:?}, damage {at}"
            );
            tsdb.close().expect("closes");
            drop(tsdb);
        }
    }
}

#[test]
fn damage_is_named_and_the_rest_is_read() {
    let machine = Machine::new(11);
    let tsdb = machine.open();
    let tenant = &tenants()[0];
    assert!(send(&tsdb, tenant, 0, &[entry("first", "")]));
    assert!(send(&tsdb, tenant, 1, &[entry("second", "")]));
    tsdb.close().expect("closes");
    drop(tsdb);
    let mut bytes = machine.disk.read(Path::new(FILE)).expect("a file");
    bytes[70] ^= 1;
    for file in [FILE, MIRROR] {
        machine.disk.write_atomic(Path::new(file), &bytes).expect("written");
    }
    let tsdb = machine.open();
    let notes = tsdb.statistics().stats().replay.notes;
    assert_eq!(notes, [format!("{FILE}: damaged at offset 32: 40 bytes are left out")]);
    assert_eq!(
        tsdb.reader().metadata(tenant.tenant().expect("a default store"), None, 0),
        [entry("second", "")]
    );
    assert!(send(&tsdb, tenant, 2, &[entry("third", "")]));
    tsdb.close().expect("closes");
    drop(tsdb);
    let tsdb = machine.open();
    assert_eq!(tsdb.statistics().stats().replay.notes, Vec::<String>::new(), "the next start is clean");
    assert_eq!(
        tsdb.reader().metadata(tenant.tenant().expect("a default store"), None, 0),
        [entry("second", ""), entry("third", "")]
    );
    tsdb.close().expect("closes");
    drop(tsdb);
    // A later version is not ours to overwrite.
    let mut later = machine.disk.read(Path::new(FILE)).expect("a file");
    later[4] = 2;
    let sum = chronolith_base::crc::crc32c(&later[..28]);
    later[28..32].copy_from_slice(&sum.to_le_bytes());
    machine.disk.write_atomic(Path::new(FILE), &later).expect("written");
    let refused = Tsdb::open(machine.env.clone(), machine.options.clone(), Arc::default());
    assert!(matches!(refused, Err(OpenError::Corrupt { .. })));
}

#[test]
fn a_snapshot_has_the_metadata_of_its_tenants() {
    let machine = Machine::new(12);
    let tsdb = machine.open();
    let [a, b] = tenants();
    assert!(send(&tsdb, &a, 0, &[entry("m", "of a")]));
    assert!(send(&tsdb, &b, 0, &[entry("m", "of b")]));
    let name = tsdb.admin().snapshot(std::slice::from_ref(&a), SnapshotHead::Skip).expect("made");
    let mut options = machine.options.clone();
    options.data_dir = options.data_dir.join("snapshots").join(name);
    let env: Env = machine.env.clone();
    let copy = Tsdb::open(env, options, Arc::default()).expect("a data directory");
    assert_eq!(all(&copy), [vec![entry("m", "of a")], vec![]]);
    assert_eq!(all(&tsdb), [[entry("m", "of a")], [entry("m", "of b")]]);
}
