//! Limits by tenant: what holds for all, and what holds for one instead.
//! Holds: an entry of a tenant is complete, so that nothing has to be merged where limits are asked for.
//! Not here: how an operator writes them (the binary's settings), what each means (`model::TenantLimits`).

use std::collections::BTreeMap;

use chronolith_model::{TenantId, TenantLimits};

/// Limits of all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitsTable {
    /// Of every tenant without an entry.
    pub default: TenantLimits,
    /// Of those that have their own.
    pub by_tenant: BTreeMap<TenantId, TenantLimits>,
}

impl LimitsTable {
    /// Those of `tenant`. Cost: one look into a map; no allocation.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> &TenantLimits {
        self.by_tenant.get(tenant).unwrap_or(&self.default)
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
    fn a_tenant_has_its_own_limits_or_those_of_all() {
        let mut table = LimitsTable::from(TenantLimits { series_max: 7, ..TenantLimits::default() });
        let (a, b) = (TenantId::new("a").unwrap(), TenantId::new("b").unwrap());
        table.by_tenant.insert(a.clone(), TenantLimits { series_max: 9, ..TenantLimits::default() });
        assert_eq!((table.of(&a).series_max, table.of(&b).series_max), (9, 7));
    }
}
