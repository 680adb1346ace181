//! Incremental checkpoint: crashes at every disk operation of checkpoint and recovery, damage to every file,
//! and the parts of the WAL that startup reads.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronolith_base::{Disk, DiskFile, MemDisk};
use chronolith_head::Head;
use chronolith_model::{Matcher, Selector, TimeRange};

use crate::harness::fault_disk::{Fault, FaultDisk};
use crate::harness::{Model, NOW_MS, TestEnv, WINDOW_MS, batch, damaged_positions, labels, read_all, tenant};

/// Acknowledged samples that were not dropped, and all that were ever sent.
#[derive(Default)]
struct Ledger {
    acked: Model,
    sent: Model,
}

impl Ledger {
    fn write(&mut self, test_env: &TestEnv, head: &Head, series: &[(u64, Vec<(i64, f64)>)]) {
        let sent: Vec<_> = series.iter().map(|(idx, samples)| (labels(*idx), samples.clone())).collect();
        let put = |model: &mut Model| {
            for (labels, samples) in &sent {
                let known = model.entry(("a".to_owned(), labels.clone())).or_default();
                known.extend(samples.iter().map(|(t, v)| (*t, v.to_bits())));
            }
        };
        put(&mut self.sent);
        if test_env.write(head, &tenant("a"), &batch(&sent)).is_ok_and(|o| o.rejected_count() == 0) {
            put(&mut self.acked);
        }
    }

    /// Drops a window, as the store does after flushing it to a block.
    fn drop_window(&mut self, head: &Head, start: i64) {
        let window = TimeRange::new(start, start + WINDOW_MS);
        let Ok(snapshot) = head.windows().snapshot(&tenant("a"), window) else { return };
        if snapshot.series().any(|series| series.is_err() || series.is_ok_and(|s| !s.damages.is_empty())) {
            return;
        }
        head.windows().drop(snapshot);
        self.acked.values_mut().for_each(|samples| samples.retain(|t, _| !window.contains(*t)));
    }

    fn check(&self, found: &Model, what: &str) {
        for (key, samples) in &self.acked {
            for (time, value) in samples {
                let got = found.get(key).and_then(|s| s.get(time));
                assert_eq!(got, Some(value), "{what}: {:?} at {time}", key.1);
            }
        }
        self.check_sent(found, what);
    }

    fn check_sent(&self, found: &Model, what: &str) {
        for (key, samples) in found {
            for (time, value) in samples {
                let sent = self.sent.get(key).and_then(|s| s.get(time));
                assert_eq!(sent, Some(value), "{what}: {:?} at {time}", key.1);
            }
        }
    }
}

fn test_env(seed: u64) -> TestEnv {
    let mut test_env = TestEnv::new(seed);
    test_env.options.wal_segment_bytes = 2 << 10;
    test_env.options.sealed_file_bytes = 2 << 10;
    test_env.options.dead_count_min = 2;
    test_env
}

/// Writes all slices: enough time has passed for a full pass.
fn roll(test_env: &TestEnv, head: &Head) {
    test_env.clock.advance(Duration::from_secs(1000));
    let _ = head.checkpointer().roll_checkpoint();
}

const BASE: i64 = NOW_MS - NOW_MS % WINDOW_MS - 4 * WINDOW_MS;

fn rows(round: i64, series: std::ops::Range<u64>) -> Vec<(u64, Vec<(i64, f64)>)> {
    let samples = |i: u64| {
        (0..25).map(|k| (BASE + round * 25_000 + k * 1000, (round * 7 + k % 3 + i as i64) as f64)).collect()
    };
    series.map(|i| (i, samples(i))).collect()
}

