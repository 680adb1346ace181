//! One tenant in the head: its tables behind a lock, its windows behind another.
//! Lock order: tables, then a stripe; windows are taken alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8};

use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;

use crate::sync::RwLock;
use crate::tables::Tables;
use crate::windows::Windows;

/// Tenants of one process; further ones share the fate of a tenant at its series limit.
pub(crate) const TENANT_COUNT_MAX: usize = 1_000_000;

/// Series that are copied under one lock.
const SLICE_COUNT: usize = 1 << 14;

/// See the module.
pub(crate) struct TenantHead {
    pub(crate) id: TenantId,
    pub(crate) idx: u32,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) windows: Mutex<Windows>,
    /// Time of the newest sample that was appended since the start.
    pub(crate) newest_ms: AtomicI64,
    /// Whether `newest_ms` covers what was there at the start.
    pub(crate) newest_is_whole: AtomicBool,
    /// Whether a series may have no samples: [`EMPTY_UNKNOWN`], [`EMPTY_NONE`] or [`EMPTY_SOME`].
    pub(crate) empty_series: AtomicU8,
}

/// Nobody has looked since the start.
pub(crate) const EMPTY_UNKNOWN: u8 = 0;
/// Every series has samples.
pub(crate) const EMPTY_NONE: u8 = 1;
/// A deletion took all samples of some series; label lists leave these out.
pub(crate) const EMPTY_SOME: u8 = 2;

impl TenantHead {
    /// Ids of the series, ascending. Series that come or go meanwhile may be among them or not.
    pub(crate) fn series_ids(&self) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.tables.read().live_count());
        let mut from = Some(0);
        while let Some(start) = from {
            from = self.tables.read().copy_live_ids(start, SLICE_COUNT, &mut ids);
        }
        ids
    }
}

/// All tenants that have been seen since the start.
#[derive(Default)]
pub(crate) struct Tenants {
    by_id: HashMap<TenantId, u32>,
    list: Vec<Arc<TenantHead>>,
}

impl Tenants {
    pub(crate) fn get(&self, id: &TenantId) -> Option<Arc<TenantHead>> {
        self.by_id.get(id).map(|&idx| self.list[idx as usize].clone())
    }

    /// The tenant, made if it is not there; `seed` is for a new one.
    pub(crate) fn get_or_create(&mut self, id: &TenantId, seed: u64) -> Option<Arc<TenantHead>> {
        if let Some(found) = self.get(id) {
            return Some(found);
        }
        if self.list.len() >= TENANT_COUNT_MAX {
            return None;
        }
        let idx = self.list.len() as u32;
        let tenant = Arc::new(TenantHead {
            id: id.clone(),
            idx,
            tables: RwLock::new(Tables::new(seed)),
            windows: Mutex::default(),
            newest_ms: AtomicI64::new(i64::MIN),
            newest_is_whole: AtomicBool::new(false),
            empty_series: AtomicU8::new(EMPTY_UNKNOWN),
        });
        self.list.push(tenant.clone());
        self.by_id.insert(id.clone(), idx);
        Some(tenant)
    }

    pub(crate) fn all(&self) -> &[Arc<TenantHead>] {
        &self.list
    }
}
