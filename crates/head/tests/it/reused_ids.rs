//! Ids of departed series are reused: an id space of a few pages is used up many times, with kills at every
//! stage.
//!
//! Every value encodes its series, so a sample that appears under another series is detected.

use std::collections::{BTreeMap, BTreeSet};

use chronolith_base::Rng;
use chronolith_head::{Head, WindowSnapshot};
use chronolith_model::{MatchOp, Matcher, Reject, Selector, TimeRange};

use crate::harness::{NOW_MS, TestEnv, WINDOW_MS, batch, labels, part, read_once, tenant};

const PAGE_IDS: u64 = 1024;
const TENANTS: [&str; 2] = ["a", "b"];

/// A head with few ids, and the samples sent to it.
struct Tiny {
    test_env: TestEnv,
    head: Option<Head>,
    rng: Rng,
    /// Series ever created.
    series_ever: u64,
    /// Acknowledged samples that were not flushed, by tenant and series.
    live: BTreeMap<(usize, u64), BTreeSet<i64>>,
}

impl Tiny {
    fn new(seed: u64, pages: u64) -> Tiny {
        let mut test_env = TestEnv::new(seed);
        test_env.options.series_id_limit = (pages * PAGE_IDS) as u32;
        test_env.options.dead_count_min = 100;
        let head = Some(test_env.open().0);
        Tiny { test_env, head, rng: Rng::from_seed(seed), series_ever: 0, live: BTreeMap::new() }
    }

    fn head(&self) -> &Head {
        self.head.as_ref().expect("it is open")
    }

    /// Writes a sample of each series; returns the number rejected for lack of ids.
    fn write(&mut self, tenant_idx: usize, series: &[u64], time: i64) -> u64 {
        let rows: Vec<_> = series.iter().map(|&idx| (labels(idx), vec![(time, idx as f64)])).collect();
        let Ok(outcome) = self.test_env.write(self.head(), &tenant(TENANTS[tenant_idx]), &batch(&rows))
        else {
            return 0;
        };
        let refused = outcome.rejected[Reject::SeriesIdsExhausted as usize];
        assert_eq!(refused, outcome.rejected_count(), "{:?}", outcome.first_reject);
        if refused == 0 {
            for &idx in series {
                self.live.entry((tenant_idx, idx)).or_default().insert(time);
            }
        } else {
            // The head decides which ones were accepted.
            for idx in self.found(tenant_idx).keys() {
                if series.contains(idx) {
                    self.live.entry((tenant_idx, *idx)).or_default().insert(time);
                }
            }
        }
        refused
    }

    fn write_new(&mut self, tenant_idx: usize, count: u64, time: i64) -> u64 {
        let series: Vec<u64> = (self.series_ever..self.series_ever + count).collect();
        self.series_ever += count;
        self.write(tenant_idx, &series, time)
    }

    fn snapshot(&self, tenant_idx: usize, time: i64) -> Option<WindowSnapshot> {
        let window = TimeRange::window_of(time, WINDOW_MS);
        self.head().windows().snapshot(&tenant(TENANTS[tenant_idx]), window).ok()
    }

    /// Drops a window, as the store does after flushing it to a block.
    fn flush(&mut self, tenant_idx: usize, time: i64) {
        let Some(snapshot) = self.snapshot(tenant_idx, time) else { return };
        if snapshot.series().any(|series| series.is_err()) {
            return;
        }
        for series in snapshot.series().flatten() {
            let idx = series_idx(&series.labels.to_string());
            assert!(self.live.contains_key(&(tenant_idx, idx)) || series.damages.is_empty());
        }
        self.head().windows().drop(snapshot);
        let window = TimeRange::window_of(time, WINDOW_MS);
        for (_, times) in self.live.iter_mut().filter(|((of, _), _)| *of == tenant_idx) {
            times.retain(|time| !window.contains(*time));
        }
        self.live.retain(|_, times| !times.is_empty());
    }

    fn reclaim(&self) {
        for _ in 0..3 {
            let _ = self.head().reclaim_ids();
        }
    }

    /// Reads the samples of the head by series; every value must be of its own series.
    fn found(&self, tenant_idx: usize) -> BTreeMap<u64, BTreeSet<i64>> {
        let selector = Selector { matchers: &[], range: TimeRange::ALL };
        let all = read_once(&self.test_env, self.head(), TENANTS[tenant_idx], &selector);
        // By postings as well, whose ids do not ascend where ids were reused.
        let matcher = |name, op, value| Matcher::new(name, op, value).expect("compiles");
        let cases = [
            matcher("job", MatchOp::Equal, "job-1"),
            matcher("job", MatchOp::NotEqual, "job-1"),
            matcher("instance", MatchOp::Regex, "host-.*7"),
        ];
        for matchers in cases.chunks(1).chain([&cases[1..]]) {
            let range = TimeRange::ALL;
            let found =
                read_once(&self.test_env, self.head(), TENANTS[tenant_idx], &Selector { matchers, range });
            assert_eq!(found, part(&all, TENANTS[tenant_idx], matchers, range));
        }
        let mut out = BTreeMap::new();
        for ((_, labels), samples) in all {
            let idx = series_idx(&labels.to_string());
            for (&time, &mark) in &samples {
                assert_eq!(mark, (idx as f64).to_bits(), "{labels} has another series' sample at {time}");
            }
            out.insert(idx, samples.into_keys().collect());
        }
        out
    }

