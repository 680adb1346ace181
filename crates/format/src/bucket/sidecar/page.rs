//! Series page: consecutive series of a block with labels in full, and position and exact length of each
//! chunk, as columns (`docs/bucket/sidecar.md`).
//!
//! Invariants: the checksum of a page is verified before its content is decoded; a page has at most
//! [`PAGE_RAW_BYTES_MAX`] unpacked bytes, of which a chunk takes at least one, and at most 1 Mi labels.
//! Memory: 8 bytes per label, 32 per chunk, 12 per series and each distinct text of the page once.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::Labels;

use super::super::packed::Unpacker;
use super::super::texts::{Texts, check_end, read_column};
use crate::block::chunks::ChunkRef;
use crate::block::index::ChunkMeta;

/// Bytes of an unpacked page. A page of one series is as long as that series, others end much earlier.
pub const PAGE_RAW_BYTES_MAX: usize = 32 << 20;
/// Labels of all series of a page.
pub(super) const PAGE_LABELS_MAX: usize = 1 << 20;

const WHAT: &str = "series page";

/// Two bits of a chunk mode: source of the times of a series.
const TIMES_MASK: u8 = 3;
/// Number and times of the chunks equal the previous series'.
pub(super) const TIMES_SAME: u8 = 0;
/// The same, all times shifted by one distance.
pub(super) const TIMES_SHIFTED: u8 = 1;
pub(super) const TIMES_EXPLICIT: u8 = 2;
/// The first chunk starts where the last chunk of the series before ends.
pub(super) const FIRST_FOLLOWS: u8 = 4;
/// Each other chunk starts where the one before it ends.
pub(super) const OTHERS_FOLLOW: u8 = 8;
const MODE_BITS: u8 = TIMES_MASK | FIRST_FOLLOWS | OTHERS_FOLLOW;

/// A chunk of a series and its length in the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedChunk {
    /// Times and position.
    pub meta: ChunkMeta,
    /// Bytes of the whole frame: length, encoding, data and checksum.
    pub len: u32,
}

/// Row of the page table: where a page lies, and what its series cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEntry {
    /// Offset in the sidecar.
    pub offset: u64,
    /// Bytes in the sidecar.
    pub len: u32,
    /// Ordinal in the block of the first series.
    pub first_ordinal: u32,
    /// Number of series, at least one.
    pub series_count: u32,
    /// Ref in the index of the first series.
    pub first_ref: u32,
    /// First time of all chunks; `i64::MAX` without chunks.
    pub min_time: i64,
    /// Last time of all chunks, included; `i64::MIN` without chunks.
    pub max_time: i64,
}

/// A label as indices into the texts of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LabelIdx {
    pub(super) name: u32,
    pub(super) value: u32,
}

/// A series, and the ends of its labels and chunks in the labels and chunks of the page.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeriesEnds {
    pub(super) series_ref: u32,
    pub(super) labels_end: u32,
    pub(super) chunks_end: u32,
}

/// A decoded page; reused from page to page.
#[derive(Default)]
pub struct SeriesPage {
    texts: Texts,
    series: Vec<SeriesEnds>,
    labels: Vec<LabelIdx>,
    chunks: Vec<SizedChunk>,
    scratch: Scratch,
}

/// Memory of decoding that is kept for the next page.
#[derive(Default)]
struct Scratch {
    unpacker: Unpacker,
    raw: Vec<u8>,
    /// Names of the label sets, one set after the other.
    shape_names: Vec<u32>,
    shape_ends: Vec<usize>,
    /// The last value of each label name.
    last_values: Vec<u32>,
}

/// A series of a decoded page.
#[derive(Clone, Copy)]
pub struct PageSeries<'a> {
    /// Ref in the index of the block.
    pub series_ref: u32,
    /// Chunks of the series, in the order of the index.
    pub chunks: &'a [SizedChunk],
    texts: &'a Texts,
    labels: &'a [LabelIdx],
}

impl<'a> PageSeries<'a> {
    /// Label pairs, in order of name. Cost: no allocation, no copy.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let texts = self.texts;
        let text = move |idx: u32| texts.get(idx as usize).unwrap_or_default();
        self.labels.iter().map(move |label| (text(label.name), text(label.value)))
    }

    /// The label set; one allocation and some scratch memory.
    #[must_use]
    pub fn labels(&self) -> Labels {
        Labels::from_pairs(self.pairs())
    }
}

impl SeriesPage {
    /// A page without series.
    #[must_use]
    pub fn new() -> SeriesPage {
        SeriesPage::default()
    }

