//! Sparse offset table: every 32nd entry of the postings offset table of an index, so that the entry of one
//! label pair, or of all values with a prefix, is found by reading a small range of the index.
//!
//! Invariants: samples ascend by name and value, and their entries follow one another without gaps; each has
//! the checksum of its entries, which is verified before an entry is returned.
//! Memory: text of names and of every 32nd value, and 24 bytes per sample.
//! Not here: tables of index version 1, which need not be in order.

use std::ops::Range;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

use super::super::packed::{Unpacker, put_packed};
use super::super::texts::{Texts, check_end, put_column, put_texts, read_column};
use crate::block::index::{TableCursor, table_entries};

/// Entries per sample; the last sample of a name may have fewer.
const STRIDE: u32 = 32;
/// Bytes of an unpacked section: 2 M samples, 64 M label pairs.
const RAW_BYTES_MAX: usize = 128 << 20;

const WHAT: &str = "sparse offset table";

/// Samples of a postings offset table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseOffsets {
    names: Texts,
    /// Number of values of each name.
    value_counts: Vec<u32>,
    last_values: Texts,
    /// First value of each sample.
    first_values: Texts,
    samples: Vec<OffsetSample>,
    /// End in the index of the last entry.
    entries_end: u64,
    /// End in the index of the last postings list.
    lists_end: u64,
}

/// Up to 32 entries of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OffsetSample {
    /// Offset in the index of the first entry.
    entry_offset: u64,
    /// Offset in the index of the postings list of the first entry.
    list_offset: u64,
    /// CRC-32C of the entries.
    crc: u32,
}

/// Consecutive entries of one name: the range to read, to be passed to [`SparseOffsets::visit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetRange {
    /// Bytes of the index file.
    pub bytes: Range<u64>,
    samples: Range<usize>,
}

impl SparseOffsets {
    /// Samples a postings offset table: `section` are the bytes of the index from `section_offset` on, where
    /// the table starts, to its end; `lists_end` is the end of the postings lists. Cost: one pass.
    ///
    /// # Errors
    /// [`DecodeError`] if the table is damaged or not in order (index version 1).
    pub fn of_table(
        section: &[u8],
        section_offset: u64,
        lists_end: u64,
    ) -> Result<SparseOffsets, DecodeError> {
        let mut cursor = table_entries(section)?;
        let start = cursor.offset();
        let mut offsets = SparseOffsets { lists_end, ..SparseOffsets::default() };
        let mut sampled = Sampled { start, end: start, ..Sampled::default() };
        let mut last: Option<(&str, &str)> = None;
        while let Some(entry) = cursor.next_entry()? {
            let key = (entry.name, entry.value);
            if last.is_some_and(|last| last >= key) {
                let found = offsets.samples.len() as u64;
                let expected = "ascending label pairs";
                return Err(DecodeError::Invalid { what: WHAT, offset: sampled.end, expected, found });
            }
            let is_new_name = last.is_none_or(|(name, _)| name != entry.name);
            if is_new_name && let Some((_, value)) = last {
                offsets.last_values.push(value);
            }
            if is_new_name {
                offsets.names.push(entry.name);
                offsets.value_counts.push(0);
            }
            if is_new_name || sampled.count == STRIDE {
                sampled.close(section, &mut offsets.samples);
                offsets.first_values.push(entry.value);
                let entry_offset = section_offset + sampled.end as u64;
                let list_offset = entry.list_offset;
                offsets.samples.push(OffsetSample { entry_offset, list_offset, crc: 0 });
            }
            if let Some(count) = offsets.value_counts.last_mut() {
                *count += 1;
            }
            sampled.count += 1;
            sampled.end = cursor.offset();
            last = Some(key);
        }
        if let Some((_, value)) = last {
            offsets.last_values.push(value);
        }
        sampled.close(section, &mut offsets.samples);
        offsets.entries_end = section_offset + sampled.end as u64;
        Ok(offsets)
    }

