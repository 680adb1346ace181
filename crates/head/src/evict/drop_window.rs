//! Drops a flushed window: removes its chunks, then series without chunks, then their index entries and keys.
//!
//! Invariants: exactly the chunks of the snapshot are removed; a series leaves its stripe and the index under
//! one lock of the index, so no thread finds it in one of them only. Every lock is held for a slice of work,
//! and rebuilds work on a copy: appends and queries run on. Locks are released fairly, since a loop that
//! takes a lock again at once would starve waiting threads.
//! Not here: taking the snapshot (`read::snapshot`), deleting sealed files (`checkpoint`).

use std::sync::atomic::Ordering;

use chronolith_base::sync::{MutexGuard, RwLockWriteGuard};

use crate::counters::Counter;
use crate::index::compact_index;
use crate::index::tenant::{EMPTY_NONE, EMPTY_SOME, TenantHead};
use crate::read::snapshot::WindowSnapshot;
use crate::series::page_runs;
use crate::series::sealed_chunks::SealedChunk;
use crate::series::stripe::stripe_of;
use crate::series::windows::WindowTally;
use crate::state::HeadState;
use crate::text_cleanup::unused::free_unused;
use chronolith_wal::PoisonOnPanic;

/// Counts of a drop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropStats {
    /// Removed chunks.
    pub chunk_count: u64,
    /// Samples in them.
    pub sample_count: u64,
    /// Series that left the head because no chunk of them is left.
    pub series_count: u64,
}

/// Removes the chunks of `snapshot`; implements [`crate::HeadWindows::drop`].
pub(crate) fn drop_window(state: &HeadState, snapshot: WindowSnapshot) -> DropStats {
    let _alone = state.maintenance.lock();
    let mut stats = DropStats::default();
    let unit = snapshot.head_of_tenant().unit;
    let mut cx = state.series.replay_context(unit);
    let mut tally = WindowTally::new(state.series.window_width(unit));
    let mut order = snapshot.ids().to_vec();
    order.sort_unstable();
    for run in page_runs(&order) {
        let mut stripe = state.series.lock(run[0]);
        let unfinished = PoisonOnPanic::new(&state.wal, "a window drop");
        for &id in run {
            if stripe.series(id).is_none() {
                continue;
            }
            let is_flushed = |node: &SealedChunk| snapshot.holds(node.chunk_ref(), node.min_time());
            stripe.drop_flushed(&mut cx, id, is_flushed, |node| {
                stats.chunk_count += 1;
                stats.sample_count += u64::from(node.count());
                tally.add(node.min_time(), -i64::from(node.count()));
            });
        }
        drop(unfinished);
        MutexGuard::unlock_fair(stripe);
    }
    drop(order);
    tally.merge(&mut cx.windows);
    // The drop has no frame in the WAL, so slices are not up to date by their position alone.
    state.counters.add(Counter::Changes, 1);
    snapshot.head_of_tenant().windows.lock().merge(&mut tally, i64::MAX);
    let gone = remove_empty_series(state, snapshot.head_of_tenant());
    stats.series_count = gone.len() as u64;
    state.counters.sub(Counter::SeriesLive, stats.series_count);
    free_unused(state, snapshot.head_of_tenant());
    if !gone.is_empty() {
        compact_index(snapshot.head_of_tenant());
        state.index.forget_keys_later(&gone);
    }
    stats
}

/// Removes series without any chunk; returns their ids, ascending. An append that looked one up meanwhile
/// finds it gone and creates it again.
fn remove_empty_series(state: &HeadState, tenant: &TenantHead) -> Vec<u32> {
    // A concurrent deletion that empties more series sets the flag again.
    tenant.empty_series.store(EMPTY_NONE, Ordering::Relaxed);
    let all = tenant.series_ids();
    let mut gone = Vec::new();
    for run in page_runs(&all) {
        let stripe = &state.series.stripes()[stripe_of(run[0])];
        let seen = stripe.lock();
        let is_empty = |&id: &u32| seen.is_empty(id);
        let empty: Vec<u32> = run.iter().copied().filter(is_empty).collect();
        drop(seen);
        if empty.is_empty() {
            continue;
        }
        let mut tables = tenant.tables.write();
        let mut stripe = stripe.lock();
        // Some may have received a sample while the lock was released.
        for id in empty {
            if stripe.is_pinned(id) {
                // A running append that released the stripe has more samples for it.
                tenant.empty_series.store(EMPTY_SOME, Ordering::Relaxed);
            } else if stripe.is_empty(id) {
                stripe.remove(id);
                tables.remove(id);
                tenant.removed_count.fetch_add(1, Ordering::Relaxed);
                gone.push(id);
            }
        }
        MutexGuard::unlock_fair(stripe);
        RwLockWriteGuard::unlock_fair(tables);
    }
    gone
}

#[cfg(test)]
mod tests;
