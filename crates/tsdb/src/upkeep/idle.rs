//! Idle series to blocks: a series that takes no samples leaves memory long before its windows end.
//!
//! Holds: as for a window, the block is complete and named before its samples leave the head, and a whole
//! checkpoint follows at once: what a deletion later takes out of the block must not come back from the log.
//! The leftover blocks of a window wait for its main block, because nothing that reaches beyond the last
//! closed window is merged. Not here: how a series is found idle (`head::idle`).

use std::sync::atomic::Ordering;

use chronolith_head::IdleSeries;

use super::due::ranges_of;
use super::{FlushError, Upkeep};
use crate::store::Tsdb;

/// A tenant's idle series go to a block when they are at least one in this many of its series.
const IDLE_PART_MIN: usize = 20;

impl Tsdb {
    /// Ends a generation of series if that is due, and cuts those that slept through two of them. A series
    /// leaves after it was idle for `idle_after_ms` to one and a half times that.
    pub(super) fn cut_idle_due(&self, upkeep: &mut Upkeep, now_ms: i64) {
        let period_ms = self.options.idle_after_ms.div_euclid(2).max(1);
        // The clock may have been set back.
        let is_waiting = upkeep.age_at_ms > now_ms && upkeep.age_at_ms <= now_ms.saturating_add(period_ms);
        if self.options.idle_after_ms <= 0 || is_waiting {
            return;
        }
        let is_first = upkeep.age_at_ms == 0;
        upkeep.age_at_ms = now_ms.saturating_add(period_ms);
        if is_first {
            // The generation began with the process.
            return;
        }
        if let Err(error) = self.cut_idle(now_ms) {
            self.count_upkeep_error();
            tracing::error!(%error, "cutting idle series to blocks failed; they are tried again in {period_ms} ms");
        }
    }

    fn cut_idle(&self, now_ms: i64) -> Result<(), FlushError> {
        let (mut cut_count, mut result) = (0, Ok(()));
        for idle in self.head.windows().age_series() {
            // They stay idle; an operator does not wait for all of them.
            if cut_count > 0 && self.compaction.waiting.load(Ordering::SeqCst) > 0 {
                break;
            }
            if idle.idle_count() < self.options.idle_count_min
                || idle.idle_count() < idle.series_count / IDLE_PART_MIN
            {
                continue;
            }
            match self.cut_idle_of(&idle, now_ms) {
                Ok(()) => cut_count += 1,
                Err(error) => {
                    tracing::error!(tenant = %idle.tenant, %error, "cutting idle series to blocks failed");
                    result = Err(error);
                }
            }
        }
        if cut_count > 0 {
            self.head.checkpointer().checkpoint_newest()?;
        }
        result
    }

    fn cut_idle_of(&self, idle: &IdleSeries, now_ms: i64) -> Result<(), FlushError> {
        let windows = self.head.windows().list_of(&idle.tenant);
        for range in ranges_of(&windows, self.options.small_window_bytes, now_ms) {
            let snapshot = self.head.windows().snapshot_idle(idle, range)?;
            if snapshot.series_count() > 0 {
                self.write_and_drop(&idle.tenant, range, snapshot)?;
            }
        }
        self.counters.idle_series.fetch_add(idle.idle_count() as u64, Ordering::Relaxed);
        tracing::info!(tenant = %idle.tenant, series = idle.idle_count(), "idle series cut to blocks");
        Ok(())
    }
}
