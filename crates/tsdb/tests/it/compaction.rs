//! Compaction in the background: no sample is lost or seen twice, whatever fails meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chronolith_format::store_name;
use chronolith_model::{Columns, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange};
use chronolith_tsdb::Tsdb;

use crate::fixture::{HOUR_MS, Machine, START_MS, write};

/// Per series its samples.
type Stored = BTreeMap<String, Vec<(i64, u64)>>;

fn gauge(tsdb: &Tsdb, name: &str) -> f64 {
    tsdb.statistics().stats().metric(name).expect("a metric of that name")
}

/// A store with seven blocks: five windows of two hours, of which one was written three times with conflicts.
/// Three of the windows make up six aligned hours.
fn late_data(machine: &Machine) -> (Arc<Tsdb>, Stored) {
    let tsdb = machine.open();
    let mut want: BTreeMap<String, BTreeMap<i64, u64>> = BTreeMap::new();
    for (round, hour) in [-12, -10, -8, -10, -10, -6, -4].into_iter().enumerate() {
        for name in ["a", "b", "c"].into_iter().skip(round % 2) {
            let samples: Vec<(i64, f64)> = (0..100i64)
                .map(|i| {
                    let step = 20_000 + 10_000 * i64::try_from(round % 3).expect("small");
                    (START_MS + hour * HOUR_MS + i * step, (i + 1000 * round.cast_signed() as i64) as f64)
                })
                .collect();
            write(&tsdb, &StoreId::anonymous(), name, &samples).expect("stored");
            for (time, value) in samples {
                want.entry(name.to_owned()).or_default().entry(time).or_insert(value.to_bits());
            }
        }
        machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    }
    assert_eq!(tsdb.statistics().stats().blocks, 7);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    (tsdb, want.into_iter().map(|(name, samples)| (name, samples.into_iter().collect())).collect())
}

/// Runs maintenance for a while, back-off included.
fn run_maintenance(machine: &Machine, tsdb: &Tsdb) {
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, want: &Stored, when: &str) {
    for (name, samples) in want {
        let got = machine.read(tsdb, &StoreId::anonymous(), name);
        assert!(got == *samples, "{when}: {name}: {} samples, {} wanted", got.len(), samples.len());
    }
}

#[test]
fn overlapping_blocks_and_complete_ranges_are_compacted() {
    let machine = Machine::new(1);
    let (tsdb, want) = late_data(&machine);
    let bytes_before = tsdb.statistics().stats().block_bytes;
    run_maintenance(&machine, &tsdb);
    assert_eq!(
        tsdb.statistics().stats().blocks,
        3,
        "six hours, and the two windows of the range that is not complete"
    );
    assert_eq!(gauge(&tsdb, "compaction_runs_total"), 2.0);
    assert_eq!(gauge(&tsdb, "compaction_failures_total"), 0.0);
    assert!(gauge(&tsdb, "compaction_read_bytes_total") > gauge(&tsdb, "compaction_written_bytes_total"));
    assert!(tsdb.statistics().stats().block_bytes < bytes_before);
    compare(&machine, &tsdb, &want, "merged");
    // Out-of-order samples after that are written last and lose against stored ones.
    let first = want["b"][0];
    write(&tsdb, &StoreId::anonymous(), "b", &[(first.0, -1.0)]).expect("stored");
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    compare(&machine, &tsdb, &want, "a late block");
    run_maintenance(&machine, &tsdb);
    assert_eq!(tsdb.statistics().stats().blocks, 3);
    compare(&machine, &tsdb, &want, "the late block merged");
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    assert_eq!(tsdb.statistics().stats().blocks, 3);
    compare(&machine, &tsdb, &want, "opened again");
    let tenant_dir = machine.options.data_dir.join("tenants").join(&*store_name(&StoreId::anonymous()));
    assert_eq!(machine.env.disk.list(&tenant_dir).expect("lists").len(), 3, "the inputs' files are gone");
}

#[test]
fn a_crash_at_any_disk_operation_loses_and_repeats_nothing() {
    let machine = Machine::new(2);
    let (tsdb, _) = late_data(&machine);
    let before = machine.disk.op_count();
    run_maintenance(&machine, &tsdb);
    let op_count = machine.disk.op_count() - before;
    assert!(op_count > 50, "{op_count}");
    for survived in 0..=op_count {
        let machine = Machine::new(2);
        let (tsdb, want) = late_data(&machine);
        machine.disk.fail_after(survived);
        for _ in 0..4 {
            machine.clock.advance(Duration::from_mins(2));
            tsdb.maintenance().run();
            compare(&machine, &tsdb, &want, &format!("failing after {survived} operations"));
        }
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let blocks = tsdb.statistics().stats().blocks;
        assert!(
            [7, 5, 3].contains(&blocks),
            "crash after {survived} operations: {blocks} blocks, inputs beside output"
        );
        compare(&machine, &tsdb, &want, &format!("crash after {survived} operations"));
        run_maintenance(&machine, &tsdb);
        assert_eq!(tsdb.statistics().stats().blocks, 3, "crash after {survived} operations");
        compare(&machine, &tsdb, &want, &format!("merged after a crash after {survived} operations"));
    }
}

