//! Payloads of checkpoint frames besides series definitions: raw keys, windows, chunks.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::{ByteReader, DecodeError};

/// Bytes of a raw key and the series it names.
pub const RAW_KEY_BYTES: usize = 20;

/// Appends one raw key and the series it names.
pub fn encode_raw_key(hash: u128, id: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&hash.to_le_bytes());
    out.extend_from_slice(&id.to_le_bytes());
}

/// Walks the raw keys of a payload; a cut last one is left out (the frame's checksum has been checked).
pub struct RawKeys<'a>(ByteReader<'a>);

impl<'a> RawKeys<'a> {
    /// Starts at the first.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> RawKeys<'a> {
        RawKeys(ByteReader::new(payload))
    }
}

impl Iterator for RawKeys<'_> {
    type Item = (u128, u32);

    fn next(&mut self) -> Option<(u128, u32)> {
        let (low, high) = (self.0.le_u64("raw key").ok()?, self.0.le_u64("raw key").ok()?);
        Some((u128::from(high) << 64 | u128::from(low), self.0.le_u32("raw key series").ok()?))
    }
}

/// When the first sample of a window came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowEntry {
    /// Start of the window.
    pub start: i64,
    /// Server time.
    pub first_arrival_ms: i64,
}

impl WindowEntry {
    /// Writes the windows of `tenant` over `out`.
    pub fn encode_all(tenant: &str, windows: &[WindowEntry], out: &mut Vec<u8>) {
        out.clear();
        put_uvarint(out, tenant.len() as u64);
        out.extend_from_slice(tenant.as_bytes());
        for window in windows {
            out.extend_from_slice(&window.start.to_le_bytes());
            out.extend_from_slice(&window.first_arrival_ms.to_le_bytes());
        }
    }

    /// Reads tenant and windows.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode_all(payload: &[u8]) -> Result<(&str, Vec<WindowEntry>), DecodeError> {
        let mut reader = ByteReader::new(payload);
        let len = reader.length("tenant")?;
        let offset = reader.offset();
        let tenant = std::str::from_utf8(reader.bytes("tenant", len)?).map_err(|e| DecodeError::Invalid {
            what: "tenant",
            offset,
            expected: "UTF-8",
            found: e.valid_up_to() as u64,
        })?;
        let mut windows = Vec::with_capacity(reader.remaining() / 16);
        while !reader.is_empty() {
            windows.push(WindowEntry {
                start: reader.le_u64("window start")?.cast_signed(),
                first_arrival_ms: reader.le_u64("window arrival")?.cast_signed(),
            });
        }
        Ok((tenant, windows))
    }
}

/// A sealed chunk by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedEntry {
    /// Number of the sealed file.
    pub file: u32,
    /// Where its record starts.
    pub offset: u32,
    /// Bytes of chunk data.
    pub len: u16,
    /// Samples.
    pub count: u16,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample minus that of the first.
    pub span_ms: u32,
}

/// The chunks of one series.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ChunkEntry<'a> {
    /// Series.
    pub id: u32,
    /// The open chunk as XOR bytes; empty when there is none.
    pub open: &'a [u8],
    /// Late samples as XOR bytes; empty when there are none.
    pub late: &'a [u8],
    /// Newest sample when there is no open chunk: time and value bits.
    pub last: Option<(i64, u64)>,
    /// Sealed chunks, oldest first.
    pub sealed: Vec<SealedEntry>,
}

/// Appends the chunks of one series.
pub fn encode_chunks(entry: &ChunkEntry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.id.to_le_bytes());
    put_uvarint(out, entry.open.len() as u64);
    out.extend_from_slice(entry.open);
    put_uvarint(out, entry.late.len() as u64);
    out.extend_from_slice(entry.late);
    match entry.last {
        None => out.push(0),
        Some((time, value)) => {
            out.push(1);
            put_varint(out, time);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
    put_uvarint(out, entry.sealed.len() as u64);
    for chunk in &entry.sealed {
        put_uvarint(out, u64::from(chunk.file));
        out.extend_from_slice(&chunk.offset.to_le_bytes());
        put_uvarint(out, u64::from(chunk.len));
        put_uvarint(out, u64::from(chunk.count));
        put_varint(out, chunk.min_time);
        put_uvarint(out, u64::from(chunk.span_ms));
    }
}

/// Reads the chunks of series after series; `None` at the end.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_chunks<'a>(reader: &mut ByteReader<'a>) -> Result<Option<ChunkEntry<'a>>, DecodeError> {
    if reader.is_empty() {
        return Ok(None);
    }
    let id = reader.le_u32("chunk series")?;
    let len = reader.length("open chunk")?;
    let open = reader.bytes("open chunk", len)?;
    let len = reader.length("late chunk")?;
    let late = reader.bytes("late chunk", len)?;
    let last = match reader.u8("last sample")? {
        0 => None,
        _ => Some((reader.varint("last time")?, reader.le_u64("last value")?)),
    };
    let count = reader.length("sealed count")?;
    let mut sealed = Vec::with_capacity(count.min(1024));
    for _ in 0..count {
        sealed.push(SealedEntry {
            file: narrow(reader, "sealed file")?,
            offset: reader.le_u32("sealed offset")?,
            len: narrow(reader, "sealed length")?,
            count: narrow(reader, "sealed samples")?,
            min_time: reader.varint("sealed first time")?,
            span_ms: narrow(reader, "sealed span")?,
        });
    }
    Ok(Some(ChunkEntry { id, open, late, last, sealed }))
}

fn narrow<T: TryFrom<u64>>(reader: &mut ByteReader<'_>, what: &'static str) -> Result<T, DecodeError> {
    let offset = reader.offset();
    let found = reader.uvarint(what)?;
    T::try_from(found).map_err(|_| DecodeError::Invalid { what, offset, expected: "a smaller number", found })
}
