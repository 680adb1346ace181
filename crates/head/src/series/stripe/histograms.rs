//! Native histograms of the few series that have some: open chunk, out-of-order histograms, references to
//! sealed chunks.
//!
//! Invariants: they are in side storage, one [`HistogramSeries`] per series, next to the hot record; at a
//! timestamp a series has a float or a histogram, never both. Histogram chunks of a series do not overlap
//! each other, but may overlap those of floats. While a series has histograms, its hot record blocks the fast
//! path of floats (`window_end` is [`BLOCKED`]), so floats of other series pay nothing for the lookup of
//! histograms.
//! Not here: chunk bytes (`format::chunk::histogram`), the WAL (`write`).

mod append;
mod budget;
mod erase;
mod restore;
mod seal;
mod sealed;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_model::{Columns, Histogram, TimeRange};

use super::ooo_buffer::is_buffer_full;
use super::{Stripe, slot_of};
use crate::memory_part::MemoryPart;
use crate::series::sealed::ChunkRef;

use budget::ooo_bytes_of;

pub(crate) use budget::HistogramBudget;
pub(crate) use restore::HistogramParts;
pub(crate) use sealed::SealedHistograms;

/// End of the window of an open float chunk whose series has histograms: every float takes the slow path.
const BLOCKED: i64 = i64::MIN;
/// Metadata of a sealed histogram chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealedHistogramChunk {
    pub(crate) chunk_ref: ChunkRef,
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
    pub(crate) len: u32,
    pub(crate) count: u16,
    pub(crate) encoding: u8,
}

/// Histograms of one series.
pub(crate) struct HistogramSeries {
    pub(crate) open: Option<HistogramAppender>,
    /// End of the window of the open chunk.
    window_end: i64,
    /// Newest timestamp.
    last: i64,
    /// Buffered histograms win over chunks: one has the timestamp of another only if it has replaced it.
    pub(crate) ooo: BTreeMap<i64, Arc<Histogram>>,
    ooo_bytes: usize,
    open_bytes: usize,
    pub(crate) sealed: SealedHistograms,
}

impl HistogramSeries {
    const EMPTY: HistogramSeries = HistogramSeries {
        open: None,
        window_end: 0,
        last: i64::MIN,
        ooo: BTreeMap::new(),
        ooo_bytes: 0,
        open_bytes: 0,
        sealed: SealedHistograms::EMPTY,
    };

    /// Returns the number of chunks; out-of-order histograms count as one.
    pub(crate) fn chunk_count(&self) -> usize {
        self.sealed.len() + usize::from(self.open.is_some()) + usize::from(!self.ooo.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.open.is_none() && self.ooo.is_empty() && self.sealed.is_empty()
    }

    fn overlaps(&self, range: TimeRange) -> bool {
        let open = self.open.as_ref().map(HistogramAppender::times);
        open.is_some_and(|(first, last)| range.overlaps_inclusive(first, last))
            || self.ooo.range(range.start..range.end.max(range.start)).next().is_some()
            || self.sealed.overlapping(range).next().is_some()
    }

    /// Recomputes the newest timestamp.
    fn settle_last(&mut self) {
        let sealed = self.sealed.iter().map(|node| node.max_time);
        let others = self.open.as_ref().map(|open| open.times().1);
        let ooo = self.ooo.last_key_value().map(|(&time, _)| time);
        self.last = sealed.chain(others).chain(ooo).max().unwrap_or(i64::MIN);
    }

    fn heap_bytes(&self) -> usize {
        size_of::<HistogramSeries>()
            + self.open.as_ref().map_or(0, HistogramAppender::heap_bytes)
            + self.ooo_bytes
            + self.sealed.heap_bytes()
    }
}

/// Identity of the chunk that was decoded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Open { id: u32, first: i64, count: u16 },
    Sealed(ChunkRef),
}

/// Histograms of the series of a stripe.
#[derive(Default)]
pub(crate) struct Histograms {
    by_series: HashMap<u32, Box<HistogramSeries>>,
    open_bytes: usize,
    ooo_bytes: usize,
    /// Bytes last reported to the budget of the head.
    reported_bytes: u64,
    /// Cache of the chunk that was decoded last: a sender that repeats a batch needs one chunk for many
    /// samples in a row.
    decoded: Option<(Seen, Columns)>,
}

impl Histograms {
    pub(crate) fn get(&self, id: u32) -> Option<&HistogramSeries> {
        // Most stripes have none, and skip the hash.
        if self.by_series.is_empty() { None } else { self.by_series.get(&id).map(|histograms| &**histograms) }
    }

