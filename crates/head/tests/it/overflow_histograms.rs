//! Native histograms of series beyond a limit, compared with a model that adds maps of buckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_head::Head;
use chronolith_model::histogram::{Buckets, ResetHint, SCHEMA_CUSTOM, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{
    Columns, FloatHistogram, Histogram, IntHistogram, Labels, Matcher, OverflowPolicy, Reject, Selector,
    TimeRange, WriteBatch,
};

use crate::harness::{NOW_MS, TestEnv, tenant};

/// Series that fill the limit of the tests.
const KNOWN_COUNT: u64 = 3;

fn fold_env(seed: u64) -> TestEnv {
    let mut test_env = TestEnv::new(seed);
    test_env.limits.series_max = KNOWN_COUNT as usize;
    test_env.limits.ingestion.overflow = OverflowPolicy::Fold;
    test_env
}

fn filled(test_env: &TestEnv) -> Head {
    let (head, _) = test_env.open();
    let mut batch = WriteBatch::from_labels();
    for idx in 0..KNOWN_COUNT {
        batch.push_labels(&series("known", idx), &[(NOW_MS, 1.0)]);
    }
    test_env.write(&head, &tenant("a"), &batch).expect("written");
    head
}

fn series(metric: &str, idx: u64) -> Labels {
    Labels::from_pairs([("__name__", metric), ("user", &*idx.to_string())])
}

/// Histogram of a metric at a time relative to the clock.
type Sent = (&'static str, u64, i64, Arc<Histogram>);

fn batch_of(samples: &[Sent]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for (metric, idx, time, histogram) in samples {
        batch.push_histograms(&series(metric, *idx), &[(NOW_MS + time, histogram.clone())]);
    }
    batch
}

#[track_caller]
fn write(test_env: &TestEnv, head: &Head, samples: &[Sent]) {
    let outcome = test_env.write(head, &tenant("a"), &batch_of(samples)).expect("written");
    assert_eq!(outcome.rejected_count(), 0, "{:?}", outcome.first_reject);
    assert_eq!(
        (outcome.accepted_count, outcome.histograms_accepted),
        (samples.len() as u64, samples.len() as u64)
    );
}

/// Newest histogram of the overflow series of a metric with this value of the label.
fn newest_of(test_env: &TestEnv, head: &Head, metric: &str, label: &str) -> Option<FloatHistogram> {
    let matchers = [Matcher::equal("__name__", metric), Matcher::equal("__overflow__", label)];
    let selector = Selector { matchers: &matchers, range: TimeRange::ALL };
    let found = head.reader().select(&tenant("a"), &selector, &test_env.context()).expect("select works");
    assert!(found.len() <= 1, "one series per metric");
    let mut columns = Columns::default();
    found.first()?.samples.read(TimeRange::ALL, &mut columns).expect("samples read");
    let histogram = columns.histogram_at(columns.len() - 1)?;
    Some(histogram.to_float().into_owned())
}

fn newest(test_env: &TestEnv, head: &Head, metric: &str) -> Option<FloatHistogram> {
    newest_of(test_env, head, metric, "true")
}

/// Buckets of a histogram by index, as the model has them.
#[derive(Debug, Clone, PartialEq, Default)]
struct Plain {
    schema: i32,
    zero_count: f64,
    sum: f64,
    positive: BTreeMap<i32, f64>,
    negative: BTreeMap<i32, f64>,
}

impl Plain {
    fn of(histogram: &FloatHistogram) -> Plain {
        let side = |buckets: &Buckets<f64>| buckets.walk().filter(|(_, count)| *count != 0.0).collect();
        let found = Plain {
            schema: histogram.schema,
            zero_count: histogram.zero_count,
            sum: histogram.sum,
            positive: side(&histogram.positive),
            negative: side(&histogram.negative),
        };
        assert_eq!(found.count(), histogram.count, "the count is that of the buckets");
        found
    }

    fn count(&self) -> f64 {
        self.zero_count + self.positive.values().chain(self.negative.values()).sum::<f64>()
    }

    /// Adds `other` times `factor`, in the coarser schema of both.
    fn add(&mut self, other: &Plain, factor: f64) {
        let schema = self.schema.min(other.schema);
        let coarse = |side: &BTreeMap<i32, f64>, steps: i32| {
            let mut out = BTreeMap::new();
            side.iter().for_each(|(idx, count)| *out.entry(((idx - 1) >> steps) + 1).or_insert(0.0) += count);
            out
        };
        let mut sides = [
            (&mut self.positive, &other.positive, self.schema - schema),
            (&mut self.negative, &other.negative, self.schema - schema),
        ];
        for (own, others, steps) in &mut sides {
            **own = coarse(own, *steps);
            for (idx, count) in coarse(others, other.schema - schema) {
                *own.entry(idx).or_insert(0.0) += count * factor;
            }
            own.retain(|_, count| *count != 0.0);
        }
        self.schema = schema;
        self.zero_count += other.zero_count * factor;
        self.sum += other.sum * factor;
    }

    fn buckets(side: &BTreeMap<i32, f64>) -> Buckets<f64> {
        let mut out = Buckets::default();
        let mut next = 0;
        for (&idx, &count) in side {
            out.spans.push(Span { offset: idx - next, length: 1 });
            out.counts.push(count);
            next = idx + 1;
        }
        out
    }

    fn histogram(&self, is_float: bool, reset_hint: ResetHint) -> Arc<Histogram> {
        let float = FloatHistogram {
            reset_hint,
            schema: self.schema,
            zero_threshold: 1e-10,
            zero_count: self.zero_count,
            count: self.count(),
            sum: self.sum,
            positive: Plain::buckets(&self.positive),
            negative: Plain::buckets(&self.negative),
            ..FloatHistogram::default()
        };
        if is_float {
            return Arc::new(Histogram::Float(float));
        }
        let ints = |side: &Buckets<f64>| Buckets {
            spans: side.spans.clone(),
            counts: side.counts.iter().map(|&count| count as u64).collect(),
        };
        let int = IntHistogram {
            reset_hint,
            schema: float.schema,
            zero_threshold: float.zero_threshold,
            zero_count: float.zero_count as u64,
            count: float.count as u64,
            sum: float.sum,
            positive: ints(&float.positive),
            negative: ints(&float.negative),
            ..IntHistogram::default()
        };
        Arc::new(Histogram::Int(int))
    }
}

/// Senders of counters with integers (`i`) and floats (`f`), and of gauges (`g`), and the sums that they
/// expect.
struct Senders {
    rng: Rng,
    last: BTreeMap<(&'static str, u64), Plain>,
    totals: BTreeMap<&'static str, Plain>,
    time: i64,
}

impl Senders {
    fn new(seed: u64) -> Senders {
        Senders { rng: Rng::from_seed(seed), last: BTreeMap::new(), totals: BTreeMap::new(), time: 0 }
    }

    fn observe(&self, plain: &mut Plain, count: u64) {
        for _ in 0..count {
            let idx = self.rng.below(9) as i32 - 4;
            match self.rng.below(5) {
                0 => plain.zero_count += 1.0,
                1 => *plain.negative.entry(idx).or_insert(0.0) += 1.0,
                _ => *plain.positive.entry(idx).or_insert(0.0) += 1.0,
            }
            plain.sum += self.rng.below(64) as f64 / 4.0 - 2.0;
        }
    }

    /// Returns the next histogram of a counter after `last`, with the hint and the increase.
    fn next_counter(&self, last: Option<&Plain>) -> (Plain, ResetHint, Plain) {
        let fresh = |schema: i32, count: u64| {
            let mut plain = Plain { schema, ..Plain::default() };
            self.observe(&mut plain, count);
            plain
        };
        let Some(last) = last else {
            // The sum begins in the schema of the first series that arrives, which is any.
            let schema = 4;
            return (fresh(schema, 5), ResetHint::Unknown, Plain { schema, ..Plain::default() });
        };
        let mut next = last.clone();
        match self.rng.below(12) {
            // A reset that the counts show, in any schema.
            0 | 1 if last.count() > 3.0 => {
                let next = fresh(self.rng.below(4) as i32 + 2, 2);
                return (next.clone(), ResetHint::Unknown, next);
            }
            // A reset that the hint alone shows.
            2 => {
                self.observe(&mut next, 3);
                return (next.clone(), ResetHint::Reset, next);
            }
            // The hint is of the sample before, which may not be the last one that arrived.
            3 if last.count() > 3.0 => {
                let next = fresh(last.schema, 1);
                return (next.clone(), ResetHint::NotReset, next);
            }
            4 if last.schema > 1 => next.add(&Plain { schema: last.schema - 1, ..Plain::default() }, 1.0),
            _ => {}
        }
        let before = next.clone();
        self.observe(&mut next, self.rng.below(4));
        let mut increase = next.clone();
        increase.add(&before, -1.0);
        (next, ResetHint::Unknown, increase)
    }

    /// Returns the samples of a scrape, and applies them to the expected sums.
    fn scrape(&mut self) -> Vec<Sent> {
        self.time += 1_000;
        let mut samples = Vec::new();
        for metric in ["i", "f", "g"] {
            for idx in 0..6 {
                if self.rng.below(4) == 0 {
                    continue;
                }
                let key = (metric, idx);
                let (next, hint) = if metric == "g" {
                    let mut next = Plain { schema: 3, ..Plain::default() };
                    self.observe(&mut next, self.rng.below(9));
                    (next, ResetHint::Gauge)
                } else {
                    let (next, hint, increase) = self.next_counter(self.last.get(&key));
                    let first = || Plain { schema: next.schema, ..Plain::default() };
                    let is_first = !self.last.contains_key(&key);
                    let total = self.totals.entry(metric).or_insert_with(first);
                    if !is_first {
                        total.add(&increase, 1.0);
                    }
                    (next, hint)
                };
                samples.push((metric, idx, self.time, next.histogram(metric == "f", hint)));
                self.last.insert(key, next);
            }
        }
        let mut gauges = Plain { schema: 3, ..Plain::default() };
        self.last.iter().filter(|(key, _)| key.0 == "g").for_each(|(_, last)| gauges.add(last, 1.0));
        self.totals.insert("g", gauges);
        samples
    }

    #[track_caller]
    fn check(&self, test_env: &TestEnv, head: &Head, what: &str) {
        for (metric, want) in &self.totals {
            let found = newest(test_env, head, metric).map(|histogram| Plain::of(&histogram));
            assert_eq!(found.as_ref(), Some(want), "{metric}, {what}");
        }
    }
}

/// Random histograms with resets and changes of schema, retries of parts, checkpoints and restarts.
#[test]
fn sums_of_histograms_equal_those_of_a_model() {
    for seed in 0..12 {
        let test_env = fold_env(seed);
        let mut senders = Senders::new(seed);
        let mut head = filled(&test_env);
        let mut sent = Vec::new();
        for round in 0..50 {
            let samples = senders.scrape();
            // Two senders, of which one repeats what it has sent before.
            let half = samples.len() / 2;
            for part in [&samples[half..], &samples[..half], &samples[half..]] {
                write(&test_env, &head, part);
            }
            sent.push(samples);
            write(&test_env, &head, &sent[senders.rng.below(sent.len() as u64) as usize]);
            senders.check(&test_env, &head, &format!("seed {seed}, round {round}"));
            match senders.rng.below(8) {
                0 => drop(head.checkpointer().checkpoint().expect("checkpoint")),
                1 => drop(head.checkpointer().roll_checkpoint().expect("rolled")),
                2 | 3 => {
                    if senders.rng.below(2) == 0 {
                        head.close().expect("closed");
                    }
                    drop(head);
                    test_env.disk.crash();
                    let (opened, report) = test_env.open();
                    assert_eq!(report.notes, Vec::<String>::new(), "seed {seed}, round {round}");
                    head = opened;
                }
                _ => {}
            }
        }
    }
}

/// Power loss at every disk operation: acknowledged increases are in the sums, and a retry adds them once.
#[test]
fn a_crash_at_any_disk_operation_neither_loses_nor_repeats_histograms() {
    let mut op_count = 0;
    loop {
        let mut test_env = fold_env(op_count);
        test_env.options.wal_segment_bytes = 4 << 10;
        test_env.disk.fail_after(op_count);
        let mut senders = Senders::new(7);
        let mut known = WriteBatch::from_labels();
        (0..KNOWN_COUNT).for_each(|idx| known.push_labels(&series("known", idx), &[(NOW_MS, 1.0)]));
        let mut batches = vec![known];
        batches.extend((0..10).map(|_| batch_of(&senders.scrape())));
        let mut head = test_env.try_open().ok().map(|opened| opened.0);
        for (at, batch) in batches.iter().enumerate() {
            let is_written = |head: &Option<Head>| {
                head.as_ref().is_some_and(|head| test_env.write(head, &tenant("a"), batch).is_ok())
            };
            if !is_written(&head) {
                drop(head.take());
                test_env.disk.crash();
                head = Some(test_env.open().0);
                assert!(is_written(&head), "op {op_count}, batch {at}: a retry after the restart");
            }
            if at % 4 == 3 {
                let _ = head.as_ref().expect("open").checkpointer().checkpoint();
            }
        }
        let ended = test_env.disk.op_count() <= op_count;
        let head = head.expect("open");
        senders.check(&test_env, &head, &format!("op {op_count}"));
        drop(head);
        test_env.disk.crash();
        let (head, _) = test_env.open();
        // The next scrape shows totals that continue, not the samples that were written before.
        test_env.write(&head, &tenant("a"), &batch_of(&senders.scrape())).expect("written");
        senders.check(&test_env, &head, &format!("op {op_count}, after a second crash"));
        if ended {
            break;
        }
        op_count += 1;
    }
    assert!(op_count > 30, "the script has many crash points, found {op_count}");
}

fn custom(bounds: &[f64], counts: &[u64]) -> Arc<Histogram> {
    let spans = vec![Span { offset: 0, length: counts.len() as u32 }];
    Arc::new(Histogram::Int(IntHistogram {
        schema: SCHEMA_CUSTOM,
        count: counts.iter().sum(),
        sum: counts.len() as f64,
        positive: Buckets { spans, counts: counts.to_vec() },
        custom_values: bounds.into(),
        ..IntHistogram::default()
    }))
}

fn exponential(zero_threshold: f64, zero_count: u64, counts: &[u64]) -> Arc<Histogram> {
    Arc::new(Histogram::Int(IntHistogram {
        zero_threshold,
        zero_count,
        count: zero_count + counts.iter().sum::<u64>(),
        sum: 1.0,
        positive: Buckets {
            spans: vec![Span { offset: 0, length: counts.len() as u32 }],
            counts: counts.to_vec(),
        },
        ..IntHistogram::default()
    }))
}

#[test]
fn custom_bounds_are_reduced_to_common_ones_and_a_second_class_gets_its_own_label() {
    let test_env = fold_env(1);
    let head = filled(&test_env);
    let wide = [1.0, 2.0, 5.0];
    let narrow = [1.0, 5.0];
    write(
        &test_env,
        &head,
        &[
            ("c", 1, 1_000, custom(&wide, &[1, 1, 1, 1])),
            ("c", 2, 1_000, custom(&narrow, &[1, 1, 1])),
            ("c", 3, 1_000, exponential(0.5, 1, &[1, 1])),
        ],
    );
    write(&test_env, &head, &[("c", 1, 2_000, custom(&wide, &[1, 3, 5, 1]))]);
    let found = newest(&test_env, &head, "c").expect("a histogram");
    assert_eq!((found.custom_values.as_ref(), found.count), (&wide[..], 6.0));
    write(
        &test_env,
        &head,
        &[("c", 2, 3_000, custom(&narrow, &[2, 1, 3])), ("c", 3, 3_000, exponential(0.5, 3, &[1, 1]))],
    );
    let found = newest(&test_env, &head, "c").expect("a histogram");
    assert_eq!(found.custom_values.as_ref(), &narrow[..]);
    assert_eq!(found.positive.walk().collect::<Vec<_>>(), [(0, 1.0), (1, 6.0), (2, 2.0)]);
    let other = newest_of(&test_env, &head, "c", "exponential").expect("a histogram");
    assert_eq!((other.count, other.zero_count), (2.0, 2.0));
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    write(&test_env, &head, &[("c", 3, 4_000, exponential(0.5, 3, &[1, 4]))]);
    let other = newest_of(&test_env, &head, "c", "exponential").expect("a histogram");
    assert_eq!((other.count, other.zero_count), (5.0, 2.0));
}

#[test]
fn a_wider_zero_bucket_of_one_series_takes_the_buckets_of_the_sum() {
    let test_env = fold_env(2);
    let head = filled(&test_env);
    write(
        &test_env,
        &head,
        &[("h", 1, 1_000, exponential(0.25, 0, &[0, 0])), ("h", 2, 1_000, exponential(1.0, 0, &[0, 0]))],
    );
    // Buckets 0 and 1 end at 1 and 2.
    write(&test_env, &head, &[("h", 1, 2_000, exponential(0.25, 1, &[2, 3]))]);
    write(&test_env, &head, &[("h", 2, 3_000, exponential(1.0, 5, &[0, 7]))]);
    let found = newest(&test_env, &head, "h").expect("a histogram");
    assert_eq!((found.zero_threshold, found.zero_count, found.count), (1.0, 8.0, 18.0));
    assert_eq!(found.positive.walk().collect::<Vec<_>>(), [(1, 10.0)]);
}

/// A series may change between floats and histograms; each sum has the increases of its own values.
#[test]
fn a_series_that_changes_to_histograms_begins_in_their_sum() {
    let test_env = fold_env(3);
    let head = filled(&test_env);
    let float = |time: i64, value: f64| {
        let mut batch = WriteBatch::from_labels();
        batch.push_labels(&series("x_total", 1), &[(NOW_MS + time, value)]);
        test_env.write(&head, &tenant("a"), &batch).expect("written");
    };
    let floats = |head: &Head| {
        let matchers = [Matcher::equal("__name__", "x_total"), Matcher::equal("__overflow__", "true")];
        let found = crate::harness::read(&test_env, head, "a", &matchers, TimeRange::ALL);
        found
            .into_values()
            .next()
            .and_then(|mut samples| samples.pop_last())
            .map(|last| f64::from_bits(last.1))
    };
    float(1_000, 10.0);
    float(2_000, 13.0);
    write(&test_env, &head, &[("x_total", 1, 3_000, exponential(0.5, 1, &[1]))]);
    write(&test_env, &head, &[("x_total", 1, 4_000, exponential(0.5, 2, &[1]))]);
    let count = |head: &Head| newest_of(&test_env, head, "x_total", "exponential").map(|found| found.count);
    assert_eq!((floats(&head), count(&head)), (Some(3.0), Some(1.0)));
    // A staleness marker as a float ends no sum of increases.
    float(4_500, STALE_NAN);
    float(5_000, 20.0);
    float(6_000, 21.0);
    assert_eq!((floats(&head), count(&head)), (Some(4.0), Some(1.0)));
    assert_eq!(head.statistics().overflow_of(&tenant("a")).series_count, 1);
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    write(&test_env, &head, &[("x_total", 1, 7_000, exponential(0.5, 9, &[1]))]);
    write(&test_env, &head, &[("x_total", 1, 8_000, exponential(0.5, 9, &[3]))]);
    assert_eq!((floats(&head), count(&head)), (Some(4.0), Some(3.0)));
}

#[test]
fn a_stale_gauge_histogram_leaves_the_sum() {
    let test_env = fold_env(4);
    let head = filled(&test_env);
    let gauge = |counts: &[u64]| {
        let mut histogram = (*exponential(0.5, 0, counts)).clone();
        histogram.set_reset_hint(ResetHint::Gauge);
        Arc::new(histogram)
    };
    write(&test_env, &head, &[("g", 1, 1_000, gauge(&[4, 1])), ("g", 2, 1_000, gauge(&[0, 2]))]);
    let found = newest(&test_env, &head, "g").expect("a histogram");
    assert_eq!((found.count, found.sum, found.reset_hint), (7.0, 2.0, ResetHint::Gauge));
    write(&test_env, &head, &[("g", 1, 2_000, Arc::new(Histogram::stale()))]);
    let found = newest(&test_env, &head, "g").expect("a histogram");
    assert_eq!((found.count, found.sum), (2.0, 1.0));
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    write(&test_env, &head, &[("g", 2, 3_000, gauge(&[0, 3]))]);
    assert_eq!(newest(&test_env, &head, "g").map(|found| found.count), Some(3.0));
}

#[test]
fn histograms_of_further_series_are_rejected_at_the_limit_of_their_memory() {
    let mut test_env = fold_env(5);
    let head = filled(&test_env);
    write(&test_env, &head, &[("h", 1, 1_000, exponential(0.5, 1, &[1, 1]))]);
    let used = head.statistics().overflow_of(&tenant("a")).histogram_bytes;
    let parts = head.statistics().memory();
    let part = parts.iter().find(|part| part.name == "overflow_histograms").expect("its memory is shown");
    assert_eq!((part.bytes, part.count), (used, 1));
    test_env.limits.ingestion.overflow_histogram_bytes_max = used as usize;
    let further = batch_of(&[("h", 2, 2_000, exponential(0.5, 1, &[1, 1]))]);
    let outcome = test_env.write(&head, &tenant("a"), &further).expect("written");
    assert_eq!(outcome.rejected[Reject::SeriesLimit as usize], 1, "{outcome:?}");
    // A series that was folded before goes on with as many buckets, and a larger one waits for room.
    write(&test_env, &head, &[("h", 1, 2_000, exponential(0.5, 1, &[2, 3]))]);
    let larger = batch_of(&[("h", 1, 3_000, exponential(0.5, 1, &[2, 3, 1, 1, 1, 1]))]);
    let outcome = test_env.write(&head, &tenant("a"), &larger).expect("written");
    assert_eq!((outcome.rejected_count(), outcome.accepted_count), (1, 0), "{outcome:?}");
    assert!(outcome.first_reject.expect("a reject").1.contains("user=\"1\""));
    test_env.limits.ingestion.overflow_histogram_bytes_max = 1 << 20;
    write(&test_env, &head, &[("h", 1, 3_000, exponential(0.5, 1, &[2, 3, 1, 1, 1, 1]))]);
    assert_eq!(newest(&test_env, &head, "h").map(|found| found.count), Some(7.0));
}

#[test]
fn the_checkpoint_has_sums_and_last_histograms() {
    let test_env = fold_env(6);
    let head = filled(&test_env);
    write(&test_env, &head, &[("h", 1, 1_000, exponential(0.5, 1, &[1]))]);
    write(&test_env, &head, &[("h", 1, 2_000, exponential(0.5, 4, &[1]))]);
    head.checkpointer().checkpoint().expect("checkpoint");
    drop(head);
    let (head, _) = test_env.open();
    write(&test_env, &head, &[("h", 1, 3_000, exponential(0.5, 6, &[1]))]);
    assert_eq!(newest(&test_env, &head, "h").map(|found| found.count), Some(5.0));
}
