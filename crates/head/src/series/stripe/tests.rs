//! Appends to a stripe, and the slab of sealed chunks.

use chronolith_base::Env;

use super::*;
use crate::series::sealed::ChunkRef;
use crate::series::stripe::ooo_buffer::OOO_COUNT_MAX;

static UNLIMITED: HistogramBudget = HistogramBudget::new(u64::MAX);

fn context_of<'a>(env: &'a Env, store: &'a SealedStore, window_ms: i64) -> AppendContext<'a> {
    AppendContext {
        store,
        disk: &*env.disk,
        histograms: &UNLIMITED,
        window_ms,
        duplicates: DuplicatePolicy::KeepFirst,
        windows: WindowTally::new(window_ms),
    }
}

fn store_of(env: &Env) -> SealedStore {
    SealedStore::new(env, std::path::Path::new("/d"), 1 << 20, 1, Vec::new())
}

fn node(offset: u32) -> SealedChunk {
    SealedChunk::restored(ChunkRef { file: 1, offset }, i64::from(offset), 5, 10, 3)
}

#[test]
fn removed_nodes_leave_the_rest_in_order() {
    for mask in 0..32u32 {
        let mut nodes = SealedChunks::new();
        let mut start = NONE;
        for offset in 0..5 {
            start = nodes.push(node(offset), start);
        }
        let kept = nodes.remove(start, |n| mask >> n.chunk_ref.offset & 1 == 1);
        let left: Vec<u32> = nodes.list(kept).map(|n| n.chunk_ref.offset).collect();
        let want: Vec<u32> = (0..5).rev().filter(|o| mask >> o & 1 == 0).collect();
        assert_eq!(left, want);
        assert_eq!(nodes.count(), want.len() as u64);
        let again = nodes.push(node(9), kept);
        assert_eq!(nodes.list(again).count(), want.len() + 1);
    }
}

#[test]
fn out_of_order_samples_are_merged_by_window_when_they_are_many() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1000);
    let mut stripe = Stripe::new();
    stripe.create(7, 0);
    assert_eq!(stripe.append(&mut cx, 8, 1, 1), AppendOutcome::SeriesGone);
    assert_eq!(stripe.append(&mut cx, 7, 50_000, 1), AppendOutcome::InOrder);
    for i in 0..OOO_COUNT_MAX as i64 {
        assert_eq!(stripe.append(&mut cx, 7, 40_000 - i * 20, 1), AppendOutcome::OutOfOrder);
    }
    let series = stripe.series(7).unwrap().clone();
    assert_eq!(series.ooo, NONE, "the buffer is gone");
    let mut sealed: Vec<_> = stripe.sealed_chunks.list(series.sealed).copied().collect();
    sealed.sort_by_key(|n| n.min_time);
    assert!(sealed.iter().all(|n| n.min_time / 1000 == n.max_time() / 1000), "no chunk crosses a window");
    assert_eq!(sealed.iter().map(|n| usize::from(n.count)).sum::<usize>(), OOO_COUNT_MAX);
    assert_eq!(stripe.append(&mut cx, 7, 39_000, 1), AppendOutcome::Duplicate);
    assert_eq!(stripe.append(&mut cx, 7, 39_000, 2), AppendOutcome::DuplicateTimestamp);
    assert_eq!(stripe.append(&mut cx, 7, 39_001, 2), AppendOutcome::OutOfOrder);
}

/// Counters without a cross-check in production are checked against a sum over the series here.
#[test]
fn chunks_are_counted_as_they_come_and_go() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 100_000);
    let mut stripe = Stripe::new();
    (0..20).for_each(|id| stripe.create(id, 0));
    for step in 0..20_000u64 {
        let (id, time) = (env.rng.below(20) as u32, (step * 30 + env.rng.below(3_000)) as i64);
        stripe.append(&mut cx, id, time, env.rng.below(9));
        if env.rng.below(50) == 0 {
            stripe.merge_out_of_order(&mut cx, id, TimeRange::new(0, time));
        }
        if env.rng.below(50) == 0 {
            stripe.unlink_sealed(&cx, id, |node| node.count < 20);
        }
        let of = |series: &SeriesState| {
            let held = usize::from(!series.open.is_none()) + usize::from(series.ooo != NONE);
            held + stripe.sealed_chunks.list(series.sealed).count()
        };
        if step % 97 == 0 {
            let sum: usize = (0..20).filter_map(|id| stripe.series(id)).map(of).sum();
            assert_eq!(stripe.chunk_count(), sum as u64);
        }
    }
}

