//! Deleted samples are gone for queries at once and for good; everything else stays, whatever fails
//! meanwhile.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use chronolith_model::{Columns, Deletion, Matcher, ReadContext, Selector, StoreId, TenantId, TimeRange};
use chronolith_tsdb::Tsdb;

use crate::fault_disk::{Fault, FaultDisk};
use crate::fixture::{HOUR_MS, Machine, START_MS, write};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn anonymous() -> StoreId {
    StoreId::anonymous()
}

/// Three series: four windows in blocks, one in the head.
fn filled(machine: &Machine) -> Arc<Tsdb> {
    let tsdb = machine.open();
    for hour in [-10, -8, -6, -4] {
        put_window(machine, &tsdb, hour);
        machine.clock.advance(Duration::from_millis(1));
        tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    }
    put_window(machine, &tsdb, -1);
    tsdb
}

fn put_window(_machine: &Machine, tsdb: &Tsdb, hour: i64) {
    for (place, name) in (0..).zip(NAMES) {
        write(tsdb, &anonymous(), name, &samples(hour, place)).expect("stored");
    }
}

fn samples(hour: i64, place: i64) -> Vec<(i64, f64)> {
    (0..100).map(|i| (START_MS + hour * HOUR_MS + i * 30_000 + place, (hour * 1000 + i) as f64)).collect()
}

fn by_name(name: &str) -> Vec<Vec<Matcher>> {
    vec![vec![Matcher::equal("__name__", name)]]
}

/// Samples that `filled` has stored of series `place`, without `deleted`.
fn want(place: i64, deleted: TimeRange) -> Vec<(i64, u64)> {
    let all = [-10, -8, -6, -4, -1].into_iter().flat_map(|hour| samples(hour, place));
    all.filter(|(time, _)| !deleted.contains(*time)).map(|(time, value)| (time, value.to_bits())).collect()
}

#[track_caller]
fn compare(machine: &Machine, tsdb: &Tsdb, deleted: TimeRange, when: &str) {
    for (place, name) in (0..).zip(NAMES) {
        let gone = if name == "b" { deleted } else { TimeRange::new(0, 0) };
        let got = machine.read(tsdb, &anonymous(), name);
        let want = want(place, gone);
        assert!(got == want, "{when}: {name}: {} samples, {} wanted", got.len(), want.len());
    }
}

fn tombstones(tsdb: &Tsdb) -> f64 {
    tsdb.statistics().stats().metric("block_tombstones").expect("a metric")
}

/// From the middle of a block to the middle of the head's window.
fn part() -> TimeRange {
    TimeRange::new(START_MS - 8 * HOUR_MS + 600_000, START_MS - HOUR_MS + 900_000)
}

#[test]
fn deleted_samples_are_gone_at_once_and_others_stay() {
    let machine = Machine::new(1);
    let tsdb = filled(&machine);
    let report = tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).expect("deletes");
    assert_eq!((report.series_count, report.block_count), (4, 4), "three blocks and what was in the head");
    compare(&machine, &tsdb, part(), "deleted");
    let again = tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).expect("deletes");
    assert_eq!(again.block_count, 0, "there is nothing left to delete");
    let other = tsdb.admin().delete_series(
        &StoreId::from(TenantId::new("other").expect("legal")),
        &by_name("b"),
        TimeRange::ALL,
    );
    assert_eq!(other.expect("deletes").block_count, 0, "another tenant");
    compare(&machine, &tsdb, part(), "deleted once more");
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    compare(&machine, &tsdb, part(), "after a crash");
    assert_eq!(tombstones(&tsdb), 4.0);
}

#[test]
fn samples_that_come_after_the_deletion_are_visible() {
    let machine = Machine::new(2);
    let tsdb = filled(&machine);
    tsdb.admin().delete_series(&anonymous(), &by_name("b"), TimeRange::ALL).expect("deletes");
    assert_eq!(machine.read(&tsdb, &anonymous(), "b"), []);
    let late = (START_MS - 8 * HOUR_MS + 30_001, 5.0);
    write(&tsdb, &anonymous(), "b", &[late]).expect("stored");
    let want = [(late.0, late.1.to_bits())];
    assert_eq!(machine.read(&tsdb, &anonymous(), "b"), want);
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    for _ in 0..20 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert_eq!(machine.read(&tsdb, &anonymous(), "b"), want, "flushed and merged");
    assert_eq!(tombstones(&tsdb), 0.0, "merging has applied them");
}

