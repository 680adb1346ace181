//! Evicts series that receive no more samples before their windows end.
//!
//! Invariants: evicted series are first sealed and put in a snapshot as a window is (`read::snapshot`), so
//! that they can be read here until they are in a block; a series that was offered a sample since it was
//! found idle stays. The arrival of samples counts, measured in generations, not their timestamps.
//! Not here: the end of generations, choice of the tenants that get a block (`tsdb`), activity bits
//! (`stripe::idle`).

use std::collections::BTreeMap;

use chronolith_model::{StoreId, TimeRange};

use crate::index::ids::IdUse;
use crate::options::HeadError;
use crate::read::snapshot::{WindowSnapshot, snapshot_window, take_window};
use crate::series::stripe::{PAGE_SLOTS, STRIPE_COUNT};
use crate::state::HeadState;
use chronolith_base::sync::MutexGuard;

/// Idle series of one tenant.
#[derive(Debug)]
pub struct IdleSeries {
    /// Tenant of the series.
    pub tenant: StoreId,
    /// All series that the tenant has in the head.
    pub series_count: usize,
    /// In ascending order.
    ids: Vec<u32>,
    _in_use: IdUse,
}

impl IdleSeries {
    /// Returns the number of idle series.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.ids.len()
    }
}

/// Ends a generation; implements [`crate::HeadWindows::age_series`].
pub(crate) fn age_series(state: &HeadState) -> Vec<IdleSeries> {
    let in_use = state.index.ids.use_ids();
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (stripe_idx, stripe) in state.series.stripes().iter().enumerate() {
        for page_idx in 0.. {
            let base = (page_idx * STRIPE_COUNT + stripe_idx) * PAGE_SLOTS;
            let mut stripe = stripe.lock();
            let visit = |tenant, slot| found.entry(tenant).or_default().push((base + slot) as u32);
            let aged = stripe.age_page(page_idx, visit);
            MutexGuard::unlock_fair(stripe);
            if aged.is_none() {
                break;
            }
        }
    }
    let with_tenant = |(idx, mut ids): (u32, Vec<u32>)| {
        let tenant = state.index.tenant_by_idx(idx)?;
        ids.sort_unstable();
        let series_count = tenant.tables.read().live_count();
        Some(IdleSeries { tenant: tenant.id.clone(), series_count, ids, _in_use: in_use.clone() })
    };
    found.into_iter().filter_map(with_tenant).collect()
}

/// Takes the chunks of idle series; implements [`crate::HeadWindows::snapshot_idle`].
pub(crate) fn snapshot_idle(
    state: &HeadState,
    idle: &IdleSeries,
    window: TimeRange,
) -> Result<WindowSnapshot, HeadError> {
    let Some(tenant) = state.index.tenant(&idle.tenant) else {
        return snapshot_window(state, &idle.tenant, window);
    };
    take_window(state, tenant, window, &idle.ids, |stripe, id| stripe.is_idle(id))
}
