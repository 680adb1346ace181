//! What a start may rely on and what it may change: files that an earlier process wrote but did not sync, and the
//! order of frames of a series that has two numbers.

mod harness;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use chronolith_base::{Disk, DiskFile};
use chronolith_head::Head;
use chronolith_model::{DuplicatePolicy, Labels, TimeRange};
use harness::fault_disk::{Fault, FaultDisk};
use harness::{NOW_MS, WINDOW_MS, World, batch, labels, read_all, tenant};

const BASE: i64 = NOW_MS - NOW_MS % WINDOW_MS - 4 * WINDOW_MS;

/// A process that is killed between writing a slice and its sync; before that, while the definitions are brought
/// to disk, a batch comes in.
#[derive(Default)]
struct Killed {
    at_slices: AtomicBool,
    has_written: AtomicBool,
    head: Mutex<Weak<Head>>,
}

impl Fault for Killed {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        let is_slice = path.to_string_lossy().contains(".slice");
        self.has_written.fetch_or(is_slice && self.at_slices.load(Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn sync(&self, path: &Path, file: &dyn DiskFile) -> io::Result<()> {
        if !self.at_slices.load(Ordering::SeqCst) {
            return file.sync_data();
        }
        let name = path.to_string_lossy();
        if name.contains(".definitions")
            && let Some(head) = self.head.lock().expect("not poisoned").upgrade()
        {
            let late = batch(&[(labels(0), vec![(NOW_MS, 7.0)])]);
            let _ticket = head.append(&tenant("a"), &Default::default(), NOW_MS, &late).expect("in memory");
        }
        let is_killed = name.contains(".slice") && self.has_written.load(Ordering::SeqCst);
        if is_killed { Err(io::ErrorKind::Other.into()) } else { file.sync_data() }
    }
}

fn world(seed: u64) -> (World, Arc<Killed>) {
    let mut world = World::new(seed);
    world.options.wal_segment_bytes = 2 << 10;
    world.options.sealed_file_bytes = 1 << 10;
    let fault = Arc::new(Killed::default());
    world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), fault.clone()));
    (world, fault)
}

/// Makes both copies of the slice of the first series.
fn roll_twice(world: &World, head: &Head) {
    for value in [1.0, 2.0] {
        let one = batch(&[(labels(0), vec![(NOW_MS - 10 + value as i64, value)])]);
        world.write(head, &tenant("a"), &one).expect("written");
        roll(world, head);
    }
    for name in ["00000000.slice0", "00000000.slice1"] {
        assert!(world.disk.exists(&Path::new("/data/wal").join(name)), "{name}");
    }
}

fn roll(world: &World, head: &Head) {
    world.clock.advance(Duration::from_secs(1000));
    let _ = head.roll_checkpoint();
}

/// A start took a slice from the cache of the kernel for the newest copy and deleted the sealed files that only
/// the older one names. After a power cut that older one is the newest; files now go with the next round, which
/// syncs the slices first.
#[test]
fn sealed_files_outlive_slices_that_are_not_synced() {
    let (mut world, fault) = world(1);
    world.options.wal_segment_bytes = 1 << 20;
    let (head, _) = world.open();
    let row = |idx: u64, from: i64, count: i64| -> Vec<(i64, f64)> {
        (from..from + count).map(|k| (BASE + k * 500, (k * k % 97) as f64 * 0.37 + idx as f64)).collect()
    };
    for idx in 0..8 {
        world.write(&head, &tenant("a"), &batch(&[(labels(idx), row(idx, 0, 150))])).expect("written");
    }
    roll_twice(&world, &head);
    // What a late sample is merged with is encoded again, to another file.
    let late = |idx: u64| (labels(idx), vec![(BASE + 33, 1.0)]);
    let batches: Vec<_> = (0..8).map(late).collect();
    world.write(&head, &tenant("a"), &batch(&batches)).expect("written");
    let window = TimeRange::new(BASE, BASE + WINDOW_MS);
    drop(head.snapshot_window(&tenant("a"), window).expect("sealed"));
    fault.at_slices.store(true, Ordering::SeqCst);
    roll(&world, &head);
    fault.at_slices.store(false, Ordering::SeqCst);
    // With frames behind the slices the start has no segment to remove, which would sync them.
    world.write(&head, &tenant("a"), &batch(&[(labels(9), vec![(BASE, 1.0)])])).expect("written");
    let want = read_all(&world, &head, &["a"]);
    drop(head);
    let (head, _) = world.open();
    assert!(read_all(&world, &head, &["a"]) == want, "after the kill");
    drop(head);
    // Names become durable when the file system likes.
    world.disk.sync_dir(Path::new("/data/chunks")).expect("synced");
    world.disk.crash();
    let (head, report) = world.open();
    assert_eq!(report.notes, Vec::<String>::new());
    assert!(read_all(&world, &head, &["a"]) == want, "after the power cut");
    // They do go in the end.
    roll(&world, &head);
    head.checkpoint().expect("written");
    let before = world.disk.list(Path::new("/data/chunks")).expect("listed").len() as u64;
    assert!(before <= head.stats().sealed_files, "{before} files");
}

