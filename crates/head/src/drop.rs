//! Dropping a window that is a block: its chunks, then series without chunks, then what is known of those.
//!
//! Holds: exactly the chunks of the snapshot go; a series leaves its stripe and the tables under one lock of the
//! tables, so nobody finds it in one of them only. Every lock is held for a slice of work, and what has to be
//! built anew is built from copies beside it: appends and queries run on. Locks are handed over to who waits,
//! since a loop that takes a lock again at once would keep it from everybody else.
//! Not here: taking a window out (`snapshot`), deleting sealed files (`checkpoint`).

use std::sync::atomic::Ordering;

use crate::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::head::Head;
use crate::poison::PoisonOnPanic;
use crate::raw_keys::RawKeys;
use crate::select::page_runs;
use crate::snapshot::WindowSnapshot;
use crate::stripe::stripe_of;
use crate::tenant::{EMPTY_NONE, EMPTY_SOME, TenantHead};
use crate::windows::WindowTally;

/// Series or keys that are handled under one lock.
const SLICE_COUNT: usize = 512;

/// Keys are looked through when the series that are gone are one in this many of them: each series that goes
/// costs a look at so many keys at most, and so many keys may be stale.
const STALE_KEYS_PART: usize = 16;

/// Series that left the head since their raw keys were last looked through.
#[derive(Default)]
pub(crate) struct StaleKeys {
    ids: Vec<u32>,
    /// Keys that were looked at since the start.
    visit_count: u64,
}

/// What a drop removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropStats {
    /// Chunks.
    pub chunk_count: u64,
    /// Samples in them.
    pub sample_count: u64,
    /// Series that left the head, none of their chunks being left.
    pub series_count: u64,
}

impl Head {
    /// Removes exactly the chunks of `snapshot`, and series of its tenant that have no chunk left. The samples
    /// must be durable elsewhere (in a block). Sealed files go with the next checkpoint.
    pub fn drop_window(&self, snapshot: WindowSnapshot) -> DropStats {
        let _alone = self.maintenance.lock();
        let mut stats = DropStats::default();
        let world = self.series.world();
        let mut tally = WindowTally::new(self.options.window_ms);
        let mut order = snapshot.ids.clone();
        order.sort_unstable();
        for run in page_runs(&order) {
            let mut stripe = self.series.stripes[stripe_of(run[0])].lock();
            let unfinished = PoisonOnPanic::new(&self.wal, "the drop of a window");
            for &id in run {
                if stripe.hot(id).is_none() {
                    continue;
                }
                let is_gone = |place, min_time| snapshot.holds(place, min_time);
                stripe.drop_histograms(&world, id, is_gone, |min_time, count| {
                    stats.chunk_count += 1;
                    stats.sample_count += u64::from(count);
                    tally.add(min_time, -i64::from(count));
                });
                stripe.unlink_sealed(&world, id, |node| {
                    let is_gone = snapshot.holds(node.place, node.min_time);
                    if is_gone {
                        stats.chunk_count += 1;
                        stats.sample_count += u64::from(node.count);
                        tally.add(node.min_time, -i64::from(node.count));
                    }
                    is_gone
                });
                stripe.trim_starts(id);
            }
            drop(unfinished);
            MutexGuard::unlock_fair(stripe);
        }
        drop(order);
        // The log does not tell of it, so slices are not up to date by their position alone.
        self.counters.change_count.fetch_add(1, Ordering::Relaxed);
        snapshot.tenant.windows.lock().merge(&mut tally, i64::MAX);
        let gone = self.remove_empty_series(&snapshot.tenant);
        stats.series_count = gone.len() as u64;
        self.counters.series_live.fetch_sub(stats.series_count, Ordering::Relaxed);
        if !gone.is_empty() {
            compact_tables(&snapshot.tenant);
            self.forget_keys_later(&gone);
        }
        stats
    }

