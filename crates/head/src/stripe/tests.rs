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
        let mut nodes = SealedNodes::default();
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
