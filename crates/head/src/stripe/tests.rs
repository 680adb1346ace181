//! What a stripe does with a sample, and the arena of sealed places.

use chronolith_base::Env;

use super::*;
use crate::sealed::SealedPlace;
use crate::stripe::late::LATE_COUNT_MAX;

static UNLIMITED: HistogramBudget = HistogramBudget::new(u64::MAX);

fn world_of<'a>(env: &'a Env, store: &'a SealedStore, window_ms: i64) -> StripeWorld<'a> {
    StripeWorld {
        store,
        disk: &*env.disk,
        histograms: &UNLIMITED,
        window_ms,
        duplicates: DuplicatePolicy::KeepFirst,
    }
}

fn store_of(env: &Env) -> SealedStore {
    SealedStore::new(env, std::path::Path::new("/d"), 1 << 20, 1, Vec::new())
}

fn node(offset: u32) -> SealedNode {
    SealedNode::restored(SealedPlace { file: 1, offset }, i64::from(offset), 5, 10, 3)
}

#[test]
fn removed_nodes_leave_the_rest_in_order() {
    for mask in 0..32u32 {
        let mut nodes = SealedNodes::new();
        let mut start = NONE;
        for offset in 0..5 {
            start = nodes.push(node(offset), start);
        }
        let kept = nodes.remove(start, |n| mask >> n.place.offset & 1 == 1);
        let left: Vec<u32> = nodes.list(kept).map(|n| n.place.offset).collect();
        let want: Vec<u32> = (0..5).rev().filter(|o| mask >> o & 1 == 0).collect();
        assert_eq!(left, want);
        assert_eq!(nodes.count(), want.len() as u64);
        let again = nodes.push(node(9), kept);
        assert_eq!(nodes.list(again).count(), want.len() + 1);
    }
}

#[test]
fn late_samples_are_sealed_by_window_when_they_are_many() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let world = world_of(&env, &store, 1000);
    let mut windows = WindowTally::new(1000);
    let mut stripe = Stripe::new();
    stripe.create(7, 0);
    assert_eq!(stripe.append(&world, &mut windows, 8, 1, 1), Applied::Gone);
    assert_eq!(stripe.append(&world, &mut windows, 7, 50_000, 1), Applied::InOrder);
    for i in 0..LATE_COUNT_MAX as i64 {
        assert_eq!(stripe.append(&world, &mut windows, 7, 40_000 - i * 20, 1), Applied::Late);
    }
    let hot = stripe.hot(7).unwrap().clone();
    assert_eq!(hot.late, NONE, "the buffer is gone");
    let mut sealed: Vec<_> = stripe.nodes.list(hot.sealed).copied().collect();
    sealed.sort_by_key(|n| n.min_time);
    assert!(sealed.iter().all(|n| n.min_time / 1000 == n.max_time() / 1000), "no chunk crosses a window");
    assert_eq!(sealed.iter().map(|n| usize::from(n.count)).sum::<usize>(), LATE_COUNT_MAX);
    assert_eq!(stripe.append(&world, &mut windows, 7, 39_000, 1), Applied::Repeat);
    assert_eq!(stripe.append(&world, &mut windows, 7, 39_000, 2), Applied::Conflict);
    assert_eq!(stripe.append(&world, &mut windows, 7, 39_001, 2), Applied::Late);
}

/// Counters that no sum over the series proves every time are proven here.
#[test]
fn chunks_are_counted_as_they_come_and_go() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let world = world_of(&env, &store, 100_000);
    let mut windows = WindowTally::new(100_000);
    let mut stripe = Stripe::new();
    (0..20).for_each(|id| stripe.create(id, 0));
    for step in 0..20_000u64 {
        let (id, time) = (env.rng.below(20) as u32, (step * 30 + env.rng.below(3_000)) as i64);
        stripe.append(&world, &mut windows, id, time, env.rng.below(9));
        if env.rng.below(50) == 0 {
            stripe.seal_late(&world, &mut windows, id, TimeRange::new(0, time));
        }
        if env.rng.below(50) == 0 {
            stripe.unlink_sealed(&world, id, |node| node.count < 20);
        }
        let of = |hot: &Hot| {
            let held = usize::from(!hot.open.is_none()) + usize::from(hot.late != NONE);
            held + stripe.nodes.list(hot.sealed).count()
        };
        if step % 97 == 0 {
            let sum: usize = (0..20).filter_map(|id| stripe.hot(id)).map(of).sum();
            assert_eq!(stripe.chunk_count(), sum as u64);
        }
    }
}

