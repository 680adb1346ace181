//! Records of the replicated log that a read has to see: the answer to a write names their offsets, and a
//! reader sends them back.
//!
//! Not here: the wait for a record (`server`), offsets of a write (`cluster::gateway`).

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::log_position::{LogPartition, TopicId};

/// Partitions that a text may name, as many as an answer has.
pub const PARTITIONS_NAMED_MAX: usize = 100;

/// The topic of a text is not the topic of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the offsets are of topic {found}, and the log is topic {expected}: it was made again, or is another one"
)]
pub struct OtherTopic {
    expected: String,
    found: String,
}

/// Records that a read has to see. The default is to wait for none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadConsistency {
    /// All records that are in a partition when its owner gets the read.
    pub is_strong: bool,
    /// Records up to these offsets.
    pub offsets: Option<MinOffsets>,
}

impl ReadConsistency {
    /// Returns true if the read waits for no record.
    #[must_use]
    pub fn is_eventual(&self) -> bool {
        !self.is_strong && self.offsets.is_none()
    }
}

/// Newest offset per partition that a read has to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinOffsets {
    topic: String,
    newest: BTreeMap<u32, u64>,
}

impl FromStr for MinOffsets {
    type Err = String;

    fn from_str(text: &str) -> Result<MinOffsets, String> {
        let mut offsets: Option<MinOffsets> = None;
        for item in text.split(',').map(str::trim) {
            let invalid =
                || format!("invalid offset {item:?}, expected TOPIC:PARTITION:OFFSET, as an answer has them");
            let mut parts = item.splitn(3, ':');
            let topic = parts.next().filter(|topic| !topic.is_empty()).ok_or_else(invalid)?;
            let partition = parts.next().and_then(|part| part.parse().ok()).ok_or_else(invalid)?;
            let offset = parts.next().and_then(|part| part.parse().ok()).ok_or_else(invalid)?;
            let all = offsets
                .get_or_insert_with(|| MinOffsets { topic: topic.to_owned(), newest: BTreeMap::new() });
            if all.topic != topic {
                return Err(format!("offsets of two topics, {} and {topic}, expected one", all.topic));
            }
            let newest = all.newest.entry(partition).or_insert(offset);
            *newest = offset.max(*newest);
            if all.newest.len() > PARTITIONS_NAMED_MAX {
                return Err(format!("more than {PARTITIONS_NAMED_MAX} partitions"));
            }
        }
        offsets.ok_or_else(|| "no offsets".to_owned())
    }
}

impl MinOffsets {
    /// Offsets of partitions of `topic`; `None` without a topic or a partition, and for more than
    /// [`PARTITIONS_NAMED_MAX`].
    #[must_use]
    pub fn new(topic: String, newest: BTreeMap<u32, u64>) -> Option<MinOffsets> {
        let is_valid = !topic.is_empty() && (1..=PARTITIONS_NAMED_MAX).contains(&newest.len());
        is_valid.then_some(MinOffsets { topic, newest })
    }

    /// Text of the topic's id.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Newest offset by number of the partition; at least one.
    #[must_use]
    pub fn newest(&self) -> &BTreeMap<u32, u64> {
        &self.newest
    }

    /// Checks that the offsets are of `topic`.
    ///
    /// # Errors
    /// [`OtherTopic`].
    pub fn check_topic(&self, topic: TopicId) -> Result<(), OtherTopic> {
        let expected = topic.to_string();
        if self.topic == expected {
            return Ok(());
        }
        Err(OtherTopic { expected, found: self.topic.clone() })
    }

    /// Returns the offset of a partition; `None` if it is not named.
    ///
    /// # Errors
    /// [`OtherTopic`].
    pub fn of(&self, partition: LogPartition) -> Result<Option<u64>, OtherTopic> {
        self.check_topic(partition.topic)?;
        Ok(self.newest.get(&partition.number.0).copied())
    }
}

#[cfg(test)]
mod tests;
