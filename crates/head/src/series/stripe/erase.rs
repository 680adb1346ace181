//! Deletes the floats of a time range from a series, in all its storage.
//!
//! Invariant: the rest reads as if the deleted samples had never been written; a later sample at a deleted
//! timestamp is stored like any other. A damaged chunk that lies partly in the range stays as it is.
//! Not here: series selection and the WAL (`write::delete`), histograms (`stripe::histograms`).

use chronolith_format::chunk::xor::{self, SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{Columns, TimeRange};

use super::seal::join;
use super::timestamp_cache::SeriesWindow;
use super::{AppendContext, NONE, SealedChunk, Stripe};
use crate::read::source::overlaps;
use crate::series::chunk_buffer::ChunkBuffer;

/// Result of a deletion for one series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Erased {
    /// Number of deleted samples.
    pub(crate) sample_count: u64,
    /// Set if anything has changed, the last sample in the hot record included.
    pub(crate) has_changed: bool,
}

impl Stripe {
    /// Removes the floats of series `id` in `range`.
    pub(super) fn erase_floats(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) -> Erased {
        let Some(series) = self.series(id).filter(|series| series.xor.count() > 0) else {
            return Erased::default();
        };
        let forgets_last = range.contains(series.xor.time());
        if !forgets_last && !overlaps(self, series, range) {
            return Erased::default();
        }
        if series.ooo != NONE {
            // Merges replacements into the chunks that they replace, so that no replaced value becomes
            // visible again.
            self.merge_out_of_order(cx, id, TimeRange { start: i64::MIN, end: i64::MAX });
        }
        let sample_count = self.erase_open(cx, id, range) + self.erase_sealed(cx, id, range);
        let has_changed = sample_count > 0 || forgets_last;
        // Replacements may have been merged into the open chunk, which keeps its identity and count.
        self.decoded.clear();
        if has_changed {
            self.timestamps.clear();
            self.settle_last(cx, id);
        }
        Erased { sample_count, has_changed }
    }

    /// Encodes the open chunk and the out-of-order samples within it again, without the range.
    fn erase_open(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) -> u64 {
        let Some(series) = self.series(id).filter(|series| !series.open.is_none()).cloned() else { return 0 };
        if !range.overlaps_inclusive(series.open_min, series.xor.time()) {
            return 0;
        }
        let ooo = self.take_ooo(id, TimeRange { start: series.open_min, end: i64::MAX });
        let mut samples = Columns::default();
        self.chunk.clear();
        self.chunk_buffers.copy(series.open, &series.xor, &mut self.chunk);
        // Decoding cannot fail: this process encoded the bytes.
        let decoded = xor::decode(&self.chunk, TimeRange::ALL, &mut samples);
        debug_assert!(decoded.is_ok(), "open chunks decode");
        let stored_count = samples.len() + ooo.len();
        join(&mut samples, &ooo);
        self.timestamps.note_merge(SeriesWindow::of(cx, id, series.open_min));
        let before_count = samples.len();
        keep_outside(&mut samples, range);
        cx.windows.add(series.open_min, samples.len() as i64 - stored_count as i64);
        self.chunk_buffers.free(series.open);
        let (mut open, mut state, mut open_min) = (ChunkBuffer::NONE, series.xor, series.open_min);
        if samples.len() >= SAMPLES_PER_CHUNK {
            self.push_sealed(cx, id, &samples);
        } else if let Some(&first) = samples.times.first() {
            let chunk = xor::encode_whole(&samples.times, &samples.values);
            state = XorState::resume(&chunk).expect("the chunk was just encoded");
            (open, open_min) = (self.chunk_buffers.store(&chunk), first);
        }
        if let Some(series) = self.series_mut(id) {
            (series.open, series.xor, series.open_min) = (open, state, open_min);
        }
        (before_count - samples.len()) as u64
    }

    /// Drops sealed chunks within the range and encodes those that it cuts again.
    fn erase_sealed(&mut self, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) -> u64 {
        let Some(start) = self.series(id).map(|series| series.sealed) else { return 0 };
        let touched: Vec<SealedChunk> = self
            .sealed_chunks
            .list(start)
            .filter(|n| range.overlaps_inclusive(n.min_time, n.max_time()))
            .copied()
            .collect();
        let (mut erased_count, mut gone) = (0, Vec::new());
        let mut cut: Vec<Columns> = Vec::new();
        for node in touched {
            let mut samples = Columns::default();
            let is_whole = range.contains(node.min_time) && range.contains(node.max_time());
            if !is_whole && !self.decode_sealed(cx, &node, &mut samples) {
                continue;
            }
            keep_outside(&mut samples, range);
            let gone_count = usize::from(node.count) - samples.len();
            if gone_count == 0 {
                continue;
            }
            erased_count += gone_count as u64;
            cx.windows.add(node.min_time, -(gone_count as i64));
            gone.push(node.chunk_ref);
            if !samples.is_empty() {
                cut.push(samples);
            }
        }
        gone.sort_unstable();
        if !gone.is_empty() {
            self.unlink_sealed(cx, id, |node| gone.binary_search(&node.chunk_ref).is_ok());
        }
        cut.iter().for_each(|samples| self.push_sealed(cx, id, samples));
        erased_count
    }

    /// Recomputes the last sample of a series without open chunk.
    fn settle_last(&mut self, cx: &AppendContext<'_>, id: u32) {
        let Some(series) = self.series(id).filter(|series| series.open.is_none()) else { return };
        let newest = self.sealed_chunks.list(series.sealed).max_by_key(|n| n.max_time()).copied();
        let mut state = XorState::new();
        if let Some(node) = newest {
            let mut samples = Columns::default();
            // The value of a damaged chunk is unknown: any further sample at this timestamp is then a
            // conflict, which is right.
            self.decode_sealed(cx, &node, &mut samples);
            let value = samples.values.last().map_or(f64::NAN, |v| *v);
            state = XorState::ended(node.max_time(), value.to_bits());
        }
        if let Some(series) = self.series_mut(id) {
            series.xor = state;
        }
    }
}

fn keep_outside(samples: &mut Columns, range: TimeRange) {
    let start = samples.times.partition_point(|&t| t < range.start);
    let end = samples.times.partition_point(|&t| t < range.end).max(start);
    samples.times.drain(start..end);
    samples.values.drain(start..end);
}
