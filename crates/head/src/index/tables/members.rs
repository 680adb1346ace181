//! Pair ids of all series, in pieces of memory that never move: adding a series never copies the others.
//!
//! Invariants: the ids of a series lie in one piece. A piece has ids of 16 bits if all of its ids fit them,
//! so a tenant with fewer than 65,536 label pairs, as most have, takes half of the memory.

use std::ops::Range;

/// Ids per piece; a series with more has its own piece.
const PIECE_BITS: u32 = 16;
const PIECE_LEN: usize = 1 << PIECE_BITS;

/// Append-only storage of the pair ids of series.
#[derive(Default)]
pub(super) struct Members {
    pieces: Vec<Piece>,
}

enum Piece {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl Piece {
    fn new(is_narrow: bool, len: usize) -> Piece {
        if is_narrow { Piece::Narrow(Vec::with_capacity(len)) } else { Piece::Wide(Vec::with_capacity(len)) }
    }

    fn len(&self) -> usize {
        match self {
            Piece::Narrow(ids) => ids.len(),
            Piece::Wide(ids) => ids.len(),
        }
    }

    /// Returns true if the piece has room for a series with these ids.
    fn takes(&self, ids: &[u32], is_narrow: bool) -> bool {
        let fits = is_narrow || matches!(self, Piece::Wide(_));
        fits && self.len() < PIECE_LEN && self.len() + ids.len() <= PIECE_LEN
    }

    fn push(&mut self, ids: &[u32]) {
        match self {
            Piece::Narrow(all) => all.extend(ids.iter().map(|&id| id as u16)),
            Piece::Wide(all) => all.extend_from_slice(ids),
        }
    }

    fn ids(&self, range: Range<usize>) -> MemberIds<'_> {
        match self {
            Piece::Narrow(ids) => MemberIds { narrow: &ids[range], wide: &[] },
            Piece::Wide(ids) => MemberIds { narrow: &[], wide: &ids[range] },
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Piece::Narrow(ids) => 2 * ids.capacity(),
            Piece::Wide(ids) => 4 * ids.capacity(),
        }
    }
}

impl Members {
    /// Adds the ids of a series; returns their start.
    pub(super) fn push(&mut self, ids: &[u32]) -> u32 {
        let is_narrow = ids.iter().all(|&id| id <= u32::from(u16::MAX));
        if self.pieces.last().is_none_or(|piece| !piece.takes(ids, is_narrow)) {
            // The first piece grows as it is filled, so that a small tenant is small.
            let len = if self.pieces.is_empty() { ids.len() } else { PIECE_LEN.max(ids.len()) };
            self.pieces.push(Piece::new(is_narrow, len));
        }
        let piece_idx = self.pieces.len() - 1;
        let piece = &mut self.pieces[piece_idx];
        let start = (piece_idx << PIECE_BITS | piece.len()) as u32;
        piece.push(ids);
        start
    }

    /// Returns the ids that start at `start`; `next` is the start of the next series.
    pub(super) fn get(&self, start: u32, next: Option<u32>) -> MemberIds<'_> {
        let piece = &self.pieces[(start >> PIECE_BITS) as usize];
        let end = match next {
            Some(next) if next >> PIECE_BITS == start >> PIECE_BITS => next as usize % PIECE_LEN,
            _ => piece.len(),
        };
        piece.ids(start as usize % PIECE_LEN..end)
    }

    /// Returns true if one more series can be addressed.
    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() < (u32::MAX >> PIECE_BITS) as usize
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(Piece::heap_bytes).sum();
        pieces + self.pieces.capacity() * size_of::<Piece>()
    }
}

/// Pair ids of one series, in order of label names. One of the two slices is empty.
#[derive(Clone, Copy)]
pub(crate) struct MemberIds<'a> {
    narrow: &'a [u16],
    wide: &'a [u32],
}

impl<'a> MemberIds<'a> {
    pub(crate) fn len(self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    pub(super) fn get(self, idx: usize) -> Option<u32> {
        self.narrow.get(idx).map(|&id| u32::from(id)).or_else(|| self.wide.get(idx).copied())
    }

    pub(crate) fn iter(self) -> MemberIter<'a> {
        MemberIter { narrow: self.narrow.iter(), wide: self.wide.iter() }
    }
}

/// Iterator over the pair ids of one series.
#[derive(Clone)]
pub(crate) struct MemberIter<'a> {
    narrow: std::slice::Iter<'a, u16>,
    wide: std::slice::Iter<'a, u32>,
}

impl Iterator for MemberIter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.narrow.next().map(|&id| u32::from(id)).or_else(|| self.wide.next().copied())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.narrow.len() + self.wide.len();
        (len, Some(len))
    }
}

impl ExactSizeIterator for MemberIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_across_pieces() {
        let mut members = Members::default();
        let lens = [3, PIECE_LEN - 4, 1, 0, 1, PIECE_LEN - 1, 2, 2 * PIECE_LEN + 5, 0, 7, 10, PIECE_LEN, 4];
        let of = |series: usize| -> Vec<u32> {
            let step = if series == 6 { 1 << 20 } else { 1 };
            (0..lens[series] as u32).map(|i| (i * step + series as u32) % (1 << 17)).collect()
        };
        let starts: Vec<u32> = (0..lens.len()).map(|series| members.push(&of(series))).collect();
        for series in 0..lens.len() {
            let next = starts.get(series + 1).copied();
            let ids = members.get(starts[series], next);
            assert_eq!(ids.iter().collect::<Vec<_>>(), of(series), "series {series}");
            assert_eq!((ids.len(), ids.iter().len()), (lens[series], lens[series]));
            assert_eq!((ids.get(0), ids.get(lens[series])), (of(series).first().copied(), None));
        }
        assert!(members.has_room() && members.heap_bytes() > 2 * 5 * PIECE_LEN);
    }

    #[test]
    fn ids_of_few_pairs_take_two_bytes() {
        let bytes = |first: u32| {
            let mut members = Members::default();
            (0..PIECE_LEN as u32).for_each(|series| {
                members.push(&[first, first + series % 99]);
            });
            members.heap_bytes()
        };
        assert!(bytes(0) < 4 * PIECE_LEN + 200, "{}", bytes(0));
        assert!(bytes(1 << 16) > 8 * PIECE_LEN);
    }
}
