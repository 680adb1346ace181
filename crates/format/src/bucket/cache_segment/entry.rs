//! Entries of a cache segment: a range of an object, its header under a checksum of its own.
//!
//! Invariant: nothing of an entry is returned before its checksum is verified.

use chronolith_base::crc::{Crc32c, crc32c};
use chronolith_base::{ByteReader, DecodeError};

/// Bytes before the first entry.
pub const HEADER_BYTES: usize = 12;
/// Bytes of an entry before its key.
pub const ENTRY_HEADER_BYTES: usize = 22;
/// Bytes of the longest key of an object.
pub const KEY_BYTES_MAX: usize = 4096;

/// An entry, its bytes verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Key of the object.
    pub key: &'a str,
    /// Offset of the first byte within the object.
    pub start: u64,
    /// Bytes of the object.
    pub bytes: &'a [u8],
}

/// Header of an entry, verified without the bytes that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader<'a> {
    /// Key of the object.
    pub key: &'a str,
    /// Offset of the first byte within the object.
    pub start: u64,
    /// Bytes of the object that follow.
    pub len: u32,
    crc: u32,
}

impl EntryHeader<'_> {
    /// Bytes of the whole entry.
    #[must_use]
    pub fn entry_len(&self) -> u64 {
        entry_len(self.key, self.len)
    }
}

/// Bytes of an entry with `len` bytes of the object `key`.
#[must_use]
pub fn entry_len(key: &str, len: u32) -> u64 {
    ENTRY_HEADER_BYTES as u64 + key.len() as u64 + u64::from(len)
}

/// Appends an entry with `bytes` of the object `key`, from offset `start` of the object on.
///
/// # Panics
/// If the key has more than [`KEY_BYTES_MAX`] bytes, or `bytes` has 4 GiB.
pub fn put_entry(key: &str, start: u64, bytes: &[u8], out: &mut Vec<u8>) {
    assert!(key.len() <= KEY_BYTES_MAX, "key of {} bytes", key.len());
    let len = u32::try_from(bytes.len()).expect("an entry is shorter than 4 GiB");
    let mut fields = Vec::with_capacity(ENTRY_HEADER_BYTES + key.len());
    fields.extend_from_slice(&(key.len() as u16).to_le_bytes());
    fields.extend_from_slice(&len.to_le_bytes());
    fields.extend_from_slice(&start.to_le_bytes());
    fields.extend_from_slice(&crc32c(bytes).to_le_bytes());
    fields.extend_from_slice(key.as_bytes());
    out.extend_from_slice(&crc32c(&fields).to_le_bytes());
    out.extend_from_slice(&fields);
    out.extend_from_slice(bytes);
}

/// Decodes the header of the entry at the beginning of `bytes`, which may end before the entry does.
///
/// # Errors
/// [`DecodeError`] if it is damaged or not complete.
pub fn decode_entry_header(bytes: &[u8]) -> Result<EntryHeader<'_>, DecodeError> {
    let what = "header of a cache entry";
    let mut reader = ByteReader::new(bytes);
    let found = reader.le_u32("checksum of a cache entry")?;
    let key_len = reader.le_u16(what)?;
    let len = reader.le_u32(what)?;
    let start = reader.le_u64(what)?;
    let crc = reader.le_u32(what)?;
    let key = reader.bytes("key of a cache entry", usize::from(key_len))?;
    let mut expected = Crc32c::new();
    expected.update(bytes.get(4..reader.offset()).unwrap_or_default());
    check_crc(what, 0, expected.finish(), found)?;
    let key = std::str::from_utf8(key)
        .map_err(|_| invalid("key of a cache entry", ENTRY_HEADER_BYTES, "UTF-8", u64::from(key_len)))?;
    if start.checked_add(u64::from(len)).is_none() {
        return Err(invalid("range of a cache entry", 10, "an end below 2^64", start));
    }
    Ok(EntryHeader { key, start, len, crc })
}

/// Decodes the entry that `bytes` has from beginning to end.
///
/// # Errors
/// [`DecodeError`] if anything of it is damaged or missing.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry<'_>, DecodeError> {
    let header = decode_entry_header(bytes)?;
    let mut reader = ByteReader::at(bytes, ENTRY_HEADER_BYTES + header.key.len());
    let offset = reader.offset();
    let content = reader.bytes("bytes of a cache entry", header.len as usize)?;
    check_crc("bytes of a cache entry", offset, crc32c(content), header.crc)?;
    Ok(Entry { key: header.key, start: header.start, bytes: content })
}

pub(super) fn invalid(what: &'static str, offset: usize, expected: &'static str, found: u64) -> DecodeError {
    DecodeError::Invalid { what, offset, expected, found }
}

pub(super) fn check_crc(
    what: &'static str,
    offset: usize,
    expected: u32,
    found: u32,
) -> Result<(), DecodeError> {
    if expected == found { Ok(()) } else { Err(DecodeError::Checksum { what, offset, expected, found }) }
}
