//! The contract of a replicated log.
//!
//! Invariants, for every implementation: offsets of a partition ascend in the order of the appends of one
//! caller, and an offset has the same record for ever; an append is in the log at most once unless its
//! broker repeats it; once a ticket resolved as appended, a read from its offset returns the record.
//! Not here: retries of callers, whose repeats are records of their own.

use bytes::Bytes;

use crate::error::LogError;
use crate::position::{Bounds, PartitionId, ReadLimits, Record, TopicId};
use crate::stats::LogStats;
use crate::ticket::Ticket;

/// A log of records in partitions. Calls block; implementations with sockets must not be called from a task
/// of an async runtime.
pub trait ReplicatedLog: Send + Sync {
    /// Returns the identity of the topic. It never changes while the log is open.
    fn identity(&self) -> TopicId;

    /// Returns the number of partitions. It may grow while the log is open.
    ///
    /// # Errors
    /// [`LogError`]: the log cannot be reached, or is another one.
    fn partition_count(&self) -> Result<u32, LogError>;

    /// Queues a record after those that this caller appended to the partition. Waits for room among the
    /// bytes in flight, at most the acknowledgement timeout; the record is in the log once its ticket
    /// resolves.
    ///
    /// # Errors
    /// [`LogError`]: nothing was appended.
    fn append(&self, partition: PartitionId, value: Bytes) -> Result<Ticket, LogError>;

    /// Returns records from offset `from` on, in order. None mean that no record arrived within the wait.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] outside of the bounds, [`LogError::Damaged`] for records that are lost
    /// at `from`; the log is not moved past either. [`LogError::Unavailable`] may be retried.
    fn read(&self, partition: PartitionId, from: u64, limits: ReadLimits) -> Result<Vec<Record>, LogError>;

    /// Returns the offsets that the partition has. Everything acknowledged before the call lies before the
    /// end.
    ///
    /// # Errors
    /// [`LogError`]: the partition does not exist or cannot be reached.
    fn bounds(&self, partition: PartitionId) -> Result<Bounds, LogError>;

    /// Returns counters since the log was opened, and bytes in flight.
    fn stats(&self) -> LogStats;
}