    /// Number of series.
    #[must_use]
    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    /// The series at `idx` of the page, counted from 0.
    #[must_use]
    pub fn series(&self, idx: usize) -> Option<PageSeries<'_>> {
        let ends = self.series.get(idx)?;
        let before = idx.checked_sub(1).and_then(|before| self.series.get(before));
        let labels_start = before.map_or(0, |before| before.labels_end as usize);
        let chunks_start = before.map_or(0, |before| before.chunks_end as usize);
        Some(PageSeries {
            series_ref: ends.series_ref,
            chunks: self.chunks.get(chunks_start..ends.chunks_end as usize)?,
            texts: &self.texts,
            labels: self.labels.get(labels_start..ends.labels_end as usize)?,
        })
    }

    /// All series, by ref.
    pub fn iter(&self) -> impl Iterator<Item = PageSeries<'_>> {
        (0..self.series.len()).filter_map(|idx| self.series(idx))
    }

    /// Index within the page of the series `series_ref`.
    #[must_use]
    pub fn idx_of_ref(&self, series_ref: u32) -> Option<usize> {
        self.series.binary_search_by_key(&series_ref, |ends| ends.series_ref).ok()
    }

    /// Memory of the page and of the buffers that the next page uses again.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.texts.heap_bytes()
            + self.series.capacity() * size_of::<SeriesEnds>()
            + self.labels.capacity() * size_of::<LabelIdx>()
            + self.chunks.capacity() * size_of::<SizedChunk>()
            + self.scratch.raw.capacity()
    }

    /// Replaces the page by the one of `entry`, whose bytes in the sidecar are `bytes`. Cost: one pass;
    /// allocations only where the page needs more memory than those before it.
    ///
    /// # Errors
    /// [`DecodeError`], and the page is empty. Its offset is one of the unpacked page, or of `bytes` if they
    /// could not be unpacked.
    pub fn decode(&mut self, entry: &PageEntry, bytes: &[u8]) -> Result<(), DecodeError> {
        self.clear();
        let mut raw = std::mem::take(&mut self.scratch.raw);
        let unpacked = self.scratch.unpacker.unpack(WHAT, bytes, PAGE_RAW_BYTES_MAX, &mut raw);
        let decoded = unpacked.and_then(|()| self.decode_raw(entry, &raw));
        self.scratch.raw = raw;
        if decoded.is_err() {
            self.clear();
        }
        decoded
    }

    fn clear(&mut self) {
        self.series.clear();
        self.labels.clear();
        self.chunks.clear();
    }

    fn decode_raw(&mut self, entry: &PageEntry, raw: &[u8]) -> Result<(), DecodeError> {
        let mut reader = ByteReader::new(raw);
        let series_count = reader.length(WHAT)?;
        let first_ref = reader.uvarint(WHAT)?;
        if (series_count as u64, first_ref) != (u64::from(entry.series_count), u64::from(entry.first_ref)) {
            let expected = "the series of the page table";
            return Err(DecodeError::Invalid { what: WHAT, offset: 0, expected, found: first_ref });
        }
        let base_time = reader.varint(WHAT)?;
        let text_count = reader.length(WHAT)?;
        self.texts.decode(WHAT, &mut reader, text_count)?;
        self.scratch.read_shapes(&mut read_column(WHAT, &mut reader)?, text_count)?;
        let mut refs = read_column(WHAT, &mut reader)?;
        let mut label_columns = LabelColumns::read(&mut reader)?;
        let mut chunk_columns = ChunkColumns::read(&mut reader, base_time)?;
        check_end(WHAT, &reader)?;
        let mut series_ref = entry.first_ref;
        for idx in 0..series_count {
            if idx > 0 {
                series_ref = next_ref(&mut refs, series_ref)?;
            }
            label_columns.next(&mut self.scratch, text_count, &mut self.labels)?;
            chunk_columns.next(&mut self.chunks)?;
            // Both are limited by the bytes of their columns.
            self.series.push(SeriesEnds {
                series_ref,
                labels_end: u32::try_from(self.labels.len()).unwrap_or(u32::MAX),
                chunks_end: u32::try_from(self.chunks.len()).unwrap_or(u32::MAX),
            });
        }
        check_end(WHAT, &refs)?;
        label_columns.check_end()?;
        chunk_columns.check_end()
    }
}

fn next_ref(refs: &mut ByteReader<'_>, before: u32) -> Result<u32, DecodeError> {
    let offset = refs.offset();
    let delta = refs.uvarint(WHAT)?;
    let next = u32::try_from(delta).ok().filter(|&delta| delta > 0).and_then(|d| before.checked_add(d));
    let expected = "a series ref after the one before";
    next.ok_or(DecodeError::Invalid { what: WHAT, offset, expected, found: delta })
}

