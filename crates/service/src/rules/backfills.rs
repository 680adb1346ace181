//! Backfills of rules that run, and counters of all (ADR 0131).
//!
//! Invariant: a tenant has at most one backfill at a time.
//! Not here: evaluation and writes (`evaluation::rules::backfill`).

use std::collections::BTreeSet;

use chronolith_model::TenantId;
use parking_lot::Mutex;

use crate::counter::Counter;

/// Running backfills and counters.
#[derive(Default)]
pub struct Backfills {
    tenants: Mutex<BTreeSet<TenantId>>,
    /// Rounds of rules that were evaluated.
    pub rounds: Counter,
    /// Rounds among them in which the rule failed.
    pub failed_rounds: Counter,
    /// Queries over several rounds, or one.
    pub evaluations: Counter,
    /// Samples that were added, replaced or removed.
    pub changed_samples: Counter,
}

/// A backfill that runs; the tenant may begin another one once it is dropped.
pub struct RunningBackfill<'a> {
    backfills: &'a Backfills,
    tenant: TenantId,
}

impl Backfills {
    /// Begins the backfill of a tenant; `None` if it has one.
    pub(crate) fn begin(&self, tenant: &TenantId) -> Option<RunningBackfill<'_>> {
        let is_new = self.tenants.lock().insert(tenant.clone());
        is_new.then(|| RunningBackfill { backfills: self, tenant: tenant.clone() })
    }
}

impl Drop for RunningBackfill<'_> {
    fn drop(&mut self) {
        self.backfills.tenants.lock().remove(&self.tenant);
    }
}
