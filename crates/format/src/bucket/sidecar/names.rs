//! Metric directory: the values of `__name__`, each with the runs of series that have it. Small directories
//! are part of the head; large ones are cut into name pages, of which the head has the first names.
//!
//! Invariants: names ascend; runs of a name ascend and do not overlap; every run lies within the series of
//! the block. Series without a name have the empty name.

use std::ops::Range;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::hash::HashMap;
use chronolith_base::{ByteReader, DecodeError};

use super::super::packed::{Unpacker, put_packed};
use super::super::texts::{Texts, check_end, put_column, put_texts, read_column};

/// Unpacked bytes of a directory that is part of the head.
const INLINE_BYTES_MAX: usize = 32 << 10;
/// Unpacked bytes at which a name page ends.
const NAME_PAGE_BYTES_TARGET: usize = 32 << 10;
/// Unpacked bytes of a name page. One name with its runs may be longer than the target.
pub(super) const NAME_PAGE_BYTES_MAX: usize = 64 << 20;

const WHAT: &str = "metric directory";

/// Consecutive series with one metric name, by ordinals in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesRun {
    /// Ordinal of the first series.
    pub first: u32,
    /// Number of series, at least one.
    pub count: u32,
}

impl SeriesRun {
    /// Ordinals of the run.
    #[must_use]
    pub fn ordinals(self) -> Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// Metric names with their runs: the whole directory, or one name page of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList {
    names: Texts,
    runs: Vec<SeriesRun>,
    run_ends: Vec<u32>,
}

impl NameList {
    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.len() == 0
    }

    /// Runs of the series with metric name `name`, ascending; empty if it is not in the list.
    #[must_use]
    pub fn runs(&self, name: &str) -> &[SeriesRun] {
        self.names.find(name).map_or(&[], |idx| self.runs_at(idx))
    }

    /// Names and their runs, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[SeriesRun])> {
        self.names.iter().enumerate().map(|(idx, name)| (name, self.runs_at(idx)))
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let run_bytes = self.runs.capacity() * size_of::<SeriesRun>();
        self.names.heap_bytes() + run_bytes + self.run_ends.capacity() * size_of::<u32>()
    }

    fn runs_at(&self, idx: usize) -> &[SeriesRun] {
        let end = self.run_ends.get(idx).map_or(0, |end| *end as usize);
        let before = idx.checked_sub(1).and_then(|before| self.run_ends.get(before));
        self.runs.get(before.map_or(0, |start| *start as usize)..end).unwrap_or_default()
    }

    /// Reads a list; `series_count` is the number of series in the block.
    pub(super) fn decode(reader: &mut ByteReader<'_>, series_count: u32) -> Result<NameList, DecodeError> {
        let count = reader.length(WHAT)?;
        let mut list = NameList::default();
        list.names.decode(WHAT, reader, count)?;
        let offset = reader.offset();
        if !list.names.iter().zip(list.names.iter().skip(1)).all(|(a, b)| a < b) {
            let expected = "ascending names";
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: count as u64 });
        }
        let mut runs = read_column(WHAT, reader)?;
        let mut end_before = 0;
        for _ in 0..count {
            end_before = list.read_runs(&mut runs, end_before, series_count)?;
        }
        check_end(WHAT, &runs)?;
        Ok(list)
    }

    /// Reads the runs of the next name; returns the end of the last one.
    fn read_runs(
        &mut self,
        reader: &mut ByteReader<'_>,
        end_before: u32,
        series_count: u32,
    ) -> Result<u32, DecodeError> {
        let run_count = reader.length(WHAT)?;
        let mut end = end_before;
        for idx in 0..run_count {
            let offset = reader.offset();
            let first = i64::from(end).checked_add(reader.varint(WHAT)?);
            let first = first.and_then(|first| u32::try_from(first).ok()).filter(|&f| idx == 0 || f >= end);
            let count = reader.uvarint(WHAT)?;
            let count_u32 = u32::try_from(count).ok().filter(|&count| count > 0);
            let run_end = first.zip(count_u32).and_then(|(first, count)| first.checked_add(count));
            let (Some(first), Some(run_end)) = (first, run_end.filter(|&end| end <= series_count)) else {
                let expected = "ascending series of the block";
                return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: count });
            };
            self.runs.push(SeriesRun { first, count: run_end - first });
            end = run_end;
        }
        self.run_ends.push(u32::try_from(self.runs.len()).unwrap_or(u32::MAX));
        Ok(end)
    }
}

