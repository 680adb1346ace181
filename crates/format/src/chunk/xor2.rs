//! Prometheus's XOR2 float chunk (encoding 4): samples with optional start timestamps (`docs/chunk/xor2.md`).
//!
//! Invariant: the decoder takes untrusted bytes, reads exactly as many samples as the header counts, and
//! returns ascending times or an error; the encoder writes the same bytes as Prometheus's.
//! Not here: choice of the encoding (`chunks::kinds`: chunks with start times).

mod encode;

use chronolith_base::DecodeError;
use chronolith_base::bytes::unzigzag;
use chronolith_model::sample::STALE_NAN_BITS;
use chronolith_model::{Columns, TimeRange};

use crate::chunk::xor::bits::BitReader;
pub use encode::encode;

/// Encoding byte of an XOR2 chunk in Prometheus's files.
pub const ENCODING_XOR2: u8 = 4;
/// Bytes of the header: big-endian u16 count, start-timestamp byte.
pub const HEADER_BYTES: usize = 3;

/// In the third byte: the first sample has a start timestamp.
const FIRST_START_KNOWN: u8 = 0x80;
/// In the third byte: from which sample on start timestamps follow; 0 = none do.
const START_FROM_MASK: u8 = 0x7f;
const WHAT: &str = "XOR2 chunk";

/// State that the next sample depends on.
struct State {
    time: i64,
    time_delta: u64,
    /// Bits of the last value that was no staleness marker.
    baseline: u64,
    leading: u8,
    trailing: u8,
    /// Start time; 0 if it is not known.
    start_ms: i64,
    /// Time of the sample before minus start time.
    start_age: i64,
}

/// Appends the samples of `bytes` in `range` to `out`.
///
/// # Errors
/// [`DecodeError`] when the stream ends early or its times do not ascend; samples before have been appended.
pub fn decode(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let Some((&[high, low, start_flags], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        let left = bytes.len();
        return Err(DecodeError::Short { what: WHAT, offset: 0, needed: HEADER_BYTES, left });
    };
    let start_from = u16::from(start_flags & START_FROM_MASK);
    let mut reader = BitReader::after_header(bytes, HEADER_BYTES);
    let mut state =
        State { time: 0, time_delta: 0, baseline: 0, leading: 0, trailing: 0, start_ms: 0, start_age: 0 };
    for sample_idx in 0..u16::from_be_bytes([high, low]) {
        let before = state.time;
        let value_bits = match sample_idx {
            0 => first_sample(&mut reader, &mut state, start_flags & FIRST_START_KNOWN != 0)?,
            1 => {
                state.time_delta = reader.uvarint()?;
                state.time = state.time.wrapping_add_unsigned(state.time_delta);
                value(&mut reader, &mut state)?
            }
            _ => next_sample(&mut reader, &mut state)?,
        };
        if sample_idx > 0 && state.time <= before {
            let (expected, found) = ("a time after the one before", state.time.cast_unsigned());
            return Err(reader.invalid("XOR2 chunk time", expected, found));
        }
        if sample_idx > 0 && start_from > 0 && sample_idx >= start_from {
            let change = start_change(&mut reader)?;
            state.start_age =
                if sample_idx == start_from { change } else { state.start_age.wrapping_add(change) };
            state.start_ms = before.wrapping_sub(state.start_age);
        }
        if state.time >= range.end {
            break;
        }
        if state.time >= range.start {
            out.push(state.time, f64::from_bits(value_bits));
            if state.start_ms != 0 {
                out.set_start_time(state.start_ms);
            }
        }
    }
    Ok(())
}

fn first_sample(
    reader: &mut BitReader<'_>,
    state: &mut State,
    start_is_known: bool,
) -> Result<u64, DecodeError> {
    state.time = unzigzag(reader.uvarint()?);
    let value_bits = reader.bits64()?;
    if value_bits != STALE_NAN_BITS {
        state.baseline = value_bits;
    }
    if start_is_known {
        state.start_ms = state.time.wrapping_sub(unzigzag(reader.uvarint()?));
    }
    Ok(value_bits)
}

/// Third sample and later: a prefix tells the changes of time step and value apart.
fn next_sample(reader: &mut BitReader<'_>, state: &mut State) -> Result<u64, DecodeError> {
    let ones = prefix(reader, 5)?;
    let change = match ones {
        2 => signed(reader.bits(13)?, 13),
        3 => signed(reader.bits(20)?, 20),
        4 => reader.bits64()?.cast_signed(),
        _ => 0,
    };
    state.time_delta = state.time_delta.wrapping_add_signed(change);
    state.time = state.time.wrapping_add_unsigned(state.time_delta);
    match ones {
        0 => Ok(state.baseline),
        1 if reader.bits(1)? == 0 => same_window(reader, state),
        1 => new_window(reader, state),
        5 => Ok(STALE_NAN_BITS),
        _ => value(reader, state),
    }
}

/// Counts the one bits before the next zero, which is read too; at most `max`.
fn prefix(reader: &mut BitReader<'_>, max: u32) -> Result<u32, DecodeError> {
    for ones in 0..max {
        if reader.bits(1)? == 0 {
            return Ok(ones);
        }
    }
    Ok(max)
}

/// Two's complement of `width` bits.
fn signed(bits: u64, width: u32) -> i64 {
    (bits << (64 - width)).cast_signed() >> (64 - width)
}

fn value(reader: &mut BitReader<'_>, state: &mut State) -> Result<u64, DecodeError> {
    match prefix(reader, 3)? {
        0 => Ok(state.baseline),
        1 => same_window(reader, state),
        2 => new_window(reader, state),
        _ => Ok(STALE_NAN_BITS),
    }
}

fn same_window(reader: &mut BitReader<'_>, state: &mut State) -> Result<u64, DecodeError> {
    let significant = 64 - u32::from(state.leading) - u32::from(state.trailing);
    let delta = if significant > 56 {
        reader.bits(significant - 32)? << 32 | reader.bits(32)?
    } else {
        reader.bits(significant)?
    };
    state.baseline ^= delta << state.trailing;
    Ok(state.baseline)
}

fn new_window(reader: &mut BitReader<'_>, state: &mut State) -> Result<u64, DecodeError> {
    let leading = reader.bits(5)? as u8;
    let significant = match reader.bits(6)? as u8 {
        0 => 64,
        other => other,
    };
    let Some(trailing) = 64u8.checked_sub(leading + significant) else {
        let (expected, found) = ("at most 64 leading and significant bits", u64::from(leading + significant));
        return Err(reader.invalid("XOR2 chunk window", expected, found));
    };
    (state.leading, state.trailing) = (leading, trailing);
    same_window(reader, state)
}

/// Reads the change of a start timestamp's distance from the sample, in classes of bits; each class reaches
/// one further up than two's complement does.
fn start_change(reader: &mut BitReader<'_>) -> Result<i64, DecodeError> {
    match prefix(reader, 8)? {
        0 => Ok(0),
        8 => reader.bits64().map(u64::cast_signed),
        ones => {
            let widths = [3, 6, 9, 12, 18, 25, 56];
            let width = widths.get(ones as usize - 1).copied().unwrap_or(56);
            let field = reader.bits(width)?.cast_signed();
            Ok(if field > 1 << (width - 1) { field - (1 << width) } else { field })
        }
    }
}

#[cfg(test)]
mod tests;
