//! A full disk and its recovery, a poisoned WAL, closing, many writers, many tenants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::MemDisk;
use chronolith_base::thread::spawn;
use chronolith_head::{SyncMode, WalError, WriteError};
use chronolith_model::{Reject, Selector, TimeRange};

use crate::harness::{NOW_MS, TestEnv, WINDOW_MS, batch, labels, read_all, read_once, tenant};

fn one(time: i64) -> chronolith_model::WriteBatch {
    let samples: Vec<(i64, f64)> = (0..100).map(|k| (time + k, k as f64)).collect();
    batch(&(0..8).map(|i| (labels(i), samples.clone())).collect::<Vec<_>>())
}

#[test]
fn a_full_disk_refuses_and_recovers_without_loss() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let used = |disk: &MemDisk| {
        disk.set_capacity_bytes(u64::MAX - 1);
        u64::MAX - 1 - chronolith_base::Disk::free_bytes(disk, std::path::Path::new("/")).unwrap()
    };
    test_env.disk.set_capacity_bytes(used(&test_env.disk) + 100);
    let mut acked = 1;
    let mut error = None;
    for round in 1..40 {
        match test_env.write(&head, &tenant("a"), &one(NOW_MS + 1000 * round)) {
            Ok(_) => acked += 1,
            Err(e) => {
                error = Some(e);
                break;
            }
        }
    }
    assert_eq!(error, Some(WriteError::Wal(WalError::DiskFull)));
    let before = read_all(&test_env, &head, &["a"]);
    assert_eq!(
        test_env.write(&head, &tenant("a"), &one(NOW_MS + 500_000)),
        Err(WriteError::Wal(WalError::DiskFull))
    );
    assert_eq!(read_all(&test_env, &head, &["a"]), before, "a refused batch does not touch memory");
    head.recover_space();
    assert!(head.statistics().stats().wal.is_disk_full, "still no space");
    test_env.disk.set_capacity_bytes(u64::MAX);
    head.recover_space();
    assert!(!head.statistics().stats().wal.is_disk_full);
    test_env.write(&head, &tenant("a"), &one(NOW_MS + 600_000)).unwrap();
    let all = read_all(&test_env, &head, &["a"]);
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(
        read_all(&test_env, &head, &["a"]),
        all,
        "what waited for space was written, {acked} batches before"
    );
}

#[test]
fn too_little_free_space_refuses() {
    let mut test_env = TestEnv::new(2);
    test_env.options.free_bytes_min = 1 << 20;
    let (head, _) = test_env.open();
    test_env.disk.set_capacity_bytes(2 << 20);
    test_env.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    test_env.disk.set_capacity_bytes(1 << 20);
    test_env.write(&head, &tenant("a"), &one(NOW_MS + 1000)).expect("asked at most once a second");
    test_env.clock.advance(std::time::Duration::from_secs(2));
    assert_eq!(
        test_env.write(&head, &tenant("a"), &one(NOW_MS + 2000)),
        Err(WriteError::Wal(WalError::DiskFull))
    );
    test_env.disk.set_capacity_bytes(2 << 20);
    head.recover_space();
    test_env.write(&head, &tenant("a"), &one(NOW_MS + 3000)).unwrap();
}

#[test]
fn a_failed_sync_poisons_for_good() {
    let mut test_env = TestEnv::new(3);
    test_env.options.wal_segment_bytes = 256 << 10;
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let acked = read_all(&test_env, &head, &["a"]);
    test_env.disk.fail_after(1);
    let error = test_env.write(&head, &tenant("a"), &one(NOW_MS + 1000)).unwrap_err();
    assert!(
        matches!(&error, WriteError::Wal(WalError::Poisoned(text)) if text.contains("syncing")),
        "{error}"
    );
    test_env.disk.heal();
    head.recover_space();
    assert!(matches!(
        test_env.write(&head, &tenant("a"), &one(NOW_MS + 2000)),
        Err(WriteError::Wal(WalError::Poisoned(_)))
    ));
    assert!(head.checkpointer().checkpoint().is_err(), "a checkpoint would pretend that the log is whole");
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    assert_eq!(read_all(&test_env, &head, &["a"]), acked);
}

#[test]
fn closing_refuses_writes_and_leaves_nothing_to_replay() {
    let test_env = TestEnv::new(4);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let all = read_all(&test_env, &head, &["a"]);
    head.close().unwrap();
    head.close().unwrap();
    assert_eq!(
        test_env.write(&head, &tenant("a"), &one(NOW_MS + 1000)),
        Err(WriteError::Wal(WalError::Closed))
    );
    assert_eq!(read_all(&test_env, &head, &["a"]), all, "reading goes on");
    drop(head);
    let (head, report) = test_env.open();
    assert_eq!((report.samples, report.series), (0, 8));
    assert_eq!(read_all(&test_env, &head, &["a"]), all);
}

