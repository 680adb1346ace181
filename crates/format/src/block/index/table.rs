//! Postings offset table of an index: (label name, value) to the position of its postings list.
//!
//! Invariants: names ascend; within a name the sampled offsets ascend by value. An ordered table (which every
//! writer since version 2 makes) has every [`STRIDE`]th value of a name sampled, another one has all.
//! Memory: a name's text and 4 bytes for every sampled value; values stay in the bytes of the section.

use std::cmp::Ordering;
use std::ops::Range;

use chronolith_base::{ByteReader, DecodeError};

use super::frame::{framed, text};
use super::section::SectionBytes;
use crate::block::file_offset::in_file;

/// Every how many values of a name one is sampled, as Prometheus does.
const STRIDE: usize = 32;
/// Bytes that a list is taken to have if the table does not tell where the next one starts.
const LIST_BYTES_ESTIMATE: u64 = 4096;

pub(super) struct PostingsTable {
    section: SectionBytes,
    /// Entries, within the bytes of the section.
    entries: Range<usize>,
    /// File offset of the end of the last list, by the table of contents.
    lists_end: u64,
    is_ordered: bool,
    names: Vec<NameEntries>,
}

struct NameEntries {
    name: Box<str>,
    /// Offsets of sampled entries, relative to the first entry.
    samples: Vec<u32>,
    value_count: usize,
}

/// One entry of the table.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
    pub(crate) list_offset: u64,
}

fn read_entry<'a>(r: &mut ByteReader<'a>) -> Result<Entry<'a>, DecodeError> {
    let at = r.offset();
    let found = r.uvarint("postings table key count")?;
    if found != 2 {
        let what = "postings table key count";
        return Err(DecodeError::Invalid { what, offset: at, expected: "2", found });
    }
    let name = text(r, "postings table label name")?;
    let value = text(r, "postings table label value")?;
    let list_offset = r.uvarint("postings table offset")?;
    Ok(Entry { name, value, list_offset })
}

/// Reads consecutive entries: of a whole table, or of a part of one.
pub(crate) struct TableCursor<'a> {
    reader: ByteReader<'a>,
    /// Entries that are left; `None` if they end with the bytes.
    left: Option<u32>,
}

impl<'a> TableCursor<'a> {
    /// All entries of `entries`, a part of a table.
    pub(crate) fn new(entries: &'a [u8]) -> TableCursor<'a> {
        TableCursor { reader: ByteReader::new(entries), left: None }
    }

    /// Offset of the next entry in the slice.
    pub(crate) fn offset(&self) -> usize {
        self.reader.offset()
    }

    /// Returns the next entry; `None` at the end.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry<'a>>, DecodeError> {
        match &mut self.left {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None if self.reader.is_empty() => return Ok(None),
            None => {}
        }
        read_entry(&mut self.reader).map(Some)
    }
}

/// Returns a cursor over all entries of the table that `section` begins with, its checksum verified; offsets
/// are relative to `section`.
pub(crate) fn table_entries(section: &[u8]) -> Result<TableCursor<'_>, DecodeError> {
    let mut reader = framed(section, 0, "postings offset table")?;
    let count = reader.be_u32("postings table entry count")?;
    Ok(TableCursor { reader, left: Some(count) })
}

impl PostingsTable {
    /// Verifies the table at `offset` of the file. Cost: one pass over it.
    pub(super) fn open(
        section: SectionBytes,
        offset: u64,
        lists_end: u64,
    ) -> Result<PostingsTable, DecodeError> {
        let file_offset = section.file_offset();
        PostingsTable::scan(section, offset, lists_end).map_err(|error| in_file(error, file_offset))
    }

    fn scan(section: SectionBytes, offset: u64, lists_end: u64) -> Result<PostingsTable, DecodeError> {
        let mut r = framed(section.bytes(), section.idx_of(offset), "postings offset table")?;
        let count = r.be_u32("postings table entry count")? as usize;
        let entries = r.offset()..r.offset() + r.remaining();
        let ordered = scan_ordered(&mut r.clone(), count)?;
        let is_ordered = ordered.is_some();
        let names = match ordered {
            Some(names) => names,
            None => scan_unordered(&mut r, section.get(entries.clone()), count)?,
        };
        Ok(PostingsTable { section, entries, lists_end, is_ordered, names })
    }

