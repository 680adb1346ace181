//! Remote write 2.0: a snappy-compressed `io.prometheus.write.v2.Request` becomes a [`WriteBatch`].
//!
//! Holds: a series is named by the bytes that remote write 1.0 has for the same labels, so that a sender that
//! changes its protocol meets the series that are known already; no string is built for a series; what a small
//! body unfolds to is bounded and paid for before it is written; bytes never panic.
//! What is wrong with one series (references, no samples) refuses that series; what is wrong with the message
//! refuses the request.
//! Not here: HTTP headers (`server`); which labels are legal (`head`).

pub mod encode;
mod family;
mod symbols;
mod walk;

#[cfg(test)]
mod tests;

use chronolith_base::Reservation;
use chronolith_model::WriteBatch;

use super::{DECOMPRESSED_BYTES_MAX, DecodeError, decompress};

/// Symbols in one request at most.
pub const SYMBOL_COUNT_MAX: usize = 1 << 21;
/// References to labels in one series or exemplar at most.
pub const LABEL_REF_COUNT_MAX: usize = 1 << 16;
/// What unfolded text is charged for at once.
const CHARGE_STEP_BYTES: usize = 256 << 10;
/// References that an error text shows at most.
const REFS_SHOWN_MAX: usize = 32;

/// What was refused while decoding a request of which the rest is good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Series.
    pub series_count: u64,
    /// Float samples of these series.
    pub sample_count: u64,
    /// Native histograms of these series.
    pub histogram_count: u64,
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

/// Decompresses `body` and fills `batch` (cleared first), which keeps its memory between calls.
///
/// Labels, metadata and exemplars are unfolded to at most as many bytes as `decompressed_bytes_max`, the limit of
/// a request that had them written out; `held` grows with them. Native histograms are counted, not stored.
/// Cost: one pass over the compressed bytes, one over the symbols, one over the series, one copy of the labels of
/// each series; allocations only for exemplars, metadata, the table of symbols and growing columns.
///
/// # Errors
/// [`DecodeError`]; the batch is empty then.
pub fn decode(
    body: &[u8],
    decompressed_bytes_max: usize,
    held: &mut Reservation,
    batch: &mut WriteBatch,
) -> Result<Refused, DecodeError> {
    batch.clear();
    let bytes_max = decompressed_bytes_max.min(DECOMPRESSED_BYTES_MAX);
    let mut message = Vec::new();
    let result = decompress(body, bytes_max, &mut message)
        .and_then(|()| walk::request(&message, bytes_max, held, batch));
    if result.is_err() {
        batch.clear();
    }
    result
}

/// Text that references unfold to: bounded, and charged in steps before it is written.
struct Unfolded<'a> {
    bytes: usize,
    bytes_max: usize,
    charged: usize,
    held: &'a mut Reservation,
}

impl<'a> Unfolded<'a> {
    fn new(bytes_max: usize, held: &'a mut Reservation) -> Unfolded<'a> {
        Unfolded { bytes: 0, bytes_max, charged: 0, held }
    }

    /// Admits `count` bytes more.
    fn take(&mut self, count: usize) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > self.charged { self.charge() } else { Ok(()) }
    }

    #[cold]
    fn charge(&mut self) -> Result<(), DecodeError> {
        if self.bytes > self.bytes_max {
            let (found, limit) = (self.bytes as u64, self.bytes_max as u64);
            return Err(DecodeError::TooLarge { what: "request with its symbols written out", found, limit });
        }
        let more = (self.bytes - self.charged).next_multiple_of(CHARGE_STEP_BYTES);
        // Twice, because the buffer that they go to doubles when it is full.
        self.held.grow(2 * more as u64)?;
        self.charged += more;
        Ok(())
    }
}
