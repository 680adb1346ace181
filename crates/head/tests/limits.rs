//! A full disk and its recovery, a poisoned log, closing, many writers, many tenants.

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::MemDisk;
use chronolith_base::thread::spawn;
use chronolith_head::{SyncMode, WriteError};
use chronolith_model::{Reject, Selector, TimeRange};
use harness::{NOW_MS, WINDOW_MS, World, batch, labels, read_all, read_once, tenant};

fn one(time: i64) -> chronolith_model::WriteBatch {
    let samples: Vec<(i64, f64)> = (0..100).map(|k| (time + k, k as f64)).collect();
    batch(&(0..8).map(|i| (labels(i), samples.clone())).collect::<Vec<_>>())
}

#[test]
fn a_full_disk_refuses_and_recovers_without_loss() {
    let world = World::new(1);
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let used = |disk: &MemDisk| {
        disk.set_capacity_bytes(u64::MAX - 1);
        u64::MAX - 1 - chronolith_base::Disk::free_bytes(disk, std::path::Path::new("/")).unwrap()
    };
    world.disk.set_capacity_bytes(used(&world.disk) + 100);
    let mut acked = 1;
    let mut error = None;
    for round in 1..40 {
        match world.write(&head, &tenant("a"), &one(NOW_MS + 1000 * round)) {
            Ok(_) => acked += 1,
            Err(e) => {
                error = Some(e);
                break;
            }
        }
    }
    assert_eq!(error, Some(WriteError::DiskFull));
    let before = read_all(&world, &head, &["a"]);
    assert_eq!(world.write(&head, &tenant("a"), &one(NOW_MS + 500_000)), Err(WriteError::DiskFull));
    assert_eq!(read_all(&world, &head, &["a"]), before, "a refused batch does not touch memory");
    head.recover_space();
    assert!(head.stats().disk_full, "still no space");
    world.disk.set_capacity_bytes(u64::MAX);
    head.recover_space();
    assert!(!head.stats().disk_full);
    world.write(&head, &tenant("a"), &one(NOW_MS + 600_000)).unwrap();
    let all = read_all(&world, &head, &["a"]);
    drop(head);
    world.disk.crash();
    let (head, report) = world.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(
        read_all(&world, &head, &["a"]),
        all,
        "what waited for space was written, {acked} batches before"
    );
}

#[test]
fn too_little_free_space_refuses() {
    let mut world = World::new(2);
    world.options.free_bytes_min = 1 << 20;
    let (head, _) = world.open();
    world.disk.set_capacity_bytes(2 << 20);
    world.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    world.disk.set_capacity_bytes(1 << 20);
    world.write(&head, &tenant("a"), &one(NOW_MS + 1000)).expect("asked at most once a second");
    world.clock.advance(std::time::Duration::from_secs(2));
    assert_eq!(world.write(&head, &tenant("a"), &one(NOW_MS + 2000)), Err(WriteError::DiskFull));
    world.disk.set_capacity_bytes(2 << 20);
    head.recover_space();
    world.write(&head, &tenant("a"), &one(NOW_MS + 3000)).unwrap();
}

#[test]
fn a_failed_sync_poisons_for_good() {
    let mut world = World::new(3);
    world.options.wal_segment_bytes = 256 << 10;
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let acked = read_all(&world, &head, &["a"]);
    world.disk.fail_after(1);
    let error = world.write(&head, &tenant("a"), &one(NOW_MS + 1000)).unwrap_err();
    assert!(matches!(&error, WriteError::Poisoned(text) if text.contains("syncing")), "{error}");
    world.disk.heal();
    head.recover_space();
    assert!(matches!(world.write(&head, &tenant("a"), &one(NOW_MS + 2000)), Err(WriteError::Poisoned(_))));
    assert!(head.checkpoint().is_err(), "a checkpoint would pretend that the log is whole");
    drop(head);
    world.disk.crash();
    let (head, _) = world.open();
    assert_eq!(read_all(&world, &head, &["a"]), acked);
}

#[test]
fn closing_refuses_writes_and_leaves_nothing_to_replay() {
    let world = World::new(4);
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let all = read_all(&world, &head, &["a"]);
    head.close().unwrap();
    head.close().unwrap();
    assert_eq!(world.write(&head, &tenant("a"), &one(NOW_MS + 1000)), Err(WriteError::Closed));
    assert_eq!(read_all(&world, &head, &["a"]), all, "reading goes on");
    drop(head);
    let (head, report) = world.open();
    assert_eq!((report.samples, report.series), (0, 8));
    assert_eq!(read_all(&world, &head, &["a"]), all);
}