/// Row of the head about one name page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePage {
    /// Names of the page and of later ones are at least this text; names of earlier pages are below it.
    pub first: Box<str>,
    /// Offset in the sidecar.
    pub offset: u64,
    /// Bytes in the sidecar.
    pub len: u32,
}

impl NamePage {
    /// Decodes the page, whose bytes in the sidecar are `bytes`; `series_count` is the number of series in
    /// the block.
    ///
    /// # Errors
    /// [`DecodeError`] with an offset of the unpacked page, or of `bytes` if they could not be unpacked.
    pub fn decode(
        &self,
        bytes: &[u8],
        series_count: u32,
        unpacker: &mut Unpacker,
    ) -> Result<NameList, DecodeError> {
        let mut raw = Vec::new();
        unpacker.unpack(WHAT, bytes, NAME_PAGE_BYTES_MAX, &mut raw)?;
        let mut reader = ByteReader::new(&raw);
        let list = NameList::decode(&mut reader, series_count)?;
        check_end(WHAT, &reader)?;
        if list.names.get(0).is_none_or(|name| name < &*self.first) {
            let expected = "the names that the head announces";
            return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found: list.len() as u64 });
        }
        Ok(list)
    }
}

/// Metric directory as the head has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directory {
    /// All names of the block.
    Inline(NameList),
    /// The name pages to read, by name.
    Paged(Vec<NamePage>),
}

impl Directory {
    /// Returns the name page that has `name` if the block has it; `None` if there is no such page, or if the
    /// whole directory is part of the head.
    #[must_use]
    pub fn page_of(&self, name: &str) -> Option<&NamePage> {
        let Directory::Paged(pages) = self else { return None };
        let after = pages.partition_point(|page| &*page.first <= name);
        pages.get(after.checked_sub(1)?)
    }
}

/// A directory in the making.
/// Memory: each name once, 12 bytes per run.
#[derive(Default)]
pub(super) struct NamesBuilder {
    names: HashMap<Box<str>, u32>,
    runs: Vec<NamedRun>,
}

struct NamedRun {
    name_idx: u32,
    run: SeriesRun,
}

impl NamesBuilder {
    /// Records that series `ordinal` has `name`; ordinals come in order.
    pub(super) fn push(&mut self, name: &str, ordinal: u32) {
        let name_idx = match self.names.get(name) {
            Some(idx) => *idx,
            None => {
                let idx = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                self.names.insert(name.into(), idx);
                idx
            }
        };
        match self.runs.last_mut() {
            Some(last) if last.name_idx == name_idx && last.run.ordinals().end == ordinal => {
                last.run.count += 1;
            }
            _ => self.runs.push(NamedRun { name_idx, run: SeriesRun { first: ordinal, count: 1 } }),
        }
    }

    /// Writes the directory: appends what the head has of it to `head`, and passes name pages to `put_page`,
    /// which returns the offset of each.
    pub(super) fn finish(mut self, head: &mut Vec<u8>, put_page: &mut dyn FnMut(&[u8]) -> u64) {
        let mut sorted: Vec<(Box<str>, u32)> = self.names.into_iter().collect();
        sorted.sort_unstable();
        let mut ranks = vec![0u32; sorted.len()];
        for (rank, (_, idx)) in (0u32..).zip(&sorted) {
            ranks[*idx as usize] = rank;
        }
        for run in &mut self.runs {
            run.name_idx = ranks[run.name_idx as usize];
        }
        self.runs.sort_unstable_by_key(|run| (run.name_idx, run.run.first));
        let mut pages = cut_pages(&sorted, &self.runs);
        if let [page] = pages.as_slice()
            && page.raw.len() <= INLINE_BYTES_MAX
        {
            head.push(KIND_INLINE);
            head.extend_from_slice(&page.raw);
            return;
        }
        head.push(KIND_PAGED);
        put_uvarint(head, pages.len() as u64);
        put_texts(pages.iter().map(|page| &*page.first), head);
        let mut packed = Vec::new();
        let mut lens = Vec::new();
        let mut first_offset = None;
        for page in pages.drain(..) {
            packed.clear();
            put_packed(&page.raw, &mut packed);
            let offset = put_page(&packed);
            first_offset.get_or_insert(offset);
            put_uvarint(&mut lens, packed.len() as u64);
        }
        put_uvarint(head, first_offset.unwrap_or(0));
        put_column(&lens, head);
    }
}

const KIND_INLINE: u8 = 0;
const KIND_PAGED: u8 = 1;

