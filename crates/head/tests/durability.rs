//! Regressions of the promise that what is acknowledged survives kills and power cuts, under the series and tenant
//! that it was written to.

mod harness;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use chronolith_base::DiskFile;
use chronolith_head::SyncMode;
use chronolith_model::Labels;
use harness::fault_disk::{Fault, FaultDisk};
use harness::{NOW_MS, World, batch, labels, read_all, tenant};
use parking_lot::Mutex;

/// `count` samples of a series, a millisecond apart.
fn row(idx: u64, count: i32) -> (Labels, Vec<(i64, f64)>) {
    (labels(idx), (0..count).map(|i| (NOW_MS + i64::from(i), f64::from(i))).collect())
}

fn named(name: &str) -> Labels {
    Labels::from_pairs([("__name__", name)])
}

type Interlude = Box<dyn FnOnce() + Send>;

/// Runs something once, when a checkpoint is first written to.
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

/// Series `x` of tenant `t` is made while a checkpoint is written, and the power goes before its log frames are
/// written: nobody was told that it is stored.
fn lose_a_series_made_during_a_checkpoint() -> World {
    let mut world = World::new(1);
    let fault = Arc::new(DuringCheckpoint::default());
    world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), fault.clone()));
    let head = Arc::new(world.open().0);
    // More than a frame of definitions, so that the checkpoint is written in parts.
    let long = "x".repeat(1500);
    let long_named = |i: u32| Labels::from_pairs([("__name__", "m"), ("i", &*format!("{i}-{long}"))]);
    let many: Vec<_> = (0..1500).map(|i| (long_named(i), vec![(NOW_MS, 1.0)])).collect();
    world.write(&head, &tenant("a"), &batch(&many)).expect("written");
    let (other, limits) = (head.clone(), world.limits.clone());
    *fault.0.lock() = Some(Box::new(move || {
        let series = batch(&[(named("x"), vec![(NOW_MS, 11.0)])]);
        let (_, _unsynced) = other.append(&tenant("t"), &limits, NOW_MS, &series).expect("queued");
    }));
    head.checkpoint().expect("a checkpoint");
    assert!(fault.0.lock().is_none(), "the series was made during the checkpoint");
    drop(head);
    world.disk.crash();
    world
}

/// A checkpoint held the raw key of a series that was made while it was written, but not its definition. After a
/// power cut its id went to another series, and a retry of the first was stored there, of another tenant even. A
/// checkpoint has raw keys only of series that it defines.
#[test]
fn the_raw_key_of_a_lost_series_leads_nowhere() {
    let world = lose_a_series_made_during_a_checkpoint();
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &batch(&[(named("y"), vec![(NOW_MS, 22.0)])])).expect("written");
    world.write(&head, &tenant("t"), &batch(&[(named("x"), vec![(NOW_MS + 1, 11.0)])])).expect("the retry");
    let key = |tenant: &str, name| (tenant.to_owned(), named(name));
    let found = read_all(&world, &head, &["a", "t"]);
    // The checkpoint may have made the first sample durable as well.
    assert!(found[&key("t", "x")].contains_key(&(NOW_MS + 1)));
    assert!(found[&key("t", "x")].values().all(|&v| v == 11f64.to_bits()));
    assert_eq!(found[&key("a", "y")].values().copied().collect::<Vec<_>>(), [22f64.to_bits()]);
}

/// A checkpoint held chunks of a series that was made while it was written. After a power cut its id went to another
/// series, and the next start gave it those samples. A checkpoint has chunks only of series that it defines.
#[test]
fn a_chunk_of_a_lost_series_goes_to_nobody() {
    let world = lose_a_series_made_during_a_checkpoint();
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &batch(&[(named("y"), vec![(NOW_MS + 5, 22.0)])])).expect("written");
    drop(head);
    world.disk.crash();
    let (head, _) = world.open();
    let found = read_all(&world, &head, &["a"]);
    assert_eq!(found[&("a".to_owned(), named("y"))].len(), 1);
}

/// A disk whose first sync of sealed chunks fails and loses the bytes, as Linux does: later syncs report success.
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

