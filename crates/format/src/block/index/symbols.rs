//! Symbol table of an index: strings by ordinal (versions 2 and 3) or by offset (version 1).
//! Holds: every string was checked to be UTF-8 when the table was opened.
//! Memory: 4 bytes for every [`STRIDE`] symbols; the strings stay in the map.

use chronolith_base::{ByteReader, DecodeError};

use super::{framed, text};

/// Every how many symbols the offset is kept: a look-up skips half as many lengths on average.
const STRIDE: usize = 8;

pub(super) struct Symbols {
    start: usize,
    end: usize,
    /// Relative to `start`, of every `STRIDE`th symbol; empty in version 1.
    samples: Vec<u32>,
    count: usize,
    by_offset: bool,
}

impl Symbols {
    /// Cost: one pass over the table.
    pub(super) fn open(bytes: &[u8], offset: u64, version: u8) -> Result<Symbols, DecodeError> {
        let mut r = framed(bytes, offset, "symbol table")?;
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
        Ok(Symbols { start, end, samples, count, by_offset })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The symbol that a series entry names `symbol_ref`.
    pub(super) fn get<'a>(&self, bytes: &'a [u8], symbol_ref: u64) -> Result<&'a str, DecodeError> {
        let refuse = |expected| DecodeError::Invalid {
            what: "symbol reference",
            offset: self.start,
            expected,
            found: symbol_ref,
        };
        let table = bytes.get(..self.end).unwrap_or_default();
        let wanted = usize::try_from(symbol_ref).unwrap_or(usize::MAX);
        if self.by_offset {
            if wanted < self.start {
                return Err(refuse("an offset within the symbol table"));
            }
            return text(&mut ByteReader::at(table, wanted), "symbol");
        }
        let sample = self.samples.get(wanted / STRIDE).filter(|_| wanted < self.count);
        let sample = sample.ok_or_else(|| refuse("below the number of symbols"))?;
        let mut r = ByteReader::at(table, self.start + *sample as usize);
        for _ in 0..wanted % STRIDE {
            let len = r.length("symbol")?;
            r.bytes("symbol", len)?;
        }
        text(&mut r, "symbol")
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.samples.capacity() * 4
    }
}
