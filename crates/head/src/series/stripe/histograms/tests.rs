//! Floats and histograms of a series in any order, in order and out of order, duplicates, other values and
//! deletions: each is decided as by a map, and the stored samples are those of the map.

use std::collections::BTreeMap;
use std::path::Path;

use chronolith_base::Env;
use chronolith_model::histogram::{Buckets, ResetHint, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{DuplicatePolicy, FloatHistogram, IntHistogram};

use super::super::AppendContext;
use super::super::AppendOutcome;
use super::*;
use crate::read::source::{RecentFiles, copy_chunks, copy_histograms, merge_chunks};
use crate::series::sealed::SealedStore;
use crate::series::windows::WindowTally;

fn store_of(env: &Env) -> SealedStore {
    SealedStore::new(env, Path::new("/d"), 1 << 20, 1, Vec::new())
}

static UNLIMITED: HistogramBudget = HistogramBudget::new(u64::MAX);

fn context_of<'a>(
    env: &'a Env,
    store: &'a SealedStore,
    window_ms: i64,
    duplicates: DuplicatePolicy,
) -> AppendContext<'a> {
    AppendContext {
        store,
        disk: &*env.disk,
        histograms: &UNLIMITED,
        window_ms,
        duplicates,
        windows: WindowTally::new(window_ms),
    }
}

/// Returns a histogram whose buckets come and go with `seed`, of integers or floats.
fn histogram(seed: u64) -> Arc<Histogram> {
    let spans = vec![
        Span { offset: (seed % 5) as i32 - 2, length: 1 + (seed % 3) as u32 },
        Span { offset: 1 + (seed % 2) as i32, length: 2 },
    ];
    let counts: Vec<u64> =
        (0..spans.iter().map(|s| u64::from(s.length)).sum()).map(|at| seed / 4 * (at % 3) + 1).collect();
    let total: u64 = counts.iter().sum();
    let reset_hint = if seed.is_multiple_of(11) { ResetHint::Gauge } else { ResetHint::Unknown };
    let schema = if seed.is_multiple_of(17) { 2 } else { 1 };
    Arc::new(if seed.is_multiple_of(7) {
        let counts = counts.iter().map(|&count| count as f64 + 0.5).collect::<Vec<_>>();
        Histogram::Float(FloatHistogram {
            reset_hint,
            schema,
            count: counts.iter().sum(),
            sum: seed as f64,
            positive: Buckets { spans, counts },
            ..FloatHistogram::default()
        })
    } else {
        Histogram::Int(IntHistogram {
            reset_hint,
            schema,
            count: total + 1,
            zero_count: 1,
            zero_threshold: 0.001,
            sum: seed as f64,
            positive: Buckets { spans, counts },
            ..IntHistogram::default()
        })
    })
}

#[derive(Debug, Clone)]
enum Sample {
    Float(u64),
    Histogram(Arc<Histogram>),
}

impl Sample {
    fn is_same(&self, other: &Sample) -> bool {
        match (self, other) {
            (Sample::Float(a), Sample::Float(b)) => a == b,
            (Sample::Histogram(a), Sample::Histogram(b)) => a.is_equivalent(b),
            _ => false,
        }
    }
}

/// Returns the samples of the series as a query reads them.
fn read(stripe: &Stripe, cx: &AppendContext<'_>, id: u32) -> Columns {
    let series = stripe.series(id).expect("the series exists");
    let (mut chunks, mut files) = (Vec::new(), RecentFiles::new(cx.store));
    copy_chunks(stripe, &mut files, series, TimeRange::ALL, &mut chunks);
    copy_histograms(stripe, &mut files, id, TimeRange::ALL, &mut chunks);
    let mut out = Columns::default();
    merge_chunks(cx.disk, &chunks, TimeRange::ALL, &mut out).expect("chunks are readable");
    out
}

