//! Reads an index: opened once, then asked for postings and series from any thread.
//!
//! Holds: opening verifies table of contents, symbols and postings offset table; a series entry or postings
//! list is verified each time it is read.

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError, Mapped};
use chronolith_model::{Labels, LabelsBuilder};

use super::symbols::Symbols;
use super::table::PostingsTable;
use super::{ChunkMeta, ChunkRef, MAGIC, SERIES_ALIGN_BYTES, Toc, framed};

/// Label text of one series beyond this is damage: a forged entry may repeat one long symbol many times.
const LABEL_TEXT_BYTES_MAX: usize = 16 << 20;

/// An open index.
pub struct IndexReader {
    bytes: Mapped,
    version: u8,
    toc: Toc,
    symbols: Symbols,
    table: PostingsTable,
}

/// A series as the index stores it; reused from series to series.
#[derive(Debug, Default)]
pub struct SeriesEntry {
    builder: LabelsBuilder,
    /// Its chunks, by start time.
    pub chunks: Vec<ChunkMeta>,
}

impl SeriesEntry {
    /// Nothing read yet.
    #[must_use]
    pub fn new() -> SeriesEntry {
        SeriesEntry::default()
    }

    /// Its labels; one allocation.
    #[must_use]
    pub fn labels(&mut self) -> Labels {
        self.builder.finish()
    }

    /// Its label pairs as stored.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.builder.iter()
    }
}

/// A verified postings list: series refs, ascending.
pub struct Postings<'a> {
    refs: &'a [u8],
}

impl Postings<'_> {
    /// No series.
    pub const EMPTY: Postings<'static> = Postings { refs: &[] };

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.refs.len() / 4
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.refs.is_empty()
    }

    /// The refs.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.refs.as_chunks::<4>().0.iter().map(|b| u32::from_be_bytes(*b))
    }
}

impl IndexReader {
    /// Checks header and sections. Cost: one pass over table of contents, symbols and postings offset table.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset in the file.
    pub fn open(bytes: Mapped) -> Result<IndexReader, DecodeError> {
        let mut r = ByteReader::new(&bytes);
        let magic = r.be_u32("index magic")?;
        if magic != MAGIC {
            let (what, expected) = ("index magic", "0xbaaad700");
            return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(magic) });
        }
        let version = r.u8("index version")?;
        if !(1..=3).contains(&version) {
            let (what, expected) = ("index version", "1, 2 or 3");
            return Err(DecodeError::Invalid { what, offset: 4, expected, found: u64::from(version) });
        }
        let toc = Toc::decode(&bytes)?;
        let symbols = Symbols::open(&bytes, toc.symbols, version)?;
        let table = PostingsTable::open(&bytes, toc.postings_table)?;
        Ok(IndexReader { bytes, version, toc, symbols, table })
    }

    /// Where the sections start.
    #[must_use]
    pub fn toc(&self) -> &Toc {
        &self.toc
    }

    /// Version byte of the file.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Size of the file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Memory that the open index keeps beside the map.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.symbols.heap_bytes() + self.table.heap_bytes()
    }

    /// Number of strings in the symbol table.
    #[must_use]
    pub fn symbol_count(&self) -> usize {
        self.symbols.count()
    }

    /// Label names, ascending.
    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        self.table.names()
    }

    /// Number of values of label `name`.
    #[must_use]
    pub fn label_value_count(&self, name: &str) -> usize {
        self.table.value_count(name)
    }

    /// Calls `visit` with each value of `name` that starts with `prefix`, ascending, until it returns false.
    ///
    /// # Errors
    /// [`DecodeError`] if the table is damaged (changed since it was opened).
    pub fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), DecodeError> {
        self.table.visit_from(&self.bytes, name, prefix, &mut |value, _| {
            if prefix.is_empty() || value.starts_with(prefix) { visit(value) } else { value < prefix }
        })
    }

    /// The list of all series.
    ///
    /// # Errors
    /// [`DecodeError`] if it is missing or damaged.
    pub fn all_postings(&self) -> Result<Postings<'_>, DecodeError> {
        self.postings("", "")
    }

    /// Series with label `name` = `value`; empty if there is none. Cost: one pass over the list.
    ///
    /// # Errors
    /// [`DecodeError`] if the list is damaged or its refs do not ascend.
    pub fn postings(&self, name: &str, value: &str) -> Result<Postings<'_>, DecodeError> {
        let Some(offset) = self.table.find(&self.bytes, name, value)? else { return Ok(Postings::EMPTY) };
        let mut r = framed(&self.bytes, offset, "postings list")?;
        let at = r.offset();
        let count = r.be_u32("postings count")? as usize;
        let refs = r.bytes("postings", count.saturating_mul(4))?;
        if !r.is_empty() {
            let (what, expected) = ("postings count", "as many as the list has room for");
            return Err(DecodeError::Invalid { what, offset: at, expected, found: count as u64 });
        }
        let postings = Postings { refs };
        if !postings.iter().is_sorted_by(|a, b| a < b) {
            let (what, expected) = ("postings", "ascending series refs");
            return Err(DecodeError::Invalid { what, offset: at, expected, found: count as u64 });
        }
        Ok(postings)
    }

    /// Offset of the series entry `series_ref` in the file.
    #[must_use]
    pub fn series_offset(&self, series_ref: u32) -> u64 {
        let unit = if self.version == 1 { 1 } else { SERIES_ALIGN_BYTES };
        u64::from(series_ref) * unit
    }

    /// Reads a series into `out`, replacing what was there.
    ///
    /// # Errors
    /// [`DecodeError`] if there is no such series or the entry is damaged.
    pub fn series(&self, series_ref: u32, out: &mut SeriesEntry) -> Result<(), DecodeError> {
        out.builder.clear();
        out.chunks.clear();
        let offset = self.series_offset(series_ref);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset < self.toc.series || start < super::HEADER_BYTES {
            let (what, expected) = ("series ref", "within the series section");
            return Err(DecodeError::Invalid { what, offset: start, expected, found: u64::from(series_ref) });
        }
        let mut r = ByteReader::at(&self.bytes, start);
        let len = r.length("series entry length")?;
        let content_start = r.offset();
        let expected = crc32c(r.bytes("series entry", len)?);
        let found = r.be_u32("series entry checksum")?;
        if found != expected {
            let what = "series entry checksum";
            return Err(DecodeError::Checksum { what, offset: content_start, expected, found });
        }
        let entry = self.bytes.get(..content_start + len).unwrap_or_default();
        let mut r = ByteReader::at(entry, content_start);
        let pair_count = r.length("series label count")?;
        let mut text_bytes = 0usize;
        for _ in 0..pair_count {
            let name = r.uvarint("series label name")?;
            let value = r.uvarint("series label value")?;
            let name = self.symbols.get(&self.bytes, name)?;
            let value = self.symbols.get(&self.bytes, value)?;
            text_bytes = text_bytes.saturating_add(name.len()).saturating_add(value.len());
            if text_bytes > LABEL_TEXT_BYTES_MAX {
                let (what, expected) = ("series label text", "at most 16 MiB");
                let found = text_bytes as u64;
                return Err(DecodeError::Invalid { what, offset: content_start, expected, found });
            }
            out.builder.push(name, value);
        }
        read_chunk_metas(&mut r, &mut out.chunks)
    }
}

fn read_chunk_metas(r: &mut ByteReader<'_>, out: &mut Vec<ChunkMeta>) -> Result<(), DecodeError> {
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
