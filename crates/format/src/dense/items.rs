//! Integers behind the head of a column: in blocks, or entropy-coded as one run of bytes.
//! Holds: a reader takes untrusted bytes. Not here: what the integers mean (`times`, `values`).

use chronolith_base::{ByteReader, DecodeError};

use super::block::{Block, read_block};
use super::entropy::{self, Column, NumberType};

const WHAT: &str = "dense chunk column";

/// How integers stand behind their head.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// In blocks of bits of one width.
    Blocks,
    /// Entropy-coded, as numbers of a type.
    Entropy(NumberType),
}

/// Integers in their order.
pub(super) enum Items<'r, 'a> {
    Blocks(&'r mut ByteReader<'a>),
    /// Decoded, and how many are used.
    Column(Vec<i64>, usize),
}

impl<'r, 'a> Items<'r, 'a> {
    /// `item_count` of them, of which the first `wanted` are needed; entropy-coded ones go on to the end of the chunk.
    pub(super) fn up_to_end(
        reader: &'r mut ByteReader<'a>,
        packing: Packing,
        item_count: usize,
        wanted: usize,
    ) -> Result<Items<'r, 'a>, DecodeError> {
        let Packing::Entropy(number_type) = packing else {
            return Ok(Items::Blocks(reader));
        };
        if wanted == 0 {
            return Ok(Items::Blocks(reader));
        }
        let offset = reader.offset();
        let bytes = reader.bytes(WHAT, reader.remaining())?;
        let column = Column { bytes, number_type, offset, item_count };
        Ok(Items::Column(entropy::read(column, wanted)?, 0))
    }

    /// `item_count` of them, at least one; in front of entropy-coded ones stands their length in bytes.
    pub(super) fn with_length(
        reader: &'r mut ByteReader<'a>,
        packing: Packing,
        item_count: usize,
    ) -> Result<Items<'r, 'a>, DecodeError> {
        let Packing::Entropy(number_type) = packing else {
            return Ok(Items::Blocks(reader));
        };
        let len = reader.length(WHAT)?;
        let offset = reader.offset();
        let bytes = reader.bytes(WHAT, len)?;
        let column = Column { bytes, number_type, offset, item_count };
        Ok(Items::Column(entropy::read(column, item_count)?, 0))
    }

    /// The next `len`, at most a block of them.
    pub(super) fn next(&mut self, len: usize, out: &mut Block) -> Result<(), DecodeError> {
        match self {
            Items::Blocks(reader) => read_block(reader, len, out),
            Items::Column(items, used) => {
                let part = items.iter().skip(*used).take(len);
                out.iter_mut().zip(part).for_each(|(slot, item)| *slot = *item);
                *used += len;
                Ok(())
            }
        }
    }
}
