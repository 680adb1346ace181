//! Assumptions and changes of startup: files that an earlier process wrote but did not sync, and the order of
//! frames of a series with two ids.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use chronolith_base::{Disk, DiskFile};
use chronolith_head::Head;
use chronolith_model::{DuplicatePolicy, Labels, TimeRange};

use crate::harness::fault_disk::{Fault, FaultDisk};
use crate::harness::{NOW_MS, TestEnv, WINDOW_MS, batch, labels, read_all, tenant};

const BASE: i64 = NOW_MS - NOW_MS % WINDOW_MS - 4 * WINDOW_MS;

/// A process that is killed between writing a slice and its sync; a batch arrives before that, while the
/// series file is synced.
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
            let _position = head.append(&tenant("a"), &Default::default(), NOW_MS, &late).expect("in memory");
        }
        let is_killed = name.contains(".slice") && self.has_written.load(Ordering::SeqCst);
        if is_killed { Err(io::ErrorKind::Other.into()) } else { file.sync_data() }
    }
}

fn test_env(seed: u64) -> (TestEnv, Arc<Killed>) {
    let mut test_env = TestEnv::new(seed);
    test_env.options.wal_segment_bytes = 2 << 10;
    test_env.options.sealed_file_bytes = 1 << 10;
    let fault = Arc::new(Killed::default());
    test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), fault.clone()));
    (test_env, fault)
}

/// Writes both copies of the slice of the first series.
fn roll_twice(test_env: &TestEnv, head: &Head) {
    for value in [1.0, 2.0] {
        let one = batch(&[(labels(0), vec![(NOW_MS - 10 + value as i64, value)])]);
        test_env.write(head, &tenant("a"), &one).expect("written");
        roll(test_env, head);
    }
    for name in ["00000000.slice0", "00000000.slice1"] {
        assert!(test_env.disk.exists(&Path::new("/data/wal").join(name)), "{name}");
    }
}

fn roll(test_env: &TestEnv, head: &Head) {
    test_env.clock.advance(Duration::from_secs(1000));
    let _ = head.checkpointer().roll_checkpoint();
}

/// Regression: startup took a slice in the page cache for the newest copy and deleted the sealed files that
/// only the older one references. After a power failure the older one is the newest; files are deleted by the
/// next checkpoint step, which syncs the slices first.
#[test]
fn sealed_files_outlive_slices_that_are_not_synced() {
    let (mut test_env, fault) = test_env(1);
    test_env.options.wal_segment_bytes = 1 << 20;
    let (head, _) = test_env.open();
    let row = |idx: u64, from: i64, count: i64| -> Vec<(i64, f64)> {
        (from..from + count).map(|k| (BASE + k * 500, (k * k % 97) as f64 * 0.37 + idx as f64)).collect()
    };
    for idx in 0..8 {
        test_env.write(&head, &tenant("a"), &batch(&[(labels(idx), row(idx, 0, 150))])).expect("written");
    }
    roll_twice(&test_env, &head);
    // A merge with an out-of-order sample encodes the chunk again, to another file.
    let late = |idx: u64| (labels(idx), vec![(BASE + 33, 1.0)]);
    let batches: Vec<_> = (0..8).map(late).collect();
    test_env.write(&head, &tenant("a"), &batch(&batches)).expect("written");
    let window = TimeRange::new(BASE, BASE + WINDOW_MS);
    drop(head.windows().snapshot(&tenant("a"), window).expect("sealed"));
    fault.at_slices.store(true, Ordering::SeqCst);
    roll(&test_env, &head);
    fault.at_slices.store(false, Ordering::SeqCst);
    // With frames after the slices startup has no segment to remove, which would sync them.
    test_env.write(&head, &tenant("a"), &batch(&[(labels(9), vec![(BASE, 1.0)])])).expect("written");
    let want = read_all(&test_env, &head, &["a"]);
    drop(head);
    let (head, _) = test_env.open();
    assert!(read_all(&test_env, &head, &["a"]) == want, "after the kill");
    drop(head);
    // The file system makes names durable at any time.
    test_env.disk.sync_dir(Path::new("/data/chunks")).expect("synced");
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert_eq!(report.notes, Vec::<String>::new());
    assert!(read_all(&test_env, &head, &["a"]) == want, "after the power cut");
    // The sealed files are deleted in the end.
    roll(&test_env, &head);
    head.checkpointer().checkpoint().expect("written");
    let before = test_env.disk.list(Path::new("/data/chunks")).expect("listed").len() as u64;
    assert!(before <= head.statistics().stats().sealed_files, "{before} files");
}

