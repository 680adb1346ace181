//! The metadata file: type, help and unit of metrics, by tenant, as frames that are only appended.
//!
//! Invariants: frames have the format of the WAL, under a key of the file; readers take untrusted bytes,
//! never panic and allocate nothing. Layout: `docs/head/metadata.md`.
//! Not here: choice of the stored entries, rewriting of the file (`tsdb`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{MetadataEntry, MetricKind};

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLMD";
/// Version of the layout.
pub const FILE_VERSION: u16 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 32;

/// Frame kind: entries of one tenant.
pub const KIND_ENTRIES: u8 = 68;

/// Header of a metadata file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Random; mixed into the checksums of frame headers.
    pub key: u128,
    /// Returns true if a second file has the same bytes: without it one of them is lost.
    pub is_mirrored: bool,
}

impl FileHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0u8; FILE_HEADER_BYTES];
        out[..4].copy_from_slice(&FILE_MAGIC);
        out[4..6].copy_from_slice(&FILE_VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&u16::from(self.is_mirrored).to_le_bytes());
        out[8..24].copy_from_slice(&self.key.to_le_bytes());
        let sum = crc32c(&out[..28]);
        out[28..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign, damaged or later-version bytes.
    pub fn decode(bytes: &[u8]) -> Result<FileHeader, DecodeError> {
        let head = ByteReader::new(bytes).bytes("metadata header", FILE_HEADER_BYTES)?;
        let mut reader = ByteReader::new(head);
        let magic = reader.be_u32("metadata magic")?;
        if magic != u32::from_be_bytes(FILE_MAGIC) {
            let (what, found) = ("metadata magic", u64::from(magic));
            return Err(DecodeError::Invalid { what, offset: 0, expected: "CLMD", found });
        }
        let version = reader.le_u16("metadata version")?;
        let mirror_count = reader.le_u16("metadata mirrors")?;
        let (low, high) = (reader.le_u64("metadata key")?, reader.le_u64("metadata key")?);
        reader.bytes("metadata reserved", 4)?;
        let found = reader.le_u32("metadata checksum")?;
        let expected = crc32c(head.get(..28).unwrap_or(&[]));
        if found != expected {
            return Err(DecodeError::Checksum { what: "metadata header", offset: 28, expected, found });
        }
        if version != FILE_VERSION {
            let (what, found) = ("metadata version", u64::from(version));
            return Err(DecodeError::Invalid { what, offset: 4, expected: "1", found });
        }
        Ok(FileHeader { key: u128::from(high) << 64 | u128::from(low), is_mirrored: mirror_count > 0 })
    }
}

/// Appends the start of a payload: whose entries follow.
pub fn put_tenant(tenant: &str, out: &mut Vec<u8>) {
    put_text(out, tenant);
}

/// Appends one entry to a payload.
pub fn put_entry(entry: &MetadataEntry, out: &mut Vec<u8>) {
    out.push(kind_byte(entry.kind));
    put_text(out, &entry.metric);
    put_text(out, &entry.help);
    put_text(out, &entry.unit);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn kind_byte(kind: MetricKind) -> u8 {
    match kind {
        MetricKind::Unknown => 0,
        MetricKind::Counter => 1,
        MetricKind::Gauge => 2,
        MetricKind::Histogram => 3,
        MetricKind::GaugeHistogram => 4,
        MetricKind::Summary => 5,
        MetricKind::Info => 6,
        MetricKind::StateSet => 7,
    }
}

fn kind_of(byte: u8) -> Option<MetricKind> {
    Some(match byte {
        0 => MetricKind::Unknown,
        1 => MetricKind::Counter,
        2 => MetricKind::Gauge,
        3 => MetricKind::Histogram,
        4 => MetricKind::GaugeHistogram,
        5 => MetricKind::Summary,
        6 => MetricKind::Info,
        7 => MetricKind::StateSet,
        _ => return None,
    })
}

/// One entry, its texts within the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// Metric family name.
    pub metric: &'a str,
    /// Type.
    pub kind: MetricKind,
    /// Help text.
    pub help: &'a str,
    /// Unit.
    pub unit: &'a str,
}

impl EntryRef<'_> {
    /// A copy.
    #[must_use]
    pub fn to_entry(&self) -> MetadataEntry {
        MetadataEntry {
            metric: self.metric.to_owned(),
            kind: self.kind,
            help: self.help.to_owned(),
            unit: self.unit.to_owned(),
        }
    }
}

/// Reads a payload, entry by entry.
pub struct EntriesReader<'a> {
    /// Tenant name as stored; the caller validates it.
    pub tenant: &'a str,
    reader: ByteReader<'a>,
}

impl<'a> EntriesReader<'a> {
    /// Reads the tenant.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<EntriesReader<'a>, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let tenant = text(&mut reader, "metadata tenant")?;
        Ok(EntriesReader { tenant, reader })
    }

    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`]; what follows cannot be read either.
    pub fn next_entry(&mut self) -> Result<Option<EntryRef<'a>>, DecodeError> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let offset = self.reader.offset();
        let byte = self.reader.u8("metric type")?;
        let Some(kind) = kind_of(byte) else {
            let (what, expected) = ("metric type", "0 to 7");
            return Err(DecodeError::Invalid { what, offset, expected, found: u64::from(byte) });
        };
        Ok(Some(EntryRef {
            kind,
            metric: text(&mut self.reader, "metric name")?,
            help: text(&mut self.reader, "help")?,
            unit: text(&mut self.reader, "unit")?,
        }))
    }
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