#[test]
fn interval_mode_syncs_at_the_tick() {
    let mut world = World::new(5);
    world.options.sync = SyncMode::Interval(1000);
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let all = read_all(&world, &head, &["a"]);
    world.clock.advance(std::time::Duration::from_secs(2));
    head.recover_space();
    drop(head);
    world.disk.crash();
    let (head, _) = world.open();
    assert_eq!(read_all(&world, &head, &["a"]), all);
}

/// Writers of the same and of other series while windows are dropped and checkpoints written.
#[test]
fn writers_readers_and_maintenance_run_together() {
    const WRITERS: i64 = 6;
    const ROUNDS: i64 = 60;
    let mut world = World::new(6);
    world.options.wal_segment_bytes = 256 << 10;
    let (head, _) = world.open();
    let (world, head) = (Arc::new(world), Arc::new(head));
    let stop = Arc::new(AtomicBool::new(false));
    let maintenance = {
        let (world, head, stop) = (world.clone(), head.clone(), stop.clone());
        spawn("maintenance", move || {
            let mut dropped = 0;
            // Once at least, however late this thread gets its turn.
            loop {
                // Only a window of its own is dropped, over and over.
                let old = NOW_MS - 10 * WINDOW_MS;
                world.write(&head, &tenant("a"), &batch(&[(labels(999), vec![(old, 1.0)])])).unwrap();
                let window = TimeRange::window_of(old, WINDOW_MS);
                let snapshot = head.snapshot_window(&tenant("a"), window).unwrap();
                dropped += head.drop_window(snapshot).series_count;
                head.checkpoint().unwrap();
                read_once(&world, &head, "a", &Selector { matchers: &[], range: TimeRange::ALL });
                if stop.load(Ordering::Relaxed) {
                    break dropped;
                }
            }
        })
        .unwrap()
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (world, head) = (world.clone(), head.clone());
            spawn("writer", move || {
                for round in 0..ROUNDS {
                    let time = NOW_MS + 100 * round;
                    // Half of the series are shared; each writer has its own times in them.
                    let rows: Vec<_> = (0..20)
                        .map(|i| {
                            let (idx, time) =
                                if i % 2 == 0 { (i, time + writer) } else { (i + 100 * writer, time) };
                            (labels(idx as u64), vec![(time, writer as f64)])
                        })
                        .collect();
                    let outcome = world.write(&head, &tenant("a"), &batch(&rows)).unwrap();
                    assert_eq!((outcome.accepted_count, outcome.rejected_count()), (20, 0));
                }
            })
            .unwrap()
        })
        .collect();
    writers.into_iter().for_each(|w| w.join().unwrap());
    stop.store(true, Ordering::Relaxed);
    assert!(maintenance.join().unwrap() > 0);
    let found = read_all(&world, &head, &["a"]);
    let count: usize = found.values().map(std::collections::BTreeMap::len).sum();
    assert_eq!(count as i64, WRITERS * ROUNDS * 20);
    let stats = head.stats();
    assert!(stats.wal_sync_count <= stats.wal_batch_count + 100);
    drop(head);
    world.disk.crash();
    let (head, report) = world.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(read_all(&world, &head, &["a"]), found);
}

