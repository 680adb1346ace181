//! Decoders of TSM blocks: a block is a column of times and a column of values of one type.
//!
//! Invariants: pure functions over untrusted bytes; nothing is allocated for a count that the bytes do not
//! back, except equal steps of times, of which a block has at most `BLOCK_POINTS_MAX`.
//! Not here: files and checksums (`tsm`).

mod bits;
mod booleans;
mod floats;
mod integers;
mod simple8b;
mod texts;
mod times;

use std::sync::Arc;

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::WordKind;

use super::fault::{invalid, shifted};

/// Returns the kind of the values of a block by its type byte.
pub(crate) fn kind_of(block_type: u8) -> Option<WordKind> {
    match block_type {
        0 => Some(WordKind::Float),
        1 => Some(WordKind::Integer),
        2 => Some(WordKind::Boolean),
        3 => Some(WordKind::Text),
        4 => Some(WordKind::Unsigned),
        _ => None,
    }
}

/// Points of a decoded block. One of `words` and `texts` has a value per time, the other one is empty.
#[derive(Debug, Default)]
pub(crate) struct BlockPoints {
    /// In nanoseconds, ascending unless damaged.
    pub(super) times: Vec<i64>,
    /// Values of all kinds but texts, as the words of a store.
    pub(super) words: Vec<f64>,
    pub(super) texts: Vec<Arc<[u8]>>,
}

impl BlockPoints {
    pub(crate) fn clear(&mut self) {
        self.times.clear();
        self.words.clear();
        self.texts.clear();
    }

    /// Replaces the points by the points of `block`, whose values are of `kind`.
    ///
    /// # Errors
    /// [`DecodeError`], with offsets in `block`.
    pub(crate) fn decode(&mut self, block: &[u8], kind: WordKind) -> Result<(), DecodeError> {
        self.clear();
        let mut r = ByteReader::new(block);
        let block_type = r.u8("block type")?;
        if kind_of(block_type) != Some(kind) {
            return Err(invalid("block type", 0, "the type in the index", u64::from(block_type)));
        }
        let times_bytes = r.length("length of block times")?;
        let times = r.bytes("block times", times_bytes)?;
        let values_offset = r.offset();
        let values = block.get(values_offset..).unwrap_or_default();
        times::decode(times, &mut self.times)?;
        let count = self.times.len();
        let decoded = match kind {
            WordKind::Float => floats::decode(values, count, &mut self.words),
            WordKind::Integer => integers::decode_signed(values, count, &mut self.words),
            WordKind::Unsigned => integers::decode_unsigned(values, count, &mut self.words),
            WordKind::Boolean => booleans::decode(values, count, &mut self.words),
            WordKind::Text => texts::decode(values, count, &mut self.texts),
        };
        decoded.map_err(|error| shifted(error, values_offset))?;
        let found = self.words.len() + self.texts.len();
        if found != count {
            return Err(invalid("block values", values_offset, "one value per time", found as u64));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
