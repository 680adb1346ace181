//! Settings that may change while the database runs: limits of tenants, rules of roll-ups.
//!
//! Invariants: limits are replaced as a whole, as `storage` has them.
//! Not here: options of the start (`options`).

use std::sync::Arc;

use chronolith_model::rollup::RollupRules;
use chronolith_model::{StoreId, TenantLimits};

use crate::limits::LimitsTable;
use crate::storage::Storage;

/// Settings of the running database, see [`crate::Tsdb::settings`].
pub struct Settings<'a> {
    pub(super) storage: &'a Storage,
}

impl Settings<'_> {
    /// Returns the limits of all tenants.
    #[must_use]
    pub fn limits(&self) -> LimitsTable {
        self.storage.limits()
    }

    /// Returns the limits of `store`: the limits of its tenant, and what the catalogue of databases sets.
    #[must_use]
    pub fn limits_of(&self, store: &StoreId) -> TenantLimits {
        self.storage.limits_of(store)
    }

    /// Replaces the limits of all tenants (configuration reload). Writes, flushes, retention and compactions
    /// that begin later use them; cached results that another duplicate policy may change count as changed.
    pub fn set_limits(&self, limits: LimitsTable) {
        self.storage.set_limits(limits);
    }

    /// Sets the rules of roll-ups of Graphite stores; `None` for none. Blocks that have roll-ups keep them.
    pub fn set_rollup_rules(&self, rules: Option<Arc<dyn RollupRules>>) {
        self.storage.set_rollup_rules(rules);
    }
}