    /// Label names, ascending.
    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter(|name| !name.is_empty())
    }

    /// Number of values of label `name`.
    #[must_use]
    pub fn value_count(&self, name: &str) -> usize {
        self.names.find(name).ok().and_then(|idx| self.value_counts.get(idx)).map_or(0, |n| *n as usize)
    }

    /// Range of the index with the entry of `name` = `value`; `None` if no series has that label. Both empty:
    /// the list of all series.
    #[must_use]
    pub fn range_of(&self, name: &str, value: &str) -> Option<OffsetRange> {
        let name_idx = self.names.find(name).ok()?;
        let samples = self.samples_of(name_idx);
        let after = self.first_values.partition_point(samples.clone(), |first| first <= value);
        if after == samples.start || self.last_values.get(name_idx)? < value {
            return None;
        }
        Some(self.range(after - 1..after))
    }

    /// Range of the index with all entries of `name` whose values start with `prefix`, and up to 62 others;
    /// `None` if there is no such value.
    #[must_use]
    pub fn range_of_prefix(&self, name: &str, prefix: &str) -> Option<OffsetRange> {
        let name_idx = self.names.find(name).ok()?;
        if self.last_values.get(name_idx)? < prefix {
            return None;
        }
        let samples = self.samples_of(name_idx);
        // The value before the first one of a sample may be the first with the prefix.
        let start = self.first_values.partition_point(samples.clone(), |first| first < prefix);
        let end = self
            .first_values
            .partition_point(start..samples.end, |first| first < prefix || first.starts_with(prefix));
        let start = start.saturating_sub(1).max(samples.start);
        (start < end).then(|| self.range(start..end))
    }

    /// Calls `visit` with each value of `bytes`, which are the bytes of the index at `range`, and the range
    /// in the index of its postings list, ascending, until it returns false.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of `bytes` if they are damaged or belong to another range; values of
    /// earlier samples have been visited.
    pub fn visit(
        &self,
        range: &OffsetRange,
        bytes: &[u8],
        visit: &mut dyn FnMut(&str, Range<u64>) -> bool,
    ) -> Result<(), DecodeError> {
        for idx in range.samples.clone() {
            let Some(sample) = self.samples.get(idx) else { break };
            let next = self.samples.get(idx + 1);
            let start = sample.entry_offset.saturating_sub(range.bytes.start);
            let end = next.map_or(self.entries_end, |next| next.entry_offset);
            let end = end.saturating_sub(range.bytes.start);
            let slice = slice_of(bytes, start, end)?;
            let found = crc32c(slice);
            if found != sample.crc {
                let offset = usize::try_from(start).unwrap_or(usize::MAX);
                return Err(DecodeError::Checksum { what: WHAT, offset, expected: sample.crc, found });
            }
            let list_end = next.map_or(self.lists_end, |next| next.list_offset);
            if !visit_entries(TableCursor::new(slice), list_end, visit)? {
                break;
            }
        }
        Ok(())
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let texts = [&self.names, &self.last_values, &self.first_values];
        let text_bytes: usize = texts.into_iter().map(Texts::heap_bytes).sum();
        text_bytes + self.value_counts.capacity() * 4 + self.samples.capacity() * size_of::<OffsetSample>()
    }

    fn samples_of(&self, name_idx: usize) -> Range<usize> {
        let count_of = |value_count: &u32| value_count.div_ceil(STRIDE) as usize;
        let start: usize = self.value_counts.iter().take(name_idx).map(count_of).sum();
        start..start + self.value_counts.get(name_idx).map_or(0, count_of)
    }

    fn range(&self, samples: Range<usize>) -> OffsetRange {
        let offset_of = |idx: usize| self.samples.get(idx).map_or(self.entries_end, |s| s.entry_offset);
        OffsetRange { bytes: offset_of(samples.start)..offset_of(samples.end), samples }
    }

    /// Appends the section.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut raw = Vec::new();
        put_uvarint(&mut raw, self.names.len() as u64);
        put_texts(self.names.iter(), &mut raw);
        put_texts(self.last_values.iter(), &mut raw);
        let mut counts = Vec::new();
        self.value_counts.iter().for_each(|count| put_uvarint(&mut counts, u64::from(*count)));
        put_column(&counts, &mut raw);
        put_texts(self.first_values.iter(), &mut raw);
        let mut entries = Vec::new();
        let mut lists = Vec::new();
        let mut sums = Vec::new();
        let mut last = OffsetSample { entry_offset: 0, list_offset: 0, crc: 0 };
        for sample in &self.samples {
            put_uvarint(&mut entries, sample.entry_offset - last.entry_offset);
            put_uvarint(&mut lists, sample.list_offset.wrapping_sub(last.list_offset));
            sums.extend_from_slice(&sample.crc.to_le_bytes());
            last = *sample;
        }
        put_column(&entries, &mut raw);
        put_column(&lists, &mut raw);
        put_column(&sums, &mut raw);
        put_uvarint(&mut raw, self.entries_end);
        put_uvarint(&mut raw, self.lists_end);
        put_packed(&raw, out);
    }

    /// Decodes the section.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the unpacked section, or of `bytes` if they could not be unpacked.
    pub fn decode(bytes: &[u8]) -> Result<SparseOffsets, DecodeError> {
        let mut raw = Vec::new();
        Unpacker::default().unpack(WHAT, bytes, RAW_BYTES_MAX, &mut raw)?;
        let mut reader = ByteReader::new(&raw);
        let name_count = reader.length(WHAT)?;
        let mut offsets = SparseOffsets::default();
        offsets.names.decode(WHAT, &mut reader, name_count)?;
        offsets.last_values.decode(WHAT, &mut reader, name_count)?;
        let mut counts = read_column(WHAT, &mut reader)?;
        let mut sample_count = 0usize;
        for _ in 0..name_count {
            let offset = counts.offset();
            let count = counts.uvarint(WHAT)?;
            let expected = "a number of values";
            let count = u32::try_from(count).ok().filter(|&count| count > 0).ok_or(DecodeError::Invalid {
                what: WHAT,
                offset,
                expected,
                found: count,
            })?;
            sample_count = sample_count.saturating_add(count.div_ceil(STRIDE) as usize);
            offsets.value_counts.push(count);
        }
        check_end(WHAT, &counts)?;
        // Reads a length per text, so a count beyond the bytes ends with an error.
        offsets.first_values.decode(WHAT, &mut reader, sample_count)?;
        offsets.read_samples(&mut reader, sample_count)?;
        check_end(WHAT, &reader)?;
        Ok(offsets)
    }

    fn read_samples(&mut self, reader: &mut ByteReader<'_>, count: usize) -> Result<(), DecodeError> {
        let mut entries = read_column(WHAT, reader)?;
        let mut lists = read_column(WHAT, reader)?;
        let mut sums = read_column(WHAT, reader)?;
        let at = reader.offset();
        self.entries_end = reader.uvarint(WHAT)?;
        self.lists_end = reader.uvarint(WHAT)?;
        let mut last = OffsetSample { entry_offset: 0, list_offset: 0, crc: 0 };
        for _ in 0..count {
            let entry_delta = entries.uvarint(WHAT)?;
            let entry_offset = last.entry_offset.checked_add(entry_delta);
            let Some(entry_offset) = entry_offset.filter(|&offset| offset <= self.entries_end) else {
                let expected = "ascending entries before the end of the table";
                return Err(DecodeError::Invalid { what: WHAT, offset: at, expected, found: entry_delta });
            };
            let list_offset = last.list_offset.wrapping_add(lists.uvarint(WHAT)?);
            last = OffsetSample { entry_offset, list_offset, crc: sums.le_u32(WHAT)? };
            self.samples.push(last);
        }
        check_end(WHAT, &entries)?;
        check_end(WHAT, &lists)?;
        check_end(WHAT, &sums)
    }
}

