//! Records of a partition of the replicated log, which its owner applies (ADR 0138).
//!
//! Invariants: everything that decides about a sample comes from the record: the arrival time where
//! [`crate::Tsdb::apply`] reads the clock, and the duplicate policy; rates are limited where the record was
//! made. So two owners, and a single server that got the same requests at these times, have equal samples.
//! The position is queued for the WAL after all frames of its record.
//! Not here: the log and the order of records (`cluster`), bytes of records (`format`).

use chronolith_format::record::{Record, RecordOrigin, RecordStore};
use chronolith_head::{CachedLog, DeleteProgress, WriteError};
use chronolith_model::databases::BucketStoreId;
use chronolith_model::log_position::{LogPartition, Position};
use chronolith_model::{Matcher, StoreId, TenantId, TenantLimits, TimeRange, WriteBatch, WriteOutcome};

use super::batch_writer::BatchWriter;
use crate::changes::Writer;
use crate::storage::Storage;

/// Effect of a record.
#[derive(Debug)]
pub enum RecordEffect {
    /// Samples were written; the outcome has those that were refused.
    Written(Box<WriteOutcome>),
    /// Number of samples that were deleted.
    Deleted(u64),
    /// None but the passage of time: a tick, a cut, or a record that was skipped.
    None,
}

/// Reason why a record is not applied. The position stays before it.
#[derive(Debug, thiserror::Error)]
pub enum ApplyRecordError {
    /// Writes are refused.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The databases of the tenant that are known here do not have the store.
    #[error("tenant {tenant:?} has no store with the id {id} here")]
    UnknownStore {
        /// The tenant.
        tenant: TenantId,
        /// Id of the store in the bucket.
        id: BucketStoreId,
    },
    /// The store was dropped after the record was written.
    #[error("the store of the record was dropped")]
    DroppedStore,
}

/// Application of records, see [`crate::Tsdb::records`]. One thread applies them.
pub struct Records<'a> {
    storage: &'a Storage,
    writer: BatchWriter<'a>,
    log: CachedLog<'a>,
}

impl<'a> Records<'a> {
    pub(super) fn new(storage: &'a Storage, writer: BatchWriter<'a>, log: CachedLog<'a>) -> Records<'a> {
        Records { storage, writer, log }
    }
}

impl Records<'_> {
    /// Returns the partition.
    #[must_use]
    pub fn partition(&self) -> LogPartition {
        self.log.partition()
    }

    /// Returns the position of the next record; `None` in a directory without samples, before
    /// [`Records::start`].
    #[must_use]
    pub fn next(&self) -> Option<Position> {
        self.log.next()
    }

    /// Sets the offset of the first record, in a directory without samples, durably.
    ///
    /// # Errors
    /// [`WriteError`]: the WAL refuses frames.
    ///
    /// # Panics
    /// If there is a position.
    pub fn start(&self, next_offset: u64) -> Result<(), WriteError> {
        self.log.start(next_offset)
    }

    /// Applies the record at `offset`; `batch` has its samples. They are visible when it returns, and the
    /// position moves after them. Nothing has to be waited for: the log has the record until a block has its
    /// samples.
    ///
    /// # Errors
    /// [`ApplyRecordError`]: nothing was applied. Rejected samples are no error.
    ///
    /// # Panics
    /// Before [`Records::start`], and if `offset` is before the next record.
    pub fn apply(
        &self,
        offset: u64,
        record: &Record,
        batch: &WriteBatch,
    ) -> Result<RecordEffect, ApplyRecordError> {
        let guard = self.log.begin_record(offset)?;
        let effect = match record {
            Record::Samples { origin, duplicates } => {
                let store = self.store_of(origin)?;
                let limits = TenantLimits { duplicates: *duplicates, ..self.storage.limits_of(&store) };
                RecordEffect::Written(Box::new(self.write(&store, &limits, origin.arrival_ms, batch)?))
            }
            Record::Delete { origin, selectors, range, .. } => {
                RecordEffect::Deleted(self.delete(&self.store_of(origin)?, selectors, *range)?)
            }
            Record::Tick { .. } | Record::Cut(_) => RecordEffect::None,
        };
        let _ = guard.finish();
        Ok(effect)
    }

    /// Moves the position after the record at `offset`, which cannot be applied.
    ///
    /// # Errors
    /// [`WriteError`]: the WAL refuses frames.
    ///
    /// # Panics
    /// As [`Records::apply`].
    pub fn skip(&self, offset: u64) -> Result<(), WriteError> {
        let _ = self.log.begin_record(offset)?.finish();
        Ok(())
    }

    /// Returns the store of a record.
    ///
    /// # Errors
    /// [`ApplyRecordError::UnknownStore`] and [`ApplyRecordError::DroppedStore`].
    pub fn store_of(&self, origin: &RecordOrigin) -> Result<StoreId, ApplyRecordError> {
        let databases = self.storage.databases();
        let RecordOrigin { tenant, store, .. } = origin;
        databases.store_of_record(tenant, *store).ok_or_else(|| match *store {
            RecordStore::Database(id) | RecordStore::Graphite(id) if !databases.is_dropped(tenant, id) => {
                ApplyRecordError::UnknownStore { tenant: tenant.clone(), id }
            }
            _ => ApplyRecordError::DroppedStore,
        })
    }

    fn write(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        arrival_ms: i64,
        batch: &WriteBatch,
    ) -> Result<WriteOutcome, WriteError> {
        let storage = self.storage;
        let _permit = storage.admit_write(store)?;
        // Metadata has a file of its own, and after a kill the position must not be ahead of it.
        let change = storage.metadata().keep(store, &batch.metadata);
        storage.metadata().wait(change)?;
        Ok(self.writer.apply(store, limits, arrival_ms, batch, Writer::Client)?.outcome)
    }

    fn delete(
        &self,
        store: &StoreId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<u64, WriteError> {
        let storage = self.storage;
        let (stats, _) = storage.head().delete(store, selectors, range, &DeleteProgress::default())?;
        storage.note_change(store, range);
        Ok(stats.sample_count)
    }
}