#[test]
fn cleaning_takes_the_samples_off_the_disk() {
    let machine = Machine::new(3);
    let tsdb = filled(&machine);
    tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).expect("deletes");
    let every = vec![vec![Matcher::equal("a", "b")]];
    let whole = TimeRange::new(START_MS - 10 * HOUR_MS, START_MS - 8 * HOUR_MS);
    tsdb.admin().delete_series(&anonymous(), &every, whole).expect("deletes");
    let before = tsdb.statistics().stats();
    assert_eq!(tsdb.admin().clean_tombstones(&anonymous()).expect("cleans"), 5);
    let after = tsdb.statistics().stats();
    assert_eq!((before.blocks, after.blocks), (5, 4), "a block without samples is gone");
    assert!(after.block_bytes < before.block_bytes && tombstones(&tsdb) == 0.0);
    assert_eq!(tsdb.admin().clean_tombstones(&anonymous()).expect("cleans"), 0);
    let kept = |place| -> Vec<_> {
        want(place, if place == 1 { part() } else { TimeRange::new(0, 0) })
            .into_iter()
            .filter(|(time, _)| !whole.contains(*time))
            .collect()
    };
    machine.disk.crash();
    drop(tsdb);
    let tsdb = machine.open();
    for (place, name) in (0..).zip(NAMES) {
        assert_eq!(machine.read(&tsdb, &anonymous(), name), kept(place), "{name}");
    }
}

#[test]
fn a_query_that_runs_keeps_what_it_has_selected() {
    let machine = Machine::new(4);
    let tsdb = filled(&machine);
    let ctx = ReadContext::unlimited(machine.env.clock.clone());
    let matchers = &by_name("b")[0];
    let selector = Selector { matchers, range: TimeRange::ALL };
    let mut batches =
        tsdb.reader().queryable(&TenantId::anonymous()).select(&selector, &ctx).expect("selects");
    tsdb.admin().delete_series(&anonymous(), &by_name("b"), TimeRange::ALL).expect("deletes");
    tsdb.admin().clean_tombstones(&anonymous()).expect("cleans");
    let (mut series, mut columns) = (Vec::new(), Columns::default());
    while batches.next_batch(&mut series).expect("a batch") {}
    series[0].samples.read(TimeRange::ALL, &mut columns).expect("reads");
    assert_eq!(columns.len(), 500);
    assert_eq!(machine.read(&tsdb, &anonymous(), "b"), [], "one that starts later sees nothing");
}

#[test]
fn a_crash_at_any_disk_operation_deletes_all_that_was_acknowledged_and_nothing_else() {
    let machine = Machine::new(5);
    let tsdb = filled(&machine);
    let before = machine.disk.op_count();
    tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).expect("deletes");
    tsdb.admin().clean_tombstones(&anonymous()).expect("cleans");
    let op_count = machine.disk.op_count() - before;
    assert!(op_count > 50, "{op_count}");
    for survived in 0..=op_count {
        let machine = Machine::new(5);
        let tsdb = filled(&machine);
        machine.disk.fail_after(survived);
        let deleted = tsdb.admin().delete_series(&anonymous(), &by_name("b"), part());
        let cleaned = tsdb.admin().clean_tombstones(&anonymous());
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let when = format!("crash after {survived} operations");
        if deleted.is_ok() {
            compare(&machine, &tsdb, part(), &when);
        }
        // Whatever the outcome, samples outside of the request are there, and repeating it completes it.
        let untouched: Vec<_> = want(1, part());
        let got = machine.read(&tsdb, &anonymous(), "b");
        assert!(
            untouched.iter().all(|sample| got.contains(sample)),
            "{when}: a sample beside the range is gone"
        );
        assert!(got.iter().all(|sample| want(1, TimeRange::new(0, 0)).contains(sample)), "{when}");
        tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).expect("deletes");
        tsdb.admin().clean_tombstones(&anonymous()).expect("cleans");
        compare(&machine, &tsdb, part(), &when);
        assert_eq!(tombstones(&tsdb), 0.0, "{when}");
        assert!(survived < op_count || cleaned.is_ok());
    }
}

