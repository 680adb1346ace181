//! The Graphite log: events and meta tag rules of Graphite clients, by tenant, as frames that are only
//! appended.
//!
//! Invariants: frames have the format of the WAL, under a key of the file; readers take untrusted bytes,
//! never panic, and allocate no more than the payload has bytes. Layout: `docs/graphite.md`.
//! Not here: choice of the stored events, rewriting of the file (`tsdb`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLGR";
/// Version of the layout.
pub const FILE_VERSION: u16 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 32;
/// Name of the header's field with the version in errors.
pub const VERSION_FIELD: &str = "graphite log version";

/// Frame kind: events of one tenant.
pub const KIND_EVENTS: u8 = 80;
/// Frame kind: all meta tag rules of one tenant; replaces the rules of earlier frames.
pub const KIND_META_TAGS: u8 = 81;

/// Returns the header of a file under `key`.
#[must_use]
pub fn encode_header(key: u128) -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0u8; FILE_HEADER_BYTES];
    out[..4].copy_from_slice(&FILE_MAGIC);
    out[4..6].copy_from_slice(&FILE_VERSION.to_le_bytes());
    out[8..24].copy_from_slice(&key.to_le_bytes());
    let sum = crc32c(&out[..28]);
    out[28..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Reads the key from the header at the start of `bytes`.
///
/// # Errors
/// [`DecodeError`] for short, foreign, damaged or later-version bytes; of [`VERSION_FIELD`] for the last.
pub fn decode_header(bytes: &[u8]) -> Result<u128, DecodeError> {
    let head = ByteReader::new(bytes).bytes("graphite log header", FILE_HEADER_BYTES)?;
    let mut reader = ByteReader::new(head);
    let magic = reader.be_u32("graphite log magic")?;
    if magic != u32::from_be_bytes(FILE_MAGIC) {
        let found = u64::from(magic);
        return Err(DecodeError::Invalid { what: "graphite log magic", offset: 0, expected: "CLGR", found });
    }
    let version = reader.le_u16(VERSION_FIELD)?;
    reader.bytes("graphite log reserved", 2)?;
    let low = reader.le_u64("graphite log key")?;
    let high = reader.le_u64("graphite log key")?;
    reader.bytes("graphite log reserved", 4)?;
    let found = reader.le_u32("graphite log checksum")?;
    let expected = crc32c(head.get(..28).unwrap_or(&[]));
    if found != expected {
        return Err(DecodeError::Checksum { what: "graphite log header", offset: 28, expected, found });
    }
    if version != FILE_VERSION {
        let found = u64::from(version);
        return Err(DecodeError::Invalid { what: VERSION_FIELD, offset: 4, expected: "1", found });
    }
    Ok(u128::from(high) << 64 | u128::from(low))
}

/// An event of a Graphite client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Ascends in the order of arrival, from 1, per tenant.
    pub id: u64,
    /// Seconds since 1970.
    pub when_s: i64,
    /// Short text.
    pub what: String,
    /// Tags in the order of the client.
    pub tags: Vec<String>,
    /// Long text.
    pub data: String,
}

/// A rule that adds tags to series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMetaTags {
    /// Added tags, `key=value`.
    pub tags: Vec<String>,
    /// Tag expressions, all of which hold.
    pub expressions: Vec<String>,
}

/// Appends the start of a payload with events: whose they are, and the id of the next event.
pub fn put_events_start(tenant: &str, next_id: u64, out: &mut Vec<u8>) {
    put_text(out, tenant);
    put_uvarint(out, next_id);
}

/// Appends one event to a payload.
pub fn put_event(event: &StoredEvent, out: &mut Vec<u8>) {
    put_uvarint(out, event.id);
    out.extend_from_slice(&event.when_s.to_le_bytes());
    put_text(out, &event.what);
    put_texts(out, &event.tags);
    put_text(out, &event.data);
}

/// Appends a payload with all rules of a tenant.
pub fn put_meta_tags(tenant: &str, rules: &[StoredMetaTags], out: &mut Vec<u8>) {
    put_text(out, tenant);
    for rule in rules {
        put_texts(out, &rule.tags);
        put_texts(out, &rule.expressions);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    put_uvarint(out, texts.len() as u64);
    texts.iter().for_each(|text| put_text(out, text));
}

/// Reads a payload with events, event by event.
pub struct EventsReader<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    /// Id of the next event of the tenant.
    pub next_id: u64,
    reader: ByteReader<'a>,
}

impl<'a> EventsReader<'a> {
    /// Reads the tenant and the next id.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<EventsReader<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "event tenant")?;
        let next_id = reader.uvarint("next event id")?;
        Ok(EventsReader { tenant, next_id, reader })
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`]; what follows cannot be read either.
    pub fn next_event(&mut self) -> Result<Option<StoredEvent>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let reader = &mut self.reader;
        Ok(Some(StoredEvent {
            id: reader.uvarint("event id")?,
            when_s: reader.le_u64("event time")?.cast_signed(),
            what: text(reader, "event text")?.to_owned(),
            tags: texts(reader, "event tags")?,
            data: text(reader, "event data")?.to_owned(),
        }))
    }
}

/// Reads the rules of a payload with the name of their tenant.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_meta_tags(payload: &[u8]) -> Result<(&str, Vec<StoredMetaTags>), DecodeError> {
    let mut reader = ByteReader::new(payload);
    let tenant = text(&mut reader, "meta tag tenant")?;
    let mut rules = Vec::new();
    while !reader.is_empty() {
        let tags = texts(&mut reader, "meta tags")?;
        rules.push(StoredMetaTags { tags, expressions: texts(&mut reader, "meta tag expressions")? });
    }
    Ok((tenant, rules))
}

fn texts(reader: &mut ByteReader<'_>, what: &'static str) -> Result<Vec<String>, DecodeError> {
    // A text has a byte of length at least, so that the count is bounded by the bytes that are left.
    let count = reader.length(what)?;
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(text(reader, what)?.to_owned());
    }
    Ok(texts)
}

fn text<'a>(reader: &mut ByteReader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
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

#[cfg(test)]
mod tests;
