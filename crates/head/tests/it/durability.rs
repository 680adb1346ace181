//! Regressions of durability: acknowledged samples survive kills and power failures, under the series and
//! tenant to which they were written.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use chronolith_base::DiskFile;
use chronolith_head::SyncMode;
use chronolith_model::Labels;
use parking_lot::Mutex;

use crate::harness::fault_disk::{Fault, FaultDisk};
use crate::harness::{NOW_MS, TestEnv, batch, labels, read_all, tenant};

/// `count` samples of a series, one per millisecond.
fn row(idx: u64, count: i32) -> (Labels, Vec<(i64, f64)>) {
    (labels(idx), (0..count).map(|i| (NOW_MS + i64::from(i), f64::from(i))).collect())
}

fn named(name: &str) -> Labels {
    Labels::from_pairs([("__name__", name)])
}

type Interlude = Box<dyn FnOnce() + Send>;

/// Runs a function once, when a checkpoint is first written to.
#[derive(Default)]
struct DuringCheckpoint(Mutex<Option<Interlude>>);

impl Fault for DuringCheckpoint {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        if path.extension().is_some_and(|extension| extension == "tmp") {
            let interlude = self.0.lock().take();
            interlude.into_iter().for_each(|run| run());
        }
        Ok(())
    }
}

/// Creates series `x` of tenant `t` while a checkpoint is written, and cuts the power before its WAL frames
/// are written: it is not acknowledged.
fn lose_a_series_made_during_a_checkpoint() -> TestEnv {
    let mut test_env = TestEnv::new(1);
    let fault = Arc::new(DuringCheckpoint::default());
    test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), fault.clone()));
    let head = Arc::new(test_env.open().0);
    // More than one frame of series records, so that the checkpoint is written in parts.
    let long = "x".repeat(1500);
    let long_named = |i: u32| Labels::from_pairs([("__name__", "m"), ("i", &*format!("{i}-{long}"))]);
    let many: Vec<_> = (0..1500).map(|i| (long_named(i), vec![(NOW_MS, 1.0)])).collect();
    test_env.write(&head, &tenant("a"), &batch(&many)).expect("written");
    let (other, limits) = (head.clone(), test_env.limits.clone());
    *fault.0.lock() = Some(Box::new(move || {
        let series = batch(&[(named("x"), vec![(NOW_MS, 11.0)])]);
        let (_, _unsynced) = other.append(&tenant("t"), &limits, NOW_MS, &series).expect("queued");
    }));
    head.checkpointer().checkpoint().expect("a checkpoint");
    assert!(fault.0.lock().is_none(), "the series was made during the checkpoint");
    drop(head);
    test_env.disk.crash();
    test_env
}

/// Regression: a checkpoint had the wire key of a series that was created while it was written, but not its
/// series record. After a power failure its id was assigned to another series, and a retry of the first was
/// stored there, even for another tenant. A checkpoint has wire keys only of series that it defines.
#[test]
fn the_wire_key_of_a_lost_series_is_unknown() {
    let test_env = lose_a_series_made_during_a_checkpoint();
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[(named("y"), vec![(NOW_MS, 22.0)])])).expect("written");
    test_env
        .write(&head, &tenant("t"), &batch(&[(named("x"), vec![(NOW_MS + 1, 11.0)])]))
        .expect("the retry");
    let key = |tenant: &str, name| (tenant.to_owned(), named(name));
    let found = read_all(&test_env, &head, &["a", "t"]);
    // The checkpoint may have made the first sample durable as well.
    assert!(found[&key("t", "x")].contains_key(&(NOW_MS + 1)));
    assert!(found[&key("t", "x")].values().all(|&v| v == 11f64.to_bits()));
    assert_eq!(found[&key("a", "y")].values().copied().collect::<Vec<_>>(), [22f64.to_bits()]);
}

/// Regression: a checkpoint had chunks of a series that was created while it was written. After a power
/// failure its id was assigned to another series, which got those samples at the next startup. A checkpoint
/// has chunks only of series that it defines.
#[test]
fn a_chunk_of_a_lost_series_is_not_assigned_to_another() {
    let test_env = lose_a_series_made_during_a_checkpoint();
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[(named("y"), vec![(NOW_MS + 5, 22.0)])])).expect("written");
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    let found = read_all(&test_env, &head, &["a"]);
    assert_eq!(found[&("a".to_owned(), named("y"))].len(), 1);
}

/// A disk whose first sync of sealed chunks fails and loses the bytes, as on Linux: later syncs report
/// success.
#[derive(Default)]
struct LostSync(AtomicBool);

