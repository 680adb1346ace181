//! Sparse index header of a block, as Mimir uploads it: positions of every 32nd symbol, and of every 32nd
//! entry of the postings offset table of the index.
//!
//! Invariant: samples of a name ascend by value and by position.
//! Memory: 24 bytes and the text per sampled value, 8 bytes per sampled symbol.

use std::ops::Range;

use chronolith_base::DecodeError;

use super::file::{MimirError, gunzip};
use super::protobuf::{Value, for_each_field, push_integers, text};

/// Name of the file in the folder of a block.
pub const SPARSE_HEADER: &str = "sparse-index-header";
/// Offset in the postings offset table of its first entry: length and number of entries come before.
const FIRST_ENTRY_OFFSET: u64 = 8;

/// Sampled values of all names: 128 M label pairs.
const SAMPLES_MAX: usize = 4 << 20;

const WHAT: &str = "sparse index header";

/// Content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseHeader {
    /// Number of symbols.
    pub symbol_count: u64,
    /// Offsets of every 32nd symbol in the symbol table.
    pub symbol_offsets: Vec<u64>,
    /// Every how many entries of a name one is sampled; 0 if not recorded, which means 32.
    pub stride: u64,
    /// Label names, ascending; the empty one leads to the list of all series.
    pub names: Vec<SparseName>,
}

/// Sampled values of one label name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseName {
    /// Label name; empty for the list of all series.
    pub name: Box<str>,
    /// Every 32nd value, the first and the last one among them.
    pub values: Vec<SampledValue>,
    /// Offset in the index of the end of the last postings list, before its checksum.
    pub last_list_end: u64,
}

/// A sampled entry of the postings offset table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampledValue {
    /// Label value of the entry.
    pub value: Box<str>,
    /// Offset of the entry in the table, whose first four bytes are its length.
    pub entry_offset: u64,
}

impl SparseHeader {
    /// Reads the file, which is compressed by gzip.
    ///
    /// # Errors
    /// [`MimirError`] if it is no sparse header, or its samples do not ascend.
    pub fn decode(bytes: &[u8]) -> Result<SparseHeader, MimirError> {
        let message = gunzip(SPARSE_HEADER, bytes)?;
        SparseHeader::read(&message).map_err(|error| MimirError::Protobuf { file: SPARSE_HEADER, error })
    }

    fn read(message: &[u8]) -> Result<SparseHeader, DecodeError> {
        let mut header = SparseHeader::default();
        for_each_field(message, &mut |field, value| match (field, value) {
            (1, Value::Bytes(symbols)) => header.read_symbols(symbols),
            (2, Value::Bytes(table)) => header.read_table(table),
            _ => Ok(()),
        })?;
        header.names.sort_by(|a, b| a.name.cmp(&b.name));
        header.shift_entries()?;
        Ok(header)
    }

    fn read_symbols(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        for_each_field(message, &mut |field, value| match (field, value) {
            (1, offsets) => push_integers(&offsets, &mut self.symbol_offsets),
            (2, Value::Varint(count)) => {
                self.symbol_count = count;
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn read_table(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut left = SAMPLES_MAX;
        for_each_field(message, &mut |field, value| match (field, value) {
            (1, Value::Bytes(entry)) => {
                let name = read_name(entry, left)?;
                left = left.saturating_sub(name.values.len().max(1));
                self.names.push(name);
                Ok(())
            }
            (2, Value::Varint(stride)) => {
                self.stride = stride;
                Ok(())
            }
            _ => Ok(()),
        })
    }

    /// Offsets count from the start of the table in all versions that were seen. The first entry of the table
    /// is always sampled and its position is known, so another origin would do as well.
    fn shift_entries(&mut self) -> Result<(), DecodeError> {
        let firsts = self.names.iter().filter_map(|name| name.values.first());
        let origin = firsts.map(|first| first.entry_offset).min().unwrap_or(FIRST_ENTRY_OFFSET);
        for name in &mut self.names {
            let is_ascending =
                name.values.is_sorted_by(|a, b| a.value < b.value && a.entry_offset < b.entry_offset);
            if !is_ascending {
                let found = name.values.len() as u64;
                let expected = "ascending samples";
                return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found });
            }
            for sample in &mut name.values {
                sample.entry_offset = (sample.entry_offset - origin).saturating_add(FIRST_ENTRY_OFFSET);
            }
        }
        Ok(())
    }

    /// Label names, ascending.
    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &*name.name).filter(|name| !name.is_empty())
    }

