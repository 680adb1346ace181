//! Sequences of integers that all columns of dense chunks are made of: the count, order, deltas.

use chronolith_base::{ByteReader, DecodeError};

/// Most samples in one chunk: the count is a u16.
pub const SAMPLES_MAX: usize = u16::MAX as usize;

const WHAT: &str = "dense chunk";

/// Reads the number of samples, at least one.
pub(super) fn read_count(reader: &mut ByteReader<'_>) -> Result<u16, DecodeError> {
    match reader.be_u16(WHAT)? {
        0 => Err(DecodeError::Invalid { what: WHAT, offset: 0, expected: "a sample", found: 0 }),
        count => Ok(count),
    }
}

/// Returns true if `times` ascend strictly.
///
/// Looks at all of them and keeps the sign bit of "less than", spelled in bit operations that every 64-bit
/// vector unit has; a compare of two i64 is not among them on plain x86-64.
pub(super) fn ascends(times: &[i64]) -> bool {
    let less = |a: i64, b: i64| (a & !b) | (!(a ^ b) & a.wrapping_sub(b));
    times.iter().zip(times.iter().skip(1)).fold(-1, |all, (&a, &b)| all & less(a, b)) < 0
}

/// Replaces `out` by the differences of neighbours, which wrap at 64 bits.
pub(super) fn put_deltas(items: &[i64], out: &mut Vec<i64>) {
    out.clear();
    out.extend(items.iter().zip(items.iter().skip(1)).map(|(before, after)| after.wrapping_sub(*before)));
}
