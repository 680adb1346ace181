//! Offset from which on an owner without a directory reads its partition, as a numbered snapshot in a bucket.
//!
//! Invariant: the checksum is verified before anything is returned.
//! Not here: the rule for the offset (`model::cut`), reading and storing it (`cluster`). Layout:
//! `docs/bucket/resume.md`.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::log_position::{LogPartition, PartitionId, Position, TopicId};

use super::numbered::header::{SnapshotFormat, put_checksum, read_checksum};
use super::numbered::{NumberedSnapshot, SnapshotKey, SnapshotNames, Stamp};
use super::texts::check_end;

const FORMAT: SnapshotFormat =
    SnapshotFormat { what: WHAT, magic: "CLRS", version: 1, version_text: "version 1" };
const WHAT: &str = "offset to resume from";

/// The oldest record of a partition with a sample that is in no live block, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeSnapshot {
    /// Number, writer and time.
    pub stamp: Stamp,
    /// Position of the record, or of the next one if every sample is in a block. `None` before the first
    /// snapshot.
    pub position: Option<Position>,
}

impl ResumeSnapshot {
    /// Names of the snapshots of a partition, within the folder of the cluster. A topic that was made
    /// again continues the series of the one before.
    #[must_use]
    pub fn names_of(partition: PartitionId) -> SnapshotNames {
        SnapshotNames::new(format!("{}{partition}/", Self::FOLDER))
    }
}

/// A snapshot without a position, which only stands before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a position is missing")]
pub struct PositionMissing;

impl NumberedSnapshot for ResumeSnapshot {
    const FOLDER: &'static str = "resume/";
    const WHAT: &'static str = WHAT;
    type EncodeError = PositionMissing;

    fn empty() -> ResumeSnapshot {
        ResumeSnapshot { stamp: Stamp::default(), position: None }
    }

    fn stamp(&self) -> Stamp {
        self.stamp
    }

    fn set_stamp(&mut self, stamp: Stamp) {
        self.stamp = stamp;
    }

    fn encode_object(&self, folder: &str, out: &mut Vec<u8>) -> Result<(), PositionMissing> {
        let Position { topic, partition, offset } = self.position.ok_or(PositionMissing)?;
        let start = out.len();
        FORMAT.put_header(&self.stamp, folder, out);
        out.extend_from_slice(&topic.0);
        out.extend_from_slice(&partition.0.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        put_checksum(start, out);
        Ok(())
    }

    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<ResumeSnapshot, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let header = FORMAT.read_header(&mut reader)?;
        let mut topic = [0; 16];
        topic.copy_from_slice(reader.bytes(WHAT, 16)?);
        let partition = LogPartition { topic: TopicId(topic), number: PartitionId(reader.le_u32(WHAT)?) };
        let offset = reader.le_u64(WHAT)?;
        read_checksum(WHAT, &mut reader, bytes)?;
        check_end(WHAT, &reader)?;
        let stamp = header.check(key)?;
        Ok(ResumeSnapshot { stamp, position: Some(partition.at(offset)) })
    }
}

#[cfg(test)]
mod tests;
