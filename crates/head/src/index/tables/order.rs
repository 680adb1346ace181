//! Sorts series by labels, in slices, so that the index is never locked for long.

use std::cmp::Ordering;

use chronolith_base::sync::RwLock;

use super::tenant_index::TenantIndex;

/// Items that are sorted, or comparisons that are made, under one lock.
const SLICE_COUNT: usize = 1024;

/// Sorts the live series of `ids` by their labels and drops the others. The index must not be rebuilt
/// meanwhile; series may be created and removed.
pub(crate) fn sort_by_labels(tables: &RwLock<TenantIndex>, ids: &mut Vec<u32>) {
    // Pairs are ranked once, so that comparing two series compares integers, not text.
    let pair_count = tables.read().pairs.len() as u32;
    let mut order: Vec<u32> = (0..pair_count).collect();
    sort_in_slices(tables, &mut order, |tables, a, b| tables.pair_text(a).cmp(&tables.pair_text(b)));
    let mut ranks = vec![0u32; order.len()];
    for (rank, &pair) in order.iter().enumerate() {
        ranks[pair as usize] = rank as u32;
    }
    drop(order);
    let mut keyed: Vec<(u32, u32)> = Vec::with_capacity(ids.len());
    for slice in ids.chunks(SLICE_COUNT) {
        let tables = tables.read();
        keyed.extend(slice.iter().filter_map(|&id| Some((tables.rows.live_row(id)? as u32, id))));
    }
    // Series are older than the list, and so are their pairs.
    let rank = |pair: u32| ranks.get(pair as usize).copied().unwrap_or(u32::MAX);
    sort_in_slices(tables, &mut keyed, |tables, a, b| {
        let key = |idx: u32| tables.members_of(idx as usize).iter().map(&rank);
        key(a.0).cmp(key(b.0))
    });
    ids.clear();
    ids.extend(keyed.into_iter().map(|(_, id)| id));
}

/// Sorts by merging, and takes the lock for a slice of work at a time.
fn sort_in_slices<T: Copy>(
    tables: &RwLock<TenantIndex>,
    items: &mut Vec<T>,
    compare: impl Fn(&TenantIndex, T, T) -> Ordering,
) {
    for run in items.chunks_mut(SLICE_COUNT) {
        let tables = tables.read();
        run.sort_unstable_by(|&a, &b| compare(&tables, a, b));
    }
    let mut merged = Vec::with_capacity(items.len());
    let mut width = SLICE_COUNT;
    while width < items.len() {
        merged.clear();
        for pair in items.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while !left.is_empty() && !right.is_empty() {
                let tables = tables.read();
                merge_slice(&mut left, &mut right, &mut merged, |a, b| compare(&tables, a, b));
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(items, &mut merged);
        width *= 2;
    }
}

/// Moves the smaller heads of two sorted runs to `out`, at most a slice of them.
fn merge_slice<T: Copy>(
    left: &mut &[T],
    right: &mut &[T],
    out: &mut Vec<T>,
    compare: impl Fn(T, T) -> Ordering,
) {
    for _ in 0..SLICE_COUNT {
        let (Some((&a, rest_a)), Some((&b, rest_b))) = (left.split_first(), right.split_first()) else {
            return;
        };
        if compare(b, a).is_lt() {
            out.push(b);
            *right = rest_b;
        } else {
            out.push(a);
            *left = rest_a;
        }
    }
}
