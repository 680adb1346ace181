//! Remote write 2.0: a snappy-compressed `io.prometheus.write.v2.Request` becomes a [`WriteBatch`].
//!
//! Invariants: a series is named by the bytes that remote write 1.0 has for the same labels, so that a sender
//! that changes its protocol meets the series that are known already; no string is built for a series; what a
//! small body unfolds to is bounded and paid for before it is written; bytes never panic. What is wrong with
//! one series (references, no samples) or histogram refuses that alone; what is wrong with the message
//! refuses the request.
//! Not here: HTTP headers (`server`); which labels are legal (`head`).

pub mod encode;
mod family;
mod labels;
mod naming;
mod symbols;
mod walk;

#[cfg(test)]
mod tests;

use chronolith_base::Reservation;
use chronolith_model::WriteBatch;

use super::charge::Charge;
use super::{DECOMPRESSED_BYTES_MAX, DecodeError, Refused, decompress};
use naming::{AsSent, TypeAndUnit};

/// Symbols in one request at most.
pub const SYMBOL_COUNT_MAX: usize = 1 << 21;
/// References to labels in one series or exemplar at most.
pub const LABEL_REF_COUNT_MAX: usize = 1 << 16;
/// References that an error text shows at most.
const REFS_SHOWN_MAX: usize = 32;

/// Which labels a series gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeriesNaming {
    /// Those that it came with.
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

/// Text that references unfold to: bounded, and charged before it is written.
struct Unfolded<'a> {
    bytes: usize,
    bytes_max: usize,
    charge: Charge<'a>,
}

impl<'a> Unfolded<'a> {
    fn new(bytes_max: usize, held: &'a mut Reservation) -> Unfolded<'a> {
        Unfolded { bytes: 0, bytes_max, charge: Charge::new(held) }
    }

    /// Admits `count` bytes more.
    fn take(&mut self, count: usize) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > self.bytes_max {
            return Err(self.too_large());
        }
        // Twice, because the buffer that they go to doubles when it is full.
        Ok(self.charge.take(2 * count)?)
    }

    #[cold]
    fn too_large(&self) -> DecodeError {
        let (found, limit) = (self.bytes as u64, self.bytes_max as u64);
        DecodeError::TooLarge { what: "request with its symbols written out", found, limit }
    }
}
