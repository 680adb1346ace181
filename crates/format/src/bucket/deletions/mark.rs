//! Mark of a partition: the offset of the record of a deletion that its owners apply. Records of the deletion
//! at other offsets are repeats.
//!
//! Invariant: the checksum, the number and the partition are verified before the offset is returned.
//! Not here: creating it, once per deletion and partition (`cluster`). Layout: `docs/bucket/deletions.md`.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::log_position::{LogPartition, PartitionId, Position, TopicId};

use crate::bucket::numbered::header::{put_checksum, read_checksum};
use crate::bucket::texts::check_end;

const WHAT: &str = "mark of a deletion";
const MAGIC: &str = "CLDM";
const VERSION: u16 = 1;

/// Returns the folder of the marks of a deletion, within the folder of the cluster, with a slash at its end.
#[must_use]
pub fn marks_folder(number: u64) -> String {
    format!("deletion-marks/{number:020}/")
}

/// Returns the name of the mark of a partition, within the folder of the cluster.
#[must_use]
pub fn mark_name(number: u64, partition: PartitionId) -> String {
    format!("{}{partition}", marks_folder(number))
}

/// Appends the mark of deletion `number` for the partition of `position`.
pub fn encode_mark(number: u64, position: Position, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(MAGIC.as_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&number.to_le_bytes());
    let Position { topic, partition, offset } = position;
    out.extend_from_slice(&topic.0);
    out.extend_from_slice(&partition.0.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    put_checksum(start, out);
}

/// Returns the offset in the mark of deletion `number` for `partition`.
///
/// # Errors
/// [`DecodeError`]: damage, a later version, or the mark of another deletion or partition.
pub fn decode_mark(bytes: &[u8], number: u64, partition: LogPartition) -> Result<u64, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let invalid = |offset, expected, found| DecodeError::Invalid { what: WHAT, offset, expected, found };
    let magic = reader.bytes(WHAT, 4)?;
    if magic != MAGIC.as_bytes() {
        return Err(invalid(0, MAGIC, u64::from(magic.first().copied().unwrap_or(0))));
    }
    let version = reader.le_u16(WHAT)?;
    if version != VERSION {
        return Err(invalid(4, "version 1", u64::from(version)));
    }
    reader.bytes(WHAT, 2)?;
    let found_number = reader.le_u64(WHAT)?;
    let mut topic = [0; 16];
    topic.copy_from_slice(reader.bytes(WHAT, 16)?);
    let found = LogPartition { topic: TopicId(topic), number: PartitionId(reader.le_u32(WHAT)?) };
    let offset = reader.le_u64(WHAT)?;
    read_checksum(WHAT, &mut reader, bytes)?;
    check_end(WHAT, &reader)?;
    if found_number != number {
        return Err(invalid(8, "the number of its name", found_number));
    }
    if found != partition {
        return Err(invalid(
            16,
            "the topic of the log and the partition of its name",
            u64::from(found.number.0),
        ));
    }
    Ok(offset)
}