    /// Removes series without any chunk; gives their ids, ascending. An append that looked one up meanwhile finds
    /// it gone and makes it anew.
    fn remove_empty_series(&self, tenant: &TenantHead) -> Vec<u32> {
        // A deletion that empties more series meanwhile says so again.
        tenant.empty_series.store(EMPTY_NONE, Ordering::Relaxed);
        let all = tenant.series_ids();
        let mut gone = Vec::new();
        for run in page_runs(&all) {
            let stripe = &self.series.stripes[stripe_of(run[0])];
            let seen = stripe.lock();
            let is_empty = |&id: &u32| seen.is_empty(id);
            let empty: Vec<u32> = run.iter().copied().filter(is_empty).collect();
            drop(seen);
            if empty.is_empty() {
                continue;
            }
            let mut tables = tenant.tables.write();
            let mut stripe = stripe.lock();
            // Some may have got a sample between the two looks.
            for id in empty {
                if stripe.is_pinned(id) {
                    // An append that let others have the stripe meanwhile has more samples for it.
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

    /// Notes series whose raw keys are to be forgotten. All keys are looked through once so many are noted
    /// that it is worth it: a pass over small tenants does not look through the keys of all tenants for each
    /// of them.
    fn forget_keys_later(&self, gone: &[u32]) {
        let mut stale = self.stale_keys.lock();
        stale.ids.extend_from_slice(gone);
        if stale.ids.len() >= self.raw_keys.read().entry_count() / STALE_KEYS_PART {
            self.forget_stale_keys(&mut stale);
        }
    }

    /// Forgets the raw keys of series that are gone, as each checkpoint does. Until then such a key leads to
    /// a series that is not there, which appends take for a key that is not known.
    pub(crate) fn forget_keys(&self) {
        self.forget_stale_keys(&mut self.stale_keys.lock());
    }

    fn forget_stale_keys(&self, stale: &mut StaleKeys) {
        if stale.ids.is_empty() {
            return;
        }
        stale.ids.sort_unstable();
        let is_gone = |id: u32| stale.ids.binary_search(&id).is_ok();
        let mut from = Some(0);
        while let Some(start) = from {
            let mut keys = self.raw_keys.write();
            from = keys.remove(start, SLICE_COUNT, is_gone);
            stale.visit_count += from.unwrap_or_else(|| keys.entry_count()).saturating_sub(start) as u64;
            RwLockWriteGuard::unlock_fair(keys);
        }
        stale.ids = Vec::new();
        self.compact_keys();
    }

    /// Builds the raw keys anew if most of them are dead. A key that is mapped anew while its entry was copied
    /// already keeps its old series in the copy; that one is gone, so the next append maps it again.
    fn compact_keys(&self) {
        let keys = self.raw_keys.read();
        if !keys.is_sparse() {
            return;
        }
        let live_count = keys.live_count();
        drop(keys);
        let mut fresh = RawKeys::default();
        // And some more, so that the next key does not pay for growth at once.
        fresh.reserve(live_count + live_count / 8);
        let mut start = 0;
        loop {
            let keys = self.raw_keys.read();
            match keys.visit(start, SLICE_COUNT, |hash, id| fresh.insert(hash, id, usize::MAX)) {
                Some(next) => start = next,
                None => {
                    start = keys.entry_count();
                    break;
                }
            }
            RwLockReadGuard::unlock_fair(keys);
        }
        let mut keys = self.raw_keys.write();
        keys.visit(start, usize::MAX, |hash, id| fresh.insert(hash, id, usize::MAX));
        let old = std::mem::replace(&mut *keys, fresh);
        drop(keys);
        drop(old);
    }
}

/// Builds the tables anew if most of them are dead.
fn compact_tables(tenant: &TenantHead) {
    if tenant.tables.read().is_sparse() {
        rebuild_tables(tenant);
    }
}

/// Builds the tables anew without dead series. Only drops remove series, one at a time, so what was copied
/// stays true; series that are made meanwhile have higher rows and are copied last.
pub(crate) fn rebuild_tables(tenant: &TenantHead) {
    let mut fresh = tenant.tables.read().empty_copy();
    let (mut from, mut end) = (Some(0), 0);
    while let Some(start) = from {
        let tables = tenant.tables.read();
        end = tables.row_count();
        from = fresh.copy_from(&tables, start, SLICE_COUNT);
        RwLockReadGuard::unlock_fair(tables);
    }
    let mut tables = tenant.tables.write();
    fresh.copy_from(&tables, end, usize::MAX - 1);
    let old = std::mem::replace(&mut *tables, fresh);
    drop(tables);
    drop(old);
}

#[cfg(test)]
mod tests;