/// Runs a script with checkpoint steps, out-of-order samples, a window drop, series that return, rewrites of
/// the series file, whole checkpoints, a restart.
fn script(test_env: &TestEnv, ledger: &mut Ledger) {
    let Ok((head, _)) = test_env.try_open() else { return };
    ledger.write(test_env, &head, &rows(0, 0..6));
    roll(test_env, &head);
    ledger.write(test_env, &head, &rows(1, 0..3));
    ledger.write(
        test_env,
        &head,
        &[(1, vec![(BASE - 5000, 1.0), (BASE + 500, 2.0)]), (9, vec![(BASE, 3.0)])],
    );
    roll(test_env, &head);
    ledger.write(test_env, &head, &rows(4, 0..2));
    roll(test_env, &head);
    ledger.drop_window(&head, BASE);
    // Series 3 to 5 left the head; one of them returns.
    ledger.write(test_env, &head, &rows(5, 3..4));
    let _ = head.checkpointer().checkpoint();
    ledger.write(test_env, &head, &rows(6, 0..4));
    roll(test_env, &head);
    drop(head);
    let Ok((head, _)) = test_env.try_open() else { return };
    ledger.write(test_env, &head, &rows(7, 0..4));
    roll(test_env, &head);
    ledger.write(test_env, &head, &[(11, vec![(BASE + 170_000, 7.0)])]);
    let _ = head.close();
}

/// Runs the script until operation `op_count` fails, crashes the machine, and checks the recovered state.
fn crash_at(op_count: u64, is_kill: bool, ledger: &mut Ledger) -> (TestEnv, bool) {
    let test_env = test_env(op_count);
    test_env.disk.fail_after(op_count);
    script(&test_env, ledger);
    let ended = test_env.disk.op_count() <= op_count;
    if is_kill {
        test_env.disk.heal()
    } else {
        test_env.disk.crash()
    }
    (test_env, ended)
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let mut op_count = 0;
    loop {
        let mut ended = false;
        for is_kill in [false, true] {
            let mut ledger = Ledger::default();
            let (test_env, last) = crash_at(op_count, is_kill, &mut ledger);
            ended = last;
            let what = format!("operation {op_count}, kill {is_kill}");
            let (head, _) = test_env.open();
            ledger.check(&read_all(&test_env, &head, &["a"]), &what);
            // The recovered head accepts writes, and survives the next power failure.
            ledger.write(&test_env, &head, &[(3, vec![(NOW_MS + 1, 1.0)]), (20, vec![(NOW_MS, 2.0)])]);
            roll(&test_env, &head);
            ledger.write(&test_env, &head, &[(3, vec![(NOW_MS + 2, 1.0)]), (21, vec![(NOW_MS, 2.0)])]);
            drop(head);
            test_env.disk.crash();
            let (head, report) = test_env.open();
            ledger.check(&read_all(&test_env, &head, &["a"]), &what);
            assert_eq!(report.notes, Vec::<String>::new(), "{what}: the second start is clean");
        }
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 100, "the script has many crash points, found {op_count}");
}

#[test]
fn crashes_during_recovery_lose_nothing() {
    for op_count in (0..400).step_by(7) {
        let mut ended = false;
        for recovery_count in 0..12 {
            let mut ledger = Ledger::default();
            let (test_env, last) = crash_at(op_count, recovery_count % 2 == 0, &mut ledger);
            ended = last;
            for again in 0..2 {
                test_env.disk.fail_after(recovery_count + again);
                drop(test_env.try_open());
                if again == 0 { test_env.disk.heal() } else { test_env.disk.crash() }
            }
            let (head, _) = test_env.open();
            ledger.check(&read_all(&test_env, &head, &["a"]), &format!("{op_count}, then {recovery_count}"));
        }
        if ended {
            return;
        }
    }
}

fn copy_disk(from: &MemDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    for dir in ["/data/wal", "/data/chunks"] {
        for entry in from.list(Path::new(dir)).expect("listed") {
            let path = Path::new(dir).join(entry.name);
            out.push((path.clone(), from.read(&path).expect("read")));
        }
    }
    out
}

