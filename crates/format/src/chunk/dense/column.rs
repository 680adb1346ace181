//! A column of values alone: for files that keep times apart and the number of values elsewhere, and whose
//! columns are short, so that entropy coding would cost more time than it saves bytes.
//!
//! Sums of decimals are decimals but for the last bits. A column of them is two: the nearest decimals, and
//! the distance of each value from its decimal, counted in floats between them.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

use super::items::Packing;
use super::scratch::DenseScratch;
use super::values::{self, ValueColumn, ValueType};

const WHAT: &str = "column of values";
/// Form of a column: its values, or decimals and distances.
const FORM_VALUES: u8 = 0;
const FORM_NEAR_DECIMALS: u8 = 1;
/// Columns of at most this many bytes per value are stored as they are.
const PLAIN_BYTES_SURE: usize = 3;
/// Powers of ten of the decimals that are tried.
const SCALES: [f64; 5] = [1.0, 10.0, 100.0, 1000.0, 10_000.0];
/// Distance of a value from its decimal at most.
const DISTANCE_MAX: i64 = 1 << 14;

/// Appends the values to `out`.
///
/// # Panics
/// If there is none, or more than [`super::SAMPLES_MAX`].
pub fn encode_column(values: &[f64], scratch: &mut DenseScratch, out: &mut Vec<u8>) {
    assert!(!values.is_empty() && values.len() <= super::SAMPLES_MAX, "1 to 65535 values");
    let start = out.len();
    out.push(FORM_VALUES);
    values::encode(values, scratch, out);
    let plain_bytes = out.len() - start;
    if plain_bytes <= PLAIN_BYTES_SURE * values.len() {
        return;
    }
    let Some((decimals, distances)) = SCALES.iter().find_map(|scale| near_decimals(values, *scale)) else {
        return;
    };
    let mut near = vec![FORM_NEAR_DECIMALS];
    let mut column = Vec::new();
    values::encode(&decimals, scratch, &mut column);
    put_uvarint(&mut near, column.len() as u64);
    near.append(&mut column);
    values::encode(&distances, scratch, &mut near);
    if near.len() < plain_bytes {
        out.truncate(start);
        out.append(&mut near);
    }
}

/// Returns the decimals nearest to the values, and their distances as whole numbers; `None` if a value is not
/// near one.
fn near_decimals(values: &[f64], scale: f64) -> Option<(Vec<f64>, Vec<f64>)> {
    let mut decimals = Vec::with_capacity(values.len());
    let mut distances = Vec::with_capacity(values.len());
    for value in values {
        let decimal = (value * scale).round() / scale;
        let distance = ordered(*value).checked_sub(ordered(decimal))?;
        if !decimal.is_finite() || distance.abs() > DISTANCE_MAX {
            return None;
        }
        decimals.push(decimal);
        distances.push(distance as f64);
    }
    Some((decimals, distances))
}

/// Bits of a float as an integer: neighbours in the order of floats are neighbours. Its own inverse.
fn ordered(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

fn from_ordered(order: i64) -> f64 {
    f64::from_bits((order ^ ((order >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

/// Appends the values of a column, of which `bytes` has all bytes, to `out`; nothing when it fails. Cost: all
/// values.
///
/// # Errors
/// [`DecodeError`] when the bytes end early or go on, or contain values that no encoder writes, and for a
/// `count` of none or too many.
pub fn decode_column(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let len_before = out.len();
    let decoded = append_column(bytes, count, out);
    if decoded.is_err() {
        out.truncate(len_before);
    }
    decoded
}

fn append_column(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let form = reader.u8(WHAT)?;
    if form > FORM_NEAR_DECIMALS || !(1..=super::SAMPLES_MAX).contains(&count) {
        let expected = "a known form, and 1 to 65535 values";
        return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found: u64::from(form) });
    }
    if form == FORM_VALUES {
        return append_values(&mut reader, count, out);
    }
    let len = reader.length(WHAT)?;
    let first = out.len();
    append_values(&mut ByteReader::new(reader.bytes(WHAT, len)?), count, out)?;
    let mut distances = Vec::with_capacity(count);
    append_values(&mut reader, count, &mut distances)?;
    for (value, distance) in out.iter_mut().skip(first).zip(distances) {
        // A forged distance may be any float, which the cast makes a whole number.
        *value = from_ordered(ordered(*value).wrapping_add(distance as i64));
    }
    Ok(())
}

fn append_values(reader: &mut ByteReader<'_>, count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let first = out.len();
    out.resize(first + count, 0.0);
    let column = ValueColumn { value_type: ValueType::Float, packing: Packing::Blocks, sample_count: count };
    values::decode(reader, column, 0..count, &mut out[first..])
}

#[cfg(test)]
mod tests;
