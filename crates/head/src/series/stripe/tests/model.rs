//! Samples of both kinds in any order, duplicates, other values and deletions, with and without lookups
//! before they are stored: each outcome and the stored samples equal a map's.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::histogram::{Buckets, ResetHint, Span};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{Columns, DuplicatePolicy, FloatHistogram, Histogram, IntHistogram, TimeRange};

use super::super::decoded::UNLIMITED;
use super::super::*;
use super::{context_of, store_of};
use crate::read::copy::{CopiedChunks, RecentFiles};
use crate::read::source::merge_chunks;
use crate::series::decide::AppendOutcome;
use crate::series::sealed_chunks::SealedChunk;
use crate::series::value::{SampleValue, Value};

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

/// Returns true if both are the same sample: histogram chunks add and drop empty buckets.
fn is_same(a: &SampleValue, b: &SampleValue) -> bool {
    match (a, b) {
        (SampleValue::Word(a), SampleValue::Word(b)) => a == b,
        (SampleValue::Histogram(a), SampleValue::Histogram(b)) => a.is_equivalent(b),
        _ => false,
    }
}

/// Returns the samples of the series as a query reads them.
pub(super) fn read(stripe: &Stripe, cx: &AppendContext<'_>, id: u32) -> Columns {
    let series = stripe.series(id).expect("the series exists");
    let mut copied = CopiedChunks::default();
    copied.push_chunks(stripe, &mut RecentFiles::new(cx.store()), id, series, TimeRange::ALL);
    copied.finish(stripe);
    let mut out = Columns::default();
    let memory = copied.memory(cx.disk());
    merge_chunks(memory, copied.chunks(), TimeRange::ALL, &mut out).expect("chunks are readable");
    out
}

#[track_caller]
fn check_stored(stripe: &Stripe, cx: &AppendContext<'_>, stored: &BTreeMap<i64, SampleValue>, what: &str) {
    let columns = read(stripe, cx, 1);
    assert_eq!(columns.times, stored.keys().copied().collect::<Vec<_>>(), "{what}");
    for (at, (time, want)) in stored.iter().enumerate() {
        let got = SampleValue::at(&columns, at);
        assert!(is_same(&got, want), "{what}: {time}: {got:?} instead of {want:?}");
    }
    let series = stripe.series(1).expect("the series exists");
    assert_eq!(series.has_sample().then(|| series.newest_time()), stored.keys().last().copied(), "{what}");
    let mut nodes: Vec<_> = stripe.sealed_of(series).copied().collect();
    for node in &nodes {
        let window = cx.window_of(node.min_time());
        assert!(window.contains(node.max_time()), "{what}: a chunk crosses a window");
    }
    nodes.retain(|node| !node.is_out_of_order());
    nodes.sort_by_key(|node| node.min_time());
    let is_apart = |pair: &[SealedChunk]| pair[0].max_time() < pair[1].min_time();
    assert!(nodes.windows(2).all(is_apart), "{what}: in-order chunks overlap");
}

/// Applies one sample to the map as the outcome says; a conflict that was not looked up is decided by the
/// policy.
#[track_caller]
fn check_outcome(
    stored: &mut BTreeMap<i64, SampleValue>,
    time: i64,
    sample: SampleValue,
    outcome: AppendOutcome,
    cx: &AppendContext<'_>,
    lookups: u32,
    what: &str,
) {
    let known = stored.get(&time).map(|known| is_same(known, &sample));
    match outcome {
        AppendOutcome::OutOfOrder if lookups < UNLIMITED => {}
        AppendOutcome::InOrder | AppendOutcome::OutOfOrder => assert_eq!(known, None, "{what}"),
        AppendOutcome::Duplicate => assert_eq!(known, Some(true), "{what}"),
        AppendOutcome::DuplicateTimestamp => {
            assert_eq!((known, cx.duplicates), (Some(false), DuplicatePolicy::KeepFirst), "{what}");
        }
        AppendOutcome::Replaced => {
            assert_eq!((known, cx.duplicates), (Some(false), DuplicatePolicy::LastWins), "{what}");
        }
        AppendOutcome::NotNewest | AppendOutcome::SeriesGone => {
            panic!("the series exists, and the sample is decided")
        }
    }
    if cx.duplicates == DuplicatePolicy::LastWins {
        stored.insert(time, sample);
    } else {
        stored.entry(time).or_insert(sample);
    }
}

