//! Windows of an owner of a partition in its data directory: first records of open windows, and cuts whose
//! samples may be in the head.
//!
//! Invariants: equal content gives equal bytes; the checksum is verified before anything is returned.
//! Not here: what they mean (`model::cut`, `cluster::owner`). Layout: `docs/owned_windows.md`.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::StoreId;
use chronolith_model::log_position::{LogPartition, PartitionId, Position, TopicId};

use crate::lists::{put_list, put_text, read_list, read_text};
use crate::{parse_store_name, store_name};

/// First four bytes of the file.
const MAGIC: [u8; 4] = *b"CLOW";
/// Version that is written, and the only one that is read.
const VERSION: u16 = 1;
const WHAT: &str = "windows of an owner";

/// Windows of all stores of a partition, when the records before `position` were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedWindowsFile {
    /// Position of the next record.
    pub position: Position,
    /// Stores with windows.
    pub stores: Vec<StoreWindows>,
}

/// Windows of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreWindows {
    /// The store, as the directory names it.
    pub store: StoreId,
    /// Windows with samples after the last cut of them.
    pub open: Vec<OpenWindow>,
    /// Cuts with samples in the head, in the order of their offsets.
    pub cuts: Vec<HeldCut>,
}

/// Window that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenWindow {
    /// Start in the unit of the store.
    pub start: i64,
    /// Offset of its first record.
    pub first_offset: u64,
    /// Time of the partition when the record was applied, milliseconds since 1970.
    pub opened_ms: i64,
}

/// Cut whose samples have not left the head, or not its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCut {
    /// Offset of the record of the cut.
    pub offset: u64,
    /// Offset of the first record with a sample of its windows.
    pub first_offset: u64,
    /// Time of the partition at the cut, milliseconds since 1970.
    pub time_ms: i64,
    /// True if later records have samples in its windows.
    pub has_later: bool,
    /// Starts of its windows in the unit of the store, ascending.
    pub windows: Vec<i64>,
}

impl OwnedWindowsFile {
    /// Appends the file.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.position.topic.0);
        out.extend_from_slice(&self.position.partition.0.to_le_bytes());
        out.extend_from_slice(&self.position.offset.to_le_bytes());
        put_list(out, &self.stores, |out, one: &StoreWindows| {
            put_text(out, &store_name(&one.store));
            put_list(out, &one.open, |out, window: &OpenWindow| {
                put_varint(out, window.start);
                put_uvarint(out, window.first_offset);
                put_varint(out, window.opened_ms);
            });
            put_list(out, &one.cuts, |out, cut: &HeldCut| {
                put_uvarint(out, cut.offset);
                put_uvarint(out, cut.first_offset);
                put_varint(out, cut.time_ms);
                out.push(u8::from(cut.has_later));
                put_list(out, &cut.windows, |out, start: &i64| put_varint(out, *start));
            });
        });
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the file.
    ///
    /// # Errors
    /// [`DecodeError`]: damage, or a later version.
    pub fn decode(bytes: &[u8]) -> Result<OwnedWindowsFile, DecodeError> {
        let end = bytes.len().saturating_sub(4);
        let (content, sum) = bytes.split_at(end);
        let found = ByteReader::new(sum).le_u32(WHAT)?;
        let expected = crc32c(content);
        if found != expected {
            return Err(DecodeError::Checksum { what: WHAT, offset: end, expected, found });
        }
        let mut reader = ByteReader::new(content);
        let magic = reader.be_u32(WHAT)?;
        if magic != u32::from_be_bytes(MAGIC) {
            return Err(invalid("CLOW", 0, u64::from(magic)));
        }
        let version = reader.le_u16(WHAT)?;
        if version != VERSION {
            return Err(invalid("version 1", 4, u64::from(version)));
        }
        reader.bytes(WHAT, 2)?;
        let mut topic = [0; 16];
        topic.copy_from_slice(reader.bytes(WHAT, 16)?);
        let partition = LogPartition { topic: TopicId(topic), number: PartitionId(reader.le_u32(WHAT)?) };
        let position = partition.at(reader.le_u64(WHAT)?);
        let stores = read_list(&mut reader, WHAT, read_store)?;
        if reader.remaining() > 0 {
            return Err(invalid("the end", reader.offset(), reader.remaining() as u64));
        }
        Ok(OwnedWindowsFile { position, stores })
    }
}

fn read_store(reader: &mut ByteReader<'_>) -> Result<StoreWindows, DecodeError> {
    let offset = reader.offset();
    let name = read_text(reader, WHAT)?;
    let store =
        parse_store_name(&name).map_err(|_| invalid("the name of a store", offset, name.len() as u64))?;
    let open = read_list(reader, WHAT, |reader| {
        let start = reader.varint(WHAT)?;
        let first_offset = reader.uvarint(WHAT)?;
        Ok(OpenWindow { start, first_offset, opened_ms: reader.varint(WHAT)? })
    })?;
    Ok(StoreWindows { store, open, cuts: read_list(reader, WHAT, read_cut)? })
}

fn read_cut(reader: &mut ByteReader<'_>) -> Result<HeldCut, DecodeError> {
    let offset = reader.uvarint(WHAT)?;
    let first_offset = reader.uvarint(WHAT)?;
    let time_ms = reader.varint(WHAT)?;
    let at = reader.offset();
    let has_later = match reader.u8(WHAT)? {
        0 => false,
        1 => true,
        other => return Err(invalid("0 or 1", at, u64::from(other))),
    };
    let windows = read_list(reader, WHAT, |reader| reader.varint(WHAT))?;
    Ok(HeldCut { offset, first_offset, time_ms, has_later, windows })
}

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

#[cfg(test)]
mod tests;
