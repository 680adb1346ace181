//! Lists of the windows with chunks: of one tenant, of all.
//!
//! Cost: a lock and the windows of each tenant that is asked for; names of tenants are sorted once, windows
//! never.
//! Not here: how samples are counted (`windows`).

use std::sync::Arc;

use chronolith_model::{TenantId, TimeRange};

use crate::head::Head;
use crate::tenant::TenantHead;
use crate::windows::WindowStat;

impl Head {
    /// Windows with chunks, by tenant and time.
    #[must_use]
    pub fn windows(&self) -> Vec<WindowStat> {
        let mut out = Vec::new();
        self.visit_windows(|_, windows| out.extend_from_slice(windows));
        out
    }

    /// Windows with chunks of one tenant, by time.
    #[must_use]
    pub fn windows_of(&self, tenant: &TenantId) -> Vec<WindowStat> {
        let mut out = Vec::new();
        if let Some(tenant) = self.tenant(tenant) {
            self.copy_windows(&tenant, &mut out);
        }
        out
    }

    /// Calls `visit` with the number of series and the windows, by time, of each tenant that has any, in
    /// order of tenants. Nothing is locked meanwhile.
    pub fn visit_windows(&self, mut visit: impl FnMut(u64, &[WindowStat])) {
        let mut tenants = self.all_tenants();
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
        for (&start, count) in &tenant.windows.lock().by_start {
            let Ok(sample_count) = u64::try_from(count.sample_count) else { continue };
            out.push(WindowStat {
                tenant: tenant.id.clone(),
                range: TimeRange { start, end: start.saturating_add(self.options.window_ms) },
                sample_count,
                first_arrival_ms: count.first_arrival_ms,
            });
        }
    }
}
