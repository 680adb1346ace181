//! Out-of-order samples of one series in hostile orders: the work per sample is bounded, and nothing is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chronolith_base::Rng;
use chronolith_head::Head;
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::{Columns, DuplicatePolicy, Histogram, IntHistogram, Selector, TimeRange, WriteBatch};

use crate::harness::kinds::{self, Sample};
use crate::harness::{NOW_MS, TestEnv, labels, read_once, tenant};

/// Samples of one series in the default window, one per millisecond.
fn test_env() -> TestEnv {
    let mut test_env = TestEnv::new(1);
    test_env.options.window_ms = 7_200_000;
    test_env.options.wal_segment_bytes = 1 << 20;
    test_env.options.sealed_file_bytes = 1 << 20;
    // As in production: most samples are stored without a lookup.
    test_env.options.ooo_lookups_min = 4;
    test_env
}

/// Returns the numbers below `count` in an order that makes out-of-order buffers expensive.
fn ordered(order: &str, count: usize, seed: u64) -> Vec<usize> {
    let rng = Rng::from_seed(seed);
    let mut out: Vec<usize> = (0..count).collect();
    let blocks = |len: usize| (0..count.div_ceil(len)).map(move |b| b * len..count.min((b + 1) * len));
    match order {
        "random" => (1..count).rev().for_each(|i| out.swap(i, rng.below(i as u64 + 1) as usize)),
        "descending" => out.reverse(),
        "interleaved" => {
            let half = count.div_ceil(2);
            out = (0..half).flat_map(|i| [i, half + i]).filter(|&i| i < count).collect();
        }
        "sawtooth" => out = (0..17).flat_map(|tooth| (tooth..count).step_by(17)).collect(),
        "reverse sawtooth" => {
            out = (0..17).rev().flat_map(|tooth| (tooth..count).step_by(17).rev()).collect()
        }
        "descending blocks" => out = blocks(1000).rev().flatten().collect(),
        "blocks of descending" => out = blocks(1000).flat_map(|b| b.rev()).collect(),
        "swapped blocks" => {
            let mut all: Vec<_> = blocks(333).collect();
            (1..all.len()).rev().for_each(|i| all.swap(i, rng.below(i as u64 + 1) as usize));
            out = all.into_iter().flatten().collect();
        }
        "middle out" => {
            let middle = count / 2;
            out = (0..=middle)
                .flat_map(|i| [middle + i, middle.wrapping_sub(i + 1)])
                .filter(|&i| i < count)
                .collect();
        }
        "ends in" => out = (0..count.div_ceil(2)).flat_map(|i| [count - 1 - i, i]).take(count).collect(),
        "bit reversed" => {
            let bits = usize::BITS - count.leading_zeros();
            out = (0..1usize << bits)
                .map(|i| i.reverse_bits() >> (usize::BITS - bits))
                .filter(|&i| i < count)
                .collect();
        }
        "last first" => out.rotate_right(1),
        other => panic!("no such order: {other}"),
    }
    out
}

const ORDERS: [&str; 12] = [
    "random",
    "descending",
    "interleaved",
    "sawtooth",
    "reverse sawtooth",
    "descending blocks",
    "blocks of descending",
    "swapped blocks",
    "middle out",
    "ends in",
    "bit reversed",
    "last first",
];

/// Kind of the samples of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Float,
    Histogram,
}

const KINDS: [Kind; 2] = [Kind::Float, Kind::Histogram];

fn sample_of(kind: Kind, i: usize, version: usize) -> Sample {
    let value = (i * 7 % 1000) as f64 + version as f64 * 10_000.0;
    if kind == Kind::Float {
        return Sample::Float(value);
    }
    let counts = vec![i as u64, (i / 2) as u64, version as u64 + 1];
    Sample::Histogram(Arc::new(Histogram::Int(IntHistogram {
        count: counts.iter().sum(),
        sum: value,
        positive: Buckets { spans: vec![Span { offset: 1, length: 3 }], counts },
        ..IntHistogram::default()
    })))
}