/// Most series leave at once, so that tables and raw keys are built anew, while writers send to series that stay,
/// series that leave and series that come.
#[test]
fn a_large_drop_runs_beside_writers() {
    const SERIES: u64 = 14_000;
    let mut world = World::new(7);
    world.options.wal_segment_bytes = 4 << 20;
    world.options.sealed_file_bytes = 1 << 20;
    let (head, _) = world.open();
    let old = TimeRange::window_of(NOW_MS - 10 * WINDOW_MS, WINDOW_MS);
    let rows: Vec<_> = (0..SERIES).map(|i| (labels(i), vec![(old.start, i as f64)])).collect();
    world.write(&head, &tenant("a"), &batch(&rows)).unwrap();
    let stays: Vec<_> = (0..SERIES / 7).map(|i| (labels(i), vec![(NOW_MS, 0.5)])).collect();
    world.write(&head, &tenant("a"), &batch(&stays)).unwrap();
    let snapshot = head.snapshot_window(&tenant("a"), old).unwrap();
    assert_eq!(snapshot.series_count() as u64, SERIES);
    let (world, head) = (Arc::new(world), Arc::new(head));
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (world, head, stop, started) = (world.clone(), head.clone(), stop.clone(), started.clone());
        spawn("writer", move || {
            let mut round = 0u64;
            while !stop.load(Ordering::Relaxed) && round < 3000 {
                round += 1;
                let ids = [round % (SERIES / 7), SERIES - round, SERIES + round];
                let rows: Vec<_> =
                    ids.map(|i| (labels(i), vec![(NOW_MS + round as i64, round as f64)])).into();
                let outcome = world.write(&head, &tenant("a"), &batch(&rows)).unwrap();
                assert_eq!((outcome.accepted_count, outcome.rejected_count()), (3, 0));
                started.store(true, Ordering::Relaxed);
            }
            round
        })
        .unwrap()
    };
    while !started.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let dropped = head.drop_window(snapshot);
    stop.store(true, Ordering::Relaxed);
    let rounds = writer.join().unwrap();
    assert!(dropped.series_count >= SERIES / 2, "{dropped:?}");
    let found = read_all(&world, &head, &["a"]);
    let count: usize = found.values().map(std::collections::BTreeMap::len).sum();
    assert_eq!(count as u64, SERIES / 7 + 3 * rounds);
    // All of them again: known series are found, those that left are made anew.
    let rows: Vec<_> = (0..SERIES).map(|i| (labels(i), vec![(NOW_MS + 50_000, i as f64)])).collect();
    let outcome = world.write(&head, &tenant("a"), &batch(&rows)).unwrap();
    assert_eq!((outcome.accepted_count, outcome.rejected_count()), (SERIES, 0));
    assert_eq!(head.stats().series, SERIES + rounds);
    head.checkpoint().unwrap();
    let found = read_all(&world, &head, &["a"]);
    drop(head);
    world.disk.crash();
    let (head, report) = world.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(read_all(&world, &head, &["a"]), found);
}

#[test]
fn tenants_do_not_see_each_other() {
    let world = World::new(8);
    let (head, _) = world.open();
    for i in 0..200i64 {
        let name = format!("t{i}");
        world.write(&head, &tenant(&name), &batch(&[(labels(1), vec![(NOW_MS, i as f64)])])).unwrap();
    }
    drop(head);
    world.disk.crash();
    let (head, _) = world.open();
    for i in 0..200i64 {
        let name = format!("t{i}");
        let found = read_all(&world, &head, &[&name]);
        assert_eq!(found.values().next().and_then(|s| s.get(&NOW_MS)), Some(&(i as f64).to_bits()));
        assert_eq!(found.len(), 1);
    }
}

#[test]
fn a_checkpoint_frees_the_space_that_the_log_has_filled() {
    let mut world = World::new(9);
    world.options.wal_segment_bytes = 64 << 10;
    let (head, _) = world.open();
    // Two segments, and the control file of the log.
    world.disk.set_capacity_bytes((128 + 2) << 10);
    let mut round = 0;
    let error = loop {
        round += 1;
        if let Err(error) = world.write(&head, &tenant("a"), &one(NOW_MS + 1000 * round)) {
            break error;
        }
    };
    assert_eq!(error, WriteError::DiskFull);
    let all = read_all(&world, &head, &["a"]);
    world.disk.set_capacity_bytes((128 + 62) << 10);
    head.recover_space();
    assert!(head.stats().disk_full, "a segment needs more");
    assert!(head.checkpoint().expect("fits").removed_bytes >= 128 << 10);
    head.recover_space();
    assert!(!head.stats().disk_full);
    world.write(&head, &tenant("a"), &batch(&[(labels(77), vec![(NOW_MS, 1.0)])])).unwrap();
    drop(head);
    world.disk.crash();
    let (head, report) = world.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let mut found = read_all(&world, &head, &["a"]);
    assert!(found.remove(&("a".to_owned(), labels(77))).is_some());
    assert_eq!(found, all);
}

#[test]
fn samples_of_a_series_that_is_not_made_are_refused_each_for_its_own_reason() {
    // What broke: a series all of whose samples were refused counted them all under the reason of the first one.
    let mut world = World::new(10);
    world.limits.retention_ms = 1000;
    world.limits.future_ms_max = 1000;
    let (head, _) = world.open();
    let samples = vec![(NOW_MS + 5000, 1.0), (NOW_MS - 5000, 1.0), (NOW_MS - 6000, 1.0)];
    let outcome = world.write(&head, &tenant("a"), &batch(&[(labels(1), samples)])).unwrap();
    let counts = [Reject::OutOfBounds, Reject::TooOld].map(|kind| outcome.rejected[kind as usize]);
    assert_eq!((counts, head.stats().series), ([1, 2], 0));
}
