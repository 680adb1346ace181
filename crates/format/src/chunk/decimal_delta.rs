//! Decimal-delta chunk: times as deltas of deltas, values as differences of scaled integers in an adaptive
//! Golomb-Rice code. The encoding of open chunks with noisy decimal values, which XOR cannot shorten.
//!
//! Invariants: every value is verified bit for bit when it is appended, one that does not fit is refused and
//! changes nothing; the decoder takes untrusted bytes and reads exactly as many samples as the header counts.
//! Not here: conversion and end of chunks (`head`), files that hold them.

mod choice;
mod open_state;
mod reader;
mod rice;
mod scale;

pub use choice::{CONVERSION_COUNT, convert, is_conversion_due, reencode, saves_enough};
pub use open_state::OpenState;
pub use reader::{Samples, decode};
pub use scale::Scale;

use chronolith_base::DecodeError;
use chronolith_base::bytes::zigzag;

use crate::chunk::xor::bits::{put_bits, put_uvarint, put_wide};
use crate::chunk::xor::{SAMPLE_BYTES_MAX, SAMPLES_PER_CHUNK, STATE_BYTES, XorState};
use rice::RiceParameter;

/// Encoding byte of a decimal-delta chunk; no other program has it.
pub const ENCODING_DECIMAL_DELTA: u8 = 0x43;
/// Bytes of the header: big-endian u16 count, code of the scale, first Rice parameter.
pub const HEADER_BYTES: usize = 4;

/// Marks a decimal-delta state in the byte that counts up to 31 leading zeros, or is 255, in an XOR state.
const SCALE_MARK: u8 = 0x80;

const _: () = {
    assert!(HEADER_BYTES + 10 + 8 <= crate::chunk::xor::HEADER_BYTES + SAMPLE_BYTES_MAX, "first sample");
    assert!(80 + rice::CODE_BITS_MAX as usize <= 8 * SAMPLE_BYTES_MAX, "second sample");
    assert!(68 + rice::CODE_BITS_MAX as usize + 7 <= 8 * SAMPLE_BYTES_MAX, "longest later sample");
};

/// The value is no integer at the scale of the chunk; nothing was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value is no integer at the scale of the chunk")]
pub struct Misfit;

/// Position after the last sample of an open chunk: all that the next append needs besides the last byte.
///
/// It has the fields of an XOR state, as a series keeps one record for both: `value_bits` is the last
/// integer, `leading` the code of the scale and [`SCALE_MARK`], `trailing` the Rice parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecimalDeltaState(XorState);

impl DecimalDeltaState {
    /// A chunk without samples and bytes.
    #[must_use]
    pub fn new(scale: Scale) -> DecimalDeltaState {
        DecimalDeltaState::with_rice(scale, RiceParameter::default())
    }

    fn with_rice(scale: Scale, rice: RiceParameter) -> DecimalDeltaState {
        let (leading, trailing) = (SCALE_MARK | scale.code(), rice.to_byte());
        DecimalDeltaState(XorState { leading, trailing, ..XorState::new() })
    }

    /// An empty chunk with the scale and the Rice parameter of this one.
    #[must_use]
    pub fn next_chunk(&self) -> DecimalDeltaState {
        DecimalDeltaState::with_rice(self.scale(), RiceParameter::of_byte(self.0.trailing))
    }

    /// Scale of the values.
    #[must_use]
    pub fn scale(&self) -> Scale {
        Scale::of_low_bits(self.0.leading)
    }

    /// Time of the last sample; 0 if there is none.
    #[must_use]
    pub fn time(&self) -> i64 {
        self.0.t
    }

    /// Bits of the last value.
    #[must_use]
    pub fn value_bits(&self) -> u64 {
        self.scale().value_of(self.0.value_bits.cast_signed()).to_bits()
    }

    /// Time between the last two samples; 0 if there are fewer.
    #[must_use]
    pub fn step_ms(&self) -> i64 {
        self.0.step_ms()
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.0.count
    }

