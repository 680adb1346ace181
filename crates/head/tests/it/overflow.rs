//! Series beyond a limit that are folded into one series per metric, compared with plain sums.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use chronolith_base::{Disk, Rng};
use chronolith_head::Head;
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Labels, Matcher, OverflowPolicy, Reject, TimeRange, WriteBatch};

use crate::harness::{NOW_MS, TestEnv, read, tenant};

/// Series that fill the limit of the tests.
const KNOWN_COUNT: u64 = 3;

fn fold_env(seed: u64) -> TestEnv {
    let mut test_env = TestEnv::new(seed);
    test_env.limits.series_max = KNOWN_COUNT as usize;
    test_env.limits.ingestion.overflow = OverflowPolicy::Fold;
    test_env
}

fn series(metric: &str, idx: u64) -> Labels {
    let idx = idx.to_string();
    match metric.strip_suffix("_bucket") {
        Some(_) => Labels::from_pairs([("__name__", metric), ("le", "0.5"), ("user", &*idx)]),
        None => Labels::from_pairs([("__name__", metric), ("user", &*idx)]),
    }
}

fn write(test_env: &TestEnv, head: &Head, samples: &[(&str, u64, i64, f64)]) {
    let mut batch = WriteBatch::from_labels();
    for &(metric, idx, time, value) in samples {
        batch.push_labels(&series(metric, idx), &[(NOW_MS + time, value)]);
    }
    let outcome = test_env.write(head, &tenant("a"), &batch).expect("written");
    assert_eq!(outcome.rejected_count(), 0, "{:?}", outcome.first_reject);
    assert_eq!(outcome.accepted_count, samples.len() as u64);
}

fn fill(test_env: &TestEnv, head: &Head) {
    let known: Vec<_> = (0..KNOWN_COUNT).map(|idx| ("known", idx, 0, 1.0)).collect();
    write(test_env, head, &known);
}

/// Samples of the overflow series of a metric, times relative to the clock.
fn folded(test_env: &TestEnv, head: &Head, metric: &str) -> Vec<(i64, f64)> {
    let matchers = [Matcher::equal("__name__", metric), Matcher::equal("__overflow__", "true")];
    let found = read(test_env, head, "a", &matchers, TimeRange::ALL);
    assert!(found.len() <= 1, "one series per metric: {:?}", found.keys());
    let samples = found.into_values().next().unwrap_or_default();
    samples.into_iter().map(|(time, bits)| (time - NOW_MS, f64::from_bits(bits))).collect()
}

fn newest(test_env: &TestEnv, head: &Head, metric: &str) -> Option<f64> {
    folded(test_env, head, metric).last().map(|sample| sample.1)
}

#[test]
fn counters_are_summed_by_increase_and_gauges_by_value() {
    let test_env = fold_env(1);
    let (head, _) = test_env.open();
    fill(&test_env, &head);
    write(
        &test_env,
        &head,
        &[("m_total", 1, 1_000, 100.0), ("m_total", 2, 1_000, 7.0), ("g", 1, 1_000, 4.0)],
    );
    write(
        &test_env,
        &head,
        &[("m_total", 1, 2_000, 105.0), ("g", 2, 2_000, 0.5), ("h_bucket", 1, 2_000, 9.0)],
    );
    write(&test_env, &head, &[("m_total", 2, 2_000, 1.0), ("h_bucket", 1, 3_000, 10.0)]);
    assert_eq!(folded(&test_env, &head, "m_total"), [(1_000, 0.0), (2_000, 6.0)]);
    assert_eq!(folded(&test_env, &head, "g"), [(1_000, 4.0), (2_000, 4.5)]);
    assert_eq!(folded(&test_env, &head, "g_overflow_active"), [(1_000, 1.0), (2_000, 2.0)]);
    let le = [Matcher::equal("__name__", "h_bucket"), Matcher::equal("le", "0.5")];
    assert_eq!(read(&test_env, &head, "a", &le, TimeRange::ALL).len(), 1, "a bucket keeps its bound");
    assert_eq!(newest(&test_env, &head, "h_bucket"), Some(1.0));
    write(&test_env, &head, &[("g", 1, 3_000, STALE_NAN)]);
    assert_eq!(newest(&test_env, &head, "g"), Some(0.5));
    let stats = head.statistics().overflow_of(&tenant("a"));
    assert_eq!(stats.series_count, 5);
    let metrics = head.statistics().overflow_metrics_of(&tenant("a"), 2);
    let shown: Vec<_> = metrics.iter().map(|one| (one.metric.as_str(), one.series_count)).collect();
    assert_eq!(shown, [("g", 2), ("m_total", 2)]);
    // Known series are what they were.
    let known = read(&test_env, &head, "a", &[Matcher::equal("__name__", "known")], TimeRange::ALL);
    assert_eq!(known.len() as u64, KNOWN_COUNT);
}

