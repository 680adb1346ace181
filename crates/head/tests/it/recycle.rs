//! Recycled segments and the control file of the WAL: no frame of an earlier use of a file comes back, no
//! acknowledged sample is lost, and all missing frames are reported, wherever the power fails and whatever is
//! damaged.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Disk, MemDisk, Rng};
use chronolith_head::{Head, ReplayReport, SyncMode};

use crate::harness::fault_disk::{Fault, FaultDisk};
use crate::harness::{Model, NOW_MS, TestEnv, batch, labels, read_all, tenant};

/// Samples that a script has sent, and those that were acknowledged.
#[derive(Default)]
struct Ledger {
    acked: Model,
    sent: Model,
}

impl Ledger {
    /// Writes one sample for each of some series: a frame for each of their stripes.
    fn write(&mut self, test_env: &TestEnv, head: &Head, step: i64) {
        let rows: Vec<_> = (0..4).map(|idx| (labels(idx), vec![(NOW_MS + step, step as f64)])).collect();
        let written = test_env.write(head, &tenant("a"), &batch(&rows));
        for (labels, samples) in rows {
            let of = |model: &mut Model| {
                let key = ("a".to_owned(), labels.clone());
                let bits = samples.iter().map(|(time, value)| (*time, value.to_bits()));
                model.entry(key).or_default().extend(bits.collect::<BTreeMap<_, _>>());
            };
            of(&mut self.sent);
            if written.is_ok() {
                of(&mut self.acked);
            }
        }
    }

    #[track_caller]
    fn check(&self, found: &Model, what: &str) {
        for (key, samples) in &self.acked {
            for (time, value) in samples {
                assert_eq!(
                    found.get(key).and_then(|s| s.get(time)),
                    Some(value),
                    "{what}: lost {key:?} {time}"
                );
            }
        }
        for (key, samples) in found {
            for (time, value) in samples {
                assert_eq!(
                    self.sent.get(key).and_then(|s| s.get(time)),
                    Some(value),
                    "{what}: {key:?} {time}"
                );
            }
        }
    }
}

/// Returns a machine whose segments take some ten writes.
fn test_env(seed: u64) -> TestEnv {
    let mut test_env = TestEnv::new(seed);
    test_env.options.wal_segment_bytes = 1 << 10;
    test_env
}

/// Writes with checkpoints in between, so that each segment is used several times.
fn life(test_env: &TestEnv, ledger: &mut Ledger, steps: std::ops::Range<i64>) -> Option<Head> {
    let (head, _) = test_env.try_open().ok()?;
    for step in steps {
        ledger.write(test_env, &head, step);
        if step % 7 == 3 {
            let _ = head.prepare_segment();
        }
        if step % 20 == 19 {
            let _ = head.checkpointer().checkpoint();
        }
    }
    Some(head)
}

fn is_loss(note: &str) -> bool {
    note.contains("missing") || note.contains("control")
}

/// Power failure at each disk operation, in a WAL whose files were used several times: frames of their
/// earlier use are whole and carry the right key.
#[test]
fn a_power_failure_at_any_operation_replays_no_frame_of_an_earlier_use() {
    let mut op_count = 0;
    loop {
        let test_env = test_env(op_count);
        let mut ledger = Ledger::default();
        test_env.disk.fail_after(op_count);
        let head = life(&test_env, &mut ledger, 0..50);
        if let Some(head) = &head {
            let used = head.statistics().stats().wal.spare_used_count;
            assert!(used > 3 || test_env.disk.op_count() > op_count, "segments are used again: {used}");
        }
        let is_over = test_env.disk.op_count() <= op_count;
        drop(head);
        test_env.disk.crash_partly(&Rng::from_seed(op_count));
        let (head, report) = test_env.open();
        ledger.check(&read_all(&test_env, &head, &["a"]), &format!("op {op_count}"));
        let lost: Vec<_> = report.notes.iter().filter(|note| is_loss(note)).collect();
        assert!(lost.is_empty(), "op {op_count}: nothing is missing: {lost:?}");
        ledger.write(&test_env, &head, 100);
        assert!(head.prepare_segment().is_ok());
        drop(head);
        test_env.disk.crash();
        let (head, report) = test_env.open();
        ledger.check(&read_all(&test_env, &head, &["a"]), &format!("op {op_count}, second start"));
        assert_eq!(report.notes, Vec::<String>::new(), "op {op_count}: the second start is clean");
        if is_over {
            break;
        }
        // Neighbouring operations are alike; a step that divides nothing covers all kinds of them.
        op_count += 3;
    }
    assert!(op_count > 200, "the script has many operations, found {op_count}");
}