/// Runs `seed`: appends with at most `lookups` decoded chunks each, sealing, deletions.
fn run(seed: u64, duplicates: DuplicatePolicy, lookups: u32) {
    let (env, _, _) = Env::fake(0, seed);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 4_000);
    cx.duplicates = duplicates;
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let mut stored: BTreeMap<i64, SampleValue> = BTreeMap::new();
    let word_share = if env.rng.below(3) == 0 { 10 } else { env.rng.below(10) };
    for at in 0..1_500i64 {
        let back = if env.rng.below(10) < 7 { 0 } else { env.rng.below(at as u64 + 1) as i64 };
        let time = 10 * (at - back) + i64::from(env.rng.below(40) == 0);
        let sample = if env.rng.below(10) < word_share {
            SampleValue::Word(env.rng.below(2))
        } else {
            SampleValue::Histogram(histogram(at as u64 / 40 * 3 + env.rng.below(2)))
        };
        cx.lookups_left = lookups;
        let outcome = stripe.append(&mut cx, 1, time, sample.as_value());
        let what = format!("seed {seed}, lookups {lookups}, sample {at} at {time}: {outcome:?}");
        check_outcome(&mut stored, time, sample, outcome, &cx, lookups, &what);
        if env.rng.below(100) == 0 {
            stripe.seal_window(&mut cx, 1, TimeRange::new(time - 300, time + 300));
        }
        if env.rng.below(150) == 0 {
            let range = TimeRange::new(time - 200, time + env.rng.below(400) as i64);
            let before = stored.len();
            stored.retain(|&time, _| !range.contains(time));
            let erased = stripe.erase(&mut cx, 1, range).unwrap_or(0);
            assert_eq!(erased as usize, before - stored.len(), "{what}");
        }
        if at % 50 == 0 {
            check_stored(&stripe, &cx, &stored, &what);
        }
    }
    stripe.seal_window(&mut cx, 1, TimeRange::ALL);
    check_stored(&stripe, &cx, &stored, &format!("seed {seed} at its end"));
    let counted: i64 = cx.windows.take_count();
    let sealed = stripe.sealed_of(stripe.series(1).unwrap());
    assert_eq!(counted, sealed.map(|node| i64::from(node.count())).sum::<i64>(), "seed {seed}");
    let erased = stripe.erase(&mut cx, 1, TimeRange::ALL).unwrap_or(0);
    assert_eq!(erased as usize, stored.len(), "seed {seed}: deletions count visible samples");
    assert_eq!(cx.windows.take_count(), -counted, "seed {seed}");
    assert!(stripe.is_empty(1) && stripe.chunk_count() == 0, "seed {seed}: nothing is left");
    assert_eq!(stripe.ooo.histogram_bytes(), 0);
}

#[test]
fn samples_are_decided_as_by_a_map() {
    for (seed, duplicates) in
        (0..60).zip([DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins].iter().cycle())
    {
        run(seed, *duplicates, UNLIMITED);
    }
}

#[test]
fn samples_that_are_not_looked_up_are_resolved_as_by_a_map() {
    for (seed, duplicates) in
        (0..60).zip([DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins].iter().cycle())
    {
        run(100 + seed, *duplicates, (seed / 2 % 3) as u32);
    }
}

/// A window leaves for a block while out-of-order samples arrive: those that lost against flushed samples do
/// not become visible, others stay.
#[test]
fn a_flushed_window_leaves_only_later_samples() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 4_000).with_lookups(0);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    (0..200).for_each(|at| {
        stripe.append(&mut cx, 1, at * 10, Value::Word(1));
    });
    stripe.seal_window(&mut cx, 1, TimeRange::ALL);
    let end = store.end();
    // Two conflicts, one of them sealed, and one new sample.
    stripe.append(&mut cx, 1, 500, Value::Word(2));
    stripe.seal_out_of_order(&mut cx, 1, TimeRange::ALL);
    stripe.append(&mut cx, 1, 600, Value::Word(2));
    stripe.append(&mut cx, 1, 605, Value::Word(2));
    let mut flushed_count = 0;
    let is_flushed = |node: &SealedChunk| node.chunk_ref() < end;
    stripe.drop_flushed(&mut cx, 1, is_flushed, |node| flushed_count += i64::from(node.count()));
    assert_eq!(read(&stripe, &cx, 1).times, [605]);
    assert_eq!(flushed_count, 200);
    assert_eq!(cx.windows.take_count() - flushed_count, 1);
}

/// A sender repeats a sample that its chunk has encoded again because new buckets appeared: it is still a
/// duplicate.
#[test]
fn duplicates_are_known_after_new_buckets() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000);
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
            let outcome = stripe.append(&mut cx, 1, time, Value::Histogram(one));
            assert_eq!(outcome, if round == 0 { AppendOutcome::InOrder } else { AppendOutcome::Duplicate });
        }
    }
    assert_eq!(
        stripe.append(&mut cx, 1, 1, Value::Histogram(&of(&[1, 3]))),
        AppendOutcome::DuplicateTimestamp
    );
}

#[test]
fn the_end_of_a_series_of_histograms_is_a_histogram() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    for _ in 0..2 {
        stripe.append(&mut cx, 1, 10, Value::Histogram(&histogram(4)));
        let marked = stripe.append(&mut cx, 1, 20, Value::Word(STALE_NAN.to_bits()));
        assert!(matches!(marked, AppendOutcome::InOrder | AppendOutcome::Duplicate));
    }
    let columns = read(&stripe, &cx, 1);
    assert_eq!(columns.histograms.len(), 2);
    assert!(matches!(**columns.histogram_at(1).unwrap(), Histogram::Int(ref one) if one.is_stale()));
    // A float sample makes it a series of floats, whose staleness marker is a float.
    stripe.append(&mut cx, 1, 30, Value::Word(1.0f64.to_bits()));
    stripe.append(&mut cx, 1, 40, Value::Word(STALE_NAN.to_bits()));
    assert_eq!(read(&stripe, &cx, 1).histograms.len(), 2);
}

/// Buffered samples are bounded in count, and the memory of their histograms is freed.
#[test]
fn out_of_order_samples_are_sealed_when_they_are_many() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 10_000_000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    stripe.append(&mut cx, 1, 5_000_000, Value::Histogram(&histogram(1)));
    let mut buffered_max = 0;
    for i in 0..1000i64 {
        let time = (i * 7919) % 100_003;
        let outcome = stripe.append(&mut cx, 1, time, Value::Histogram(&histogram(1)));
        assert_eq!(outcome, AppendOutcome::OutOfOrder);
        buffered_max = buffered_max.max(stripe.ooo_samples(1).len());
    }
    assert_eq!(buffered_max, ooo_log::OOO_COUNT_MAX - 1);
    assert_eq!(read(&stripe, &cx, 1).len(), 1001);
    stripe.seal_out_of_order(&mut cx, 1, TimeRange::ALL);
    assert_eq!(stripe.ooo.histogram_bytes(), 0);
}