#[track_caller]
fn check_stored(stripe: &Stripe, cx: &AppendContext<'_>, stored: &BTreeMap<i64, Sample>, what: &str) {
    let columns = read(stripe, cx, 1);
    assert_eq!(columns.times, stored.keys().copied().collect::<Vec<_>>(), "{what}");
    for (at, (time, want)) in stored.iter().enumerate() {
        let got = match columns.histogram_at(at) {
            Some(histogram) => Sample::Histogram(histogram.clone()),
            None => Sample::Float(columns.values[at].to_bits()),
        };
        assert!(got.is_same(want), "{what}: {time}: {got:?} instead of {want:?}");
    }
    let histograms = stripe.histograms_of(1);
    let nodes: Vec<_> =
        histograms.into_iter().flat_map(|histograms| histograms.sealed.iter()).copied().collect();
    for node in &nodes {
        let window = TimeRange::window_of(node.min_time, cx.window_ms);
        assert!(window.contains(node.max_time), "{what}: a chunk crosses a window");
    }
    assert!(nodes.windows(2).all(|pair| pair[0].max_time < pair[1].min_time), "{what}: chunks overlap");
}

#[test]
fn samples_of_both_kinds_are_decided_as_by_a_map() {
    let policies = [DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins];
    for (seed, duplicates) in (0..40).zip(policies.iter().cycle()) {
        let (env, _, _) = Env::fake(0, seed);
        let store = store_of(&env);
        let mut cx = context_of(&env, &store, 4_000, *duplicates);
        let mut stripe = Stripe::new();
        stripe.create(1, 0);
        let mut stored: BTreeMap<i64, Sample> = BTreeMap::new();
        let float_share = env.rng.below(10);
        for at in 0..1_500i64 {
            let back = if env.rng.below(10) < 7 { 0 } else { env.rng.below(at as u64 + 1) as i64 };
            let time = 10 * (at - back) + i64::from(env.rng.below(40) == 0);
            let sample = if env.rng.below(10) < float_share {
                Sample::Float(env.rng.below(2))
            } else {
                Sample::Histogram(histogram(at as u64 / 40 * 3 + env.rng.below(2)))
            };
            let outcome = match &sample {
                Sample::Float(bits) => stripe.append(&mut cx, 1, time, *bits),
                Sample::Histogram(one) => stripe.append_histogram(&mut cx, 1, time, one),
            };
            let known = stored.get(&time).map(|known| known.is_same(&sample));
            let what = format!("seed {seed}, sample {at} at {time}: {outcome:?}");
            match outcome {
                AppendOutcome::InOrder | AppendOutcome::OutOfOrder => assert_eq!(known, None, "{what}"),
                AppendOutcome::Duplicate => assert_eq!(known, Some(true), "{what}"),
                AppendOutcome::DuplicateTimestamp => {
                    assert_eq!((known, *duplicates), (Some(false), DuplicatePolicy::KeepFirst), "{what}");
                }
                AppendOutcome::Replaced => {
                    assert_eq!((known, *duplicates), (Some(false), DuplicatePolicy::LastWins), "{what}");
                }
                AppendOutcome::NotNewest | AppendOutcome::SeriesGone => {
                    panic!("the series exists, and the sample is decided")
                }
            }
            if outcome != AppendOutcome::DuplicateTimestamp {
                stored.insert(time, sample);
            }
            if env.rng.below(100) == 0 {
                stripe.seal_open(&mut cx, 1);
                let range = TimeRange::new(time - 300, time + 300);
                stripe.merge_out_of_order(&mut cx, 1, range);
                stripe.seal_histograms(&mut cx, 1, range);
            }
            if env.rng.below(150) == 0 {
                let range = TimeRange::new(time - 200, time + env.rng.below(400) as i64);
                let before = stored.len();
                stored.retain(|&time, _| !range.contains(time));
                let erased = stripe.erase(&mut cx, 1, range).sample_count;
                assert_eq!(erased as usize, before - stored.len(), "{what}");
            }
            if at % 50 == 0 {
                check_stored(&stripe, &cx, &stored, &what);
            }
        }
        let all = TimeRange { start: i64::MIN, end: i64::MAX };
        stripe.seal_open(&mut cx, 1);
        stripe.merge_out_of_order(&mut cx, 1, all);
        stripe.seal_histograms(&mut cx, 1, TimeRange::ALL);
        check_stored(&stripe, &cx, &stored, &format!("seed {seed} at its end"));
        let counted: i64 = cx.windows.drain().map(|span| span.count).sum();
        assert_eq!(counted, stored.len() as i64, "seed {seed}: samples are counted");
        stripe.erase(&mut cx, 1, TimeRange::ALL);
        assert!(stripe.is_empty(1) && stripe.chunk_count() == 0, "seed {seed}: nothing is left");
        assert_eq!(stripe.histograms.ooo_bytes, 0);
    }
}

