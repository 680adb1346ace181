//! Tenants that own stores.
//!
//! Not here: the catalogue of databases (`tsdb`), memory accounts (`memory_account`).

use chronolith_model::{StoreId, TenantId};

/// Tenants that own the stores of retention policies and Graphite.
pub trait StoreOwners: Send + Sync {
    /// Returns the tenant that owns a store; `None` if there is no such store.
    fn owner_of(&self, store: &StoreId) -> Option<TenantId>;
}
