//! Random operations on series of floats and native histograms: out-of-order samples, duplicates, conflicts,
//! replacements, deletions, checkpoints, window drops, power failures. Reads must equal a map, bit for bit. A
//! failure prints its seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_format::chunk::kinds as chunk_kinds;
use chronolith_head::{Head, WindowSeries};
use chronolith_model::histogram::{Buckets, ResetHint, Span};
use chronolith_model::{
    Columns, DuplicatePolicy, Histogram, IntHistogram, Labels, MatchOp, Matcher, Reject, Selector, TimeRange,
    WriteBatch,
};

use crate::harness::kinds::{Sample, push, random_sample, text, texts};
use crate::harness::{NOW_MS, TestEnv, WINDOW_MS, delete, labels, tenant};

const SERIES: u64 = 6;
const STEPS: usize = 150;

type Stored = BTreeMap<Labels, BTreeMap<i64, String>>;

struct Life {
    test_env: TestEnv,
    head: Head,
    stored: Stored,
    /// Dropped windows: the head may or may not still know the newest sample of them.
    flushed: Vec<TimeRange>,
    rng: Rng,
    now: i64,
}

fn read_all(test_env: &TestEnv, head: &Head) -> Stored {
    let any = [Matcher::new("__name__", MatchOp::Regex, ".*").expect("a pattern")];
    let selector = Selector { matchers: &any, range: TimeRange::ALL };
    let mut out = Stored::new();
    for series in head.reader().select(&tenant("a"), &selector, &test_env.context()).expect("select works") {
        let mut columns = Columns::default();
        series.samples.read(TimeRange::ALL, &mut columns).expect("samples read");
        assert!(columns.times.is_sorted_by(|a, b| a < b), "times ascend");
        out.insert(series.labels, texts(&columns).into_iter().collect());
    }
    out
}

impl Life {
    fn below(&self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn samples(&self) -> Vec<(i64, Sample)> {
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
            out.push((time, random_sample(&self.rng, (time - NOW_MS + 3_000_000) as u64 / 2000)));
        }
        if self.below(3) > 0 {
            out.sort_by_key(|sample| sample.0);
        }
        out
    }

    fn append(&mut self) {
        let mut batch = WriteBatch::from_labels();
        let (mut accepted, mut repeats, mut conflicts) = (0, 0, 0);
        for _ in 0..1 + self.below(6) {
            let labels = labels(self.below(SERIES));
            let samples = self.samples();
            push(&mut batch, &labels, &samples);
            let stored = self.stored.entry(labels).or_default();
            for (time, sample) in samples {
                let text = text(&sample);
                match stored.get(&time) {
                    Some(known) if *known == text => repeats += 1,
                    Some(_) if self.test_env.limits.duplicates == DuplicatePolicy::KeepFirst => {
                        conflicts += 1;
                        continue;
                    }
                    _ => {}
                }
                accepted += 1;
                stored.insert(time, text);
            }
        }
        let outcome = self.test_env.write(&self.head, &tenant("a"), &batch).expect("written");
        assert_eq!((outcome.accepted_count, outcome.repeated_count), (accepted, repeats), "{outcome:?}");
        assert_eq!(outcome.rejected[Reject::DuplicateTimestamp as usize], conflicts);
        assert_eq!(outcome.rejected_count(), conflicts);
        self.now += self.below(6000) as i64;
    }

    fn delete(&mut self) {
        let start = match self.below(2) {
            0 => self.now - self.below(3 * WINDOW_MS as u64) as i64,
            _ => NOW_MS - 10_000 + self.below(40) as i64,
        };
        let range = TimeRange::new(start, start + [1, 40, 3000, 2 * WINDOW_MS][self.below(4) as usize]);
        let matcher = Matcher::equal("job", &format!("job-{}", self.below(4)));
        let mut want = 0;
        for (_, samples) in self.stored.iter_mut().filter(|(labels, _)| matcher.matches_labels(labels)) {
            let before = samples.len();
            samples.retain(|time, _| !range.contains(*time));
            want += (before - samples.len()) as u64;
        }
        assert_eq!(delete(&self.head, "a", &[vec![matcher]], range), want, "{range:?}");
    }

