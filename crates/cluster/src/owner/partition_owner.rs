//! Owner as the requests of other processes and of clients see it: one contract for readiness, reports, waits
//! for offsets, and the seam between its head and the blocks of the bucket.
//!
//! Not here: answers of an owner (`answers`), application of records, requests (`server`).

use chronolith_bucket::BucketError;
use chronolith_format::record::RecordStore;
use chronolith_model::TenantId;
use chronolith_model::log_position::LogPartition;
use chronolith_replicated_log::LogError;

use super::status::{NotReady, OwnerStatus};
use crate::peers::{NodeReport, PartitionProgress, PartitionReport, TenantSeries};

/// Owner of a partition for requests.
pub trait PartitionOwner: Send + Sync {
    /// Returns the partition.
    fn partition(&self) -> LogPartition;

    /// Returns the state of the owner.
    fn status(&self) -> OwnerStatus;

    /// Returns the reason why queries of recent data have to ask another owner, if there is one.
    ///
    /// # Errors
    /// [`NotReady`].
    fn check_ready(&self) -> Result<(), NotReady>;

    /// Asks the log for the offset that the next record of the partition gets. Blocks the thread.
    ///
    /// # Errors
    /// [`LogError`].
    fn log_end(&self) -> Result<u64, LogError>;

    /// Returns the number of a catalogue of a store that has all windows which have left, or are about to
    /// leave; 0 if none has. Never falls. A caller that reads an older catalogue would miss them. Windows
    /// that left before the start of the process count once [`PartitionOwner::read_start_catalogue`] has
    /// succeeded.
    fn catalogue_needed(&self, tenant: &TenantId, store: RecordStore) -> u64;

    /// Returns true if [`PartitionOwner::read_start_catalogue`] should be called for a store: it has not
    /// succeeded yet, nor failed recently.
    fn is_start_catalogue_due(&self, tenant: &TenantId, store: RecordStore) -> bool;

    /// Asks the bucket which catalogue has the windows that left before the start of the process. Blocks the
    /// thread, two seconds at most; must not be called from a task of a runtime.
    ///
    /// # Errors
    /// [`BucketError`]: callers with an old catalogue may miss these windows.
    fn read_start_catalogue(&self, tenant: &TenantId, store: RecordStore) -> Result<(), BucketError>;

    /// Returns the series of tenants, at most [`crate::peers::TENANTS_REPORTED_MAX`] ones that are nearest to
    /// their limit. Cost: visits each store.
    fn tenant_series(&self) -> Vec<TenantSeries>;

    /// Returns the report for other nodes.
    fn report(&self) -> NodeReport {
        let partition = self.partition();
        let status = self.status();
        let progress = PartitionProgress {
            lag_ms: status.lag_ms,
            log_start: status.log_start,
            log_end: status.log_end,
            resume: status.cuts.resume,
            refused_count: status.refused_count,
        };
        let not_ready = self.check_ready().err();
        let own = PartitionReport {
            partition: partition.number,
            next_offset: status.next_offset,
            not_ready: not_ready.as_ref().map(ToString::to_string),
            is_log_away: matches!(not_ready, Some(NotReady::LogAway(_))),
            progress: status.next_offset.is_some().then_some(progress),
            series: self.tenant_series(),
        };
        NodeReport { topic: partition.topic, partitions: vec![own] }
    }
}
