//! Payload of position frames: the records of a partition of the replicated log that the frames before have.
//!
//! Invariant: the frame follows all frames of its records, so a reader that has every frame up to it has all
//! samples of these records.
//! Not here: search for the last position (`wal`), records (`crate::record`).

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::log_position::{PartitionId, Position, TopicId};

use super::payload::expect_end;

/// Bytes of the payload.
pub const POSITION_BYTES: usize = 36;

/// A decoded position frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionFrame {
    /// Position of the next record: all records before it are in the frames before.
    pub next: Position,
    /// Set in the first frame of a process that went on after this sequence: it removed the frames between
    /// that one and this one, which had parts of records after the last position. Not 0.
    pub resumes_after: Option<u64>,
}

impl PositionFrame {
    /// Encodes the payload.
    #[must_use]
    pub fn encode(&self) -> [u8; POSITION_BYTES] {
        let Position { topic, partition, offset } = self.next;
        let mut out = [0; POSITION_BYTES];
        out[..16].copy_from_slice(&topic.0);
        out[16..20].copy_from_slice(&partition.0.to_le_bytes());
        out[20..28].copy_from_slice(&offset.to_le_bytes());
        out[28..].copy_from_slice(&self.resumes_after.unwrap_or(0).to_le_bytes());
        out
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &[u8]) -> Result<PositionFrame, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let mut topic = [0; 16];
        topic.copy_from_slice(reader.bytes("topic id", 16)?);
        let partition = PartitionId(reader.le_u32("partition")?);
        let offset = reader.le_u64("offset")?;
        let resumes_after = Some(reader.le_u64("sequence of the start")?).filter(|&sequence| sequence > 0);
        expect_end(&reader, "position")?;
        Ok(PositionFrame { next: Position { topic: TopicId(topic), partition, offset }, resumes_after })
    }
}

#[cfg(test)]
mod tests;