    /// Bytes in use, with the header.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.0.byte_len()
    }

    /// Length of the buffer that one more append requires, the same as for XOR.
    #[must_use]
    pub fn byte_len_needed(&self) -> usize {
        self.0.byte_len_needed()
    }

    /// Appends a sample to the chunk in `buf`, whose first [`DecimalDeltaState::byte_len`] bytes earlier
    /// appends wrote; the bytes after them may have any value.
    ///
    /// # Errors
    /// [`Misfit`] if the value has other bits after scaling; state and bytes are unchanged.
    ///
    /// # Panics
    /// If `buf` is shorter than [`DecimalDeltaState::byte_len_needed`] or the chunk has 65535 samples.
    pub fn append(&mut self, buf: &mut [u8], time: i64, value: f64) -> Result<(), Misfit> {
        self.append_part(buf, 0, time, value)?;
        buf[..2].copy_from_slice(&self.0.count.to_be_bytes());
        Ok(())
    }

    /// As [`DecimalDeltaState::append`] with only the part of the chunk from byte `base` on in `buf`, which
    /// includes the last byte in use. The count in the header is not written; whoever joins the parts takes
    /// it from [`DecimalDeltaState::count`].
    ///
    /// # Errors
    /// [`Misfit`] as [`DecimalDeltaState::append`].
    ///
    /// # Panics
    /// If `base` is not below [`DecimalDeltaState::byte_len`] (0 for the first sample), `buf` is shorter than
    /// [`DecimalDeltaState::byte_len_needed`] less `base`, or the chunk has 65535 samples.
    pub fn append_part(&mut self, buf: &mut [u8], base: usize, time: i64, value: f64) -> Result<(), Misfit> {
        append_part(&mut self.0, buf, base, time, value)
    }

    /// The state as 32 bytes, which differ from the bytes of every XOR state.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STATE_BYTES] {
        self.0.to_bytes()
    }

    /// Reads the bytes of [`DecimalDeltaState::to_bytes`]: the state of a chunk with samples.
    ///
    /// # Errors
    /// [`DecodeError`] for a state that no chunk has.
    pub fn from_bytes(bytes: &[u8]) -> Result<DecimalDeltaState, DecodeError> {
        let record = XorState::from_bytes_unchecked(bytes)?;
        let len_max = crate::chunk::xor::CHUNK_BYTES_MAX;
        let is_valid = is_marked(&record)
            && RiceParameter::from_byte(record.trailing).is_some()
            && (HEADER_BYTES + 2..=len_max).contains(&record.byte_len())
            && (1..=SAMPLES_PER_CHUNK).contains(&usize::from(record.count))
            && record.value_bits.cast_signed().unsigned_abs() < scale::INTEGER_LIMIT.unsigned_abs();
        if is_valid {
            return Ok(DecimalDeltaState(record));
        }
        let (what, expected) = ("chunk state", "the state of an open decimal-delta chunk");
        Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(record.leading) })
    }

    /// The state after the samples of `bytes`, which must be a whole chunk and nothing else.
    ///
    /// # Errors
    /// [`DecodeError`] as [`decode`], for a chunk without samples, and for bytes after the last sample.
    pub fn resume(bytes: &[u8]) -> Result<DecimalDeltaState, DecodeError> {
        let mut samples = Samples::new(bytes)?;
        while samples.next().transpose()?.is_some() {}
        let state = samples.state();
        if state.byte_len() == bytes.len() && state.count() > 0 {
            return Ok(state);
        }
        let (offset, expected) = (state.byte_len(), "samples, and the end of the chunk after them");
        Err(DecodeError::Invalid { what: "decimal-delta chunk", offset, expected, found: bytes.len() as u64 })
    }
}

/// Returns true if the record contains a decimal-delta chunk.
fn is_marked(record: &XorState) -> bool {
    record.leading & !Scale::CODE_MASK == SCALE_MARK
}