/// Regression: a sample was only in a slice that a killed process had not synced, not in the WAL: its
/// duplicate was acknowledged and not logged, and the next power failure lost both. Duplicates are logged
/// until everything that startup has read is durable.
#[test]
fn duplicates_of_samples_in_an_unsynced_slice_are_durable() {
    let (test_env, fault) = test_env(2);
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 1.0)])])).expect("written");
    roll_twice(&test_env, &head);
    head.close().expect("closed");
    drop(head);
    let (head, _) = test_env.open();
    let head = Arc::new(head);
    // A checkpoint step without frames in the WAL, but with a slice to write.
    let snapshot =
        head.windows().snapshot(&tenant("a"), TimeRange::new(BASE, BASE + WINDOW_MS)).expect("sealed");
    assert_eq!(head.windows().drop(snapshot).sample_count, 1);
    *fault.head.lock().expect("not poisoned") = Arc::downgrade(&head);
    fault.at_slices.store(true, Ordering::SeqCst);
    roll(&test_env, &head);
    fault.at_slices.store(false, Ordering::SeqCst);
    drop(head);
    for is_after_round in [false, true] {
        let (head, _) = test_env.open();
        if is_after_round {
            roll(&test_env, &head);
        }
        let again = batch(&[(labels(0), vec![(NOW_MS, 7.0)])]);
        test_env.write(&head, &tenant("a"), &again).expect("acknowledged");
        drop(head);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        let found = read_all(&test_env, &head, &["a"]);
        let samples = found.get(&("a".to_owned(), labels(0))).expect("the series");
        assert_eq!(samples.get(&NOW_MS), Some(&7.0f64.to_bits()), "after a round: {is_after_round}");
    }
}

/// Regression: a series that left the head and returned has two ids in the WAL, perhaps of two stripes: their
/// frames were replayed in parallel, and the order of two values at one timestamp was random.
#[test]
fn frames_of_a_series_with_two_ids_keep_their_order() {
    for seed in 0..8 {
        check_two_numbers(seed);
    }
}

fn check_two_numbers(seed: u64) {
    let (mut test_env, _) = test_env(seed);
    test_env.options.wal_segment_bytes = 8 << 20;
    test_env.limits.duplicates = DuplicatePolicy::LastWins;
    let (head, _) = test_env.open();
    // Keeps the thread of the first stripe busy before it meets the first id.
    let later = BASE + WINDOW_MS;
    let long = |idx| (labels(idx), (0..200).map(|k| (later + k * 400, k as f64 * 0.7)).collect());
    let others: Vec<_> = (1..1500).map(long).collect();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE + 1, 0.5)])])).expect("written");
    test_env.write(&head, &tenant("a"), &batch(&others)).expect("written");
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 1.0)])])).expect("written");
    let snapshot = head.windows().snapshot(&tenant("a"), TimeRange::new(BASE, later)).expect("sealed");
    assert_eq!(head.windows().drop(snapshot).series_count, 1);
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 2.0)])])).expect("written");
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    let found = read_all(&test_env, &head, &["a"]);
    let samples = found.get(&("a".to_owned(), labels(0))).expect("the series");
    assert_eq!(samples.get(&BASE), Some(&2.0f64.to_bits()), "the last value wins");
}

/// Regression: frames that begin with another series were replayed series by series under the ids of the WAL,
/// of which the second one of a series has no record: its samples were lost.
#[test]
fn samples_under_the_second_id_of_a_series_are_replayed() {
    let (mut test_env, _) = test_env(10);
    test_env.options.wal_segment_bytes = 8 << 20;
    let (head, _) = test_env.open();
    let later = BASE + WINDOW_MS;
    let rows = [(labels(0), vec![(BASE, 0.5), (later, 0.5)]), (labels(1), vec![(BASE, 1.5)])];
    test_env.write(&head, &tenant("a"), &batch(&rows)).expect("written");
    let snapshot = head.windows().snapshot(&tenant("a"), TimeRange::new(BASE, later)).expect("sealed");
    assert_eq!(head.windows().drop(snapshot).series_count, 1);
    for k in 1..20 {
        let row = |idx: u64| (labels(idx), vec![(later + k * 1000, k as f64 + idx as f64)]);
        test_env.write(&head, &tenant("a"), &batch(&[row(0), row(1)])).expect("written");
    }
    let want = read_all(&test_env, &head, &["a"]);
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert_eq!((report.notes.len(), report.samples_unknown), (0, 0));
    let mut found = read_all(&test_env, &head, &["a"]);
    // The WAL has the dropped window still.
    found.values_mut().for_each(|samples| samples.retain(|&time, _| time >= later));
    assert_eq!(found, want);
}

