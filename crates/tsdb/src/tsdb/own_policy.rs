//! Writes of a batch whose duplicate policy is not the one of its store: a rule corrects recorded samples, a
//! backfill keeps stored ones (ADR 0119).
//!
//! Invariants: the policy holds for the whole store, wherever the other sample is and whatever is flushed,
//! merged or restarted later; a batch is acknowledged when it is durable.
//! Not here: order of the blocks (`maintenance::flush::own_policy`), the policy of a store (`limits`).

use chronolith_head::WriteError;
use chronolith_model::{StoreId, TenantLimits, TimeRange, WordKind, WriteBatch, WriteOutcome};

use crate::admin::Admin;
use crate::admin::error::AdminError;
use crate::changes::Writer;
use crate::exemplars::{ExemplarStorage, ExemplarWindow};
use crate::ingestion_rate::{IngestionRates, RequestSize};
use crate::storage::Storage;

/// Error of a batch with a duplicate policy of its own. Nothing is acknowledged; samples of some block ranges
/// may be stored, and the same batch again stores the rest.
#[derive(Debug, thiserror::Error)]
pub enum OwnPolicyError {
    /// Writes are refused.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A block cannot be written.
    #[error(transparent)]
    Block(#[from] AdminError),
    /// The batch has integers, booleans or texts, or rules of reorder buffers, whose stores have one policy.
    #[error("a duplicate policy of its own is for batches of floats and histograms")]
    OtherValues,
}

/// Writer of one batch.
pub(super) struct OwnPolicyWriter<'a> {
    pub(super) storage: &'a Storage,
    pub(super) admin: Admin<'a>,
    pub(super) ingestion_rates: &'a IngestionRates,
    pub(super) exemplars: &'a ExemplarStorage,
    pub(super) writer: Writer,
}

impl OwnPolicyWriter<'_> {
    /// Stores a batch under the policy of `limits`, which is not the one of the store, and takes its samples
    /// from the rate limit of the tenant.
    pub(super) fn append(
        &self,
        store: &StoreId,
        batch: &WriteBatch,
        limits: &TenantLimits,
    ) -> Result<WriteOutcome, OwnPolicyError> {
        let has_floats_alone = (0..batch.series.len()).all(|idx| batch.kind_of(idx) == WordKind::Float);
        if !has_floats_alone || batch.reordered.iter().any(|&rule| rule > 0) {
            return Err(OwnPolicyError::OtherValues);
        }
        let size = RequestSize::of(batch);
        self.ingestion_rates.take(store, limits, size, self.storage.env().clock.mono_ns())?;
        let stored = self.write(store, batch, limits);
        if stored.is_err() {
            self.ingestion_rates.give_back(store, limits, size);
        }
        stored
    }

    fn write(
        &self,
        store: &StoreId,
        batch: &WriteBatch,
        limits: &TenantLimits,
    ) -> Result<WriteOutcome, OwnPolicyError> {
        let now_ms = self.storage.env().clock.now_ms();
        let (series, mut outcome) = self.storage.head().decode(store, limits, now_ms, batch)?;
        let times = || series.iter().flat_map(|one| &one.samples.times).copied();
        if let Some((first, last)) = times().min().zip(times().max()) {
            let written = self.admin.write_own_policy(store, &series);
            // Also after a failure: blocks of some ranges may be there.
            self.storage.note_change_by(store, TimeRange::inclusive(first, last), self.writer);
            written?;
        }
        let change = self.storage.metadata().keep(store, &batch.metadata);
        self.exemplars.append(store, ExemplarWindow::of(limits, now_ms), batch, &mut outcome);
        self.storage.metadata().wait(change)?;
        Ok(outcome)
    }
}