// PERF: works on the record in place: copying it to a struct of its own and back cannot be forwarded by the
// store buffer (8-byte stores, 16-byte loads): 17.7 -> 11.3 ns per sample, with `short_code` inlined.
//   cargo bench -p chronolith-format --bench decimal_delta_speed
//   (tried: byte-aligned varints for times and values, 2.5 instead of 1.4 bytes per sample of a gauge)
fn append_part(
    record: &mut XorState,
    buf: &mut [u8],
    base: usize,
    time: i64,
    value: f64,
) -> Result<(), Misfit> {
    assert!(base == 0 || base < record.byte_len(), "the part has the last byte in use");
    assert!(base + buf.len() >= record.byte_len_needed(), "the buffer has room for one more sample");
    assert!(record.count < u16::MAX, "the count is a u16");
    let integer = Scale::of_low_bits(record.leading).integer_of(value).ok_or(Misfit)?;
    let base_bits = 8 * base as u32;
    record.bit_len -= base_bits;
    if record.count < 2 {
        append_head(record, buf, time, integer);
    } else {
        append_tail(record, buf, time, integer);
    }
    record.bit_len += base_bits;
    record.t = time;
    record.value_bits = integer.cast_unsigned();
    record.count += 1;
    Ok(())
}

#[cold]
fn append_head(record: &mut XorState, buf: &mut [u8], time: i64, integer: i64) {
    if record.count == 0 {
        buf[2..HEADER_BYTES].copy_from_slice(&[record.leading & Scale::CODE_MASK, record.trailing]);
        record.bit_len = 8 * HEADER_BYTES as u32;
        put_uvarint(buf, &mut record.bit_len, zigzag(time));
        put_uvarint(buf, &mut record.bit_len, zigzag(integer));
        return;
    }
    record.t_delta = time.wrapping_sub(record.t).cast_unsigned();
    put_uvarint(buf, &mut record.bit_len, record.t_delta);
    append_long_code(record, buf, integer);
}

/// Appends the third sample and later ones: time and value are one field, which one word holds unless one of
/// them is long.
fn append_tail(record: &mut XorState, buf: &mut [u8], time: i64, integer: i64) {
    let t_delta = time.wrapping_sub(record.t).cast_unsigned();
    let dod = t_delta.wrapping_sub(record.t_delta).cast_signed();
    record.t_delta = t_delta;
    let (time_field, time_bits) = match dod {
        0 => (0, 1),
        -32..=31 => (0b10 << 6 | low_bits(dod, 6), 8),
        -2048..=2047 => (0b110 << 12 | low_bits(dod, 12), 15),
        -524_288..=524_287 => (0b1110 << 20 | low_bits(dod, 20), 24),
        _ => {
            put_bits(buf, &mut record.bit_len, 0b1111, 4);
            put_bits(buf, &mut record.bit_len, dod.cast_unsigned(), 64);
            return append_long_code(record, buf, integer);
        }
    };
    let (at, used) = ((record.bit_len / 8) as usize, record.bit_len % 8);
    let mut rice = RiceParameter::of_byte(record.trailing);
    if let Some((code, code_bits)) = rice.short_code(integer - record.value_bits.cast_signed())
        && used + time_bits + code_bits <= u64::BITS
        && let Some(bytes) = buf.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>())
    {
        // Bits after the field become zeros, which the next append overwrites.
        let kept = u64::from(bytes[0]) << 56 & !(u64::MAX >> used);
        let field = (time_field << code_bits | code) << (u64::BITS - used - time_bits - code_bits);
        *bytes = (kept | field).to_be_bytes();
        record.bit_len += time_bits + code_bits;
        record.trailing = rice.to_byte();
        return;
    }
    put_bits(buf, &mut record.bit_len, time_field, time_bits);
    append_long_code(record, buf, integer);
}

/// Appends the code of a value bit by bit.
#[cold]
fn append_long_code(record: &mut XorState, buf: &mut [u8], integer: i64) {
    let mut rice = RiceParameter::of_byte(record.trailing);
    let (code, code_bits) = rice.code(integer - record.value_bits.cast_signed());
    put_wide(buf, &mut record.bit_len, code, code_bits);
    record.trailing = rice.to_byte();
}

fn low_bits(value: i64, count: u32) -> u64 {
    value.cast_unsigned() & ((1 << count) - 1)
}

#[cfg(test)]
mod tests;