#[test]
fn modes_without_a_sync_report_no_loss_after_a_power_failure() {
    for (seed, sync) in [(1, SyncMode::Os), (2, SyncMode::Interval(1000))] {
        let mut test_env = test_env(seed);
        test_env.options.sync = sync;
        let mut ledger = Ledger::default();
        drop(life(&test_env, &mut ledger, 0..50));
        test_env.disk.crash();
        let (head, report) = test_env.open();
        let found = read_all(&test_env, &head, &["a"]);
        Ledger { acked: Model::new(), sent: ledger.sent }.check(&found, "power cut");
        assert_eq!(report.notes, Vec::<String>::new());
    }
}

fn files(disk: &MemDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    for dir in ["/data/wal", "/data/chunks"] {
        for entry in disk.list(Path::new(dir)).expect("listed") {
            let path = Path::new(dir).join(entry.name);
            out.push((path.clone(), disk.read(&path).expect("read")));
        }
    }
    out
}

/// Returns the result of a startup with `files`.
fn start(files: &[(PathBuf, Vec<u8>)]) -> (Model, ReplayReport) {
    let test_env = test_env(9);
    for (path, bytes) in files {
        test_env.disk.create_dir_all(path.parent().expect("a directory")).expect("made");
        test_env.disk.create(path).expect("made").write_at(bytes, 0).expect("written");
    }
    let (head, report) = test_env.open();
    (read_all(&test_env, &head, &["a"]), report)
}

/// Returns the files of a killed process whose newest segment has a few writes, in a recycled file or a new
/// one.
fn killed(is_recycled: bool) -> (Ledger, Vec<(PathBuf, Vec<u8>)>) {
    let test_env = test_env(3);
    let mut ledger = Ledger::default();
    let steps = if is_recycled { 0..44 } else { 0..4 };
    drop(life(&test_env, &mut ledger, steps));
    (ledger, files(&test_env.disk))
}

fn newest_segment(files: &[(PathBuf, Vec<u8>)]) -> usize {
    let is_segment = |file: &(PathBuf, Vec<u8>)| file.0.extension().is_some_and(|e| e == "seg");
    files.iter().rposition(is_segment).expect("a segment")
}

/// Checks that `files` start with all acknowledged samples, or with a note of the loss.
#[track_caller]
fn check_named(ledger: &Ledger, files: &[(PathBuf, Vec<u8>)], what: &str) {
    let (found, report) = start(files);
    Ledger { acked: Model::new(), sent: ledger.sent.clone() }.check(&found, what);
    if found != ledger.acked {
        assert!(!report.notes.is_empty(), "{what}: lost without a note");
    }
}

/// Regression: a WAL without its last frames, or without its newest file, looked like one that was never
/// longer. The control file records its length.
#[test]
fn damage_of_the_newest_segment_after_a_kill_is_reported() {
    for is_recycled in [false, true] {
        let (ledger, whole) = killed(is_recycled);
        let newest = newest_segment(&whole);
        let (found, report) = start(&whole);
        assert_eq!((found, report.notes), (ledger.acked.clone(), vec![]));
        let len = whole[newest].1.len();
        // All kinds of damage at all kinds of offsets: the step divides no length.
        for (at, kind) in (0..len).step_by(3).zip((0..5).cycle()) {
            let mut bad = whole.clone();
            let bytes = &mut bad[newest].1;
            match kind {
                0 => bytes[at] ^= 0x20,
                1 => bytes[at] = !bytes[at],
                2 => bytes[at..].fill(0),
                3 => bytes.truncate(at),
                _ => bytes.resize(len + at, 0x55),
            }
            check_named(&ledger, &bad, &format!("recycled {is_recycled}: damage {kind} at {at}"));
        }
        let mut bad = whole.clone();
        bad.remove(newest);
        let (found, report) = start(&bad);
        assert!(
            found != ledger.acked && report.notes.iter().any(|note| note.contains("missing")),
            "{report:?}"
        );
    }
}

