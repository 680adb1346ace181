//! Remote write 1.0: a snappy-compressed `prometheus.WriteRequest` becomes a [`WriteBatch`].
//!
//! Invariants: the claimed size is checked before memory is taken; the body is decompressed straight into
//! [`WriteBatch::raw`] and borrowed from there; a series costs no allocation; bytes never panic.
//! Not here: HTTP headers, sizes of the compressed body (`server`); which labels are legal (`head`).

mod charge;
pub mod encode;
mod histogram;
mod labels;
pub mod v2;
mod walk;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use chronolith_base::budget::BudgetExceeded;
use chronolith_base::{ByteReader, Reservation};
use chronolith_model::WriteBatch;
use chronolith_model::batch::LabelSource;

use charge::Charge;
pub use labels::parse_labels;

/// Number of this protocol in [`LabelSource::protocol`].
pub const PROTOCOL: u8 = 1;
/// Decompressed bytes of one request at most, whatever the caller allows: offsets into the body and into the
/// copies after it are u32.
pub const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;
/// Series in one request at most.
pub const SERIES_COUNT_MAX: usize = 1 << 20;
/// Float samples in one request at most.
pub const SAMPLE_COUNT_MAX: usize = 1 << 22;
/// Exemplars in one request at most.
pub const EXEMPLAR_COUNT_MAX: usize = 1 << 16;
/// Metadata entries in one request at most.
pub const METADATA_COUNT_MAX: usize = 1 << 16;
/// Bytes of the labels of one series, as they are on the wire, at most.
pub const LABEL_SECTION_BYTES_MAX: usize = 1 << 20;
/// Bytes of the names and values of one exemplar's labels at most.
pub const EXEMPLAR_LABEL_BYTES_MAX: usize = 1 << 12;
/// A snappy element is at least 3 bytes for 64 bytes of output; a body that claims more cannot be whole.
const SNAPPY_EXPANSION_MAX: u64 = 22;

const _: () = assert!(2 * DECOMPRESSED_BYTES_MAX <= u32::MAX as usize);

/// Why a body is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The decompressed body, or a part of it, is larger than allowed.
    #[error("{what} of {found} bytes is larger than the limit of {limit} bytes")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The request holds more items of a kind than allowed.
    #[error("request has more than {limit} {what}")]
    TooMany {
        /// Which items.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A histogram has more parts of a kind than allowed.
    #[error("histogram has more than {limit} {what}")]
    TooManyInHistogram {
        /// Which parts.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Not a snappy block.
    #[error("snappy: {0}")]
    Snappy(String),
    /// Not the message that the protocol sends.
    #[error("protobuf: {0}")]
    Protobuf(WireError),
    /// There is no memory for what the body unfolds to; later there may be.
    #[error(transparent)]
    NoMemory(#[from] BudgetExceeded),
}

/// What is wrong with a message, and where in the decompressed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at offset {offset}")]
pub struct WireError {
    /// What is wrong.
    pub what: &'static str,
    /// Offset of the item within the decompressed body.
    pub offset: usize,
}

impl From<WireError> for DecodeError {
    fn from(error: WireError) -> DecodeError {
        DecodeError::Protobuf(error)
    }
}

/// What was refused while decoding a request of which the rest is good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Series.
    pub series_count: u64,
    /// Float samples of these series.
    pub sample_count: u64,
    /// Native histograms of these series.
    pub histogram_count: u64,
    /// Native histograms of other series that are not valid.
    pub invalid_histogram_count: u64,
    /// Exemplars, of these series and of others.
    pub exemplar_count: u64,
    /// What is wrong with the first of them, in upstream's words.
    pub first: Option<String>,
}

impl Refused {
    /// Whether nothing was refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn note(&mut self, why: impl FnOnce() -> String) {
        if self.first.is_none() {
            self.first = Some(why());
        }
    }
}

/// An empty batch for this protocol.
#[must_use]
pub fn new_batch() -> WriteBatch {
    WriteBatch::new(LabelSource { protocol: PROTOCOL, parse: parse_labels, is_typed: false })
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