/// All series of a fleet fill their chunks in step: at the end, the nodes are freed or used again.
#[test]
fn memory_of_open_chunks_is_freed_when_all_are_sealed() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000_000);
    let mut stripe = Stripe::new();
    (0..1000).for_each(|id| stripe.create(id, 0));
    let (mut peak, mut after) = (Vec::new(), Vec::new());
    for round in 0..3 * SAMPLES_PER_CHUNK as i64 {
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            peak.push(stripe.memory()[1].bytes);
        }
        for id in 0..1000 {
            stripe.append(&mut cx, id, round * 1000, env.rng.next_u64());
        }
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            after.push(stripe.memory()[1].bytes);
        }
    }
    assert!(after.iter().all(|&a| a < peak[0] / 4), "{after:?} of {peak:?}");
    assert!(peak.iter().all(|&p| p < peak[0] + peak[0] / 8), "peaks do not add up: {peak:?}");
}

/// Returns the sample counts of the sealed chunks of a series, oldest first; none overlaps the next.
fn chunk_counts(stripe: &Stripe, id: u32) -> Vec<usize> {
    let mut nodes: Vec<_> = stripe.sealed_chunks.list(stripe.series(id).unwrap().sealed).copied().collect();
    nodes.sort_by_key(|n| n.min_time);
    assert!(
        nodes.windows(2).all(|pair| pair[0].max_time() < pair[1].min_time),
        "sealed chunks do not overlap"
    );
    nodes.iter().map(|n| usize::from(n.count)).collect()
}

#[test]
fn a_sealed_chunk_includes_its_out_of_order_samples() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 1_000_000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let skipped = |i: i64| i % 10 == 3;
    for i in (0..200).filter(|&i| !skipped(i)) {
        let outcome = stripe.append(&mut cx, 1, i * 10, i as u64);
        assert_eq!(outcome, AppendOutcome::InOrder);
        let late = i - 4;
        if late > 0 && skipped(late) {
            assert_eq!(stripe.append(&mut cx, 1, late * 10, late as u64), AppendOutcome::OutOfOrder);
        }
    }
    assert_eq!(chunk_counts(&stripe, 1).iter().sum::<usize>(), 133, "120 and those that came between them");
    assert_eq!(stripe.append(&mut cx, 1, 30, 3), AppendOutcome::Duplicate);
    assert_eq!(stripe.append(&mut cx, 1, 30, 4), AppendOutcome::DuplicateTimestamp);
    let mut last_wins =
        AppendContext { duplicates: DuplicatePolicy::LastWins, ..context_of(&env, &store, 1_000_000) };
    assert_eq!(stripe.append(&mut last_wins, 1, 30, 4), AppendOutcome::Replaced);
    assert_eq!(stripe.append(&mut last_wins, 1, 30, 4), AppendOutcome::Duplicate);
    assert_eq!(stripe.append(&mut last_wins, 1, 30, 5), AppendOutcome::Replaced);
    stripe.seal_open(&mut last_wins, 1);
    stripe.merge_out_of_order(&mut last_wins, 1, TimeRange { start: i64::MIN, end: i64::MAX });
    assert_eq!(chunk_counts(&stripe, 1).iter().sum::<usize>(), 200);
    assert_eq!(stripe.append(&mut cx, 1, 30, 5), AppendOutcome::Duplicate);
    assert_eq!(cx.windows.drain().map(|span| span.count).sum::<i64>(), 200);
}

/// Backfill of one window in any order ends in as many chunks as if it had arrived in order.
#[test]
fn shuffled_samples_end_in_full_chunks() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = context_of(&env, &store, 10_000_000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let mut times: Vec<i64> = (0..5000).collect();
    for i in (1..times.len()).rev() {
        times.swap(i, env.rng.below(i as u64 + 1) as usize);
    }
    for &time in &times {
        stripe.append(&mut cx, 1, time, time as u64);
    }
    for &time in &times {
        assert_eq!(stripe.append(&mut cx, 1, time, time as u64), AppendOutcome::Duplicate);
    }
    stripe.seal_open(&mut cx, 1);
    stripe.merge_out_of_order(&mut cx, 1, TimeRange { start: i64::MIN, end: i64::MAX });
    let counts = chunk_counts(&stripe, 1);
    assert_eq!(counts.iter().sum::<usize>(), 5000);
    assert!(counts.len() <= 5000 / SAMPLES_PER_CHUNK + 1, "{counts:?}");
    assert_eq!(cx.windows.drain().map(|span| span.count).sum::<i64>(), 5000);
}

