//! Encoding and bytes of one chunk, as a file of chunks has them.
//!
//! Not here: checksums, which are of the file (`block::chunks`, `head::sealed`).

use chronolith_base::{ByteReader, DecodeError};

/// Histograms with start times, whose count has 14 bits.
const ENCODINGS_SHORT_COUNT: [u8; 2] = [5, 6];

/// A chunk that is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawChunk<'a> {
    /// Encoding byte.
    pub encoding: u8,
    /// Bytes of the chunk.
    pub bytes: &'a [u8],
}

impl RawChunk<'_> {
    /// Number of samples: a big-endian u16 at the start of every encoding. In histogram encodings with start
    /// times the upper two bits are not part of it.
    ///
    /// # Errors
    /// [`DecodeError`] for a chunk that is shorter.
    pub fn sample_count(&self) -> Result<u16, DecodeError> {
        let count = ByteReader::new(self.bytes).be_u16("chunk sample count")?;
        Ok(if ENCODINGS_SHORT_COUNT.contains(&self.encoding) { count & 0x3fff } else { count })
    }
}