/// Returns the series that can be read from `files`, and the number of reported damages.
fn open_damaged(files: &[(PathBuf, Vec<u8>)]) -> Option<(Model, usize)> {
    let test_env = test_env(7);
    for (path, bytes) in files {
        test_env.disk.create_dir_all(path.parent().expect("a directory")).expect("made");
        let file: Box<dyn DiskFile> = test_env.disk.create(path).expect("made");
        file.write_at(bytes, 0).expect("written");
    }
    let (head, report) = test_env.try_open().ok()?;
    let mut complaints = report.notes.len();
    let matchers = [Matcher::equal("__name__", "up")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let mut found = Model::new();
    for series in head.reader().select(&tenant("a"), &selector, &test_env.context()).expect("select works") {
        let mut columns = chronolith_model::Columns::default();
        complaints += usize::from(series.samples.read(TimeRange::ALL, &mut columns).is_err());
        let samples: BTreeMap<i64, u64> =
            columns.times.iter().copied().zip(columns.values.iter().map(|v| v.to_bits())).collect();
        found.insert(("a".to_owned(), series.labels), samples);
    }
    // Damage must not prevent later writes.
    test_env.write(&head, &tenant("a"), &batch(&[(labels(50), vec![(NOW_MS, 1.0)])])).expect("written");
    roll(&test_env, &head);
    head.checkpointer().checkpoint().expect("a checkpoint");
    drop(head);
    let (_, report) = test_env.open();
    assert!(report.notes.len() <= 1, "what was damaged is written anew: {:?}", report.notes);
    Some((found, complaints))
}

/// Returns a machine with two copies of slices, series files of several checkpoints, sealed files, and a WAL
/// after them.
fn damaged_world() -> (Ledger, Vec<(PathBuf, Vec<u8>)>) {
    let test_env = test_env(11);
    let mut ledger = Ledger::default();
    let (head, _) = test_env.open();
    for round in 0..5 {
        ledger.write(&test_env, &head, &rows(round, 0..2 + round as u64 % 2));
        roll(&test_env, &head);
    }
    ledger.write(&test_env, &head, &rows(5, 0..4));
    let files = copy_disk(&test_env.disk);
    for kind in [".seg", ".slice0", ".slice1", ".definitions", ".sealed"] {
        assert!(files.iter().any(|(p, _)| p.to_string_lossy().contains(kind)), "the life makes a {kind}");
    }
    (ledger, files)
}

/// Returns true if a file has a second copy or a WAL after it: damage to it alone loses nothing.
fn is_redundant(path: &Path) -> bool {
    [".slice", ".definitions"].iter().any(|kind| path.to_string_lossy().contains(kind))
}

/// Opens `files`, of which the file at `path` is damaged, and checks the samples.
fn check_damaged(
    ledger: &Ledger,
    files: &[(PathBuf, Vec<u8>)],
    path: &Path,
    may_be_silent: bool,
    what: &str,
) {
    let is_redundant = is_redundant(path);
    let Some((found, complaints)) = open_damaged(files) else {
        assert!(!is_redundant, "{what}: the head opens");
        return;
    };
    ledger.check_sent(&found, what);
    if is_redundant {
        ledger.check(&found, what);
    }
    if !may_be_silent && complaints == 0 {
        ledger.check(&found, &format!("{what}, without a note"));
    }
}

#[test]
fn files_cut_at_many_bytes() {
    let (ledger, files) = damaged_world();
    assert_eq!(open_damaged(&files), Some((ledger.acked.clone(), 0)));
    let last = files.iter().rfind(|f| f.0.extension().is_some_and(|e| e == "seg")).map(|f| f.0.clone());
    for idx in 0..files.len() {
        for len in damaged_positions(idx, files[idx].1.len()) {
            let mut cut = files.clone();
            cut[idx].1.truncate(len);
            // A WAL without its last frames looks like one that was never longer.
            let is_last = Some(&files[idx].0) == last.as_ref();
            check_damaged(&ledger, &cut, &files[idx].0, is_last, &format!("{:?} cut to {len}", files[idx].0));
        }
    }
}

#[test]
fn files_flipped_at_many_bytes() {
    let (ledger, files) = damaged_world();
    for idx in 0..files.len() {
        for at in damaged_positions(idx, files[idx].1.len()) {
            let mut bad = files.clone();
            bad[idx].1[at] ^= 1 << (at % 8);
            check_damaged(
                &ledger,
                &bad,
                &files[idx].0,
                false,
                &format!("{:?} flipped at {at}", files[idx].0),
            );
        }
    }
}

/// Regression: the WAL was truncated to the newest copies of slices, so one flipped bit in a newest copy lost
/// all samples after the older one. The WAL is kept back to the older copies, so damage to any one file of
/// the checkpoint loses no sample.
#[test]
fn files_deleted_zeroed_grown_or_overwritten() {
    let (ledger, files) = damaged_world();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for idx in 0..files.len() {
        let (path, bytes) = &files[idx];
        let last = files.iter().rfind(|f| f.0.extension() == path.extension()).map(|f| &f.0);
        let is_last_segment = path.extension().is_some_and(|e| e == "seg") && last == Some(path);
        let mut gone = files.clone();
        gone.remove(idx);
        // An absent newest segment looks like a WAL that ended before it.
        check_damaged(&ledger, &gone, path, is_last_segment, &format!("{path:?} deleted"));
        let page = bytes.len() / 2..bytes.len().min(bytes.len() / 2 + 512);
        let mut noise = bytes.clone();
        noise[page.clone()].iter_mut().for_each(|byte| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (random >> 56) as u8;
        });
        let mut zeros = bytes.clone();
        zeros[page].fill(0);
        let mut grown = bytes.clone();
        grown.extend_from_slice(&noise);
        for (way, bytes) in
            [("random bytes", noise), ("zeros", zeros), ("grown", grown), ("all zeros", vec![0; bytes.len()])]
        {
            let mut bad = files.clone();
            bad[idx].1 = bytes;
            check_damaged(&ledger, &bad, path, is_last_segment, &format!("{path:?} {way}"));
        }
    }
}