    /// Range in the postings offset table with the entry of `name` = `value` and the one after it, which ends
    /// its postings list; without an end if the range goes on to the end of the table. `None` if no series
    /// has that label. Both empty: the list of all series.
    #[must_use]
    pub fn range_of(&self, name: &str, value: &str) -> Option<(u64, Option<u64>)> {
        let samples = self.samples_of(name)?;
        let after = samples.partition_point(|sample| &*sample.value <= value);
        if samples.last().is_none_or(|last| &*last.value < value) {
            return None;
        }
        self.range(name, samples, after.checked_sub(1)?..after)
    }

    /// Range in the postings offset table with all entries of `name` whose values start with `prefix`, some
    /// others, and the entry after them, as [`SparseHeader::range_of`].
    #[must_use]
    pub fn range_of_prefix(&self, name: &str, prefix: &str) -> Option<(u64, Option<u64>)> {
        let samples = self.samples_of(name)?;
        if samples.last().is_none_or(|last| &*last.value < prefix) {
            return None;
        }
        let start = samples.partition_point(|sample| &*sample.value < prefix);
        let end =
            samples.partition_point(|sample| &*sample.value < prefix || sample.value.starts_with(prefix));
        let start = start.saturating_sub(1);
        if start < end { self.range(name, samples, start..end) } else { None }
    }

    fn samples_of(&self, name: &str) -> Option<&[SampledValue]> {
        let idx = self.names.binary_search_by(|other| (*other.name).cmp(name)).ok()?;
        self.names.get(idx).map(|name| name.values.as_slice())
    }

    /// The entry after the samples may be one of the next name, and ends where the sample after it begins.
    fn range(
        &self,
        name: &str,
        samples: &[SampledValue],
        wanted: Range<usize>,
    ) -> Option<(u64, Option<u64>)> {
        let start = samples.get(wanted.start)?.entry_offset;
        let next_names = self.names.iter().filter(|other| *other.name > *name);
        let others = next_names.flat_map(|other| &other.values);
        let mut after = samples.get(wanted.end..)?.iter().chain(others);
        let end = after.nth(1).map(|sample| sample.entry_offset);
        Some((start, end.filter(|&end| end > start)))
    }
}

/// Reads an entry of the map from label names to their samples.
fn read_name(entry: &[u8], samples_max: usize) -> Result<SparseName, DecodeError> {
    let mut name = SparseName::default();
    for_each_field(entry, &mut |field, value| match (field, value) {
        (1, Value::Bytes(key)) => {
            name.name = text(key)?.into();
            Ok(())
        }
        (2, Value::Bytes(offsets)) => read_offsets(offsets, samples_max, &mut name),
        _ => Ok(()),
    })?;
    Ok(name)
}

fn read_offsets(message: &[u8], samples_max: usize, name: &mut SparseName) -> Result<(), DecodeError> {
    for_each_field(message, &mut |field, value| match (field, value) {
        (1, Value::Bytes(_)) if name.values.len() >= samples_max => {
            let found = SAMPLES_MAX as u64;
            Err(DecodeError::Invalid { what: WHAT, offset: 0, expected: "fewer sampled values", found })
        }
        (1, Value::Bytes(sample)) => {
            name.values.push(read_sample(sample)?);
            Ok(())
        }
        (2, Value::Varint(end)) => {
            name.last_list_end = end;
            Ok(())
        }
        _ => Ok(()),
    })
}

fn read_sample(message: &[u8]) -> Result<SampledValue, DecodeError> {
    let mut sample = SampledValue::default();
    for_each_field(message, &mut |field, value| match (field, value) {
        (1, Value::Bytes(value)) => {
            sample.value = text(value)?.into();
            Ok(())
        }
        (2, Value::Varint(offset)) => {
            sample.entry_offset = offset;
            Ok(())
        }
        _ => Ok(()),
    })?;
    Ok(sample)
}