/// A sync of sealed chunks that failed for want of space was tried again by the next checkpoint, which trusted the
/// second answer and removed the log. Any failed sync poisons the log, so that it stays.
#[test]
fn a_failed_sync_of_sealed_chunks_is_not_tried_again() {
    let mut world = World::new(3);
    world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), Arc::new(LostSync::default())));
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &batch(&[row(1, 300)])).expect("written");
    let want = read_all(&world, &head, &["a"]);
    head.checkpoint().expect_err("the sync fails");
    head.recover_space();
    head.checkpoint().expect_err("the log is poisoned");
    drop(head);
    world.disk.crash();
    let (head, _) = world.open();
    assert_eq!(read_all(&world, &head, &["a"]), want);
}

/// In interval mode a disk that became full stopped the syncs as well, so that a power cut hours later took
/// acknowledged samples. What is written is synced at the interval whether or not there is space for more.
#[test]
fn interval_mode_syncs_while_the_disk_is_full() {
    let mut world = World::new(5);
    world.options.sync = SyncMode::Interval(1000);
    world.options.free_bytes_min = 1 << 20;
    world.disk.set_capacity_bytes(1 << 30);
    let (head, _) = world.open();
    let write = |offset_ms| {
        let series = batch(&[(labels(1), vec![(NOW_MS + offset_ms, 1.0)])]);
        world.write(&head, &tenant("a"), &series)
    };
    write(0).expect("written");
    world.clock.advance(Duration::from_millis(1500));
    write(1).expect("written, and synced");
    write(2).expect("written");
    let want = read_all(&world, &head, &["a"]);
    world.disk.set_capacity_bytes(1 << 19);
    for _ in 0..10 {
        world.clock.advance(Duration::from_secs(1));
        head.recover_space();
    }
    drop(head);
    world.disk.crash();
    world.disk.set_capacity_bytes(1 << 30);
    let (head, _) = world.open();
    assert_eq!(read_all(&world, &head, &["a"]), want);
}

/// Frames that were written but not synced when the process was killed came back at the next start, and a repeat of
/// them was acknowledged as stored without being logged again; a power cut took both. A start syncs the segment
/// that it read last.
#[test]
fn a_repeat_after_a_kill_is_durable() {
    for op_count in 0..100 {
        let mut world = World::new(11);
        world.options.wal_segment_bytes = 1 << 10;
        let (head, _) = world.open();
        world.write(&head, &tenant("a"), &batch(&[row(1, 1)])).expect("written");
        let repeated = batch(&[row(1, 400)]);
        world.disk.fail_after(op_count);
        let all_worked = world.write(&head, &tenant("a"), &repeated).is_ok();
        world.disk.heal();
        drop(head);
        let (head, _) = world.open();
        world.write(&head, &tenant("a"), &repeated).expect("acknowledged");
        let want = read_all(&world, &head, &["a"]);
        drop(head);
        world.disk.crash();
        let (head, _) = world.open();
        assert_eq!(read_all(&world, &head, &["a"]), want, "killed at operation {op_count}");
        if all_worked {
            return;
        }
    }
    panic!("the write never comes to its end");
}

/// Crash tests with a single cut miss what a start makes of the files between a kill and a power cut. A checkpoint
/// that is cut off at any operation keeps everything through both.
#[test]
fn a_kill_during_a_checkpoint_and_then_a_power_cut() {
    for op_count in 0..200 {
        let world = World::new(7);
        let (head, _) = world.open();
        world.write(&head, &tenant("a"), &batch(&[row(1, 300)])).expect("written");
        head.checkpoint().expect("a checkpoint");
        world.write(&head, &tenant("a"), &batch(&[row(2, 300)])).expect("written");
        let want = read_all(&world, &head, &["a"]);
        world.disk.fail_after(op_count);
        let all_worked = head.checkpoint().is_ok();
        world.disk.heal();
        drop(head);
        let (head, _) = world.open();
        assert_eq!(read_all(&world, &head, &["a"]), want, "killed at operation {op_count}");
        drop(head);
        world.disk.crash();
        let (head, _) = world.open();
        assert_eq!(read_all(&world, &head, &["a"]), want, "power cut after a kill at operation {op_count}");
        if all_worked {
            return;
        }
    }
    panic!("the checkpoint never comes to its end");
}