/// The same with copies of different age: the WAL has the frames that the older copy lacks.
#[test]
fn every_slice_copy_is_replaced_by_the_other_and_the_log() {
    for rounds in 1..6 {
        for closes in [false, true] {
            let mut test_env = test_env(5);
            test_env.options.wal_segment_bytes = 4 << 10;
            let mut ledger = Ledger::default();
            let (head, _) = test_env.open();
            for round in 0..rounds {
                ledger.write(&test_env, &head, &rows(round, 0..4 + round as u64));
                ledger.write(&test_env, &head, &[(1, vec![(BASE + round * 25_000 + 500, 1.5)])]);
                roll(&test_env, &head);
            }
            if closes {
                head.close().expect("closed");
            }
            drop(head);
            let files = copy_disk(&test_env.disk);
            for (idx, (path, bytes)) in files.iter().enumerate().filter(|(_, f)| is_redundant(&f.0)) {
                let mut bad = files.clone();
                bad[idx].1[bytes.len() / 2] ^= 1;
                check_damaged(&ledger, &bad, path, false, &format!("{rounds} rounds, {path:?}"));
                bad.remove(idx);
                check_damaged(&ledger, &bad, path, false, &format!("{rounds} rounds, no {path:?}"));
            }
        }
    }
}

/// Startup reads the WAL from the oldest slice on, and no older frames.
#[test]
fn startup_replays_only_frames_after_the_slices() {
    let mut test_env = test_env(1);
    test_env.options.wal_segment_bytes = 1 << 20;
    let (head, _) = test_env.open();
    let mut ledger = Ledger::default();
    ledger.write(&test_env, &head, &rows(0, 0..100));
    roll(&test_env, &head);
    ledger.write(&test_env, &head, &rows(1, 0..2));
    ledger.write(&test_env, &head, &rows(2, 200..201));
    let stats = head.statistics().stats();
    assert!(stats.checkpoint.slice_count > 0 && stats.checkpoint.count == 0);
    drop(head);
    test_env.disk.crash();
    let (head, report) = test_env.open();
    assert_eq!((report.samples, report.series, report.notes.len()), (75, 101, 0));
    ledger.check(&read_all(&test_env, &head, &["a"]), "after the restart");
}

/// Frames longer than a read buffer are recovered, and samples of many tenants too.
#[test]
fn long_frames_and_many_tenants_are_recovered() {
    let mut test_env = test_env(2);
    test_env.options.wal_segment_bytes = 8 << 20;
    for with_roll in [false, true] {
        let (head, _) = test_env.open();
        let long: Vec<(i64, f64)> = (0..200_000).map(|k| (NOW_MS + k, k as f64 * 0.5)).collect();
        test_env.write(&head, &tenant("long"), &batch(&[(labels(1), long.clone())])).expect("written");
        let names: Vec<String> = (0..40).map(|i| format!("t{i}")).collect();
        for name in &names {
            test_env
                .write(&head, &tenant(name), &batch(&[(labels(2), vec![(NOW_MS, 1.0)])]))
                .expect("written");
        }
        if with_roll {
            roll(&test_env, &head);
        }
        drop(head);
        test_env.disk.crash();
        let (head, report) = test_env.open();
        assert_eq!((report.notes.len(), report.series), (0, 41));
        let found = read_all(&test_env, &head, &["long"]);
        assert_eq!(found.values().next().map(BTreeMap::len), Some(long.len()));
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(read_all(&test_env, &head, &all).len(), 40);
    }
}