/// Reads the directory of a head.
pub(super) fn read_directory(
    reader: &mut ByteReader<'_>,
    series_count: u32,
) -> Result<Directory, DecodeError> {
    let offset = reader.offset();
    match reader.u8(WHAT)? {
        KIND_INLINE => Ok(Directory::Inline(NameList::decode(reader, series_count)?)),
        KIND_PAGED => read_pages(reader),
        kind => {
            let expected = "directory kind 0 or 1";
            Err(DecodeError::Invalid { what: WHAT, offset, expected, found: u64::from(kind) })
        }
    }
}

fn read_pages(reader: &mut ByteReader<'_>) -> Result<Directory, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut firsts = Texts::default();
    firsts.decode(WHAT, reader, count)?;
    let at = reader.offset();
    let mut offset = reader.uvarint(WHAT)?;
    let mut lens = read_column(WHAT, reader)?;
    let mut pages: Vec<NamePage> = Vec::with_capacity(count);
    for first in firsts.iter() {
        let len = lens.uvarint(WHAT)?;
        let end = offset.checked_add(len);
        let is_ascending = pages.last().is_none_or(|last| &*last.first < first);
        let (Ok(len), Some(end), true) = (u32::try_from(len), end, is_ascending) else {
            let expected = "ascending name pages within the file";
            return Err(DecodeError::Invalid { what: WHAT, offset: at, expected, found: len });
        };
        pages.push(NamePage { first: first.into(), offset, len });
        offset = end;
    }
    check_end(WHAT, &lens)?;
    Ok(Directory::Paged(pages))
}

/// A name page that is not packed yet.
struct RawPage {
    /// Shortest text that separates its names from the names of the page before.
    first: Box<str>,
    raw: Vec<u8>,
}

/// Cuts a directory into pages; `runs` are sorted by the position of their name in `names`.
fn cut_pages(names: &[(Box<str>, u32)], runs: &[NamedRun]) -> Vec<RawPage> {
    let mut pages = Vec::new();
    let mut run_column = Vec::new();
    let mut page_start = 0;
    let mut text_bytes = 0;
    let mut end_before = 0;
    let mut rest = runs;
    for (idx, (name, _)) in names.iter().enumerate() {
        let run_count = rest.partition_point(|run| run.name_idx as usize <= idx);
        let (of_name, others) = rest.split_at(run_count);
        rest = others;
        end_before = put_runs(of_name, end_before, &mut run_column);
        text_bytes += shared_rest(names.get(idx.wrapping_sub(1)), name) + 2;
        let is_last = idx + 1 == names.len();
        if is_last || run_column.len() + text_bytes >= NAME_PAGE_BYTES_TARGET {
            pages.push(raw_page(names, page_start..idx + 1, &run_column));
            run_column.clear();
            page_start = idx + 1;
            text_bytes = 0;
            end_before = 0;
        }
    }
    if pages.is_empty() {
        pages.push(raw_page(names, 0..0, &run_column));
    }
    pages
}

/// Bytes of `name` that the name before does not have at its start.
fn shared_rest(before: Option<&(Box<str>, u32)>, name: &str) -> usize {
    let before = before.map_or("", |(name, _)| name);
    name.len() - before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count()
}

/// Appends the runs of one name; returns the end of the last one.
fn put_runs(runs: &[NamedRun], end_before: u32, out: &mut Vec<u8>) -> u32 {
    let mut end = end_before;
    put_uvarint(out, runs.len() as u64);
    for NamedRun { run, .. } in runs {
        put_varint(out, i64::from(run.first) - i64::from(end));
        put_uvarint(out, u64::from(run.count));
        end = run.ordinals().end;
    }
    end
}

fn raw_page(names: &[(Box<str>, u32)], range: Range<usize>, run_column: &[u8]) -> RawPage {
    let before = range.start.checked_sub(1).and_then(|before| names.get(before));
    let first = names.get(range.start).map_or("", |(name, _)| name);
    let first = before.map_or("", |(before, _)| separator(before, first));
    let names = &names[range];
    let mut raw = Vec::new();
    put_uvarint(&mut raw, names.len() as u64);
    put_texts(names.iter().map(|(name, _)| &**name), &mut raw);
    put_column(run_column, &mut raw);
    RawPage { first: first.into(), raw }
}

/// Shortest prefix of `name` that is greater than `before`, which is less than `name`.
fn separator<'a>(before: &str, name: &'a str) -> &'a str {
    let shared = before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    let end = (shared + 1..=name.len()).find(|end| name.is_char_boundary(*end));
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

#[cfg(test)]
mod tests;
