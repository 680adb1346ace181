//! Changes of inputs that every grammar has: bytes, words, pieces, splices.
//!
//! Not here: changes by structure, which each reader has.

use chronolith_base::Rng;

/// Bytes with a meaning in many grammars.
const BYTES: &[u8] = b"\x00\x01\x7f\x80\xff \t\r\n.,;:=(){}[]'\"\\|*+-019eE%#~/";
/// Words of four bytes at the bounds of integers.
const WORDS: [u32; 8] = [0, 1, 12, u32::MAX, u32::MAX / 12, 1 << 31, i32::MAX as u32, 1_700_000_000];
/// Bytes that are copied at once, usually.
const PIECE_BYTES_MAX: u64 = 64;
/// Copies of a piece at most.
const COPIES_MAX: u64 = 2048;

/// Returns a random element.
pub(super) fn pick<'a, T>(rng: &Rng, items: &'a [T]) -> &'a T {
    &items[rng.below(items.len() as u64) as usize]
}

/// Returns a random piece of a grammar.
pub(super) fn token<'a>(rng: &Rng, tokens: &[&'a [u8]]) -> &'a [u8] {
    tokens[rng.below(tokens.len() as u64) as usize]
}

/// Returns an offset into the bytes, the end included.
pub(super) fn offset(rng: &Rng, bytes: &[u8]) -> usize {
    rng.below(bytes.len() as u64 + 1) as usize
}

/// Applies one change. `other` is another input, for splices.
pub(super) fn change(rng: &Rng, bytes: &mut Vec<u8>, tokens: &[&[u8]], other: &[u8]) {
    let at = offset(rng, bytes);
    match rng.below(16) {
        0 => bytes.truncate(at),
        1 => {
            let end = (at + rng.below(PIECE_BYTES_MAX) as usize).min(bytes.len());
            bytes.drain(at..end);
        }
        2 => repeat(rng, bytes, at),
        3 | 4 => {
            let from = offset(rng, other);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        5 | 6 => {
            let piece = piece(rng, other).to_vec();
            bytes.splice(at..at, piece);
        }
        7 => {
            let word = *pick(rng, &WORDS);
            let word = if rng.below(2) == 0 { word.to_le_bytes() } else { word.to_be_bytes() };
            if let Some(out) = bytes.get_mut(at..at + word.len()) {
                out.copy_from_slice(&word);
            }
        }
        8 => insert(bytes, at, &[rng.below(256) as u8]),
        9 => insert(bytes, at, &[*pick(rng, BYTES)]),
        10 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        11 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *pick(rng, BYTES);
            }
        }
        _ => insert(bytes, at, token(rng, tokens)),
    }
}

pub(super) fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Repeats a piece, seldom often: readers are to be linear.
fn repeat(rng: &Rng, bytes: &mut Vec<u8>, at: usize) {
    let piece = piece(rng, &bytes[at..]).to_vec();
    let copies = if rng.below(8) == 0 { rng.below(COPIES_MAX) } else { rng.below(4) };
    bytes.splice(at..at, piece.repeat(copies as usize));
}

fn piece<'a>(rng: &Rng, bytes: &'a [u8]) -> &'a [u8] {
    let start = offset(rng, bytes);
    let end = (start + rng.below(PIECE_BYTES_MAX) as usize).min(bytes.len());
    &bytes[start..end]
}
