//! Memory budgets of tenants below the budget of a class.
//! Invariants: all requests of a tenant share one budget while any of them has memory; a changed limit holds
//! for the requests that come after it. Tenants without reservations are forgotten beyond
//! [`TENANT_BUDGETS_IDLE_MAX`].

use std::sync::Arc;

use chronolith_base::MemoryBudget;
use chronolith_base::hash::HashMap;
use chronolith_model::TenantId;
use parking_lot::Mutex;

use super::share::{TenantPart, Weights};
use crate::limits::TENANT_BUDGETS_IDLE_MAX;

/// Memory budget of one tenant, part of the server-wide one.
pub struct TenantBudget {
    /// Bytes that the requests of the tenant reserve.
    pub budget: MemoryBudget,
    limit_bytes: u64,
}

/// Budgets of the tenants of one class.
pub struct TenantMemory {
    /// Budget of all tenants together.
    pub total: MemoryBudget,
    what: &'static str,
    default_bytes: TenantPart,
    weights: Arc<Weights>,
    unlimited: Arc<TenantBudget>,
    by_tenant: Mutex<HashMap<TenantId, Arc<TenantBudget>>>,
}

impl TenantMemory {
    /// Budgets below `total`; a tenant without a limit of its own has the part of `default_bytes` that its
    /// weight gives.
    pub fn new(
        total: MemoryBudget,
        what: &'static str,
        default_bytes: TenantPart,
        weights: Arc<Weights>,
    ) -> TenantMemory {
        let unlimited = Arc::new(TenantBudget { budget: total.clone(), limit_bytes: u64::MAX });
        TenantMemory { total, what, default_bytes, weights, unlimited, by_tenant: Mutex::default() }
    }

    fn limit_of(&self, tenant: &TenantId, limit_bytes: u64) -> u64 {
        if limit_bytes > 0 { limit_bytes } else { self.default_bytes.of_weight(self.weights.of(tenant)) }
    }

    /// The budget of `tenant`, with its own limit unless that is 0.
    pub fn of(&self, tenant: &TenantId, limit_bytes: u64) -> Arc<TenantBudget> {
        let limit_bytes = self.limit_of(tenant, limit_bytes);
        if limit_bytes >= self.total.limit_bytes() {
            return self.unlimited.clone();
        }
        let mut by_tenant = self.by_tenant.lock();
        if let Some(found) = by_tenant.get(tenant).filter(|found| found.limit_bytes == limit_bytes) {
            return found.clone();
        }
        if by_tenant.len() >= TENANT_BUDGETS_IDLE_MAX {
            by_tenant.retain(|_, one| Arc::strong_count(one) > 1 || one.budget.used_bytes() > 0);
        }
        let budget = self.total.child(self.what, limit_bytes);
        let made = Arc::new(TenantBudget { budget, limit_bytes });
        by_tenant.insert(tenant.clone(), made.clone());
        made
    }
}

/// Snapshot of the memory of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes reserved now.
    pub used_bytes: u64,
    /// `None` if the tenant has as much as all together.
    pub limit_bytes: Option<u64>,
}

impl TenantMemory {
    /// Returns the memory of `tenant`, whose own limit is `limit_bytes` unless that is 0; without a limit
    /// below the total, the memory of all tenants.
    pub fn use_of(&self, tenant: &TenantId, limit_bytes: u64) -> MemoryUse {
        let limit_bytes = self.limit_of(tenant, limit_bytes);
        if limit_bytes >= self.total.limit_bytes() {
            return MemoryUse { used_bytes: self.total.used_bytes(), limit_bytes: None };
        }
        let by_tenant = self.by_tenant.lock();
        let used_bytes = by_tenant.get(tenant).map_or(0, |one| one.budget.used_bytes());
        MemoryUse { used_bytes, limit_bytes: Some(limit_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::TenantLimits;
    use chronolith_tsdb::LimitsTable;

    use super::*;

    fn memory_of(part: TenantPart, default: TenantLimits) -> TenantMemory {
        let weights = Arc::new(Weights::new(&LimitsTable::from(default)));
        TenantMemory::new(MemoryBudget::new("queries", 1000), "queries of the tenant", part, weights)
    }

    #[test]
    fn a_budget_follows_the_weight_of_a_reload() {
        let weighted = |weight| TenantLimits { weight, ..TenantLimits::default() };
        let memory = memory_of(TenantPart::new(250, 100, 1000), weighted(10));
        let tenant = TenantId::anonymous();
        assert_eq!(memory.use_of(&tenant, 0).limit_bytes, Some(250));
        memory.weights.set(&LimitsTable::from(weighted(20)));
        assert!(memory.of(&tenant, 0).budget.reserve(500).is_ok());
        assert!(memory.of(&tenant, 0).budget.reserve(501).is_err());
        memory.weights.set(&LimitsTable::from(weighted(1)));
        assert_eq!(memory.use_of(&tenant, 0).limit_bytes, Some(100), "a request of the largest size fits");
        assert_eq!(memory.use_of(&tenant, 300).limit_bytes, Some(300), "its own limit wins");
    }

    #[test]
    fn a_budget_lasts_until_the_limit_of_its_tenant_changes() {
        let memory = memory_of(TenantPart::fixed(u64::MAX), TenantLimits::default());
        let tenant = TenantId::anonymous();
        let unlimited = memory.of(&tenant, 0);
        assert!(unlimited.budget.reserve(1000).is_ok());
        let held = memory.of(&tenant, 100).budget.reserve(80).expect("fits");
        assert_eq!(memory.total.used_bytes(), 80);
        assert!(memory.of(&tenant, 100).budget.reserve(30).is_err(), "both requests count");
        assert!(memory.of(&tenant, 200).budget.reserve(150).is_ok());
        drop(held);
        assert_eq!(memory.total.used_bytes(), 0);
    }

    #[test]
    fn the_default_leaves_memory_for_others() {
        let memory = memory_of(TenantPart::new(250, 100, 1000), TenantLimits::default());
        let (greedy, modest) = (TenantId::new("greedy").unwrap(), TenantId::new("modest").unwrap());
        let _held = memory.of(&greedy, 0).budget.reserve(250).expect("fits");
        assert!(memory.of(&greedy, 0).budget.reserve(1).is_err());
        assert!(memory.of(&modest, 0).budget.reserve(250).is_ok());
        assert!(memory.of(&modest, 2000).budget.reserve(750).is_ok(), "its own limit wins");
    }
}
