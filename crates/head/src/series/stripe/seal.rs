//! Seals open chunks, and merges out-of-order samples into the sealed chunks that they overlap.
//!
//! The sealed chunks of a series are the leaves of a buffer tree (a B-tree whose inserts are batched):
//! out-of-order samples are buffered per series until each of them makes the head encode few others again;
//! then each leaf with buffered samples in its range is encoded again with them and split where it is large.
//! So the cost per sample is bounded for any arrival order.
//!
//! Invariants: no sealed chunk overlaps another or the open one, so a query decodes as much as if all samples
//! had been in order; a buffered sample wins over one of the same timestamp in a chunk, because it was
//! written later.

use chronolith_format::chunk::xor::{self, ENCODING_XOR, SAMPLES_PER_CHUNK, XorState};
use chronolith_format::head::sealed::RecordHeader;
use chronolith_model::{Columns, TimeRange};

use super::merge_range::MergeRange;
use super::timestamp_cache::SeriesWindow;
use super::{AppendContext, NONE, SealedChunk, SeriesState, Stripe};
use crate::series::chunk_buffer::ChunkBuffer;
use crate::series::sealed::ChunkRef;

/// An open chunk that is sealed takes its out-of-order samples in if each of them makes at most this many
/// others be encoded again. Fewer stay buffered: more of the same chunk may arrive, and flushing its window
/// encodes it once for all.
const SEAL_FACTOR: usize = 10;
/// Samples that are encoded under one lock: half a millisecond of work.
const SLICE_SAMPLES: usize = 1 << 14;

impl Stripe {
    /// Seals the open chunk, if there is one; the hot record keeps the last sample.
    pub(crate) fn seal_open(&mut self, cx: &mut AppendContext<'_>, id: u32) {
        let Some(series) = self.series(id).filter(|series| !series.open.is_none()).cloned() else { return };
        let mut last = series.xor;
        let ooo = self.take_ooo_of_open(id, &series);
        self.chunk.clear();
        self.chunk_buffers.copy(series.open, &series.xor, &mut self.chunk);
        if ooo.is_empty() {
            let header = RecordHeader {
                series_id: id,
                encoding: ENCODING_XOR,
                count: series.xor.count(),
                min_time: series.open_min,
                max_time: series.xor.time(),
            };
            let chunk_ref = cx.store.push(&header, &self.chunk);
            let node = SealedChunk::new(chunk_ref, &header, self.chunk.len());
            self.link_sealed(id, node);
        } else {
            let mut samples = Columns::default();
            // Decoding cannot fail: this process encoded the bytes.
            let decoded = xor::decode(&self.chunk, TimeRange::ALL, &mut samples);
            debug_assert!(decoded.is_ok(), "open chunks decode");
            let stored_count = samples.len() + ooo.len();
            join(&mut samples, &ooo);
            self.merged_count += samples.len() as u64;
            cx.windows.add(series.open_min, samples.len() as i64 - stored_count as i64);
            self.timestamps.note_merge(SeriesWindow::of(cx, id, series.open_min));
            self.push_sealed(cx, id, &samples);
            if let (Some(&time), Some(value)) = (samples.times.last(), samples.values.last()) {
                last = XorState::ended(time, value.to_bits());
            }
        }
        self.chunk_buffers.free(series.open);
        if let Some(series) = self.series_mut(id) {
            series.open = ChunkBuffer::NONE;
            series.xor = last;
        }
    }

    /// Removes the out-of-order samples within the open chunk `series` from the buffer; none if they are too
    /// few to encode the chunk again.
    fn take_ooo_of_open(&mut self, id: u32, series: &SeriesState) -> Columns {
        if series.ooo == NONE {
            return Columns::default();
        }
        let (before_count, count) = self.ooo.counts(series.ooo, series.open_min);
        // The hot record keeps the last sample, so a buffered replacement of it must be merged.
        let replaces_last = self.ooo.find(series.ooo, series.xor.time()).is_some();
        if SEAL_FACTOR * (count - before_count) < usize::from(series.xor.count()) && !replaces_last {
            return Columns::default();
        }
        self.take_ooo(id, TimeRange { start: series.open_min, end: i64::MAX })
    }

