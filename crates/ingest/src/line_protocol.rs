//! Line protocol of InfluxDB 1.8: lines of measurement, tags, fields and time become a [`WriteBatch`].
//!
//! Invariants: the batch takes the body, and its series, fields and texts are ranges of it; nothing is
//! allocated per line of the usual form; a bad line refuses itself alone; bytes never panic. Lines are read
//! as 1.8 reads them, with two exceptions: unsigned integers are accepted, names that are not UTF-8 are not.
//! Not here: HTTP, compressed bodies and answers (`server`); type conflicts and retention (`head`).

mod fault;
mod grammar;
mod labels;
mod line;
mod memory;
mod name_filter;
mod options;
mod pieces;
mod precision;
mod refused;

#[cfg(test)]
mod tests;

use chronolith_model::batch::LabelSource;
use chronolith_model::{WordKind, WriteBatch};

use fault::text_of;
use labels::{field_of, measurement_of};

pub use fault::{KEY_BYTES_MAX, ParseReason};
pub use labels::parse_labels;
pub use memory::memory_bytes;
pub use options::{BODY_BYTES_MAX, DecodeOptions, TEXT_BYTES_MAX};
pub use pieces::BodyPieces;
pub use precision::{Precision, TIME_MAX_NS, TIME_MIN_NS};
pub use refused::{DropReason, DroppedPoints, Refused, StoreRefused, conflict_text, type_name};

/// Number of this protocol in [`LabelSource::protocol`].
pub const PROTOCOL: u8 = 2;
/// An empty batch for this protocol.
#[must_use]
pub fn new_batch() -> WriteBatch {
    WriteBatch::new(LabelSource { protocol: PROTOCOL, parse: parse_labels, is_typed: true })
}

/// Number of lines whose values are in the batch.
#[must_use]
pub fn point_count(batch: &WriteBatch) -> u64 {
    batch.rows.last().map_or(batch.series.len() as u64, |row| u64::from(*row) + 1)
}

/// Returns the message about a value of another type than its field has: [`conflict_text`] for a series of
/// the batch, whose field has values of kind `stored`.
///
/// # Panics
/// If the batch has no such series.
#[must_use]
pub fn conflict_of(batch: &WriteBatch, series_idx: usize, stored: WordKind) -> String {
    let key = batch.key_of(series_idx);
    let field = text_of(&field_of(key.field));
    conflict_text(&field, &text_of(&measurement_of(key.raw)), key.kind, stored)
}

/// Decodes a whole body, for callers that bound its size: [`BodyPieces`] bounds the columns too.
///
/// Moves `body` into `batch` (cleared first) and fills its columns: one series with one sample per field, in
/// the order of the lines; times in nanoseconds.
///
/// [`WriteBatch::rows`] stays empty if no line has two fields. Cost: one pass; memory grows with the number
/// of fields (44 bytes each, 48 with rows), allocations only for growing columns and for lines that are not
/// of the usual form.
///
/// # Panics
/// If the body is larger than [`BODY_BYTES_MAX`].
#[must_use]
pub fn decode(body: Vec<u8>, options: &DecodeOptions, batch: &mut WriteBatch) -> Refused {
    assert!(body.len() <= BODY_BYTES_MAX, "the caller limits the size of bodies");
    batch.clear();
    let mut raw = body;
    let walk = line::LineWalk::new(&raw, options, batch, Refused::default());
    let lines = walk.run(0, usize::MAX).expect("only a walk with a reservation can run out of memory");
    raw.extend_from_slice(&lines.copies);
    batch.raw = raw;
    lines.refused
}
