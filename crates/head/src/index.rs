//! Index of the head: tenants, the labels of their series with postings, and the cache of wire keys.
//!
//! Invariant: a series id names at most one live series; an id is reused only after every file that names it
//! is gone.
//! Not here: samples (`series`).

pub(crate) mod field_types;
pub(crate) mod ids;
pub(crate) mod key_hash;
pub(crate) mod overflow;
pub(crate) mod postings;
pub(crate) mod series_keys;
pub(crate) mod split_table;
pub(crate) mod tables;
pub(crate) mod tenant;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_base::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use chronolith_model::StoreId;
use parking_lot::{Mutex, MutexGuard};

use crate::index::ids::SeriesIds;
use crate::index::key_hash::KeyHash;
use crate::index::overflow::file::OverflowFiles;
use crate::index::series_keys::{ID_NONE, SeriesKeyCache};
use crate::index::tenant::{TenantHead, Tenants};
use crate::memory_part::MemoryPart;
use crate::metric_kinds::MetricKinds;

/// Series or keys that are handled under one lock.
const SLICE_COUNT: usize = 512;
/// All keys are scanned once one in this many belongs to a departed series: a departed series costs the scan
/// of that many keys at most, and at most that fraction of the cache is stale.
pub(crate) const STALE_KEYS_PART: usize = 16;

/// Departed series whose keys are still cached.
#[derive(Default)]
struct StaleKeys {
    ids: Vec<u32>,
    /// Keys scanned since startup.
    visit_count: u64,
}

/// Tenants, their series by labels and by wire key, and the ids of series.
pub(crate) struct HeadIndex {
    tenants: parking_lot::RwLock<Tenants>,
    pub(crate) series_keys: RwLock<SeriesKeyCache>,
    stale_keys: Mutex<StaleKeys>,
    pub(crate) key_hash: KeyHash,
    pub(crate) ids: SeriesIds,
    overflow_files: Mutex<OverflowFiles>,
    /// Set once there is a checkpoint of the overflow tables.
    has_overflow_file: AtomicBool,
    /// Types of metrics, if there are any.
    metric_kinds: OnceLock<Box<dyn MetricKinds>>,
}

impl HeadIndex {
    pub(crate) fn new(
        tenants: Tenants,
        series_keys: SeriesKeyCache,
        key_hash: KeyHash,
        ids: SeriesIds,
        overflow_files: OverflowFiles,
    ) -> HeadIndex {
        HeadIndex {
            tenants: parking_lot::RwLock::new(tenants),
            series_keys: RwLock::new(series_keys),
            stale_keys: Mutex::default(),
            key_hash,
            ids,
            has_overflow_file: AtomicBool::new(!overflow_files.is_empty()),
            overflow_files: Mutex::new(overflow_files),
            metric_kinds: OnceLock::new(),
        }
    }

    /// Returns true if there is a checkpoint of the overflow tables. Cost: an atomic read.
    pub(crate) fn has_overflow_file(&self) -> bool {
        self.has_overflow_file.load(Ordering::Acquire)
    }

    /// Records that there is a checkpoint of the overflow tables.
    pub(crate) fn note_overflow_file(&self) {
        self.has_overflow_file.store(true, Ordering::Release);
    }