fn mark_of(kind: Kind, i: usize, version: usize) -> u64 {
    kinds::mark(&sample_of(kind, i, version))
}

fn batch_of(kind: Kind, ids: &[usize], version: usize) -> WriteBatch {
    let sample = |&i: &usize| (NOW_MS + i as i64, sample_of(kind, i, version));
    let samples: Vec<(i64, Sample)> = ids.iter().map(sample).collect();
    let mut batch = WriteBatch::from_labels();
    kinds::push(&mut batch, &labels(0), &samples);
    batch
}

#[track_caller]
fn check_samples(test_env: &TestEnv, head: &Head, want: &BTreeMap<i64, u64>) {
    let selector = chronolith_model::Selector { matchers: &[], range: chronolith_model::TimeRange::ALL };
    let found = read_once(test_env, head, "a", &selector);
    let samples = found.values().next().expect("the series is there");
    assert!(samples == want, "{} samples instead of {}", samples.len(), want.len());
}

/// Checks the bound: each out-of-order sample is encoded once, in any order of samples and
/// batches.
#[track_caller]
fn check_encoded(head: &Head, count: usize, what: &str) {
    let encoded = head.statistics().stats().samples.ooo_sealed;
    assert!(encoded <= count as u64, "{what}: {encoded} samples were encoded of {count}");
}

/// Regression: each full out-of-order buffer was merged with every chunk of the series: the work was
/// quadratic in their number; 300,000 samples of one series in one request stopped all writers and queries
/// for 6 s, a million for 135 s.
#[test]
fn each_sample_is_encoded_once_in_any_order() {
    check_orders(Kind::Float, 60_000);
}

/// Regression: full buffers of histograms were merged with every chunk between their first and last: 100,000
/// of one series in random order took minutes.
#[test]
fn each_histogram_is_encoded_once_in_any_order() {
    check_orders(Kind::Histogram, 20_000);
}

#[track_caller]
fn check_orders(kind: Kind, count: usize) {
    for (seed, order) in ORDERS.iter().enumerate() {
        let ids = ordered(order, count, seed as u64);
        assert_eq!(ids.len(), count, "{order}");
        for batch_len in [count, 1000, 77] {
            let test_env = test_env();
            let (head, _) = test_env.open();
            for part in ids.chunks(batch_len) {
                let outcome = test_env.write(&head, &tenant("a"), &batch_of(kind, part, 0)).unwrap();
                assert_eq!(outcome.accepted_count, part.len() as u64, "{order}");
            }
            check_encoded(&head, count, &format!("{kind:?}, {order}, {batch_len} a batch"));
            let want = (0..count).map(|i| (NOW_MS + i as i64, mark_of(kind, i, 0))).collect();
            check_samples(&test_env, &head, &want);
            let again = test_env.write(&head, &tenant("a"), &batch_of(kind, &ids[..count / 10], 0)).unwrap();
            assert_eq!(again.accepted_count, count as u64 / 10, "{order}: a retry is accepted");
            check_samples(&test_env, &head, &want);
        }
    }
}

/// The first or the last value at a timestamp wins, by the policy of the tenant, wherever the sample is
/// stored by then; a restart and a power failure restore the same.
#[test]
fn second_values_are_decided_alike_in_any_order() {
    check_second_values(Kind::Float, 20_000);
    check_second_values(Kind::Histogram, 5000);
}

