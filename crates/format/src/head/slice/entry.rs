//! Payloads of slice frames: tenants with the first arrivals of their windows, and series with their samples.
//!
//! Not here: iteration over entries (`reader`), entries of earlier versions (`old_entry`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

use crate::chunk::decimal_delta::{ENCODING_DECIMAL_DELTA, OpenState};
use crate::chunk::xor::{ENCODING_XOR, STATE_BYTES};
use crate::head::wal::text;

const HAS_OPEN: u8 = 1;
const HAS_LAST: u8 = 2;
const HAS_OOO: u8 = 4;
const HAS_SEALED: u8 = 8;
/// Start timestamps of all samples of the series, in versions 2 and 3.
const HAS_OLD_STARTS: u8 = 16;
const HAS_OPEN_STARTS: u8 = 32;
const FLAGS_KNOWN: u8 = HAS_OPEN | HAS_LAST | HAS_OOO | HAS_SEALED | HAS_OLD_STARTS | HAS_OPEN_STARTS;

/// Window with the time at which its first sample was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowEntry {
    /// Start of the window.
    pub start: i64,
    /// Server time.
    pub first_arrival_ms: i64,
}

/// Replaces `out` by tenants and their windows; entries refer to a tenant by its index here.
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

/// Reads the payload of [`encode_tenants`].
///
/// # Errors
/// [`DecodeError`].
pub fn decode_tenants(payload: &[u8]) -> Result<Vec<(&str, Vec<WindowEntry>)>, DecodeError> {
    let mut reader = ByteReader::new(payload);
    let count = reader.length("tenant count")?;
    let mut tenants = Vec::with_capacity(count);
    for _ in 0..count {
        let name = text(&mut reader, "tenant")?;
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

/// Reference to a sealed chunk of any encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedEntry {
    /// Number of the sealed file.
    pub file: u32,
    /// Start of its record.
    pub offset: u32,
    /// Bytes of chunk data.
    pub len: u32,
    /// Samples.
    pub count: u16,
    /// Encoding byte.
    pub encoding: u8,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample minus the time of the first one; in units of 2^11 and rounded up if bit 13 of
    /// the count is set.
    pub span: u32,
}

impl SealedEntry {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.min_time.to_le_bytes());
        for number in [self.file, self.offset, self.span, self.len] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&[self.encoding, 0]);
    }

    /// Appends the chunks of a list to `out`. Float chunks in version 1 have a length of 16 bits and no
    /// encoding.
    pub(super) fn get_list(
        reader: &mut ByteReader<'_>,
        is_old_float: bool,
        out: &mut Vec<SealedEntry>,
    ) -> Result<(), DecodeError> {
        for _ in 0..reader.length("sealed chunks")? {
            let mut chunk = SealedEntry {
                min_time: reader.le_u64("sealed first time")?.cast_signed(),
                file: reader.le_u32("sealed file")?,
                offset: reader.le_u32("sealed offset")?,
                span: reader.le_u32("sealed span")?,
                len: match is_old_float {
                    true => u32::from(reader.le_u16("sealed length")?),
                    false => reader.le_u32("sealed length")?,
                },
                count: reader.le_u16("sealed samples")?,
                encoding: ENCODING_XOR,
            };
            if !is_old_float {
                chunk.encoding = reader.u8("sealed encoding")?;
                reader.u8("sealed reserved")?;
            }
            out.push(chunk);
        }
        Ok(())
    }
}

/// An open chunk, to which further samples are appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenChunk<'a> {
    /// Words: state of the encoder, time of the first sample, bytes.
    Words(OpenState, i64, &'a [u8]),
    /// Native histograms: encoding byte and bytes.
    Histograms(u8, &'a [u8]),
}

impl<'a> OpenChunk<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            OpenChunk::Words(state, first_time, bytes) => {
                debug_assert_eq!(bytes.len(), state.byte_len());
                out.push(state.encoding());
                out.extend_from_slice(&state.to_bytes());
                out.extend_from_slice(&first_time.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            OpenChunk::Histograms(encoding, bytes) => {
                out.push(*encoding);
                put_part(bytes, out);
            }
        }
    }

    fn get(reader: &mut ByteReader<'a>) -> Result<OpenChunk<'a>, DecodeError> {
        match reader.u8("open chunk")? {
            encoding @ (ENCODING_XOR | ENCODING_DECIMAL_DELTA) => OpenChunk::get_words(encoding, reader),
            encoding => Ok(OpenChunk::Histograms(encoding, get_part(reader, "open histogram chunk")?)),
        }
    }

    pub(super) fn get_words(encoding: u8, reader: &mut ByteReader<'a>) -> Result<OpenChunk<'a>, DecodeError> {
        let offset = reader.offset();
        let state = OpenState::from_bytes(reader.bytes("chunk state", STATE_BYTES)?)?;
        if state.encoding() != encoding {
            let what = "chunk state";
            let expected = "a state of the encoding of its chunk";
            return Err(DecodeError::Invalid { what, offset, expected, found: u64::from(state.encoding()) });
        }
        let first_time = reader.le_u64("first time")?.cast_signed();
        Ok(OpenChunk::Words(state, first_time, reader.bytes("open chunk", state.byte_len())?))
    }
}

/// Encoded out-of-order samples of a series.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum OooPayload<'a> {
    /// No samples.
    #[default]
    None,
    /// Payload of a WAL frame of [`crate::head::wal::KIND_SAMPLES`].
    Samples(&'a [u8]),
    /// Entry of version 1: floats as an XOR chunk, and the payload of a WAL frame of histograms; either may
    /// be empty.
    Old(&'a [u8], &'a [u8]),
}

/// One series of a slice. A series may have several entries, of which the last one has its newest sample.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SeriesEntry<'a> {
    /// Series.
    pub id: u32,
    /// Index of its tenant in the list of the slice.
    pub tenant: u32,
    /// Open chunks, at most one of words and one of histograms.
    pub open: Vec<OpenChunk<'a>>,
    /// Time and value bits of the newest sample if no chunk of words is open.
    pub last: Option<(i64, u64)>,
    /// Out-of-order samples.
    pub ooo: OooPayload<'a>,
    /// Sealed chunks, for each kind of value oldest first.
    pub sealed: Vec<SealedEntry>,
    /// Start timestamps of the open chunk as runs ([`crate::chunk::starts`]); empty if there are none.
    pub open_starts: &'a [u8],
    /// Start timestamps of all samples as runs, in an entry of an earlier version; empty if there are none.
    pub old_starts: &'a [u8],
}

