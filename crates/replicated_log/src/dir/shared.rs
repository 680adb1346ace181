//! State that appenders, readers and the writer of a directory share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use chronolith_base::Env;
use parking_lot::Mutex;

use super::options::DirOptions;
use super::partition::Partition;
use crate::error::LogError;
use crate::in_flight::InFlight;
use crate::position::{PartitionId, TopicId};
use crate::stats::Counters;

/// State that appenders, readers and the writer share.
pub(super) struct Shared {
    pub(super) env: Env,
    pub(super) options: DirOptions,
    pub(super) topic: TopicId,
    pub(super) partitions: Vec<Partition>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) counters: Counters,
    pub(super) disk_bytes: AtomicU64,
    /// Reason why nothing is appended any more.
    pub(super) poison: Mutex<Option<String>>,
}

impl Shared {
    /// Returns the state of an open log.
    pub(super) fn new(env: &Env, topic: TopicId, partitions: Vec<Partition>, options: DirOptions) -> Shared {
        let disk_bytes = partitions.iter().map(Partition::disk_bytes).sum();
        Shared {
            env: env.clone(),
            topic,
            partitions,
            in_flight: InFlight::new(options.in_flight_bytes_max),
            counters: Counters::default(),
            disk_bytes: AtomicU64::new(disk_bytes),
            poison: Mutex::new(None),
            options,
        }
    }

    /// Returns a partition by its number.
    ///
    /// # Errors
    /// [`LogError::NoPartition`].
    pub(super) fn partition(&self, partition: PartitionId) -> Result<&Partition, LogError> {
        let partition_count = self.options.partition_count;
        self.partitions.get(partition.0 as usize).ok_or(LogError::NoPartition { partition, partition_count })
    }
}
