//! Pair ids of all series, in pieces of memory that never move: adding a series never copies the others.
//!
//! Invariant: the ids of a series lie in one piece.

/// Ids per piece; a series with more has its own piece.
const PIECE_BITS: u32 = 16;
const PIECE_LEN: usize = 1 << PIECE_BITS;

/// Append-only storage of the pair ids of series.
#[derive(Default)]
pub(super) struct Members {
    pieces: Vec<Vec<u32>>,
}

impl Members {
    /// Adds the ids of a series; returns their start.
    pub(super) fn push(&mut self, ids: &[u32]) -> u32 {
        if self.pieces.last().is_none_or(|p| p.len() == PIECE_LEN || p.len() + ids.len() > PIECE_LEN) {
            // The first piece grows as it is filled, so that a small tenant is small.
            let len = if self.pieces.is_empty() { ids.len() } else { PIECE_LEN.max(ids.len()) };
            self.pieces.push(Vec::with_capacity(len));
        }
        let piece_idx = self.pieces.len() - 1;
        let piece = &mut self.pieces[piece_idx];
        let start = (piece_idx << PIECE_BITS | piece.len()) as u32;
        piece.extend_from_slice(ids);
        start
    }

    /// Returns the ids that start at `start`; `next` is the start of the next series.
    pub(super) fn get(&self, start: u32, next: Option<u32>) -> &[u32] {
        let piece = &self.pieces[(start >> PIECE_BITS) as usize];
        let end = match next {
            Some(next) if next >> PIECE_BITS == start >> PIECE_BITS => next as usize % PIECE_LEN,
            _ => piece.len(),
        };
        &piece[start as usize % PIECE_LEN..end]
    }

    /// Returns true if one more series can be addressed.
    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() < (u32::MAX >> PIECE_BITS) as usize
    }

    pub(super) fn heap_bytes(&self) -> usize {
        // All pieces but the first and the oversized ones have the same length.
        let first = self.pieces.first().map_or(0, Vec::capacity);
        4 * (first + self.pieces.len().saturating_sub(1) * PIECE_LEN)
            + self.pieces.capacity() * size_of::<Vec<u32>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_across_pieces() {
        let mut members = Members::default();
        let lens = [3, PIECE_LEN - 4, 1, 0, 1, PIECE_LEN - 1, 2, 2 * PIECE_LEN + 5, 0, 7, 10, PIECE_LEN, 4];
        let of = |series: usize| -> Vec<u32> {
            (0..lens[series] as u32).map(|i| i * 31 + series as u32).collect()
        };
        let starts: Vec<u32> = (0..lens.len()).map(|series| members.push(&of(series))).collect();
        for series in 0..lens.len() {
            let next = starts.get(series + 1).copied();
            assert_eq!(members.get(starts[series], next), of(series), "series {series}");
        }
        assert!(members.has_room() && members.heap_bytes() > 4 * 5 * PIECE_LEN);
    }
}