    /// A reader of the entries from the one at `sample` on.
    fn reader(&self, sample: u32) -> ByteReader<'_> {
        ByteReader::at(self.section.get(0..self.entries.end), self.entries.start + sample as usize)
    }

    fn name(&self, name: &str) -> Option<&NameEntries> {
        let found = self.names.binary_search_by(|n| (*n.name).cmp(name)).ok()?;
        self.names.get(found)
    }

    /// Label names, ascending, without the empty one that leads to the list of all series.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|n| &*n.name).filter(|n| !n.is_empty())
    }

    /// Number of values of `name`.
    pub(super) fn value_count(&self, name: &str) -> usize {
        self.name(name).map_or(0, |n| n.value_count)
    }

    /// Index of the last sampled entry whose value is at most `value`.
    fn floor(&self, entries: &NameEntries, value: &str) -> Result<Option<usize>, DecodeError> {
        let (mut low, mut high) = (0, entries.samples.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(sample) = entries.samples.get(middle) else { break };
            if read_entry(&mut self.reader(*sample))?.value <= value {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1))
    }

    /// Range in the file of the postings list of `name` = `value`; see [`PostingsTable::visit_from`].
    pub(super) fn find(&self, name: &str, value: &str) -> Result<Option<Range<u64>>, DecodeError> {
        let Some(entries) = self.name(name) else { return Ok(None) };
        self.find_value(entries, value).map_err(|error| in_file(error, self.section.file_offset()))
    }

    fn find_value(&self, entries: &NameEntries, value: &str) -> Result<Option<Range<u64>>, DecodeError> {
        let Some(first) = self.floor(entries, value)? else { return Ok(None) };
        let Some(sample) = entries.samples.get(first) else { return Ok(None) };
        let mut r = self.reader(*sample);
        let entry_count = if self.is_ordered { entries.value_count - first * STRIDE } else { 1 };
        for _ in 0..entry_count.min(STRIDE) {
            let entry = read_entry(&mut r)?;
            match entry.value.cmp(value) {
                Ordering::Less => {}
                Ordering::Greater => break,
                Ordering::Equal if !self.is_ordered => return Ok(Some(list_range(entry.list_offset, 0))),
                Ordering::Equal if r.is_empty() => {
                    return Ok(Some(list_range(entry.list_offset, self.lists_end)));
                }
                Ordering::Equal => {
                    return Ok(Some(list_range(entry.list_offset, read_entry(&mut r)?.list_offset)));
                }
            }
        }
        Ok(None)
    }

    /// Calls `visit` with values of `name` and the ranges of their lists, ascending, from at the latest the
    /// first value that is at least `from`, until it returns false. A range ends where the next list of the
    /// table starts, else it is an estimate.
    pub(super) fn visit_from(
        &self,
        name: &str,
        from: &str,
        visit: &mut dyn FnMut(&str, Range<u64>) -> bool,
    ) -> Result<(), DecodeError> {
        let Some(entries) = self.name(name) else { return Ok(()) };
        let visited = self.floor(entries, from).and_then(|floor| {
            let first = floor.unwrap_or(0);
            match self.is_ordered {
                true => self.visit_ordered(entries, first, visit),
                false => self.visit_unordered(entries, first, visit),
            }
        });
        visited.map_err(|error| in_file(error, self.section.file_offset()))
    }

    /// Visits entries of an ordered table, in which entries are grouped by name.
    fn visit_ordered(
        &self,
        entries: &NameEntries,
        first: usize,
        visit: &mut dyn FnMut(&str, Range<u64>) -> bool,
    ) -> Result<(), DecodeError> {
        let Some(sample) = entries.samples.get(first) else { return Ok(()) };
        let mut r = self.reader(*sample);
        let mut entry = read_entry(&mut r)?;
        for _ in first * STRIDE..entries.value_count {
            let next = if r.is_empty() { None } else { Some(read_entry(&mut r)?) };
            let end = next.map_or(self.lists_end, |next| next.list_offset);
            if !visit(entry.value, list_range(entry.list_offset, end)) {
                break;
            }
            let Some(next) = next else { break };
            entry = next;
        }
        Ok(())
    }

    fn visit_unordered(
        &self,
        entries: &NameEntries,
        first: usize,
        visit: &mut dyn FnMut(&str, Range<u64>) -> bool,
    ) -> Result<(), DecodeError> {
        for sample in entries.samples.iter().skip(first) {
            let entry = read_entry(&mut self.reader(*sample))?;
            if !visit(entry.value, list_range(entry.list_offset, 0)) {
                break;
            }
        }
        Ok(())
    }

    /// Bytes on the heap, without the bytes of the file.
    pub(super) fn heap_bytes(&self) -> usize {
        let one = |n: &NameEntries| n.name.len() + n.samples.capacity() * 4 + size_of::<NameEntries>();
        self.names.iter().map(one).sum()
    }
}