#[test]
fn a_paused_compaction_does_not_run() {
    let machine = Machine::new(6);
    let tsdb = filled(&machine);
    tsdb.maintenance().pause_compaction();
    machine.clock.set_now_ms(START_MS + 3 * HOUR_MS);
    let runs = |tsdb: &Tsdb| tsdb.statistics().stats().metric("compaction_runs_total").expect("a metric");
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert_eq!((runs(&tsdb), tsdb.statistics().stats().blocks), (0.0, 5));
    tsdb.maintenance().resume_compaction();
    for _ in 0..12 {
        machine.clock.advance(Duration::from_mins(2));
        tsdb.maintenance().run();
    }
    assert_eq!((runs(&tsdb), tsdb.statistics().stats().blocks), (1.0, 4));
}

#[test]
fn a_closed_store_refuses() {
    let machine = Machine::new(7);
    let tsdb = filled(&machine);
    tsdb.close().expect("closes");
    assert!(tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).is_err());
    assert!(tsdb.admin().clean_tombstones(&anonymous()).is_err());
}

/// A window was flushed and dropped from the head, but the checkpoint after it failed; a deletion then found
/// nothing in the head, and a crash brought the samples back from the log. A deletion now makes sure first
/// that no restart undoes a drop.
#[test]
fn deleted_samples_do_not_come_back_when_the_checkpoint_after_a_flush_failed() {
    for op_count in 0..200 {
        let machine = Machine::new(op_count);
        let tsdb = machine.open();
        put_window(&machine, &tsdb, -4);
        machine.disk.fail_after(op_count);
        let flushed = tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).is_ok();
        machine.disk.heal();
        let deleted = tsdb.admin().delete_series(&anonymous(), &by_name("b"), TimeRange::ALL).is_ok();
        let what = format!("operation {op_count}, flushed {flushed}, deleted {deleted}");
        let before = machine.read(&tsdb, &anonymous(), "b");
        assert!(!deleted || before.is_empty(), "{what}");
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let after = machine.read(&tsdb, &anonymous(), "b");
        assert!(!deleted || after.is_empty(), "{what}: {} samples came back", after.len());
        assert_eq!(machine.read(&tsdb, &anonymous(), "a").len(), 100, "{what}");
        if flushed {
            return;
        }
    }
    panic!("the flush has fewer operations");
}

/// Sends out-of-order samples while a block is completed, once.
#[derive(Default)]
struct LateWriter(Mutex<Weak<Tsdb>>);

impl Fault for LateWriter {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        if path.ends_with("meta.json")
            && let Some(tsdb) = std::mem::take(&mut *self.0.lock().expect("not poisoned")).upgrade()
        {
            let first = START_MS - 4 * HOUR_MS + 10;
            let late: Vec<_> = (0..300).map(|i| (first + i * 9000, 0.5)).collect();
            write(&tsdb, &anonymous(), "b", &late).expect("stored");
        }
        Ok(())
    }
}

/// Out-of-order samples were merged into chunks of a window during its flush: re-encoded chunks stayed in the
/// head after the drop, and a deletion that had flushed the window left them there.
#[test]
fn a_deletion_removes_chunks_that_out_of_order_samples_were_merged_into() {
    let mut machine = Machine::new(11);
    let late = Arc::new(LateWriter::default());
    machine.env.disk = Arc::new(FaultDisk::new(machine.disk.clone(), late.clone()));
    let tsdb = machine.open();
    put_window(&machine, &tsdb, -4);
    *late.0.lock().expect("not poisoned") = Arc::downgrade(&tsdb);
    tsdb.admin().delete_series(&anonymous(), &by_name("b"), TimeRange::ALL).expect("deletes");
    assert!(late.0.lock().expect("not poisoned").upgrade().is_none(), "the late samples came");
    let check = |tsdb: &Tsdb, when: &str| {
        let found = machine.read(tsdb, &anonymous(), "b");
        let old = samples(-4, 1).into_iter().filter(|s| found.iter().any(|f| f.0 == s.0)).count();
        assert_eq!(old, 0, "{when}: acknowledged before the deletion");
        assert_eq!(machine.read(tsdb, &anonymous(), "a").len(), 100, "{when}");
    };
    check(&tsdb, "deleted");
    machine.disk.crash();
    drop(tsdb);
    check(&machine.open(), "after a crash");
}

