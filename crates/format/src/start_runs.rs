//! Column of start timestamps as runs of equal ones, in frames of the WAL and in records.
//!
//! Invariant: the round trip is exact; memory is bounded by the number of samples that the reader passes.
//! Layout: per run `uvarint 2 * samples + 1 if the start is known`, then, if it is, `varint difference` to
//! the known start before, the first to the base.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};

/// Appends the start timestamps, of which 0 is unknown.
pub(crate) fn put(mut starts: impl Iterator<Item = i64>, base: i64, out: &mut Vec<u8>) {
    let mut before = base;
    let mut next = starts.next();
    while let Some(start) = next {
        let mut run = 1u64;
        next = loop {
            match starts.next() {
                Some(same) if same == start => run += 1,
                other => break other,
            }
        };
        put_uvarint(out, run << 1 | u64::from(start != 0));
        if start != 0 {
            put_varint(out, start.wrapping_sub(before));
            before = start;
        }
    }
}

/// Reads start timestamps until `out` has `count` of them.
///
/// # Errors
/// [`DecodeError`]; `out` has the runs before the fault.
pub(crate) fn read(
    reader: &mut ByteReader<'_>,
    count: usize,
    base: i64,
    out: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    let mut before = base;
    while out.len() < count {
        let offset = reader.offset();
        let left = count - out.len();
        let found = reader.uvarint("run of start timestamps")?;
        let run = usize::try_from(found >> 1).ok().filter(|&run| 0 < run && run <= left);
        let what = "run of start timestamps";
        let expected = "1 to the samples that are left";
        let run = run.ok_or(DecodeError::Invalid { what, offset, expected, found })?;
        let mut start = 0;
        if found & 1 != 0 {
            before = before.wrapping_add(reader.varint("start timestamp")?);
            start = before;
        }
        out.resize(out.len() + run, start);
    }
    Ok(())
}
