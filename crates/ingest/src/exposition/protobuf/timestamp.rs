//! Timestamps of protobuf: seconds and nanoseconds.

use crate::remote_write::wire::{Cursor, VARINT};

use super::fault::Fault;

/// Returns the milliseconds of a `google.protobuf.Timestamp`.
pub(super) fn milliseconds(message: Cursor<'_>) -> Result<i64, Fault> {
    let mut at = message;
    let mut seconds = 0i64;
    let mut nanos = 0i32;
    while !at.is_empty() {
        match at.tag()? {
            (1, VARINT) => seconds = at.varint()?.cast_signed(),
            (2, VARINT) => nanos = at.varint()? as i32,
            (1 | 2, _) => return Err(at.wrong_type().into()),
            (_, other) => at.skip(other)?,
        }
    }
    Ok(seconds.saturating_mul(1000).saturating_add(i64::from(nanos / 1_000_000)))
}
