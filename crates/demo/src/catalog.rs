//! The services of the world: names, tenants, sizes, who calls whom.
//!
//! Invariants: the first service has the incident, the second and third call it; the first five have both
//! tenants.

use crate::draws::Draws;
use crate::tenant::Tenant;

/// Names in the order in which `--services` takes them; each fifth one is of the tenant `billing`.
const NAMES: [&str; 50] = [
    "inventory",
    "checkout",
    "cart",
    "catalog",
    "invoices",
    "search",
    "frontend",
    "login",
    "profile",
    "ledger",
    "recommend",
    "reviews",
    "pricing",
    "promotions",
    "payments",
    "images",
    "stock-sync",
    "orders",
    "shipping",
    "refunds",
    "tracking",
    "warehouse",
    "returns",
    "notify",
    "tax",
    "mailer",
    "sms",
    "sessions",
    "geo",
    "accounts",
    "feature-flags",
    "ads",
    "wishlist",
    "loyalty",
    "fraud",
    "vouchers",
    "store-locator",
    "suggest",
    "index",
    "statements",
    "media",
    "translate",
    "consent",
    "audit",
    "exchange-rates",
    "scheduler",
    "gateway",
    "experiments",
    "support",
    "reconcile",
];
const BILLING_EVERY: usize = 5;
/// Services whose database has a classic histogram, services with a histogram of response sizes.
const DATABASE_EVERY: usize = 8;
const SIZES_EVERY: usize = 5;

/// Index of the service with the incident.
pub(crate) const INCIDENT_IDX: usize = 0;
/// Indices of the services that call it.
pub(crate) const CALLER_IDXS: [usize; 2] = [1, 2];

/// A service with its instances; all of them have its version.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(super) name: &'static str,
    pub(super) tenant: Tenant,
    pub(super) version: String,
    /// Name and zone of each instance.
    pub(super) instances: Vec<Placement>,
    /// Requests per second of one instance at noon.
    pub(super) request_rate: f64,
    /// Median of the latency, in seconds.
    pub(super) latency_s: f64,
    /// Share of the incident that the service feels, 0 to 1.
    pub(super) impact: f64,
    pub(super) has_database: bool,
    pub(super) has_sizes: bool,
    /// Names of the services that it calls.
    pub(super) callees: Vec<&'static str>,
}

/// Address and zone of an instance.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(super) instance: String,
    pub(super) zone: &'static str,
}

const ZONES: [&str; 3] = ["eu-1a", "eu-1b", "eu-1c"];
/// Number of instances of each service, for every ten services.
const INSTANCE_COUNTS: [usize; 10] = [2, 2, 2, 2, 2, 3, 3, 4, 5, 6];

/// The first `count` services.
pub(crate) fn services(seed: u64, count: usize) -> Vec<Service> {
    (0..count.min(NAMES.len())).map(|idx| service(seed, idx, count)).collect()
}

fn service(seed: u64, idx: usize, count: usize) -> Service {
    let name = NAMES[idx];
    let mut draws = Draws::new(seed, name);
    let tenant = if idx % BILLING_EVERY == BILLING_EVERY - 1 { Tenant::Billing } else { Tenant::Shop };
    let instance_count = INSTANCE_COUNTS[draws.below(INSTANCE_COUNTS.len())];
    let placement = |number: usize| Placement {
        instance: format!("10.{}.{idx}.{}:8080", number % ZONES.len(), number + 10),
        zone: ZONES[number % ZONES.len()],
    };
    let is_caller = CALLER_IDXS.contains(&idx);
    Service {
        name,
        tenant,
        version: format!("{}.{}.{}", 1 + draws.below(4), draws.below(20), draws.below(10)),
        instances: (0..instance_count).map(placement).collect(),
        request_rate: draws.between(2.0, 40.0),
        latency_s: 0.01 * 12_f64.powf(draws.unit()),
        impact: if idx == INCIDENT_IDX {
            1.0
        } else if is_caller {
            0.4
        } else {
            0.0
        },
        has_database: idx.is_multiple_of(DATABASE_EVERY),
        has_sizes: idx % SIZES_EVERY == 1,
        callees: callees(idx, count, &mut draws),
    }
}

fn callees(idx: usize, count: usize, draws: &mut Draws) -> Vec<&'static str> {
    if CALLER_IDXS.contains(&idx) {
        return vec![NAMES[INCIDENT_IDX]];
    }
    // Later services only, so that calls have no cycles.
    let later = count.saturating_sub(idx + 1).min(10);
    if later == 0 {
        return Vec::new();
    }
    vec![NAMES[idx + 1 + draws.below(later)]]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CALLER_IDXS, INCIDENT_IDX, NAMES, services};
    use crate::tenant::Tenant;

    #[test]
    fn names_are_unique_and_five_services_have_both_tenants() {
        assert_eq!(NAMES.iter().collect::<BTreeSet<_>>().len(), 50);
        let few = services(1, 5);
        assert!(few.iter().any(|service| service.tenant == Tenant::Billing));
        assert!(few.iter().any(|service| service.has_database));
        for idx in CALLER_IDXS {
            assert_eq!(few[idx].callees, [few[INCIDENT_IDX].name]);
        }
    }

    #[test]
    fn services_have_two_to_six_instances() {
        let all = services(7, 50);
        assert_eq!(all.len(), 50);
        assert!(all.iter().all(|service| (2..=6).contains(&service.instances.len())));
    }
}
