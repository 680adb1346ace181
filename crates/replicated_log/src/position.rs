//! Names of places in a log, records and limits of reads.
//!
//! Not here: the log itself (`log`).

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

/// Identity of a topic: a topic that was deleted and made again has another one. Prints as Kafka's tools do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// Number of a partition, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Identity of the log.
    pub topic: TopicId,
    /// Partition of the record.
    pub partition: PartitionId,
    /// Offset within the partition. A broker that recognised a repeat and no longer knows the offset of the
    /// first one leads to an offset after it, so that who waits for this offset has read the record.
    pub offset: u64,
}

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

#[cfg(test)]
mod tests;
