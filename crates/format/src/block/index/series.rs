//! Series entries: labels by symbol, chunks by time and position.
//!
//! Invariant: an entry is verified each time it is decoded; label text and chunks take no more memory than a
//! bound or the entry itself allows.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{Labels, LabelsBuilder};

use super::symbols::Symbols;
use crate::block::chunks::ChunkRef;
use crate::block::file_offset::in_file;

/// Label text of one series beyond this is damage: a forged entry may repeat one long symbol many times.
const LABEL_TEXT_BYTES_MAX: usize = 16 << 20;
const CHECKSUM_BYTES: u64 = 4;

/// A chunk of a series: the times that it covers (both ends included) and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkMeta {
    /// Time of the first sample.
    pub min_time: i64,
    /// Time of the last sample.
    pub max_time: i64,
    /// Segment and offset.
    pub chunk_ref: ChunkRef,
}

/// A decoded series entry; reused from series to series.
#[derive(Debug, Default)]
pub struct SeriesEntry {
    builder: LabelsBuilder,
    /// Chunks of the series, by start time.
    pub chunks: Vec<ChunkMeta>,
}

impl SeriesEntry {
    /// An entry without labels and chunks.
    #[must_use]
    pub fn new() -> SeriesEntry {
        SeriesEntry::default()
    }

    /// Labels of the series; one allocation.
    #[must_use]
    pub fn labels(&mut self) -> Labels {
        self.builder.finish()
    }

    /// Label pairs of the series as stored.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.builder.iter()
    }

    pub(super) fn clear(&mut self) {
        self.builder.clear();
        self.chunks.clear();
    }

    /// Decodes the entry that `bytes` begin with; they start at `file_offset`. `self` must be empty.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        file_offset: u64,
        symbols: &Symbols,
    ) -> Result<(), DecodeError> {
        let in_file = |error| in_file(error, file_offset);
        let mut r = content(bytes).map_err(in_file)?;
        let content_start = r.offset();
        let pair_count = r.length("series label count").map_err(in_file)?;
        let mut text_bytes = 0usize;
        for _ in 0..pair_count {
            let name = r.uvarint("series label name").map_err(in_file)?;
            let value = r.uvarint("series label value").map_err(in_file)?;
            let (name, value) = (symbols.get(name)?, symbols.get(value)?);
            text_bytes = text_bytes.saturating_add(name.len()).saturating_add(value.len());
            if text_bytes > LABEL_TEXT_BYTES_MAX {
                let (what, expected) = ("series label text", "at most 16 MiB");
                let found = text_bytes as u64;
                return Err(in_file(DecodeError::Invalid { what, offset: content_start, expected, found }));
            }
            self.builder.push(name, value);
        }
        decode_chunk_metas(&mut r, &mut self.chunks).map_err(in_file)
    }
}

/// Verifies the entry that `bytes` begin with; returns a reader of its content.
fn content(bytes: &[u8]) -> Result<ByteReader<'_>, DecodeError> {
    let mut r = ByteReader::new(bytes);
    let len = r.length("series entry length")?;
    let start = r.offset();
    let expected = crc32c(r.bytes("series entry", len)?);
    let found = r.be_u32("series entry checksum")?;
    if found != expected {
        return Err(DecodeError::Checksum { what: "series entry checksum", offset: start, expected, found });
    }
    Ok(ByteReader::at(bytes.get(..start + len).unwrap_or_default(), start))
}

/// Returns the number of bytes of the entry that `bytes` begin with; `None` if there are too few bytes to
/// tell.
#[must_use]
pub fn series_len(bytes: &[u8]) -> Option<u64> {
    let mut r = ByteReader::new(bytes);
    let len = r.uvarint("series entry length").ok()?;
    (r.offset() as u64 + CHECKSUM_BYTES).checked_add(len)
}

fn decode_chunk_metas(r: &mut ByteReader<'_>, out: &mut Vec<ChunkMeta>) -> Result<(), DecodeError> {
    let count = r.length("series chunk count")?;
    let (mut last_max, mut last_ref) = (0i64, 0u64);
    for i in 0..count {
        let offset = r.offset();
        // The distance wraps: a chunk that starts before the last one ended has a "negative" one.
        let min_time = match i {
            0 => r.varint("chunk start time")?,
            _ => last_max.wrapping_add(r.uvarint("chunk start time")?.cast_signed()),
        };
        let width = r.uvarint("chunk duration")?;
        let Some(max_time) = min_time.checked_add_unsigned(width) else {
            let (what, expected) = ("chunk duration", "an end before the end of time");
            return Err(DecodeError::Invalid { what, offset, expected, found: width });
        };
        last_ref = match i {
            0 => r.uvarint("chunk ref")?,
            _ => last_ref.wrapping_add_signed(r.varint("chunk ref")?),
        };
        out.push(ChunkMeta { min_time, max_time, chunk_ref: ChunkRef(last_ref) });
        last_max = max_time;
    }
    Ok(())
}

/// Appends the chunks of a series as its entry stores them.
pub(super) fn put_chunk_metas(out: &mut Vec<u8>, chunks: &[ChunkMeta]) {
    put_uvarint(out, chunks.len() as u64);
    let mut last: Option<&ChunkMeta> = None;
    for chunk in chunks {
        assert!(chunk.min_time <= chunk.max_time, "a chunk ends after it starts");
        let width = chunk.max_time.wrapping_sub(chunk.min_time).cast_unsigned();
        match last {
            None => {
                put_varint(out, chunk.min_time);
                put_uvarint(out, width);
                put_uvarint(out, chunk.chunk_ref.0);
            }
            Some(last) => {
                put_uvarint(out, chunk.min_time.wrapping_sub(last.max_time).cast_unsigned());
                put_uvarint(out, width);
                put_varint(out, chunk.chunk_ref.0.wrapping_sub(last.chunk_ref.0).cast_signed());
            }
        }
        last = Some(chunk);
    }
}
