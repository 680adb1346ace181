//! State of one tenant in the head: its inverted index, its windows and when it was last written, and the
//! list of all tenants.
//!
//! Invariants: lock order is index before stripe; the lock of the windows is taken alone.
//! Not here: samples (`series`), the index itself (`tables`).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_base::hash::HashMap;
use chronolith_format::store_name;
use chronolith_model::{StoreId, TenantId, TimeUnit};
use parking_lot::Mutex;

use crate::index::field_types::FieldTypes;
use crate::index::overflow::TenantOverflow;
use crate::index::tables::TenantIndex;
use crate::memory_account::MemoryAccount;
use crate::series::windows::Windows;
use crate::series::{SeriesStore, page_runs};
use crate::texts::TenantTexts;
use chronolith_base::sync::{self, RwLock};

/// Limit of tenants of one process; beyond it, writes are rejected as for a tenant at its series limit.
pub(crate) const TENANT_COUNT_MAX: usize = 1_000_000;

/// Spare capacity for tenants that is not freed.
const SPARE_COUNT_MIN: usize = 64;

/// Series that are copied under one lock.
const SLICE_COUNT: usize = 1 << 14;

/// A tenant of the head.
pub(crate) struct TenantHead {
    pub(crate) id: StoreId,
    /// Name of the store in frames and files, unless that is the id of its tenant.
    own_name: Option<Box<str>>,
    pub(crate) idx: u32,
    /// Unit of all times of its samples.
    pub(crate) unit: TimeUnit,
    pub(crate) tables: RwLock<TenantIndex>,
    pub(crate) windows: Mutex<Windows>,
    /// Timestamp of the newest sample that was appended since startup.
    pub(crate) newest_time: AtomicI64,
    /// Set once `newest_time` covers the samples loaded at startup.
    pub(crate) newest_is_whole: AtomicBool,
    /// Series that have left since startup; changes under the write lock of the index.
    pub(crate) removed_count: AtomicU64,
    /// Cached answer to "may a series have no samples": [`EMPTY_UNKNOWN`], [`EMPTY_NONE`] or [`EMPTY_SOME`].
    pub(crate) empty_series: AtomicU8,
    pub(crate) texts: TenantTexts,
    overflow: TenantOverflow,
    /// Memory of the tenant that owns the store, once it is needed.
    pub(crate) account: OnceLock<Arc<MemoryAccount>>,
    /// A lock of `base`: the lock of the series keys is taken under it, so the interleaving tests must see
    /// both.
    pub(crate) field_types: sync::Mutex<FieldTypes>,
    /// Set once `field_types` has the fields that had several kinds at the start.
    pub(crate) has_field_types: AtomicBool,
}

/// Not checked since startup.
pub(crate) const EMPTY_UNKNOWN: u8 = 0;
/// Every series has samples.
pub(crate) const EMPTY_NONE: u8 = 1;
/// A deletion removed all samples of some series; label lists exclude those.
pub(crate) const EMPTY_SOME: u8 = 2;

impl TenantHead {
    /// Returns the name of the store in frames and files.
    pub(crate) fn name(&self) -> &str {
        let of_tenant = self.id.tenant().map(TenantId::as_str);
        of_tenant.or(self.own_name.as_deref()).unwrap_or_default()
    }

    /// Returns the series beyond the limits of the tenant.
    pub(crate) fn overflow(&self) -> &TenantOverflow {
        &self.overflow
    }

    /// Returns the ids of the series, ascending. Series that are created or leave meanwhile may be included
    /// or not.
    pub(crate) fn series_ids(&self) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.tables.read().live_count());
        let mut from = Some(0);
        while let Some(start) = from {
            from = self.tables.read().copy_live_ids(start, SLICE_COUNT, &mut ids);
        }
        ids
    }

    /// Returns the timestamp of the newest sample. The first call after startup reads each series in `store`.
    pub(crate) fn newest_time(&self, store: &SeriesStore) -> i64 {
        if !self.newest_is_whole.load(Ordering::Acquire) {
            for run in page_runs(&self.series_ids()) {
                let stripe = store.lock(run[0]);
                if let Some(newest) = run.iter().filter_map(|&id| stripe.newest_time(id)).max() {
                    self.newest_time.fetch_max(newest, Ordering::Relaxed);
                }
            }
            self.newest_is_whole.store(true, Ordering::Release);
        }
        self.newest_time.load(Ordering::Relaxed)
    }
}