impl Fault for LostSync {
    fn sync(&self, path: &Path, file: &dyn DiskFile) -> io::Result<()> {
        if path.extension().is_none_or(|extension| extension != "sealed") {
            return file.sync_data();
        }
        if self.0.swap(true, Ordering::SeqCst) { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}

/// Regression: a sync of sealed chunks that failed for lack of space was retried by the next checkpoint,
/// which trusted the second result and removed the WAL. Any failed sync poisons the WAL, so that it is kept.
#[test]
fn a_failed_sync_of_sealed_chunks_is_not_retried() {
    let mut test_env = TestEnv::new(3);
    test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), Arc::new(LostSync::default())));
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[row(1, 300)])).expect("written");
    let want = read_all(&test_env, &head, &["a"]);
    head.checkpointer().checkpoint().expect_err("the sync fails");
    head.recover_space();
    head.checkpointer().checkpoint().expect_err("the log is poisoned");
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    assert_eq!(read_all(&test_env, &head, &["a"]), want);
}

/// Regression: in interval mode a full disk stopped the syncs as well, so that a power failure hours later
/// lost acknowledged samples. Written frames are synced at the interval whether or not there is space for
/// more.
#[test]
fn interval_mode_syncs_while_the_disk_is_full() {
    let mut test_env = TestEnv::new(5);
    test_env.options.sync = SyncMode::Interval(1000);
    test_env.options.free_bytes_min = 1 << 20;
    test_env.disk.set_capacity_bytes(1 << 30);
    let (head, _) = test_env.open();
    let write = |offset_ms| {
        let series = batch(&[(labels(1), vec![(NOW_MS + offset_ms, 1.0)])]);
        test_env.write(&head, &tenant("a"), &series)
    };
    write(0).expect("written");
    test_env.clock.advance(Duration::from_millis(1500));
    write(1).expect("written, and synced");
    write(2).expect("written");
    let want = read_all(&test_env, &head, &["a"]);
    test_env.disk.set_capacity_bytes(1 << 19);
    for _ in 0..10 {
        test_env.clock.advance(Duration::from_secs(1));
        head.recover_space();
    }
    drop(head);
    test_env.disk.crash();
    test_env.disk.set_capacity_bytes(1 << 30);
    let (head, _) = test_env.open();
    assert_eq!(read_all(&test_env, &head, &["a"]), want);
}

/// Regression: frames that were written but not synced when the process was killed came back at the next
/// startup, and duplicates of them were acknowledged without being logged again; a power failure lost both.
/// Startup syncs the segment that it read last.
#[test]
fn a_duplicate_after_a_kill_is_durable() {
    for op_count in 0..100 {
        let mut test_env = TestEnv::new(11);
        test_env.options.wal_segment_bytes = 1 << 10;
        let (head, _) = test_env.open();
        test_env.write(&head, &tenant("a"), &batch(&[row(1, 1)])).expect("written");
        let repeated = batch(&[row(1, 400)]);
        test_env.disk.fail_after(op_count);
        let all_worked = test_env.write(&head, &tenant("a"), &repeated).is_ok();
        test_env.disk.heal();
        drop(head);
        let (head, _) = test_env.open();
        test_env.write(&head, &tenant("a"), &repeated).expect("acknowledged");
        let want = read_all(&test_env, &head, &["a"]);
        drop(head);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        assert_eq!(read_all(&test_env, &head, &["a"]), want, "killed at operation {op_count}");
        if all_worked {
            return;
        }
    }
    panic!("the write never comes to its end");
}

/// Crash tests with a single power failure miss changes by startup between a kill and a power failure. A
/// checkpoint that is interrupted at any operation keeps all samples through both.
#[test]
fn a_kill_during_a_checkpoint_and_then_a_power_cut() {
    for op_count in 0..200 {
        let test_env = TestEnv::new(7);
        let (head, _) = test_env.open();
        test_env.write(&head, &tenant("a"), &batch(&[row(1, 300)])).expect("written");
        head.checkpointer().checkpoint().expect("a checkpoint");
        test_env.write(&head, &tenant("a"), &batch(&[row(2, 300)])).expect("written");
        let want = read_all(&test_env, &head, &["a"]);
        test_env.disk.fail_after(op_count);
        let all_worked = head.checkpointer().checkpoint().is_ok();
        test_env.disk.heal();
        drop(head);
        let (head, _) = test_env.open();
        assert_eq!(read_all(&test_env, &head, &["a"]), want, "killed at operation {op_count}");
        drop(head);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        assert_eq!(
            read_all(&test_env, &head, &["a"]),
            want,
            "power cut after a kill at operation {op_count}"
        );
        if all_worked {
            return;
        }
    }
    panic!("the checkpoint never comes to its end");
}

