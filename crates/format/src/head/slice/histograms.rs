//! What a series of a slice has of native histograms and start times: the bytes behind bit 128 of an entry.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

/// Number of this kind of extension; others are passed over.
const NUMBER: u8 = 1;
const HAS_OPEN: u8 = 1;
const HAS_LATE: u8 = 2;
const HAS_SEALED: u8 = 4;
/// Start times, behind all others: readers that know none stop before them.
const HAS_STARTS: u8 = 8;

/// Bytes of a sealed chunk's place.
const SEALED_BYTES: usize = 28;

/// A sealed chunk of histograms by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedHistogramEntry {
    /// Number of the sealed file.
    pub file: u32,
    /// Where its record starts.
    pub offset: u32,
    /// Bytes of chunk data.
    pub len: u32,
    /// Samples.
    pub count: u16,
    /// Encoding byte.
    pub encoding: u8,
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample minus that of the first.
    pub span_ms: u32,
}

/// Histograms of one series.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct HistogramsEntry<'a> {
    /// Encoding byte and bytes of the open chunk.
    pub open: Option<(u8, &'a [u8])>,
    /// Late histograms as a payload of the log ([`crate::head::wal::HistogramsRef`]); empty when there are none.
    pub late: &'a [u8],
    /// Sealed chunks, oldest first.
    pub sealed: Vec<SealedHistogramEntry>,
}

impl<'a> HistogramsEntry<'a> {
    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.late.is_empty() && self.sealed.is_empty()
    }

    pub(super) fn clear(&mut self) {
        (self.open, self.late) = (None, &[]);
        self.sealed.clear();
    }

    /// Appends the extension, with the series' start times, behind its length.
    pub(super) fn put(&self, starts: &[u8], out: &mut Vec<u8>) {
        let len = 64 + self.late.len() + SEALED_BYTES * self.sealed.len() + starts.len();
        let mut body = Vec::with_capacity(len);
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        body.push(NUMBER);
        body.push(
            flag(self.open.is_some(), HAS_OPEN)
                | flag(!self.late.is_empty(), HAS_LATE)
                | flag(!self.sealed.is_empty(), HAS_SEALED)
                | flag(!starts.is_empty(), HAS_STARTS),
        );
        if let Some((encoding, bytes)) = self.open {
            body.push(encoding);
            put_uvarint(&mut body, bytes.len() as u64);
            body.extend_from_slice(bytes);
        }
        if !self.late.is_empty() {
            put_uvarint(&mut body, self.late.len() as u64);
            body.extend_from_slice(self.late);
        }
        if !self.sealed.is_empty() {
            put_uvarint(&mut body, self.sealed.len() as u64);
            for chunk in &self.sealed {
                body.extend_from_slice(&chunk.min_time.to_le_bytes());
                for number in [chunk.file, chunk.offset, chunk.span_ms, chunk.len] {
                    body.extend_from_slice(&number.to_le_bytes());
                }
                body.extend_from_slice(&chunk.count.to_le_bytes());
                body.extend_from_slice(&[chunk.encoding, 0]);
            }
        }
        if !starts.is_empty() {
            put_uvarint(&mut body, starts.len() as u64);
            body.extend_from_slice(starts);
        }
        put_uvarint(out, body.len() as u64);
        out.extend_from_slice(&body);
    }

    /// Reads the extension that `bytes` are and gives the start times in it; nothing if it is of another number.
    pub(super) fn get(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        let mut reader = ByteReader::new(bytes);
        if reader.u8("entry extension")? != NUMBER {
            return Ok(&[]);
        }
        let flags = reader.u8("histogram flags")?;
        if flags & HAS_OPEN != 0 {
            let encoding = reader.u8("open histogram chunk")?;
            let len = reader.length("open histogram chunk")?;
            self.open = Some((encoding, reader.bytes("open histogram chunk", len)?));
        }
        if flags & HAS_LATE != 0 {
            let len = reader.length("late histograms")?;
            self.late = reader.bytes("late histograms", len)?;
        }
        if flags & HAS_SEALED != 0 {
            let count = reader.length("sealed histogram chunks")?;
            let bytes = reader.bytes("sealed histogram chunks", count.saturating_mul(SEALED_BYTES))?;
            for bytes in bytes.as_chunks::<SEALED_BYTES>().0 {
                self.sealed.push(get_sealed(bytes)?);
            }
        }
        if flags & HAS_STARTS == 0 {
            return Ok(&[]);
        }
        let len = reader.length("start times")?;
        reader.bytes("start times", len)
    }
}

fn get_sealed(bytes: &[u8; SEALED_BYTES]) -> Result<SealedHistogramEntry, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    Ok(SealedHistogramEntry {
        min_time: reader.le_u64("sealed first time")?.cast_signed(),
        file: reader.le_u32("sealed file")?,
        offset: reader.le_u32("sealed offset")?,
        span_ms: reader.le_u32("sealed span")?,
        len: reader.le_u32("sealed length")?,
        count: reader.le_u16("sealed samples")?,
        encoding: reader.u8("sealed encoding")?,
    })
}
