//! Remote write 2.0: a snappy-compressed `io.prometheus.write.v2.Request` becomes a [`WriteBatch`].
//!
//! Invariants: a series is named by the bytes that remote write 1.0 has for the same labels, so that a sender
//! that changes its protocol meets the series that are known already; no string is built for a series; the
//! unfolded size of a body is bounded, and its memory is reserved before it is written; bytes never panic.
//! A fault of one series (references, no samples) or histogram refuses it alone; a fault of the message
//! refuses the request.
//! Not here: HTTP headers (`server`); validity of labels (`head`).

pub mod encode;
mod family;
mod labels;
mod limits;
mod naming;
mod symbols;
mod unfolded;
mod walk;

#[cfg(test)]
mod tests;

use chronolith_base::Reservation;
use chronolith_model::WriteBatch;

use super::charge::Charge;
use super::{DECOMPRESSED_BYTES_MAX, DecodeError, Refused, decompress};
pub(crate) use labels::put_label;
pub use limits::{LABEL_REF_COUNT_MAX, SYMBOL_COUNT_MAX};
use naming::{AsSent, TypeAndUnit};

/// Labels that a series gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeriesNaming {
    /// The labels that were sent.
    #[default]
    AsSent,
    /// `__type__` and `__unit__` besides, from its metadata, in place of any that it came with. A series
    /// whose metadata says neither keeps what it has.
    TypeAndUnit,
}

/// Decompresses `body` and fills `batch` (cleared first), which keeps its memory between calls.
///
/// Labels, metadata and exemplars are unfolded to at most as many bytes as `decompressed_bytes_max`, the
/// limit of a request that had them written out; `held` grows with them, `held_histograms` with the memory of
/// native histograms. Series are named as `naming` says.
/// Cost: one pass over the compressed bytes, one over the symbols, one over the series, one copy of the
/// labels of each series; allocations only for exemplars, metadata, histograms, the table of symbols and
/// growing columns.
///
/// # Errors
/// [`DecodeError`]; the batch is empty then.
pub fn decode(
    body: &[u8],
    decompressed_bytes_max: usize,
    held: &mut Reservation,
    held_histograms: &mut Reservation,
    naming: SeriesNaming,
    batch: &mut WriteBatch,
) -> Result<Refused, DecodeError> {
    batch.clear();
    let bytes_max = decompressed_bytes_max.min(DECOMPRESSED_BYTES_MAX);
    let charge = Charge::new(held_histograms);
    let mut message = Vec::new();
    let result = decompress(body, bytes_max, &mut message).and_then(|()| match naming {
        SeriesNaming::AsSent => walk::request::<AsSent>(&message, bytes_max, held, charge, batch),
        SeriesNaming::TypeAndUnit => walk::request::<TypeAndUnit>(&message, bytes_max, held, charge, batch),
    });
    if result.is_err() {
        batch.clear();
    }
    result
}
