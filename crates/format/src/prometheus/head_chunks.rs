//! Files of `chunks_head`: m-mapped chunks of series in Prometheus's head.
//!
//! Invariants: a chunk is returned only after its checksum was verified.
//! Not here: the content of chunks (`chunk`), the labels of a series ref (`record`).

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

/// First four bytes of a file.
pub const MAGIC: u32 = 0x0130_BC91;
/// Supported version.
pub const VERSION: u8 = 1;
/// Magic, version, three bytes of padding.
pub const HEADER_BYTES: usize = 8;
/// Set in the encoding byte of a chunk of out-of-order samples.
const OUT_OF_ORDER: u8 = 0x80;

/// A chunk with its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadChunk<'a> {
    /// Series, by its ref in the WAL.
    pub series_ref: u64,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
    /// Encoding byte as in blocks.
    pub encoding: u8,
    /// The chunk holds out-of-order samples.
    pub out_of_order: bool,
    /// Encoded samples.
    pub bytes: &'a [u8],
    /// Offset in the file.
    pub offset: usize,
}

/// Iterates the chunks of a file.
pub struct HeadChunks<'a> {
    reader: ByteReader<'a>,
    bytes: &'a [u8],
}

impl<'a> HeadChunks<'a> {
    /// Checks the header of the file `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for another magic or version.
    pub fn open(bytes: &'a [u8]) -> Result<HeadChunks<'a>, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let magic = reader.be_u32("head chunks magic")?;
        if magic != MAGIC {
            let (what, expected) = ("head chunks magic", "0x0130bc91");
            return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(magic) });
        }
        let version = reader.u8("head chunks version")?;
        if version != VERSION {
            let (what, expected) = ("head chunks version", "1");
            return Err(DecodeError::Invalid { what, offset: 4, expected, found: u64::from(version) });
        }
        reader.bytes("head chunks padding", 3)?;
        Ok(HeadChunks { reader, bytes })
    }

    /// Returns the next chunk; `None` at the end of the written bytes.
    ///
    /// # Errors
    /// [`DecodeError`]; the start of the next chunk is unknown then.
    pub fn next_chunk(&mut self) -> Result<Option<HeadChunk<'a>>, DecodeError> {
        let offset = self.reader.offset();
        let rest = self.bytes.get(offset..).unwrap_or_default();
        // Preallocated bytes are zeros, and no series has the ref 0, so zeros instead of ref and times are
        // the end.
        let front = rest.get(..rest.len().min(24)).unwrap_or_default();
        if front.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let series_ref = self.reader.be_u64("series ref")?;
        let min_time = self.reader.be_u64("first time")?.cast_signed();
        let max_time = self.reader.be_u64("last time")?.cast_signed();
        let encoding = self.reader.u8("chunk encoding")?;
        let len = self.reader.length("chunk length")?;
        let bytes = self.reader.bytes("chunk", len)?;
        let end = self.reader.offset();
        let found = self.reader.be_u32("chunk checksum")?;
        let expected = crc32c(self.bytes.get(offset..end).unwrap_or_default());
        if found != expected {
            return Err(DecodeError::Checksum { what: "chunk", offset, expected, found });
        }
        let out_of_order = encoding & OUT_OF_ORDER != 0;
        let encoding = encoding & !OUT_OF_ORDER;
        Ok(Some(HeadChunk { series_ref, min_time, max_time, encoding, out_of_order, bytes, offset }))
    }
}
