//! Integers of a block: zig-zag coded steps, raw, packed by simple8b, or as a run of one step.
//!
//! The first value is a step from 0. Unsigned integers are coded as the signed ones of the same bits.

use chronolith_base::bytes::unzigzag;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::kind::{word_of_integer, word_of_unsigned};

use super::simple8b;
use crate::influx::fault::invalid;

const RAW: u8 = 0;
const PACKED: u8 = 1;
const RUN: u8 = 2;
/// Bytes before the packed steps: encoding and first value.
const PACKED_HEADER_BYTES: usize = 9;

/// Appends the words of signed integers to `out`.
pub(super) fn decode_signed(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    decode(bytes, count, |value| out.push(f64::from_bits(word_of_integer(value))))
}

/// Appends the words of unsigned integers to `out`.
pub(super) fn decode_unsigned(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    decode(bytes, count, |value| out.push(f64::from_bits(word_of_unsigned(value as u64))))
}

/// Calls `sink` with the integers, which are `count` unless the bytes are damaged.
fn decode(bytes: &[u8], count: usize, mut sink: impl FnMut(i64)) -> Result<(), DecodeError> {
    if bytes.is_empty() && count == 0 {
        return Ok(());
    }
    let mut r = ByteReader::new(bytes);
    let mut value = 0i64;
    match r.u8("encoding of integers")? >> 4 {
        RAW => {
            let stored = r.remaining() / 8;
            if stored != count {
                return Err(invalid("count of integers", 0, "as many as times", stored as u64));
            }
            while !r.is_empty() {
                value = value.wrapping_add(unzigzag(r.be_u64("integer")?));
                sink(value);
            }
            Ok(())
        }
        PACKED => {
            value = unzigzag(r.be_u64("first integer")?);
            sink(value);
            let words = bytes.get(PACKED_HEADER_BYTES..).unwrap_or_default();
            simple8b::decode(words, PACKED_HEADER_BYTES, |step| {
                value = value.wrapping_add(unzigzag(step));
                sink(value);
            })
        }
        RUN => {
            value = unzigzag(r.be_u64("first integer")?);
            let step = unzigzag(r.uvarint("step of integers")?);
            let offset = r.offset();
            let steps = r.uvarint("count of steps")?;
            if steps.checked_add(1) != Some(count as u64) {
                return Err(invalid("count of steps", offset, "one less than the times", steps));
            }
            for _ in 0..count {
                sink(value);
                value = value.wrapping_add(step);
            }
            Ok(())
        }
        other => Err(invalid("encoding of integers", 0, "0, 1 or 2", u64::from(other))),
    }
}