/// All series of a fleet fill their chunks in step: at the end of it the links go back, or are used again.
#[test]
fn memory_of_open_chunks_goes_back_when_all_are_sealed() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let world = world_of(&env, &store, 1_000_000_000);
    let mut windows = WindowTally::new(1_000_000_000);
    let mut stripe = Stripe::new();
    (0..1000).for_each(|id| stripe.create(id, 0));
    let (mut peak, mut after) = (Vec::new(), Vec::new());
    for round in 0..3 * SAMPLES_PER_CHUNK as i64 {
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            peak.push(stripe.memory()[1].bytes);
        }
        for id in 0..1000 {
            stripe.append(&world, &mut windows, id, round * 1000, env.rng.next_u64());
        }
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            after.push(stripe.memory()[1].bytes);
        }
    }
    assert!(after.iter().all(|&a| a < peak[0] / 4), "{after:?} of {peak:?}");
    assert!(peak.iter().all(|&p| p < peak[0] + peak[0] / 8), "peaks do not add up: {peak:?}");
}

/// The chunks of a series, oldest first, none overlapping the next.
fn chunk_counts(stripe: &Stripe, id: u32) -> Vec<usize> {
    let mut nodes: Vec<_> = stripe.nodes.list(stripe.hot(id).unwrap().sealed).copied().collect();
    nodes.sort_by_key(|n| n.min_time);
    assert!(
        nodes.windows(2).all(|pair| pair[0].max_time() < pair[1].min_time),
        "sealed chunks do not overlap"
    );
    nodes.iter().map(|n| usize::from(n.count)).collect()
}

#[test]
fn a_sealed_chunk_contains_the_late_samples_within_it() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let world = world_of(&env, &store, 1_000_000);
    let mut windows = WindowTally::new(1_000_000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let skipped = |i: i64| i % 10 == 3;
    for i in (0..200).filter(|&i| !skipped(i)) {
        let applied = stripe.append(&world, &mut windows, 1, i * 10, i as u64);
        assert_eq!(applied, Applied::InOrder);
        let late = i - 4;
        if late > 0 && skipped(late) {
            assert_eq!(stripe.append(&world, &mut windows, 1, late * 10, late as u64), Applied::Late);
        }
    }
    assert_eq!(chunk_counts(&stripe, 1).iter().sum::<usize>(), 133, "120 and those that came between them");
    assert_eq!(stripe.append(&world, &mut windows, 1, 30, 3), Applied::Repeat);
    assert_eq!(stripe.append(&world, &mut windows, 1, 30, 4), Applied::Conflict);
    let last_wins =
        StripeWorld { duplicates: DuplicatePolicy::LastWins, ..world_of(&env, &store, 1_000_000) };
    assert_eq!(stripe.append(&last_wins, &mut windows, 1, 30, 4), Applied::Replaced);
    assert_eq!(stripe.append(&last_wins, &mut windows, 1, 30, 4), Applied::Repeat);
    assert_eq!(stripe.append(&last_wins, &mut windows, 1, 30, 5), Applied::Replaced);
    stripe.seal_open(&last_wins, &mut windows, 1);
    stripe.seal_late(&last_wins, &mut windows, 1, TimeRange { start: i64::MIN, end: i64::MAX });
    assert_eq!(chunk_counts(&stripe, 1).iter().sum::<usize>(), 200);
    assert_eq!(stripe.append(&world, &mut windows, 1, 30, 5), Applied::Repeat);
    assert_eq!(windows.drain().map(|span| span.count).sum::<i64>(), 200);
}

/// Backfill of one window in any order ends in as many chunks as if it had come in order.
#[test]
fn shuffled_samples_end_in_full_chunks() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let world = world_of(&env, &store, 10_000_000);
    let mut windows = WindowTally::new(10_000_000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    let mut times: Vec<i64> = (0..5000).collect();
    for i in (1..times.len()).rev() {
        times.swap(i, env.rng.below(i as u64 + 1) as usize);
    }
    for &time in &times {
        stripe.append(&world, &mut windows, 1, time, time as u64);
    }
    for &time in &times {
        assert_eq!(stripe.append(&world, &mut windows, 1, time, time as u64), Applied::Repeat);
    }
    stripe.seal_open(&world, &mut windows, 1);
    stripe.seal_late(&world, &mut windows, 1, TimeRange { start: i64::MIN, end: i64::MAX });
    let counts = chunk_counts(&stripe, 1);
    assert_eq!(counts.iter().sum::<usize>(), 5000);
    assert!(counts.len() <= 5000 / SAMPLES_PER_CHUNK + 1, "{counts:?}");
    assert_eq!(windows.drain().map(|span| span.count).sum::<i64>(), 5000);
}