/// A sender repeats a sample that its chunk has encoded again because new buckets appeared: it is still a
/// duplicate.
#[test]
fn duplicates_are_known_after_new_buckets() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000, DuplicatePolicy::KeepFirst);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let of = |counts: &[u64]| {
        let spans = vec![Span { offset: 0, length: counts.len() as u32 }];
        Arc::new(Histogram::Int(IntHistogram {
            count: counts.iter().sum(),
            positive: Buckets { spans, counts: counts.to_vec() },
            ..IntHistogram::default()
        }))
    };
    let samples = [of(&[1]), of(&[1, 2]), of(&[1, 2, 0, 5])];
    for round in 0..2 {
        for (time, one) in (0..).zip(&samples) {
            let outcome = stripe.append_histogram(&mut cx, 1, time, one);
            assert_eq!(outcome, if round == 0 { AppendOutcome::InOrder } else { AppendOutcome::Duplicate });
        }
    }
    assert_eq!(stripe.append_histogram(&mut cx, 1, 1, &of(&[1, 3])), AppendOutcome::DuplicateTimestamp);
}

#[test]
fn the_end_of_a_series_of_histograms_is_a_histogram() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000, DuplicatePolicy::KeepFirst);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    for _ in 0..2 {
        stripe.append_histogram(&mut cx, 1, 10, &histogram(4));
        let marked = stripe.append(&mut cx, 1, 20, STALE_NAN.to_bits());
        assert!(matches!(marked, AppendOutcome::InOrder | AppendOutcome::Duplicate));
    }
    let columns = read(&stripe, &cx, 1);
    assert_eq!(columns.histograms.len(), 2);
    assert!(matches!(**columns.histogram_at(1).unwrap(), Histogram::Int(ref one) if one.is_stale()));
    // A float sample makes it a series of floats, whose staleness marker is a float.
    stripe.append(&mut cx, 1, 30, 1.0f64.to_bits());
    stripe.append(&mut cx, 1, 40, STALE_NAN.to_bits());
    assert_eq!(read(&stripe, &cx, 1).histograms.len(), 2);
}

/// Buffered histograms are bounded in count and bytes, and their memory is freed.
#[test]
fn out_of_order_histograms_are_merged_when_they_are_many() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 10_000_000, DuplicatePolicy::KeepFirst);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    stripe.append_histogram(&mut cx, 1, 5_000_000, &histogram(1));
    let mut waiting_max = 0;
    for i in 0..1000i64 {
        let outcome = stripe.append_histogram(&mut cx, 1, (i * 7919) % 100_003, &histogram(1));
        assert_eq!(outcome, AppendOutcome::OutOfOrder);
        waiting_max = waiting_max.max(stripe.histograms_of(1).unwrap().ooo.len());
    }
    assert_eq!(waiting_max, super::super::ooo_buffer::OOO_COUNT_MAX - 1);
    assert_eq!(read(&stripe, &cx, 1).len(), 1001);
}
