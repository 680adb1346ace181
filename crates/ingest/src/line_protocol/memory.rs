//! Bounds of the memory that decoding takes, known from the size of a body and from the bytes of a line.
//!
//! Not here: its reservation (`pieces`, `server`).

use chronolith_model::{BatchSeries, WordKind};

/// Columns of a field: series, kind, field key, time, value, text and row.
pub(super) const FIELD_BYTES: u64 = (size_of::<BatchSeries>() + size_of::<WordKind>() + 3 * 8 + 8 + 4) as u64;
/// Room of a growing column, in multiples of its length.
pub(super) const GROWTH_FACTOR: u64 = 2;
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
/// Memory of a field of a long line: the grammar's list, the list of stored fields, and the columns.
pub(super) const LINE_FIELD_BYTES: u64 = 192 + GROWTH_FACTOR * FIELD_BYTES;

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
pub(super) fn piece_field_count(body_len: usize) -> usize {
    (body_len / BODY_BYTES_PER_FIELD).max(PIECE_FIELD_COUNT_MIN)
}

/// Returns the memory of the fields of a line, known by their equals signs.
#[cold]
pub(super) fn line_memory_bytes(line: &[u8]) -> u64 {
    line.iter().filter(|byte| **byte == b'=').count() as u64 * LINE_FIELD_BYTES
}
