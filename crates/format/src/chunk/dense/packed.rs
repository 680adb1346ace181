//! Packed dense chunk (private encoding byte 0x41): a dense chunk that may share the times of another chunk
//! of its segment, and whose columns may be entropy-coded. For long chunks of blocks: series of one scrape
//! target share their times.
//!
//! Invariant: as for dense chunks. A chunk whose times are shared names one that has its own, so looking them
//! up ends after one step.
//! Not here: finding a chunk with the same times, the bytes of another chunk (`block`).

use std::ops::Range;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::entropy::NumberType;
use super::items::{Ending, Packing};
use super::plain::{ENCODING_DENSE, append_values};
use super::scratch::DenseScratch;
use super::sequence::{ascends, read_count};
use super::times::{self, TimesHead};
use super::values::{self, ValueColumn, ValueType};
use crate::chunk::RawChunk;

/// Encoding byte of a packed chunk in a block's segments.
pub const ENCODING_PACKED: u8 = 0x41;
/// Encoding byte of an integer chunk in a block's segments (`integers`).
pub const ENCODING_INTEGERS: u8 = 0x46;
/// Encoding byte of a text chunk in a block's segments (`texts`).
pub const ENCODING_TEXTS: u8 = 0x47;

const WHAT: &str = "packed chunk";
/// The offset of the chunk whose times are shared follows.
const SHARED_TIMES: u8 = 1;
/// The values are entropy-coded.
const ENTROPY: u8 = 1 << 1;
/// The times, which are the chunk's own, are entropy-coded.
const ENTROPY_TIMES: u8 = 1 << 2;
/// Two bits with the type of the numbers of entropy-coded values, and of entropy-coded times.
const VALUES_TYPE_SHIFT: u32 = 3;
const TIMES_TYPE_SHIFT: u32 = 5;
const TYPE_MASK: u8 = 3;
/// The values are of the second type of the encoding; floats have one.
pub(super) const TYPE_FLAG: u8 = 1 << 7;

/// Fewer values than this do not pay for the tables of entropy coding.
const ENTROPY_SAMPLES_MIN: usize = 512;
/// Least bits per packed value for which entropy coding is tried; below there is little to win.
const ENTROPY_BITS_MIN: usize = 1;
/// Entropy coding has to save at least 1 / `ENTROPY_SAVING_PART` of a column's bytes, since decoding takes
/// about twice as long.
const ENTROPY_SAVING_PART: usize = 100;
/// More in chunks of fewer samples than these, each of which pays for reading the tables.
const ENTROPY_SHORT_SAVING_PART: usize = 20;
const ENTROPY_SHORT_SAMPLES_MAX: usize = 2047;

/// Owner of the timestamps of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkTimes<'a> {
    /// Own times, ascending strictly; they are stored in the chunk.
    Own(&'a [i64]),
    /// The times of the chunk at this offset of the same segment, which has its own.
    Shared {
        /// Offset of the chunk in its segment.
        offset: u32,
    },
}

/// A chunk as it has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedChunk {
    /// Encoding of the chunk: the plain dense one if packing gains nothing.
    pub encoding: u8,
    /// Bytes of its times.
    pub times_bytes: usize,
}

