//! Tenants whose databases in the bucket are known to this process.
//!
//! Invariant: a tenant is marked only after its databases of the bucket are durable in the local catalogue.
//! Not here: reading them (`upload::adoption`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;

/// Tenants that are looked up one by one until all of the bucket are known; of more, all are forgotten.
const TENANTS_MAX: usize = 10_000;

/// Tenants whose databases in the bucket are known.
#[derive(Default)]
pub(crate) struct KnownTenants {
    /// Set once the databases of all tenants of the bucket are known.
    is_complete: AtomicBool,
    /// True for a known tenant; locked while its databases are read.
    tenants: Mutex<HashMap<TenantId, Arc<Mutex<bool>>>>,
}

impl KnownTenants {
    /// Returns true if all tenants are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Returns true if `owner` is known.
    pub(crate) fn has(&self, owner: &TenantId) -> bool {
        if self.is_complete() {
            return true;
        }
        let slot = self.tenants.lock().get(owner).cloned();
        slot.is_some_and(|slot| slot.try_lock().is_some_and(|is_known| *is_known))
    }

    /// The mark of `owner`, which is held while its databases are read.
    pub(crate) fn slot(&self, owner: &TenantId) -> Arc<Mutex<bool>> {
        let mut tenants = self.tenants.lock();
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(owner) {
            tenants.clear();
        }
        tenants.entry(owner.clone()).or_default().clone()
    }

    /// Marks all tenants.
    pub(crate) fn complete(&self) {
        self.is_complete.store(true, Ordering::Release);
        self.tenants.lock().clear();
    }
}