#[test]
fn interval_mode_syncs_at_the_tick() {
    let mut test_env = TestEnv::new(5);
    test_env.options.sync = SyncMode::Interval(1000);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &one(NOW_MS)).unwrap();
    let all = read_all(&test_env, &head, &["a"]);
    test_env.clock.advance(std::time::Duration::from_secs(2));
    head.recover_space();
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    assert_eq!(read_all(&test_env, &head, &["a"]), all);
}

/// Writers of the same and of other series while windows are dropped and checkpoints are written.
#[test]
fn writers_readers_and_maintenance_run_together() {
    const WRITERS: i64 = 6;
    const ROUNDS: i64 = 60;
    let mut test_env = TestEnv::new(6);
    test_env.options.wal_segment_bytes = 256 << 10;
    let (head, _) = test_env.open();
    let (test_env, head) = (Arc::new(test_env), Arc::new(head));
    let stop = Arc::new(AtomicBool::new(false));
    let maintenance = {
        let (test_env, head, stop) = (test_env.clone(), head.clone(), stop.clone());
        spawn("maintenance", move || {
            let mut dropped = 0;
            // At least once, however late this thread is scheduled.
            loop {
                // Only windows of this thread are dropped, over and over.
                let old = NOW_MS - 10 * WINDOW_MS;
                test_env.write(&head, &tenant("a"), &batch(&[(labels(999), vec![(old, 1.0)])])).unwrap();
                let window = TimeRange::window_of(old, WINDOW_MS);
                let snapshot = head.windows().snapshot(&tenant("a"), window).unwrap();
                dropped += head.windows().drop(snapshot).series_count;
                head.checkpointer().checkpoint().unwrap();
                read_once(&test_env, &head, "a", &Selector { matchers: &[], range: TimeRange::ALL });
                if stop.load(Ordering::Relaxed) {
                    break dropped;
                }
            }
        })
        .unwrap()
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (test_env, head) = (test_env.clone(), head.clone());
            spawn("writer", move || {
                for round in 0..ROUNDS {
                    let time = NOW_MS + 100 * round;
                    // Half of the series are shared; each writer has its own timestamps in them.
                    let rows: Vec<_> = (0..20)
                        .map(|i| {
                            let (idx, time) =
                                if i % 2 == 0 { (i, time + writer) } else { (i + 100 * writer, time) };
                            (labels(idx as u64), vec![(time, writer as f64)])
                        })
                        .collect();
                    let outcome = test_env.write(&head, &tenant("a"), &batch(&rows)).unwrap();
                    assert_eq!((outcome.accepted_count, outcome.rejected_count()), (20, 0));
                }
            })
            .unwrap()
        })
        .collect();
    writers.into_iter().for_each(|w| w.join().unwrap());
    stop.store(true, Ordering::Relaxed);
    assert!(maintenance.join().unwrap() > 0);
    let found = read_all(&test_env, &head, &["a"]);
    let count: usize = found.values().map(std::collections::BTreeMap::len).sum();
    assert_eq!(count as i64, WRITERS * ROUNDS * 20);
    let stats = head.statistics().stats();
    assert!(stats.wal.sync_count <= stats.wal.batch_count + 100);
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(read_all(&test_env, &head, &["a"]), found);
}