/// Appends one chunk with `values` to `out`.
///
/// # Panics
/// As [`super::plain::encode`]; shared times are not checked.
pub fn encode_packed(
    times: ChunkTimes<'_>,
    values: &[f64],
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> PackedChunk {
    let start = out.len();
    let written = put_columns(times, values, ValueType::Float, scratch, out);
    if written.flags == 0 {
        out.remove(written.flags_at);
        debug_assert_eq!(super::plain::sample_count(&out[start..]).map(usize::from), Ok(values.len()));
        return PackedChunk { encoding: ENCODING_DENSE, times_bytes: written.times_bytes };
    }
    PackedChunk { encoding: ENCODING_PACKED, times_bytes: written.times_bytes }
}

/// A chunk as [`put_columns`] has written it.
pub(super) struct WrittenColumns {
    pub(super) flags: u8,
    pub(super) flags_at: usize,
    pub(super) times_bytes: usize,
}

/// Appends the number of samples, the flags, the times, and the values of one type.
///
/// # Panics
/// As [`super::plain::encode`]; shared times are not checked.
pub(super) fn put_columns(
    times: ChunkTimes<'_>,
    values: &[f64],
    value_type: ValueType,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> WrittenColumns {
    let (flags_at, mut flags) = put_head(times, values.len(), scratch, out);
    let values_at = out.len();
    let times_bytes = values_at - flags_at - 1;
    flags |= put_values(values, value_type, scratch, out);
    out[flags_at] = flags;
    WrittenColumns { flags, flags_at, times_bytes }
}

/// Appends the number of samples, a byte for the flags, and the times; returns the offsets of the flags and
/// of the times.
pub(super) fn put_head(
    times: ChunkTimes<'_>,
    sample_count: usize,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> (usize, u8) {
    assert!(sample_count > 0, "a chunk has a sample");
    let count = u16::try_from(sample_count).expect("the count is a u16");
    out.extend_from_slice(&count.to_be_bytes());
    let flags_at = out.len();
    out.push(0);
    match times {
        ChunkTimes::Own(times) => {
            assert_eq!(times.len(), sample_count, "one value per time");
            assert!(ascends(times), "times ascend strictly");
            let written = times::encode(times, scratch, out);
            if is_worth_a_try(times.len(), out.len() - written.head_end)
                && let Some(number_type) = times::put_entropy(written, scratch)
                && saves_enough(times.len(), written.head_end, &scratch.entropy, out)
            {
                replace(written.head_end, Length::Before, &scratch.entropy, out);
                return (flags_at, ENTROPY_TIMES | number_type.code() << TIMES_TYPE_SHIFT);
            }
            (flags_at, 0)
        }
        ChunkTimes::Shared { offset } => {
            put_uvarint(out, u64::from(offset));
            (flags_at, SHARED_TIMES)
        }
    }
}

/// Appends the values, up to the end of the chunk; returns their flags.
pub(super) fn put_values(
    values: &[f64],
    value_type: ValueType,
    scratch: &mut DenseScratch,
    out: &mut Vec<u8>,
) -> u8 {
    let values_at = out.len();
    let written = match value_type {
        ValueType::Float => values::encode(values, scratch, out),
        ValueType::Integer | ValueType::Unsigned => values::encode_integers(values, value_type, scratch, out),
    };
    if is_worth_a_try(values.len(), out.len() - values_at)
        && let Some(number_type) = values::put_entropy(written, scratch)
        && saves_enough(values.len(), written.head_end, &scratch.entropy, out)
    {
        replace(written.head_end, Length::UpToEnd, &scratch.entropy, out);
        return ENTROPY | number_type.code() << VALUES_TYPE_SHIFT;
    }
    0
}

fn is_worth_a_try(count: usize, packed_bytes: usize) -> bool {
    count >= ENTROPY_SAMPLES_MIN && packed_bytes * 8 >= count * ENTROPY_BITS_MIN
}

/// End of an entropy-coded column: by a length in front of it, or the end of the chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    Before,
    UpToEnd,
}

/// Returns true if `column` saves enough to replace the bytes of `out` from `start` on.
fn saves_enough(sample_count: usize, start: usize, column: &[u8], out: &[u8]) -> bool {
    let packed_bytes = out.len() - start;
    let is_short = sample_count <= ENTROPY_SHORT_SAMPLES_MAX;
    let part = if is_short { ENTROPY_SHORT_SAVING_PART } else { ENTROPY_SAVING_PART };
    column.len() + packed_bytes / part <= packed_bytes
}

/// Replaces the bytes of `out` from `start` on by `column`.
fn replace(start: usize, length: Length, column: &[u8], out: &mut Vec<u8>) {
    out.truncate(start);
    if length == Length::Before {
        put_uvarint(out, column.len() as u64);
    }
    out.extend_from_slice(column);
}

/// Offset of the chunk whose times the chunk `bytes` shares, or `None` if its times are its own.
///
/// # Errors
/// [`DecodeError`] when the head is cut or contains values that no encoder writes.
pub fn shared_times_offset(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    Ok(read_head(&mut reader)?.shared_offset)
}

/// Flags of a chunk, and the chunk that has its times.
pub(super) struct Head {
    pub(super) count: u16,
    pub(super) shared_offset: Option<u32>,
    times: Packing,
    pub(super) values: Packing,
    /// The flag [`TYPE_FLAG`].
    pub(super) type_flag: bool,
}

fn read_head(reader: &mut ByteReader<'_>) -> Result<Head, DecodeError> {
    read_flags(reader, |flags| flags != 0 && flags & TYPE_FLAG == 0)
}

/// Reads the start of a chunk up to its times; `is_valid` checks the flags that depend on the encoding.
pub(super) fn read_flags(
    reader: &mut ByteReader<'_>,
    is_valid: impl FnOnce(u8) -> bool,
) -> Result<Head, DecodeError> {
    let count = read_count(reader)?;
    let offset = reader.offset();
    let flags = reader.u8(WHAT)?;
    let has_both = flags & SHARED_TIMES != 0 && flags & ENTROPY_TIMES != 0;
    let has_type_of_blocks = (flags & ENTROPY == 0 && flags >> VALUES_TYPE_SHIFT & TYPE_MASK != 0)
        || (flags & ENTROPY_TIMES == 0 && flags >> TIMES_TYPE_SHIFT & TYPE_MASK != 0);
    // Without a flag a chunk of floats would be a dense chunk.
    if !is_valid(flags) || has_both || has_type_of_blocks {
        let expected = "known flags, at least one, of times one, types of columns that are there";
        return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: u64::from(flags) });
    }
    let mut shared_offset = None;
    if flags & SHARED_TIMES != 0 {
        let offset = reader.offset();
        let found = reader.uvarint(WHAT)?;
        let expected = "an offset within a segment";
        let invalid = |_| DecodeError::Invalid { what: WHAT, offset, expected, found };
        shared_offset = Some(u32::try_from(found).map_err(invalid)?);
    }
    let packing = |flag, shift| match flags & flag {
        0 => Packing::Blocks,
        _ => Packing::Entropy(NumberType::from_code(flags >> shift)),
    };
    let times = packing(ENTROPY_TIMES, TIMES_TYPE_SHIFT);
    let values = packing(ENTROPY, VALUES_TYPE_SHIFT);
    Ok(Head { count, shared_offset, times, values, type_flag: flags & TYPE_FLAG != 0 })
}

