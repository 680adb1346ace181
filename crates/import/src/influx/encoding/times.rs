//! Times of a block: raw steps, steps packed by simple8b, or one step and a count.
//!
//! The first byte holds the encoding in its upper half and, in its lower half, the power of ten by which the
//! steps were divided.
//! Invariant: times are as stored; the reader of the block checks their order.

use chronolith_base::{ByteReader, DecodeError};

use super::simple8b;
use crate::influx::fault::{BLOCK_POINTS_MAX, invalid};

const RAW: u8 = 0;
const PACKED: u8 = 1;
const RUN: u8 = 2;
/// Bytes before the steps: encoding and first time.
const PACKED_HEADER_BYTES: usize = 9;

/// Appends the times in `bytes` to `out`.
pub(super) fn decode(bytes: &[u8], out: &mut Vec<i64>) -> Result<(), DecodeError> {
    let mut r = ByteReader::new(bytes);
    let header = r.u8("encoding of times")?;
    let scale = 10u64.pow(u32::from(header & 0xf));
    match header >> 4 {
        RAW => {
            let count = r.remaining() / 8;
            if count > BLOCK_POINTS_MAX {
                return Err(invalid("count of times", 0, "at most 2^20", count as u64));
            }
            let mut time = 0u64;
            while !r.is_empty() {
                time = time.wrapping_add(r.be_u64("time")?);
                out.push(time as i64);
            }
            Ok(())
        }
        PACKED => {
            let mut time = r.be_u64("first time")?;
            out.push(time as i64);
            let words = bytes.get(PACKED_HEADER_BYTES..).unwrap_or_default();
            simple8b::decode(words, PACKED_HEADER_BYTES, |step| {
                time = time.wrapping_add(step.wrapping_mul(scale));
                out.push(time as i64);
            })
        }
        RUN => {
            let mut time = r.be_u64("first time")?;
            let step = r.uvarint("step of times")?.wrapping_mul(scale);
            let offset = r.offset();
            let count = r.uvarint("count of times")?;
            if count > BLOCK_POINTS_MAX as u64 {
                return Err(invalid("count of times", offset, "at most 2^20", count));
            }
            for _ in 0..count {
                out.push(time as i64);
                time = time.wrapping_add(step);
            }
            Ok(())
        }
        other => Err(invalid("encoding of times", 0, "0, 1 or 2", u64::from(other))),
    }
}
