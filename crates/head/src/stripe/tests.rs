//! What a stripe does with a sample, and the arena of sealed places.

use chronolith_base::Env;

use super::*;
use crate::sealed::SealedPlace;

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
    let store = SealedStore::new(&env, std::path::Path::new("/d"), 1 << 20, 1, Vec::new());
    let world = StripeWorld { store: &store, disk: &*env.disk, window_ms: 1000 };
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
    let store = SealedStore::new(&env, std::path::Path::new("/d"), 1 << 20, 1, Vec::new());
    let world = StripeWorld { store: &store, disk: &*env.disk, window_ms: 100_000 };
    let mut windows = WindowTally::new(100_000);
    let mut stripe = Stripe::new();
    (0..20).for_each(|id| stripe.create(id, 0));
    for step in 0..20_000u64 {
        let (id, time) = (env.rng.below(20) as u32, (step * 30 + env.rng.below(3_000)) as i64);
        stripe.append(&world, &mut windows, id, time, env.rng.below(9));
        if env.rng.below(50) == 0 {
            stripe.seal_late(&world, id, TimeRange::new(0, time));
        }
        if env.rng.below(50) == 0 {
            let start = stripe.hot(id).unwrap().sealed;
            let kept = stripe.nodes.remove(start, |node| node.count < 20);
            stripe.hot_mut(id).unwrap().sealed = kept;
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
    let store = SealedStore::new(&env, std::path::Path::new("/d"), 1 << 20, 1, Vec::new());
    let world = StripeWorld { store: &store, disk: &*env.disk, window_ms: 1_000_000_000 };
    let mut windows = WindowTally::new(1_000_000_000);
    let mut stripe = Stripe::new();
    (0..1000).for_each(|id| stripe.create(id, 0));
    let (mut peak, mut after) = (Vec::new(), Vec::new());
    for round in 0..3 * SAMPLES_PER_CHUNK as i64 {
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            peak.push(stripe.heap_bytes()[1]);
        }
        for id in 0..1000 {
            stripe.append(&world, &mut windows, id, round * 1000, env.rng.next_u64());
        }
        if round % SAMPLES_PER_CHUNK as i64 == SAMPLES_PER_CHUNK as i64 - 1 {
            after.push(stripe.heap_bytes()[1]);
        }
    }
    assert!(after.iter().all(|&a| a < peak[0] / 4), "{after:?} of {peak:?}");
    assert!(peak.iter().all(|&p| p < peak[0] + peak[0] / 8), "peaks do not add up: {peak:?}");
}