    /// Merges the out-of-order samples in `range` into sealed chunks, except for those within the open chunk.
    pub(crate) fn merge_out_of_order(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            rest = self.merge_out_of_order_slice(cx, id, range);
        }
    }

    /// Returns true if the series has so many out-of-order samples that merging may take several slices.
    pub(crate) fn has_ooo_tree(&self, id: u32) -> bool {
        self.series(id).is_some_and(|series| self.ooo.is_tree(series.ooo))
    }

    /// Merges as many out-of-order samples in `range` as [`SLICE_SAMPLES`] allows; returns the range of the
    /// rest. Between two calls the series may change in any way.
    pub(crate) fn merge_out_of_order_slice(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        range: TimeRange,
    ) -> Option<TimeRange> {
        let series = self.series(id).filter(|h| h.ooo != NONE)?;
        let end = if series.open.is_none() { range.end } else { range.end.min(series.open_min) };
        if !self.ooo.is_tree(series.ooo) {
            self.merge_list(cx, id, TimeRange { start: range.start, end });
            return None;
        }
        let (mut start, mut moved_count) = (range.start, 0);
        loop {
            let series = self.series(id)?;
            let (ooo, sealed) = (series.ooo, series.sealed);
            let first = self.ooo.first_of_tree(ooo, TimeRange { start, end })?;
            if moved_count >= SLICE_SAMPLES {
                return Some(TimeRange { start: first, end: range.end });
            }
            let window = TimeRange::window_of(first, cx.window_ms);
            let leaf = self.leaf(id, sealed, window, first);
            start = leaf.end.min(end);
            let ooo = self.take_ooo(id, TimeRange { start: first, end: start });
            moved_count += self.merge_into_leaf(cx, id, &leaf, &ooo);
        }
    }

    /// As [`Stripe::merge_out_of_order_slice`] for a series with few out-of-order samples: all at once.
    fn merge_list(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) {
        let taken = self.take_ooo(id, range);
        let mut start = 0;
        while let Some(&first) = taken.times.get(start) {
            let Some(sealed) = self.series(id).map(|series| series.sealed) else { return };
            let leaf = self.leaf(id, sealed, TimeRange::window_of(first, cx.window_ms), first);
            let len = taken.times[start..].partition_point(|&t| t < leaf.end);
            let part = Columns {
                times: taken.times[start..start + len].to_vec(),
                values: taken.values[start..start + len].to_vec(),
                ..Columns::default()
            };
            self.merge_into_leaf(cx, id, &leaf, &part);
            start += len;
        }
    }

    /// Removes and returns the out-of-order samples of a series in `range`.
    pub(super) fn take_ooo(&mut self, id: u32, range: TimeRange) -> Columns {
        let Some(chain) = self.series(id).map(|series| series.ooo).filter(|&ooo| ooo != NONE) else {
            return Columns::default();
        };
        let (rest, taken) = self.ooo.take(chain, range);
        if let Some(series) = self.series_mut(id) {
            series.ooo = rest;
        }
        taken
    }

    /// Encodes samples of one window together with the chunks of their leaf; returns the number of encoded
    /// samples.
    fn merge_into_leaf(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        leaf: &MergeRange<u32>,
        ooo: &Columns,
    ) -> usize {
        let (Some(&first), Some(&last)) = (ooo.times.first(), ooo.times.last()) else { return 0 };
        let node = |(_, slot): &(i64, u32)| self.sealed_chunks.get(*slot).map(|node| (*slot, *node));
        let mut picked: Vec<(u32, SealedChunk)> = leaf.chunks.iter().filter_map(node).collect();
        let is_apart = picked.iter().all(|(_, n)| n.max_time() < first || last < n.min_time);
        if is_apart && ooo.len() >= SAMPLES_PER_CHUNK {
            picked.clear();
        }
        if picked.windows(2).any(|two| two[0].1.max_time() >= two[1].1.min_time) {
            // At equal timestamps the sample of the younger chunk is added last and wins.
            picked.sort_by_key(|(_, n)| n.chunk_ref);
        }
        let mut samples = Columns::default();
        // A damaged chunk stays as it is; queries report the damage.
        picked.retain(|(_, node)| self.decode_sealed(cx, node, &mut samples));
        let stored_count = samples.len() + ooo.len();
        join(&mut samples, ooo);
        let window = TimeRange::window_of(first, cx.window_ms);
        if let Some(&oldest) = samples.times.first() {
            cx.windows.add_single(oldest, samples.len() as i64 - stored_count as i64);
        }
        self.timestamps.note_merge(SeriesWindow { id, range: window });
        self.merged_count += samples.len() as u64;
        self.replace_sealed(cx, id, &picked, &samples);
        if let (Some(&time), Some(value)) = (samples.times.last(), samples.values.last())
            && let Some(series) = self.series_mut(id)
            && series.open.is_none()
            && series.xor.time() == time
        {
            // The merge may have replaced the value of the last sample.
            series.xor = XorState::ended(time, value.to_bits());
        }
        samples.len()
    }

    /// Seals `samples` in place of the chunks `old`, which are given with their slots: the list of the series
    /// is walked only if it becomes shorter.
    fn replace_sealed(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        old: &[(u32, SealedChunk)],
        samples: &Columns,
    ) {
        let mut vacant = old.iter();
        for_each_chunk(cx, id, samples, |node| match vacant.next() {
            Some((slot, old)) => {
                cx.store.release(old.chunk_ref);
                self.by_time.remove(id, *slot, old);
                self.sealed_chunks.replace(*slot, node);
                self.by_time.add(id, *slot, &node);
            }
            None => self.link_sealed(id, node),
        });
        let gone: Vec<ChunkRef> = vacant.map(|(_, old)| old.chunk_ref).collect();
        if !gone.is_empty() {
            self.unlink_sealed(cx, id, |node| gone.contains(&node.chunk_ref));
        }
    }

    /// Appends the samples of a sealed chunk to `out`; returns false and appends nothing if it cannot be
    /// read.
    pub(super) fn decode_sealed(
        &self,
        cx: &AppendContext<'_>,
        node: &SealedChunk,
        out: &mut Columns,
    ) -> bool {
        let before = out.len();
        let Some(file) = cx.store.file(node.chunk_ref.file) else { return false };
        let read = file.read_chunk(cx.disk, node.chunk_ref.offset, usize::from(node.len), |bytes| {
            xor::decode(bytes, TimeRange::ALL, out)
        });
        let is_good = matches!(read, Ok(Ok(()))) && out.len() - before == usize::from(node.count);
        if !is_good {
            out.times.truncate(before);
            out.values.truncate(before);
        }
        is_good
    }

    /// Seals ascending samples of one window as chunks of about equal size, each full or the only one.
    pub(super) fn push_sealed(&mut self, cx: &AppendContext<'_>, id: u32, samples: &Columns) {
        for_each_chunk(cx, id, samples, |node| self.link_sealed(id, node));
    }

    fn link_sealed(&mut self, id: u32, node: SealedChunk) {
        let Some(sealed) = self.series(id).map(|series| series.sealed) else { return };
        let start = self.sealed_chunks.push(node, sealed);
        self.by_time.add(id, start, &node);
        if let Some(series) = self.series_mut(id) {
            series.sealed = start;
        }
    }

    /// Removes the sealed chunks for which `is_gone` returns true from the series, and releases them in their
    /// files.
    pub(crate) fn unlink_sealed(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        mut is_gone: impl FnMut(&SealedChunk) -> bool,
    ) {
        let Some(start) = self.series(id).map(|series| series.sealed) else { return };
        self.by_time.forget(id);
        let kept = self.sealed_chunks.remove(start, |node| {
            let is_gone = is_gone(node);
            if is_gone {
                cx.store.release(node.chunk_ref);
            }
            is_gone
        });
        if let Some(series) = self.series_mut(id) {
            series.sealed = kept;
        }
    }
}