#[test]
fn a_disk_that_fails_for_a_while_is_survived_without_a_restart() {
    for survived in 0..90 {
        let machine = Machine::new(3);
        let (tsdb, want) = late_data(&machine);
        machine.disk.fail_after(survived);
        machine.clock.advance(Duration::from_secs(20));
        tsdb.maintenance().run();
        tsdb.maintenance().run();
        machine.disk.heal();
        compare(&machine, &tsdb, &want, &format!("healed after {survived} operations"));
        run_maintenance(&machine, &tsdb);
        assert_eq!(tsdb.statistics().stats().blocks, 3, "{survived}");
        compare(&machine, &tsdb, &want, &format!("merged, healed after {survived} operations"));
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        assert_eq!(tsdb.statistics().stats().blocks, 3, "{survived}");
        compare(&machine, &tsdb, &want, &format!("opened, healed after {survived} operations"));
    }
}

#[test]
fn a_query_goes_on_reading_blocks_that_were_compacted_meanwhile() {
    let machine = Machine::new(4);
    let (tsdb, want) = late_data(&machine);
    let matchers = [Matcher::equal("__name__", "b")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let mut batches =
        tsdb.reader().queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
    run_maintenance(&machine, &tsdb);
    assert_eq!(tsdb.statistics().stats().blocks, 3);
    let (mut series, mut columns) = (Vec::new(), Columns::default());
    while batches.next_batch(&mut series).expect("a batch") {}
    series[0].samples.read(TimeRange::ALL, &mut columns).expect("reads");
    let got: Vec<_> = columns.times.into_iter().zip(columns.values.into_iter().map(f64::to_bits)).collect();
    assert_eq!(got, want["b"]);
}

#[test]
fn without_disk_space_for_the_output_compaction_waits() {
    let mut machine = Machine::new(5);
    machine.options.free_bytes_min = 0;
    let (tsdb, want) = late_data(&machine);
    machine.disk.set_capacity_bytes(1 << 40);
    let free = machine.env.disk.free_bytes(&machine.options.data_dir).expect("known");
    machine.disk.set_capacity_bytes((1 << 40) - free + machine.options.wal.segment_bytes + 100);
    machine.clock.advance(Duration::from_mins(2));
    tsdb.maintenance().run();
    assert_eq!((gauge(&tsdb, "compaction_space_skips_total"), tsdb.statistics().stats().blocks), (1.0, 7));
    assert_eq!(gauge(&tsdb, "compaction_failures_total"), 0.0);
    tsdb.maintenance().run();
    assert_eq!(gauge(&tsdb, "compaction_space_skips_total"), 1.0, "it backs off");
    machine.disk.set_capacity_bytes(u64::MAX);
    run_maintenance(&machine, &tsdb);
    assert_eq!(tsdb.statistics().stats().blocks, 3);
    compare(&machine, &tsdb, &want, "merged with room");
}

#[test]
fn a_damaged_block_is_refused_and_counted_once() {
    let machine = Machine::new(6);
    let (tsdb, _) = late_data(&machine);
    tsdb.close().expect("closes");
    drop(tsdb);
    let tenant_dir = machine.options.data_dir.join("tenants").join(&*store_name(&StoreId::anonymous()));
    let first = machine.env.disk.list(&tenant_dir).expect("lists").remove(0).name;
    let segment = tenant_dir.join(first).join("chunks/000001");
    let mut bytes = machine.env.disk.read(&segment).expect("reads");
    *bytes.last_mut().expect("bytes") ^= 1;
    machine.env.disk.create(&segment).expect("creates").write_at(&bytes, 0).expect("writes");
    let tsdb = machine.open();
    run_maintenance(&machine, &tsdb);
    assert_eq!(
        (gauge(&tsdb, "compaction_refused_total"), gauge(&tsdb, "compaction_failures_total")),
        (1.0, 1.0)
    );
    assert_eq!(gauge(&tsdb, "compaction_runs_total"), 1.0, "the overlapping blocks are merged");
    assert_eq!(tsdb.statistics().stats().blocks, 5, "the range with the damaged block is not");
}

#[test]
fn compaction_can_be_switched_off() {
    let mut machine = Machine::new(7);
    machine.options.compaction.block_bytes_max = 0;
    let (tsdb, _) = late_data(&machine);
    run_maintenance(&machine, &tsdb);
    assert_eq!((tsdb.statistics().stats().blocks, gauge(&tsdb, "compaction_runs_total")), (7, 0.0));
}
