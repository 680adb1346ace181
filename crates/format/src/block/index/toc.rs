//! Both ends of an index file: magic and version at its start, table of contents at its end.

use std::ops::Range;

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use crate::block::file_offset::in_file;

/// First four bytes of the file.
pub const MAGIC: u32 = 0xBAAA_D700;
/// Version that is written.
pub const VERSION_WRITTEN: u8 = 2;
/// Magic and version.
pub const HEADER_BYTES: usize = 5;
/// Series entries start at multiples of this; a series ref counts in them (from version 2 on).
pub const SERIES_ALIGN_BYTES: u64 = 16;
/// Length of the table of contents, the last bytes of the file.
pub const TOC_BYTES: usize = 52;
const CHECKSUM_BYTES: usize = 4;

/// Returns the version, from the first [`HEADER_BYTES`] of the file.
///
/// # Errors
/// [`DecodeError`] if the bytes are no index, or of a version that cannot be read.
pub fn decode_version(bytes: &[u8]) -> Result<u8, DecodeError> {
    let mut r = ByteReader::new(bytes);
    let magic = r.be_u32("index magic")?;
    if magic != MAGIC {
        let (what, expected) = ("index magic", "0xbaaad700");
        return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(magic) });
    }
    let version = r.u8("index version")?;
    if !(1..=3).contains(&version) {
        let (what, expected) = ("index version", "1, 2 or 3");
        return Err(DecodeError::Invalid { what, offset: 4, expected, found: u64::from(version) });
    }
    Ok(version)
}

/// File offsets of the sections. A section that is not written has the offset of the next one, or 0.
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
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for offset in self.offsets() {
            out.extend_from_slice(&offset.to_be_bytes());
        }
        let sum = crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_be_bytes());
    }

    /// Decodes the table of contents from `bytes`, the end of a file of `file_len` bytes.
    ///
    /// # Errors
    /// [`DecodeError`] with offsets of the file.
    pub fn decode(bytes: &[u8], file_len: u64) -> Result<Toc, DecodeError> {
        let len = usize::try_from(file_len).unwrap_or(usize::MAX);
        let start = bytes.len().checked_sub(TOC_BYTES).filter(|_| len >= TOC_BYTES + HEADER_BYTES);
        let Some(toc) = start.and_then(|start| bytes.get(start..)) else {
            let (what, needed) = ("index table of contents", TOC_BYTES + HEADER_BYTES);
            return Err(DecodeError::Short { what, offset: 0, needed, left: len.min(bytes.len()) });
        };
        let file_offset = (len - TOC_BYTES) as u64;
        Toc::decode_at(toc, file_offset).map_err(|error| in_file(error, file_offset))
    }

    /// `bytes` contain the table of contents alone, which starts at `file_offset`.
    fn decode_at(bytes: &[u8], file_offset: u64) -> Result<Toc, DecodeError> {
        let mut r = ByteReader::new(bytes);
        let expected = crc32c(r.clone().bytes("index table of contents", TOC_BYTES - CHECKSUM_BYTES)?);
        let mut offset = || -> Result<u64, DecodeError> {
            let at = r.offset();
            let found = r.be_u64("section offset")?;
            if found > file_offset {
                let (what, expected) = ("section offset", "before the table of contents");
                return Err(DecodeError::Invalid { what, offset: at, expected, found });
            }
            Ok(found)
        };
        let offsets = [(); 6].map(|()| offset());
        let at = r.offset();
        let found = r.be_u32("index table of contents checksum")?;
        if found != expected {
            let what = "index table of contents checksum";
            return Err(DecodeError::Checksum { what, offset: at, expected, found });
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

    fn offsets(&self) -> [u64; 6] {
        let (indices, table) = (self.label_indices, self.label_indices_table);
        [self.symbols, self.series, indices, table, self.postings, self.postings_table]
    }

    /// Returns the range of the section that starts at `start` in a file of `file_len` bytes: it ends where
    /// the next one starts, or before the table of contents.
    #[must_use]
    pub fn section(&self, start: u64, file_len: u64) -> Range<u64> {
        let next = self.offsets().into_iter().filter(|offset| *offset > start).min();
        start..next.unwrap_or(file_len.saturating_sub(TOC_BYTES as u64)).max(start)
    }
}
