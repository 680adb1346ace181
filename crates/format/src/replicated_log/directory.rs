//! Replicated log in a directory: the topic file, and segments of records.
//!
//! Invariants: every byte in use is covered by a checksum; a reader takes untrusted bytes and never panics;
//! the checksum of a record's header covers the topic id, so bytes that a client sends never look like a
//! record.
//! Not here: files, syncing, choice of the segments that are kept (crate `replicated_log`).

use chronolith_base::crc::{Crc32c, crc32c};
use chronolith_base::{ByteReader, DecodeError};

/// Name of the topic file.
pub const TOPIC_FILE: &str = "topic";
/// Bytes of the topic file.
pub const TOPIC_FILE_BYTES: usize = 32;
/// Bytes of a segment header.
pub const SEGMENT_HEADER_BYTES: usize = 40;
/// Bytes of a record header.
pub const RECORD_HEADER_BYTES: usize = 32;
/// A value is never longer.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Version of the topic file and of segments.
pub const VERSION: u16 = 1;

const TOPIC_MAGIC: [u8; 4] = *b"CLRT";
const SEGMENT_MAGIC: [u8; 4] = *b"CLRS";
const SEGMENT_SUFFIX: &str = ".records";
/// Digits of the first offset in the name of a segment: every u64 fits.
const NAME_DIGITS: usize = 20;

/// Content of the topic file: the identity of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicFile {
    /// Random id, drawn once for a directory.
    pub topic: [u8; 16],
    /// At least 1.
    pub partition_count: u32,
}

impl TopicFile {
    /// Encodes the file.
    #[must_use]
    pub fn encode(&self) -> [u8; TOPIC_FILE_BYTES] {
        let mut out = [0u8; TOPIC_FILE_BYTES];
        out[..4].copy_from_slice(&TOPIC_MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.partition_count.to_le_bytes());
        out[12..28].copy_from_slice(&self.topic);
        let sum = crc32c(&out[..28]);
        out[28..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`DecodeError`] for short, long, foreign or damaged bytes, and for a later version.
    pub fn decode(bytes: &[u8]) -> Result<TopicFile, DecodeError> {
        let mut reader = checked_header(bytes, TOPIC_FILE_BYTES, TOPIC_MAGIC, "topic file")?;
        let offset = reader.offset();
        let partition_count = reader.le_u32("partition count")?;
        if partition_count == 0 {
            let expected = "at least 1";
            return Err(DecodeError::Invalid { what: "partition count", offset, expected, found: 0 });
        }
        let topic = topic_id(&mut reader)?;
        if bytes.len() > TOPIC_FILE_BYTES {
            let found = bytes.len() as u64;
            let offset = TOPIC_FILE_BYTES;
            return Err(DecodeError::Invalid { what: "topic file", offset, expected: "32 bytes", found });
        }
        Ok(TopicFile { topic, partition_count })
    }
}

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Id of the topic file.
    pub topic: [u8; 16],
    /// Partition, as in the name of the directory.
    pub partition: u32,
    /// Offset of the first record, as in the name of the file.
    pub first_offset: u64,
}

impl SegmentHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0u8; SEGMENT_HEADER_BYTES];
        out[..4].copy_from_slice(&SEGMENT_MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.partition.to_le_bytes());
        out[12..28].copy_from_slice(&self.topic);
        out[28..36].copy_from_slice(&self.first_offset.to_le_bytes());
        let sum = crc32c(&out[..36]);
        out[36..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign or damaged bytes, and for a later version.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let mut reader = checked_header(bytes, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, "segment header")?;
        let partition = reader.le_u32("partition")?;
        let topic = topic_id(&mut reader)?;
        let first_offset = reader.le_u64("first offset")?;
        Ok(SegmentHeader { topic, partition, first_offset })
    }
}

/// A record within the bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Offset within the partition.
    pub offset: u64,
    /// Time of the append, milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: i64,
    /// Bytes as they were appended.
    pub value: &'a [u8],
    /// Bytes of header and value.
    pub len: usize,
}

/// Header of a record, verified; its value is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// Offset within the partition.
    pub offset: u64,
    /// Time of the append, milliseconds since 1970-01-01 UTC.
    pub timestamp_ms: i64,
    /// Bytes of the value.
    pub value_len: usize,
    value_crc: u32,
}

/// Appends a record to `out`.
///
/// # Panics
/// If the value is longer than [`VALUE_BYTES_MAX`].
pub fn put_record(topic: &[u8; 16], offset: u64, timestamp_ms: i64, value: &[u8], out: &mut Vec<u8>) {
    assert!(value.len() <= VALUE_BYTES_MAX, "a value of {} bytes", value.len());
    let start = out.len();
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&timestamp_ms.to_le_bytes());
    out.extend_from_slice(&crc32c(value).to_le_bytes());
    let sum = header_crc(topic, out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(value);
}

