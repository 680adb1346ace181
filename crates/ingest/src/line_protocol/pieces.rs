//! Decoding of a body in pieces, so that the columns of a batch are bounded by the size of the body.
//!
//! Invariants: a piece ends with a line; the pieces have the lines of the body in order, and their series and
//! texts are ranges of the body, which is moved from batch to batch and never copied. Before a line of very
//! many fields is parsed, its memory is reserved.
//! Not here: lines (`line`), bytes of memory (`memory`), admission (`server`).

use chronolith_base::{BudgetExceeded, Reservation};
use chronolith_model::WriteBatch;

use super::line::LineWalk;
use super::memory::piece_field_count;
use super::options::{BODY_BYTES_MAX, DecodeOptions};
use super::refused::Refused;

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

    /// Moves the body into `batch` (cleared first) and fills its columns with the next lines; false at the
    /// end of the body. [`BodyPieces::take_back`] comes before the next call. `held` grows by the memory of
    /// long lines, and keeps it.
    ///
    /// # Errors
    /// [`BudgetExceeded`] for a line of too many fields; the lines before it are lost too, unless they were
    /// in an earlier piece.
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