    /// Locks the list of checkpoints of the overflow tables.
    pub(crate) fn overflow_files(&self) -> MutexGuard<'_, OverflowFiles> {
        self.overflow_files.lock()
    }

    /// Sets where the types of metrics are looked up, once.
    pub(crate) fn set_metric_kinds(&self, kinds: Box<dyn MetricKinds>) {
        // Later types would come from the same metadata.
        let _ = self.metric_kinds.set(kinds);
    }

    /// Returns where the types of metrics are looked up.
    pub(crate) fn metric_kinds(&self) -> Option<&dyn MetricKinds> {
        self.metric_kinds.get().map(Box::as_ref)
    }

    pub(crate) fn tenant(&self, id: &StoreId) -> Option<Arc<TenantHead>> {
        self.tenants.read().get(id)
    }

    /// Returns the tenant with this index.
    pub(crate) fn tenant_by_idx(&self, idx: u32) -> Option<Arc<TenantHead>> {
        self.tenants.read().by_idx(idx).cloned()
    }

    /// Returns the existing tenants of these indexes.
    pub(crate) fn tenants_by_idx(&self, order: &[u32]) -> Vec<Arc<TenantHead>> {
        let tenants = self.tenants.read();
        order.iter().filter_map(|&idx| tenants.by_idx(idx).cloned()).collect()
    }

    pub(crate) fn tenants(&self) -> Vec<Arc<TenantHead>> {
        self.tenants.read().all().cloned().collect()
    }

    /// Finds or creates a tenant; `None` if there are too many. `seed` is for its hash tables.
    pub(crate) fn tenant_or_create(
        &self,
        id: &StoreId,
        seed: impl FnOnce() -> u64,
    ) -> Option<Arc<TenantHead>> {
        self.tenant(id).or_else(|| self.tenants.write().get_or_create(id, seed()))
    }

    /// Forgets the tenant of a refused write if it has no series: writes under ever new tenant names leave
    /// nothing.
    #[cold]
    pub(crate) fn forget_if_unused(&self, tenant: Arc<TenantHead>) {
        if tenant.tables.read().live_count() == 0 {
            let id = tenant.id.clone();
            // The tenant list must hold the only reference left.
            drop(tenant);
            self.tenants.write().remove_unused(&id);
        }
    }

    /// Forgets tenants without series, which flushes, idle series and refused writes leave.
    pub(crate) fn forget_unused_tenants(&self) {
        let is_empty = |t: &&Arc<TenantHead>| t.tables.read().live_count() == 0;
        let unused: Vec<StoreId> = self.tenants().iter().filter(is_empty).map(|t| t.id.clone()).collect();
        for id in unused {
            self.tenants.write().remove_unused(&id);
        }
    }

    /// Removes the wire keys of series from the cache at once; `ids` ascend. Cost: a scan of the cache.
    #[cold]
    pub(crate) fn remove_keys_of(&self, ids: &[u32]) {
        let mut from = Some(0);
        while let Some(start) = from {
            let is_gone = |id: u32| ids.binary_search(&id).is_ok();
            from = self.series_keys.write().remove(start, SLICE_COUNT, is_gone);
        }
    }

    /// Caches the wire keys of resolved series, each with its id; [`ID_NONE`] is skipped.
    pub(crate) fn cache_keys(&self, keys: impl Iterator<Item = (u128, u32)>, count_max: usize) {
        let mut series_keys = self.series_keys.write();
        for (key, id) in keys.filter(|&(_, id)| id != ID_NONE) {
            series_keys.insert(key, id, count_max);
        }
        RwLockWriteGuard::unlock_fair(series_keys);
    }

    /// Records departed series whose keys must be removed. Keys are scanned only once enough are recorded: a
    /// pass over many small tenants does not scan the keys of all tenants for each of them.
    pub(crate) fn forget_keys_later(&self, gone: &[u32]) {
        let mut stale = self.stale_keys.lock();
        stale.ids.extend_from_slice(gone);
        if stale.ids.len() >= self.series_keys.read().entry_count() / STALE_KEYS_PART {
            self.forget_stale_keys(&mut stale);
        }
    }

    /// Removes the keys of departed series. Until then, a key of a departed series resolves to an id without
    /// series, and appends treat it as unknown.
    pub(crate) fn forget_keys(&self) {
        self.forget_stale_keys(&mut self.stale_keys.lock());
    }

    fn forget_stale_keys(&self, stale: &mut StaleKeys) {
        if stale.ids.is_empty() {
            return;
        }
        stale.ids.sort_unstable();
        stale.visit_count += self.remove_keys(|id| stale.ids.binary_search(&id).is_ok());
        stale.ids = Vec::new();
        self.compact_keys();
    }

    /// Removes the keys of all series for which `is_gone` returns true; returns the number of keys scanned.
    pub(crate) fn remove_keys(&self, is_gone: impl Fn(u32) -> bool) -> u64 {
        let (mut from, mut visit_count) = (Some(0), 0);
        while let Some(start) = from {
            let mut keys = self.series_keys.write();
            from = keys.remove(start, SLICE_COUNT, &is_gone);
            visit_count += from.unwrap_or_else(|| keys.entry_count()).saturating_sub(start) as u64;
            RwLockWriteGuard::unlock_fair(keys);
        }
        visit_count
    }

    /// Rebuilds the key cache if most of its entries are dead. An entry that is mapped to a new series after
    /// it was copied keeps its old series in the copy; that series does not exist, so the next append maps
    /// the key again.
    fn compact_keys(&self) {
        let keys = self.series_keys.read();
        if !keys.is_sparse() {
            return;
        }
        let live_count = keys.live_count();
        drop(keys);
        let mut fresh = SeriesKeyCache::default();
        // One eighth of spare capacity: the next insertion does not trigger growth.
        fresh.reserve(live_count + live_count / 8);
        let mut start = 0;
        loop {
            let keys = self.series_keys.read();
            match keys.visit(start, SLICE_COUNT, |hash, id| fresh.insert(hash, id, usize::MAX)) {
                Some(next) => start = next,
                None => {
                    start = keys.entry_count();
                    break;
                }
            }
            RwLockReadGuard::unlock_fair(keys);
        }
        let mut keys = self.series_keys.write();
        keys.visit(start, usize::MAX, |hash, id| fresh.insert(hash, id, usize::MAX));
        let old = std::mem::replace(&mut *keys, fresh);
        drop(keys);
        drop(old);
    }

    /// Returns the number of departed series whose keys are still cached, and the number of keys scanned so
    /// far.
    #[cfg(test)]
    pub(crate) fn stale_key_counts(&self) -> (usize, u64) {
        let stale = self.stale_keys.lock();
        (stale.ids.len(), stale.visit_count)
    }

    /// Returns the memory of the key cache.
    pub(crate) fn key_memory(&self) -> [MemoryPart; 2] {
        self.series_keys.read().memory()
    }
}

/// Rebuilds the index of a tenant if most of its rows are dead.
pub(crate) fn compact_index(tenant: &TenantHead) {
    if tenant.tables.read().is_sparse() {
        rebuild_index(tenant);
    }
}

/// Rebuilds the index of a tenant without dead series. Only window drops remove series, one drop at a time,
/// so copied rows stay valid; series created meanwhile have higher rows and are copied last.
pub(crate) fn rebuild_index(tenant: &TenantHead) {
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