/// Tenants that have series or are in use. A tenant without either is removed, and created again by its next
/// write.
///
/// Invariant: the index of a tenant is unique as long as it is in this list; series states refer to their
/// tenant by it.
#[derive(Default)]
pub(crate) struct Tenants {
    by_id: HashMap<StoreId, u32>,
    list: Vec<Option<Arc<TenantHead>>>,
    /// Lower bound: no smaller index is free.
    free_first: usize,
}

impl Tenants {
    pub(crate) fn get(&self, id: &StoreId) -> Option<Arc<TenantHead>> {
        self.by_id.get(id).and_then(|&idx| self.by_idx(idx)).cloned()
    }

    /// Returns the tenant with this index.
    pub(crate) fn by_idx(&self, idx: u32) -> Option<&Arc<TenantHead>> {
        self.list.get(idx as usize)?.as_ref()
    }

    /// Returns the tenant, created if missing; `seed` is for a new one.
    pub(crate) fn get_or_create(&mut self, id: &StoreId, seed: u64) -> Option<Arc<TenantHead>> {
        if let Some(found) = self.get(id) {
            return Some(found);
        }
        if self.by_id.len() >= TENANT_COUNT_MAX {
            return None;
        }
        while self.list.get(self.free_first).is_some_and(Option::is_some) {
            self.free_first += 1;
        }
        if self.free_first == self.list.len() {
            self.list.push(None);
        }
        let idx = self.free_first as u32;
        let tenant = Arc::new(TenantHead {
            id: id.clone(),
            own_name: (!id.is_default()).then(|| store_name(id).into()),
            idx,
            unit: id.time_unit(),
            tables: RwLock::new(TenantIndex::new(seed)),
            windows: Mutex::default(),
            newest_time: AtomicI64::new(i64::MIN),
            newest_is_whole: AtomicBool::new(false),
            removed_count: AtomicU64::new(0),
            empty_series: AtomicU8::new(EMPTY_UNKNOWN),
            texts: TenantTexts::default(),
            overflow: TenantOverflow::default(),
            account: OnceLock::new(),
            field_types: sync::Mutex::new(FieldTypes::default()),
            has_field_types: AtomicBool::new(false),
        });
        self.list[idx as usize] = Some(tenant.clone());
        self.by_id.insert(id.clone(), idx);
        Some(tenant)
    }

    /// Removes the tenant if it has no series and there are no other references to it: a thread that is about
    /// to create a series holds one.
    pub(crate) fn remove_unused(&mut self, id: &StoreId) -> bool {
        let Some(&idx) = self.by_id.get(id) else { return false };
        let is_unused = |tenant: &Arc<TenantHead>| {
            Arc::strong_count(tenant) == 1
                && tenant.tables.read().live_count() == 0
                && tenant.windows.lock().is_empty()
                && tenant.overflow.is_empty()
        };
        if !self.by_idx(idx).is_some_and(is_unused) {
            return false;
        }
        self.by_id.remove(id);
        self.list[idx as usize] = None;
        self.free_first = self.free_first.min(idx as usize);
        while self.list.last().is_some_and(Option::is_none) {
            self.list.pop();
        }
        if self.by_id.capacity() > 4 * self.by_id.len() + SPARE_COUNT_MIN {
            self.by_id.shrink_to(2 * self.by_id.len());
            self.list.shrink_to(2 * self.list.len());
        }
        true
    }

    /// Iterates over all tenants.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<TenantHead>> {
        self.list.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> StoreId {
        StoreId::from(TenantId::new(&format!("t{number}")).expect("legal"))
    }

    /// Regression: a tenant stayed for the life of the process, even without series.
    #[test]
    fn a_tenant_without_series_is_removed_and_its_index_reused() {
        let mut tenants = Tenants::default();
        let numbers: Vec<u32> =
            (0..1000).map(|i| tenants.get_or_create(&id(i), 1).expect("there is room").idx).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<u32>>());
        let busy = tenants.get(&id(7)).expect("it is there");
        assert!(!tenants.remove_unused(&id(7)), "somebody may be about to make a series");
        busy.tables.write().insert(5, [("__name__", "up")].into_iter(), &mut Vec::new());
        drop(busy);
        for i in 0..1000 {
            assert_eq!(tenants.remove_unused(&id(i)), i != 7);
        }
        assert!(!tenants.remove_unused(&id(3)), "it has gone");
        assert_eq!(tenants.all().map(|t| t.idx).collect::<Vec<u32>>(), [7]);
        assert!(tenants.list.len() == 8 && tenants.by_id.capacity() < 200);
        assert_eq!(tenants.get_or_create(&id(2000), 1).expect("there is room").idx, 0);
    }
}
