//! Index header: the part of an index that an open block keeps in memory. It has the
//! ranges of postings lists and series entries, and decodes series entries, whose labels are symbols.
//!
//! Invariant: table of contents, symbols and postings offset table are verified when the header is made;
//! series entries and postings lists each time they are decoded.
//! Memory: the samples of both tables; the tables themselves stay in the bytes of their sections.

use std::ops::Range;

use chronolith_base::{DecodeError, Mapped};

use super::section::SectionBytes;
use super::series::SeriesEntry;
use super::symbols::Symbols;
use super::table::PostingsTable;
use super::toc::{HEADER_BYTES, SERIES_ALIGN_BYTES, TOC_BYTES, Toc, decode_version};

/// Header of an index.
pub struct IndexHeader {
    version: u8,
    toc: Toc,
    file_len: u64,
    symbols: Symbols,
    table: PostingsTable,
}

impl IndexHeader {
    /// Makes the header of an index of which all bytes are at hand. Cost: one pass over table of contents,
    /// symbols and postings offset table.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the file.
    pub fn of_file(bytes: &Mapped) -> Result<IndexHeader, DecodeError> {
        let version = decode_version(bytes)?;
        let file_len = bytes.len() as u64;
        let toc = Toc::decode(bytes, file_len)?;
        let whole = SectionBytes::new(bytes.clone(), 0);
        IndexHeader::of_sections(version, toc, file_len, [whole.clone(), whole])
    }

    /// Makes the header from the sections with symbols and postings offset table, in this order. Cost: one
    /// pass over both.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the file.
    pub fn of_sections(
        version: u8,
        toc: Toc,
        file_len: u64,
        sections: [SectionBytes; 2],
    ) -> Result<IndexHeader, DecodeError> {
        let [symbols, table] = sections;
        let symbols = Symbols::open(symbols, toc.symbols, version)?;
        let lists_end = toc.section(toc.postings, file_len).end;
        let table = PostingsTable::open(table, toc.postings_table, lists_end)?;
        Ok(IndexHeader { version, toc, file_len, symbols, table })
    }

    /// Offsets of the sections.
    #[must_use]
    pub fn toc(&self) -> &Toc {
        &self.toc
    }

    /// Version byte of the file.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Size of the index file.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Memory of the header, without the bytes of its sections.
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

    /// Calls `visit` with each value of `name` that starts with `prefix` and the range of its postings list,
    /// ascending by value, until it returns false. Ranges equal [`IndexHeader::postings_range`].
    ///
    /// # Errors
    /// [`DecodeError`] if the table is damaged (changed since the header was made).
    pub fn for_each_value(
        &self,
        name: &str,
        prefix: &str,
        visit: &mut dyn FnMut(&str, Range<u64>) -> bool,
    ) -> Result<(), DecodeError> {
        self.table.visit_from(name, prefix, &mut |value, list| {
            if prefix.is_empty() || value.starts_with(prefix) { visit(value, list) } else { value < prefix }
        })
    }

    /// As [`IndexHeader::for_each_value`] for all values from `start` on. Cost: a search and the values
    /// visited.
    ///
    /// # Errors
    /// As [`IndexHeader::for_each_value`].
    pub fn for_each_value_from(
        &self,
        name: &str,
        start: &str,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), DecodeError> {
        self.table.visit_from(name, start, &mut |value, _| value < start || visit(value))
    }

    /// Range in the file of the postings list of `name` = `value` (both empty: of all series); `None` if no
    /// series has that label. It may be longer or shorter than the list: `postings_len` tells.
    ///
    /// # Errors
    /// [`DecodeError`] if the table is damaged (changed since the header was made).
    pub fn postings_range(&self, name: &str, value: &str) -> Result<Option<Range<u64>>, DecodeError> {
        self.table.find(name, value)
    }

    /// Offset of the series entry `series_ref` in the file.
    #[must_use]
    pub fn series_offset(&self, series_ref: u32) -> u64 {
        let unit = if self.version == 1 { 1 } else { SERIES_ALIGN_BYTES };
        u64::from(series_ref) * unit
    }

    /// Range in the file of the series entry `series_ref`, if it has `bytes_estimate` bytes: its length is
    /// `series_len`.
    #[must_use]
    pub fn series_range(&self, series_ref: u32, bytes_estimate: u64) -> Range<u64> {
        let start = self.series_offset(series_ref);
        let end = (start + bytes_estimate).min(self.file_len.saturating_sub(TOC_BYTES as u64));
        start..end.max(start)
    }

    /// Decodes the entry of `series_ref` into `out`, replacing its content; `bytes` are the bytes of the file
    /// from [`IndexHeader::series_offset`] on.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the file if there is no such series or the entry is damaged.
    pub fn decode_series(
        &self,
        series_ref: u32,
        bytes: &[u8],
        out: &mut SeriesEntry,
    ) -> Result<(), DecodeError> {
        out.clear();
        let offset = self.series_offset(series_ref);
        if offset < self.toc.series || offset < HEADER_BYTES as u64 {
            let (what, expected) = ("series ref", "within the series section");
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            return Err(DecodeError::Invalid { what, offset, expected, found: u64::from(series_ref) });
        }
        out.decode(bytes, offset, &self.symbols)
    }
}
