//! Memory accounts: the head's memory of one tenant, over all its stores.
//!
//! Invariants: the stores of a tenant share the account of their owner; a store without an owner has its own.
//! An account lives as long as the head has one of its stores.
//! Not here: limits and shares (`memory_limit`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::hash::HashMap;
use chronolith_model::StoreId;
use parking_lot::Mutex;

/// Memory of one tenant in the head.
#[derive(Debug)]
pub(crate) struct MemoryAccount {
    /// Default store of the tenant; a store without an owner itself.
    pub(super) owner: StoreId,
    /// Memory at the last measurement plus reservations since.
    pub(super) used_bytes: AtomicU64,
}

/// Measured memory of one store.
pub(crate) struct StoreMemory {
    pub(crate) account: Arc<MemoryAccount>,
    pub(crate) bytes: u64,
    pub(crate) has_series: bool,
}

/// Accounts by tenant.
#[derive(Debug, Default)]
pub(super) struct MemoryAccounts {
    by_owner: Mutex<HashMap<StoreId, Arc<MemoryAccount>>>,
}

impl MemoryAccounts {
    /// Returns the account of a tenant.
    pub(super) fn of(&self, owner: StoreId) -> Arc<MemoryAccount> {
        let mut by_owner = self.by_owner.lock();
        let new = || Arc::new(MemoryAccount { owner: owner.clone(), used_bytes: AtomicU64::new(0) });
        by_owner.entry(owner.clone()).or_insert_with(new).clone()
    }

    /// Records a measurement of all stores; returns the number of tenants with series.
    pub(super) fn record(&self, measured: Vec<StoreMemory>) -> u64 {
        let mut by_owner = self.by_owner.lock();
        // Stores hold their account.
        by_owner.retain(|_, account| Arc::strong_count(account) > 1);
        let mut of_tenants: HashMap<&StoreId, (u64, bool)> = HashMap::default();
        for store in &measured {
            let (bytes, has_series) = of_tenants.entry(&store.account.owner).or_default();
            *bytes += store.bytes;
            *has_series |= store.has_series;
        }
        for (owner, account) in by_owner.iter() {
            let bytes = of_tenants.get(owner).map_or(0, |(bytes, _)| *bytes);
            account.used_bytes.store(bytes, Ordering::Relaxed);
        }
        of_tenants.values().filter(|(_, has_series)| *has_series).count() as u64
    }
}
