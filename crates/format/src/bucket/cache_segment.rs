//! Segment of a cache directory: byte ranges of objects, appended one after the other, and a table of them at
//! the end.
//!
//! Invariants: each entry names its object and range under a checksum, and its bytes have a checksum of their
//! own, so an entry never answers for another one; a segment without a table, or with a damaged one, is read
//! entry by entry.
//! Not here: creation and eviction of segments (`bucket`). Layout: `docs/bucket/cache_segment.md`.

mod entry;
mod table;

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

pub use entry::{
    ENTRY_HEADER_BYTES, Entry, EntryHeader, HEADER_BYTES, KEY_BYTES_MAX, decode_entry, decode_entry_header,
    entry_len, put_entry,
};
use entry::{check_crc, invalid};
pub use table::{EntryPosition, SegmentTable, TRAILER_BYTES, Trailer};

/// First four bytes of a segment.
pub const MAGIC: [u8; 4] = *b"CLDC";
/// Version that is written and read.
pub const VERSION: u16 = 1;
/// Appends the header of a segment.
pub fn put_header(out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    let crc = crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
}

/// Verifies the header of a segment.
///
/// # Errors
/// [`DecodeError`] if it is the header of another file or version, or damaged.
pub fn check_header(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let fields = reader.bytes("header of a cache segment", HEADER_BYTES - 4)?;
    check_crc("header of a cache segment", 0, crc32c(fields), reader.le_u32("checksum of the header")?)?;
    let mut reader = ByteReader::new(fields);
    let magic = reader.le_u32("magic number of a cache segment")?;
    if magic != u32::from_le_bytes(MAGIC) {
        return Err(invalid("magic number of a cache segment", 0, "CLDC", u64::from(magic)));
    }
    match reader.le_u16("version of a cache segment")? {
        VERSION => Ok(()),
        version => Err(invalid("version of a cache segment", MAGIC.len(), "1", u64::from(version))),
    }
}

#[cfg(test)]
mod tests;
