//! Series that take no samples any more leave the head before their windows end.
//!
//! Holds: what leaves is first sealed and taken out as a window is (`snapshot`), so that it can be read here until it
//! is a block; a series that was offered a sample since it was found idle stays. Arrival counts, by whoever ends
//! generations, not the times of samples.
//! Not here: when generations end and which tenants are worth a block (`tsdb`), the bits (`stripe::idle`).

use std::collections::BTreeMap;

use chronolith_model::{TenantId, TimeRange};

use crate::head::Head;
use crate::ids::IdUse;
use crate::options::HeadError;
use crate::snapshot::WindowSnapshot;
use crate::stripe::{PAGE_SLOTS, STRIPE_COUNT};
use crate::sync::MutexGuard;

/// Idle series of one tenant.
#[derive(Debug)]
pub struct IdleSeries {
    /// Whose they are.
    pub tenant: TenantId,
    /// All series that the tenant has in the head.
    pub series_count: usize,
    /// Ascending.
    ids: Vec<u32>,
    _in_use: IdUse,
}

impl IdleSeries {
    /// How many series are idle.
    #[must_use]
    pub fn idle_count(&self) -> usize {
        self.ids.len()
    }
}

impl Head {
    /// Ends a generation and gives the series, by tenant, that were offered no sample in it and in the one before it.
    /// Cost: a look at each hot record, four bytes of memory an idle series; locks are held for a page of series.
    #[must_use]
    pub fn age_series(&self) -> Vec<IdleSeries> {
        let in_use = self.ids.use_ids();
        let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (stripe_idx, stripe) in self.series.stripes.iter().enumerate() {
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
            let tenant = self.tenants.read().by_idx(idx).cloned()?;
            ids.sort_unstable();
            let series_count = tenant.tables.read().live_count();
            Some(IdleSeries { tenant: tenant.id.clone(), series_count, ids, _in_use: in_use.clone() })
        };
        found.into_iter().filter_map(with_tenant).collect()
    }

    /// Takes what the series of `idle` that are still idle have in `window`, as [`Head::snapshot_window`] does for
    /// all series of a tenant; [`Head::drop_window`] then removes series that have nothing in other windows.
    ///
    /// # Errors
    /// [`HeadError::Io`] if sealed chunks cannot be written.
    pub fn snapshot_idle(&self, idle: &IdleSeries, window: TimeRange) -> Result<WindowSnapshot, HeadError> {
        let Some(tenant) = self.tenant(&idle.tenant) else {
            return self.snapshot_window(&idle.tenant, window);
        };
        self.take_window(tenant, window, &idle.ids, |stripe, id| stripe.is_idle(id))
    }
}