/// A disk whose WAL syncs fail from some point on and lose the bytes, as on Linux after an error: the bytes
/// can be read until the machine restarts, and later syncs report success.
#[derive(Default)]
struct LostSyncs {
    loses: AtomicBool,
    failed: AtomicBool,
}

impl Fault for LostSyncs {
    fn sync(&self, path: &Path, file: &dyn DiskFile) -> io::Result<()> {
        // A segment is identified by the name under which it was created.
        let is_number = path.file_stem().is_some_and(|s| s.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        let is_segment = is_number && path.extension().is_some_and(|e| e == "seg" || e == "tmp");
        if !is_segment || !self.loses.load(Ordering::SeqCst) {
            return file.sync_data();
        }
        if self.failed.swap(true, Ordering::SeqCst) { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
    }
}

/// Regression: after a failed sync of the WAL, a restarted process replayed bytes from the page cache, and
/// acknowledged duplicates of samples that never reached the disk. Duplicates are logged again until slices
/// have the replayed samples.
#[test]
fn duplicates_after_a_failed_sync_are_durable() {
    for rounds in 0..2 {
        let mut test_env = test_env(3);
        let fault = Arc::new(LostSyncs::default());
        test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), fault.clone()));
        let mut ledger = Ledger::default();
        let (head, _) = test_env.open();
        ledger.write(&test_env, &head, &rows(0, 0..2));
        fault.loses.store(true, Ordering::SeqCst);
        let lost = batch(&[(labels(1), vec![(NOW_MS, 1.0)]), (labels(7), vec![(NOW_MS, 2.0)])]);
        test_env.write(&head, &tenant("a"), &lost).expect_err("the sync fails");
        drop(head);
        // The bytes of the last segment stay readable and are never durable.
        let (head, _) = test_env.open();
        fault.loses.store(false, Ordering::SeqCst);
        (0..rounds).for_each(|_| roll(&test_env, &head));
        ledger.write(&test_env, &head, &[(1, vec![(NOW_MS, 1.0)]), (7, vec![(NOW_MS, 2.0)])]);
        assert_eq!(ledger.acked.len(), 3, "the repeat is acknowledged");
        drop(head);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        ledger.check(&read_all(&test_env, &head, &["a"]), &format!("{rounds} rounds"));
    }
}

#[test]
fn a_checkpoint_of_the_unreleased_form_is_refused() {
    let test_env = test_env(4);
    drop(test_env.open());
    test_env.disk.create(Path::new("/data/wal/checkpoint.00000002")).expect("made");
    let error = test_env.try_open().err().expect("refused").to_string();
    assert!(error.contains("checkpoint.00000002") && error.contains("unreleased version"), "{error}");
}

/// A slice and the segment of the same number may be created at the same time. Both were created as
/// `NUMBER.tmp`: one took the file of the other, and the WAL refused writes.
#[test]
fn a_checkpoint_leaves_a_segment_that_is_being_created() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let series = [(labels(1), vec![(NOW_MS, 1.0)])];
    test_env.write(&head, &tenant("a"), &batch(&series)).expect("works");
    let wal = test_env.options.dir.join("wal");
    let segments: Vec<_> = (0..4).map(|number| wal.join(format!("{number:08}.tmp"))).collect();
    for path in &segments {
        test_env.disk.create(path).expect("a file").write_at(b"segment", 0).expect("written");
    }
    head.checkpointer().checkpoint().expect("written");
    assert!(test_env.disk.exists(&wal.join("00000000.slice0")), "a slice was written");
    for path in &segments {
        assert_eq!(test_env.disk.read(path).expect("it is still there"), b"segment", "{}", path.display());
    }
}
