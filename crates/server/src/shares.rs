//! What one tenant may take of the places and the memory for queries.
//! Holds: queries of a tenant at its limit wait among themselves before they take a place of all; a changed limit
//! holds for the queries that come after it.
//! Not here: the limits of all tenants together (`app`).

use std::collections::HashMap;
use std::sync::Arc;

use chronolith_base::MemoryBudget;
use chronolith_model::{TenantId, TenantLimits};
use parking_lot::Mutex;

use crate::gate::Gate;
use crate::limits::{QUERY_QUEUE_FACTOR, TENANT_SHARES_IDLE_MAX};

/// One tenant's.
pub(crate) struct Share {
    /// Its places, if they are limited.
    pub(crate) gate: Option<Gate>,
    /// Its memory.
    pub(crate) budget: MemoryBudget,
    limits: ShareLimits,
}

/// Places and bytes; 0 = as much as there is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ShareLimits {
    concurrency: usize,
    memory_bytes: u64,
}

/// Of all tenants that have a limit.
#[derive(Default)]
pub(crate) struct Shares(Mutex<HashMap<TenantId, Arc<Share>>>);

impl Shares {
    /// The share of `tenant`; `None` if it has no limits of its own. Its memory counts in `total`, too.
    pub(crate) fn of(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        total: &MemoryBudget,
    ) -> Option<Arc<Share>> {
        let limits = ShareLimits {
            concurrency: limits.query_concurrency_max,
            memory_bytes: limits.query_memory_bytes_max,
        };
        let mut shares = self.0.lock();
        if limits == (ShareLimits { concurrency: 0, memory_bytes: 0 }) {
            shares.remove(tenant);
            return None;
        }
        if let Some(share) = shares.get(tenant).filter(|share| share.limits == limits) {
            return Some(share.clone());
        }
        if shares.len() >= TENANT_SHARES_IDLE_MAX {
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Share::new(limits, total));
        shares.insert(tenant.clone(), share.clone());
        Some(share)
    }
}

impl Share {
    fn new(limits: ShareLimits, total: &MemoryBudget) -> Share {
        let places = limits.concurrency;
        let gate =
            (places > 0).then(|| Gate::new("queries of the tenant", places, places * QUERY_QUEUE_FACTOR));
        let bytes = if limits.memory_bytes > 0 { limits.memory_bytes } else { u64::MAX };
        Share { gate, budget: total.child("queries of the tenant", bytes), limits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_lasts_until_its_limits_change() {
        let (shares, total) = (Shares::default(), MemoryBudget::new("queries", 1000));
        let tenant = TenantId::anonymous();
        let mut limits = TenantLimits::default();
        assert!(shares.of(&tenant, &limits, &total).is_none());
        limits.query_memory_bytes_max = 100;
        let share = shares.of(&tenant, &limits, &total).expect("limited");
        assert!(share.gate.is_none());
        let held = share.budget.reserve(80).expect("fits");
        assert_eq!(total.used_bytes(), 80);
        let same = shares.of(&tenant, &limits, &total).expect("limited");
        assert!(same.budget.reserve(30).is_err(), "both queries count");
        limits.query_memory_bytes_max = 200;
        let wider = shares.of(&tenant, &limits, &total).expect("limited");
        assert!(wider.budget.reserve(150).is_ok());
        drop(held);
        assert_eq!(total.used_bytes(), 0);
    }
}
