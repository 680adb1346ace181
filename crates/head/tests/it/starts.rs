//! Random operations with start timestamps of floats and histograms: out-of-order samples, duplicates,
//! replacements, deletions, checkpoints, window drops, power failures. Reads of the head and of snapshots
//! must equal a map. A failure prints its seed.

use std::collections::BTreeMap;
use std::path::Path;

use chronolith_base::{Disk as _, Rng};
use chronolith_format::chunk::kinds as chunk_kinds;
use chronolith_head::{Head, WindowSeries};
use chronolith_model::{
    Columns, DuplicatePolicy, Labels, MatchOp, Matcher, Reject, Selector, TimeRange, WriteBatch,
};

use crate::harness::kinds::{Sample, push, random_sample, text, texts};
use crate::harness::{NOW_MS, TestEnv, WINDOW_MS, delete, labels, tenant};

const SERIES: u64 = 6;
const STEPS: usize = 150;

/// Text and start timestamp of each sample.
type Stored = BTreeMap<Labels, BTreeMap<i64, (String, i64)>>;

/// Start timestamps by kind of sender.
fn start_of(rng: &Rng, series: u64, time: i64) -> i64 {
    match series {
        0 => 0,
        1 => NOW_MS - 5_000_000 + (time - NOW_MS).div_euclid(700_000) * 700_000,
        2 => time - 1000,
        3 if rng.below(4) > 0 => 0,
        _ => [0, 7, time - 5, NOW_MS - 4_000_000][rng.below(4) as usize],
    }
}

/// Adds samples with start timestamps to a batch.
fn push_with(batch: &mut WriteBatch, labels: &Labels, samples: &[(i64, Sample, i64)]) {
    let first = batch.times.len();
    let plain: Vec<(i64, Sample)> = samples.iter().map(|(time, sample, _)| (*time, sample.clone())).collect();
    push(batch, labels, &plain);
    if samples.iter().any(|(_, _, start_ms)| *start_ms != 0) || !batch.start_times.is_empty() {
        batch.start_times.resize(first, 0);
        batch.start_times.extend(samples.iter().map(|(_, _, start_ms)| start_ms));
    }
}

fn stored_of(columns: &Columns) -> BTreeMap<i64, (String, i64)> {
    let all = texts(columns).into_iter().enumerate();
    all.map(|(at, (time, text))| (time, (text, columns.start_time_at(at)))).collect()
}

fn read_range(test_env: &TestEnv, head: &Head, range: TimeRange) -> Stored {
    let any = [Matcher::new("__name__", MatchOp::Regex, ".*").expect("a pattern")];
    let selector = Selector { matchers: &any, range };
    let mut out = Stored::new();
    for series in head.reader().select(&tenant("a"), &selector, &test_env.context()).expect("select works") {
        let mut columns = Columns::default();
        series.samples.read(range, &mut columns).expect("samples read");
        out.insert(series.labels, stored_of(&columns));
    }
    for series in
        head.reader().select_newest(&tenant("a"), &selector, &test_env.context()).expect("select works")
    {
        let mut columns = Columns::default();
        series.samples.read(range, &mut columns).expect("samples read");
        let newest = stored_of(&columns).pop_last();
        assert_eq!(newest, out[&series.labels].last_key_value().map(|(t, s)| (*t, s.clone())));
    }
    out.retain(|_, samples| !samples.is_empty());
    out
}

struct Life {
    test_env: TestEnv,
    head: Head,
    stored: Stored,
    flushed: Vec<TimeRange>,
    rng: Rng,
    now: i64,
    has_histograms: u64,
}