/// Appends the samples of `bytes` in `range` to `out`; nothing when it fails. `chunk_at` returns the chunk at
/// an offset of the same segment. Cost: as for dense chunks; entropy-coded values take about twice as long.
///
/// # Errors
/// [`DecodeError`] as for dense chunks, of `chunk_at`, and when the chunk named has no times of its own or
/// another number of them.
pub fn decode_packed<'a>(
    bytes: &'a [u8],
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    let (time_count, value_count) = (out.times.len(), out.values.len());
    let result = append(bytes, range, chunk_at, out);
    if result.is_err() {
        out.times.truncate(time_count);
        out.values.truncate(value_count);
    }
    result
}

fn append<'a>(
    bytes: &'a [u8],
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let head = read_head(&mut reader)?;
    let wanted = append_times(&head, &mut reader, range, chunk_at, &mut out.times)?;
    append_values(&mut reader, head.column(ValueType::Float), wanted, out)
}

/// Appends the times in `range`; returns the indices of their samples. The reader is after the times then,
/// unless there are none.
pub(super) fn append_times<'a>(
    head: &Head,
    reader: &mut ByteReader<'a>,
    range: TimeRange,
    chunk_at: impl FnOnce(u32) -> Result<RawChunk<'a>, DecodeError>,
    out: &mut Vec<i64>,
) -> Result<Range<usize>, DecodeError> {
    let Some(offset) = head.shared_offset else {
        let times_head = TimesHead::read_for(head.count, reader)?;
        if !times_head.overlaps(range) {
            return Ok(0..0);
        }
        return times::append(&times_head, (head.times, Ending::Before), reader, range, out);
    };
    append_shared(chunk_at(offset)?, head.count, range, out)
}

impl Head {
    /// Form of the values of a type.
    pub(super) fn column(&self, value_type: ValueType) -> ValueColumn {
        ValueColumn { value_type, packing: self.values, sample_count: usize::from(self.count) }
    }
}

/// Appends the times of another chunk in `range`; gives the indices of their samples.
fn append_shared(
    chunk: RawChunk<'_>,
    count: u16,
    range: TimeRange,
    out: &mut Vec<i64>,
) -> Result<Range<usize>, DecodeError> {
    let mut reader = ByteReader::new(chunk.bytes);
    let own = match chunk.encoding {
        ENCODING_DENSE => Some((read_count(&mut reader)?, Packing::Blocks)),
        ENCODING_PACKED => {
            let head = read_head(&mut reader)?;
            Some((head.count, head.times)).filter(|_| head.shared_offset.is_none())
        }
        ENCODING_INTEGERS | ENCODING_TEXTS => {
            let head = read_flags(&mut reader, |_| true)?;
            Some((head.count, head.times)).filter(|_| head.shared_offset.is_none())
        }
        _ => None,
    };
    let Some((_, packing)) = own.filter(|(own_count, _)| *own_count == count) else {
        let (expected, found) = ("a chunk with as many times of its own", u64::from(chunk.encoding));
        return Err(DecodeError::Invalid { what: "shared times", offset: 0, expected, found });
    };
    let head = TimesHead::read_for(count, &mut reader)?;
    if !head.overlaps(range) {
        return Ok(0..0);
    }
    // Blocks that follow are not read here; an entropy-coded column begins with its length.
    let ending = if packing == Packing::Blocks { Ending::WithChunk } else { Ending::Before };
    times::append(&head, (packing, ending), &mut reader, range, out)
}

#[cfg(test)]
mod tests;
