//! Dense chunk with its own times and without entropy coding.

use std::ops::Range;

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::items::{Ending, Packing};
use super::scratch::DenseScratch;
use super::sequence::{ascends, read_count};
use super::times::{self, TimesHead};
use super::values::{self, ValueColumn, ValueType};

/// Encoding byte of a dense chunk in a block's segments.
pub const ENCODING_DENSE: u8 = 0x40;
/// Appends one chunk with all the samples to `out`. Allocates only to grow `scratch` and `out`.
///
/// # Panics
/// If there is no sample or more than [`SAMPLES_MAX`], the lengths differ, or times do not ascend strictly.
pub fn encode(times: &[i64], values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) {
    put_times(times, values, scratch, out);
    values::encode(values, scratch, out);
}

/// Appends the number of samples and their times.
pub(super) fn put_times(times: &[i64], values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) {
    assert_eq!(times.len(), values.len(), "one value per time");
    assert!(!times.is_empty(), "a chunk has a sample");
    let count = u16::try_from(times.len()).expect("the count is a u16");
    assert!(ascends(times), "times ascend strictly");
    out.extend_from_slice(&count.to_be_bytes());
    times::encode(times, scratch, out);
}

/// Appends the samples of `bytes` in `range` to `out`; nothing when it fails.
///
/// Cost: the samples in `range`, in blocks of 128; blocks before it are unpacked where later ones depend on
/// them, those after it are not. Nothing when the chunk is outside of the range by its first and last time.
///
/// # Errors
/// [`DecodeError`] when the bytes end early, or go on after the last sample, or contain values that no
/// encoder writes.
pub fn decode(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    append_all_or_nothing(out, |out| append(bytes, range, out))
}

/// Calls `append` and removes what it has appended if it fails.
pub(super) fn append_all_or_nothing(
    out: &mut Columns,
    append: impl FnOnce(&mut Columns) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let (time_count, value_count) = (out.times.len(), out.values.len());
    let result = append(out);
    if result.is_err() {
        out.times.truncate(time_count);
        out.values.truncate(value_count);
    }
    result
}

fn append(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let head = TimesHead::read(&mut reader)?;
    if !head.overlaps(range) {
        return Ok(());
    }
    let layout = (Packing::Blocks, Ending::Before);
    let wanted = times::append(&head, layout, &mut reader, range, &mut out.times)?;
    let sample_count = usize::from(head.count);
    let column = ValueColumn { value_type: ValueType::Float, packing: Packing::Blocks, sample_count };
    append_values(&mut reader, column, wanted, out)
}

/// Appends the values of the samples `wanted`, whose times have been appended.
pub(super) fn append_values(
    reader: &mut ByteReader<'_>,
    column: ValueColumn,
    wanted: Range<usize>,
    out: &mut Columns,
) -> Result<(), DecodeError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let start = out.values.len();
    out.values.resize(start + wanted.len(), 0.0);
    values::decode(reader, column, wanted, &mut out.values[start..])
}

/// Number of samples in the header of the chunk.
///
/// # Errors
/// [`DecodeError`] for bytes without a header, and for no samples.
pub fn sample_count(bytes: &[u8]) -> Result<u16, DecodeError> {
    read_count(&mut ByteReader::new(bytes))
}

/// Times of the first and the last sample, without decoding those between.
///
/// # Errors
/// [`DecodeError`] when the head is cut or contains values that no encoder writes.
pub fn time_bounds(bytes: &[u8]) -> Result<(i64, i64), DecodeError> {
    Ok(TimesHead::read(&mut ByteReader::new(bytes))?.bounds())
}
