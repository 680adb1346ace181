//! Power loss at every disk operation, damage at every byte: no acknowledged sample is lost without a note,
//! and no value is ever wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Disk, DiskFile, MemDisk};
use chronolith_head::{Head, SyncMode};
use chronolith_model::histogram::{Buckets, ResetHint, SCHEMA_CUSTOM, Span};
use chronolith_model::{
    Columns, FloatHistogram, Histogram, IntHistogram, Matcher, Selector, TimeRange, WriteBatch,
};

use crate::harness::kinds::{Sample, mark, marks, push};
use crate::harness::{Model, NOW_MS, TestEnv, WINDOW_MS, batch, damaged_positions, labels, read_all, tenant};

/// Progress of a script.
#[derive(Default)]
struct Ledger {
    /// Acknowledged samples that were not dropped.
    acked: Model,
    /// All samples that were ever sent.
    sent: Model,
}

impl Ledger {
    fn write(&mut self, test_env: &TestEnv, head: &Head, series: &[(u64, Vec<(i64, f64)>)]) {
        let floats = |samples: &[(i64, f64)]| samples.iter().map(|(t, v)| (*t, Sample::Float(*v))).collect();
        let series: Vec<_> = series.iter().map(|(idx, samples)| (*idx, floats(samples))).collect();
        self.write_kinds(test_env, head, &series);
    }