/// The control file is only a record: without it, or with any byte of it changed, nothing is lost.
#[test]
fn a_damaged_control_file_loses_nothing() {
    for is_recycled in [false, true] {
        let (ledger, whole) = killed(is_recycled);
        let control = whole.iter().position(|file| file.0.ends_with("control")).expect("a control file");
        let len = whole[control].1.len();
        for at in (0..len).filter(|at| at % 512 < 70) {
            let mut bad = whole.clone();
            bad[control].1[at] ^= 1;
            assert_eq!(start(&bad).0, ledger.acked, "byte {at}");
            bad[control].1.truncate(at);
            assert_eq!(start(&bad).0, ledger.acked, "cut to {at}");
        }
        let mut bad = whole.clone();
        bad[control].1.fill(0);
        let (found, report) = start(&bad);
        assert_eq!(found, ledger.acked);
        assert!(report.notes.iter().any(|note| note.contains("control")), "{report:?}");
        bad.remove(control);
        assert_eq!(start(&bad).0, ledger.acked);
    }
}

/// After a clean stop nothing is missing, and spares are kept for the next startup.
#[test]
fn a_clean_stop_leaves_spares_and_nothing_to_note() {
    let test_env = test_env(4);
    let mut ledger = Ledger::default();
    for round in 0..4 {
        let head = life(&test_env, &mut ledger, round * 50..round * 50 + 50).expect("opens");
        head.close().expect("closed");
        let stats = head.statistics().stats();
        assert!(stats.wal.spare_count > 0 && stats.wal.spare_count <= 3, "{}", stats.wal.spare_count);
        drop(head);
        let (head, report) = test_env.open();
        assert_eq!(report.notes, Vec::<String>::new());
        assert!(head.statistics().stats().wal.spare_count >= stats.wal.spare_count, "spares outlive a stop");
        ledger.check(&read_all(&test_env, &head, &["a"]), "after a clean stop");
        head.close().expect("closed");
    }
}

/// On a full disk the space of spares is freed before writes are refused for good.
#[test]
fn spares_are_removed_when_the_disk_is_full() {
    let mut test_env = test_env(5);
    test_env.options.free_bytes_min = 64 << 10;
    test_env.disk.set_capacity_bytes(1 << 20);
    let mut ledger = Ledger::default();
    let head = life(&test_env, &mut ledger, 0..45).expect("opens");
    assert!(head.statistics().stats().wal.spare_count > 0);
    test_env.disk.set_capacity_bytes(test_env.disk.len_bytes() + (63 << 10));
    test_env.clock.advance(std::time::Duration::from_secs(2));
    ledger.write(&test_env, &head, 45);
    head.recover_space();
    assert_eq!(head.statistics().stats().wal.spare_count, 0);
}

/// A disk on which writes of sealed chunks panic.
struct PanicsAtSealed;

impl Fault for PanicsAtSealed {
    fn before_write(&self, path: &Path) -> io::Result<()> {
        assert!(path.extension().is_none_or(|extension| extension != "sealed"), "a bug in the disk's driver");
        Ok(())
    }
}

/// Regression: the thread that syncs in interval mode ended in an unnoticed panic: writes were acknowledged,
/// and never synced again.
#[test]
fn a_panic_of_the_interval_sync_poisons_the_log() {
    let mut test_env = TestEnv::new(6);
    test_env.options.sync = SyncMode::Interval(1000);
    test_env.env.disk = Arc::new(FaultDisk::new(test_env.disk.clone(), Arc::new(PanicsAtSealed)));
    let (head, _) = test_env.open();
    let row = (0..300).map(|i| (NOW_MS + i, i as f64)).collect();
    test_env.write(&head, &tenant("a"), &batch(&[(labels(1), row)])).expect("written");
    head.poison_on_panic("the interval's sync", || head.recover_space());
    assert!(head.statistics().stats().wal.is_poisoned, "sealed chunks were written");
    test_env.write(&head, &tenant("a"), &batch(&[(labels(2), vec![(NOW_MS, 1.0)])])).expect_err("poisoned");
}
