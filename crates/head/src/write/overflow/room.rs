//! Room for further series below the limits of the tenant and of a metric, for the series of one batch.
//!
//! Not here: the decision about a new series (`resolve`), which checks all limits again.

use chronolith_base::hash::HashMap;
use chronolith_base::sync::RwLockReadGuard;
use chronolith_model::TenantLimits;

use crate::index::overflow::OverflowTable;
use crate::index::tables::TenantIndex;
use crate::index::tenant::TenantHead;

/// Series that may still be created.
pub(super) struct Room<'a> {
    tables: RwLockReadGuard<'a, TenantIndex>,
    metric_series_max: usize,
    series_left: usize,
    /// Series left of the metric of a slot.
    left_by_slot: HashMap<usize, usize>,
}

impl<'a> Room<'a> {
    /// Returns the room of a tenant; creation of series waits until it is dropped.
    pub(super) fn of(tenant: &'a TenantHead, limits: &TenantLimits) -> Room<'a> {
        let tables = tenant.tables.read();
        let series_left =
            if tables.has_room(0) { limits.series_max.saturating_sub(tables.live_count()) } else { 0 };
        let metric_series_max = limits.ingestion.metric_series_max;
        Room { tables, metric_series_max, series_left, left_by_slot: HashMap::default() }
    }

    /// Returns true if a folded series of `slot` can become a series of the head, which then uses the room.
    /// Cost: two comparisons, and one lookup per metric.
    pub(super) fn take(&mut self, table: &OverflowTable, slot: usize) -> bool {
        if self.series_left == 0 {
            return false;
        }
        if self.metric_series_max > 0 {
            let left = self.left_by_slot.entry(slot).or_insert_with(|| {
                let metric = table.slot(slot).map_or("", |slot| slot.metric());
                self.metric_series_max.saturating_sub(self.tables.metric_series_count(metric))
            });
            if *left == 0 {
                return false;
            }
            *left -= 1;
        }
        self.series_left -= 1;
        true
    }
}
