//! Texts and lists with their lengths, as the files of databases have them: a text is `uvarint length, UTF-8
//! bytes`, a list is `uvarint number of items, items`.
//!
//! Invariant: memory grows with the bytes that are there, whatever a number claims.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

/// Appends a text.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a list.
pub(crate) fn put_list<T>(
    out: &mut Vec<u8>,
    list: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    put: impl Fn(&mut Vec<u8>, T),
) {
    let items = list.into_iter();
    put_uvarint(out, items.len() as u64);
    items.for_each(|item| put(out, item));
}

/// Reads a text.
pub(crate) fn read_text(bytes: &mut ByteReader<'_>, what: &'static str) -> Result<String, DecodeError> {
    let len = bytes.uvarint(what)?;
    let text = bytes.bytes(what, usize::try_from(len).unwrap_or(usize::MAX))?;
    let offset = bytes.offset();
    let text = std::str::from_utf8(text).map(str::to_owned);
    text.map_err(|_| DecodeError::Invalid { what, offset, expected: "UTF-8", found: len })
}

/// Reads a list.
pub(crate) fn read_list<'a, T>(
    bytes: &mut ByteReader<'a>,
    what: &'static str,
    mut item: impl FnMut(&mut ByteReader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = bytes.uvarint(what)?;
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(item(bytes)?);
    }
    Ok(list)
}
