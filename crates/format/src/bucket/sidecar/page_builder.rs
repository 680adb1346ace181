//! Builder of series pages: collects series until the page is long enough, then writes its columns.
//!
//! Invariant: [`super::page::SeriesPage`] returns exactly the series that were pushed.
//! Memory: one page.

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::hash::HashMap;

use super::super::texts::{put_column, put_texts};
use super::page::{
    FIRST_FOLLOWS, LabelIdx, OTHERS_FOLLOW, SeriesEnds, SizedChunk, TIMES_EXPLICIT, TIMES_SAME, TIMES_SHIFTED,
};

/// Collects the series of one page; reused from page to page.
#[derive(Default)]
pub(super) struct PageBuilder {
    /// Texts by first use.
    texts: HashMap<Box<str>, u32>,
    /// Label sets by first use, as the indices of their names.
    shapes: HashMap<Box<[u32]>, u32>,
    shape_of: Vec<u32>,
    series: Vec<SeriesEnds>,
    labels: Vec<LabelIdx>,
    chunks: Vec<SizedChunk>,
    names: Vec<u32>,
    raw_bytes: usize,
}

impl PageBuilder {
    pub(super) fn series_count(&self) -> u32 {
        u32::try_from(self.series.len()).unwrap_or(u32::MAX)
    }

    /// Estimated bytes of the unpacked page.
    pub(super) fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    pub(super) fn first_ref(&self) -> Option<u32> {
        self.series.first().map(|series| series.series_ref)
    }

    /// First time of all chunks; `i64::MAX` without chunks.
    pub(super) fn min_time(&self) -> i64 {
        self.chunks.iter().map(|chunk| chunk.meta.min_time).min().unwrap_or(i64::MAX)
    }

    /// Last time of all chunks, included; `i64::MIN` without chunks.
    pub(super) fn max_time(&self) -> i64 {
        self.chunks.iter().map(|chunk| chunk.meta.max_time).max().unwrap_or(i64::MIN)
    }

    /// Adds a series.
    pub(super) fn push<'a>(
        &mut self,
        series_ref: u32,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
        chunks: &[SizedChunk],
    ) {
        let labels_start = self.labels.len();
        self.names.clear();
        for (name, value) in pairs {
            let name = self.text(name);
            let value = self.text(value);
            self.names.push(name);
            self.labels.push(LabelIdx { name, value });
        }
        let next_shape = u32::try_from(self.shapes.len()).unwrap_or(u32::MAX);
        let shape = match self.shapes.get(self.names.as_slice()) {
            Some(shape) => *shape,
            None => {
                self.shapes.insert(self.names.as_slice().into(), next_shape);
                next_shape
            }
        };
        self.shape_of.push(shape);
        self.chunks.extend_from_slice(chunks);
        self.raw_bytes += 4 + (self.labels.len() - labels_start).div_ceil(4) + 2 * chunks.len();
        self.series.push(SeriesEnds {
            series_ref,
            labels_end: u32::try_from(self.labels.len()).unwrap_or(u32::MAX),
            chunks_end: u32::try_from(self.chunks.len()).unwrap_or(u32::MAX),
        });
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(idx) = self.texts.get(text) {
            return *idx;
        }
        let idx = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.insert(text.into(), idx);
        self.raw_bytes += 2 + text.len();
        idx
    }

    /// Replaces `out` by the unpacked page and empties the builder.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.clear();
        let base_time = self.chunks.first().map_or(0, |chunk| chunk.meta.min_time);
        put_uvarint(out, self.series.len() as u64);
        put_uvarint(out, u64::from(self.first_ref().unwrap_or(0)));
        put_varint(out, base_time);
        let ranks = self.put_texts(out);
        self.put_shapes(&ranks, out);
        let mut refs = Vec::new();
        for pair in self.series.windows(2) {
            let [before, series] = pair else { continue };
            put_uvarint(&mut refs, u64::from(series.series_ref - before.series_ref));
        }
        put_column(&refs, out);
        self.put_labels(&ranks, out);
        self.put_chunks(base_time, out);
        self.clear();
    }

    fn clear(&mut self) {
        self.texts.clear();
        self.shapes.clear();
        self.shape_of.clear();
        self.series.clear();
        self.labels.clear();
        self.chunks.clear();
        self.raw_bytes = 0;
    }

    /// Appends the texts, sorted; returns the position of each.
    fn put_texts(&self, out: &mut Vec<u8>) -> Vec<u32> {
        let mut sorted: Vec<(&str, u32)> = self.texts.iter().map(|(text, idx)| (&**text, *idx)).collect();
        sorted.sort_unstable();
        let mut ranks = vec![0; sorted.len()];
        for (rank, (_, idx)) in (0u32..).zip(&sorted) {
            ranks[*idx as usize] = rank;
        }
        put_uvarint(out, sorted.len() as u64);
        put_texts(sorted.iter().map(|(text, _)| *text), out);
        ranks
    }

    fn put_shapes(&self, ranks: &[u32], out: &mut Vec<u8>) {
        let mut shapes: Vec<(u32, &[u32])> =
            self.shapes.iter().map(|(names, idx)| (*idx, &**names)).collect();
        shapes.sort_unstable_by_key(|shape| shape.0);
        let mut column = Vec::new();
        for (_, names) in shapes {
            put_uvarint(&mut column, names.len() as u64);
            for name in names {
                put_uvarint(&mut column, u64::from(ranks[*name as usize]));
            }
        }
        put_column(&column, out);
    }

    fn put_labels(&self, ranks: &[u32], out: &mut Vec<u8>) {
        let mut shapes = Vec::new();
        let mut changes = Vec::new();
        let mut values = Vec::new();
        // The last value of each name, by the rank of the name.
        let mut last_values = vec![0u32; ranks.len()];
        let mut start = 0;
        for (series, shape) in self.series.iter().zip(&self.shape_of) {
            put_uvarint(&mut shapes, u64::from(*shape));
            for labels in self.labels[start..series.labels_end as usize].chunks(8) {
                let mut changed = 0u8;
                for (bit, label) in labels.iter().enumerate() {
                    let value = ranks[label.value as usize];
                    let last = &mut last_values[ranks[label.name as usize] as usize];
                    if *last != value {
                        changed |= 1 << bit;
                        put_varint(&mut values, i64::from(value) - i64::from(*last));
                        *last = value;
                    }
                }
                changes.push(changed);
            }
            start = series.labels_end as usize;
        }
        put_column(&shapes, out);
        put_column(&changes, out);
        put_column(&values, out);
    }

    fn put_chunks(&self, base_time: i64, out: &mut Vec<u8>) {
        let mut columns = ChunkWriter { first_time: base_time, ..ChunkWriter::default() };
        let mut before: &[SizedChunk] = &[];
        let mut start = 0;
        for series in &self.series {
            let chunks = &self.chunks[start..series.chunks_end as usize];
            columns.put_series(before, chunks);
            before = chunks;
            start = series.chunks_end as usize;
        }
        put_column(&columns.modes, out);
        put_column(&columns.times, out);
        put_column(&columns.refs, out);
        put_column(&columns.lens, out);
    }
}

