//! Remote write 1.0: a snappy-compressed `prometheus.WriteRequest` becomes a [`WriteBatch`].
//!
//! Invariants: the claimed size is checked before memory is taken; the body is decompressed straight into
//! [`WriteBatch::raw`] and borrowed from there; a series costs no allocation; bytes never panic.
//! Not here: HTTP headers, sizes of the compressed body (`server`); validity of labels (`head`).

pub(crate) mod charge;
pub mod encode;
mod error;
pub(crate) mod histogram;
mod labels;
mod limits;
mod measurements;
mod refused;
pub mod v2;
mod walk;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use chronolith_base::{ByteReader, Reservation};
use chronolith_model::batch::LabelSource;
use chronolith_model::{LabelsBuilder, Reject, SeriesKey, WriteBatch};

use charge::Charge;
pub use error::{DecodeError, WireError};
pub use labels::parse_labels;
pub use limits::{
    DECOMPRESSED_BYTES_MAX, EXEMPLAR_COUNT_MAX, EXEMPLAR_LABEL_BYTES_MAX, LABEL_SECTION_BYTES_MAX,
    METADATA_COUNT_MAX, SAMPLE_COUNT_MAX, SERIES_COUNT_MAX,
};
pub use measurements::{MEASUREMENTS, into_measurements};
pub use refused::Refused;

/// Number of this protocol in [`LabelSource::protocol`].
pub const PROTOCOL: u8 = 1;
/// A snappy element is at least 3 bytes for 64 bytes of output; a body that claims more cannot be whole.
const SNAPPY_EXPANSION_MAX: u64 = 22;

/// An empty batch for this protocol.
#[must_use]
pub fn new_batch() -> WriteBatch {
    WriteBatch::new(LabelSource { protocol: PROTOCOL, parse: parse_key, is_typed: false })
}

fn parse_key(key: SeriesKey<'_>, out: &mut LabelsBuilder) -> Result<(), Reject> {
    parse_labels(key.raw, out)
}

/// Decompresses `body` and fills `batch` (cleared first), which keeps its memory between calls.
///
/// Names a series by the bytes of its label fields; they are copied only if other fields lie between them.
/// `held_histograms` grows by the memory of native histograms. Cost: one pass over the compressed and one
/// over the decompressed bytes; allocations only for exemplars, metadata, histograms and growing columns.
///
/// # Errors
/// [`DecodeError`]; the batch is empty then.
pub fn decode(
    body: &[u8],
    decompressed_bytes_max: usize,
    held_histograms: &mut Reservation,
    batch: &mut WriteBatch,
) -> Result<Refused, DecodeError> {
    let mut raw = std::mem::take(&mut batch.raw);
    batch.clear();
    let result = decompress(body, decompressed_bytes_max.min(DECOMPRESSED_BYTES_MAX), &mut raw)
        .and_then(|()| walk::request(&raw, Charge::new(held_histograms), batch))
        .map(|(copies, refused)| {
            raw.extend_from_slice(&copies);
            refused
        });
    batch.raw = raw;
    if result.is_err() {
        batch.clear();
    }
    result
}

/// Makes `out` the decompressed `body`. Bytes that are there are overwritten rather than zeroed first.
///
/// # Errors
/// [`DecodeError`] if it is no snappy block, or one of more than `bytes_max` bytes.
pub fn decompress(body: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let claimed = ByteReader::new(body)
        .uvarint("length of the decompressed body")
        .map_err(|e| DecodeError::Snappy(e.to_string()))?;
    let limit = bytes_max as u64;
    if claimed > limit {
        return Err(DecodeError::TooLarge { what: "decompressed body", found: claimed, limit });
    }
    let possible = (body.len() as u64).saturating_mul(SNAPPY_EXPANSION_MAX);
    if claimed > possible {
        let text = format!("{} bytes cannot hold the claimed {claimed} bytes", body.len());
        return Err(DecodeError::Snappy(text));
    }
    let claimed = usize::try_from(claimed).unwrap_or(usize::MAX);
    out.resize(claimed, 0);
    let filled =
        snap::raw::Decoder::new().decompress(body, out).map_err(|e| DecodeError::Snappy(e.to_string()))?;
    if filled != claimed {
        return Err(DecodeError::Snappy(format!("{claimed} bytes claimed, {filled} found")));
    }
    Ok(())
}
