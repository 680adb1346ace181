//! Shares of tenants: the weights of the latest reload, and the part of a limit that a weight gives.
//!
//! Invariants: the part of a tenant of the default weight is the default part; a part is never 0.
//! Not here: order of requests (`fair_queue`).

use chronolith_base::hash::HashMap;
use chronolith_model::tenant::WEIGHT_DEFAULT;
use chronolith_model::{TenantId, TenantLimits};
use chronolith_tsdb::LimitsTable;
use parking_lot::RwLock;

use crate::access::Identity;

/// Sender of a request, as wait queues tell requests apart.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Tenant whose share the request uses.
    pub tenant: &'a TenantId,
    /// Name of the principal; empty for the server itself.
    pub principal: &'a str,
}

impl<'a> From<&'a Identity> for Caller<'a> {
    fn from(identity: &'a Identity) -> Caller<'a> {
        Caller { tenant: identity.tenant(), principal: identity.principal().name() }
    }
}

/// The server itself, on behalf of a tenant.
impl<'a> From<&'a TenantId> for Caller<'a> {
    fn from(tenant: &'a TenantId) -> Caller<'a> {
        Caller { tenant, principal: "" }
    }
}

/// Weights of tenants.
pub struct Weights(RwLock<WeightTable>);

struct WeightTable {
    default: u32,
    /// Weights other than the default.
    by_tenant: HashMap<TenantId, u32>,
}

impl WeightTable {
    fn of_limits(limits: &LimitsTable) -> WeightTable {
        let default = limits.default.weight;
        let differs = |(_, limits): &(&TenantId, &TenantLimits)| limits.weight != default;
        let own = limits.by_tenant.iter().filter(differs);
        WeightTable { default, by_tenant: own.map(|(id, limits)| (id.clone(), limits.weight)).collect() }
    }
}

impl Weights {
    /// The weights that `limits` set.
    #[must_use]
    pub fn new(limits: &LimitsTable) -> Weights {
        Weights(RwLock::new(WeightTable::of_limits(limits)))
    }

    /// Replaces all weights; requests that wait already keep the turn that they have.
    pub fn set(&self, limits: &LimitsTable) {
        let table = WeightTable::of_limits(limits);
        *self.0.write() = table;
    }

    /// Weight of `tenant`, from 1 to `WEIGHT_MAX`. Cost: one map lookup, no allocation.
    #[must_use]
    pub fn of(&self, tenant: &TenantId) -> u32 {
        let table = self.0.read();
        table.by_tenant.get(tenant).copied().unwrap_or(table.default)
    }
}

/// Part of a limit that each tenant may use, proportional to its weight between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantPart {
    /// Part of a tenant of the default weight, within the bounds.
    default: u64,
    /// Least part, whatever the weight.
    min: u64,
    /// Most that a weight can give.
    max: u64,
}

impl TenantPart {
    /// Part `default` at the default weight, from `min` to `max` at others.
    ///
    /// # Panics
    /// Unless `min <= default <= max`.
    #[must_use]
    pub fn new(default: u64, min: u64, max: u64) -> TenantPart {
        assert!(min <= default && default <= max, "{min} <= {default} <= {max}");
        TenantPart { default, min, max }
    }

    /// The same part for every weight.
    #[must_use]
    pub fn fixed(part: u64) -> TenantPart {
        TenantPart::new(part, part, part)
    }

    /// Part of a tenant of `weight`, rounded up.
    #[must_use]
    pub fn of_weight(self, weight: u32) -> u64 {
        let scaled = self.default.saturating_mul(u64::from(weight)).div_ceil(u64::from(WEIGHT_DEFAULT));
        scaled.clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use chronolith_model::tenant::WEIGHT_MAX;

    use super::*;

    #[test]
    fn a_part_grows_and_falls_with_the_weight_within_its_bounds() {
        let permits = TenantPart::new(5, 1, 20);
        let of = |weight| permits.of_weight(weight);
        assert_eq!([1, 2, 10, 20, 40, WEIGHT_MAX].map(of), [1, 1, 5, 10, 20, 20]);
        assert_eq!([1, 10, 100].map(|weight| TenantPart::fixed(7).of_weight(weight)), [7, 7, 7]);
        assert_eq!(TenantPart::fixed(u64::MAX).of_weight(WEIGHT_MAX), u64::MAX, "no limit");
    }

    #[test]
    fn weights_are_those_of_the_latest_reload() {
        let [a, b] = ["a", "b"].map(|id| TenantId::new(id).expect("valid"));
        let limits = |default: u32, of_a: u32| {
            let weighted = |weight| TenantLimits { weight, ..TenantLimits::default() };
            let mut table = LimitsTable::from(weighted(default));
            table.by_tenant.insert(a.clone(), weighted(of_a));
            table
        };
        let weights = Weights::new(&limits(10, 40));
        assert_eq!((weights.of(&a), weights.of(&b)), (40, 10));
        weights.set(&limits(20, 5));
        assert_eq!((weights.of(&a), weights.of(&b)), (5, 20));
    }
}
