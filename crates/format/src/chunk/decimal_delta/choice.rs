//! Choice of the encoding of an open chunk: a chunk starts as XOR, is encoded once as decimal-delta when it
//! has [`CONVERSION_COUNT`] samples, and stays so if that saves enough. Its successor starts as decimal-delta
//! ([`OpenState::next_chunk`]).
//!
//! Invariants: no sample changes or is lost by a conversion.
//! Not here: the bytes of a chunk that are replaced.

use chronolith_base::DecodeError;
use chronolith_model::{Columns, TimeRange};

use super::rice::RiceParameter;
use super::{DecimalDeltaState, OpenState, Scale};
use crate::chunk::xor::{self, SAMPLE_BYTES_MAX, XorState};

/// Samples of an XOR chunk when it is converted: enough to see the scale and the noise of a series, and few
/// enough that the peak of memory stays small when many series start at once.
pub const CONVERSION_COUNT: u16 = 16;
/// XOR bytes of [`CONVERSION_COUNT`] samples below which nothing is to be saved: 16 of header and first
/// sample, and 12 bits for each other sample.
const CONVERSION_BYTES_MIN: usize = 40;

/// Returns true if an XOR chunk in this state is worth a conversion. Constant series never are.
#[must_use]
pub fn is_conversion_due(state: &XorState) -> bool {
    state.count() == CONVERSION_COUNT && state.byte_len() >= CONVERSION_BYTES_MIN
}

/// Returns true if decimal-delta takes at most seven eighths of the bytes of XOR.
#[must_use]
pub fn saves_enough(xor_bytes: usize, decimal_delta_bytes: usize) -> bool {
    8 * decimal_delta_bytes <= 7 * xor_bytes
}

/// Encodes the XOR chunk `bytes` as decimal-delta into `out`; none, with any bytes in `out`, if a value fits
/// no scale or too little is saved. `scratch` and `out` are cleared first.
///
/// # Errors
/// [`DecodeError`] for bytes that are no XOR chunk.
pub fn convert(
    bytes: &[u8],
    scratch: &mut Columns,
    out: &mut Vec<u8>,
) -> Result<Option<DecimalDeltaState>, DecodeError> {
    scratch.clear();
    xor::decode(bytes, TimeRange::ALL, scratch)?;
    // Times outside of the range of the data model are not decoded; a chunk with one stays as it is.
    if bytes.first_chunk() != Some(&(scratch.len() as u16).to_be_bytes()) {
        return Ok(None);
    }
    let state = encode(&scratch.times, &scratch.values, out);
    Ok(state.filter(|state| saves_enough(bytes.len(), state.byte_len())))
}

/// Encodes a chunk into `out`, which is cleared first, after one of its values was refused: as decimal-delta
/// with a scale that fits all values if that saves enough, else as XOR.
///
/// # Panics
/// If there are no samples or more than 65535, times do not ascend strictly, or the lengths differ.
#[must_use]
pub fn reencode(times: &[i64], values: &[f64], out: &mut Vec<u8>) -> OpenState {
    assert_eq!(times.len(), values.len(), "one value per time");
    assert!(!times.is_empty(), "a chunk has samples");
    let as_xor = xor::encode_whole(times, values);
    if let Some(state) = encode(times, values, out)
        && saves_enough(as_xor.len(), state.byte_len())
    {
        return state.into();
    }
    out.clear();
    out.extend_from_slice(&as_xor);
    XorState::resume(out).expect("the chunk was just encoded").into()
}

fn encode(times: &[i64], values: &[f64], out: &mut Vec<u8>) -> Option<DecimalDeltaState> {
    let scale = Scale::of(values)?;
    let integer = |value: &f64| scale.integer_of(*value).unwrap_or_default();
    let differences =
        values.windows(2).filter_map(|pair| Some(integer(pair.get(1)?) - integer(pair.first()?)));
    let mut state = DecimalDeltaState::with_rice(scale, RiceParameter::of_differences(differences));
    out.clear();
    out.resize(xor::HEADER_BYTES + SAMPLE_BYTES_MAX * (times.len() + 1), 0);
    for (&time, &value) in times.iter().zip(values) {
        state.append(out, time, value).ok()?;
    }
    out.truncate(state.byte_len());
    Some(state)
}

#[cfg(test)]
mod tests;
