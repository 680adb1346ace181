//! Payload of WAL frames with texts of one tenant and window.
//!
//! Invariant: an id has one text within its tenant and window, so that texts can be read in any order and any
//! number of times.
//! Not here: ids and their choice (`head`). Layout: `docs/head/wal.md`.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

use super::payload::text;

/// Replaces `out` by the start of a payload: tenant and start of the window, which its texts share.
pub fn encode_texts(tenant: &str, window_start: i64, out: &mut Vec<u8>) {
    out.clear();
    put_uvarint(out, tenant.len() as u64);
    out.extend_from_slice(tenant.as_bytes());
    out.extend_from_slice(&window_start.to_le_bytes());
}

/// Appends a text to a payload begun with [`encode_texts`].
pub fn put_text(id: u64, text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&id.to_le_bytes());
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Reader of a payload of texts: the shared part, then one text after another.
pub struct TextsRef<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    /// First time of the window.
    pub window_start: i64,
    reader: ByteReader<'a>,
}

impl<'a> TextsRef<'a> {
    /// Reads the shared part.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<TextsRef<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "tenant")?;
        let window_start = reader.le_u64("window start")?.cast_signed();
        Ok(TextsRef { tenant, window_start, reader })
    }

    /// Returns id and bytes of the next text, `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn next_text(&mut self) -> Result<Option<(u64, &'a [u8])>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let id = self.reader.le_u64("text id")?;
        let len = self.reader.length("text length")?;
        Ok(Some((id, self.reader.bytes("text", len)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(window_start: i64, texts: &[(u64, &[u8])]) -> Vec<u8> {
        let mut out = vec![1, 2, 3];
        encode_texts("tenant", window_start, &mut out);
        texts.iter().for_each(|(id, text)| put_text(*id, text, &mut out));
        out
    }

    #[test]
    fn texts_of_any_bytes_round_trip() {
        let texts: [(u64, &[u8]); 3] = [(u64::MAX, b""), (0, b"a\0\n\xff"), (7, &[b'x'; 300])];
        let bytes = payload(-7200, &texts);
        let mut found = TextsRef::decode(&bytes).unwrap();
        assert_eq!((found.tenant, found.window_start), ("tenant", -7200));
        for want in texts {
            assert_eq!(found.next_text().unwrap(), Some(want));
        }
        assert_eq!(found.next_text().unwrap(), None);
        for len in 0..bytes.len() {
            // A cut between two texts is not detected here, but by the checksum of the frame.
            let Ok(mut found) = TextsRef::decode(&bytes[..len]) else { continue };
            while let Ok(Some(_)) = found.next_text() {}
        }
    }
}
