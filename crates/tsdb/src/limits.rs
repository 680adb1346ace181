//! Limits by tenant: defaults, and overrides of single tenants.
//!
//! Invariants: an override is complete, so that a lookup merges nothing.
//! Not here: the settings file (the binary), the meaning of each limit (`model::TenantLimits`).

use std::collections::BTreeMap;

use chronolith_model::{StoreId, TenantId, TenantLimits};

/// Limits of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitsTable {
    /// Limits of tenants without an override.
    pub default: TenantLimits,
    /// Overrides.
    pub by_tenant: BTreeMap<TenantId, TenantLimits>,
}

impl LimitsTable {
    /// Returns the limits of `tenant`. Cost: one map lookup, no allocation.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> &TenantLimits {
        self.by_tenant.get(tenant).unwrap_or(&self.default)
    }

    /// Returns the table with `change` applied to the limits of each tenant.
    #[must_use]
    pub fn map(self, change: impl Fn(TenantLimits) -> TenantLimits) -> LimitsTable {
        let by_tenant = self.by_tenant.into_iter().map(|(tenant, limits)| (tenant, change(limits)));
        LimitsTable { default: change(self.default), by_tenant: by_tenant.collect() }
    }

    /// Returns the limits of the tenant of a default store, and the defaults for other stores: the catalogue
    /// of databases knows their owners.
    pub(crate) fn of_store(&self, store: &StoreId) -> &TenantLimits {
        store.tenant().map_or(&self.default, |tenant| self.of(tenant))
    }
}

impl From<TenantLimits> for LimitsTable {
    fn from(default: TenantLimits) -> LimitsTable {
        LimitsTable { default, by_tenant: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_override_or_the_defaults() {
        let mut table = LimitsTable::from(TenantLimits { series_max: 7, ..TenantLimits::default() });
        let (a, b) = (TenantId::new("a").unwrap(), TenantId::new("b").unwrap());
        table.by_tenant.insert(a.clone(), TenantLimits { series_max: 9, ..TenantLimits::default() });
        assert_eq!((table.of(&a).series_max, table.of(&b).series_max), (9, 7));
    }
}