    /// Requires that a snapshot has exactly the chunks of its window, and that dropping it removes them.
    fn flush_window(&mut self) {
        let windows = self.head.windows().list();
        if windows.is_empty() {
            return;
        }
        let window = windows[self.below(windows.len() as u64) as usize].clone();
        let snapshot = self.head.windows().snapshot(&tenant("a"), window.range).expect("snapshot");
        let mut found = Stored::new();
        for item in snapshot.series() {
            let WindowSeries { labels, chunks, damages, .. } = item.expect("series of a snapshot");
            assert!(damages.is_empty());
            assert!(chunks.windows(2).all(|pair| pair[0].max_time < pair[1].min_time), "chunks ascend");
            let mut columns = Columns::default();
            for chunk in &chunks {
                let before = columns.len();
                chunk_kinds::decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut columns).unwrap();
                assert_eq!(columns.len() - before, usize::from(chunk.count));
                let ends = (columns.times[before], columns.times[columns.len() - 1]);
                assert_eq!(ends, (chunk.min_time, chunk.max_time));
            }
            found.insert(labels, texts(&columns).into_iter().collect());
        }
        let mut want = self.stored.clone();
        want.values_mut().for_each(|samples| samples.retain(|time, _| window.range.contains(*time)));
        want.retain(|_, samples| !samples.is_empty());
        assert_eq!(found, want, "window {:?}", window.range);
        self.head.windows().drop(snapshot);
        self.head.checkpointer().checkpoint().expect("checkpoint");
        self.stored.values_mut().for_each(|samples| samples.retain(|time, _| !window.range.contains(*time)));
        self.flushed.push(window.range);
    }

    fn compare(&mut self) {
        self.stored.retain(|_, samples| !samples.is_empty());
        let mut found = read_all(&self.test_env, &self.head);
        found.retain(|_, samples| !samples.is_empty());
        for (labels, want) in &self.stored {
            let got = found.get(labels).cloned().unwrap_or_default();
            let differs: Vec<_> = want.iter().filter(|(time, text)| got.get(time) != Some(text)).collect();
            let extra: Vec<_> = got.iter().filter(|(time, _)| !want.contains_key(time)).collect();
            assert!(
                differs.is_empty() && extra.is_empty(),
                "{labels} lacks {differs:?}, has {extra:?} too much"
            );
        }
        assert_eq!(found.len(), self.stored.len(), "only series of the model");
        // Duplicates that a replay has not looked up count until they are flushed.
        let stored: usize = self.stored.values().map(BTreeMap::len).sum();
        let counted: u64 = self.head.windows().list().iter().map(|window| window.sample_count).sum();
        assert!(counted >= stored as u64, "windows count both kinds: {counted} of {stored}");
    }

    fn restart(self) -> Life {
        let Life { test_env, head, stored, flushed, rng, now } = self;
        test_env.disk.crash();
        drop(head);
        let (head, report) = test_env.open();
        assert_eq!(report.notes, Vec::<String>::new());
        let mut life = Life { test_env, head, stored, flushed, rng, now };
        life.compare();
        life
    }
}

