//! Seals open histogram chunks, and merges out-of-order histograms leaf by leaf into the sealed chunks that
//! they overlap, as for floats (`stripe::seal`), so the cost per histogram is bounded for any arrival order.
//!
//! Invariant: sealed chunks of histograms do not overlap, and none crosses a window; a damaged chunk stays as
//! it is.

use chronolith_format::chunk::histogram::{self, HistogramAppender};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::{EncodedChunk, SAMPLES_PER_CHUNK};
use chronolith_format::head::sealed::RecordHeader;
use chronolith_model::query::merged;
use chronolith_model::{Columns, TimeRange};

use super::super::merge_range::MergeRange;
use super::super::ooo_buffer::OOO_COUNT_MAX;
use super::super::{AppendContext, Stripe};
use super::{HistogramSeries, SealedHistogramChunk};
use crate::series::sealed::{ChunkRef, SealedStore};

/// Histograms that are encoded under one lock: about a millisecond of work.
const SLICE_HISTOGRAMS: usize = 1 << 10;

/// Returns the samples of an open chunk.
pub(super) fn open_samples(open: &HistogramAppender) -> Columns {
    let mut samples = Columns::default();
    // Decoding cannot fail: this process encoded the bytes.
    let decoded = histogram::decode(open.encoding(), open.bytes(), TimeRange::ALL, &mut samples);
    debug_assert!(decoded.is_ok(), "open chunks decode");
    samples
}

/// Returns the samples of a sealed chunk; `None` if it cannot be read.
pub(super) fn sealed_samples(cx: &AppendContext<'_>, node: &SealedHistogramChunk) -> Option<Columns> {
    let mut samples = Columns::default();
    let file = cx.store.file(node.chunk_ref.file)?;
    let read = file.read_chunk(cx.disk, node.chunk_ref.offset, node.len as usize, |bytes| {
        histogram::decode(node.encoding, bytes, TimeRange::ALL, &mut samples)
    });
    (matches!(read, Ok(Ok(()))) && samples.len() == usize::from(node.count)).then_some(samples)
}

impl Stripe {
    /// Seals the open chunk and merges the out-of-order histograms of a series in `window`.
    pub(crate) fn seal_histograms(&mut self, cx: &mut AppendContext<'_>, id: u32, window: TimeRange) {
        let Some(histograms) = self.histograms.get(id) else { return };
        if histograms.open.as_ref().is_some_and(|open| window.contains(open.times().0)) {
            self.seal_open_histograms(cx, id);
        }
        self.merge_out_of_order_histograms(cx, id, window);
        self.histograms.report(cx.histograms);
    }

    /// Returns true if a sealed chunk of histograms lies in `window`.
    pub(crate) fn has_sealed_histograms(&self, id: u32, window: TimeRange) -> bool {
        let in_window = |histograms: &HistogramSeries| {
            histograms.sealed.iter().any(|node| window.contains(node.min_time))
        };
        self.histograms.get(id).is_some_and(in_window)
    }

    /// Seals the open chunk of histograms, if there is one; returns it, for the header of the next, unless
    /// out-of-order histograms have changed it.
    pub(super) fn seal_open_histograms(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
    ) -> Option<HistogramAppender> {
        let open = self.histograms.by_series.get_mut(&id)?.open.take()?;
        self.histograms.recount(id);
        let (first, last) = open.times();
        let ooo = self.histograms.take_ooo(id, TimeRange::inclusive(first, last));
        if ooo.is_empty() {
            self.link_histograms(cx, id, &open.encoded());
            return Some(open);
        }
        let samples = open_samples(&open);
        let stored_count = samples.len() + ooo.len();
        let joined = merged(&[ooo, samples]);
        self.merged_count += joined.len() as u64;
        cx.windows.add(first, joined.len() as i64 - stored_count as i64);
        self.link_all(cx, id, &joined);
        None
    }

    /// Seals the open chunk of histograms of a series if at least half of its out-of-order ones belong into
    /// it.
    pub(crate) fn seal_crowded_open_histograms(&mut self, cx: &mut AppendContext<'_>, id: u32) {
        let Some(histograms) = self.histograms.get(id) else { return };
        let Some(open) = &histograms.open else { return };
        let inside_count = histograms.ooo.range(open.times().0..).count();
        if 2 * inside_count >= histograms.ooo.len() && inside_count > 0 {
            self.seal_open_histograms(cx, id);
        }
    }