impl Life {
    fn below(&self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn samples(&self, series: u64) -> Vec<(i64, Sample, i64)> {
        let mut out = Vec::new();
        for _ in 0..1 + self.below(if self.below(5) == 0 { 150 } else { 5 }) {
            let time = match self.below(10) {
                0..=6 => self.now + self.below(3000) as i64,
                7..=8 => self.now - self.below(2 * WINDOW_MS as u64) as i64,
                _ => NOW_MS - 10_000 + self.below(40) as i64,
            };
            if self.flushed.iter().any(|window| window.contains(time)) {
                continue;
            }
            let sample = match self.has_histograms {
                0 => Sample::Float(self.below(4) as f64),
                _ => random_sample(&self.rng, (time - NOW_MS + 3_000_000) as u64 / 2000),
            };
            out.push((time, sample, start_of(&self.rng, series, time)));
        }
        if self.below(3) > 0 {
            out.sort_by_key(|sample| sample.0);
        }
        out
    }

    fn append(&mut self) {
        let mut batch = WriteBatch::from_labels();
        let (mut accepted, mut conflicts) = (0, 0);
        for _ in 0..1 + self.below(6) {
            let series = self.below(SERIES);
            let samples = self.samples(series);
            push_with(&mut batch, &labels(series), &samples);
            let stored = self.stored.entry(labels(series)).or_default();
            let keeps_first = self.test_env.limits.duplicates == DuplicatePolicy::KeepFirst;
            for (time, sample, start_ms) in samples {
                let text = text(&sample);
                match stored.get(&time) {
                    Some((known, _)) if keeps_first && *known != text => conflicts += 1,
                    Some(_) if keeps_first => accepted += 1,
                    _ => {
                        accepted += 1;
                        stored.insert(time, (text, start_ms));
                    }
                }
            }
        }
        let outcome = self.test_env.write(&self.head, &tenant("a"), &batch).expect("written");
        assert_eq!(outcome.accepted_count, accepted, "{outcome:?}");
        assert_eq!(outcome.rejected[Reject::DuplicateTimestamp as usize], conflicts);
        self.now += self.below(6000) as i64;
    }

    fn delete(&mut self) {
        let start = self.now - self.below(3 * WINDOW_MS as u64) as i64;
        let range = TimeRange::new(start, start + [1, 40, 3000, 2 * WINDOW_MS][self.below(4) as usize]);
        let matcher = Matcher::equal("job", &format!("job-{}", self.below(4)));
        for (_, samples) in self.stored.iter_mut().filter(|(labels, _)| matcher.matches_labels(labels)) {
            samples.retain(|time, _| !range.contains(*time));
        }
        delete(&self.head, "a", &[vec![matcher]], range);
    }

    fn flush_window(&mut self) {
        let windows = self.head.windows().list();
        if windows.is_empty() {
            return;
        }
        let window = windows[self.below(windows.len() as u64) as usize].range;
        let snapshot = self.head.windows().snapshot(&tenant("a"), window).expect("snapshot");
        let mut found = Stored::new();
        for item in snapshot.series() {
            let WindowSeries { labels, chunks, .. } = item.expect("series of a snapshot");
            let mut columns = Columns::default();
            for chunk in &chunks {
                chunk_kinds::decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut columns).unwrap();
            }
            found.insert(labels, stored_of(&columns));
        }
        let mut want = self.stored.clone();
        want.values_mut().for_each(|samples| samples.retain(|time, _| window.contains(*time)));
        want.retain(|_, samples| !samples.is_empty());
        assert_eq!(found, want, "window {window:?}");
        self.head.windows().drop(snapshot);
        self.head.checkpointer().checkpoint().expect("checkpoint");
        self.stored.values_mut().for_each(|samples| samples.retain(|time, _| !window.contains(*time)));
        self.flushed.push(window);
    }

    fn compare(&mut self) {
        self.stored.retain(|_, samples| !samples.is_empty());
        assert_same(&read_range(&self.test_env, &self.head, TimeRange::ALL), &self.stored);
        let start = self.now - self.below(200_000) as i64;
        let range = TimeRange::new(start, start + self.below(100_000) as i64);
        let mut want = self.stored.clone();
        want.values_mut().for_each(|samples| samples.retain(|time, _| range.contains(*time)));
        want.retain(|_, samples| !samples.is_empty());
        assert_same(&read_range(&self.test_env, &self.head, range), &want);
    }

    fn restart(self) -> Life {
        let Life { test_env, head, stored, flushed, rng, now, has_histograms } = self;
        test_env.disk.crash();
        drop(head);
        let (head, report) = test_env.open();
        assert_eq!(report.notes, Vec::<String>::new());
        let mut life = Life { test_env, head, stored, flushed, rng, now, has_histograms };
        life.compare();
        life
    }
}

#[track_caller]
fn assert_same(found: &Stored, want: &Stored) {
    for (labels, want) in want {
        let got = found.get(labels).cloned().unwrap_or_default();
        let differs: Vec<_> = want.iter().filter(|(time, one)| got.get(time) != Some(one)).collect();
        let got: Vec<_> = differs.iter().map(|(time, _)| got.get(time)).collect();
        assert!(differs.is_empty(), "{labels}: {differs:?}, found {got:?}");
    }
    assert_eq!(found, want);
}