/// A sample was only in a slice that a killed process had not synced, not in the log: its repeat was acknowledged
/// and not logged, and the next power cut took both. Repeats are logged until what a start has read is durable.
#[test]
fn repeats_of_what_only_an_unsynced_slice_has_are_durable() {
    let (world, fault) = world(2);
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 1.0)])])).expect("written");
    roll_twice(&world, &head);
    head.close().expect("closed");
    drop(head);
    let (head, _) = world.open();
    let head = Arc::new(head);
    // A round without frames in the log, but with something to write.
    let snapshot =
        head.snapshot_window(&tenant("a"), TimeRange::new(BASE, BASE + WINDOW_MS)).expect("sealed");
    assert_eq!(head.drop_window(snapshot).sample_count, 1);
    *fault.head.lock().expect("not poisoned") = Arc::downgrade(&head);
    fault.at_slices.store(true, Ordering::SeqCst);
    roll(&world, &head);
    fault.at_slices.store(false, Ordering::SeqCst);
    drop(head);
    for is_after_round in [false, true] {
        let (head, _) = world.open();
        if is_after_round {
            roll(&world, &head);
        }
        let again = batch(&[(labels(0), vec![(NOW_MS, 7.0)])]);
        world.write(&head, &tenant("a"), &again).expect("acknowledged");
        drop(head);
        world.disk.crash();
        let (head, _) = world.open();
        let found = read_all(&world, &head, &["a"]);
        let samples = found.get(&("a".to_owned(), labels(0))).expect("the series");
        assert_eq!(samples.get(&NOW_MS), Some(&7.0f64.to_bits()), "after a round: {is_after_round}");
    }
}

/// A series that left the head and came back has two numbers in the log, maybe of two stripes: their frames were
/// replayed side by side, and which of two values for a time was the last was a matter of luck.
#[test]
fn frames_of_a_series_with_two_numbers_keep_their_order() {
    for seed in 0..8 {
        check_two_numbers(seed);
    }
}

fn check_two_numbers(seed: u64) {
    let (mut world, _) = world(seed);
    world.options.wal_segment_bytes = 8 << 20;
    world.limits.duplicates = DuplicatePolicy::LastWins;
    let (head, _) = world.open();
    // Work for the thread of the first stripe before it meets the first number.
    let later = BASE + WINDOW_MS;
    let long = |idx| (labels(idx), (0..200).map(|k| (later + k * 400, k as f64 * 0.7)).collect());
    let others: Vec<_> = (1..1500).map(long).collect();
    world.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE + 1, 0.5)])])).expect("written");
    world.write(&head, &tenant("a"), &batch(&others)).expect("written");
    world.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 1.0)])])).expect("written");
    let snapshot = head.snapshot_window(&tenant("a"), TimeRange::new(BASE, later)).expect("sealed");
    assert_eq!(head.drop_window(snapshot).series_count, 1);
    world.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 2.0)])])).expect("written");
    drop(head);
    world.disk.crash();
    let (head, _) = world.open();
    let found = read_all(&world, &head, &["a"]);
    let samples = found.get(&("a".to_owned(), labels(0))).expect("the series");
    assert_eq!(samples.get(&BASE), Some(&2.0f64.to_bits()), "the last value wins");
}