/// A batch with many times per series, as a sender has after an outage, has the sum of each time.
#[test]
fn a_batch_of_many_times_has_the_sum_of_each_time() {
    let test_env = fold_env(2);
    let (head, _) = test_env.open();
    fill(&test_env, &head);
    let mut batch = WriteBatch::from_labels();
    for idx in 0..10u64 {
        let samples: Vec<_> = (0..50).map(|k| (NOW_MS + k * 1000, (k * (idx as i64 + 1)) as f64)).collect();
        batch.push_labels(&series("m_total", idx), &samples);
    }
    test_env.write(&head, &tenant("a"), &batch).expect("written");
    let want: Vec<_> = (0..50).map(|k| (k * 1000, (k * 55) as f64)).collect();
    assert_eq!(folded(&test_env, &head, "m_total"), want);
    // A sample between two times of the sum counts at the newest one.
    write(&test_env, &head, &[("m_total", 77, 10_000, 1.0)]);
    write(&test_env, &head, &[("m_total", 77, 20_000, 5.0)]);
    let found = folded(&test_env, &head, "m_total");
    assert_eq!(found[..49], want[..49]);
    assert_eq!(found[49..], [(49_000, 49.0 * 55.0 + 4.0)]);
}

#[test]
fn a_folded_series_becomes_a_normal_one_once_there_is_room() {
    let mut test_env = fold_env(3);
    let (head, _) = test_env.open();
    fill(&test_env, &head);
    write(&test_env, &head, &[("m_total", 1, 1_000, 10.0), ("m_total", 2, 1_000, 10.0)]);
    write(&test_env, &head, &[("m_total", 1, 2_000, 12.0), ("m_total", 2, 2_000, 11.0)]);
    // The overflow series counts among the series of the tenant.
    test_env.limits.series_max = KNOWN_COUNT as usize + 2;
    write(&test_env, &head, &[("m_total", 1, 3_000, 20.0), ("m_total", 2, 3_000, 12.0)]);
    let all = read(&test_env, &head, "a", &[Matcher::equal("__name__", "m_total")], TimeRange::ALL);
    assert_eq!(all.len(), 2, "one normal series and the sum");
    assert_eq!(newest(&test_env, &head, "m_total"), Some(4.0), "increases of the first end with its entry");
    assert_eq!(head.statistics().overflow_of(&tenant("a")).series_count, 1);
    drop(head);
    let (head, _) = test_env.open();
    assert_eq!(head.statistics().overflow_of(&tenant("a")).series_count, 1);
    write(&test_env, &head, &[("m_total", 1, 4_000, 21.0), ("m_total", 2, 4_000, 13.0)]);
    assert_eq!(newest(&test_env, &head, "m_total"), Some(5.0));
}

#[test]
fn further_series_than_the_table_takes_are_rejected_and_the_limit_of_a_metric_folds() {
    let mut test_env = fold_env(4);
    test_env.limits.series_max = 1000;
    test_env.limits.ingestion.metric_series_max = 2;
    test_env.limits.ingestion.overflow_series_max = 2;
    let (head, _) = test_env.open();
    write(&test_env, &head, &(0..4).map(|idx| ("m_total", idx, 1_000, 1.0)).collect::<Vec<_>>());
    let mut batch = WriteBatch::from_labels();
    batch.push_labels(&series("m_total", 9), &[(NOW_MS, 1.0)]);
    let outcome = test_env.write(&head, &tenant("a"), &batch).expect("written");
    assert_eq!(outcome.first_reject.map(|reject| reject.0), Some(Reject::MetricSeriesLimit));
    write(
        &test_env,
        &head,
        &[("m_total", 0, 2_000, 5.0), ("m_total", 3, 2_000, 5.0), ("n_total", 0, 0, 1.0)],
    );
    assert_eq!(newest(&test_env, &head, "m_total"), Some(4.0));
    test_env.limits.ingestion.overflow = OverflowPolicy::Reject;
    let outcome = test_env.write(&head, &tenant("a"), &batch).expect("written");
    assert_eq!(outcome.rejected_count(), 1, "the limit of a reload holds for the next write");
}

