//! Payloads of WAL frames: series records of one tenant, and deletions in one stripe.
//!
//! Not here: samples (`samples`).

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::TimeRange;

/// Replaces `out` by the start of a payload of series records: tenant and protocol, which its series share.
pub fn encode_series(tenant: &str, protocol: u8, out: &mut Vec<u8>) {
    out.clear();
    put_uvarint(out, tenant.len() as u64);
    out.extend_from_slice(tenant.as_bytes());
    out.push(protocol);
}

/// One series within a payload of series records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesRecord {
    /// Series id.
    pub id: u32,
    /// Keyed hash of its wire key.
    pub raw_hash: u128,
}

impl SeriesRecord {
    /// Appends the series with its labels, sorted by name, to a payload begun with [`encode_series`].
    pub fn encode<'a>(&self, pairs: impl ExactSizeIterator<Item = (&'a str, &'a str)>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.raw_hash.to_le_bytes());
        put_uvarint(out, pairs.len() as u64);
        for text in pairs.flat_map(|(name, value)| [name, value]) {
            put_uvarint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Reader of a payload of series records: the shared part, then one series after another.
pub struct SeriesRef<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    /// Protocol of the raw bytes.
    pub protocol: u8,
    reader: ByteReader<'a>,
}

impl<'a> SeriesRef<'a> {
    /// Reads the shared part.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<SeriesRef<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "tenant")?;
        let protocol = reader.u8("protocol")?;
        Ok(SeriesRef { tenant, protocol, reader })
    }

    /// Returns the next series, `None` at the end; `pairs` is replaced by its labels.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn next(&mut self, pairs: &mut Vec<(&'a str, &'a str)>) -> Result<Option<SeriesRecord>, DecodeError> {
        pairs.clear();
        if self.reader.is_empty() {
            return Ok(None);
        }
        let id = self.reader.le_u32("series id")?;
        let (low, high) = (self.reader.le_u64("raw hash")?, self.reader.le_u64("raw hash")?);
        for _ in 0..self.reader.length("label count")? {
            let name = text(&mut self.reader, "label name")?;
            pairs.push((name, text(&mut self.reader, "label value")?));
        }
        Ok(Some(SeriesRecord { id, raw_hash: u128::from(high) << 64 | u128::from(low) }))
    }
}

/// Reads a length and as many bytes of UTF-8.
pub(in crate::head) fn text<'a>(
    reader: &mut ByteReader<'a>,
    what: &'static str,
) -> Result<&'a str, DecodeError> {
    let len = reader.length(what)?;
    let offset = reader.offset();
    let bytes = reader.bytes(what, len)?;
    std::str::from_utf8(bytes).map_err(|e| DecodeError::Invalid {
        what,
        offset,
        expected: "UTF-8",
        found: e.valid_up_to() as u64,
    })
}

/// Replaces `out` by a deletion of the samples in `range` of the series `ids`.
///
/// # Panics
/// If `ids` is empty.
pub fn encode_deletes(range: TimeRange, ids: &[u32], out: &mut Vec<u8>) {
    assert!(!ids.is_empty(), "a deletion names its series");
    out.clear();
    put_uvarint(out, ids.len() as u64);
    out.extend_from_slice(&range.start.to_le_bytes());
    out.extend_from_slice(&range.end.to_le_bytes());
    put_ids(ids, out);
}

/// A decoded deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletesRef {
    /// Times whose samples are deleted; `start <= end`.
    pub range: TimeRange,
    /// Series ids.
    pub ids: Vec<u32>,
}

impl DeletesRef {
    /// Reads a deletion.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &[u8]) -> Result<DeletesRef, DecodeError> {
        let mut reader = ByteReader::new(payload);
        // Every series has at least one byte, so the count is bounded by the bytes.
        let count = reader.length("series count")?;
        let start = reader.le_u64("first time")?.cast_signed();
        let offset = reader.offset();
        let end = reader.le_u64("end time")?.cast_signed();
        if end < start {
            let (what, found) = ("end time", end.cast_unsigned());
            return Err(DecodeError::Invalid { what, offset, expected: "the start or later", found });
        }
        let mut ids = Vec::with_capacity(count);
        let mut id = 0;
        for _ in 0..count {
            id = next_id(&mut reader, id)?;
            ids.push(id);
        }
        expect_end(&reader, "deletion")?;
        Ok(DeletesRef { range: TimeRange { start, end }, ids })
    }
}

/// Appends series ids as differences, the first from 0.
pub(super) fn put_ids(ids: &[u32], out: &mut Vec<u8>) {
    let mut before = 0u32;
    for &id in ids {
        put_varint(out, i64::from(id) - i64::from(before));
        before = id;
    }
}

/// Reads the series id after `before`.
pub(super) fn next_id(reader: &mut ByteReader<'_>, before: u32) -> Result<u32, DecodeError> {
    let offset = reader.offset();
    let id = i64::from(before).wrapping_add(reader.varint("series id")?);
    let found = id.cast_unsigned();
    u32::try_from(id).map_err(|_| DecodeError::Invalid {
        what: "series id",
        offset,
        expected: "32 bits",
        found,
    })
}

/// Fails if bytes are left after an item.
pub(super) fn expect_end(reader: &ByteReader<'_>, what: &'static str) -> Result<(), DecodeError> {
    if reader.is_empty() {
        return Ok(());
    }
    let (offset, found) = (reader.offset(), reader.remaining() as u64);
    Err(DecodeError::Invalid { what, offset, expected: "the end of the payload", found })
}
