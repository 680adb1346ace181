//! Decoding of a body in pieces: the columns of a batch are bounded by the size of the body, however small its
//! fields are.
//!
//! Invariants: a piece ends with a line; the pieces have the lines of the body in order, and their series and
//! texts are ranges of the body, which is moved from batch to batch and never copied. Before a line of very
//! many fields is parsed, its memory is reserved.
//! Not here: lines (`line`), admission (`server`).

use chronolith_base::{BudgetExceeded, Reservation};
use chronolith_model::{BatchSeries, WordKind, WriteBatch};

use super::line::LineWalk;
use super::options::{BODY_BYTES_MAX, DecodeOptions};
use super::refused::Refused;

/// Columns of a field: series, kind, field key, time, value, text and row.
const FIELD_BYTES: u64 = (size_of::<BatchSeries>() + size_of::<WordKind>() + 3 * 8 + 8 + 4) as u64;
/// Room of a growing column, in multiples of its length.
const GROWTH_FACTOR: u64 = 2;
/// Bytes of a body per field of a piece. Lines of one field are longer, so that their body is one piece.
const BODY_BYTES_PER_FIELD: usize = 64;
/// Fields of a piece, however small the body is.
const PIECE_FIELD_COUNT_MIN: usize = 16_384;
/// Shortest field in bytes, with its comma.
const FIELD_BYTES_MIN: usize = 4;
/// Copies of a body at most: texts without their escapes, and the body that grows by them.
const TEXT_COPY_COUNT: u64 = 3;
/// Longest line whose memory [`memory_bytes`] includes.
pub(super) const RESERVED_LINE_BYTES: usize = 16 << 10;
/// Memory of a field of a long line: the list of the grammar, that of the stored fields, and the columns.
const LINE_FIELD_BYTES: u64 = 192 + GROWTH_FACTOR * FIELD_BYTES;

const _: () = assert!(FIELD_BYTES == 53);

/// Returns the memory that decoding a body of `body_len` bytes takes at most beyond the body, long lines
/// aside.
#[must_use]
pub fn memory_bytes(body_len: usize) -> u64 {
    let field_count = piece_field_count(body_len).min(body_len / FIELD_BYTES_MIN + 1) as u64;
    let line_field_count = (body_len.min(RESERVED_LINE_BYTES) / FIELD_BYTES_MIN + 1) as u64;
    TEXT_COPY_COUNT * body_len as u64
        + field_count * GROWTH_FACTOR * FIELD_BYTES
        + line_field_count * LINE_FIELD_BYTES
}

/// Returns the number of fields from which on a piece ends with its line.
fn piece_field_count(body_len: usize) -> usize {
    (body_len / BODY_BYTES_PER_FIELD).max(PIECE_FIELD_COUNT_MIN)
}

/// Returns the memory of the fields of a line, known by their equals signs.
#[cold]
pub(super) fn line_memory_bytes(line: &[u8]) -> u64 {
    line.iter().filter(|byte| **byte == b'=').count() as u64 * LINE_FIELD_BYTES
}

/// A body of which a part is decoded.
pub struct BodyPieces {
    body: Vec<u8>,
    body_len: usize,
    field_count_max: usize,
    /// Offset of the first line that is not decoded.
    next: usize,
    refused: Refused,
}

impl BodyPieces {
    /// A body that [`memory_bytes`] are reserved for.
    ///
    /// # Panics
    /// If the body is larger than [`BODY_BYTES_MAX`].
    #[must_use]
    pub fn new(body: Vec<u8>) -> BodyPieces {
        assert!(body.len() <= BODY_BYTES_MAX, "the caller limits the size of bodies");
        let body_len = body.len();
        let field_count_max = piece_field_count(body_len);
        BodyPieces { body, body_len, field_count_max, next: 0, refused: Refused::default() }
    }

    /// Moves the body into `batch` (cleared first) and fills its columns with the next lines; false at the end
    /// of the body. [`BodyPieces::take_back`] comes before the next call. `held` grows by the memory of long
    /// lines, and keeps it.
    ///
    /// # Errors
    /// [`BudgetExceeded`] for a line of too many fields; the lines before it are lost too, unless they were in
    /// an earlier piece.
    pub fn next_piece(
        &mut self,
        options: &DecodeOptions,
        held: &mut Reservation,
        batch: &mut WriteBatch,
    ) -> Result<bool, BudgetExceeded> {
        if self.next >= self.body_len {
            return Ok(false);
        }
        batch.clear();
        let refused = std::mem::take(&mut self.refused);
        let walk = LineWalk::new(&self.body, options, batch, refused).with_memory(held);
        let piece = walk.run(self.next, self.field_count_max)?;
        self.next = piece.next;
        self.refused = piece.refused;
        self.body.reserve_exact(piece.copies.len());
        self.body.extend_from_slice(&piece.copies);
        batch.raw = std::mem::take(&mut self.body);
        Ok(true)
    }

    /// Takes the body out of the batch of the last piece.
    pub fn take_back(&mut self, batch: &mut WriteBatch) {
        self.body = std::mem::take(&mut batch.raw);
        self.body.truncate(self.body_len);
    }

    /// Returns the lines that are in no batch.
    #[must_use]
    pub fn into_refused(self) -> Refused {
        self.refused
    }
}

#[cfg(test)]
mod tests;