#[test]
fn a_deletion_that_a_kill_interrupted_is_durable_when_it_is_repeated() {
    // Regression: a kill between the rename of the tombstones and the sync of their directory left them
    // visible, so the same deletion again had nothing to write, was acknowledged, and a power cut brought the
    // samples back.
    for survived in 0.. {
        let machine = Machine::new(8);
        let tsdb = filled(&machine);
        machine.disk.fail_after(survived);
        let is_whole = tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).is_ok();
        machine.disk.kill();
        drop(tsdb);
        let tsdb = machine.open();
        tsdb.admin().delete_series(&anonymous(), &by_name("b"), part()).expect("deletes");
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        compare(&machine, &tsdb, part(), &format!("killed after {survived} operations"));
        if is_whole {
            return;
        }
    }
}

/// Regression: the first deletion flushed the newer window, and the series remembered its last sample to
/// recognize duplicates. The second one found nothing to flush, so the series kept it; the sample that
/// was written again was acknowledged as a repeat and not stored, and another value in its place was refused.
#[test]
fn a_deleted_last_sample_that_only_a_block_has_can_be_written_again() {
    for value in [None, Some(7.5)] {
        let machine = Machine::new(9);
        let tsdb = machine.open();
        put_window(&machine, &tsdb, -4);
        put_window(&machine, &tsdb, -2);
        let newer = samples(-2, 1);
        let (first, last) = (newer[0], newer[newer.len() - 1]);
        for deleted in [first, last] {
            let range = TimeRange::new(deleted.0, deleted.0 + 1);
            tsdb.admin().delete_series(&anonymous(), &by_name("b"), range).expect("deletes");
        }
        let again = (last.0, value.unwrap_or(last.1));
        let outcome = write(&tsdb, &anonymous(), "b", &[again]).expect("stored");
        assert_eq!((outcome.accepted_count, outcome.repeated_count), (1, 0), "{value:?}");
        let check = |tsdb: &Tsdb, when: &str| {
            let found = machine.read(tsdb, &anonymous(), "b");
            assert_eq!(found.len(), 199, "{when}, {value:?}: all but the first of the newer window");
            assert_eq!(found.last(), Some(&(again.0, again.1.to_bits())), "{when}, {value:?}");
        };
        check(&tsdb, "written again");
        machine.disk.crash();
        drop(tsdb);
        check(&machine.open(), "after a crash");
    }
}

fn tenant(name: &str) -> StoreId {
    StoreId::from(TenantId::new(name).expect("legal"))
}

/// Two stores with three series each: a window in a block, and two in the head.
fn two_stores(machine: &Machine) -> (Arc<Tsdb>, [StoreId; 2]) {
    let tsdb = machine.open();
    let stores = [tenant("one"), tenant("two")];
    let put = |hour: i64| {
        for store in &stores {
            for (place, name) in (0..).zip(NAMES) {
                write(&tsdb, store, name, &samples(hour, place)).expect("stored");
            }
        }
    };
    put(-8);
    tsdb.maintenance().flush_closed(machine.env.clock.now_ms()).expect("flushes");
    put(-4);
    put(-1);
    (tsdb, stores)
}

/// Deletes of the first store all of `b` and part of `c`, and of the second one part of `a`.
fn deletions_of(stores: &[StoreId; 2]) -> Vec<Deletion> {
    let of = |store: usize, name: &str, range| Deletion {
        store: stores[store].clone(),
        selectors: by_name(name),
        range,
    };
    vec![of(0, "b", TimeRange::ALL), of(1, "a", part()), of(0, "c", part())]
}

/// Returns the samples that `two_stores` has stored of a series, and those that `deletions_of` leaves.
fn before_and_after(store: usize, place: i64) -> [Vec<(i64, u64)>; 2] {
    let deleted = match (store, place) {
        (0, 1) => TimeRange::ALL,
        (0, 2) | (1, 0) => part(),
        _ => TimeRange::new(0, 0),
    };
    let all = [-8, -4, -1].into_iter().flat_map(|hour| samples(hour, place));
    let all: Vec<_> = all.map(|(time, value)| (time, value.to_bits())).collect();
    let left = all.iter().filter(|(time, _)| !deleted.contains(*time)).copied().collect();
    [all, left]
}