    fn write_kinds(&mut self, test_env: &TestEnv, head: &Head, series: &[(u64, Vec<(i64, Sample)>)]) {
        let mut batch = WriteBatch::from_labels();
        let mut marks = Vec::new();
        for (idx, samples) in series {
            let key = ("a".to_owned(), labels(*idx));
            push(&mut batch, &key.1, samples);
            let marked: Vec<(i64, u64)> = samples.iter().map(|(t, sample)| (*t, mark(sample))).collect();
            self.sent.entry(key.clone()).or_default().extend(marked.clone());
            marks.push((key, marked));
        }
        if let Ok(outcome) = test_env.write(head, &tenant("a"), &batch) {
            assert_eq!(outcome.rejected_count(), 0);
            for (key, marked) in marks {
                self.acked.entry(key).or_default().extend(marked);
            }
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
        let _ = head.checkpointer().checkpoint();
    }
}

/// Histograms with growing integer buckets, float histograms with custom bounds, gauges, staleness markers,
/// and floats among them.
fn histograms(base: i64, round: i64) -> Vec<(u64, Vec<(i64, Sample)>)> {
    let at = |k: i64| base + round * 40_000 + k * 2000;
    let grown = |k: i64| {
        let counts: Vec<u64> =
            (0..(2 + round + k / 4) as u64).map(|idx| idx + (40 * round + k) as u64).collect();
        let spans = vec![Span { offset: -1, length: counts.len() as u32 }];
        let count = counts.iter().sum();
        let reset_hint = if k == 7 { ResetHint::Reset } else { ResetHint::Unknown };
        let positive = Buckets { spans, counts };
        Histogram::Int(IntHistogram { reset_hint, count, sum: k as f64, positive, ..IntHistogram::default() })
    };
    let custom = |k: i64| {
        let counts = vec![k as f64 + 0.5, (round + k) as f64];
        Histogram::Float(FloatHistogram {
            reset_hint: if round == 1 { ResetHint::Gauge } else { ResetHint::Unknown },
            schema: SCHEMA_CUSTOM,
            count: counts.iter().sum(),
            sum: -(k as f64),
            positive: Buckets { spans: vec![Span { offset: 0, length: 2 }], counts },
            custom_values: Arc::from([0.5, 1.0 / 3.0 + 1.0]),
            ..FloatHistogram::default()
        })
    };
    let run = |count: i64, of: &dyn Fn(i64) -> Histogram| -> Vec<(i64, Sample)> {
        (0..count).map(|k| (at(k), Sample::Histogram(Arc::new(of(k))))).collect()
    };
    let mut mixed = run(6, &grown);
    mixed[2].1 = Sample::Float(2.5);
    mixed[5].1 = Sample::Histogram(Arc::new(Histogram::stale()));
    // A sample that was skipped arrives out of order.
    mixed.swap(3, 4);
    vec![(5, run(12, &grown)), (6, run(5, &custom)), (7, mixed)]
}

/// Runs a short script with rotation, sealing, out-of-order samples, a checkpoint, a window drop and a
/// restart.
fn script(test_env: &TestEnv, ledger: &mut Ledger, full: bool) {
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 4 * WINDOW_MS;
    let rows = |round: i64| -> Vec<(u64, Vec<(i64, f64)>)> {
        (0..4)
            .map(|i| {
                (i, (0..40).map(|k| (base + round * 40_000 + k * 1000, (round * 7 + k % 3) as f64)).collect())
            })
            .collect()
    };
    let Ok((head, _)) = test_env.try_open() else { return };
    ledger.write(test_env, &head, &rows(0));
    ledger.write(test_env, &head, &rows(1));
    ledger.write_kinds(test_env, &head, &histograms(base, 0));
    ledger.write(
        test_env,
        &head,
        &[(1, vec![(base - 5000, 1.0), (base + 500, 2.0)]), (9, vec![(base, 3.0)])],
    );
    ledger.write(test_env, &head, &rows(2));
    let _ = head.checkpointer().checkpoint();
    let _ = head.prepare_segment();
    ledger.write(test_env, &head, &rows(3));
    ledger.write_kinds(test_env, &head, &histograms(base, 1));
    ledger.write(test_env, &head, &[(2, vec![(base + 1500, 2.0)]), (10, vec![(base, 3.0), (base - 1, 4.0)])]);
    if full {
        ledger.drop_window(&head, base);
        ledger.write(test_env, &head, &rows(4));
        drop(head);
        let Ok((head, _)) = test_env.try_open() else { return };
        ledger.write(test_env, &head, &rows(5));
        ledger.write_kinds(test_env, &head, &histograms(base + WINDOW_MS, 2));
        ledger.write(test_env, &head, &[(11, vec![(base + 7, 7.0)])]);
        let _ = head.close();
    }
}

fn assert_holds(ledger: &Ledger, found: &Model) {
    for (key, samples) in &ledger.acked {
        for (time, value) in samples {
            assert_eq!(found.get(key).and_then(|s| s.get(time)), Some(value), "{:?} at {time}", key.1);
        }
    }
    assert_only_sent(ledger, found);
}

fn assert_only_sent(ledger: &Ledger, found: &Model) {
    for (key, samples) in found {
        for (time, value) in samples {
            assert_eq!(ledger.sent.get(key).and_then(|s| s.get(time)), Some(value), "{:?} at {time}", key.1);
        }
    }
}

#[test]
fn a_crash_at_any_disk_operation_loses_nothing_acknowledged() {
    let mut op_count = 0;
    loop {
        let mut test_env = TestEnv::new(op_count);
        test_env.options.wal_segment_bytes = 8 << 10;
        let mut ledger = Ledger::default();
        test_env.disk.fail_after(op_count);
        script(&test_env, &mut ledger, true);
        let ended = test_env.disk.op_count() <= op_count;
        test_env.disk.crash();
        let (head, _) = test_env.open();
        assert_holds(&ledger, &read_all(&test_env, &head, &["a"]));
        // The recovered head accepts writes, and survives the next power loss.
        ledger.write(&test_env, &head, &[(3, vec![(NOW_MS + 1, 1.0)]), (20, vec![(NOW_MS, 2.0)])]);
        assert!(ledger.acked.values().any(|s| s.contains_key(&(NOW_MS + 1))), "op {op_count}");
        drop(head);
        test_env.disk.crash();
        let (head, report) = test_env.open();
        assert_holds(&ledger, &read_all(&test_env, &head, &["a"]));
        assert_eq!(report.notes, Vec::<String>::new(), "op {op_count}: the second start is clean");
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 50, "the script has many crash points, found {op_count}");
}

#[test]
fn unsynced_modes_recover_synced_frames() {
    for sync in [SyncMode::Os, SyncMode::Interval(1000)] {
        let mut test_env = TestEnv::new(5);
        test_env.options.sync = sync;
        let mut ledger = Ledger::default();
        script(&test_env, &mut ledger, false);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        assert_only_sent(&ledger, &read_all(&test_env, &head, &["a"]));
    }
}

fn copy_disk(from: &MemDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let mut out = Vec::new();
    for dir in ["/data/wal", "/data/chunks"] {
        // Startup reads names and lengths of spare segments, but no byte of them.
        let entries = from.list(Path::new(dir)).expect("listed");
        for entry in entries.into_iter().filter(|entry| !entry.name.ends_with(".spare")) {
            let path = Path::new(dir).join(entry.name);
            let bytes = from.read(&path).expect("read");
            out.push((path, bytes));
        }
    }
    out
}

fn put_disk(disk: &MemDisk, files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        disk.create_dir_all(path.parent().expect("a directory")).expect("made");
        let file: Box<dyn DiskFile> = disk.create(path).expect("made");
        file.write_at(bytes, 0).expect("written");
    }
}

