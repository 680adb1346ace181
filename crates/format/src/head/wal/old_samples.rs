//! Frames of samples of WAL versions 1 and 2: floats, native histograms and start timestamps, each in frames
//! of their own.
//!
//! Invariant: they decode to the columns of [`Samples`], accepted under last-wins: a later frame that sets a
//! timestamp again replaces the value.
//! Not here: writing them; no version after 2 does.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::DuplicatePolicy;

use super::histograms::HistogramDecoder;
use super::payload::{expect_end, next_id};
use super::samples::Samples;
use super::{KIND_OLD_FLOATS, KIND_OLD_HISTOGRAMS, KIND_OLD_STARTS};

/// Reads a payload of `kind` into empty columns.
///
/// # Errors
/// [`DecodeError`].
pub(super) fn decode(
    samples: &mut Samples,
    kind: u8,
    reader: &mut ByteReader<'_>,
) -> Result<(), DecodeError> {
    (samples.arrival_ms, samples.duplicates) = (0, DuplicatePolicy::LastWins);
    match kind {
        KIND_OLD_FLOATS => decode_floats(samples, reader),
        KIND_OLD_HISTOGRAMS => decode_histograms(samples, reader),
        KIND_OLD_STARTS => decode_starts(samples, reader),
        _ => {
            let (what, expected, found) = ("frame kind", "a frame of samples", u64::from(kind));
            Err(DecodeError::Invalid { what, offset: 0, expected, found })
        }
    }
}

fn decode_floats(samples: &mut Samples, reader: &mut ByteReader<'_>) -> Result<(), DecodeError> {
    // Every sample has at least one byte of id and eight of value, so the count is bounded by the bytes.
    let count = reader.length("sample count")?;
    samples.arrival_ms = reader.le_u64("arrival time")?.cast_signed();
    let base = reader.le_u64("base time")?.cast_signed();
    samples.get_ids(reader, count, false)?;
    let offset = reader.offset();
    match reader.u8("time mode")? {
        0 => samples.times.resize(count, base),
        1 => samples.get_times(reader, count, base)?,
        mode => {
            let (what, found) = ("time mode", u64::from(mode));
            return Err(DecodeError::Invalid { what, offset, expected: "0 or 1", found });
        }
    }
    samples.get_values(reader, count)?;
    expect_end(reader, "samples")
}

fn decode_histograms(samples: &mut Samples, reader: &mut ByteReader<'_>) -> Result<(), DecodeError> {
    samples.arrival_ms = reader.le_u64("arrival time")?.cast_signed();
    let (mut id, mut time) = (0, 0i64);
    let mut decoder = HistogramDecoder::default();
    while !reader.is_empty() {
        id = next_id(reader, id)?;
        time = time.wrapping_add(reader.varint("time")?);
        samples.push_histogram(id, time, decoder.next(reader)?);
    }
    Ok(())
}

fn decode_starts(samples: &mut Samples, reader: &mut ByteReader<'_>) -> Result<(), DecodeError> {
    // Every entry has at least three bytes, so the count is bounded by the bytes.
    let count = reader.length("start timestamp count")?;
    let (mut id, mut time, mut start_ms) = (0, 0i64, 0i64);
    for _ in 0..count {
        id = next_id(reader, id)?;
        time = time.wrapping_add(reader.varint("sample time")?);
        start_ms = start_ms.wrapping_add(reader.varint("start timestamp")?);
        samples.ids.push(id);
        samples.times.push(time);
        samples.start_times.push(start_ms);
    }
    expect_end(reader, "samples")
}
