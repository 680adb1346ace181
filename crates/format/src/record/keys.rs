//! Columns of wire keys and fields. A key has the numbers of bytes that it shares with the start and the end
//! of the key before it, and the bytes between: series of a scrape differ in one or two labels.
//!
//! Invariant: a decoded key equals the encoded one; keys, fields and texts of a record take at most
//! [`KEY_BYTES_MAX`] after decoding, however few bytes claim them.

use std::ops::Range;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::BatchSeries;

use super::frame::invalid;

/// Bytes of all keys, fields and texts of a record in memory.
pub const KEY_BYTES_MAX: usize = 16 << 20;

/// Appends the key of a series after the series with key `last`; the first series of a record has none.
pub(super) fn put_key(key: &[u8], last: Option<&[u8]>, lens: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    if last == Some(key) {
        lens.push(0);
        return;
    }
    let last = last.unwrap_or_default();
    let prefix = common_prefix(last, key);
    let rest = key.get(prefix..).unwrap_or_default();
    let suffix = common_suffix(last.get(prefix..).unwrap_or_default(), rest);
    let middle = rest.get(..rest.len() - suffix).unwrap_or_default();
    put_uvarint(lens, prefix as u64 + 1);
    put_uvarint(lens, suffix as u64);
    put_uvarint(lens, middle.len() as u64);
    bytes.extend_from_slice(middle);
}

// PERF: eight bytes at a time; byte by byte, keys of 150 bytes take most of the time of the encoder.
//   cargo bench -p chronolith-format --bench record_speed
fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let words = left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0);
    let mut len = 0;
    for (left, right) in words {
        let difference = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let rest = left.iter().zip(right).skip(len);
    len + rest.take_while(|(left, right)| left == right).count()
}

fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    let words = left.as_rchunks::<8>().1.iter().rev().zip(right.as_rchunks::<8>().1.iter().rev());
    let mut len = 0;
    for (left, right) in words {
        let difference = u64::from_be_bytes(*left) ^ u64::from_be_bytes(*right);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let rest = left.iter().rev().zip(right.iter().rev()).skip(len);
    len + rest.take_while(|(left, right)| left == right).count()
}

/// Appends the keys of `count` series to `raw`, and their ranges to `series`.
///
/// # Errors
/// [`DecodeError`] for a key without bytes of its own or of the key before, and beyond [`KEY_BYTES_MAX`].
pub(super) fn read_keys(
    lens: &mut ByteReader<'_>,
    bytes: &mut ByteReader<'_>,
    count: usize,
    raw: &mut Vec<u8>,
    series: &mut Vec<BatchSeries>,
) -> Result<(), DecodeError> {
    let what = "wire key";
    let mut last: Option<Range<u32>> = None;
    for _ in 0..count {
        let offset = lens.offset();
        let first = lens.uvarint(what)?;
        let range = match (first.checked_sub(1), &last) {
            (None, Some(same)) => same.clone(),
            (None, None) => return Err(invalid(what, offset, "a key before the first one", 0)),
            (Some(prefix), last) => {
                let suffix = lens.uvarint(what)?;
                let middle_len = length_of(lens, what, bytes)?;
                let last = last.clone().unwrap_or_default();
                let last_len = u64::from(last.end - last.start);
                if prefix.checked_add(suffix).is_none_or(|shared| shared > last_len) {
                    return Err(invalid(what, offset, "at most the bytes of the key before", prefix));
                }
                let middle = bytes.bytes(what, middle_len)?;
                let start = raw.len();
                let len = prefix as usize + middle.len() + suffix as usize;
                check_room(what, offset, raw, len)?;
                raw.extend_from_within(last.start as usize..last.start as usize + prefix as usize);
                raw.extend_from_slice(middle);
                raw.extend_from_within(last.end as usize - suffix as usize..last.end as usize);
                start as u32..raw.len() as u32
            }
        };
        last = Some(range.clone());
        series.push(BatchSeries { raw: range, samples: 0..0 });
    }
    Ok(())
}

/// Returns an error if `raw` has no room for `len` further bytes.
pub(super) fn check_room(
    what: &'static str,
    offset: usize,
    raw: &[u8],
    len: usize,
) -> Result<(), DecodeError> {
    let total = raw.len().saturating_add(len);
    if total <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(invalid(what, offset, "at most 16 MiB of keys, fields and texts", total as u64))
}

/// Encoder of fields: most rows of a batch have the fields of the row before.
#[derive(Debug, Default)]
pub(super) struct FieldWriter {
    /// Distance to the series with the same field, of the last series that had one.
    distance: usize,
}

impl FieldWriter {
    /// Appends the field of a series; `before` returns the field of an earlier series of the record by its
    /// distance.
    pub(super) fn put<'a>(
        &mut self,
        field: &[u8],
        row_len: usize,
        before: impl Fn(usize) -> Option<&'a [u8]>,
        refs: &mut Vec<u8>,
        bytes: &mut Vec<u8>,
    ) {
        for distance in [self.distance, row_len] {
            if distance > 0 && before(distance) == Some(field) {
                self.distance = distance;
                put_uvarint(refs, distance as u64);
                return;
            }
        }
        refs.push(0);
        put_uvarint(refs, field.len() as u64);
        bytes.extend_from_slice(field);
    }
}

/// Appends the fields of `count` series to `raw`, and their ranges to `fields`.
///
/// # Errors
/// [`DecodeError`] for a reference to a series before the first one, and beyond [`KEY_BYTES_MAX`].
pub(super) fn read_fields(
    refs: &mut ByteReader<'_>,
    bytes: &mut ByteReader<'_>,
    count: usize,
    raw: &mut Vec<u8>,
    fields: &mut Vec<Range<u32>>,
) -> Result<(), DecodeError> {
    let what = "field";
    for _ in 0..count {
        let offset = refs.offset();
        let distance = refs.uvarint(what)?;
        let range = if distance == 0 {
            let len = length_of(refs, what, bytes)?;
            let field = bytes.bytes(what, len)?;
            check_room(what, offset, raw, len)?;
            let start = raw.len() as u32;
            raw.extend_from_slice(field);
            start..raw.len() as u32
        } else {
            let idx = usize::try_from(distance).ok().and_then(|distance| fields.len().checked_sub(distance));
            let field = idx.and_then(|idx| fields.get(idx)).cloned();
            field.ok_or_else(|| invalid(what, offset, "a series before this one", distance))?
        };
        fields.push(range);
    }
    Ok(())
}

/// Reads from `lens` a length of bytes that stand in another column.
///
/// # Errors
/// [`DecodeError::Short`] if `bytes` has fewer.
pub(super) fn length_of(
    lens: &mut ByteReader<'_>,
    what: &'static str,
    bytes: &ByteReader<'_>,
) -> Result<usize, DecodeError> {
    let offset = lens.offset();
    let found = lens.uvarint(what)?;
    let left = bytes.remaining();
    let len = usize::try_from(found).unwrap_or(usize::MAX);
    if len <= left { Ok(len) } else { Err(DecodeError::Short { what, offset, needed: len, left }) }
}
