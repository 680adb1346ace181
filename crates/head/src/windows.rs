//! Windows with chunks, of one tenant or of all: lists, snapshots, removal.
//!
//! Cost of a list: one lock and the windows per tenant; tenant names are sorted once, windows never.
//! Not here: sample counts (`series::windows`).

use std::sync::Arc;

use chronolith_model::{StoreId, TimeRange};

use crate::evict::drop_window::{DropStats, drop_window};
use crate::evict::idle::{IdleSeries, age_series, snapshot_idle};
use crate::index::tenant::TenantHead;
use crate::options::HeadError;
use crate::read::snapshot::{WindowSnapshot, snapshot_window};
use crate::series::windows::WindowStat;
use crate::state::HeadState;

/// Windows of the head that have chunks: lists, snapshots for flushes, and removal after a flush; eviction of
/// idle series.
pub struct HeadWindows {
    state: Arc<HeadState>,
}

impl HeadWindows {
    pub(crate) fn new(state: Arc<HeadState>) -> HeadWindows {
        HeadWindows { state }
    }

    /// Returns the windows with chunks, by tenant and time.
    #[must_use]
    pub fn list(&self) -> Vec<WindowStat> {
        let mut out = Vec::new();
        self.visit(|_, windows| out.extend_from_slice(windows));
        out
    }

    /// Returns the windows with chunks of one tenant, by time.
    #[must_use]
    pub fn list_of(&self, store: &StoreId) -> Vec<WindowStat> {
        let mut out = Vec::new();
        if let Some(store) = self.state.index.tenant(store) {
            self.copy_windows(&store, &mut out);
        }
        out
    }

    /// Calls `visit` with the number of series and the windows, by time, of each tenant that has any, in
    /// tenant order. No lock is held during the call.
    pub fn visit(&self, mut visit: impl FnMut(u64, &[WindowStat])) {
        let mut tenants = self.state.index.tenants();
        tenants.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        let mut windows = Vec::new();
        for tenant in tenants {
            windows.clear();
            self.copy_windows(&tenant, &mut windows);
            if !windows.is_empty() {
                let series_count = tenant.tables.read().live_count() as u64;
                visit(series_count, &windows);
            }
        }
    }

    fn copy_windows(&self, tenant: &Arc<TenantHead>, out: &mut Vec<WindowStat>) {
        let width = self.state.series.window_width(tenant.unit);
        for (start, count) in tenant.windows.lock().iter() {
            let Some(sample_count) = count.sample_count() else { continue };
            out.push(WindowStat {
                tenant: tenant.id.clone(),
                range: TimeRange::window_of(start, width),
                sample_count,
                first_arrival_ms: count.first_arrival_ms(),
            });
        }
    }

    /// Takes the chunks of `store` in `window` (one window or several adjacent ones); its open chunks and
    /// out-of-order samples are sealed first.
    ///
    /// # Errors
    /// [`HeadError::Io`] if sealed chunks cannot be written.
    pub fn snapshot(&self, store: &StoreId, window: TimeRange) -> Result<WindowSnapshot, HeadError> {
        snapshot_window(&self.state, store, window)
    }

    /// Removes exactly the chunks of `snapshot`, and series of its tenant that have no chunk left. The
    /// samples must be durable elsewhere (in a block). The next checkpoint removes sealed files.
    pub fn drop(&self, snapshot: WindowSnapshot) -> DropStats {
        drop_window(&self.state, snapshot)
    }

    /// Ends a generation and returns, by tenant, the series that were offered no sample in it and in the one
    /// before. Cost: a scan of the series records, four bytes of memory per idle series; locks are held for a
    /// page of series.
    #[must_use]
    pub fn age_series(&self) -> Vec<IdleSeries> {
        age_series(&self.state)
    }

    /// Takes the chunks in `window` of those series of `idle` that are still idle, as
    /// [`HeadWindows::snapshot`] does for all series of a tenant; [`HeadWindows::drop`] then removes series
    /// without chunks in other windows.
    ///
    /// # Errors
    /// [`HeadError::Io`] if sealed chunks cannot be written.
    pub fn snapshot_idle(&self, idle: &IdleSeries, window: TimeRange) -> Result<WindowSnapshot, HeadError> {
        snapshot_idle(&self.state, idle, window)
    }

    /// Forgets tenants without series, which flushes, idle series and refused writes leave.
    pub fn forget_unused_tenants(&self) {
        // A checkpoint slice that is being encoded refers to tenants by index.
        let Some(_alone) = self.state.maintenance.try_lock() else { return };
        self.state.index.forget_unused_tenants();
    }
}