fn list_range(start: u64, end: u64) -> Range<u64> {
    if end > start { start..end } else { start..start.saturating_add(LIST_BYTES_ESTIMATE) }
}

/// Samples the entries of an ordered table; `None` if it is not ordered.
fn scan_ordered(r: &mut ByteReader<'_>, count: usize) -> Result<Option<Vec<NameEntries>>, DecodeError> {
    let start = r.offset();
    let mut names: Vec<NameEntries> = Vec::new();
    let mut last: Option<(&str, &str)> = None;
    for _ in 0..count {
        let sample = relative(start, r);
        let entry = read_entry(r)?;
        let key = (entry.name, entry.value);
        if last.is_some_and(|last| last >= key) {
            return Ok(None);
        }
        if last.is_none_or(|(name, _)| name != entry.name) {
            names.push(NameEntries::new(entry.name));
        }
        if let Some(name) = names.last_mut() {
            if name.value_count.is_multiple_of(STRIDE) {
                name.samples.push(sample);
            }
            name.value_count += 1;
        }
        last = Some(key);
    }
    Ok(Some(names))
}

/// Samples all entries of a table, whose bytes are `table`, and sorts them.
fn scan_unordered(
    r: &mut ByteReader<'_>,
    table: &[u8],
    count: usize,
) -> Result<Vec<NameEntries>, DecodeError> {
    let start = r.offset();
    let mut samples = Vec::new();
    for _ in 0..count {
        samples.push(relative(start, r));
        read_entry(r)?;
    }
    // Every entry was just read, so reading it again cannot fail.
    let key = |sample: &u32| {
        let entry = read_entry(&mut ByteReader::at(table, *sample as usize)).ok();
        entry.map(|entry| (entry.name, entry.value)).unwrap_or_default()
    };
    samples.sort_by(|a, b| key(a).cmp(&key(b)));
    if samples.windows(2).any(|w| matches!(w, [a, b] if key(a) == key(b))) {
        let (what, expected) = ("postings offset table", "each label pair once");
        return Err(DecodeError::Invalid { what, offset: start, expected, found: count as u64 });
    }
    let mut names: Vec<NameEntries> = Vec::new();
    for sample in &samples {
        let (name, _) = key(sample);
        if names.last().is_none_or(|last| *last.name != *name) {
            names.push(NameEntries::new(name));
        }
        if let Some(last) = names.last_mut() {
            last.samples.push(*sample);
            last.value_count += 1;
        }
    }
    Ok(names)
}

fn relative(start: usize, r: &ByteReader<'_>) -> u32 {
    // A section's length is a u32 on disk.
    u32::try_from(r.offset() - start).unwrap_or(u32::MAX)
}

impl NameEntries {
    fn new(name: &str) -> NameEntries {
        NameEntries { name: Box::from(name), samples: Vec::new(), value_count: 0 }
    }
}