/// Regression: with a damaged series file only the WAL knew of series in pages without a slice; the position
/// of the other slices was taken for theirs, and their samples were skipped though the WAL had them.
#[test]
fn samples_of_series_that_only_the_wal_defines_are_replayed() {
    check_lost_definitions(Damage::Flip);
    check_lost_definitions(Damage::Cut);
}

enum Damage {
    Flip,
    Cut,
}

fn check_lost_definitions(damage: Damage) {
    let (mut test_env, _) = test_env(9);
    test_env.options.wal_segment_bytes = 8 << 20;
    let (head, _) = test_env.open();
    let one = |idx| (labels(idx), vec![(BASE + idx as i64, idx as f64)]);
    let rows = |ids: std::ops::Range<u64>| batch(&ids.map(one).collect::<Vec<_>>());
    test_env.write(&head, &tenant("a"), &rows(0..1024)).expect("written");
    roll(&test_env, &head);
    // A second page, of another slice; one step writes as many slices as there were before it.
    test_env.write(&head, &tenant("a"), &rows(1024..1100)).expect("written");
    roll(&test_env, &head);
    let list = test_env.disk.list(Path::new("/data/wal")).expect("listed");
    let slices: Vec<_> = list.iter().filter(|e| e.name.contains(".slice")).map(|e| e.name.clone()).collect();
    assert_eq!(slices, ["00000000.slice0", "00000000.slice1"], "the other slice is not written yet");
    let want = read_all(&test_env, &head, &["a"]);
    drop(head);
    test_env.disk.crash();
    let path = Path::new("/data/wal/00000001.definitions");
    let bytes = test_env.disk.read(path).expect("read");
    let at = bytes.windows(9).rposition(|w| w == b"host-1050").expect("a definition") as u64;
    let file = test_env.disk.open(path).expect("there");
    match damage {
        Damage::Flip => file.write_at(b"#", at).expect("damaged"),
        Damage::Cut => file.set_len(at).expect("damaged"),
    }
    let (head, _) = test_env.open();
    let found = read_all(&test_env, &head, &["a"]);
    assert_eq!((found.len(), found == want), (want.len(), true));
}

/// A disk that fails the third write to the first series file, identified by the name under which it is
/// created.
#[derive(Default)]
struct TornRound(AtomicUsize);

impl Fault for TornRound {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        if path.ends_with("00000001.definitions.tmp") && self.0.fetch_add(1, Ordering::SeqCst) == 2 {
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    }
}

/// Regression: a process was killed between two writes of a long extension of the series file. Startup
/// continued after its frames and wrote the same series again, which the next startup took for damage.
#[test]
fn a_torn_append_to_the_series_file_is_truncated() {
    let mut test_env = TestEnv::new(12);
    test_env.options.wal_segment_bytes = 32 << 20;
    let round = Arc::new(TornRound::default());
    test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), round.clone()));
    let (head, _) = test_env.open();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(0), vec![(BASE, 1.0)])])).expect("written");
    roll(&test_env, &head);
    // Few series with long labels: several writes of a mebibyte.
    let long = |i: u64| {
        let text = format!("{i:0>1900}");
        (Labels::from_pairs([("__name__", "up"), ("path", &*text)]), vec![(BASE, i as f64)])
    };
    test_env.write(&head, &tenant("a"), &batch(&(0..2_100).map(long).collect::<Vec<_>>())).expect("written");
    roll(&test_env, &head);
    assert!(round.0.load(Ordering::SeqCst) > 2, "the third write failed");
    let want = read_all(&test_env, &head, &["a"]);
    drop(head);
    for start in 0..3 {
        let (head, report) = test_env.open();
        assert_eq!(report.notes, Vec::<String>::new(), "start {start}");
        assert!(read_all(&test_env, &head, &["a"]) == want, "start {start}");
        roll(&test_env, &head);
    }
}
