//! Parts that all sections of an index are made of: frames with a checksum, and texts.

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

/// Verifies a section or list framed as `u32 length, content, checksum`, which starts at `start`; returns a
/// reader of the content, with offsets of `bytes`.
pub(super) fn framed<'a>(
    bytes: &'a [u8],
    start: usize,
    what: &'static str,
) -> Result<ByteReader<'a>, DecodeError> {
    let mut r = ByteReader::at(bytes, start);
    let len = r.be_u32(what)? as usize;
    let content_start = r.offset();
    let expected = crc32c(r.bytes(what, len)?);
    let found = r.be_u32(what)?;
    if found != expected {
        return Err(DecodeError::Checksum { what, offset: content_start, expected, found });
    }
    Ok(ByteReader::at(bytes.get(..content_start + len).unwrap_or_default(), content_start))
}

/// Reads a uvarint length and that many bytes of UTF-8.
pub(super) fn text<'a>(r: &mut ByteReader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
    let len = r.length(what)?;
    let offset = r.offset();
    let bytes = r.bytes(what, len)?;
    std::str::from_utf8(bytes).map_err(|e| DecodeError::Invalid {
        what,
        offset,
        expected: "valid UTF-8",
        found: e.valid_up_to() as u64,
    })
}