/// What a series forgets it takes again, and what it keeps it knows.
#[test]
fn erased_samples_can_come_again() {
    for (from, to) in [(0, 3000), (0, 500), (250, 260), (1190, 1200), (2990, 3000), (1300, 5000), (-50, 1)] {
        let (env, _, _) = Env::fake(0, 1);
        let store = store_of(&env);
        let world = world_of(&env, &store, 1_000_000);
        let mut windows = WindowTally::new(1_000_000);
        let mut stripe = Stripe::new();
        stripe.create(1, 0);
        for time in (0..3000).step_by(10).filter(|t| t % 70 != 0).chain((0..3000).step_by(70)) {
            assert!(stripe.append(&world, &mut windows, 1, time, 1) != Applied::Conflict);
        }
        let range = TimeRange::new(from, to);
        let want = (0..3000).step_by(10).filter(|&t| range.contains(t)).count();
        assert_eq!(stripe.erase(&world, &mut windows, 1, range).sample_count, want as u64);
        assert_eq!(
            stripe.erase(&world, &mut windows, 1, range).sample_count,
            0,
            "deleting twice changes nothing"
        );
        for time in (0..3000).step_by(10) {
            let applied = stripe.append(&world, &mut windows, 1, time, 2);
            let is_gone = range.contains(time);
            assert_eq!(applied == Applied::Conflict, !is_gone, "{time} of {from}..{to}: {applied:?}");
        }
        assert_eq!(windows.drain().map(|span| span.count).sum::<i64>(), 300, "{from}..{to}");
    }
}

/// Late samples, repeats, other values and deletions in any order, on a grid and off it: each is judged as by a map.
#[test]
fn late_samples_are_judged_as_by_a_map() {
    for (seed, duplicates) in
        (0..60).zip([DuplicatePolicy::KeepFirst, DuplicatePolicy::LastWins].iter().cycle())
    {
        let (env, _, _) = Env::fake(0, seed);
        let store = store_of(&env);
        let world = StripeWorld { duplicates: *duplicates, ..world_of(&env, &store, 4_000) };
        let mut windows = WindowTally::new(4_000);
        let mut stripe = Stripe::new();
        stripe.create(1, 0);
        let mut stored = std::collections::BTreeMap::new();
        for at in 0..3_000i64 {
            let back = if env.rng.below(10) < 7 { 0 } else { env.rng.below(at as u64 + 1) as i64 };
            let time = 10 * (at - back) + i64::from(env.rng.below(40) == 0);
            let bits = env.rng.below(2);
            let applied = stripe.append(&world, &mut windows, 1, time, bits);
            let known = stored.get(&time).copied();
            match applied {
                Applied::InOrder | Applied::Late => assert_eq!(known, None, "{seed}: {time}"),
                Applied::Repeat => assert_eq!(known, Some(bits), "{seed}: {time}"),
                Applied::Replaced | Applied::Conflict => assert_eq!(known, Some(1 - bits), "{seed}: {time}"),
                Applied::Behind | Applied::Gone => panic!("the series is there, and late samples are stored"),
            }
            if applied != Applied::Conflict {
                stored.insert(time, bits);
            }
            if env.rng.below(100) == 0 {
                stripe.seal_late(&world, &mut windows, 1, TimeRange::new(time - 300, time + 300));
            }
            if env.rng.below(300) == 0 {
                let range = TimeRange::new(time - 200, time + env.rng.below(400) as i64);
                stripe.erase(&world, &mut windows, 1, range);
                stored.retain(|&t, _| !range.contains(t));
            }
        }
    }
}

/// The record kept the old value of a last sample whose replacement was sealed: a repeat of the old value was taken for
/// stored. What is sealed counts.
#[test]
fn a_replaced_last_sample_is_known_after_sealing() {
    let (env, _, _) = Env::fake(0, 1);
    let store = store_of(&env);
    let world = StripeWorld { duplicates: DuplicatePolicy::LastWins, ..world_of(&env, &store, 1000) };
    let mut windows = WindowTally::new(1000);
    let mut stripe = Stripe::new();
    stripe.create(1, 0);
    assert_eq!(stripe.append(&world, &mut windows, 1, 500, 1), Applied::InOrder);
    stripe.seal_open(&world, &mut windows, 1);
    assert_eq!(stripe.append(&world, &mut windows, 1, 500, 2), Applied::Replaced);
    stripe.seal_late(&world, &mut windows, 1, TimeRange { start: i64::MIN, end: i64::MAX });
    assert_eq!(stripe.append(&world, &mut windows, 1, 500, 2), Applied::Repeat);
    assert_eq!(stripe.append(&world, &mut windows, 1, 500, 1), Applied::Replaced);
}