/// Appends a series; `last_id` is the id of the entry before in the payload, 0 for the first.
///
/// # Panics
/// If the entry has parts of an earlier version.
pub fn encode_entry(entry: &SeriesEntry<'_>, last_id: u32, out: &mut Vec<u8>) {
    put_uvarint(out, u64::from(entry.id - last_id));
    put_uvarint(out, u64::from(entry.tenant));
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    out.push(
        flag(!entry.open.is_empty(), HAS_OPEN)
            | flag(entry.last.is_some(), HAS_LAST)
            | flag(entry.ooo != OooPayload::None, HAS_OOO)
            | flag(!entry.sealed.is_empty(), HAS_SEALED)
            | flag(!entry.open_starts.is_empty(), HAS_OPEN_STARTS),
    );
    if !entry.open.is_empty() {
        put_uvarint(out, entry.open.len() as u64);
        entry.open.iter().for_each(|chunk| chunk.put(out));
    }
    if let Some((time, value)) = entry.last {
        out.extend_from_slice(&time.to_le_bytes());
        out.extend_from_slice(&value.to_le_bytes());
    }
    match entry.ooo {
        OooPayload::None => {}
        OooPayload::Samples(payload) => put_part(payload, out),
        OooPayload::Old(..) => panic!("samples of earlier versions are decoded first"),
    }
    if !entry.sealed.is_empty() {
        put_uvarint(out, entry.sealed.len() as u64);
        entry.sealed.iter().for_each(|chunk| chunk.put(out));
    }
    assert!(entry.old_starts.is_empty(), "start timestamps of earlier versions become those of chunks");
    if !entry.open_starts.is_empty() {
        put_part(entry.open_starts, out);
    }
}

/// Reads an entry after its id and tenant.
pub(super) fn get<'a>(entry: &mut SeriesEntry<'a>, reader: &mut ByteReader<'a>) -> Result<(), DecodeError> {
    let offset = reader.offset();
    let flags = reader.u8("entry flags")?;
    if flags & !FLAGS_KNOWN != 0 {
        let what = "entry flags";
        let expected = "known flags";
        let found = u64::from(flags);
        return Err(DecodeError::Invalid { what, offset, expected, found });
    }
    if flags & HAS_OPEN != 0 {
        for _ in 0..reader.length("open chunks")? {
            entry.open.push(OpenChunk::get(reader)?);
        }
    }
    if flags & HAS_LAST != 0 {
        entry.last = Some(get_last(reader)?);
    }
    if flags & HAS_OOO != 0 {
        entry.ooo = OooPayload::Samples(get_part(reader, "out-of-order samples")?);
    }
    if flags & HAS_SEALED != 0 {
        SealedEntry::get_list(reader, false, &mut entry.sealed)?;
    }
    if flags & HAS_OLD_STARTS != 0 {
        entry.old_starts = get_part(reader, "start timestamps")?;
    }
    if flags & HAS_OPEN_STARTS != 0 {
        entry.open_starts = get_part(reader, "start timestamps of the open chunk")?;
    }
    Ok(())
}

pub(super) fn get_last(reader: &mut ByteReader<'_>) -> Result<(i64, u64), DecodeError> {
    Ok((reader.le_u64("last time")?.cast_signed(), reader.le_u64("last value")?))
}

fn put_part(bytes: &[u8], out: &mut Vec<u8>) {
    put_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn get_part<'a>(reader: &mut ByteReader<'a>, what: &'static str) -> Result<&'a [u8], DecodeError> {
    let len = reader.length(what)?;
    reader.bytes(what, len)
}