/// State of the senders, and the sums that they expect.
struct Senders {
    rng: Rng,
    /// Last time and value of each series.
    last: BTreeMap<(&'static str, u64), (i64, f64)>,
    totals: BTreeMap<&'static str, f64>,
    time: i64,
}

impl Senders {
    /// Returns the samples of a scrape, and applies them to the expected sums.
    fn scrape(&mut self) -> Vec<(&'static str, u64, i64, f64)> {
        self.time += 1_000;
        let mut samples = Vec::new();
        for metric in ["a_total", "b_count", "g"] {
            for idx in 0..8 {
                if self.rng.below(4) == 0 {
                    continue;
                }
                let drawn = self.rng.below(9) as f64;
                let known = self.last.get(&(metric, idx)).copied();
                let value = match known {
                    Some((_, last)) if metric != "g" && drawn > 0.0 => last + drawn,
                    _ => drawn,
                };
                if let (Some((_, last)), true) = (known, metric != "g") {
                    *self.totals.entry(metric).or_default() +=
                        if value < last { value } else { value - last };
                }
                self.last.insert((metric, idx), (self.time, value));
                samples.push((metric, idx, self.time, value));
            }
        }
        let gauges = self.last.iter().filter(|(key, _)| key.0 == "g").map(|(_, last)| last.1);
        let gauge_sum = gauges.sum();
        self.totals.insert("g", gauge_sum);
        samples
    }