/// Records removals of segments that came before the sync of the WAL directory.
#[derive(Default)]
struct RemovalOrder {
    is_synced: AtomicBool,
    early: Mutex<Vec<String>>,
    removed_count: AtomicUsize,
}

impl Fault for RemovalOrder {
    fn before_sync_dir(&self, dir: &Path) {
        self.is_synced.fetch_or(dir.ends_with("wal"), Ordering::SeqCst);
    }

    fn before_remove(&self, path: &Path) {
        if path.extension().is_some_and(|extension| extension == "seg") {
            self.removed_count.fetch_add(1, Ordering::SeqCst);
            if !self.is_synced.load(Ordering::SeqCst) {
                self.early.lock().push(path.display().to_string());
            }
        }
    }
}

/// Regression: a startup that found a finished checkpoint removed the WAL segments before it, though the name
/// of the checkpoint may not have been durable: a power failure could keep the removals and lose the name.
/// Startup syncs the names first.
#[test]
fn startup_syncs_the_checkpoint_before_it_removes_segments() {
    let mut removed_count = 0;
    for op_count in 0..200 {
        let mut test_env = TestEnv::new(19);
        let (head, _) = test_env.open();
        test_env.write(&head, &tenant("a"), &batch(&[row(1, 300)])).expect("written");
        test_env.disk.fail_after(op_count);
        let all_worked = head.checkpointer().checkpoint().is_ok();
        test_env.disk.heal();
        drop(head);
        let order = Arc::new(RemovalOrder::default());
        test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), order.clone()));
        drop(test_env.open());
        assert!(order.early.lock().is_empty(), "killed at operation {op_count}: {:?}", order.early.lock());
        removed_count += order.removed_count.load(Ordering::SeqCst);
        if all_worked {
            assert!(removed_count > 0, "no start had a segment to remove");
            return;
        }
    }
    panic!("the checkpoint never comes to its end");
}

/// Regression: a series without samples was looked up like any other: if a window drop had just removed it,
/// it was rejected with the first reason of the batch, at a timestamp from beyond the batch. It is skipped,
/// known or not.
#[test]
fn a_series_without_samples_is_skipped() {
    let test_env = TestEnv::new(13);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[row(1, 1)])).expect("written");
    for empty in [labels(1), labels(2), Labels::from_pairs([("no", "name")])] {
        let outcome =
            test_env.write(&head, &tenant("a"), &batch(&[row(1, 3), (empty, Vec::new())])).expect("written");
        assert_eq!((outcome.accepted_count, outcome.series_created_count), (3, 0));
        assert!(outcome.first_reject.is_none());
    }
    assert_eq!(head.statistics().stats().series, 1);
}

/// Regression: a damaged sealed chunk kept its whole window in the head for good. The chunk is left out and
/// reported, the rest of the window is returned, also where out-of-order samples overlap.
#[test]
fn a_snapshot_leaves_a_damaged_chunk_out() {
    let mut test_env = TestEnv::new(17);
    test_env.options.sealed_file_bytes = 1 << 20;
    let (head, _) = test_env.open();
    let spaced = (labels(1), (0..300).map(|i| (NOW_MS + 2 * i, 1.0)).collect());
    test_env.write(&head, &tenant("a"), &batch(&[spaced, row(2, 300)])).expect("written");
    // Out of order, and within the first chunk.
    test_env.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(NOW_MS + 101, 7.0)])])).expect("written");
    head.checkpointer().checkpoint().expect("a checkpoint");
    drop(head);
    let path = Path::new("/data/chunks/00000001.sealed");
    let file = chronolith_base::Disk::open(&*test_env.disk, path).expect("the first sealed file");
    let mut byte = [0];
    file.read_at(&mut byte, 100).expect("a byte of the first chunk");
    file.write_at(&[byte[0] ^ 1], 100).expect("damaged");
    let (head, _) = test_env.open();
    let window = chronolith_model::TimeRange::window_of(NOW_MS, crate::harness::WINDOW_MS);
    let snapshot = head.windows().snapshot(&tenant("a"), window).expect("a snapshot");
    let series: Vec<_> = snapshot.series().map(|series| series.expect("readable")).collect();
    let damages: Vec<String> = series.iter().flat_map(|s| &s.damages).map(ToString::to_string).collect();
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert!(damages[0].starts_with("/data/chunks/00000001.sealed: chunk record at offset "), "{damages:?}");
    let stored: usize = series.iter().flat_map(|s| &s.chunks).map(|chunk| usize::from(chunk.count)).sum();
    assert_eq!(stored, 601 - 120);
}
