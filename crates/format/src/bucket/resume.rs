//! Offset from which on an owner without a directory reads its partition, as a numbered snapshot in a bucket.
//!
//! Invariant: the checksum is verified before anything is returned.
//! Not here: the rule for the offset (`model::cut`), reading and storing it (`cluster`). Layout:
//! `docs/bucket/resume.md`.

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::log_position::{LogPartition, PartitionId, Position, TopicId};

use super::numbered::{NumberedSnapshot, SnapshotKey, SnapshotNames, Stamp};
use super::texts::check_end;

/// First four bytes of a snapshot.
const MAGIC: [u8; 4] = *b"CLRS";
/// Version that is written, and the only one that is read.
const VERSION: u16 = 1;
/// Bytes before the checksum.
const CONTENT_BYTES: usize = 72;
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

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

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
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.stamp.number.to_le_bytes());
        out.extend_from_slice(&self.stamp.writer);
        out.extend_from_slice(&self.stamp.created_ms.to_le_bytes());
        let key = SnapshotKey { folder, number: self.stamp.number };
        out.extend_from_slice(&key.folder_crc().to_le_bytes());
        out.extend_from_slice(&topic.0);
        out.extend_from_slice(&partition.0.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    fn decode_object(bytes: &[u8], key: SnapshotKey<'_>) -> Result<ResumeSnapshot, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let magic = reader.be_u32(WHAT)?;
        if magic != u32::from_be_bytes(MAGIC) {
            return Err(invalid("CLRS", 0, u64::from(magic)));
        }
        let version = reader.le_u16(WHAT)?;
        reader.bytes(WHAT, 2)?;
        if version != VERSION {
            return Err(invalid("version 1", 4, u64::from(version)));
        }
        let number = reader.le_u64(WHAT)?;
        let mut writer = [0; 16];
        writer.copy_from_slice(reader.bytes(WHAT, 16)?);
        let created_ms = reader.le_u64(WHAT)?.cast_signed();
        let folder_crc = reader.le_u32(WHAT)?;
        let mut topic = [0; 16];
        topic.copy_from_slice(reader.bytes(WHAT, 16)?);
        let partition = LogPartition { topic: TopicId(topic), number: PartitionId(reader.le_u32(WHAT)?) };
        let offset = reader.le_u64(WHAT)?;
        let found = reader.le_u32(WHAT)?;
        check_end(WHAT, &reader)?;
        let expected = crc32c(bytes.get(..CONTENT_BYTES).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::Checksum { what: WHAT, offset: CONTENT_BYTES, expected, found });
        }
        if number != key.number {
            return Err(invalid("the number of its name", 8, number));
        }
        if folder_crc != key.folder_crc() {
            return Err(invalid("the checksum of its folder", 40, u64::from(folder_crc)));
        }
        let stamp = Stamp { number, writer, created_ms };
        Ok(ResumeSnapshot { stamp, position: Some(partition.at(offset)) })
    }
}

#[cfg(test)]
mod tests;