/// Erased samples can be written again; kept ones are still known.
#[test]
fn erased_samples_can_be_written_again() {
    for (from, to) in [(0, 3000), (0, 500), (250, 260), (1190, 1200), (2990, 3000), (1300, 5000), (-50, 1)] {
        let (env, _, _) = Env::fake(0, 1);
        let store = store_of(&env);
        let mut cx = context_of(&env, &store, 1_000_000);
        let mut stripe = Stripe::new();
        stripe.create(1, 0);
        for time in (0..3000).step_by(10).filter(|t| t % 70 != 0).chain((0..3000).step_by(70)) {
            assert!(stripe.append(&mut cx, 1, time, 1) != AppendOutcome::DuplicateTimestamp);
        }
        let range = TimeRange::new(from, to);
        let want = (0..3000).step_by(10).filter(|&t| range.contains(t)).count();
        assert_eq!(stripe.erase(&mut cx, 1, range).sample_count, want as u64);
        assert_eq!(stripe.erase(&mut cx, 1, range).sample_count, 0, "deleting twice changes nothing");
        for time in (0..3000).step_by(10) {
            let outcome = stripe.append(&mut cx, 1, time, 2);
            let is_gone = range.contains(time);
            assert_eq!(
                outcome == AppendOutcome::DuplicateTimestamp,
                !is_gone,
                "{time} of {from}..{to}: {outcome:?}"
            );
        }
        assert_eq!(cx.windows.drain().map(|span| span.count).sum::<i64>(), 300, "{from}..{to}");
    }
}

/// Out-of-order samples, duplicates, other values and deletions in any order, on a grid and off it: each is
/// decided as by a map.
#[test]
fn out_of_order_samples_are_decided_as_by_a_map() {
    for (seed, duplicates) in
        (0..60).zip([DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins].iter().cycle())
    {
        let (env, _, _) = Env::fake(0, seed);
        let store = store_of(&env);
        let mut cx = AppendContext { duplicates: *duplicates, ..context_of(&env, &store, 4_000) };
        let mut stripe = Stripe::new();
        stripe.create(1, 0);
        let mut stored = std::collections::BTreeMap::new();
        for at in 0..3_000i64 {
            let back = if env.rng.below(10) < 7 { 0 } else { env.rng.below(at as u64 + 1) as i64 };
            let time = 10 * (at - back) + i64::from(env.rng.below(40) == 0);
            let bits = env.rng.below(2);
            let outcome = stripe.append(&mut cx, 1, time, bits);
            let known = stored.get(&time).copied();
            match outcome {
                AppendOutcome::InOrder | AppendOutcome::OutOfOrder => {
                    assert_eq!(known, None, "{seed}: {time}")
                }
                AppendOutcome::Duplicate => assert_eq!(known, Some(bits), "{seed}: {time}"),
                AppendOutcome::Replaced | AppendOutcome::DuplicateTimestamp => {
                    assert_eq!(known, Some(1 - bits), "{seed}: {time}")
                }
                AppendOutcome::NotNewest | AppendOutcome::SeriesGone => {
                    panic!("the series exists, and out-of-order samples are stored")
                }
            }
            if outcome != AppendOutcome::DuplicateTimestamp {
                stored.insert(time, bits);
            }
            if env.rng.below(100) == 0 {
                stripe.merge_out_of_order(&mut cx, 1, TimeRange::new(time - 300, time + 300));
            }
            if env.rng.below(300) == 0 {
                let range = TimeRange::new(time - 200, time + env.rng.below(400) as i64);
                stripe.erase(&mut cx, 1, range);
                stored.retain(|&t, _| !range.contains(t));
            }
        }
    }
}

/// Regression: the hot record kept the old value of a last sample whose replacement was sealed, so a repeat
/// of the old value was taken for stored. The sealed value decides.
#[test]
fn a_replaced_last_sample_is_known_after_sealing() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let mut cx = AppendContext { duplicates: DuplicatePolicy::LastWins, ..context_of(&env, &store, 1000) };
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    assert_eq!(stripe.append(&mut cx, 1, 500, 1), AppendOutcome::InOrder);
    stripe.seal_open(&mut cx, 1);
    assert_eq!(stripe.append(&mut cx, 1, 500, 2), AppendOutcome::Replaced);
    stripe.merge_out_of_order(&mut cx, 1, TimeRange { start: i64::MIN, end: i64::MAX });
    assert_eq!(stripe.append(&mut cx, 1, 500, 2), AppendOutcome::Duplicate);
    assert_eq!(stripe.append(&mut cx, 1, 500, 1), AppendOutcome::Replaced);
}