/// Notes which removals of segments came before the directory of the log was synced.
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

/// A start that found a finished checkpoint removed the segments behind it, though the name of the checkpoint was
/// perhaps not durable: a power cut could keep the removals and lose the name. The start syncs the names first.
#[test]
fn a_start_makes_the_checkpoint_durable_before_it_removes_segments() {
    let mut removed_count = 0;
    for op_count in 0..200 {
        let mut world = World::new(19);
        let (head, _) = world.open();
        world.write(&head, &tenant("a"), &batch(&[row(1, 300)])).expect("written");
        world.disk.fail_after(op_count);
        let all_worked = head.checkpoint().is_ok();
        world.disk.heal();
        drop(head);
        let order = Arc::new(RemovalOrder::default());
        world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), order.clone()));
        drop(world.open());
        assert!(order.early.lock().is_empty(), "killed at operation {op_count}: {:?}", order.early.lock());
        removed_count += order.removed_count.load(Ordering::SeqCst);
        if all_worked {
            assert!(removed_count > 0, "no start had a segment to remove");
            return;
        }
    }
    panic!("the checkpoint never comes to its end");
}

/// A series without samples was looked up like any other: had a window drop just taken it, it was refused as the
/// first reason of the batch, with a time from beyond the batch. It is passed over, known or not.
#[test]
fn a_series_without_samples_is_passed_over() {
    let world = World::new(13);
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &batch(&[row(1, 1)])).expect("written");
    for empty in [labels(1), labels(2), Labels::from_pairs([("no", "name")])] {
        let outcome =
            world.write(&head, &tenant("a"), &batch(&[row(1, 3), (empty, Vec::new())])).expect("written");
        assert_eq!((outcome.accepted_count, outcome.series_created_count), (3, 0));
        assert!(outcome.first_reject.is_none());
    }
    assert_eq!(head.stats().series, 1);
}

/// A damaged sealed chunk kept its whole window in the head for good. The chunk is left out and named, the rest of
/// the window is given, also where late samples overlap.
#[test]
fn a_snapshot_leaves_a_damaged_chunk_out() {
    let mut world = World::new(17);
    world.options.sealed_file_bytes = 1 << 20;
    let (head, _) = world.open();
    let spaced = (labels(1), (0..300).map(|i| (NOW_MS + 2 * i, 1.0)).collect());
    world.write(&head, &tenant("a"), &batch(&[spaced, row(2, 300)])).expect("written");
    // Late, and within the first chunk.
    world.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(NOW_MS + 101, 7.0)])])).expect("written");
    head.checkpoint().expect("a checkpoint");
    drop(head);
    let path = Path::new("/data/chunks/00000001.sealed");
    let file = chronolith_base::Disk::open(&*world.disk, path).expect("the first sealed file");
    let mut byte = [0];
    file.read_at(&mut byte, 100).expect("a byte of the first chunk");
    file.write_at(&[byte[0] ^ 1], 100).expect("damaged");
    let (head, _) = world.open();
    let window = chronolith_model::TimeRange::window_of(NOW_MS, harness::WINDOW_MS);
    let snapshot = head.snapshot_window(&tenant("a"), window).expect("a snapshot");
    let series: Vec<_> = snapshot.series().map(|series| series.expect("readable")).collect();
    let damages: Vec<String> = series.iter().flat_map(|s| &s.damages).map(ToString::to_string).collect();
    assert_eq!(damages.len(), 1, "{damages:?}");
    assert!(damages[0].starts_with("/data/chunks/00000001.sealed: chunk record at offset "), "{damages:?}");
    let stored: usize = series.iter().flat_map(|s| &s.chunks).map(|chunk| usize::from(chunk.count)).sum();
    assert_eq!(stored, 601 - 120);
}
