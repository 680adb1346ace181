//! Dense chunk with start times (private encoding byte 0x42): the runs of its start times, then a dense or
//! packed chunk.
//!
//! Invariant: as for these; damaged start times are damage of the chunk. Other chunks do not share its times.
//! Not here: the runs (`starts`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::packed::{ENCODING_PACKED, decode_packed, shared_times_offset};
use super::plain::{ENCODING_DENSE, decode};
use super::sequence::read_count;
use crate::block::chunks::RawChunk;
use crate::chunk::starts::{self, StartRun};

/// Encoding byte of a chunk with start times in a block's segments.
pub const ENCODING_DENSE_STARTS: u8 = 0x42;

const WHAT: &str = "dense chunk with start times";

/// Appends the chunk `inner`, dense or packed, with the start times of its samples to `out`.
///
/// # Panics
/// If the chunk is of another encoding or has no count.
pub fn encode_starts(runs: &[StartRun], inner: RawChunk<'_>, out: &mut Vec<u8>) {
    assert!(matches!(inner.encoding, ENCODING_DENSE | ENCODING_PACKED), "a dense chunk");
    let count = inner.bytes.first_chunk::<2>().expect("a chunk begins with its count");
    let mut coded = Vec::new();
    starts::encode(runs, &mut coded);
    out.extend_from_slice(count);
    put_uvarint(out, coded.len() as u64);
    out.extend_from_slice(&coded);
    out.push(inner.encoding);
    out.extend_from_slice(inner.bytes);
}

/// Appends the samples of `bytes` in `range`, and their start times, to `out`; nothing when it fails.
/// `chunk_at` is that of [`decode_packed`].
///
/// # Errors
/// [`DecodeError`] of either part, and if bytes follow the runs or the counts of both differ.
pub fn decode_starts<'a>(
    bytes: &'a [u8],
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let count = read_count(&mut reader)?;
    let len = reader.length(WHAT)?;
    let mut coded = ByteReader::new(reader.bytes(WHAT, len)?);
    let mut runs = Vec::new();
    starts::decode(&mut coded, &mut runs)?;
    if !coded.is_empty() {
        let (offset, found) = (coded.offset(), coded.remaining() as u64);
        return Err(DecodeError::Invalid { what: WHAT, offset, expected: "the end of its runs", found });
    }
    let offset = reader.offset();
    let encoding = reader.u8(WHAT)?;
    let inner = reader.bytes(WHAT, reader.remaining())?;
    let inner_count = read_count(&mut ByteReader::new(inner))?;
    if inner_count != count {
        let (expected, found) = ("two counts that are equal", u64::from(inner_count));
        return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
    }
    let first = out.len();
    match encoding {
        ENCODING_DENSE => decode(inner, range, out)?,
        ENCODING_PACKED => decode_packed(inner, range, chunk_at, out)?,
        other => {
            let (expected, found) = ("a dense or packed chunk", u64::from(other));
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found });
        }
    }
    starts::fill(&runs, first, out);
    Ok(())
}

/// Offset of the chunk whose times a chunk with start times shares, or `None` if its times are its own.
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
