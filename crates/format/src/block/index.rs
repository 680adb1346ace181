//! Index of a block, as Prometheus writes it (`docs/block/index.md`): symbols, series, postings, table of contents.
//!
//! Holds: the reader never panics, loops or allocates beyond the file's size on any bytes; checksums are
//! verified before content is handed out; the writer emits version 2 without label indices, as Prometheus 3
//! does. Versions 1, 2 and 3 are read.
//! Not here: choosing series by matchers (`model::index`), chunk bytes (`chunks`).

mod reader;
mod symbols;
mod table;
mod writer;

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use crate::block::chunks::ChunkRef;

pub use reader::{IndexReader, Postings, SeriesEntry};
pub use writer::{IndexWriteError, IndexWriter, TableEntry};

/// First four bytes of the file.
pub const MAGIC: u32 = 0xBAAA_D700;
/// What is written.
pub const VERSION_WRITTEN: u8 = 2;
/// Magic and version.
pub const HEADER_BYTES: usize = 5;
/// Series entries start at multiples of this; a series ref counts in them (from version 2 on).
pub const SERIES_ALIGN_BYTES: u64 = 16;
/// The table of contents stands at the very end.
pub const TOC_BYTES: usize = 52;
const CHECKSUM_BYTES: usize = 4;

/// A chunk of a series: what it covers (both ends included) and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkMeta {
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
    /// Segment and offset.
    pub chunk_ref: ChunkRef,
}

/// Where the sections start. A section that is not written starts where the next one does, or at 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Toc {
    /// Symbol table.
    pub symbols: u64,
    /// Series entries.
    pub series: u64,
    /// Label indices; not read.
    pub label_indices: u64,
    /// Label offset table; not read.
    pub label_indices_table: u64,
    /// Postings lists.
    pub postings: u64,
    /// Postings offset table.
    pub postings_table: u64,
}

impl Toc {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (indices, table) = (self.label_indices, self.label_indices_table);
        for offset in [self.symbols, self.series, indices, table, self.postings, self.postings_table] {
            out.extend_from_slice(&offset.to_be_bytes());
        }
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Toc, DecodeError> {
        let Some(start) = bytes.len().checked_sub(TOC_BYTES).filter(|&start| start >= HEADER_BYTES) else {
            let (what, needed) = ("index table of contents", TOC_BYTES + HEADER_BYTES);
            return Err(DecodeError::Short { what, offset: 0, needed, left: bytes.len() });
        };
        let mut r = ByteReader::at(bytes, start);
        let expected = crc32c(r.clone().bytes("index table of contents", TOC_BYTES - CHECKSUM_BYTES)?);
        let mut offset = || -> Result<u64, DecodeError> {
            let at = r.offset();
            let found = r.be_u64("section offset")?;
            if found > start as u64 {
                let (what, expected) = ("section offset", "before the table of contents");
                return Err(DecodeError::Invalid { what, offset: at, expected, found });
            }
            Ok(found)
        };
        let offsets = [(); 6].map(|()| offset());
        let found = r.be_u32("index table of contents checksum")?;
        if found != expected {
            let (what, offset) = ("index table of contents checksum", start + 48);
            return Err(DecodeError::Checksum { what, offset, expected, found });
        }
        let [symbols, series, label_indices, label_indices_table, postings, postings_table] = offsets;
        Ok(Toc {
            symbols: symbols?,
            series: series?,
            label_indices: label_indices?,
            label_indices_table: label_indices_table?,
            postings: postings?,
            postings_table: postings_table?,
        })
    }
}

/// A section or list framed as `u32 length, content, checksum`: checks it and returns a reader at the start
/// of the content that ends where the content does, with offsets of the file.
fn framed<'a>(bytes: &'a [u8], offset: u64, what: &'static str) -> Result<ByteReader<'a>, DecodeError> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut r = ByteReader::at(bytes, start);
    let len = r.be_u32(what)? as usize;
    let content_start = r.offset();
    let expected = crc32c(r.bytes(what, len)?);
    let found = r.be_u32(what)?;
    if found != expected {
        return Err(DecodeError::Checksum { what, offset: content_start, expected, found });
    }
    Ok(ByteReader::at(bytes.get(..content_start + len).unwrap_or_default(), content_start))
}

/// A uvarint length and that many bytes of UTF-8.
fn text<'a>(r: &mut ByteReader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
    let len = r.length(what)?;
    let offset = r.offset();
    let bytes = r.bytes(what, len)?;
    std::str::from_utf8(bytes).map_err(|e| DecodeError::Invalid {
        what,
        offset,
        expected: "valid UTF-8",
        found: e.valid_up_to() as u64,
    })
}

#[cfg(test)]
mod tests;