#[track_caller]
fn check_second_values(kind: Kind, count: usize) {
    for policy in [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins] {
        for (seed, order) in ORDERS.iter().enumerate() {
            let mut test_env = test_env();
            test_env.limits.duplicates = policy;
            let (head, _) = test_env.open();
            let ids = ordered(order, count, seed as u64);
            let second: Vec<usize> = ordered("random", count, 99).into_iter().take(count / 4).collect();
            let mut want = BTreeMap::new();
            for (at, part) in ids.chunks(3000).enumerate() {
                let doubled: Vec<usize> = second.iter().copied().skip(at * 500).take(500).collect();
                for (part, version) in [(part, 0), (&*doubled, 1)] {
                    test_env.write(&head, &tenant("a"), &batch_of(kind, part, version)).unwrap();
                    for &i in part {
                        let bits = mark_of(kind, i, version);
                        let slot = want.entry(NOW_MS + i as i64).or_insert(bits);
                        if policy == DuplicatePolicy::LastWins {
                            *slot = bits;
                        }
                    }
                }
            }
            check_samples(&test_env, &head, &want);
            drop(head);
            test_env.disk.crash();
            let (head, report) = test_env.open();
            assert!(report.notes.is_empty(), "{order}: {:?}", report.notes);
            check_samples(&test_env, &head, &want);
        }
    }
}

/// One series is written in a hostile order by two writers while readers select and decode it.
struct Contest {
    test_env: TestEnv,
    kind: Kind,
    /// The numbers that each writer writes, in batches.
    orders: [Vec<usize>; 2],
    /// Number of acknowledged batches.
    acked: [AtomicUsize; 2],
    is_over: AtomicBool,
}

const CONTEST_BATCH: usize = 97;

impl Contest {
    fn write(&self, head: &Head, writer: usize) {
        for part in self.orders[writer].chunks(CONTEST_BATCH) {
            let outcome = self.test_env.write(head, &tenant("a"), &batch_of(self.kind, part, 0)).unwrap();
            assert_eq!(outcome.accepted_count, part.len() as u64);
            self.acked[writer].fetch_add(part.len(), Ordering::SeqCst);
        }
    }

    /// Reads all samples: those acknowledged before exist once, and none that was not written.
    fn read(&self, head: &Head) {
        let before = [0, 1].map(|writer| self.acked[writer].load(Ordering::SeqCst));
        let selector = Selector { matchers: &[], range: TimeRange::ALL };
        let mut columns = Columns::default();
        for series in
            head.reader().select(&tenant("a"), &selector, &self.test_env.context()).expect("selects")
        {
            series.samples.read(TimeRange::ALL, &mut columns).expect("decodes");
        }
        assert!(columns.times.is_sorted_by(|a, b| a < b), "ascending, each time once");
        let found = kinds::marks(&columns);
        for (time, mark) in &found {
            assert_eq!(*mark, mark_of(self.kind, (time - NOW_MS) as usize, 0), "the value that was written");
        }
        for (order, count) in self.orders.iter().zip(before) {
            for i in &order[..count] {
                assert!(found.contains_key(&(NOW_MS + *i as i64)), "{i} was acknowledged before the read");
            }
        }
    }
}

/// Chunks are encoded again, split and replaced in slices while readers copy them.
#[test]
fn readers_see_every_acknowledged_sample_once_while_others_write_out_of_order() {
    for (kind, count) in KINDS.into_iter().zip([40_000, 12_000]) {
        for order in ["random", "descending", "interleaved"] {
            let ids = ordered(order, count, 5);
            let half = |writer: usize| ids.iter().copied().skip(writer).step_by(2).collect();
            let contest = Contest {
                test_env: test_env(),
                kind,
                orders: [half(0), half(1)],
                acked: Default::default(),
                is_over: AtomicBool::new(false),
            };
            let (head, _) = contest.test_env.open();
            std::thread::scope(|scope| {
                let writers = [0, 1].map(|writer| {
                    let (contest, head) = (&contest, &head);
                    scope.spawn(move || contest.write(head, writer))
                });
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !contest.is_over.load(Ordering::SeqCst) {
                            contest.read(&head);
                        }
                    });
                }
                let written = writers.map(std::thread::ScopedJoinHandle::join);
                contest.is_over.store(true, Ordering::SeqCst);
                assert!(written.iter().all(Result::is_ok), "{kind:?}, {order}");
            });
            contest.read(&head);
            check_encoded(&head, count, &format!("{kind:?}, {order}"));
        }
    }
}
