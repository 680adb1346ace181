//! Boolean chunk (private encoding byte 0x44): times as in a dense chunk, then runs of equal values or a
//! bitmap, whichever is shorter.
//!
//! Invariants: every value is 0.0 or 1.0, bit for bit; the decoder takes untrusted bytes and appends nothing
//! when it fails.
//! Not here: choice of boolean series (`model::kind`).

use std::ops::Range;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Columns, TimeRange};

use super::items::{Ending, Packing};
use super::plain::{append_all_or_nothing, put_times};
use super::scratch::DenseScratch;
use super::times::{self, TimesHead};

/// Encoding byte of a boolean chunk in a block's segments.
pub const ENCODING_BOOLEAN: u8 = 0x44;

const WHAT: &str = "boolean chunk";
/// Bit 0 of the form: value of the first run.
const FIRST_IS_TRUE: u8 = 1;
/// Bit 1 of the form: a bitmap instead of runs.
const IS_BITMAP: u8 = 2;

/// Returns true if the value stands for a boolean: +0.0 or 1.0.
fn is_boolean(value: f64) -> bool {
    value.to_bits() == 0 || value == 1.0
}

/// Appends one chunk with all the samples to `out` and returns true; appends nothing and returns false if a
/// value is neither 0.0 nor 1.0.
///
/// # Panics
/// As [`super::encode`].
pub fn encode_boolean(times: &[i64], values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) -> bool {
    if !values.iter().all(|&value| is_boolean(value)) {
        return false;
    }
    put_times(times, values, scratch, out);
    let form_at = out.len();
    out.push(if values.first() == Some(&1.0) { FIRST_IS_TRUE } else { 0 });
    let bitmap_len = values.len().div_ceil(8);
    for run in values.chunk_by(|a, b| a == b) {
        put_uvarint(out, run.len() as u64);
        if out.len() > form_at + 1 + bitmap_len {
            out.truncate(form_at);
            out.push(IS_BITMAP);
            let byte =
                |bits: &[f64]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit == 1.0));
            out.extend(values.chunks(8).map(byte));
            break;
        }
    }
    true
}

/// Appends the samples of `bytes` in `range` to `out`; nothing when it fails.
///
/// # Errors
/// [`DecodeError`] when the bytes end early, or go on after the last sample, or contain values that no
/// encoder writes.
pub fn decode_boolean(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    append_all_or_nothing(out, |out| append(bytes, range, out))
}

fn append(bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let head = TimesHead::read(&mut reader)?;
    if !head.overlaps(range) {
        return Ok(());
    }
    let layout = (Packing::Blocks, Ending::Before);
    let wanted = times::append(&head, layout, &mut reader, range, &mut out.times)?;
    append_values(&mut reader, usize::from(head.count), wanted, &mut out.values)
}

/// Appends the values of the samples `wanted` of `count`.
fn append_values(
    reader: &mut ByteReader<'_>,
    count: usize,
    wanted: Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), DecodeError> {
    let form_offset = reader.offset();
    let form = reader.u8(WHAT)?;
    if form == IS_BITMAP {
        let bitmap = reader.bytes(WHAT, count.div_ceil(8))?;
        let is_true = |idx: usize| bitmap.get(idx / 8).is_some_and(|byte| byte >> (idx % 8) & 1 == 1);
        out.extend(wanted.map(|idx| f64::from(u8::from(is_true(idx)))));
        return ended(reader);
    }
    if form > FIRST_IS_TRUE {
        return Err(invalid("form 0 to 2", form_offset, u64::from(form)));
    }
    let (mut is_true, mut at) = (form == FIRST_IS_TRUE, 0);
    while at < count {
        let offset = reader.offset();
        let len = reader.uvarint(WHAT)?;
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len));
        let Some(end) = end.filter(|&end| end > at && end <= count) else {
            return Err(invalid("a run that ends within the chunk", offset, len));
        };
        let found = wanted.start.clamp(at, end)..wanted.end.clamp(at, end);
        out.extend(found.map(|_| f64::from(u8::from(is_true))));
        is_true = !is_true;
        at = end;
    }
    ended(reader)
}

fn ended(reader: &ByteReader<'_>) -> Result<(), DecodeError> {
    match reader.remaining() {
        0 => Ok(()),
        left => Err(invalid("the end of the chunk", reader.offset(), left as u64)),
    }
}

#[cold]
fn invalid(expected: &'static str, offset: usize, found: u64) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected, found }
}

#[cfg(test)]
mod tests;
