//! Random operations on a head against maps: appends in and out of order, duplicates, conflicts,
//! replacements, reorder buffers, deletions, window drops, checkpoints, crashes. A failure prints its seed.

use std::collections::BTreeMap;

use chronolith_base::Rng;
use chronolith_format::store_name;
use chronolith_head::{Head, WindowSeries};
use chronolith_model::reorder::Update;
use chronolith_model::{
    Columns, DuplicatePolicy, MatchOp, Matcher, Reject, ReorderRule, TimeRange, WriteBatch,
};

use crate::harness::{
    Model, NOW_MS, TestEnv, WINDOW_MS, batch, delete, labels, part, read, read_all, tenant,
};

const TENANTS: [&str; 2] = ["a", "b"];
const STEPS: usize = 120;

struct Life {
    test_env: TestEnv,
    head: Option<Head>,
    model: Model,
    /// Dropped samples: the head may or may not still know the newest of them.
    flushed: Model,
    rng: Rng,
    now: i64,
    /// Newest timestamp ever accepted, by tenant.
    newest: BTreeMap<&'static str, i64>,
}

impl Life {
    fn head(&self) -> &Head {
        self.head.as_ref().expect("the head is open")
    }

    fn below(&self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn random_batch(&self) -> Vec<(u64, Vec<(i64, f64)>)> {
        let mut out = Vec::new();
        for _ in 0..1 + self.below(12) {
            let mut samples = Vec::new();
            for _ in 0..1 + self.below(if self.below(5) == 0 { 200 } else { 4 }) {
                let time = match self.below(10) {
                    0..=5 => self.now + self.below(3000) as i64,
                    6..=7 => self.now - self.below(2 * WINDOW_MS as u64) as i64,
                    8 => NOW_MS - 10_000 + self.below(40) as i64,
                    _ => self.below(50) as i64 - 25,
                };
                samples.push((time, self.below(3) as f64));
            }
            if self.below(2) == 0 {
                samples.sort_by_key(|s| s.0);
            }
            out.push((self.below(30), samples));
        }
        out
    }

    fn append(&mut self) {
        let name = TENANTS[self.below(2) as usize];
        let series = self.random_batch();
        let (mut repeats, mut conflicts, mut accepted, mut too_old) = (0, 0, 0, 0);
        let mut newest = i64::MIN;
        let mut sent = Vec::new();
        let (rules, mut reordered) = (self.reorder_rules(), Vec::new());
        for (idx, mut samples) in series {
            let rule_idx = if rules.is_empty() || self.below(8) == 0 { 0 } else { idx as u16 % 3 };
            reordered.push(rule_idx);
            if let Some(rule) = usize::from(rule_idx).checked_sub(1).map(|idx| &rules[idx]) {
                samples.iter_mut().for_each(|(time, _)| *time = rule.round_up(*time));
            }
            let flushed = self.flushed.get(&(name.to_owned(), labels(idx)));
            samples.retain(|(time, _)| flushed.is_none_or(|f| !f.contains_key(time)));
            let limits = &self.test_env.limits;
            let bound = match limits.out_of_order_ms {
                0 => i64::MIN,
                ms => self.newest.get(name).map_or(i64::MIN, |newest| newest - ms),
            };
            let stored = self.model.entry((name.to_owned(), labels(idx))).or_default();
            for &(time, value) in &samples {
                if time < bound {
                    too_old += 1;
                    continue;
                }
                newest = newest.max(time);
                match stored.get(&time) {
                    None => {
                        stored.insert(time, value.to_bits());
                        accepted += 1;
                    }
                    Some(&bits) if bits == value.to_bits() => {
                        accepted += 1;
                        repeats += 1;
                    }
                    Some(_) if limits.duplicates == DuplicatePolicy::LastWins => {
                        stored.insert(time, value.to_bits());
                        accepted += 1;
                    }
                    Some(_) => {
                        conflicts += 1;
                    }
                }
            }
            sent.push((labels(idx), samples));
        }
        let mut sent = batch(&sent);
        if !rules.is_empty() {
            (sent.reorder_rules, sent.reordered) = (rules, reordered);
            // Rounding up gives the timestamps of the model.
            for (series, rule_idx) in sent.series.iter().zip(&sent.reordered) {
                let times = &mut sent.times[series.samples.start as usize..series.samples.end as usize];
                if *rule_idx > 0 {
                    times.iter_mut().for_each(|time| *time -= self.below(100) as i64);
                }
            }
            // A value that a buffer has already counts as replaced.
            repeats = 0;
        }
        let has_rules = !sent.reordered.is_empty();
        let outcome = self.test_env.write(self.head(), &tenant(name), &sent).expect("written");
        let rejected = |kind: Reject| outcome.rejected[kind as usize];
        let repeated_count = if has_rules { 0 } else { outcome.repeated_count };
        assert_eq!((outcome.accepted_count, repeated_count), (accepted, repeats));
        let got = (rejected(Reject::DuplicateTimestamp), rejected(Reject::OutOfOrder));
        assert_eq!(got, (conflicts, too_old));
        assert_eq!(outcome.rejected_count(), conflicts + too_old);
        let known = self.newest.entry(name).or_insert(newest);
        *known = newest.max(*known);
        self.now += self.below(4000) as i64;
    }

    /// Rules of the series of a batch, of which the last value wins; empty in some lives.
    fn reorder_rules(&self) -> Vec<ReorderRule> {
        let limits = &self.test_env.limits;
        if limits.duplicates != DuplicatePolicy::LastWins || limits.out_of_order_ms > 0 {
            return Vec::new();
        }
        let rule = |interval_ms, len| ReorderRule::new(interval_ms, len, Update::Allow).expect("valid");
        // A checkpoint seals the points of the long window in chunks, but not the points of the short one.
        vec![rule(700, 120), rule(1000, 5)]
    }

    /// Requires that a deletion removes exactly the samples of the matched series in the range.
    fn delete(&mut self) {
        let name = TENANTS[self.below(2) as usize];
        let start = match self.below(3) {
            0 => i64::MIN / 4,
            1 => self.now - self.below(3 * WINDOW_MS as u64) as i64,
            _ => NOW_MS - 10_000 + self.below(40) as i64,
        };
        let len = [1, 40, 3000, 2 * WINDOW_MS, i64::MAX / 2][self.below(5) as usize];
        let range = TimeRange::new(start, start + len);
        let selectors: Vec<Vec<Matcher>> = (0..1 + self.below(2))
            .map(|_| match self.below(2) {
                0 => vec![Matcher::equal("job", &format!("job-{}", self.below(4)))],
                _ => vec![Matcher::equal("instance", &format!("host-{}", self.below(30)))],
            })
            .collect();
        let mut want = 0;
        for (key, samples) in self.model.iter_mut().filter(|(key, _)| key.0 == name) {
            if selectors.iter().any(|matchers| matchers.iter().all(|m| m.matches_labels(&key.1))) {
                let before = samples.len();
                samples.retain(|time, _| !range.contains(*time));
                want += before - samples.len();
            }
        }
        assert_eq!(delete(self.head(), name, &selectors, range), want as u64, "{range:?}");
        let ctx = self.test_env.context();
        let all = chronolith_model::Selector { matchers: &[], range: TimeRange::ALL };
        let left = self
            .head()
            .reader()
            .label_values(&tenant(name), "instance", &all, 0, &ctx)
            .expect("listed")
            .len();
        let alive = self.model.iter().filter(|(key, samples)| key.0 == name && !samples.is_empty());
        assert_eq!(left, alive.count(), "series without samples are not listed");
    }

    /// Requires that a snapshot has exactly the samples of the window, and that dropping it removes them
    /// alone.
    fn flush_window(&mut self) {
        let windows = self.head().windows().list();
        if windows.is_empty() {
            return;
        }
        let stat = windows[self.below(windows.len() as u64) as usize].clone();
        let snapshot = self.head().windows().snapshot(&stat.tenant, stat.range).expect("snapshot");
        let name = &*store_name(&stat.tenant);
        let late_batch = if self.below(2) == 0 { Some(self.below(30)) } else { None };
        let mut want = part(&self.model, name, &[], stat.range);
        if let Some(idx) = late_batch {
            // Samples that arrive between snapshot and drop stay.
            let time = stat.range.start + self.below(WINDOW_MS as u64) as i64;
            let key = (name.to_owned(), labels(idx));
            let stored = self.model.entry(key.clone()).or_default();
            let flushed = self.flushed.get(&key).is_some_and(|f| f.contains_key(&time));
            if !flushed && !stored.contains_key(&time) {
                stored.insert(time, 9f64.to_bits());
                self.test_env
                    .write(self.head(), &stat.tenant, &batch(&[(key.1, vec![(time, 9.0)])]))
                    .expect("written");
            }
        }
        let mut last = None;
        for item in snapshot.series() {
            let WindowSeries { labels, chunks, damages, .. } = item.expect("series of a snapshot");
            assert!(damages.is_empty());
            assert!(last.as_ref() < Some(&labels), "label order");
            let mut columns = Columns::default();
            for chunk in &chunks {
                let before = columns.len();
                chronolith_format::chunk::kinds::decode(
                    chunk.encoding,
                    &chunk.bytes,
                    TimeRange::ALL,
                    &mut columns,
                )
                .expect("decodes");
                assert_eq!(columns.len() - before, usize::from(chunk.count));
                assert_eq!(
                    (columns.times[before], columns.times[columns.len() - 1]),
                    (chunk.min_time, chunk.max_time)
                );
            }
            let got: BTreeMap<i64, u64> =
                columns.times.iter().copied().zip(columns.values.iter().map(|v| v.to_bits())).collect();
            assert_eq!(got.len(), columns.len());
            let key = (name.to_owned(), labels.clone());
            assert_eq!(Some(&got), want.get(&key), "{labels}");
            want.remove(&key);
            let stored = self.model.get_mut(&key).expect("known series");
            stored.retain(|time, _| !got.contains_key(time));
            self.flushed.entry(key).or_default().extend(got);
            last = Some(labels);
        }
        assert!(want.is_empty(), "the snapshot lacks {want:?}");
        self.head().windows().drop(snapshot);
        // As the store does: dropped samples must not come back from the WAL.
        self.head().checkpointer().checkpoint().expect("checkpoint");
    }

    fn crash(&mut self, lose_power: bool) {
        if lose_power {
            self.test_env.disk.crash();
        }
        self.head = None;
        let (head, report) = self.test_env.open();
        assert_eq!(report.notes, Vec::<String>::new());
        self.head = Some(head);
        self.compare_all();
    }

    fn compare_all(&mut self) {
        self.model.retain(|_, samples| !samples.is_empty());
        let found = read_all(&self.test_env, self.head(), &TENANTS);
        for (key, want) in &self.model {
            let got = found.get(key).cloned().unwrap_or_default();
            let lost: Vec<_> = want.iter().filter(|(t, v)| got.get(t) != Some(v)).collect();
            let extra: Vec<_> = got.iter().filter(|(t, _)| !want.contains_key(t)).collect();
            assert!(lost.is_empty() && extra.is_empty(), "{key:?} lacks {lost:?}, has {extra:?} too much");
        }
        assert_eq!(found.len(), self.model.len(), "only series of the model");
        let mut counts: BTreeMap<(String, i64), u64> = BTreeMap::new();
        for ((name, _), samples) in &self.model {
            for time in samples.keys() {
                *counts.entry((name.clone(), TimeRange::window_of(*time, WINDOW_MS).start)).or_default() += 1;
            }
        }
        let got: BTreeMap<(String, i64), u64> = self
            .head()
            .windows()
            .list()
            .into_iter()
            .map(|w| ((store_name(&w.tenant).into_owned(), w.range.start), w.sample_count))
            .collect();
        // Out-of-order samples with the timestamp of another count as well.
        assert!(got.keys().eq(counts.keys()), "windows {got:?}, not {counts:?}");
        assert!(
            got.values().zip(counts.values()).all(|(got, least)| got >= least),
            "windows have {got:?}, at least {counts:?} is stored"
        );
    }

    fn compare_part(&mut self) {
        let start = self.now - self.below(3 * WINDOW_MS as u64) as i64;
        let range = TimeRange::new(start, start + self.below(WINDOW_MS as u64) as i64);
        let matchers = [
            Matcher::equal("job", &format!("job-{}", self.below(3))),
            Matcher::new("instance", MatchOp::NotRegex, "host-1.*").expect("a pattern"),
        ];
        let name = TENANTS[self.below(2) as usize];
        assert_eq!(
            read(&self.test_env, self.head(), name, &matchers, range),
            part(&self.model, name, &matchers, range)
        );
    }
}

fn live(seed: u64) {
    println!("seed {seed}");
    let mut test_env = TestEnv::new(seed);
    if seed % 2 == 1 {
        test_env.limits.duplicates = DuplicatePolicy::LastWins;
    }
    if seed % 5 == 4 {
        test_env.limits.out_of_order_ms = WINDOW_MS / 2;
    }
    let (head, _) = test_env.open();
    let mut life = Life {
        test_env,
        head: Some(head),
        model: Model::new(),
        flushed: Model::new(),
        rng: Rng::from_seed(seed ^ 0xabc),
        now: NOW_MS - 2_000_000,
        newest: BTreeMap::new(),
    };
    for _ in 0..STEPS {
        match life.below(20) {
            0..=10 => life.append(),
            // Departed series may take the newest timestamp of the tenant with them.
            11..=12 | 15 if life.test_env.limits.out_of_order_ms > 0 => life.append(),
            11..=12 => life.delete(),
            13..=14 => life.compare_part(),
            15 => life.flush_window(),
            16 => {
                life.head().checkpointer().checkpoint().expect("checkpoint");
            }
            17 => life.crash(true),
            18 => life.crash(false),
            19 if life.below(2) == 0 => {
                life.test_env.clock.advance(std::time::Duration::from_secs(life.below(400)));
                life.head().checkpointer().roll_checkpoint().expect("a part of the checkpoint");
            }
            _ => {
                if life.below(3) == 0 {
                    life.head().close().expect("closes");
                    life.crash(true);
                }
                life.compare_all();
            }
        }
    }
    life.compare_all();
}

#[test]
fn random_lives_match_the_model() {
    (0..40).for_each(live);
}

#[test]
fn names_values_and_cardinality() {
    let test_env = TestEnv::new(1);
    let (head, _) = test_env.open();
    let series: Vec<_> = (0..10).map(|i| (labels(i), vec![(NOW_MS + i as i64, 1.0)])).collect();
    test_env.write(&head, &tenant("a"), &batch(&series)).unwrap();
    let ctx = test_env.context();
    let matchers = [Matcher::equal("job", "job-1")];
    let all = chronolith_model::Selector { matchers: &[], range: TimeRange::ALL };
    let some = chronolith_model::Selector { matchers: &matchers, range: TimeRange::ALL };
    let late =
        chronolith_model::Selector { matchers: &matchers, range: TimeRange::new(NOW_MS + 5, NOW_MS + 9) };
    assert_eq!(
        head.reader().label_names(&tenant("a"), &all, 0, &ctx).unwrap(),
        ["__name__", "instance", "job"]
    );
    assert_eq!(head.reader().label_values(&tenant("a"), "job", &all, 2, &ctx).unwrap(), ["job-0", "job-1"]);
    assert_eq!(
        head.reader().label_values(&tenant("a"), "instance", &some, 0, &ctx).unwrap(),
        ["host-1", "host-4", "host-7"]
    );
    assert_eq!(head.reader().label_values(&tenant("a"), "instance", &late, 0, &ctx).unwrap(), ["host-7"]);
    assert!(head.reader().label_names(&tenant("b"), &all, 0, &ctx).unwrap().is_empty());
    let cardinality = head.statistics().cardinality(&tenant("a"), 2);
    assert_eq!((cardinality.series_count, cardinality.label_pair_count), (10, 14));
    assert_eq!(cardinality.series_by_pair, [("__name__=up".to_owned(), 10), ("job=job-0".to_owned(), 4)]);
    assert_eq!(head.statistics().tenants(), [tenant("a")]);
    let stats = head.statistics().stats();
    assert_eq!((stats.series, stats.chunks, stats.samples.appended), (10, 10, 10));
}

#[test]
fn rejects_are_counted_by_kind() {
    use chronolith_model::{Labels, Reject};
    let mut test_env = TestEnv::new(2);
    test_env.limits.series_max = 2;
    test_env.limits.retention_ms = 1_000_000;
    test_env.limits.label_value_bytes_max = 10;
    let (head, _) = test_env.open();
    let check = |pairs: &[(&str, &str)], samples: &[(i64, f64)], want: Option<Reject>| {
        let mut one = WriteBatch::from_labels();
        one.push_labels(&Labels::from_pairs(pairs.iter().copied()), samples);
        let outcome = test_env.write(&head, &tenant("a"), &one).unwrap();
        assert_eq!(outcome.first_reject.map(|r| r.0), want, "{pairs:?} {samples:?}");
    };
    let now = [(NOW_MS, 1.0)];
    check(&[("a", "b")], &now, Some(Reject::NoMetricName));
    check(&[("__name__", "m"), ("a", "12345678901")], &now, Some(Reject::LabelValueTooLong));
    check(&[("__name__", "m")], &[(NOW_MS + 700_000, 1.0)], Some(Reject::OutOfBounds));
    check(&[("__name__", "m")], &[(NOW_MS - 1_000_001, 1.0)], Some(Reject::TooOld));
    assert_eq!(head.statistics().stats().series, 0, "refused samples make no series");
    check(&[("__name__", "m")], &now, None);
    check(&[("__name__", "m")], &[(NOW_MS, 2.0)], Some(Reject::DuplicateTimestamp));
    check(&[("__name__", "m")], &now, None);
    check(&[("__name__", "m")], &[(i64::MAX, 2.0)], Some(Reject::OutOfBounds));
    check(&[("__name__", "n")], &now, None);
    check(&[("__name__", "o")], &now, Some(Reject::SeriesLimit));
    check(&[("__name__", "n")], &[(NOW_MS + 1, 1.0)], None);
}

/// Series of a metric and values of a label are counted while they live, also after a restart; a limit that
/// was changed holds from the next write on, and other tenants have counts of their own.
#[test]
fn series_of_a_metric_and_values_of_a_label_have_limits() {
    use chronolith_model::{Labels, Reject};
    let mut test_env = TestEnv::new(5);
    let check = |test_env: &TestEnv, head: &Head, of: &str, pairs: &[(&str, &str)], want: Option<Reject>| {
        let mut one = WriteBatch::from_labels();
        one.push_labels(&Labels::from_pairs(pairs.iter().copied()), &[(NOW_MS, 1.0)]);
        let outcome = test_env.write(head, &tenant(of), &one).unwrap();
        assert_eq!(outcome.first_reject.as_ref().map(|r| r.0), want, "{of} {pairs:?}");
        want.map(|kind| outcome.message(kind).into_owned()).unwrap_or_default()
    };
    (test_env.limits.ingestion.metric_series_max, test_env.limits.ingestion.label_values_max) = (3, 2);
    let (mut head, _) = test_env.open();
    for restarted in [false, true] {
        if restarted {
            drop(head);
            head = test_env.open().0;
        }
        let good: [&[(&str, &str)]; 5] = [
            &[("__name__", "m")],
            &[("__name__", "m"), ("a", "1")],
            &[("__name__", "m"), ("a", "2")],
            &[("__name__", "n"), ("a", "1")],
            &[("__name__", "n"), ("b", "1")],
        ];
        good.iter().for_each(|pairs| drop(check(&test_env, &head, "x", pairs, None)));
        let text =
            check(&test_env, &head, "x", &[("__name__", "m"), ("b", "1")], Some(Reject::MetricSeriesLimit));
        assert_eq!(text, "metric \"m\" has 3 series, and series-per-metric-limit allows 3");
        let text =
            check(&test_env, &head, "x", &[("__name__", "o"), ("a", "3")], Some(Reject::LabelValueLimit));
        assert_eq!(text, "label \"a\" has 2 values, and values-per-label-limit allows 2");
        assert_eq!(head.statistics().series_count_of(&tenant("x")), 5);
        let uses = head.statistics().largest_uses_of(&tenant("x"));
        assert_eq!((uses.metric_series, uses.label_values), (3, 2));
        check(&test_env, &head, "y", &[("__name__", "m"), ("a", "3")], None);
    }
    (test_env.limits.ingestion.metric_series_max, test_env.limits.ingestion.label_values_max) = (4, 3);
    check(&test_env, &head, "x", &[("__name__", "m"), ("a", "3")], None);
    check(&test_env, &head, "x", &[("__name__", "m"), ("b", "1")], Some(Reject::MetricSeriesLimit));
    check(&test_env, &head, "x", &[("__name__", "o"), ("a", "4")], Some(Reject::LabelValueLimit));
    (test_env.limits.ingestion.metric_series_max, test_env.limits.ingestion.label_values_max) = (0, 0);
    check(&test_env, &head, "x", &[("__name__", "m"), ("a", "4")], None);
}

/// The newest timestamp of any series of a tenant decides, and survives a restart; other tenants are
/// independent.
#[test]
fn samples_before_the_out_of_order_window_are_rejected() {
    let mut test_env = TestEnv::new(3);
    test_env.limits.out_of_order_ms = 60_000;
    let (mut head, _) = test_env.open();
    let check = |head: &Head, name: &str, idx: u64, time: i64, want: Option<Reject>| {
        let outcome =
            test_env.write(head, &tenant(name), &batch(&[(labels(idx), vec![(time, 1.0)])])).unwrap();
        assert_eq!(outcome.first_reject.map(|r| r.0), want, "{name} {idx} {time}");
    };
    check(&head, "a", 1, NOW_MS - 500_000, None);
    check(&head, "a", 2, NOW_MS, None);
    for restart in 0..3 {
        check(&head, "a", 1, NOW_MS - 60_000 - 1, Some(Reject::OutOfOrder));
        check(&head, "a", 9, NOW_MS - 60_000 - 1, Some(Reject::OutOfOrder));
        check(&head, "a", 1, NOW_MS - 60_000 + restart, None);
        check(&head, "b", 1, NOW_MS - 600_000 + restart, None);
        if restart == 1 {
            head.checkpointer().checkpoint().unwrap();
        }
        drop(head);
        test_env.disk.crash();
        head = test_env.open().0;
    }
    assert!(Reject::OutOfOrder.message().contains("out of order sample"));
    assert!(Reject::OutOfOrder.message().contains("too old sample"));
}

/// A replaced value stays replaced: in the open chunk, in a sealed one, in the window of a block, after a
/// restart from WAL or checkpoint, and after a change of the policy.
#[test]
fn the_last_value_wins_wherever_the_first_one_is() {
    let mut test_env = TestEnv::new(4);
    test_env.limits.duplicates = DuplicatePolicy::LastWins;
    let (mut head, _) = test_env.open();
    let old = TimeRange::window_of(NOW_MS, WINDOW_MS).start - 3 * WINDOW_MS;
    let times: Vec<i64> = (0..400).map(|i| old + i * 1000).collect();
    let row = |value: f64| (labels(1), times.iter().map(|&t| (t, value)).collect::<Vec<_>>());
    test_env.write(&head, &tenant("a"), &batch(&[row(1.0)])).unwrap();
    let mut want: BTreeMap<i64, f64> = times.iter().map(|&t| (t, 1.0)).collect();
    for (round, at) in [0, 5, 119, 120, 399, 398, 5, 0].into_iter().enumerate() {
        let value = 10.0 + round as f64;
        let one = batch(&[(labels(1), vec![(times[at], value)])]);
        let outcome = test_env.write(&head, &tenant("a"), &one).unwrap();
        assert_eq!((outcome.accepted_count, outcome.repeated_count), (1, 0));
        let outcome = test_env.write(&head, &tenant("a"), &one).unwrap();
        assert_eq!((outcome.accepted_count, outcome.repeated_count), (1, 1));
        want.insert(times[at], value);
        if round % 3 == 2 {
            head.checkpointer().checkpoint().unwrap();
        }
        if round % 2 == 1 {
            drop(head);
            test_env.disk.crash();
            head = test_env.open().0;
        }
        let got = read_all(&test_env, &head, &["a"]).remove(&("a".to_owned(), labels(1))).unwrap();
        let bits: BTreeMap<i64, u64> = want.iter().map(|(t, v)| (*t, v.to_bits())).collect();
        assert_eq!(got, bits, "round {round}");
    }
    test_env.limits.duplicates = DuplicatePolicy::KeepFirst;
    let outcome = test_env.write(&head, &tenant("a"), &batch(&[row(1.0)])).unwrap();
    assert_eq!(outcome.rejected[Reject::DuplicateTimestamp as usize], 6, "each replaced value is known");
    assert_eq!(outcome.repeated_count, 394);
}

/// Deleted samples disappear from queries and lists at once, stay deleted over restarts, and can be written
/// again.
#[test]
fn deleted_series_come_back_only_when_they_are_written_again() {
    let test_env = TestEnv::new(5);
    let (mut head, _) = test_env.open();
    let rows: Vec<_> = (0..6).map(|i| (labels(i), vec![(NOW_MS, 1.0), (NOW_MS + 1000, 2.0)])).collect();
    test_env.write(&head, &tenant("a"), &batch(&rows)).unwrap();
    let everything =
        || vec![vec![Matcher::equal("job", "job-1")], vec![Matcher::equal("instance", "host-1")]];
    assert_eq!(delete(&head, "a", &everything(), TimeRange::ALL), 4, "host-1 and host-4, each once");
    assert_eq!(delete(&head, "b", &everything(), TimeRange::ALL), 0);
    let all = chronolith_model::Selector { matchers: &[], range: TimeRange::ALL };
    for round in 0..3 {
        let ctx = test_env.context();
        assert_eq!(
            head.reader().label_values(&tenant("a"), "job", &all, 0, &ctx).unwrap(),
            ["job-0", "job-2"]
        );
        assert_eq!(read_all(&test_env, &head, &["a"]).len(), 4, "round {round}");
        if round == 1 {
            head.checkpointer().checkpoint().unwrap();
        }
        drop(head);
        test_env.disk.crash();
        head = test_env.open().0;
    }
    test_env.write(&head, &tenant("a"), &batch(&[(labels(1), vec![(NOW_MS + 1000, 7.0)])])).unwrap();
    for _ in 0..2 {
        let got = read_all(&test_env, &head, &["a"]).remove(&("a".to_owned(), labels(1))).unwrap();
        assert_eq!(got, BTreeMap::from([(NOW_MS + 1000, 7f64.to_bits())]));
        drop(head);
        test_env.disk.crash();
        head = test_env.open().0;
    }
}
