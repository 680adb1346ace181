//! Dense chunk with start times (private encoding byte 0x42): the runs of its start times, then a dense or
//! packed chunk.
//!
//! Invariant: as for these; damaged start times are damage of the chunk. Other chunks do not share its times.
//! Not here: the runs (`starts`).

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::packed::{ENCODING_PACKED, decode_packed, shared_times_offset};
use super::plain::{ENCODING_DENSE, decode};
use super::sequence::read_count;
use crate::chunk::RawChunk;
use crate::chunk::starts::{self, ChunkWithStarts, StartRun};

/// Encoding byte of a chunk with start times in a block's segments.
pub const ENCODING_DENSE_STARTS: u8 = 0x42;

const WHAT: &str = "dense chunk with start times";

/// Appends the chunk `inner`, dense or packed, with the start times of its samples to `out`.
///
/// # Panics
/// If the chunk is of another encoding or has no count.
pub fn encode_starts(runs: &[StartRun], inner: RawChunk<'_>, out: &mut Vec<u8>) {
    assert!(matches!(inner.encoding, ENCODING_DENSE | ENCODING_PACKED), "a dense chunk");
    starts::put_chunk(runs, inner.encoding, inner.bytes, out);
}

/// Appends the samples of `bytes` in `range`, and their start times, to `out`; nothing when it fails.
/// `chunk_at` is the same as in [`decode_packed`].
///
/// # Errors
/// [`DecodeError`] of either part, and if bytes follow the runs or the counts of both differ.
pub fn decode_starts<'a>(
    bytes: &'a [u8],
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    let ChunkWithStarts { runs, encoding, chunk } = starts::split_chunk(bytes, WHAT)?;
    let first = out.len();
    match encoding {
        ENCODING_DENSE => decode(chunk, range, out)?,
        ENCODING_PACKED => decode_packed(chunk, range, chunk_at, out)?,
        other => {
            let (offset, expected, found) = (2, "a dense or packed chunk", u64::from(other));
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
        }
    }
    starts::fill(&runs, first, out);
    Ok(())
}

/// Offset of the chunk whose timestamps a chunk with start timestamps shares, or `None` if it has its own.
///
/// # Errors
/// [`DecodeError`] when the head of either part is cut or not one of an encoder.
pub fn shared_times_offset_of_starts(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    read_count(&mut reader)?;
    let len = reader.length(WHAT)?;
    reader.bytes(WHAT, len)?;
    match reader.u8(WHAT)? {
        ENCODING_PACKED => shared_times_offset(reader.bytes(WHAT, reader.remaining())?),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