    fn series_or_new(&mut self, id: u32) -> &mut HistogramSeries {
        self.by_series.entry(id).or_insert_with(|| Box::new(HistogramSeries::EMPTY))
    }

    fn insert_ooo(&mut self, id: u32, time: i64, histogram: &Arc<Histogram>) -> Option<Arc<Histogram>> {
        let added = ooo_bytes_of(histogram);
        let histograms = self.series_or_new(id);
        let before = histograms.ooo.insert(time, histogram.clone());
        let removed = before.as_ref().map_or(0, |before| ooo_bytes_of(before));
        histograms.ooo_bytes = histograms.ooo_bytes + added - removed;
        self.ooo_bytes = self.ooo_bytes + added - removed;
        before
    }

    /// Removes and returns the out-of-order histograms in `range`, ascending.
    fn take_ooo(&mut self, id: u32, range: TimeRange) -> Columns {
        let mut out = Columns::default();
        let Some(histograms) = self.by_series.get_mut(&id) else { return out };
        let taken = histograms.ooo.extract_if(range.start..range.end.max(range.start), |_, _| true);
        let mut bytes = 0;
        for (time, histogram) in taken {
            bytes += ooo_bytes_of(&histogram);
            out.push_histogram(time, histogram);
        }
        histograms.ooo_bytes -= bytes;
        self.ooo_bytes -= bytes;
        out
    }

    /// Returns true if the out-of-order histograms of a series must be merged.
    fn is_full(&self, id: u32) -> bool {
        self.get(id).is_some_and(|histograms| {
            is_buffer_full(histograms.ooo.len(), self.ooo_bytes, || histograms.sealed.sample_count())
        })
    }

    /// Returns the number of chunks; out-of-order histograms of a series count as one.
    pub(super) fn chunk_count(&self) -> u64 {
        self.by_series.values().map(|histograms| histograms.chunk_count() as u64).sum()
    }

    pub(super) fn memory(&self) -> MemoryPart {
        let series_bytes: usize = self.by_series.values().map(|histograms| histograms.heap_bytes()).sum();
        let table = self.by_series.capacity() * size_of::<(u32, Box<HistogramSeries>)>();
        MemoryPart::new("histograms", (series_bytes + table) as u64, self.by_series.len() as u64)
    }
}

impl Stripe {
    /// Returns the histograms of a series.
    pub(crate) fn histograms_of(&self, id: u32) -> Option<&HistogramSeries> {
        self.histograms.get(id)
    }

    /// Returns true if a series has a chunk or an out-of-order histogram that may have samples in `range`.
    pub(crate) fn has_histograms_in(&self, id: u32, range: TimeRange) -> bool {
        self.histograms.get(id).is_some_and(|histograms| histograms.overlaps(range))
    }

    /// Returns true if the series, which exists, has no samples here.
    pub(crate) fn is_empty(&self, id: u32) -> bool {
        self.series(id).is_none_or(super::SeriesState::has_no_chunk) && self.histograms.get(id).is_none()
    }

    /// Returns the timestamp of the newest sample of a series.
    pub(crate) fn newest_time(&self, id: u32) -> Option<i64> {
        let float = self.series(id).filter(|series| series.xor.count() > 0).map(|series| series.xor.time());
        float.max(self.histograms.get(id).map(|histograms| histograms.last))
    }

    fn touch(&mut self, id: u32) {
        let (page, slot) = slot_of(id);
        if let Some(Some(page)) = self.pages.get_mut(page) {
            page.activity.touch(slot);
        }
    }

    /// Blocks the fast path for floats of the series.
    pub(super) fn block_fast_path(&mut self, id: u32) {
        if let Some(series) = self.series_mut(id)
            && !series.open.is_none()
        {
            series.window_end = BLOCKED;
        }
    }

    /// Removes the histograms of a series once none is left.
    fn drop_empty_histograms(&mut self, id: u32, window_ms: i64) {
        if !self.histograms.get(id).is_some_and(HistogramSeries::is_empty) {
            return;
        }
        self.histograms.by_series.remove(&id);
        if self.histograms.by_series.is_empty() {
            // Frees all memory after a peak.
            self.histograms =
                Histograms { reported_bytes: self.histograms.reported_bytes, ..Histograms::default() };
        }
        if let Some(series) = self.series_mut(id)
            && !series.open.is_none()
        {
            series.window_end = TimeRange::window_of(series.open_min, window_ms).end;
        }
    }
}