    /// Requires that all acknowledged samples exist; after a kill, flushed ones may reappear.
    fn check(&self, may_have_more: bool) {
        for tenant_idx in 0..TENANTS.len() {
            let found = self.found(tenant_idx);
            for ((_, idx), times) in self.live.iter().filter(|((of, _), _)| *of == tenant_idx) {
                let kept = found.get(idx).unwrap_or_else(|| panic!("series {idx} is lost"));
                assert!(times.is_subset(kept), "series {idx}: {times:?} of {kept:?}");
            }
            let own = self.live.keys().filter(|(of, _)| *of == tenant_idx).count();
            assert!(may_have_more || found.len() == own, "{} of {own}", found.len());
        }
    }

    fn kill(&mut self) {
        self.head = None;
        self.test_env.disk.crash();
        self.head = Some(self.test_env.open().0);
        self.check(true);
        // Flushed samples that reappeared are flushed again.
        for tenant_idx in 0..TENANTS.len() {
            let found = self.found(tenant_idx);
            for (idx, times) in found {
                self.live.entry((tenant_idx, idx)).or_default().extend(times);
            }
        }
    }
}

fn series_idx(labels: &str) -> u64 {
    let (_, rest) = labels.split_once("host-").expect("a host");
    rest.split('"').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Regression: after 2^32 series every new one was rejected for good.
#[test]
fn the_id_space_is_reused_many_times() {
    let mut tiny = Tiny::new(1, 16);
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start;
    // Series that stay all the time, with one more sample per round.
    let steady: Vec<u64> = (0..10).collect();
    tiny.series_ever = 10;
    for round in 0..40 {
        let time = base + round;
        assert_eq!(tiny.write(0, &steady, base + WINDOW_MS + round), 0);
        assert_eq!(tiny.write_new(round as usize % 2, 1500, time), 0, "round {round}");
        tiny.check(false);
        tiny.flush(round as usize % 2, time);
        tiny.head().windows().forget_unused_tenants();
        tiny.reclaim();
        tiny.check(false);
    }
    assert!(tiny.series_ever > 3 * 16 * PAGE_IDS);
    assert!(
        tiny.head()
            .statistics()
            .memory()
            .iter()
            .all(|part| part.name != "wire_key_cache" || part.count < 20_000)
    );
    tiny.kill();
}

/// Without departed series there are no ids to reuse, and ids are available again as soon as some depart.
#[test]
fn a_full_id_space_refuses_until_series_depart() {
    let mut tiny = Tiny::new(2, 3);
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start;
    let refused = tiny.write_new(0, 4 * PAGE_IDS, base);
    assert_eq!(refused, PAGE_IDS);
    tiny.reclaim();
    assert_eq!(tiny.write_new(1, 5, base), 5);
    tiny.check(false);
    tiny.flush(0, base);
    tiny.reclaim();
    assert_eq!(tiny.write_new(1, 5, base), 0);
    tiny.check(false);
    tiny.kill();
    assert_eq!(tiny.write_new(1, 5, base), 0);
}

/// A user of ids without a lock keeps their pages from being released.
#[test]
fn ids_in_use_are_not_reused() {
    let mut tiny = Tiny::new(3, 2);
    let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start;
    assert_eq!(tiny.write_new(0, 2 * PAGE_IDS, base), 0);
    let kept = tiny.snapshot(0, base).expect("taken");
    tiny.flush(0, base);
    for _ in 0..5 {
        tiny.reclaim();
        assert_eq!(tiny.write_new(0, 1, base), 1, "the snapshot has ids of the free pages");
    }
    drop(kept);
    tiny.reclaim();
    assert_eq!(tiny.write_new(0, 1, base), 0);
}

/// Series are created, leave and return; the process is killed between any two steps and within them, at any
/// write or sync.
#[test]
fn no_sample_appears_under_another_series_whenever_it_is_killed() {
    for seed in 0..6 {
        let mut tiny = Tiny::new(seed, 5);
        let base = TimeRange::window_of(NOW_MS, WINDOW_MS).start;
        let mut refused_count = 0;
        for step in 0..60i64 {
            let tenant_idx = tiny.rng.below(2) as usize;
            let window = tiny.rng.below(2) as i64 * WINDOW_MS;
            let time = base + window + step;
            let dies = tiny.rng.below(6) == 0;
            if dies {
                tiny.test_env.disk.fail_after(tiny.rng.below(60));
            }
            match tiny.rng.below(8) {
                0 | 1 => refused_count += tiny.write_new(tenant_idx, 700, time),
                2 => {
                    let known: Vec<u64> = (0..20)
                        .map(|_| tiny.rng.below(tiny.series_ever + 1))
                        .collect::<BTreeSet<_>>()
                        .into_iter()
                        .collect();
                    tiny.write(tenant_idx, &known, time);
                }
                3 => drop(tiny.head().checkpointer().roll_checkpoint()),
                4 => drop(tiny.head().checkpointer().checkpoint()),
                5 => tiny.reclaim(),
                _ => {
                    tiny.flush(tenant_idx, time);
                    tiny.head().windows().forget_unused_tenants();
                    let _ = tiny.head().checkpointer().checkpoint();
                }
            }
            if dies || tiny.rng.below(8) == 0 {
                tiny.kill();
            } else {
                tiny.check(false);
            }
        }
        assert!(
            tiny.series_ever > 5 * PAGE_IDS,
            "seed {seed}: {} series, {refused_count} refused",
            tiny.series_ever
        );
    }
}
