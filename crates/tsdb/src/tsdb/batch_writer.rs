//! Batches that are written to the head, with metadata and exemplars.
//!
//! Invariant: a batch is visible before caches of results hear of it, and they hear of it before it is
//! acknowledged.
//! Not here: limits of rates (the parent), blocks of batches with a policy of their own (`own_policy`).

use chronolith_head::{WalPosition, WriteError, queued_bytes_of_thread};
use chronolith_model::{
    OverflowPolicy, ReachedLimit, Reject, StoreId, TenantLimits, WriteBatch, WriteOutcome,
};

use crate::changes::Writer;
use crate::exemplars::{ExemplarStorage, ExemplarWindow};
use crate::metadata::Change;
use crate::storage::Storage;
use crate::tenant_usage::{LimitUse, overflow_uses};

/// A batch that is visible and may not be durable yet, see [`crate::Tsdb::apply`].
#[must_use = "it is acknowledged after `Tsdb::wait_durable`"]
pub struct Applied {
    pub(super) outcome: WriteOutcome,
    pub(super) position: WalPosition,
    pub(super) change: Change,
    wal_bytes: u64,
}

impl Applied {
    /// Bytes that it has queued for the WAL.
    #[must_use]
    pub fn wal_bytes(&self) -> u64 {
        self.wal_bytes
    }

    /// Joins a batch and the next one of the same request, which are acknowledged together. The later one has
    /// the later place in the log.
    pub fn join(mut self, later: Applied) -> Applied {
        self.outcome.add(later.outcome);
        Applied {
            outcome: self.outcome,
            position: self.position.max(later.position),
            change: self.change.max(later.change),
            wal_bytes: self.wal_bytes + later.wal_bytes,
        }
    }
}

/// Writes batches whose tenant may write.
pub(super) struct BatchWriter<'a> {
    pub(super) storage: &'a Storage,
    pub(super) exemplars: &'a ExemplarStorage,
}

impl BatchWriter<'_> {
    /// Makes a batch that arrived at `now_ms` visible, whatever the rate of its tenant.
    pub(super) fn apply(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        now_ms: i64,
        batch: &WriteBatch,
        writer: Writer,
    ) -> Result<Applied, WriteError> {
        let queued_before = queued_bytes_of_thread();
        let (mut outcome, position) = self.storage.head().append(store, limits, now_ms, batch)?;
        let wal_bytes = queued_bytes_of_thread() - queued_before;
        self.note_full_store(store, limits, &mut outcome);
        // After the samples are visible and before they are acknowledged, as result caches require.
        self.storage.changes().note_batch(store, batch, writer);
        if let Some(written) = outcome.overflow.written {
            self.storage.note_change(store, written);
        }
        if !store.is_default()
            && let Some(&first) = batch.times.iter().min()
        {
            self.storage.note_change_of_owner(store, first);
        }
        let change = self.storage.metadata().keep(store, &batch.metadata);
        let window = ExemplarWindow::of(limits, now_ms);
        self.exemplars.append(store, window, batch, &mut outcome);
        Ok(Applied { outcome, position, change, wal_bytes })
    }

    /// Adds the use of `series-limit` to an outcome with series that it rejects, or the use of a limit of
    /// folded series. Nothing is added if the store has fewer series: the index has no room, or series have
    /// left meanwhile.
    fn note_full_store(&self, store: &StoreId, limits: &TenantLimits, outcome: &mut WriteOutcome) {
        if outcome.rejected[Reject::SeriesLimit as usize] == 0 {
            return;
        }
        if limits.ingestion.overflow == OverflowPolicy::Fold {
            let uses = overflow_uses(self.storage, store, limits);
            let full = uses.into_iter().find(|one| one.limit.is_some_and(|limit| one.used >= limit));
            if let Some(LimitUse { setting: Some(setting), used, limit: Some(limit), .. }) = full {
                let name = setting.to_owned();
                outcome.note_reached(ReachedLimit { kind: Reject::SeriesLimit, name, used, limit });
                return;
            }
        }
        let used = self.storage.head().statistics().series_count_of(store);
        let limit = limits.series_max as u64;
        if used >= limit {
            let name = String::new();
            outcome.note_reached(ReachedLimit { kind: Reject::SeriesLimit, name, used, limit });
        }
    }
}
