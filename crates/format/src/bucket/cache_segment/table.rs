//! Table of the entries of a cache segment, so that a restart reads it in place of the entries.
//!
//! Invariants: entries are in the order of their offsets and follow each other without a gap; the trailer is
//! verified before the table is read, the table before anything of it is returned.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use super::entry::{HEADER_BYTES, KEY_BYTES_MAX, check_crc, entry_len, invalid};

/// First four bytes of a trailer.
const TRAILER_MAGIC: [u8; 4] = *b"CLDT";
/// Bytes of the trailer, which are the last ones of a segment with a table.
pub const TRAILER_BYTES: usize = 16;
/// Bytes of an entry in the table at most: number of the key, offset in the object, length.
const ROW_BYTES_MAX: u64 = 5 + 10 + 5;
/// Bytes of a count at most.
const COUNT_BYTES_MAX: u64 = 10;

/// Length and checksum of the table before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of the table.
    pub table_len: u32,
    table_crc: u32,
}

impl Trailer {
    /// Decodes the last bytes of a segment.
    ///
    /// # Errors
    /// [`DecodeError`] if the segment has no table, or the trailer is damaged.
    pub fn decode(bytes: &[u8]) -> Result<Trailer, DecodeError> {
        let what = "trailer of a cache segment";
        let mut reader = ByteReader::new(bytes);
        let fields = reader.bytes(what, TRAILER_BYTES - 4)?;
        check_crc(what, 0, crc32c(fields), reader.le_u32(what)?)?;
        let mut reader = ByteReader::new(fields);
        let magic = reader.le_u32(what)?;
        if magic != u32::from_le_bytes(TRAILER_MAGIC) {
            return Err(invalid(what, 0, "CLDT", u64::from(magic)));
        }
        Ok(Trailer { table_len: reader.le_u32(what)?, table_crc: reader.le_u32(what)? })
    }
}

/// Entries of a segment, by offset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentTable {
    keys: Vec<Box<str>>,
    rows: Vec<Row>,
    /// Sum of the bytes of all keys.
    key_bytes: u64,
    /// Offset after the last entry.
    end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    key_idx: u32,
    len: u32,
    start: u64,
}

/// Position of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPosition {
    /// Index of its key among the keys of the table.
    pub key_idx: usize,
    /// Offset of its first byte within the object.
    pub start: u64,
    /// Bytes of the object.
    pub len: u32,
    /// Offset of the entry in the segment.
    pub offset: u64,
}

impl SegmentTable {
    /// The table of a segment without entries.
    #[must_use]
    pub fn new() -> SegmentTable {
        SegmentTable { end: HEADER_BYTES as u64, ..SegmentTable::default() }
    }

    /// Offset after the last entry.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Entries.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.rows.len()
    }

    /// Keys of the objects.
    #[must_use]
    pub fn keys(&self) -> &[Box<str>] {
        &self.keys
    }

    /// Adds a key; returns its index.
    ///
    /// # Panics
    /// If there are 4 Gi of them.
    pub fn add_key(&mut self, key: &str) -> u32 {
        let idx = u32::try_from(self.keys.len()).expect("a segment has less than 4 Gi keys");
        self.keys.push(key.into());
        self.key_bytes += key.len() as u64;
        idx
    }

    /// Adds the entry at [`SegmentTable::end`].
    pub fn add_entry(&mut self, key_idx: u32, start: u64, len: u32) {
        self.rows.push(Row { key_idx, len, start });
        let key = self.keys.get(key_idx as usize).map_or("", |key| key);
        self.end += entry_len(key, len);
    }

    /// Entries with their offsets, ascending.
    pub fn entries(&self) -> impl Iterator<Item = EntryPosition> {
        let mut offset = HEADER_BYTES as u64;
        self.rows.iter().map(move |row| {
            let key = self.keys.get(row.key_idx as usize).map_or("", |key| key);
            let position =
                EntryPosition { key_idx: row.key_idx as usize, start: row.start, len: row.len, offset };
            offset += entry_len(key, row.len);
            position
        })
    }

    /// Upper bound on the bytes of the segment when it has one more entry of `len` bytes, and its table.
    #[must_use]
    pub fn segment_len_with(&self, key: &str, len: u32) -> u64 {
        let keys = (self.keys.len() as u64 + 1) * COUNT_BYTES_MAX + self.key_bytes + key.len() as u64;
        let rows = (self.rows.len() as u64 + 1) * ROW_BYTES_MAX;
        self.end + entry_len(key, len) + keys + rows + 2 * COUNT_BYTES_MAX + TRAILER_BYTES as u64
    }

    /// Appends table and trailer.
    ///
    /// # Panics
    /// If the table has 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_uvarint(out, self.keys.len() as u64);
        for key in &self.keys {
            put_uvarint(out, key.len() as u64);
            out.extend_from_slice(key.as_bytes());
        }
        put_uvarint(out, self.rows.len() as u64);
        for row in &self.rows {
            put_uvarint(out, u64::from(row.key_idx));
            put_uvarint(out, row.start);
            put_uvarint(out, u64::from(row.len));
        }
        let table = out.get(start..).unwrap_or_default();
        let table_len = u32::try_from(table.len()).expect("a table is shorter than 4 GiB");
        let table_crc = crc32c(table);
        let trailer = out.len();
        out.extend_from_slice(&TRAILER_MAGIC);
        out.extend_from_slice(&table_len.to_le_bytes());
        out.extend_from_slice(&table_crc.to_le_bytes());
        let crc = crc32c(out.get(trailer..).unwrap_or_default());
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the table that `trailer` describes and whose first byte has the offset `end` in the segment.
    ///
    /// # Errors
    /// [`DecodeError`] if it is damaged.
    pub fn decode(bytes: &[u8], trailer: &Trailer, end: u64) -> Result<SegmentTable, DecodeError> {
        let what = "table of a cache segment";
        check_crc(what, 0, crc32c(bytes), trailer.table_crc)?;
        let mut reader = ByteReader::new(bytes);
        let mut table = SegmentTable::new();
        let key_count = reader.length(what)?;
        for _ in 0..key_count {
            let len = reader.length(what)?;
            let key = std::str::from_utf8(reader.bytes(what, len)?)
                .map_err(|_| invalid(what, reader.offset(), "a key in UTF-8", len as u64))?;
            if len > KEY_BYTES_MAX {
                return Err(invalid(what, reader.offset(), "at most 4096 bytes", len as u64));
            }
            table.add_key(key);
        }
        let entry_count = reader.length(what)?;
        table.rows.reserve(entry_count);
        for _ in 0..entry_count {
            let key_idx = reader.uvarint(what)?;
            let start = reader.uvarint(what)?;
            let len = reader.uvarint(what)?;
            let row = (u32::try_from(key_idx), u32::try_from(len), start.checked_add(len));
            match row {
                (Ok(key_idx), Ok(len), Some(_)) if (key_idx as usize) < key_count => {
                    table.add_entry(key_idx, start, len);
                }
                _ => {
                    return Err(invalid(
                        what,
                        reader.offset(),
                        "an index below the count of keys, a range",
                        key_idx,
                    ));
                }
            }
        }
        if !reader.is_empty() || table.end != end {
            return Err(invalid(what, reader.offset(), "the offset of the table", table.end));
        }
        Ok(table)
    }
}