fn live(seed: u64) {
    println!("seed {seed}");
    let mut test_env = TestEnv::new(seed);
    test_env.limits.future_ms_max = 0;
    if seed % 2 == 1 {
        test_env.limits.duplicates = DuplicatePolicy::LastWins;
    }
    let (head, _) = test_env.open();
    let rng = Rng::from_seed(seed ^ 0x57a7);
    let (stored, flushed, now) = (Stored::new(), Vec::new(), NOW_MS - 2_000_000);
    let mut life = Life { test_env, head, stored, flushed, rng, now, has_histograms: seed / 2 % 2 };
    let has_checkpoints = !seed.is_multiple_of(3);
    for _ in 0..STEPS {
        match life.below(20) {
            0..=11 => life.append(),
            12 => life.delete(),
            13 if life.below(3) == 0 && has_checkpoints => life.flush_window(),
            14 if has_checkpoints => {
                life.head.checkpointer().checkpoint().expect("checkpoint");
            }
            15 if has_checkpoints => {
                life.test_env.clock.advance(std::time::Duration::from_secs(life.below(400)));
                life.head.checkpointer().roll_checkpoint().expect("a part of the checkpoint");
            }
            16 | 17 => life = life.restart(),
            _ => life.compare(),
        }
    }
    life.restart().compare();
}

#[test]
fn random_lives_with_start_times_match_the_model() {
    (0..36).for_each(live);
}

fn one(labels: &Labels, samples: &[(i64, f64, i64)]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    let samples: Vec<_> =
        samples.iter().map(|&(time, value, start)| (time, Sample::Float(value), start)).collect();
    push_with(&mut batch, labels, &samples);
    batch
}

fn starts_of(test_env: &TestEnv, head: &Head) -> Vec<(i64, i64)> {
    let all = read_range(test_env, head, TimeRange::ALL);
    all.get(&labels(1)).into_iter().flatten().map(|(time, (_, start_ms))| (*time, *start_ms)).collect()
}

/// The first start timestamp of a series may arrive with an out-of-order sample, in one batch with a newer
/// sample without one: the newer one stays unknown, also after a replay of the WAL alone.
#[test]
fn an_out_of_order_first_start_time_does_not_affect_newer_samples() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let mut batch = one(&labels(1), &[(NOW_MS, 1.0, 0)]);
    let late = one(&labels(1), &[(NOW_MS - 10, 2.0, 5), (NOW_MS - 20, 3.0, 0)]);
    batch.push_labels(&labels(1), &[(NOW_MS - 10, 2.0), (NOW_MS - 20, 3.0)]);
    batch.start_times = [vec![0], late.start_times].concat();
    batch.pad_start_times();
    test_env.write(&head, &tenant("a"), &batch).expect("written");
    let want = [(NOW_MS - 20, 0), (NOW_MS - 10, 5), (NOW_MS, 0)];
    assert_eq!(starts_of(&test_env, &head), want);
    test_env.disk.crash();
    drop(head);
    assert_eq!(starts_of(&test_env, &test_env.open().0), want);
}

/// Power loss at every disk operation: an acknowledged sample has its start timestamp, any other one has its
/// own or is missing, and is stored as sent when it is sent again.
#[test]
fn a_crash_at_any_disk_operation_loses_no_start_time() {
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 4 * WINDOW_MS;
    let rows: Vec<Vec<(i64, f64, i64)>> = (0..6i64)
        .map(|round| {
            let row = (0..50).map(|k| base + round * 50_000 + k * 1000);
            let mut row: Vec<_> = row.map(|time| (time, (time % 7) as f64, base + round / 2)).collect();
            row.extend([(base + round * 1000 + 500, 5.0, time_of(round)), (base + round - 900, 2.0, 0)]);
            row
        })
        .collect();
    let mut op_count = 0;
    loop {
        let mut test_env = TestEnv::new(op_count);
        test_env.options.wal_segment_bytes = 8 << 10;
        test_env.disk.fail_after(op_count);
        let mut acked: BTreeMap<i64, i64> = BTreeMap::new();
        let mut write = |test_env: &TestEnv, head: &Head, row: &[(i64, f64, i64)]| {
            if test_env.write(head, &tenant("a"), &one(&labels(1), row)).is_ok() {
                acked.extend(row.iter().map(|(time, _, start_ms)| (*time, *start_ms)));
            }
        };
        if let Ok((head, _)) = test_env.try_open() {
            rows[..3].iter().for_each(|row| write(&test_env, &head, row));
            let _ = head.checkpointer().checkpoint();
            rows[3..].iter().for_each(|row| write(&test_env, &head, row));
        }
        let ended = test_env.disk.op_count() <= op_count;
        test_env.disk.crash();
        let sent: BTreeMap<i64, i64> =
            rows.iter().flatten().map(|(time, _, start)| (*time, *start)).collect();
        let (head, _) = test_env.open();
        let found: BTreeMap<i64, i64> = starts_of(&test_env, &head).into_iter().collect();
        acked
            .iter()
            .for_each(|(time, start)| assert_eq!(found.get(time), Some(start), "op {op_count}: {time}"));
        found
            .iter()
            .for_each(|(time, start)| assert_eq!(sent.get(time), Some(start), "op {op_count}: {time}"));
        for row in &rows {
            test_env.write(&head, &tenant("a"), &one(&labels(1), row)).expect("life goes on");
        }
        drop(head);
        test_env.disk.crash();
        let found: BTreeMap<i64, i64> = starts_of(&test_env, &test_env.open().0).into_iter().collect();
        assert_eq!(found, sent, "op {op_count}");
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 30, "the script has many crash points, found {op_count}");
}