fn live(seed: u64) {
    println!("seed {seed}");
    let mut test_env = TestEnv::new(seed);
    test_env.limits.future_ms_max = 0;
    if seed % 2 == 1 {
        test_env.limits.duplicates = DuplicatePolicy::LastWins;
    }
    let (head, _) = test_env.open();
    let rng = Rng::from_seed(seed ^ 0x5eed);
    let mut life =
        Life { test_env, head, stored: Stored::new(), flushed: Vec::new(), rng, now: NOW_MS - 2_000_000 };
    for _ in 0..STEPS {
        match life.below(20) {
            0..=11 => life.append(),
            12 => life.delete(),
            13 if life.below(3) == 0 => life.flush_window(),
            14 => {
                life.head.checkpointer().checkpoint().expect("checkpoint");
            }
            15 => {
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
fn random_lives_of_both_kinds_match_the_model() {
    (0..30).for_each(live);
}

/// A batch may change the kind of a series at one timestamp twice: WAL replay and memory agree on the last
/// one.
#[test]
fn the_last_kind_at_a_timestamp_survives_a_restart() {
    for order in 0..2 {
        let mut test_env = TestEnv::new(order);
        test_env.limits.duplicates = DuplicatePolicy::LastWins;
        let (head, _) = test_env.open();
        let rng = Rng::from_seed(9);
        let histogram = loop {
            let sample = random_sample(&rng, 5);
            if matches!(&sample, Sample::Histogram(one) if !one.sum().is_nan()) {
                break sample;
            }
        };
        let (a, b) = (Sample::Float(4.0), histogram);
        let (first, second) = if order == 0 { (a, b) } else { (b, a) };
        // In order, then out of order.
        for time in [NOW_MS, NOW_MS - 100] {
            let mut batch = WriteBatch::from_labels();
            let times = [time - 5, time, time + 5];
            push(&mut batch, &labels(1), &times.map(|time| (time, first.clone())));
            push(&mut batch, &labels(1), &[(time, second.clone())]);
            push(&mut batch, &labels(2), &[(time, second.clone()), (time, first.clone())]);
            let outcome = test_env.write(&head, &tenant("a"), &batch).expect("written");
            assert_eq!(outcome.accepted_count, 6);
            let stored = read_all(&test_env, &head);
            assert_eq!(stored[&labels(1)][&time], text(&second));
            assert_eq!(stored[&labels(2)][&time], text(&first));
        }
        let before = read_all(&test_env, &head);
        test_env.disk.crash();
        drop(head);
        let (head, report) = test_env.open();
        assert_eq!(report.notes, Vec::<String>::new());
        assert_eq!(read_all(&test_env, &head), before);
    }
}

/// Regression: out-of-order floats of a series that preceded a histogram of the same series in a batch were
/// appended after it, so of two values at a timestamp the second was stored. The first must win, by policy.
#[test]
fn the_first_value_of_a_batch_wins_over_deferred_floats() {
    let test_env = TestEnv::new(4);
    let (head, _) = test_env.open();
    let rng = Rng::from_seed(9);
    let histogram = loop {
        let sample = random_sample(&rng, 5);
        if matches!(&sample, Sample::Histogram(one) if !one.sum().is_nan()) {
            break sample;
        }
    };
    let (one, two) = (Sample::Float(1.0), Sample::Float(2.0));
    let mut batch = WriteBatch::from_labels();
    push(&mut batch, &labels(1), &[(NOW_MS, one.clone())]);
    test_env.write(&head, &tenant("a"), &batch).expect("written");
    let (first, second) = (NOW_MS - 100, NOW_MS - 50);
    let mut batch = WriteBatch::from_labels();
    push(&mut batch, &labels(1), &[(first, one.clone()), (second, one.clone())]);
    push(&mut batch, &labels(1), &[(first, two.clone()), (second, histogram.clone())]);
    let outcome = test_env.write(&head, &tenant("a"), &batch).expect("written");
    assert_eq!((outcome.accepted_count, outcome.rejected[Reject::DuplicateTimestamp as usize]), (2, 2));
    let stored = read_all(&test_env, &head);
    assert_eq!([first, second].map(|time| &stored[&labels(1)][&time]), [&text(&one), &text(&one)]);
}

/// A histogram of series `idx` with `bucket_count` buckets, distinct for each series and round.
fn broad(idx: u64, round: u64, bucket_count: u32) -> Sample {
    let counts: Vec<u64> =
        (0..u64::from(bucket_count)).map(|at| (at * 7 + idx) % 1000 + 13 * round).collect();
    Sample::Histogram(Arc::new(Histogram::Int(IntHistogram {
        schema: 5,
        count: counts.iter().sum(),
        sum: idx as f64,
        positive: Buckets { spans: vec![Span { offset: -9, length: bucket_count }], counts },
        ..IntHistogram::default()
    })))
}

/// Regression: open chunks grow with buckets, and were limited by the number of series only: three million
/// buckets used unlimited memory. Above the limit, the largest are sealed early; every sample is kept.
#[test]
fn a_flood_of_buckets_stays_within_the_memory_for_histograms() {
    const BYTES_MAX: u64 = 4 << 20;
    let (series_count, bucket_count) = (1000, 1000);
    let mut test_env = TestEnv::new(8);
    test_env.options.histogram_bytes_max = BYTES_MAX;
    test_env.options.wal_segment_bytes = 4 << 20;
    test_env.options.sealed_file_bytes = 4 << 20;
    let (mut head, _) = test_env.open();
    let mut want = Stored::new();
    for round in 0..3 {
        for first in (0..series_count).step_by(50) {
            let mut batch = WriteBatch::from_labels();
            for idx in first..first + 50 {
                // Some arrive out of order, and stay buffered.
                let time = NOW_MS + if round == 2 && idx % 10 == 0 { -500 } else { 1000 * round };
                let sample = (time, broad(idx, round.unsigned_abs(), bucket_count));
                want.entry(labels(idx)).or_default().insert(time, text(&sample.1));
                push(&mut batch, &labels(idx), &[sample]);
            }
            let outcome = test_env.write(&head, &tenant("a"), &batch).expect("written");
            assert_eq!(outcome.accepted_count, 50);
            let used = head.statistics().stats().histograms.bytes;
            assert!(used <= BYTES_MAX / 4 * 5 + (1 << 20), "{used} bytes");
        }
    }
    let stats = head.statistics().stats();
    assert!(stats.histograms.sealed_early_count > 1000, "{stats:?}");
    let parts = head.statistics().memory();
    let part = parts.iter().find(|part| part.name == "histograms").expect("is there");
    assert!(part.bytes < 3 * BYTES_MAX, "places and tracks of a thousand series beside it: {part:?}");
    assert!(read_all(&test_env, &head) == want, "every sample is there");
    test_env.disk.crash();
    drop(head);
    (head, _) = test_env.open();
    assert!(read_all(&test_env, &head) == want, "every sample is there after a start");
    assert!(head.statistics().stats().histograms.bytes <= BYTES_MAX / 4 * 5 + (1 << 20));
}

/// The first sample of a chunk is read without a counter reset hint, as in Prometheus; the hint of its sender
/// is in the header of its chunk, wherever the chunk has been.
#[test]
fn chunk_headers_keep_counter_reset_hints() {
    use chronolith_format::chunk::histogram::ResetHeader;
    let counted = |count: u64, reset_hint: ResetHint| {
        let positive = Buckets { spans: vec![Span { offset: 0, length: 1 }], counts: vec![count] };
        let one = IntHistogram { reset_hint, count, sum: 1.0, positive, ..IntHistogram::default() };
        Sample::Histogram(Arc::new(Histogram::Int(one)))
    };
    use ResetHint::{Gauge, NotReset, Reset, Unknown};
    let sent = [(1, Unknown), (2, NotReset), (3, Reset), (4, Unknown), (1, Unknown), (5, Gauge), (2, Gauge)];
    let want = [ResetHeader::Unknown, ResetHeader::Reset, ResetHeader::Reset, ResetHeader::Gauge];
    for (restarts, with_checkpoint) in [(0, false), (1, false), (2, true)] {
        let test_env = TestEnv::new(2);
        let (mut head, _) = test_env.open();
        for (step, (count, hint)) in sent.into_iter().enumerate() {
            let mut batch = WriteBatch::from_labels();
            push(&mut batch, &labels(1), &[(NOW_MS + step as i64, counted(count, hint))]);
            test_env.write(&head, &tenant("a"), &batch).expect("written");
            // Once within each chunk as well as between them.
            if step % 2 == 1 {
                for _ in 0..restarts {
                    if with_checkpoint {
                        head.checkpointer().checkpoint().expect("checkpoint");
                    }
                    test_env.disk.crash();
                    drop(head);
                    (head, _) = test_env.open();
                }
            }
        }
        let window = TimeRange::window_of(NOW_MS, WINDOW_MS);
        let snapshot = head.windows().snapshot(&tenant("a"), window).expect("snapshot");
        let series = snapshot.series().next().expect("one series").expect("readable");
        let headers: Vec<_> = series
            .chunks
            .iter()
            .map(|chunk| chronolith_format::chunk::histogram::reset_header(&chunk.bytes).expect("a header"))
            .collect();
        assert_eq!(headers, want, "{restarts} restarts, checkpoint {with_checkpoint}");
    }
}
