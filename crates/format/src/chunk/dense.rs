//! Dense float chunk (private encoding byte 0x40): all times, then all values of a chunk, in blocks of 128.
//!
//! Holds: any `f64` bits and any strictly ascending `i64` times round-trip, 1 to 65535 of them; the decoder takes
//! untrusted bytes, allocates for no more samples than a `u16` counts, and gives ascending times or an error.
//! Not here: when a chunk is made (`head`, `block`), checksums (the container's).

mod block;
mod decimal;
mod entropy;
mod items;
mod packed;
mod starts;
mod times;
mod values;

use std::ops::Range;

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use items::{Ending, Packing};
pub use packed::{
    ENCODING_PACKED, PackedChunk, TimesPlace, decode_packed, encode_packed, shared_times_offset,
};
pub use starts::{ENCODING_DENSE_STARTS, decode_starts, encode_starts, shared_times_offset_of_starts};
use times::TimesHead;

/// Encoding byte of a dense chunk in a block's segments.
pub const ENCODING_DENSE: u8 = 0x40;
/// Most samples in one chunk: the count is a u16.
pub const SAMPLES_MAX: usize = u16::MAX as usize;

const WHAT: &str = "dense chunk";

/// Buffers of the encoder, kept from chunk to chunk.
#[derive(Debug, Default)]
pub struct DenseScratch {
    /// Steps of the time grid that are missing before a sample: sample index, how many.
    gaps: Vec<(u16, i64)>,
    /// Samples whose value is no decimal: sample index, bits.
    exceptions: Vec<(u16, u64)>,
    series: Vec<i64>,
    deltas: Vec<i64>,
    deltas_of_deltas: Vec<i64>,
    /// A column behind its head, entropy-coded.
    entropy: Vec<u8>,
}

impl DenseScratch {
    /// Empty buffers; the first chunk allocates them.
    #[must_use]
    pub fn new() -> DenseScratch {
        DenseScratch::default()
    }
}

/// Appends one chunk with all the samples to `out`. Allocates only to grow `scratch` and `out`.
///
/// # Panics
/// If there is no sample or more than [`SAMPLES_MAX`], the lengths differ, or times do not ascend strictly.
pub fn encode(times: &[i64], values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) {
    assert_eq!(times.len(), values.len(), "one value a time");
    assert!(!times.is_empty(), "a chunk has a sample");
    let count = u16::try_from(times.len()).expect("the count is a u16");
    assert!(ascends(times), "times ascend strictly");
    out.extend_from_slice(&count.to_be_bytes());
    times::encode(times, scratch, out);
    values::encode(values, scratch, out);
}

/// Appends the samples of `bytes` that lie in `range` to `out`; nothing when it fails.
///
/// Cost: what lies in `range`, in blocks of 128; blocks before it are unpacked where later ones build on them, those behind
/// it are not. Nothing when the chunk's first and last time show that it lies outside.
///
/// # Errors
/// [`DecodeError`] when the bytes end early, or go on behind the last sample, or say what no encoder says.
pub fn decode(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let (time_count, value_count) = (out.times.len(), out.values.len());
    let result = append(bytes, range, out);
    if result.is_err() {
        out.times.truncate(time_count);
        out.values.truncate(value_count);
    }
    result
}

fn append(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let head = TimesHead::read(&mut reader)?;
    if !range.overlaps_inclusive(head.first, head.last) {
        return Ok(());
    }
    let layout = (Packing::Blocks, Ending::Before);
    let wanted = times::append(&head, layout, &mut reader, range, &mut out.times)?;
    append_values(&mut reader, Packing::Blocks, usize::from(head.count), wanted, out)
}

/// Appends the values of the samples `wanted`, whose times have been appended.
fn append_values(
    reader: &mut ByteReader<'_>,
    packing: Packing,
    sample_count: usize,
    wanted: Range<usize>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let start = out.values.len();
    out.values.resize(start + wanted.len(), 0.0);
    values::decode(reader, packing, sample_count, wanted, &mut out.values[start..])
}

/// How many samples the chunk says it has.
///
/// # Errors
/// [`DecodeError`] for bytes too short to say it, and for none.
pub fn sample_count(bytes: &[u8]) -> Result<u16, DecodeError> {
    read_count(&mut ByteReader::new(bytes))
}

/// Times of the first and the last sample, without decoding those between.
///
/// # Errors
/// [`DecodeError`] when the head is cut or says what no encoder says.
pub fn time_bounds(bytes: &[u8]) -> Result<(i64, i64), DecodeError> {
    let head = TimesHead::read(&mut ByteReader::new(bytes))?;
    Ok((head.first, head.last))
}

fn read_count(reader: &mut ByteReader<'_>) -> Result<u16, DecodeError> {
    match reader.be_u16(WHAT)? {
        0 => Err(DecodeError::Invalid { what: WHAT, offset: 0, expected: "a sample", found: 0 }),
        count => Ok(count),
    }
}

/// Whether `times` ascend strictly.
///
/// Looks at all of them and keeps the sign bit of "less than", spelled in bit operations that every 64-bit vector
/// unit has; a compare of two i64 is not among them on plain x86-64.
fn ascends(times: &[i64]) -> bool {
    let less = |a: i64, b: i64| (a & !b) | (!(a ^ b) & a.wrapping_sub(b));
    times.iter().zip(times.iter().skip(1)).fold(-1, |all, (&a, &b)| all & less(a, b)) < 0
}

/// The steps from item to item, which wrap at 64 bits.
fn put_deltas(items: &[i64], out: &mut Vec<i64>) {
    out.clear();
    out.extend(items.iter().zip(items.iter().skip(1)).map(|(before, after)| after.wrapping_sub(*before)));
}

#[cfg(test)]
mod tests;
