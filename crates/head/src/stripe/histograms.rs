//! Native histograms of the few series that have some: open chunk, late ones, places of sealed chunks.
//!
//! Holds: they stand beside the hot record of their series, in a track of their own; at a time a series has a float or a
//! histogram, never both. Chunks of a track do not overlap each other, but may overlap those of floats. While a
//! series has a track, its hot record lets no float pass at once (`window_end` is [`BARRED`]), so that floats of other
//! series pay nothing for the look at histograms.
//! Not here: chunk bytes (`format::histogram`), the log (`append`).

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
use chronolith_format::histogram::HistogramAppender;
use chronolith_model::{Columns, Histogram, TimeRange};

use super::late::is_buffer_full;
use super::{Stripe, place_of};
use crate::memory::MemoryPart;
use crate::sealed::SealedPlace;

use budget::late_bytes_of;

pub(crate) use budget::HistogramBudget;
pub(crate) use restore::HistogramParts;
pub(crate) use sealed::SealedHistograms;

/// End of the window of an open float chunk whose series has histograms: every float takes the long way.
const BARRED: i64 = i64::MIN;
/// A sealed chunk of histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistogramNode {
    pub(crate) place: SealedPlace,
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
    pub(crate) len: u32,
    pub(crate) count: u16,
    pub(crate) encoding: u8,
}

/// The histograms of one series.
pub(crate) struct Track {
    pub(crate) open: Option<HistogramAppender>,
    /// End of the window of the open chunk.
    window_end: i64,
    /// Newest time.
    last: i64,
    /// They win over chunks: a late one has the time of another only if it has replaced it.
    pub(crate) late: BTreeMap<i64, Arc<Histogram>>,
    late_bytes: usize,
    open_bytes: usize,
    pub(crate) sealed: SealedHistograms,
}

impl Track {
    const EMPTY: Track = Track {
        open: None,
        window_end: 0,
        last: i64::MIN,
        late: BTreeMap::new(),
        late_bytes: 0,
        open_bytes: 0,
        sealed: SealedHistograms::EMPTY,
    };

    /// Chunks; late histograms count as one.
    pub(crate) fn chunk_count(&self) -> usize {
        self.sealed.len() + usize::from(self.open.is_some()) + usize::from(!self.late.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.open.is_none() && self.late.is_empty() && self.sealed.is_empty()
    }

    fn overlaps(&self, range: TimeRange) -> bool {
        let open = self.open.as_ref().map(HistogramAppender::times);
        open.is_some_and(|(first, last)| range.overlaps_inclusive(first, last))
            || self.late.range(range.start..range.end.max(range.start)).next().is_some()
            || self.sealed.overlapping(range).next().is_some()
    }

    /// Finds the newest time anew.
    fn settle_last(&mut self) {
        let sealed = self.sealed.iter().map(|node| node.max_time);
        let others = self.open.as_ref().map(|open| open.times().1);
        let late = self.late.last_key_value().map(|(&time, _)| time);
        self.last = sealed.chain(others).chain(late).max().unwrap_or(i64::MIN);
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Track>()
            + self.open.as_ref().map_or(0, HistogramAppender::heap_bytes)
            + self.late_bytes
            + self.sealed.heap_bytes()
    }
}

/// Which chunk was decoded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Open { id: u32, first: i64, count: u16 },
    Sealed(SealedPlace),
}

/// The tracks of a stripe.
#[derive(Default)]
pub(crate) struct Histograms {
    tracks: HashMap<u32, Box<Track>>,
    open_bytes: usize,
    late_bytes: usize,
    /// Of these, what the head's budget knows.
    told_bytes: u64,
    /// The chunk that was decoded last: a sender that repeats a batch asks for one after another of its samples.
    decoded: Option<(Seen, Columns)>,
}

impl Histograms {
    pub(crate) fn get(&self, id: u32) -> Option<&Track> {
        // Most stripes have none, and need no hash to know.
        if self.tracks.is_empty() { None } else { self.tracks.get(&id).map(|track| &**track) }
    }

