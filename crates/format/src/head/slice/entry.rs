//! Payloads of slice frames: tenants with the first arrivals of their windows, and series with their chunks.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

use super::histograms::HistogramsEntry;
use crate::chunk::xor::{STATE_BYTES, XorState};

const HAS_OPEN: u8 = 1;
const HAS_LAST: u8 = 2;
const HAS_LATE: u8 = 4;
const HAS_SEALED: u8 = 8;
/// Histograms, start times, or bytes that this version does not know, stand behind the entry, after their length.
const HAS_MORE: u8 = 128;

/// Bytes of a sealed chunk's place.
const SEALED_BYTES: usize = 24;

/// When the first sample of a window came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowEntry {
    /// Start of the window.
    pub start: i64,
    /// Server time.
    pub first_arrival_ms: i64,
}

/// Writes tenants and their windows over `out`; entries name a tenant by its place here.
pub fn encode_tenants<'a>(
    tenants: impl ExactSizeIterator<Item = (&'a str, Vec<WindowEntry>)>,
    out: &mut Vec<u8>,
) {
    out.clear();
    put_uvarint(out, tenants.len() as u64);
    for (name, windows) in tenants {
        put_uvarint(out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        put_uvarint(out, windows.len() as u64);
        for window in windows {
            out.extend_from_slice(&window.start.to_le_bytes());
            out.extend_from_slice(&window.first_arrival_ms.to_le_bytes());
        }
    }
}

/// Reads what [`encode_tenants`] wrote.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_tenants(payload: &[u8]) -> Result<Vec<(&str, Vec<WindowEntry>)>, DecodeError> {
    let mut reader = ByteReader::new(payload);
    let count = reader.length("tenant count")?;
    let mut tenants = Vec::with_capacity(count);
    for _ in 0..count {
        let len = reader.length("tenant")?;
        let offset = reader.offset();
        let name = std::str::from_utf8(reader.bytes("tenant", len)?).map_err(|e| DecodeError::Invalid {
            what: "tenant",
            offset,
            expected: "UTF-8",
            found: e.valid_up_to() as u64,
        })?;
        let window_count = reader.length("window count")?;
        let mut windows = Vec::with_capacity(window_count);
        for _ in 0..window_count {
            windows.push(WindowEntry {
                start: reader.le_u64("window start")?.cast_signed(),
                first_arrival_ms: reader.le_u64("window arrival")?.cast_signed(),
            });
        }
        tenants.push((name, windows));
    }
    Ok(tenants)
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

/// One series of a slice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SeriesEntry<'a> {
    /// Series.
    pub id: u32,
    /// Its tenant, by the place in the slice's list.
    pub tenant: u32,
    /// Where the open chunk stands, the time of its first sample, and its bytes.
    pub open: Option<(XorState, i64, &'a [u8])>,
    /// Newest sample when there is no open chunk: time and value bits.
    pub last: Option<(i64, u64)>,
    /// Late samples as XOR bytes; empty when there are none.
    pub late: &'a [u8],
    /// Sealed chunks, oldest first.
    pub sealed: Vec<SealedEntry>,
    /// What it has of histograms.
    pub histograms: HistogramsEntry<'a>,
    /// Its start times as runs ([`crate::chunk::starts`]); empty when there are none.
    pub starts: &'a [u8],
}

/// Appends a series; `last_id` is the id of the one before in the payload, 0 for the first.
pub fn encode_entry(entry: &SeriesEntry<'_>, last_id: u32, out: &mut Vec<u8>) {
    put_uvarint(out, u64::from(entry.id - last_id));
    put_uvarint(out, u64::from(entry.tenant));
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let has_more = !entry.histograms.is_empty() || !entry.starts.is_empty();
    out.push(
        flag(entry.open.is_some(), HAS_OPEN)
            | flag(entry.last.is_some(), HAS_LAST)
            | flag(!entry.late.is_empty(), HAS_LATE)
            | flag(!entry.sealed.is_empty(), HAS_SEALED)
            | flag(has_more, HAS_MORE),
    );
    if let Some((state, first_time, bytes)) = entry.open {
        debug_assert_eq!(bytes.len(), state.byte_len());
        out.extend_from_slice(&state.to_bytes());
        out.extend_from_slice(&first_time.to_le_bytes());
        out.extend_from_slice(bytes);
    }
    if let Some((time, value)) = entry.last {
        out.extend_from_slice(&time.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
    }
    if !entry.late.is_empty() {
        put_uvarint(out, entry.late.len() as u64);
        out.extend_from_slice(entry.late);
    }
    if !entry.sealed.is_empty() {
        put_uvarint(out, entry.sealed.len() as u64);
        for chunk in &entry.sealed {
            let mut bytes = [0; SEALED_BYTES];
            bytes[..8].copy_from_slice(&chunk.min_time.to_le_bytes());
            bytes[8..12].copy_from_slice(&chunk.file.to_le_bytes());
            bytes[12..16].copy_from_slice(&chunk.offset.to_le_bytes());
            bytes[16..20].copy_from_slice(&chunk.span_ms.to_le_bytes());
            bytes[20..22].copy_from_slice(&chunk.len.to_le_bytes());
            bytes[22..].copy_from_slice(&chunk.count.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
    }
    if has_more {
        entry.histograms.put(entry.starts, out);
    }
}

/// Walks the series of a payload.
pub struct EntryReader<'a> {
    reader: ByteReader<'a>,
    last_id: u32,
}

impl<'a> EntryReader<'a> {
    /// Starts at the first series.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> EntryReader<'a> {
        EntryReader { reader: ByteReader::new(payload), last_id: 0 }
    }

    /// Replaces `entry` by the next series; false at the end.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn next(&mut self, entry: &mut SeriesEntry<'a>) -> Result<bool, DecodeError> {
        let reader = &mut self.reader;
        if reader.is_empty() {
            return Ok(false);
        }
        entry.sealed.clear();
        entry.histograms.clear();
        entry.starts = &[];
        let offset = reader.offset();
        let delta = narrow(reader, "entry series")?;
        entry.id = self.last_id.checked_add(delta).filter(|&id| id != u32::MAX).ok_or({
            let expected = "an id of 32 bits";
            DecodeError::Invalid { what: "entry series", offset, expected, found: u64::from(delta) }
        })?;
        self.last_id = entry.id;
        entry.tenant = narrow(reader, "entry tenant")?;
        let flags = reader.u8("entry flags")?;
        entry.open = None;
        if flags & HAS_OPEN != 0 {
            let state = XorState::from_bytes(reader.bytes("chunk state", STATE_BYTES)?)?;
            let first_time = reader.le_u64("first time")?.cast_signed();
            entry.open = Some((state, first_time, reader.bytes("open chunk", state.byte_len())?));
        }
        entry.last = None;
        if flags & HAS_LAST != 0 {
            entry.last = Some((reader.le_u64("last time")?.cast_signed(), reader.le_u64("last value")?));
        }
        entry.late = &[];
        if flags & HAS_LATE != 0 {
            let len = reader.length("late samples")?;
            entry.late = reader.bytes("late samples", len)?;
        }
        if flags & HAS_SEALED != 0 {
            let count = reader.length("sealed count")?;
            let bytes = reader.bytes("sealed chunks", count.saturating_mul(SEALED_BYTES))?;
            for bytes in bytes.as_chunks::<SEALED_BYTES>().0 {
                entry.sealed.push(decode_sealed(bytes)?);
            }
        }
        if flags & HAS_MORE != 0 {
            let len = reader.length("entry extension")?;
            entry.starts = entry.histograms.get(reader.bytes("entry extension", len)?)?;
        }
        Ok(true)
    }
}

fn decode_sealed(bytes: &[u8; SEALED_BYTES]) -> Result<SealedEntry, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    Ok(SealedEntry {
        min_time: reader.le_u64("sealed first time")?.cast_signed(),
        file: reader.le_u32("sealed file")?,
        offset: reader.le_u32("sealed offset")?,
        span_ms: reader.le_u32("sealed span")?,
        len: reader.le_u16("sealed length")?,
        count: reader.le_u16("sealed samples")?,
    })
}

fn narrow(reader: &mut ByteReader<'_>, what: &'static str) -> Result<u32, DecodeError> {
    let offset = reader.offset();
    let found = reader.uvarint(what)?;
    u32::try_from(found).map_err(|_| DecodeError::Invalid { what, offset, expected: "32 bits", found })
}
