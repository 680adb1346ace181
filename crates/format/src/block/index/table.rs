//! Postings offset table of an index: (label name, value) to the place of its postings list.
//!
//! Holds: names ascend; within a name the kept offsets ascend by value. A table in order (what every writer
//! since version 2 makes) keeps every [`STRIDE`]th value of a name, another one keeps all.
//! Memory: a name's text and 4 bytes for every kept value; values are read from the map.

use std::cmp::Ordering;

use chronolith_base::{ByteReader, DecodeError};

use super::{framed, text};

/// Every how many values of a name one is kept, as Prometheus does.
const STRIDE: usize = 32;

pub(super) struct PostingsTable {
    /// Where entries start and end in the file.
    start: usize,
    end: usize,
    names: Vec<NameEntries>,
}

struct NameEntries {
    name: Box<str>,
    /// Relative to the table's start.
    kept: Vec<u32>,
    value_count: usize,
    /// `STRIDE`, or 1 when the file is not in order.
    stride: usize,
}

/// One entry as it stands in the file.
struct Entry<'a> {
    name: &'a str,
    value: &'a str,
    offset: u64,
}

fn entry<'a>(r: &mut ByteReader<'a>) -> Result<Entry<'a>, DecodeError> {
    let at = r.offset();
    let found = r.uvarint("postings table key count")?;
    if found != 2 {
        let what = "postings table key count";
        return Err(DecodeError::Invalid { what, offset: at, expected: "2", found });
    }
    let name = text(r, "postings table label name")?;
    let value = text(r, "postings table label value")?;
    let offset = r.uvarint("postings table offset")?;
    Ok(Entry { name, value, offset })
}

impl PostingsTable {
    /// Cost: one pass over the table.
    pub(super) fn open(bytes: &[u8], offset: u64) -> Result<PostingsTable, DecodeError> {
        let mut r = framed(bytes, offset, "postings offset table")?;
        let count = r.be_u32("postings table entry count")? as usize;
        let start = r.offset();
        let mut table = PostingsTable { start, end: start + r.remaining(), names: Vec::new() };
        if table.scan_ordered(&mut r.clone(), count)? == Order::Broken {
            table.names.clear();
            table.scan_unordered(&mut r, bytes, count)?;
        }
        Ok(table)
    }

    fn scan_ordered(&mut self, r: &mut ByteReader<'_>, count: usize) -> Result<Order, DecodeError> {
        let mut last: Option<(&str, &str)> = None;
        for _ in 0..count {
            let at = self.relative(r.offset());
            let entry = entry(r)?;
            let key = (entry.name, entry.value);
            if last.is_some_and(|last| last >= key) {
                return Ok(Order::Broken);
            }
            if last.is_none_or(|(name, _)| name != entry.name) {
                self.names.push(NameEntries::new(entry.name, STRIDE));
            }
            if let Some(name) = self.names.last_mut() {
                if name.value_count.is_multiple_of(STRIDE) {
                    name.kept.push(at);
                }
                name.value_count += 1;
            }
            last = Some(key);
        }
        Ok(Order::Kept)
    }

    fn scan_unordered(
        &mut self,
        r: &mut ByteReader<'_>,
        bytes: &[u8],
        count: usize,
    ) -> Result<(), DecodeError> {
        let start = r.offset();
        let mut kept = Vec::new();
        for _ in 0..count {
            kept.push(self.relative(r.offset()));
            entry(r)?;
        }
        // Every entry was just read, so reading it again cannot fail.
        let key = |at: &u32| {
            let entry = self.entry_at(bytes, *at).ok().map(|(e, _)| (e.name, e.value));
            entry.unwrap_or_default()
        };
        kept.sort_by(|a, b| key(a).cmp(&key(b)));
        if kept.windows(2).any(|w| matches!(w, [a, b] if key(a) == key(b))) {
            let (what, expected) = ("postings offset table", "each label pair once");
            return Err(DecodeError::Invalid { what, offset: start, expected, found: count as u64 });
        }
        let mut names: Vec<NameEntries> = Vec::new();
        for at in &kept {
            let (name, _) = key(at);
            if names.last().is_none_or(|last| *last.name != *name) {
                names.push(NameEntries::new(name, 1));
            }
            if let Some(last) = names.last_mut() {
                last.kept.push(*at);
                last.value_count += 1;
            }
        }
        self.names = names;
        Ok(())
    }

    fn relative(&self, offset: usize) -> u32 {
        // A section's length is a u32 on disk.
        u32::try_from(offset - self.start).unwrap_or(u32::MAX)
    }

    fn entry_at<'a>(&self, bytes: &'a [u8], at: u32) -> Result<(Entry<'a>, ByteReader<'a>), DecodeError> {
        let table = bytes.get(..self.end).unwrap_or_default();
        let mut r = ByteReader::at(table, self.start + at as usize);
        Ok((entry(&mut r)?, r))
    }

    fn name(&self, name: &str) -> Option<&NameEntries> {
        let found = self.names.binary_search_by(|n| (*n.name).cmp(name)).ok()?;
        self.names.get(found)
    }

    /// Label names, ascending, without the empty one under which all series stand.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|n| &*n.name).filter(|n| !n.is_empty())
    }

    /// Number of values of `name`.
    pub(super) fn value_count(&self, name: &str) -> usize {
        self.name(name).map_or(0, |n| n.value_count)
    }

    /// Index into `kept` of the last kept value that is at most `value`.
    fn floor(&self, bytes: &[u8], entries: &NameEntries, value: &str) -> Result<Option<usize>, DecodeError> {
        let (mut low, mut high) = (0, entries.kept.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(at) = entries.kept.get(middle) else { break };
            if self.entry_at(bytes, *at)?.0.value <= value {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1))
    }

    /// Offset of the postings list of `name` = `value`.
    pub(super) fn find(&self, bytes: &[u8], name: &str, value: &str) -> Result<Option<u64>, DecodeError> {
        let mut found = None;
        self.visit_from(bytes, name, value, &mut |v, offset| {
            if v == value {
                found = Some(offset);
            }
            v.cmp(value) == Ordering::Less
        })?;
        Ok(found)
    }

    /// Calls `visit` with values of `name` and the offsets of their lists, ascending, from at the latest the
    /// first value that is at least `from`, until it returns false.
    pub(super) fn visit_from(
        &self,
        bytes: &[u8],
        name: &str,
        from: &str,
        visit: &mut dyn FnMut(&str, u64) -> bool,
    ) -> Result<(), DecodeError> {
        let Some(entries) = self.name(name) else { return Ok(()) };
        let first = self.floor(bytes, entries, from)?.unwrap_or(0);
        let mut value_idx = first * entries.stride;
        for at in entries.kept.iter().skip(first) {
            let (mut entry_now, mut r) = self.entry_at(bytes, *at)?;
            let stride_end = (value_idx + entries.stride).min(entries.value_count);
            loop {
                if !visit(entry_now.value, entry_now.offset) {
                    return Ok(());
                }
                value_idx += 1;
                if value_idx >= stride_end {
                    break;
                }
                entry_now = entry(&mut r)?;
            }
        }
        Ok(())
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let one = |n: &NameEntries| n.name.len() + n.kept.capacity() * 4 + size_of::<NameEntries>();
        self.names.iter().map(one).sum()
    }
}

impl NameEntries {
    fn new(name: &str, stride: usize) -> NameEntries {
        NameEntries { name: Box::from(name), kept: Vec::new(), value_count: 0, stride }
    }
}

#[derive(PartialEq, Eq)]
enum Order {
    Kept,
    Broken,
}
