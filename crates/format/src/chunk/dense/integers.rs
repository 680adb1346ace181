//! Integer chunk (private encoding byte 0x46): a packed chunk whose values are words of `i64` or `u64`.
//!
//! Invariants: any word round-trips; the decoder takes untrusted bytes and appends nothing when it fails.
//! Not here: words of integers, and which series have them (`model::kind`); transforms and packing
//! (`values`), which equal those for floats as decimal integers.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange, WordKind};

use super::packed::{
    ChunkTimes, ENCODING_INTEGERS, PackedChunk, TYPE_FLAG, append_times, put_columns, read_flags,
};
use super::plain::{append_all_or_nothing, append_values};
use super::scratch::DenseScratch;
use super::values::ValueType;
use crate::chunk::RawChunk;

/// Appends one chunk with `values`, words of [`WordKind::Unsigned`] or else of [`WordKind::Integer`], to
/// `out`.
///
/// # Panics
/// As [`super::encode_packed`].
pub fn encode_integers(
    times: ChunkTimes<'_>,
    values: &[f64],
    kind: WordKind,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> PackedChunk {
    let value_type = if kind == WordKind::Unsigned { ValueType::Unsigned } else { ValueType::Integer };
    let written = put_columns(times, values, value_type, scratch, out);
    if value_type == ValueType::Unsigned
        && let Some(flags) = out.get_mut(written.flags_at)
    {
        *flags |= TYPE_FLAG;
    }
    PackedChunk { encoding: ENCODING_INTEGERS, times_bytes: written.times_bytes }
}

/// Appends the samples of `bytes` in `range` to `out`, their values as words; nothing when it fails.
/// `chunk_at` is the same as in [`super::decode_packed`].
///
/// # Errors
/// As [`super::decode_packed`].
pub fn decode_integers<'a>(
    bytes: &'a [u8],
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    append_all_or_nothing(out, |out| {
        let mut reader = ByteReader::new(bytes);
        let head = read_flags(&mut reader, |_| true)?;
        let value_type = if head.type_flag { ValueType::Unsigned } else { ValueType::Integer };
        let wanted = append_times(&head, &mut reader, range, chunk_at, &mut out.times)?;
        append_values(&mut reader, head.column(value_type), wanted, out)
    })
}

/// Offset of the chunk whose times the chunk `bytes` shares, or `None` if its times are its own.
///
/// # Errors
/// [`DecodeError`] when the head is cut or contains values that no encoder writes.
pub fn shared_times_offset_of_integers(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    Ok(read_flags(&mut ByteReader::new(bytes), |_| true)?.shared_offset)
}

#[cfg(test)]
mod tests;
