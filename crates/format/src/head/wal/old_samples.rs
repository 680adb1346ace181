//! Frames of samples of WAL versions 1 and 2: floats, native histograms and start timestamps, each in frames
//! of their own.
//!
//! Invariant: they decode to the columns of [`Samples`], accepted under last-wins: a later frame that sets a
//! timestamp again replaces the value.
//! Not here: writing them; no version after 2 does.

use chronolith_base::{ByteReader, DecodeError};

use super::histograms::HistogramDecoder;
use super::payload::{expect_end, next_id};
use super::samples::Samples;

/// Adds the samples of a frame of floats to empty columns.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn decode_floats(samples: &mut Samples, mut reader: ByteReader<'_>) -> Result<(), DecodeError> {
    // Every sample has at least one byte of id and eight of value, so the count is bounded by the bytes.
    let count = reader.length("sample count")?;
    samples.arrival_ms = reader.le_u64("arrival time")?.cast_signed();
    let base = reader.le_u64("base time")?.cast_signed();
    samples.get_ids(&mut reader, count, false)?;
    let offset = reader.offset();
    match reader.u8("time mode")? {
        0 => samples.times.resize(count, base),
        1 => samples.get_times(&mut reader, count, base)?,
        mode => {
            let (what, found) = ("time mode", u64::from(mode));
            return Err(DecodeError::Invalid { what, offset, expected: "0 or 1", found });
        }
    }
    samples.get_values(&mut reader, count)?;
    expect_end(&reader, "samples")
}

/// Adds the samples of a frame of histograms to empty columns.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn decode_histograms(
    samples: &mut Samples,
    mut reader: ByteReader<'_>,
) -> Result<(), DecodeError> {
    samples.arrival_ms = reader.le_u64("arrival time")?.cast_signed();
    let (mut id, mut time) = (0, 0i64);
    let mut decoder = HistogramDecoder::default();
    while !reader.is_empty() {
        id = next_id(&mut reader, id)?;
        time = time.wrapping_add(reader.varint("time")?);
        samples.push_histogram(id, time, decoder.next(&mut reader)?);
    }
    Ok(())
}

/// Adds the samples of a frame of start timestamps to empty columns.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn decode_starts(samples: &mut Samples, mut reader: ByteReader<'_>) -> Result<(), DecodeError> {
    // Every entry has at least three bytes, so the count is bounded by the bytes.
    let count = reader.length("start timestamp count")?;
    let (mut id, mut time, mut start_ms) = (0, 0i64, 0i64);
    for _ in 0..count {
        id = next_id(&mut reader, id)?;
        time = time.wrapping_add(reader.varint("sample time")?);
        start_ms = start_ms.wrapping_add(reader.varint("start timestamp")?);
        samples.ids.push(id);
        samples.times.push(time);
        samples.start_times.push(start_ms);
    }
    expect_end(&reader, "samples")
}