/// Encodes ascending samples of one window as chunks of about equal size, each full or the only one; calls
/// `put` with each.
fn for_each_chunk(cx: &AppendContext<'_>, id: u32, samples: &Columns, mut put: impl FnMut(SealedChunk)) {
    let part_count = (samples.len() / SAMPLES_PER_CHUNK).max(1);
    let part_len = samples.len().div_ceil(part_count).max(1);
    for (times, values) in samples.times.chunks(part_len).zip(samples.values.chunks(part_len)) {
        let chunk = xor::encode_whole(times, values);
        let header = RecordHeader {
            series_id: id,
            encoding: ENCODING_XOR,
            count: times.len() as u16,
            min_time: times[0],
            max_time: times[times.len() - 1],
        };
        let chunk_ref = cx.store.push(&header, &chunk);
        put(SealedChunk::new(chunk_ref, &header, chunk.len()));
    }
}

/// Merges `ooo` (ascending) into `samples`; ascending, one sample per timestamp: the one that was added
/// last.
pub(super) fn join(samples: &mut Columns, ooo: &Columns) {
    if samples.times.is_sorted_by(|a, b| a < b) {
        *samples = merged(samples, ooo);
        return;
    }
    // Chunks of earlier versions overlap.
    samples.times.extend_from_slice(&ooo.times);
    samples.values.extend_from_slice(&ooo.values);
    let mut order: Vec<u32> = (0..samples.len() as u32).collect();
    order.sort_by_key(|&i| samples.times[i as usize]);
    let mut joined = Columns::default();
    for at in order.into_iter().map(|i| i as usize) {
        let (time, value) = (samples.times[at], samples.values[at]);
        if joined.times.last() == Some(&time) {
            joined.values.pop();
            joined.values.push(value);
        } else {
            joined.push(time, value);
        }
    }
    *samples = joined;
}

/// Merges two ascending runs; at equal timestamps `ooo` wins.
fn merged(samples: &Columns, ooo: &Columns) -> Columns {
    let mut times = Vec::with_capacity(samples.len() + ooo.len());
    let mut values = Vec::with_capacity(samples.len() + ooo.len());
    let mut start = 0;
    for (&time, &value) in ooo.times.iter().zip(&ooo.values) {
        let end = start + samples.times[start..].partition_point(|&t| t < time);
        times.extend_from_slice(&samples.times[start..end]);
        values.extend_from_slice(&samples.values[start..end]);
        times.push(time);
        values.push(value);
        start = end + usize::from(samples.times.get(end) == Some(&time));
    }
    times.extend_from_slice(&samples.times[start..]);
    values.extend_from_slice(&samples.values[start..]);
    Columns { times, values, ..Columns::default() }
}
