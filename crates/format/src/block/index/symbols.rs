//! Symbol table of an index: strings by ordinal (versions 2 and 3) or by offset (version 1).
//!
//! Invariant: every string was checked to be UTF-8 when the table was opened.
//! Memory: 4 bytes for every [`STRIDE`] symbols; the strings stay in the bytes of the section.

use chronolith_base::{ByteReader, DecodeError};

use super::frame::{framed, text};
use super::section::SectionBytes;
use crate::block::file_offset::in_file;

/// Every how many symbols the offset is kept: a lookup skips half as many lengths on average.
const STRIDE: usize = 8;

pub(super) struct Symbols {
    section: SectionBytes,
    /// Index of the first string within the bytes of the section.
    start: usize,
    end: usize,
    /// Relative to `start`, of every `STRIDE`th symbol; empty in version 1.
    samples: Vec<u32>,
    count: usize,
    by_offset: bool,
}

impl Symbols {
    /// Verifies the table at `offset` of the file. Cost: one pass over it.
    pub(super) fn open(section: SectionBytes, offset: u64, version: u8) -> Result<Symbols, DecodeError> {
        let file_offset = section.file_offset();
        Symbols::scan(section, offset, version).map_err(|error| in_file(error, file_offset))
    }

    fn scan(section: SectionBytes, offset: u64, version: u8) -> Result<Symbols, DecodeError> {
        let mut r = framed(section.bytes(), section.idx_of(offset), "symbol table")?;
        let count = r.be_u32("symbol count")? as usize;
        let start = r.offset();
        let end = start + r.remaining();
        let by_offset = version == 1;
        let mut samples = Vec::new();
        for ordinal in 0..count {
            if ordinal % STRIDE == 0 && !by_offset {
                samples.push(u32::try_from(r.offset() - start).unwrap_or(u32::MAX));
            }
            text(&mut r, "symbol")?;
        }
        samples.shrink_to_fit();
        Ok(Symbols { section, start, end, samples, count, by_offset })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the symbol that a series entry refers to by `symbol_ref`.
    pub(super) fn get(&self, symbol_ref: u64) -> Result<&str, DecodeError> {
        self.find(symbol_ref).map_err(|error| in_file(error, self.section.file_offset()))
    }

    fn find(&self, symbol_ref: u64) -> Result<&str, DecodeError> {
        let refuse = |expected| DecodeError::Invalid {
            what: "symbol reference",
            offset: self.start,
            expected,
            found: symbol_ref,
        };
        let table = self.section.get(0..self.end);
        if self.by_offset {
            let wanted = self.section.idx_of(symbol_ref);
            if wanted < self.start || wanted == usize::MAX {
                return Err(refuse("an offset within the symbol table"));
            }
            return text(&mut ByteReader::at(table, wanted), "symbol");
        }
        let wanted = usize::try_from(symbol_ref).unwrap_or(usize::MAX);
        let sample = self.samples.get(wanted / STRIDE).filter(|_| wanted < self.count);
        let sample = sample.ok_or_else(|| refuse("below the number of symbols"))?;
        let mut r = ByteReader::at(table, self.start + *sample as usize);
        for _ in 0..wanted % STRIDE {
            let len = r.length("symbol")?;
            r.bytes("symbol", len)?;
        }
        text(&mut r, "symbol")
    }

    /// Bytes on the heap, without the bytes of the file.
    pub(super) fn heap_bytes(&self) -> usize {
        self.samples.capacity() * 4
    }
}
