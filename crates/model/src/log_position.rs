//! Names of positions in the replicated log: topic, partition, offset.
//!
//! Not here: the log itself (`replicated_log`), cuts of a partition (`cut`).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Identity of a topic: a topic that was deleted and made again has another one, and its offsets begin at 0
/// again. Prints as Kafka's tools do.
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

/// A partition of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPartition {
    /// Identity of the topic.
    pub topic: TopicId,
    /// Number of the partition.
    pub number: PartitionId,
}

impl LogPartition {
    /// Returns the position of an offset of the partition.
    #[must_use]
    pub fn at(self, offset: u64) -> Position {
        Position { topic: self.topic, partition: self.number, offset }
    }
}

impl fmt::Display for LogPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} of topic {}", self.number, self.topic)
    }
}

/// Position of a record in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Identity of the topic.
    pub topic: TopicId,
    /// Partition of the record.
    pub partition: PartitionId,
    /// Offset within the partition. A broker that recognised a repeat and no longer knows the offset of the
    /// first one leads to an offset after it, so that who waits for this offset has read the record.
    pub offset: u64,
}

impl Position {
    /// Returns the partition.
    #[must_use]
    pub fn log_partition(self) -> LogPartition {
        LogPartition { topic: self.topic, number: self.partition }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators compare it with the output of `kafka-topics.sh --describe`.
    #[test]
    fn topic_ids_print_as_in_kafka() {
        let id: [u8; 16] =
            [0xd9, 0x6e, 0x8f, 0x7c, 0x1b, 0x5a, 0x4a, 0x3c, 0x9b, 0x0f, 0x0e, 0xff, 0xfe, 0, 1, 2];
        assert_eq!(TopicId(id).to_string(), "2W6PfBtaSjybDw7__gABAg");
    }
}
