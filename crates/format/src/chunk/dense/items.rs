//! Integers after the head of a column: in blocks, or entropy-coded as one run of bytes.
//! Invariant: a reader takes untrusted bytes; unwanted pieces are not unpacked, except before wanted ones
//! where the coding has no other way. Not here: meaning of the integers (`times`, `values`).

use std::ops::ControlFlow;

use chronolith_base::{ByteReader, DecodeError};

use super::block::{BLOCK_ITEMS, read_block, skip_block};
use super::entropy::{self, Column, NumberType};

const WHAT: &str = "dense chunk column";

/// Coding of the integers of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// In blocks of bits of one width.
    Blocks,
    /// Entropy-coded, as numbers of a type.
    Entropy(NumberType),
}

/// End of a column of integers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// With the chunk: bytes after the last wanted integer are not read.
    WithChunk,
    /// Before something that the reader continues with. Entropy-coded integers begin with their length in
    /// bytes.
    Before,
}

/// A column of integers, at least one.
#[derive(Clone, Copy)]
pub(super) struct Items {
    pub(super) packing: Packing,
    pub(super) ending: Ending,
    pub(super) count: usize,
}

impl Items {
    /// Hands the integers to `visit` in pieces of [`BLOCK_ITEMS`] (the last one has the rest), until it
    /// breaks. The first `skipped_pieces` are left out.
    pub(super) fn for_each_piece(
        self,
        reader: &mut ByteReader<'_>,
        skipped_pieces: usize,
        visit: &mut dyn FnMut(&mut [i64]) -> ControlFlow<()>,
    ) -> Result<(), DecodeError> {
        match self.packing {
            Packing::Blocks => self.for_each_block(reader, skipped_pieces, visit),
            Packing::Entropy(number_type) => {
                let len = match self.ending {
                    Ending::WithChunk => reader.remaining(),
                    Ending::Before => reader.length(WHAT)?,
                };
                let offset = reader.offset();
                let bytes = reader.bytes(WHAT, len)?;
                let column = Column { bytes, number_type, offset, item_count: self.count };
                entropy::for_each_piece(column, skipped_pieces, visit)
            }
        }
    }

    fn for_each_block(
        self,
        reader: &mut ByteReader<'_>,
        skipped_pieces: usize,
        visit: &mut dyn FnMut(&mut [i64]) -> ControlFlow<()>,
    ) -> Result<(), DecodeError> {
        let mut items = [0i64; BLOCK_ITEMS];
        let (mut left, mut to_skip) = (self.count, skipped_pieces);
        while left > 0 {
            let len = left.min(BLOCK_ITEMS);
            left -= len;
            if to_skip > 0 {
                to_skip -= 1;
                skip_block(reader, len)?;
                continue;
            }
            read_block(reader, len, &mut items)?;
            let piece = items.get_mut(..len).unwrap_or_default();
            if visit(piece).is_break() {
                if self.ending == Ending::WithChunk {
                    break;
                }
                to_skip = usize::MAX;
            }
        }
        Ok(())
    }
}