    /// Merges the out-of-order histograms in `range` into sealed chunks, except for those within the open
    /// chunk.
    pub(in crate::series::stripe) fn merge_out_of_order_histograms(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        range: TimeRange,
    ) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            rest = self.merge_out_of_order_histograms_slice(cx, id, range);
        }
    }

    /// Returns true if the series has so many out-of-order histograms that merging may take several slices.
    pub(crate) fn has_many_ooo_histograms(&self, id: u32) -> bool {
        self.histograms.get(id).is_some_and(|histograms| histograms.ooo.len() > OOO_COUNT_MAX)
    }

    /// Merges as many out-of-order histograms in `range` as [`SLICE_HISTOGRAMS`] allows; returns the range of
    /// the rest. Between two calls the series may change in any way.
    pub(crate) fn merge_out_of_order_histograms_slice(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        range: TimeRange,
    ) -> Option<TimeRange> {
        let (mut start, mut moved_count) = (range.start, 0);
        loop {
            let histograms = self.histograms.get(id)?;
            let end = histograms.open.as_ref().map_or(range.end, |open| range.end.min(open.times().0));
            let (&first, _) = histograms.ooo.range(start..end.max(start)).next()?;
            if moved_count >= SLICE_HISTOGRAMS {
                return Some(TimeRange { start: first, end: range.end });
            }
            let leaf = histograms.sealed.leaf(TimeRange::window_of(first, cx.window_ms), first);
            start = leaf.end.min(end);
            // A leaf that receives more is split by several calls.
            if let Some((&time, _)) = histograms.ooo.range(first..start).nth(SLICE_HISTOGRAMS) {
                start = time;
            }
            let ooo = self.histograms.take_ooo(id, TimeRange { start: first, end: start });
            moved_count += self.merge_histograms_into_leaf(cx, id, &leaf, ooo);
        }
    }

    /// Encodes out-of-order histograms of one window together with the chunks of their leaf; returns the
    /// number encoded.
    fn merge_histograms_into_leaf(
        &mut self,
        cx: &mut AppendContext<'_>,
        id: u32,
        leaf: &MergeRange<ChunkRef>,
        ooo: Columns,
    ) -> usize {
        let (Some(&first), Some(&last)) = (ooo.times.first(), ooo.times.last()) else { return 0 };
        let Some(histograms) = self.histograms.get(id) else { return 0 };
        let node =
            |(min_time, chunk_ref): &(i64, ChunkRef)| histograms.sealed.get(*min_time, *chunk_ref).copied();
        let mut nodes: Vec<SealedHistogramChunk> = leaf.chunks.iter().filter_map(node).collect();
        let is_apart = nodes.iter().all(|node| node.max_time < first || last < node.min_time);
        if is_apart && ooo.len() >= SAMPLES_PER_CHUNK {
            nodes.clear();
        }
        // At equal timestamps the younger chunk wins; chunks overlap only if one was damaged when others were
        // merged.
        nodes.sort_by_key(|node| std::cmp::Reverse(node.chunk_ref));
        let mut ranked = vec![ooo];
        nodes.retain(|node| match sealed_samples(cx, node) {
            Some(samples) => {
                ranked.push(samples);
                true
            }
            None => false,
        });
        let stored_count: usize = ranked.iter().map(Columns::len).sum();
        let joined = merged(&ranked);
        cx.windows.add_single(first, joined.len() as i64 - stored_count as i64);
        self.merged_count += joined.len() as u64;
        self.unlink_histograms(cx.store, id, &nodes);
        self.link_all(cx, id, &joined);
        joined.len()
    }

    /// Seals ascending histograms of one window.
    pub(super) fn link_all(&mut self, cx: &AppendContext<'_>, id: u32, samples: &Columns) {
        let mut chunks = Vec::new();
        kinds::encode_histograms(
            samples.times.iter().copied().zip(samples.histograms_at(0..samples.len())),
            &mut chunks,
        );
        chunks.iter().for_each(|chunk| self.link_histograms(cx, id, chunk));
    }

    fn link_histograms(&mut self, cx: &AppendContext<'_>, id: u32, chunk: &EncodedChunk) {
        let header = RecordHeader {
            series_id: id,
            encoding: chunk.encoding,
            count: chunk.count,
            min_time: chunk.min_time,
            max_time: chunk.max_time,
        };
        let chunk_ref = cx.store.push(&header, &chunk.bytes);
        let len = u32::try_from(chunk.bytes.len()).expect("chunks are far below 4 GiB");
        self.histograms.series_or_new(id).sealed.insert(SealedHistogramChunk {
            chunk_ref,
            min_time: chunk.min_time,
            max_time: chunk.max_time,
            len,
            count: chunk.count,
            encoding: chunk.encoding,
        });
    }

    /// Removes sealed chunks of histograms from the series, and releases them in their files.
    pub(super) fn unlink_histograms(&mut self, store: &SealedStore, id: u32, gone: &[SealedHistogramChunk]) {
        let Some(histograms) = self.histograms.by_series.get_mut(&id) else { return };
        for node in gone {
            histograms.sealed.remove(node);
            store.release(node.chunk_ref);
        }
    }

    /// Removes the sealed chunks for which `is_gone` returns true from the series, with their samples;
    /// `visit` gets the first timestamp and the sample count of each.
    pub(crate) fn drop_histograms(
        &mut self,
        cx: &AppendContext<'_>,
        id: u32,
        is_gone: impl Fn(ChunkRef, i64) -> bool,
        mut visit: impl FnMut(i64, u16),
    ) {
        let Some(histograms) = self.histograms.get(id) else { return };
        let is_gone = |node: &&SealedHistogramChunk| is_gone(node.chunk_ref, node.min_time);
        let gone: Vec<SealedHistogramChunk> = histograms.sealed.iter().filter(is_gone).copied().collect();
        gone.iter().for_each(|node| visit(node.min_time, node.count));
        self.unlink_histograms(cx.store, id, &gone);
        self.settle_histograms(id, cx.window_ms);
    }

    /// Recomputes the newest timestamp after chunks were removed, and drops the histograms of the series if
    /// none is left.
    pub(super) fn settle_histograms(&mut self, id: u32, window_ms: i64) {
        if let Some(histograms) = self.histograms.by_series.get_mut(&id) {
            histograms.settle_last();
        }
        self.drop_empty_histograms(id, window_ms);
    }
}
