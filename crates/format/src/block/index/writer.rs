//! Writes an index front to back into any `io::Write`: symbols, series, postings, postings offset table.
//!
//! Invariants: nothing but counters is kept here, so writing needs no memory but the caller's tables; the
//! order of calls is asserted. Sections that begin with their length are measured first, then written.
//! Not here: the order of series and of label pairs (`block`).

use std::io;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::{Crc32c, crc32c};

use super::series::{ChunkMeta, put_chunk_metas};
use super::toc::{MAGIC, SERIES_ALIGN_BYTES, Toc, VERSION_WRITTEN};

/// Reason for refusing to write an index.
#[derive(Debug, thiserror::Error)]
pub enum IndexWriteError {
    /// Writing to the sink failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Longer than its length field can hold.
    #[error("index {what} of {len} exceeds {limit}")]
    TooLarge {
        /// Section.
        what: &'static str,
        /// Length of the section.
        len: u64,
        /// Longest that the format allows.
        limit: u64,
    },
}

/// Sections in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Series,
    Postings,
    Done,
}

/// An entry of the postings offset table.
#[derive(Debug, Clone, Copy)]
pub struct TableEntry<'a> {
    /// Label name.
    pub name: &'a str,
    /// Label value.
    pub value: &'a str,
    /// Offset that [`IndexWriter::postings`] returned.
    pub offset: u64,
}

/// Writes one index.
pub struct IndexWriter<W> {
    sink: W,
    position: u64,
    stage: Stage,
    toc: Toc,
    scratch: Vec<u8>,
}

impl<W: io::Write> IndexWriter<W> {
    /// Writes header and symbol table. `symbols` ascend, each once; series refer to them by index.
    ///
    /// # Errors
    /// [`IndexWriteError`].
    ///
    /// # Panics
    /// If symbols do not ascend.
    pub fn begin<'a>(
        sink: W,
        symbols: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<IndexWriter<W>, IndexWriteError> {
        let mut w =
            IndexWriter { sink, position: 0, stage: Stage::Series, toc: Toc::default(), scratch: Vec::new() };
        w.scratch.extend_from_slice(&MAGIC.to_be_bytes());
        w.scratch.push(VERSION_WRITTEN);
        w.put_scratch()?;
        w.toc.symbols = w.position;
        let (mut len, mut count) = (4u64, 0u64);
        let mut last: Option<&str> = None;
        for symbol in symbols.clone() {
            assert!(last.is_none_or(|last| last < symbol), "symbols must ascend");
            last = Some(symbol);
            len += uvarint_len(symbol.len() as u64) + symbol.len() as u64;
            count += 1;
        }
        let mut sum = w.begin_framed("symbol table", len, count)?;
        for symbol in symbols {
            put_text(&mut w.scratch, symbol);
            w.put_summed(&mut sum)?;
        }
        w.end_framed(&sum)?;
        w.toc.series = w.position;
        Ok(w)
    }

    /// Writes the next series, in order of labels; `pairs` are indices of symbols. Returns its ref.
    ///
    /// # Errors
    /// [`IndexWriteError`]; `TooLarge` beyond 64 GiB of series.
    ///
    /// # Panics
    /// After [`IndexWriter::end_series`].
    pub fn series(
        &mut self,
        pairs: impl ExactSizeIterator<Item = (u32, u32)>,
        chunks: &[ChunkMeta],
    ) -> Result<u32, IndexWriteError> {
        assert!(self.stage == Stage::Series, "series come before postings");
        self.pad_to(SERIES_ALIGN_BYTES)?;
        let unit_count = self.position / SERIES_ALIGN_BYTES;
        let series_ref = u32::try_from(unit_count).map_err(|_| IndexWriteError::TooLarge {
            what: "series section",
            len: unit_count,
            limit: u64::from(u32::MAX),
        })?;
        let mut entry = std::mem::take(&mut self.scratch);
        put_uvarint(&mut entry, pairs.len() as u64);
        for (name, value) in pairs {
            put_uvarint(&mut entry, u64::from(name));
            put_uvarint(&mut entry, u64::from(value));
        }
        put_chunk_metas(&mut entry, chunks);
        let sum = crc32c(&entry);
        let mut front = Vec::with_capacity(10);
        put_uvarint(&mut front, entry.len() as u64);
        self.put(&front)?;
        entry.extend_from_slice(&sum.to_be_bytes());
        self.scratch = entry;
        self.put_scratch()?;
        Ok(series_ref)
    }

    /// Ends the series section.
    ///
    /// # Errors
    /// [`IndexWriteError`].
    ///
    /// # Panics
    /// If called twice.
    pub fn end_series(&mut self) -> Result<(), IndexWriteError> {
        assert!(self.stage == Stage::Series, "series end once");
        self.stage = Stage::Postings;
        // Readers do not use label indices: the section is empty, as in files of Prometheus 3.
        self.toc.label_indices = self.position;
        self.toc.postings = self.position;
        Ok(())
    }