impl Scratch {
    /// Reads the label sets that occur, as lists of names.
    fn read_shapes(&mut self, shapes: &mut ByteReader<'_>, text_count: usize) -> Result<(), DecodeError> {
        self.shape_names.clear();
        self.shape_ends.clear();
        self.last_values.clear();
        self.last_values.resize(text_count, 0);
        while !shapes.is_empty() {
            let label_count = shapes.length(WHAT)?;
            for _ in 0..label_count {
                let offset = shapes.offset();
                let name = shapes.uvarint(WHAT)?;
                self.shape_names.push(text_idx(name, text_count, offset)?);
            }
            self.shape_ends.push(self.shape_names.len());
        }
        Ok(())
    }

    /// Range in `shape_names` of the names of a label set.
    fn shape(&self, shape_idx: usize) -> Option<std::ops::Range<usize>> {
        let end = *self.shape_ends.get(shape_idx)?;
        let before = shape_idx.checked_sub(1).and_then(|before| self.shape_ends.get(before));
        Some(before.copied().unwrap_or(0)..end)
    }
}

fn text_idx(idx: u64, text_count: usize, offset: usize) -> Result<u32, DecodeError> {
    match u32::try_from(idx) {
        Ok(found) if (found as usize) < text_count => Ok(found),
        _ => Err(DecodeError::Invalid { what: WHAT, offset, expected: "the index of a text", found: idx }),
    }
}

/// Readers of the columns with labels.
struct LabelColumns<'a> {
    shapes: ByteReader<'a>,
    changes: ByteReader<'a>,
    values: ByteReader<'a>,
}

impl<'a> LabelColumns<'a> {
    fn read(reader: &mut ByteReader<'a>) -> Result<LabelColumns<'a>, DecodeError> {
        Ok(LabelColumns {
            shapes: read_column(WHAT, reader)?,
            changes: read_column(WHAT, reader)?,
            values: read_column(WHAT, reader)?,
        })
    }

    /// Appends the labels of the next series.
    fn next(
        &mut self,
        scratch: &mut Scratch,
        text_count: usize,
        out: &mut Vec<LabelIdx>,
    ) -> Result<(), DecodeError> {
        let offset = self.shapes.offset();
        let shape_idx = self.shapes.uvarint(WHAT)?;
        let shape = usize::try_from(shape_idx).ok().and_then(|idx| scratch.shape(idx));
        let names = shape.and_then(|shape| scratch.shape_names.get(shape)).ok_or(DecodeError::Invalid {
            what: WHAT,
            offset,
            expected: "the index of a label set",
            found: shape_idx,
        })?;
        if out.len() + names.len() > PAGE_LABELS_MAX {
            let expected = "no more labels than a page may have";
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: names.len() as u64 });
        }
        let changes = self.changes.bytes(WHAT, names.len().div_ceil(8))?;
        for (names, changed) in names.chunks(8).zip(changes) {
            for (bit, &name) in names.iter().enumerate() {
                let Some(value) = scratch.last_values.get_mut(name as usize) else { continue };
                if changed >> bit & 1 != 0 {
                    let offset = self.values.offset();
                    let next = i64::from(*value).wrapping_add(self.values.varint(WHAT)?);
                    *value = text_idx(next.cast_unsigned(), text_count, offset)?;
                }
                out.push(LabelIdx { name, value: *value });
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), DecodeError> {
        check_end(WHAT, &self.shapes)?;
        check_end(WHAT, &self.changes)?;
        check_end(WHAT, &self.values)
    }
}

/// Readers of the columns with chunks, and what the next series is compared with.
struct ChunkColumns<'a> {
    modes: ByteReader<'a>,
    times: ByteReader<'a>,
    refs: ByteReader<'a>,
    lens: ByteReader<'a>,
    /// First time of the last series that has chunks.
    first_time: i64,
    /// Length of the first chunk of that series.
    first_len: u32,
    /// End of the last chunk.
    end_ref: u64,
    /// Number of chunks of the last series.
    chunk_count: usize,
}