/// Entries of the sample that is being made.
#[derive(Default)]
struct Sampled {
    start: usize,
    end: usize,
    count: u32,
}

impl Sampled {
    /// Gives the last sample the checksum of its entries, and begins another one.
    fn close(&mut self, section: &[u8], samples: &mut [OffsetSample]) {
        if let Some(sample) = samples.last_mut() {
            sample.crc = crc32c(section.get(self.start..self.end).unwrap_or_default());
        }
        self.start = self.end;
        self.count = 0;
    }
}

fn slice_of(bytes: &[u8], start: u64, end: u64) -> Result<&[u8], DecodeError> {
    let as_idx = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let slice = bytes.get(as_idx(start)..as_idx(end));
    slice.ok_or(DecodeError::Short {
        what: WHAT,
        offset: as_idx(start),
        needed: as_idx(end.saturating_sub(start)),
        left: bytes.len().saturating_sub(as_idx(start)),
    })
}

/// Visits the entries of one sample; returns false if `visit` did.
fn visit_entries(
    mut cursor: TableCursor<'_>,
    lists_end: u64,
    visit: &mut dyn FnMut(&str, Range<u64>) -> bool,
) -> Result<bool, DecodeError> {
    let mut entry = cursor.next_entry()?;
    while let Some(found) = entry {
        entry = cursor.next_entry()?;
        let end = entry.map_or(lists_end, |next| next.list_offset);
        if !visit(found.value, found.list_offset..end.max(found.list_offset)) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