#[track_caller]
fn compare_stores(machine: &Machine, tsdb: &Tsdb, stores: &[StoreId; 2], when: &str) {
    for (idx, store) in stores.iter().enumerate() {
        for (place, name) in (0..).zip(NAMES) {
            let [_, left] = before_and_after(idx, place);
            let found = machine.read(tsdb, store, name);
            assert!(
                found == left,
                "{when}: {name} of store {idx}: {} samples, {} wanted",
                found.len(),
                left.len()
            );
        }
    }
}

#[test]
fn deletions_in_one_call_flush_each_window_once_and_write_one_checkpoint() {
    let costs = |delete: fn(&Tsdb, &[Deletion])| {
        let machine = Machine::new(12);
        let (tsdb, stores) = two_stores(&machine);
        let before = tsdb.statistics().stats();
        delete(&tsdb, &deletions_of(&stores));
        let after = tsdb.statistics().stats();
        compare_stores(&machine, &tsdb, &stores, "deleted");
        machine.disk.crash();
        drop(tsdb);
        compare_stores(&machine, &machine.open(), &stores, "after a crash");
        (
            after.maintenance.flush_count - before.maintenance.flush_count,
            after.head.checkpoint.count - before.head.checkpoint.count,
        )
    };
    let together = costs(|tsdb, deletions| {
        let report = tsdb.admin().delete_all(deletions).expect("deletes");
        assert_eq!((report.series_count, report.block_count), (9, 9), "each in three blocks of its store");
    });
    assert_eq!(together, (4, 1), "two windows of two stores");
    let apart = costs(|tsdb, deletions| {
        for &Deletion { ref store, ref selectors, range } in deletions {
            tsdb.admin().delete_series(store, selectors, range).expect("deletes");
        }
    });
    assert_eq!(apart, (4, 2), "a checkpoint after the flushes of each store");
}

#[test]
fn no_deletion_is_a_deletion_of_nothing() {
    let machine = Machine::new(13);
    let tsdb = machine.open();
    assert_eq!(tsdb.admin().delete_all(&[]).expect("deletes"), chronolith_tsdb::DeleteReport::default());
    let nowhere = Deletion { store: tenant("none"), selectors: by_name("b"), range: TimeRange::ALL };
    assert_eq!(tsdb.admin().delete_all(&[nowhere]).expect("deletes").block_count, 0);
}

/// Part of a deletion may be done when a crash interrupts it, as documented, and the same call completes it.
#[test]
fn a_crash_between_deletions_of_one_call_loses_no_other_samples() {
    let machine = Machine::new(14);
    let (tsdb, stores) = two_stores(&machine);
    let before = machine.disk.op_count();
    tsdb.admin().delete_all(&deletions_of(&stores)).expect("deletes");
    let op_count = machine.disk.op_count() - before;
    assert!(op_count > 50, "{op_count}");
    for survived in 0..=op_count {
        let machine = Machine::new(14);
        let (tsdb, stores) = two_stores(&machine);
        let deletions = deletions_of(&stores);
        machine.disk.fail_after(survived);
        let deleted = tsdb.admin().delete_all(&deletions);
        machine.disk.crash();
        drop(tsdb);
        let tsdb = machine.open();
        let when = format!("crash after {survived} operations");
        if deleted.is_ok() {
            compare_stores(&machine, &tsdb, &stores, &when);
        }
        for (idx, store) in stores.iter().enumerate() {
            for (place, name) in (0..).zip(NAMES) {
                let [all, left] = before_and_after(idx, place);
                let found = machine.read(&tsdb, store, name);
                let has_others = left.iter().all(|sample| found.contains(sample));
                assert!(has_others, "{when}: {name} of store {idx} lost a sample outside of its range");
                assert!(found.iter().all(|sample| all.contains(sample)), "{when}: {name} of store {idx}");
            }
        }
        tsdb.admin().delete_all(&deletions).expect("deletes");
        compare_stores(&machine, &tsdb, &stores, &format!("{when}, repeated"));
        assert!(survived < op_count || deleted.is_ok());
    }
}