    fn track_or_new(&mut self, id: u32) -> &mut Track {
        self.tracks.entry(id).or_insert_with(|| Box::new(Track::EMPTY))
    }

    fn put_late(&mut self, id: u32, time: i64, histogram: &Arc<Histogram>) -> Option<Arc<Histogram>> {
        let added = late_bytes_of(histogram);
        let track = self.track_or_new(id);
        let before = track.late.insert(time, histogram.clone());
        let removed = before.as_ref().map_or(0, |before| late_bytes_of(before));
        track.late_bytes = track.late_bytes + added - removed;
        self.late_bytes = self.late_bytes + added - removed;
        before
    }

    /// Takes the late ones in `range`, ascending.
    fn take_late(&mut self, id: u32, range: TimeRange) -> Columns {
        let mut out = Columns::default();
        let Some(track) = self.tracks.get_mut(&id) else { return out };
        let taken = track.late.extract_if(range.start..range.end.max(range.start), |_, _| true);
        let mut bytes = 0;
        for (time, histogram) in taken {
            bytes += late_bytes_of(&histogram);
            out.push_histogram(time, histogram);
        }
        track.late_bytes -= bytes;
        self.late_bytes -= bytes;
        out
    }

    /// Returns true if the late ones of a series are to be sealed.
    fn is_full(&self, id: u32) -> bool {
        self.get(id).is_some_and(|track| {
            is_buffer_full(track.late.len(), self.late_bytes, || track.sealed.sample_count())
        })
    }

    /// Chunks; late ones of a series count as one.
    pub(super) fn chunk_count(&self) -> u64 {
        self.tracks.values().map(|track| track.chunk_count() as u64).sum()
    }

    pub(super) fn memory(&self) -> MemoryPart {
        let tracks: usize = self.tracks.values().map(|track| track.heap_bytes()).sum();
        let table = self.tracks.capacity() * size_of::<(u32, Box<Track>)>();
        MemoryPart::new("histograms", (tracks + table) as u64, self.tracks.len() as u64)
    }
}

impl Stripe {
    /// What a series has of histograms.
    pub(crate) fn histograms_of(&self, id: u32) -> Option<&Track> {
        self.histograms.get(id)
    }

    /// Whether a series has a chunk or late histogram that may have samples in `range`.
    pub(crate) fn has_histograms_in(&self, id: u32, range: TimeRange) -> bool {
        self.histograms.get(id).is_some_and(|track| track.overlaps(range))
    }

    /// Whether nothing of the series, which is there, is stored here.
    pub(crate) fn is_empty(&self, id: u32) -> bool {
        self.hot(id).is_none_or(super::Hot::has_no_chunk) && self.histograms.get(id).is_none()
    }

    /// Time of the newest sample of a series.
    pub(crate) fn newest_time(&self, id: u32) -> Option<i64> {
        let float = self.hot(id).filter(|hot| hot.xor.count() > 0).map(|hot| hot.xor.time());
        float.max(self.histograms.get(id).map(|track| track.last))
    }

    fn touch(&mut self, id: u32) {
        let (page, slot) = place_of(id);
        if let Some(Some(page)) = self.pages.get_mut(page) {
            page.stamps.touch(slot);
        }
    }

    /// Lets no float of the series pass at once.
    pub(super) fn bar_floats(&mut self, id: u32) {
        if let Some(hot) = self.hot_mut(id)
            && !hot.open.is_none()
        {
            hot.window_end = BARRED;
        }
    }

    /// Forgets the track of a series if nothing is left of it.
    fn drop_empty_track(&mut self, id: u32, window_ms: i64) {
        if !self.histograms.get(id).is_some_and(Track::is_empty) {
            return;
        }
        self.histograms.tracks.remove(&id);
        if self.histograms.tracks.is_empty() {
            // After a peak nothing is kept of it.
            self.histograms = Histograms { told_bytes: self.histograms.told_bytes, ..Histograms::default() };
        }
        if let Some(hot) = self.hot_mut(id)
            && !hot.open.is_none()
        {
            hot.window_end = TimeRange::window_of(hot.open_min, window_ms).end;
        }
    }
}