    /// Writes a postings list and returns its offset, for [`IndexWriter::finish`]. Prometheus's order: all
    /// series first, then by name and value.
    ///
    /// # Errors
    /// [`IndexWriteError`].
    ///
    /// # Panics
    /// Before [`IndexWriter::end_series`], or if `refs` do not ascend.
    pub fn postings(&mut self, refs: &[u32]) -> Result<u64, IndexWriteError> {
        assert!(self.stage == Stage::Postings, "postings come after series");
        assert!(refs.is_sorted_by(|a, b| a < b), "postings must ascend");
        self.pad_to(4)?;
        let offset = self.position;
        let mut sum = self.begin_framed("postings list", 4 + 4 * refs.len() as u64, refs.len() as u64)?;
        for part in refs.chunks(16 << 10) {
            self.scratch.extend(part.iter().flat_map(|series_ref| series_ref.to_be_bytes()));
            self.put_summed(&mut sum)?;
        }
        self.end_framed(&sum)?;
        Ok(offset)
    }

    /// Writes the postings offset table (ascending by name and value, all series under two empty strings
    /// first) and the table of contents; returns the sink, not flushed.
    ///
    /// # Errors
    /// [`IndexWriteError`].
    ///
    /// # Panics
    /// Before [`IndexWriter::end_series`], or if entries do not ascend.
    pub fn finish<'a>(
        mut self,
        entries: impl Iterator<Item = TableEntry<'a>> + Clone,
    ) -> Result<W, IndexWriteError> {
        assert!(self.stage == Stage::Postings, "the table comes after series");
        self.stage = Stage::Done;
        self.toc.label_indices_table = self.position;
        self.toc.postings_table = self.position;
        let (mut len, mut count) = (4u64, 0u64);
        let mut last: Option<(&str, &str)> = None;
        for entry in entries.clone() {
            assert!(last.is_none_or(|last| last < (entry.name, entry.value)), "table entries must ascend");
            last = Some((entry.name, entry.value));
            put_table_entry(&mut self.scratch, entry);
            len += self.scratch.len() as u64;
            count += 1;
            self.scratch.clear();
        }
        let mut sum = self.begin_framed("postings offset table", len, count)?;
        for entry in entries {
            put_table_entry(&mut self.scratch, entry);
            self.put_summed(&mut sum)?;
        }
        self.end_framed(&sum)?;
        let toc = self.toc;
        toc.encode(&mut self.scratch);
        self.put_scratch()?;
        Ok(self.sink)
    }

    /// Writes `u32 length, u32 count`; `len` includes the count field.
    fn begin_framed(&mut self, what: &'static str, len: u64, count: u64) -> Result<Crc32c, IndexWriteError> {
        let narrow = |what, len: u64| {
            let limit = u64::from(u32::MAX);
            u32::try_from(len).map_err(|_| IndexWriteError::TooLarge { what, len, limit })
        };
        self.put(&narrow(what, len)?.to_be_bytes())?;
        let count = narrow(what, count)?.to_be_bytes();
        let mut sum = Crc32c::new();
        sum.update(&count);
        self.put(&count)?;
        Ok(sum)
    }

    fn put_summed(&mut self, sum: &mut Crc32c) -> Result<(), IndexWriteError> {
        sum.update(&self.scratch);
        self.put_scratch()
    }

    fn end_framed(&mut self, sum: &Crc32c) -> Result<(), IndexWriteError> {
        self.put(&sum.finish().to_be_bytes())
    }

    fn pad_to(&mut self, align: u64) -> Result<(), IndexWriteError> {
        const ZEROS: [u8; SERIES_ALIGN_BYTES as usize] = [0; SERIES_ALIGN_BYTES as usize];
        let pad = (self.position.next_multiple_of(align) - self.position) as usize;
        self.put(ZEROS.get(..pad).unwrap_or_default())
    }

    fn put_scratch(&mut self) -> Result<(), IndexWriteError> {
        let scratch = std::mem::take(&mut self.scratch);
        let done = self.put(&scratch);
        self.scratch = scratch;
        self.scratch.clear();
        done
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), IndexWriteError> {
        self.sink.write_all(bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }
}

fn put_table_entry(out: &mut Vec<u8>, entry: TableEntry<'_>) {
    put_uvarint(out, 2);
    put_text(out, entry.name);
    put_text(out, entry.value);
    put_uvarint(out, entry.offset);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn uvarint_len(value: u64) -> u64 {
    u64::from(value.max(1).ilog2() / 7 + 1)
}