/// Opens the directory with `files` and reads everything; series that cannot be read are left out and
/// counted.
fn open_damaged(files: &[(PathBuf, Vec<u8>)]) -> Option<(Model, usize)> {
    let mut test_env = TestEnv::new(7);
    test_env.options.wal_segment_bytes = 4 << 10;
    put_disk(&test_env.disk, files);
    let (head, report) = test_env.try_open().ok()?;
    let mut found = Model::new();
    let mut complaints = report.notes.len();
    let matchers = [Matcher::equal("__name__", "up")];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    for series in head.reader().select(&tenant("a"), &selector, &test_env.context()).expect("select works") {
        let mut columns = Columns::default();
        complaints += usize::from(series.samples.read(TimeRange::ALL, &mut columns).is_err());
        found.insert(("a".to_owned(), series.labels), marks(&columns));
    }
    // Damage must not prevent later writes.
    test_env.write(&head, &tenant("a"), &batch(&[(labels(50), vec![(NOW_MS, 1.0)])])).expect("written");
    head.checkpointer().checkpoint().expect("checkpoint");
    Some((found, complaints))
}

fn damaged_world() -> (Ledger, Vec<(PathBuf, Vec<u8>)>) {
    let mut test_env = TestEnv::new(11);
    test_env.options.wal_segment_bytes = 4 << 10;
    test_env.options.sealed_file_bytes = 1 << 10;
    let mut ledger = Ledger::default();
    script(&test_env, &mut ledger, false);
    let files = copy_disk(&test_env.disk);
    for kind in [".seg", ".slice0", ".definitions", ".sealed"] {
        assert!(files.iter().any(|(p, _)| p.to_string_lossy().contains(kind)), "the script makes a {kind}");
    }
    (ledger, files)
}

fn check_damaged(ledger: &Ledger, files: &[(PathBuf, Vec<u8>)], what: &str) {
    let Some((found, complaints)) = open_damaged(files) else { return };
    assert_only_sent(ledger, &found);
    if found != ledger.acked {
        assert!(complaints > 0, "{what}: lost samples without a note");
    }
}

#[test]
fn files_cut_at_many_bytes() {
    let (ledger, files) = damaged_world();
    assert_eq!(open_damaged(&files), Some((ledger.acked.clone(), 0)));
    for idx in 0..files.len() {
        for len in damaged_positions(idx, files[idx].1.len()) {
            let mut cut = files.clone();
            cut[idx].1.truncate(len);
            check_damaged(&ledger, &cut, &format!("{:?} cut to {len}", files[idx].0));
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
            check_damaged(&ledger, &bad, &format!("{:?} flipped at {at}", files[idx].0));
        }
    }
}

#[test]
fn frames_after_a_damaged_one_are_kept() {
    let mut test_env = TestEnv::new(3);
    test_env.options.wal_segment_bytes = 64 << 10;
    let (head, _) = test_env.open();
    let mut ledger = Ledger::default();
    for round in 0..10i64 {
        ledger.write(&test_env, &head, &[(1, vec![(NOW_MS + round, round as f64)])]);
    }
    drop(head);
    let mut files = copy_disk(&test_env.disk);
    let end = files[0].1.iter().rposition(|&b| b != 0).expect("used bytes");
    files[0].1[end / 2] ^= 1;
    let (found, complaints) = open_damaged(&files).expect("opens");
    assert_only_sent(&ledger, &found);
    let kept: usize = found.values().map(BTreeMap::len).sum();
    assert!(complaints > 0 && kept >= 8, "one frame is lost, not those after it: {kept} of 10");
}

/// Without a checkpoint in between, the WAL has a series that left and came back under two ids.
#[test]
fn a_series_that_left_and_came_back_is_one_after_a_restart() {
    for with_checkpoint in [false, true] {
        let test_env = TestEnv::new(4);
        let (head, _) = test_env.open();
        let mut ledger = Ledger::default();
        let old = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 5 * WINDOW_MS;
        ledger.write(&test_env, &head, &[(1, vec![(old, 1.0)]), (2, vec![(old, 1.0), (NOW_MS, 5.0)])]);
        if with_checkpoint {
            head.checkpointer().checkpoint().expect("checkpoint");
        }
        let window = TimeRange::new(old, old + WINDOW_MS);
        let snapshot = head.windows().snapshot(&tenant("a"), window).expect("snapshot");
        assert_eq!(snapshot.series_count(), 2);
        let dropped = head.windows().drop(snapshot);
        assert_eq!((dropped.series_count, dropped.sample_count), (1, 2));
        ledger.write(&test_env, &head, &[(1, vec![(NOW_MS, 2.0)]), (3, vec![(NOW_MS, 3.0)])]);
        drop(head);
        for restart in 0..3 {
            test_env.disk.crash();
            let (head, report) = test_env.open();
            assert_eq!((report.notes.len(), report.series), (0, 3));
            assert_holds(&ledger, &read_all(&test_env, &head, &["a"]));
            ledger.write(&test_env, &head, &[(1, vec![(NOW_MS + 10 + restart, 2.0)])]);
            assert_holds(&ledger, &read_all(&test_env, &head, &["a"]));
        }
    }
}
