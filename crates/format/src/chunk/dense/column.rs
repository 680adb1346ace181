//! A column of values alone, as in a packed dense chunk: for files that keep times apart and the number of
//! values elsewhere.

use chronolith_base::{ByteReader, DecodeError};

use super::entropy::NumberType;
use super::items::Packing;
use super::packed::{ENTROPY, TYPE_MASK, VALUES_TYPE_SHIFT, put_values};
use super::scratch::DenseScratch;
use super::values::{self, ValueColumn, ValueType};

const WHAT: &str = "column of values";

/// Appends the values to `out`.
///
/// # Panics
/// If there is none, or more than [`super::SAMPLES_MAX`].
pub fn encode_column(values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) {
    assert!(!values.is_empty() && values.len() <= super::SAMPLES_MAX, "1 to 65535 values");
    let flags_at = out.len();
    out.push(0);
    out[flags_at] = put_values(values, ValueType::Float, scratch, out);
}

/// Appends the values of a column, of which `bytes` has all bytes, to `out`; nothing when it fails. Cost: all
/// values.
///
/// # Errors
/// [`DecodeError`] when the bytes end early or go on, or contain values that no encoder writes, and for a
/// `count` of none or too many.
pub fn decode_column(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let flags = reader.u8(WHAT)?;
    let number_type = flags >> VALUES_TYPE_SHIFT & TYPE_MASK;
    let is_known = flags & !(ENTROPY | TYPE_MASK << VALUES_TYPE_SHIFT) == 0;
    if !is_known || (flags & ENTROPY == 0 && number_type != 0) || !(1..=super::SAMPLES_MAX).contains(&count) {
        let expected = "known flags, and 1 to 65535 values";
        let found = u64::from(flags);
        return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found });
    }
    let packing = match flags & ENTROPY {
        0 => Packing::Blocks,
        _ => Packing::Entropy(NumberType::from_code(number_type)),
    };
    let len_before = out.len();
    out.resize(len_before + count, 0.0);
    let column = ValueColumn { value_type: ValueType::Float, packing, sample_count: count };
    let decoded = values::decode(&mut reader, column, 0..count, &mut out[len_before..]);
    if decoded.is_err() {
        out.truncate(len_before);
    }
    decoded
}

#[cfg(test)]
mod tests;
