//! Offsets that a read has to see: the answer to a write names them, and a reader sends them back.
//!
//! Not here: the wait of a request (`server`), offsets of a write (`gateway::LogOffsets`).

use std::collections::BTreeMap;
use std::str::FromStr;

use chronolith_model::log_position::LogPartition;

/// Partitions that a text may name, as many as an answer has.
pub(crate) const PARTITIONS_NAMED_MAX: usize = 100;

/// The topic of a text is not the topic of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the offsets are of topic {found}, and the log is topic {expected}: it was made again, or is another one"
)]
pub struct OtherTopic {
    expected: String,
    found: String,
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
    /// Returns the offset of a partition; `None` if it is not named.
    ///
    /// # Errors
    /// [`OtherTopic`].
    pub fn of(&self, partition: LogPartition) -> Result<Option<u64>, OtherTopic> {
        let expected = partition.topic.to_string();
        if self.topic != expected {
            return Err(OtherTopic { expected, found: self.topic.clone() });
        }
        Ok(self.newest.get(&partition.number.0).copied())
    }
}

#[cfg(test)]
mod tests;
