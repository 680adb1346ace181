//! Simple8b: words of 64 bits that each hold up to 240 integers of equal width below their four bits of
//! selector.
//!
//! Invariant: at most 240 values per word. Not here: the meaning of the values (`times`, `integers`).

use chronolith_base::DecodeError;

use crate::influx::fault::{BLOCK_POINTS_MAX, invalid};

/// Bytes of a word.
const WORD_BYTES: usize = 8;
/// Count and width in bits of the values of a word, by selector. The first two selectors stand for runs of
/// ones, without bits.
const LAYOUTS: [(usize, u32); 16] = [
    (240, 0),
    (120, 0),
    (60, 1),
    (30, 2),
    (20, 3),
    (15, 4),
    (12, 5),
    (10, 6),
    (8, 7),
    (7, 8),
    (6, 10),
    (5, 12),
    (4, 15),
    (3, 20),
    (2, 30),
    (1, 60),
];

/// Calls `sink` with the values of the words in `bytes`, at most [`BLOCK_POINTS_MAX`]. `offset` is the offset
/// of `bytes` in the file, for errors.
pub(super) fn decode(bytes: &[u8], offset: usize, mut sink: impl FnMut(u64)) -> Result<(), DecodeError> {
    let words = bytes.chunks_exact(WORD_BYTES);
    if !words.remainder().is_empty() {
        let found = bytes.len() as u64;
        return Err(invalid("packed integers", offset, "a multiple of 8 bytes", found));
    }
    let mut total = 0;
    for word in words {
        let word = word.try_into().map_or(0, u64::from_be_bytes);
        let (count, width) = LAYOUTS.get((word >> 60) as usize).copied().unwrap_or((0, 0));
        total += count;
        if total > BLOCK_POINTS_MAX {
            return Err(invalid("packed integers", offset, "at most 2^20 values", total as u64));
        }
        if width == 0 {
            (0..count).for_each(|_| sink(1));
            continue;
        }
        let mask = (1 << width) - 1;
        let mut rest = word;
        for _ in 0..count {
            sink(rest & mask);
            rest >>= width;
        }
    }
    Ok(())
}