/// With a damaged definitions file the log alone knew of series in pages without a slice; the position of the other
/// slices was taken for theirs, and their samples were passed over though the log had them.
#[test]
fn samples_of_series_that_only_the_log_defines_are_replayed() {
    check_lost_definitions(Damage::Flip);
    check_lost_definitions(Damage::Cut);
}

enum Damage {
    Flip,
    Cut,
}

fn check_lost_definitions(damage: Damage) {
    let (mut world, _) = world(9);
    world.options.wal_segment_bytes = 8 << 20;
    let (head, _) = world.open();
    let one = |idx| (labels(idx), vec![(BASE + idx as i64, idx as f64)]);
    let rows = |ids: std::ops::Range<u64>| batch(&ids.map(one).collect::<Vec<_>>());
    world.write(&head, &tenant("a"), &rows(0..1024)).expect("written");
    roll(&world, &head);
    // A second page, of another slice; one round writes as many slices as there were before it.
    world.write(&head, &tenant("a"), &rows(1024..1100)).expect("written");
    roll(&world, &head);
    let list = world.disk.list(Path::new("/data/wal")).expect("listed");
    let slices: Vec<_> = list.iter().filter(|e| e.name.contains(".slice")).map(|e| e.name.clone()).collect();
    assert_eq!(slices, ["00000000.slice0", "00000000.slice1"], "the other slice is not written yet");
    let want = read_all(&world, &head, &["a"]);
    drop(head);
    world.disk.crash();
    let path = Path::new("/data/wal/00000001.definitions");
    let bytes = world.disk.read(path).expect("read");
    let at = bytes.windows(9).rposition(|w| w == b"host-1050").expect("a definition") as u64;
    let file = world.disk.open(path).expect("there");
    match damage {
        Damage::Flip => file.write_at(b"#", at).expect("damaged"),
        Damage::Cut => file.set_len(at).expect("damaged"),
    }
    let (head, _) = world.open();
    let found = read_all(&world, &head, &["a"]);
    assert_eq!((found.len(), found == want), (want.len(), true));
}

/// A disk that refuses the third write to the first definitions file, by the name under which it is made.
#[derive(Default)]
struct TornRound(AtomicUsize);

impl Fault for TornRound {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        if path.ends_with("00000001.tmp") && self.0.fetch_add(1, Ordering::SeqCst) == 2 {
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    }
}

/// A process was killed between two writes of a long round of definitions. The start went on behind its frames and
/// wrote the same series again, which the start after that took for damage.
#[test]
fn a_round_of_definitions_that_was_torn_is_cut_off() {
    let mut world = World::new(12);
    world.options.wal_segment_bytes = 32 << 20;
    world.env.disk = Arc::new(FaultDisk::new(world.disk.clone(), Arc::new(TornRound::default())));
    let (head, _) = world.open();
    world.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 1.0)])])).expect("written");
    roll(&world, &head);
    let long = |i: u64| {
        let text = format!("{i:0>200}");
        (Labels::from_pairs([("__name__", "up"), ("path", &*text)]), vec![(BASE, i as f64)])
    };
    world.write(&head, &tenant("a"), &batch(&(0..20_000).map(long).collect::<Vec<_>>())).expect("written");
    roll(&world, &head);
    let want = read_all(&world, &head, &["a"]);
    drop(head);
    for start in 0..3 {
        let (head, report) = world.open();
        assert_eq!(report.notes, Vec::<String>::new(), "start {start}");
        assert!(read_all(&world, &head, &["a"]) == want, "start {start}");
        roll(&world, &head);
    }
}