/// Reads the record at `at`.
///
/// # Errors
/// [`DecodeError`]: `Short` if the bytes end before the record does, `Checksum` or `Invalid` for damage.
pub fn read_record<'a>(topic: &[u8; 16], bytes: &'a [u8], at: usize) -> Result<RecordRef<'a>, DecodeError> {
    let header = read_record_header(topic, bytes, at)?;
    let mut reader = ByteReader::at(bytes, at.saturating_add(RECORD_HEADER_BYTES));
    let offset = reader.offset();
    let value = reader.bytes("value of a record", header.value_len)?;
    let expected = crc32c(value);
    let found = header.value_crc;
    if expected != found {
        return Err(DecodeError::Checksum { what: "value of a record", offset, expected, found });
    }
    let len = RECORD_HEADER_BYTES + header.value_len;
    Ok(RecordRef { offset: header.offset, timestamp_ms: header.timestamp_ms, value, len })
}

/// Reads the header of the record at `at`.
///
/// # Errors
/// As [`read_record`].
pub fn read_record_header(topic: &[u8; 16], bytes: &[u8], at: usize) -> Result<RecordHeader, DecodeError> {
    let mut reader = ByteReader::at(bytes, at);
    let head = reader.bytes("header of a record", RECORD_HEADER_BYTES)?;
    let mut reader = ByteReader::new(head);
    let value_len = reader.le_u32("length")?;
    let zero = reader.le_u32("reserved")?;
    let offset = reader.le_u64("offset")?;
    let timestamp_ms = reader.le_u64("time")?.cast_signed();
    let value_crc = reader.le_u32("checksum")?;
    let found = reader.le_u32("checksum")?;
    let expected = header_crc(topic, head.get(..RECORD_HEADER_BYTES - 4).unwrap_or_default());
    if expected != found {
        return Err(DecodeError::Checksum { what: "header of a record", offset: at, expected, found });
    }
    let value_len = value_len as usize;
    if zero != 0 || value_len > VALUE_BYTES_MAX {
        let expected = "a length of at most 64 MiB, and zero";
        let found = value_len as u64;
        return Err(DecodeError::Invalid { what: "header of a record", offset: at, expected, found });
    }
    Ok(RecordHeader { offset, timestamp_ms, value_len, value_crc })
}

/// Returns the start of the first record at or after `from` whose header is intact and whose offset is at
/// least `offset_min`: the way on after damage.
#[must_use]
pub fn find_record(topic: &[u8; 16], bytes: &[u8], from: usize, offset_min: u64) -> Option<usize> {
    let last = bytes.len().checked_sub(RECORD_HEADER_BYTES)?;
    (from..=last)
        .find(|&at| read_record_header(topic, bytes, at).is_ok_and(|header| header.offset >= offset_min))
}

/// Name of the segment that begins at `first_offset`.
#[must_use]
pub fn segment_name(first_offset: u64) -> String {
    format!("{first_offset:0NAME_DIGITS$}{SEGMENT_SUFFIX}")
}

/// Returns the first offset of the segment of this name; `None` for names of other files.
#[must_use]
pub fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
    let is_number = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Returns a reader after magic, version and zeros of a header of `len` bytes whose checksum is right.
fn checked_header<'a>(
    bytes: &'a [u8],
    len: usize,
    magic: [u8; 4],
    what: &'static str,
) -> Result<ByteReader<'a>, DecodeError> {
    let head = ByteReader::new(bytes).bytes(what, len)?;
    let mut reader = ByteReader::new(head);
    let found = reader.be_u32(what)?;
    if found != u32::from_be_bytes(magic) {
        let expected = "CLRT for a topic file, CLRS for a segment";
        return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(found) });
    }
    let end = len.saturating_sub(4);
    let expected = crc32c(head.get(..end).unwrap_or_default());
    let found = ByteReader::at(head, end).le_u32(what)?;
    if expected != found {
        return Err(DecodeError::Checksum { what, offset: end, expected, found });
    }
    let version = reader.le_u16(what)?;
    if version != VERSION {
        return Err(DecodeError::Invalid {
            what,
            offset: 4,
            expected: "version 1",
            found: u64::from(version),
        });
    }
    reader.bytes(what, 2)?;
    Ok(reader)
}

fn topic_id(reader: &mut ByteReader<'_>) -> Result<[u8; 16], DecodeError> {
    let mut topic = [0u8; 16];
    topic.copy_from_slice(reader.bytes("topic id", 16)?);
    Ok(topic)
}

fn header_crc(topic: &[u8; 16], head: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(head);
    crc.update(topic);
    crc.finish()
}

#[cfg(test)]
mod tests;
