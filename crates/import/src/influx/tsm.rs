//! TSM file: header, blocks with a checksum each, an index sorted by key, and the offset of the index.
//!
//! All integers are big-endian. A key of the index is followed by the type of its blocks and one entry of 28
//! bytes per block: first time, last time, offset and size, the checksum included.
//! Invariants: every offset is checked before it is used. The index has no checksum of its own: damage is
//! found where entries cannot belong to a file.
//! Not here: the content of blocks (`encoding`), deletions (`tombstone`).

use chronolith_base::crc::crc32;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::WordKind;

use super::encoding::kind_of;
use super::fault::invalid;

const MAGIC: u32 = 0x16d1_16d1;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 5;
const FOOTER_BYTES: usize = 8;
const ENTRY_BYTES: usize = 28;
const CHECKSUM_BYTES: usize = 4;

/// An open file.
#[derive(Clone, Copy)]
pub(crate) struct TsmFile<'a> {
    bytes: &'a [u8],
    index_start: usize,
    index_end: usize,
}

/// A key of the index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexKey<'a> {
    /// Measurement, tags and field.
    pub(super) key: &'a [u8],
    pub(super) kind: WordKind,
    /// Offset of the key in the file, for [`TsmFile::key_at`].
    pub(super) offset: usize,
    entries: &'a [u8],
    /// Offset after the entries.
    end: usize,
}

/// A block of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(super) min_time: i64,
    pub(super) max_time: i64,
    pub(super) offset: u64,
    pub(super) size: u32,
}

impl<'a> TsmFile<'a> {
    /// Checks header and footer.
    ///
    /// # Errors
    /// [`DecodeError`]: nothing of the file can be read.
    pub(crate) fn open(bytes: &'a [u8]) -> Result<TsmFile<'a>, DecodeError> {
        let mut header = ByteReader::new(bytes);
        let magic = header.be_u32("magic")?;
        if magic != MAGIC {
            return Err(invalid("magic", 0, "0x16d116d1", u64::from(magic)));
        }
        let version = header.u8("version")?;
        if version != VERSION {
            return Err(invalid("version", 4, "1", u64::from(version)));
        }
        let index_end = bytes.len().saturating_sub(FOOTER_BYTES);
        let index_start = ByteReader::at(bytes, index_end).be_u64("offset of the index")?;
        // A file has a key at least.
        let is_inside = |start: &usize| (HEADER_BYTES..index_end).contains(start);
        match usize::try_from(index_start).ok().filter(is_inside) {
            Some(index_start) => Ok(TsmFile { bytes, index_start, index_end }),
            None => Err(invalid("offset of the index", index_end, "an offset in the file", index_start)),
        }
    }

    /// Keys of the index in order.
    pub(crate) fn keys(&self) -> IndexKeys<'a> {
        IndexKeys { file: *self, at: self.index_start }
    }

    /// Reads the key of the index at `offset`.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub(crate) fn key_at(&self, offset: usize) -> Result<IndexKey<'a>, DecodeError> {
        let index = self.bytes.get(..self.index_end).unwrap_or_default();
        let mut r = ByteReader::at(index, offset);
        let key_bytes = r.be_u16("length of a key")?;
        let key = r.bytes("key", usize::from(key_bytes))?;
        let type_offset = r.offset();
        let block_type = r.u8("type of a key")?;
        let count = r.be_u16("count of blocks")?;
        let entries = r.bytes("entries of a key", usize::from(count) * ENTRY_BYTES)?;
        let Some(kind) = kind_of(block_type) else {
            return Err(invalid("type of a key", type_offset, "0 to 4", u64::from(block_type)));
        };
        Ok(IndexKey { key, kind, offset, entries, end: r.offset() })
    }

    /// Returns the bytes of a block.
    ///
    /// # Errors
    /// [`DecodeError`] if the entry is outside of the blocks or the checksum does not match.
    pub(crate) fn block(&self, entry: &IndexEntry) -> Result<&'a [u8], DecodeError> {
        let start = usize::try_from(entry.offset).unwrap_or(usize::MAX);
        let blocks = self.bytes.get(..self.index_start).unwrap_or_default();
        if start < HEADER_BYTES || start >= blocks.len() {
            return Err(invalid("offset of a block", start, "an offset in the file", entry.offset));
        }
        let mut r = ByteReader::at(blocks, start);
        let found = r.be_u32("checksum of a block")?;
        let block = r.bytes("block", (entry.size as usize).saturating_sub(CHECKSUM_BYTES))?;
        let expected = crc32(block);
        if expected != found {
            return Err(DecodeError::Checksum { what: "block", offset: start, expected, found });
        }
        Ok(block)
    }
}

impl IndexKey<'_> {
    /// Blocks of the key in order of the file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = IndexEntry> {
        self.entries.chunks_exact(ENTRY_BYTES).map(|bytes| {
            let mut r = ByteReader::new(bytes);
            let mut next = || r.be_u64("entry").unwrap_or_default();
            let min_time = next() as i64;
            let max_time = next() as i64;
            let offset = next();
            IndexEntry { min_time, max_time, offset, size: r.be_u32("entry").unwrap_or_default() }
        })
    }
}

/// Iterates over the keys of an index.
pub(crate) struct IndexKeys<'a> {
    file: TsmFile<'a>,
    at: usize,
}

impl<'a> Iterator for IndexKeys<'a> {
    type Item = Result<IndexKey<'a>, DecodeError>;

    /// Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.file.index_end {
            return None;
        }
        let key = self.file.key_at(self.at);
        self.at = key.as_ref().map_or(self.file.index_end, |key| key.end);
        Some(key)
    }
}

#[cfg(test)]
mod tests;