fn time_of(round: i64) -> i64 {
    NOW_MS - 9_000_000 + round
}

/// Series without start timestamps use no memory for them, and departed series release theirs.
#[test]
fn memory_is_counted_and_freed() {
    let test_env = TestEnv::new(2);
    let (head, _) = test_env.open();
    let count = |head: &Head| {
        head.statistics()
            .memory()
            .iter()
            .find(|part| part.name == "start_times")
            .map_or((0, 0), |part| (part.count, part.bytes))
    };
    test_env.write(&head, &tenant("a"), &one(&labels(2), &[(NOW_MS, 1.0, 0)])).expect("written");
    assert_eq!(count(&head), (0, 0));
    let row: Vec<_> = (0..550).map(|k| (NOW_MS - k * 100, 1.0, NOW_MS - k * 100 - 50)).rev().collect();
    test_env.write(&head, &tenant("a"), &one(&labels(1), &row)).expect("written");
    assert_eq!(head.statistics().stats().samples.with_start, 550);
    let (series, bytes) = count(&head);
    // The open chunk alone has its start timestamps in memory.
    assert!(series == 1 && bytes < 120 * 16 * 2 + 200, "{bytes}");
    for window in head.windows().list() {
        head.windows().drop(head.windows().snapshot(&tenant("a"), window.range).expect("snapshot"));
    }
    assert_eq!(count(&head), (0, 0));
}

/// Regression: a damaged frame left the samples after it with an earlier start, as if the counter had not
/// been reset. Each frame has the start timestamps of its samples.
#[test]
fn samples_after_a_damaged_frame_have_their_start() {
    let test_env = TestEnv::new(7);
    let (head, _) = test_env.open();
    let mut want = BTreeMap::new();
    for at in 0..20 {
        let time = NOW_MS + at * 1000;
        // Some have a new start, others keep the previous one; each is a frame.
        let start_ms = if at % 3 == 0 { time - 10 } else { want.last_entry().map_or(0, |last| *last.get()) };
        let mut batch = WriteBatch::from_labels();
        push_with(&mut batch, &labels(0), &[(time, Sample::Float(1.0), start_ms)]);
        test_env.write(&head, &tenant("a"), &batch).expect("stored");
        want.insert(time, start_ms);
    }
    drop(head);
    let dir = Path::new("/data/wal");
    let names = test_env.disk.list(dir).expect("lists");
    let segment = names.iter().find(|entry| entry.name.ends_with(".seg")).expect("a segment");
    let good = test_env.disk.read(&dir.join(&segment.name)).expect("reads");
    let end = good.iter().rposition(|&byte| byte != 0).expect("frames");
    let mut lost_count = 0;
    for at in (0..end).step_by(5) {
        let damaged = TestEnv::new(7);
        for entry in &names {
            let mut bytes = test_env.disk.read(&dir.join(&entry.name)).expect("reads");
            if entry.name == segment.name {
                bytes[at] ^= 1;
            }
            damaged.disk.create_dir_all(dir).expect("made");
            damaged.disk.write_atomic(&dir.join(&entry.name), &bytes).expect("writes");
        }
        let (head, report) = damaged.open();
        let found = read_range(&damaged, &head, TimeRange::ALL);
        for (time, (_, start_ms)) in found.values().flatten() {
            assert_eq!(*start_ms, want[time], "byte {at}: sample at {time}");
        }
        let is_whole = found.values().map(BTreeMap::len).sum::<usize>() == want.len();
        assert!(is_whole || !report.notes.is_empty(), "byte {at}");
        lost_count += usize::from(!is_whole);
    }
    assert!(lost_count > 20, "frames of samples were hit");
}
