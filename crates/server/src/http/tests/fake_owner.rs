//! Owner of a partition without a log, for tests of requests to owners.

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_cluster::gateway::RecordStore;
use chronolith_cluster::owner::{NotReady, OwnerStatus, PartitionOwner};
use chronolith_cluster::peers::TenantSeries;
use chronolith_cluster::{LogError, PartitionId, TopicId};
use chronolith_model::TenantId;
use chronolith_model::log_position::LogPartition;
use chronolith_tsdb::BucketError;

/// Owner whose state a test sets.
pub(crate) struct FakeOwner {
    /// The partition.
    pub(crate) partition: LogPartition,
    /// Offset of the next record.
    pub(crate) next_offset: AtomicU64,
    /// End of the log.
    pub(crate) log_end: AtomicU64,
    /// Records that are applied at each look at the state.
    pub(crate) applied_per_look: u64,
    /// Looks at the state.
    pub(crate) looks: AtomicU64,
    /// Windows leave the store for blocks of a later catalogue whenever a caller is checked.
    pub(crate) leaves_at_each_look: bool,
    /// Number of the catalogue that callers need.
    pub(crate) catalogue: AtomicU64,
    /// Reason why the owner is not ready.
    pub(crate) not_ready: Option<NotReady>,
}

impl FakeOwner {
    /// An owner that has applied all of its partition.
    pub(crate) fn ready(partition: u32) -> FakeOwner {
        FakeOwner {
            partition: LogPartition { topic: TopicId([5; 16]), number: PartitionId(partition) },
            next_offset: AtomicU64::new(1),
            log_end: AtomicU64::new(1),
            applied_per_look: 0,
            looks: AtomicU64::new(0),
            leaves_at_each_look: false,
            catalogue: AtomicU64::new(0),
            not_ready: None,
        }
    }
}

impl PartitionOwner for FakeOwner {
    fn partition(&self) -> LogPartition {
        self.partition
    }

    fn status(&self) -> OwnerStatus {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let next_offset = Some(self.next_offset.fetch_add(self.applied_per_look, Ordering::Relaxed));
        OwnerStatus { next_offset, ..OwnerStatus::default() }
    }

    fn check_ready(&self) -> Result<(), NotReady> {
        self.not_ready.clone().map_or(Ok(()), Err)
    }

    fn log_end(&self) -> Result<u64, LogError> {
        Ok(self.log_end.load(Ordering::Relaxed))
    }

    fn catalogue_needed(&self, _: &TenantId, _: RecordStore) -> u64 {
        self.catalogue.fetch_add(u64::from(self.leaves_at_each_look), Ordering::Relaxed)
    }

    fn is_start_catalogue_due(&self, _: &TenantId, _: RecordStore) -> bool {
        false
    }

    fn read_start_catalogue(&self, _: &TenantId, _: RecordStore) -> Result<(), BucketError> {
        Ok(())
    }

    fn tenant_series(&self) -> Vec<TenantSeries> {
        Vec::new()
    }
}