    fn check(&self, test_env: &TestEnv, head: &Head, what: &str) {
        for (metric, want) in &self.totals {
            assert_eq!(newest(test_env, head, metric), Some(*want), "{metric}, {what}");
        }
    }
}

fn batch_of(samples: &[(&str, u64, i64, f64)]) -> WriteBatch {
    let mut batch = WriteBatch::from_labels();
    for &(metric, idx, time, value) in samples {
        batch.push_labels(&series(metric, idx), &[(NOW_MS + time, value)]);
    }
    batch
}

/// Random counters with resets and gauges, retries of parts, checkpoints and restarts.
#[test]
fn sums_equal_those_of_plain_addition() {
    for seed in 0..12 {
        let test_env = fold_env(seed);
        let mut senders =
            Senders { rng: Rng::from_seed(seed), last: BTreeMap::new(), totals: BTreeMap::new(), time: 0 };
        let (mut head, _) = test_env.open();
        fill(&test_env, &head);
        let mut sent = Vec::new();
        for round in 0..60 {
            let samples = senders.scrape();
            // Two senders, of which one repeats what it has sent before.
            let half = samples.len() / 2;
            for part in [&samples[half..], &samples[..half], &samples[half..]] {
                test_env.write(&head, &tenant("a"), &batch_of(part)).expect("written");
            }
            sent.push(samples);
            let again = &sent[senders.rng.below(sent.len() as u64) as usize];
            test_env.write(&head, &tenant("a"), &batch_of(again)).expect("written");
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

/// Power loss at every disk operation: acknowledged increases are in the sums, and a retry adds it once.
#[test]
fn a_crash_at_any_disk_operation_neither_loses_nor_repeats_an_increase() {
    let mut op_count = 0;
    loop {
        let mut test_env = fold_env(op_count);
        test_env.options.wal_segment_bytes = 4 << 10;
        test_env.disk.fail_after(op_count);
        let mut senders =
            Senders { rng: Rng::from_seed(7), last: BTreeMap::new(), totals: BTreeMap::new(), time: 0 };
        let known: Vec<_> = (0..KNOWN_COUNT).map(|idx| ("known", idx, 0, 1.0)).collect();
        let mut batches = vec![batch_of(&known)];
        batches.extend((0..14).map(|_| batch_of(&senders.scrape())));
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
            if at % 5 == 4 {
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
    assert!(op_count > 40, "the script has many crash points, found {op_count}");
}

/// Each copy of the checkpoint of the tables can be lost; without both, sums begin again and are named.
#[test]
fn a_damaged_copy_of_the_checkpoint_loses_nothing() {
    for damaged in [&[0][..], &[1], &[0, 1]] {
        let test_env = fold_env(9);
        let (head, _) = test_env.open();
        fill(&test_env, &head);
        write(&test_env, &head, &[("m_total", 1, 1_000, 10.0)]);
        write(&test_env, &head, &[("m_total", 1, 2_000, 12.0)]);
        head.checkpointer().checkpoint().expect("checkpoint");
        drop(head);
        let dir = Path::new("/data/wal");
        let names: BTreeSet<String> =
            test_env.disk.list(dir).expect("listed").into_iter().map(|e| e.name).collect();
        let copies: Vec<&String> = names.iter().filter(|name| name.contains(".overflow")).collect();
        assert_eq!(copies.len(), 2, "older files are removed");
        for &at in damaged {
            let file = test_env.disk.open(&dir.join(copies[at])).expect("open");
            file.write_at(&[0xff], 30).expect("written");
        }
        let (head, report) = test_env.open();
        assert_eq!(report.notes.is_empty(), damaged.len() == 1, "{:?}", report.notes);
        assert_eq!(report.repaired.len(), damaged.len() % 2);
        write(&test_env, &head, &[("m_total", 1, 3_000, 15.0)]);
        let want = if damaged.len() == 2 { 0.0 } else { 5.0 };
        assert_eq!(newest(&test_env, &head, "m_total"), Some(want), "{damaged:?}");
    }
}

/// The label that exploded has most values. Estimates are in the checkpoint and end with their metric.
#[test]
fn the_label_that_exploded_has_the_largest_estimate() {
    let mut test_env = fold_env(10);
    test_env.limits.future_ms_max = 0;
    let (head, _) = test_env.open();
    fill(&test_env, &head);
    let write_all = |head: &Head, time: i64| {
        let mut batch = WriteBatch::from_labels();
        for idx in 0..3_000u64 {
            let user = idx.to_string();
            let zone = (idx % 3).to_string();
            let labels = Labels::from_pairs([
                ("__name__", "m_total"),
                ("job", "x"),
                ("user", &*user),
                ("zone", &*zone),
            ]);
            batch.push_labels(&labels, &[(NOW_MS + time, 1.0)]);
        }
        let outcome = test_env.write(head, &tenant("a"), &batch).expect("written");
        assert_eq!(outcome.rejected_count(), 0);
    };
    let check = |head: &Head| {
        let found = head.statistics().overflow_metrics_of(&tenant("a"), 10);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].metric.as_str(), found[0].series_count), ("m_total", 3_000));
        assert_eq!(found[0].since_ms, Some(NOW_MS));
        let labels: Vec<&str> = found[0].values_by_label.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, ["user", "zone", "job"]);
        let counts: Vec<u64> = found[0].values_by_label.iter().map(|(_, count)| *count).collect();
        assert!((2_200..3_800).contains(&counts[0]), "{counts:?}");
        assert_eq!(counts[1..], [3, 1]);
        counts
    };
    write_all(&head, 1_000);
    let counts = check(&head);
    // Known folded series add nothing.
    write_all(&head, 2_000);
    assert_eq!(check(&head), counts);
    head.checkpointer().checkpoint().expect("checkpoint");
    drop(head);
    test_env.disk.crash();
    let (head, _) = test_env.open();
    assert_eq!(check(&head), counts);
    assert_eq!(head.statistics().overflow_metrics_of(&tenant("a"), 0), []);
    // Two hours later the series of the metric are idle, and leave.
    write(&test_env, &head, &[("g", 1, 7_200_000, 1.0), ("g", 1, 7_201_000, 1.0)]);
    let found = head.statistics().overflow_metrics_of(&tenant("a"), 10);
    assert_eq!(found.iter().map(|one| one.metric.as_str()).collect::<Vec<_>>(), ["g"]);
}
