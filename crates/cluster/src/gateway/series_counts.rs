//! Series counts of tenants, as the owners of partitions report them.
//!
//! Invariant: a tenant that no owner reports has no count, and is not full.
//! Not here: reports (`peers`), series that are new (`checked_keys`).

use std::collections::BTreeMap;

use chronolith_model::{OverflowPolicy, TenantId, TenantLimits};
use parking_lot::RwLock;

use super::checked_keys::FullTenant;

/// Series by tenant, as of the last reports.
#[derive(Default)]
pub(super) struct SeriesCounts(RwLock<BTreeMap<TenantId, u64>>);

impl SeriesCounts {
    pub(super) fn set(&self, counts: BTreeMap<TenantId, u64>) {
        *self.0.write() = counts;
    }

    /// Returns the use of a limit that `tenant` has reached; `None` if it has room, or if series beyond the
    /// limit are folded.
    pub(super) fn full(&self, tenant: &TenantId, limits: &TenantLimits) -> Option<FullTenant> {
        let used = *self.0.read().get(tenant)?;
        full_of(used, limits)
    }

    /// Number of tenants with a count.
    pub(super) fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Number of tenants that have reached their limit.
    pub(super) fn full_count<'a>(&self, limits_of: impl Fn(&TenantId) -> &'a TenantLimits) -> usize {
        let counts = self.0.read();
        counts.iter().filter(|(tenant, used)| full_of(**used, limits_of(tenant)).is_some()).count()
    }
}

fn full_of(used: u64, limits: &TenantLimits) -> Option<FullTenant> {
    let limit = limits.series_max as u64;
    let is_full = used >= limit && limits.ingestion.overflow == OverflowPolicy::Reject;
    is_full.then_some(FullTenant { used, limit })
}