/// Columns with chunks, and what the next series is compared with.
#[derive(Default)]
struct ChunkWriter {
    modes: Vec<u8>,
    times: Vec<u8>,
    refs: Vec<u8>,
    lens: Vec<u8>,
    first_time: i64,
    first_len: u32,
    end_ref: u64,
}

impl ChunkWriter {
    fn put_series(&mut self, before: &[SizedChunk], chunks: &[SizedChunk]) {
        let mut mode = self.put_times(before, chunks);
        mode |= self.put_refs(chunks);
        self.modes.push(mode);
        let mut len_before = self.first_len;
        for chunk in chunks {
            assert!(chunk.len > 0, "a chunk has bytes");
            put_varint(&mut self.lens, i64::from(chunk.len) - i64::from(len_before));
            len_before = chunk.len;
        }
        if let Some(first) = chunks.first() {
            self.first_time = first.meta.min_time;
            self.first_len = first.len;
        }
    }

    fn put_times(&mut self, before: &[SizedChunk], chunks: &[SizedChunk]) -> u8 {
        if let Some(shift) = shift_between(before, chunks) {
            if shift == 0 {
                return TIMES_SAME;
            }
            put_varint(&mut self.times, shift);
            return TIMES_SHIFTED;
        }
        put_uvarint(&mut self.times, chunks.len() as u64);
        let mut last_gap = 0i64;
        let mut last_width = 0u64;
        let mut last_end = None;
        for chunk in chunks {
            let meta = chunk.meta;
            assert!(meta.min_time <= meta.max_time, "a chunk ends after it starts");
            match last_end {
                None => put_varint(&mut self.times, meta.min_time.wrapping_sub(self.first_time)),
                Some(end) => {
                    let gap = meta.min_time.wrapping_sub(end);
                    put_varint(&mut self.times, gap.wrapping_sub(last_gap));
                    last_gap = gap;
                }
            }
            let width = width_of(chunk);
            put_varint(&mut self.times, width.wrapping_sub(last_width).cast_signed());
            last_width = width;
            last_end = Some(meta.max_time);
        }
        TIMES_EXPLICIT
    }

    fn put_refs(&mut self, chunks: &[SizedChunk]) -> u8 {
        let mut mode = 0;
        let end_of = |chunk: &SizedChunk| chunk.meta.chunk_ref.0.wrapping_add(u64::from(chunk.len));
        if chunks.first().is_some_and(|first| first.meta.chunk_ref.0 == self.end_ref) {
            mode |= FIRST_FOLLOWS;
        }
        if chunks.is_sorted_by(|a, b| end_of(a) == b.meta.chunk_ref.0) {
            mode |= OTHERS_FOLLOW;
        }
        for (idx, chunk) in chunks.iter().enumerate() {
            let follows = if idx == 0 { FIRST_FOLLOWS } else { OTHERS_FOLLOW };
            if mode & follows == 0 {
                put_varint(&mut self.refs, chunk.meta.chunk_ref.0.wrapping_sub(self.end_ref).cast_signed());
            }
            self.end_ref = end_of(chunk);
        }
        mode
    }
}

fn width_of(chunk: &SizedChunk) -> u64 {
    chunk.meta.max_time.wrapping_sub(chunk.meta.min_time).cast_unsigned()
}

/// Returns the shift that turns the times of `before` into the times of `chunks`.
fn shift_between(before: &[SizedChunk], chunks: &[SizedChunk]) -> Option<i64> {
    if before.len() != chunks.len() {
        return None;
    }
    let mut shift = None;
    for (a, b) in before.iter().zip(chunks) {
        let distance = b.meta.min_time.wrapping_sub(a.meta.min_time);
        if width_of(a) != width_of(b) || shift.is_some_and(|shift| shift != distance) {
            return None;
        }
        shift = Some(distance);
    }
    Some(shift.unwrap_or(0))
}
