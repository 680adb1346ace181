//! Records, bounds of a partition and limits of reads.
//!
//! Not here: the log itself (`log`), names of positions (`model`).

use std::time::Duration;

use bytes::Bytes;
pub use chronolith_model::log_position::{PartitionId, Position, TopicId};

/// A record as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Offset within the partition. Offsets ascend, and may leave some out.
    pub offset: u64,
    /// Time of the log, milliseconds since 1970-01-01 UTC: of the broker's append, or of the producer where
    /// the topic is configured so.
    pub timestamp_ms: i64,
    /// Bytes as they were appended.
    pub value: Bytes,
}

/// Offsets of a partition, half-open `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Offset of the oldest record that is kept.
    pub start: u64,
    /// Offset that the next record gets.
    pub end: u64,
}

/// Limits of one read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimits {
    /// Sum of the values in bytes; a first record that is larger is returned alone.
    pub bytes_max: usize,
    /// Longest wait for a first record.
    pub wait: Duration,
}