/// Most series leave at once, so that index and key cache are rebuilt, while writers send to series that
/// stay, series that leave and new series.
#[test]
fn a_large_window_drop_runs_concurrently_with_writers() {
    const SERIES: u64 = 14_000;
    let mut test_env = TestEnv::new(7);
    test_env.options.wal_segment_bytes = 4 << 20;
    test_env.options.sealed_file_bytes = 1 << 20;
    let (head, _) = test_env.open();
    let old = TimeRange::window_of(NOW_MS - 10 * WINDOW_MS, WINDOW_MS);
    let rows: Vec<_> = (0..SERIES).map(|i| (labels(i), vec![(old.start, i as f64)])).collect();
    test_env.write(&head, &tenant("a"), &batch(&rows)).unwrap();
    let stays: Vec<_> = (0..SERIES / 7).map(|i| (labels(i), vec![(NOW_MS, 0.5)])).collect();
    test_env.write(&head, &tenant("a"), &batch(&stays)).unwrap();
    let snapshot = head.windows().snapshot(&tenant("a"), old).unwrap();
    assert_eq!(snapshot.series_count() as u64, SERIES);
    let (test_env, head) = (Arc::new(test_env), Arc::new(head));
    let (stop, started) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (test_env, head, stop, started) = (test_env.clone(), head.clone(), stop.clone(), started.clone());
        spawn("writer", move || {
            let mut round = 0u64;
            while !stop.load(Ordering::Relaxed) && round < 3000 {
                round += 1;
                let ids = [round % (SERIES / 7), SERIES - round, SERIES + round];
                let rows: Vec<_> =
                    ids.map(|i| (labels(i), vec![(NOW_MS + round as i64, round as f64)])).into();
                let outcome = test_env.write(&head, &tenant("a"), &batch(&rows)).unwrap();
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
    let dropped = head.windows().drop(snapshot);
    stop.store(true, Ordering::Relaxed);
    let rounds = writer.join().unwrap();
    assert!(dropped.series_count >= SERIES / 2, "{dropped:?}");
    let found = read_all(&test_env, &head, &["a"]);
    let count: usize = found.values().map(std::collections::BTreeMap::len).sum();
    assert_eq!(count as u64, SERIES / 7 + 3 * rounds);
    // All series again: known series are found, departed ones are created again.
    let rows: Vec<_> = (0..SERIES).map(|i| (labels(i), vec![(NOW_MS + 50_000, i as f64)])).collect();
    let outcome = test_env.write(&head, &tenant("a"), &batch(&rows)).unwrap();
    assert_eq!((outcome.accepted_count, outcome.rejected_count()), (SERIES, 0));
    assert_eq!(head.statistics().stats().series, SERIES + rounds);
    head.checkpointer().checkpoint().unwrap();
    let found = read_all(&test_env, &head, &["a"]);
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert_eq!(read_all(&test_env, &head, &["a"]), found);
}

#[test]
fn tenants_do_not_see_each_other() {
    let test_env = TestEnv::new(8);
    let (head, _) = test_env.open();
    for i in 0..200i64 {
        let name = format!("t{i}");
        test_env.write(&head, &tenant(&name), &batch(&[(labels(1), vec![(NOW_MS, i as f64)])])).unwrap();
    }
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    for i in 0..200i64 {
        let name = format!("t{i}");
        let found = read_all(&test_env, &head, &[&name]);
        assert_eq!(found.values().next().and_then(|s| s.get(&NOW_MS)), Some(&(i as f64).to_bits()));
        assert_eq!(found.len(), 1);
    }
}

#[test]
fn a_checkpoint_frees_a_disk_that_the_wal_has_filled() {
    let mut test_env = TestEnv::new(9);
    test_env.options.wal_segment_bytes = 64 << 10;
    let (head, _) = test_env.open();
    // Two segments, and the control file of the WAL.
    test_env.disk.set_capacity_bytes((128 + 2) << 10);
    let mut round = 0;
    let error = loop {
        round += 1;
        if let Err(error) = test_env.write(&head, &tenant("a"), &one(NOW_MS + 1000 * round)) {
            break error;
        }
    };
    assert_eq!(error, WriteError::Wal(WalError::DiskFull));
    let all = read_all(&test_env, &head, &["a"]);
    test_env.disk.set_capacity_bytes((128 + 62) << 10);
    head.recover_space();
    assert!(head.statistics().stats().wal.is_disk_full, "a segment needs more");
    assert!(head.checkpointer().checkpoint().expect("fits").removed_bytes >= 128 << 10);
    head.recover_space();
    assert!(!head.statistics().stats().wal.is_disk_full);
    test_env.write(&head, &tenant("a"), &batch(&[(labels(77), vec![(NOW_MS, 1.0)])])).unwrap();
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let mut found = read_all(&test_env, &head, &["a"]);
    assert!(found.remove(&("a".to_owned(), labels(77))).is_some());
    assert_eq!(found, all);
}

#[test]
fn samples_of_a_refused_series_are_rejected_for_their_own_reasons() {
    // Regression: a series with all samples rejected counted them all under the reason of the first one.
    let mut test_env = TestEnv::new(10);
    test_env.limits.retention_ms = 1000;
    test_env.limits.future_ms_max = 1000;
    let (head, _) = test_env.open();
    let samples = vec![(NOW_MS + 5000, 1.0), (NOW_MS - 5000, 1.0), (NOW_MS - 6000, 1.0)];
    let outcome = test_env.write(&head, &tenant("a"), &batch(&[(labels(1), samples)])).unwrap();
    let counts = [Reject::OutOfBounds, Reject::TooOld].map(|kind| outcome.rejected[kind as usize]);
    assert_eq!((counts, head.statistics().stats().series), ([1, 2], 0));
}