impl<'a> ChunkColumns<'a> {
    fn read(reader: &mut ByteReader<'a>, base_time: i64) -> Result<ChunkColumns<'a>, DecodeError> {
        Ok(ChunkColumns {
            modes: read_column(WHAT, reader)?,
            times: read_column(WHAT, reader)?,
            refs: read_column(WHAT, reader)?,
            lens: read_column(WHAT, reader)?,
            first_time: base_time,
            first_len: 0,
            end_ref: 0,
            chunk_count: 0,
        })
    }

    /// Appends the chunks of the next series.
    fn next(&mut self, out: &mut Vec<SizedChunk>) -> Result<(), DecodeError> {
        let offset = self.modes.offset();
        let mode = self.modes.u8(WHAT)?;
        let start = out.len();
        match mode & TIMES_MASK {
            _ if mode & !MODE_BITS != 0 => return Err(invalid_mode(mode, offset)),
            TIMES_SAME => self.copy_times(0, out)?,
            TIMES_SHIFTED => {
                let shift = self.times.varint(WHAT)?;
                self.copy_times(shift, out)?;
            }
            TIMES_EXPLICIT => self.read_times(out)?,
            _ => return Err(invalid_mode(mode, offset)),
        }
        let chunks = out.get_mut(start..).unwrap_or_default();
        self.chunk_count = chunks.len();
        if let Some(first) = chunks.first() {
            self.first_time = first.meta.min_time;
        }
        self.read_lens(mode, chunks)
    }

    /// Refuses counts above the bytes at hand before they take memory: every chunk has a byte of its length
    /// at least.
    fn check_count(&self, count: usize) -> Result<(), DecodeError> {
        let left = self.lens.remaining();
        if count <= left {
            return Ok(());
        }
        Err(DecodeError::Short { what: WHAT, offset: self.lens.offset(), needed: count, left })
    }

    fn copy_times(&mut self, shift: i64, out: &mut Vec<SizedChunk>) -> Result<(), DecodeError> {
        self.check_count(self.chunk_count)?;
        let from = out.len() - self.chunk_count;
        for idx in from..from + self.chunk_count {
            let Some(&before) = out.get(idx) else { break };
            let width = before.meta.max_time.wrapping_sub(before.meta.min_time).cast_unsigned();
            let min_time = before.meta.min_time.wrapping_add(shift);
            out.push(self.chunk_of_times(min_time, width)?);
        }
        Ok(())
    }

    fn read_times(&mut self, out: &mut Vec<SizedChunk>) -> Result<(), DecodeError> {
        let count = usize::try_from(self.times.uvarint(WHAT)?).unwrap_or(usize::MAX);
        self.check_count(count)?;
        let mut gap = 0i64;
        let mut width = 0u64;
        for idx in 0..count {
            let min_time = match out.last() {
                Some(before) if idx > 0 => {
                    gap = gap.wrapping_add(self.times.varint(WHAT)?);
                    before.meta.max_time.wrapping_add(gap)
                }
                _ => self.first_time.wrapping_add(self.times.varint(WHAT)?),
            };
            width = width.wrapping_add_signed(self.times.varint(WHAT)?);
            out.push(self.chunk_of_times(min_time, width)?);
        }
        Ok(())
    }

    /// A chunk that begins at `min_time` and ends `width` later, its position and length not read yet.
    fn chunk_of_times(&self, min_time: i64, width: u64) -> Result<SizedChunk, DecodeError> {
        let offset = self.times.offset();
        let expected = "an end before the end of time";
        let max_time = min_time.checked_add_unsigned(width);
        let max_time = max_time.ok_or(DecodeError::Invalid { what: WHAT, offset, expected, found: width })?;
        Ok(SizedChunk { meta: ChunkMeta { min_time, max_time, chunk_ref: ChunkRef(0) }, len: 0 })
    }

    /// Reads positions and lengths of the chunks of a series.
    fn read_lens(&mut self, mode: u8, chunks: &mut [SizedChunk]) -> Result<(), DecodeError> {
        let mut follows = mode & FIRST_FOLLOWS != 0;
        let mut len_before = self.first_len;
        for (idx, chunk) in chunks.iter_mut().enumerate() {
            if !follows {
                self.end_ref = self.end_ref.wrapping_add_signed(self.refs.varint(WHAT)?);
            }
            let offset = self.lens.offset();
            let len = i64::from(len_before).wrapping_add(self.lens.varint(WHAT)?);
            chunk.len = u32::try_from(len).ok().filter(|&len| len > 0).ok_or(DecodeError::Invalid {
                what: WHAT,
                offset,
                expected: "the length of a chunk",
                found: len.cast_unsigned(),
            })?;
            chunk.meta.chunk_ref = ChunkRef(self.end_ref);
            self.end_ref = self.end_ref.wrapping_add(u64::from(chunk.len));
            len_before = chunk.len;
            if idx == 0 {
                self.first_len = chunk.len;
                follows = mode & OTHERS_FOLLOW != 0;
            }
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), DecodeError> {
        check_end(WHAT, &self.modes)?;
        check_end(WHAT, &self.times)?;
        check_end(WHAT, &self.refs)?;
        check_end(WHAT, &self.lens)
    }
}

#[cold]
fn invalid_mode(mode: u8, offset: usize) -> DecodeError {
    DecodeError::Invalid { what: WHAT, offset, expected: "a chunk mode", found: u64::from(mode) }
}
