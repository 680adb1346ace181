//! Sealing histograms: the open chunk with the late ones within it, late ones leaf by leaf into the sealed chunks
//! that they overlap, as floats are (`stripe::seal`), so that the cost of one is bounded in whatever order they come.
//!
//! Holds: sealed chunks of histograms do not overlap, and none crosses a window; a damaged chunk stays as it is.

use chronolith_format::histogram::{self, HistogramAppender};
use chronolith_format::kinds;
use chronolith_format::sealed::RecordHeader;
use chronolith_format::xor::{EncodedChunk, SAMPLES_PER_CHUNK};
use chronolith_model::query::merged;
use chronolith_model::{Columns, TimeRange};

use super::super::late::LATE_COUNT_MAX;
use super::super::leaf::Leaf;
use super::super::{Stripe, StripeWorld};
use super::{HistogramNode, Track};
use crate::sealed::{SealedPlace, SealedStore};
use crate::windows::WindowTally;

/// Histograms that are encoded in one go, about a millisecond of work, before others may have the stripe.
const SLICE_HISTOGRAMS: usize = 1 << 10;

/// The samples of an open chunk.
pub(super) fn open_samples(open: &HistogramAppender) -> Columns {
    let mut samples = Columns::default();
    // The process wrote these bytes itself.
    let decoded = histogram::decode(open.encoding(), open.bytes(), TimeRange::ALL, &mut samples);
    debug_assert!(decoded.is_ok(), "open chunks decode");
    samples
}

/// The samples of a sealed chunk; `None` if it cannot be read.
pub(super) fn sealed_samples(world: &StripeWorld<'_>, node: &HistogramNode) -> Option<Columns> {
    let mut samples = Columns::default();
    let file = world.store.file(node.place.file)?;
    let read = file.read_chunk(world.disk, node.place.offset, node.len as usize, |bytes| {
        histogram::decode(node.encoding, bytes, TimeRange::ALL, &mut samples)
    });
    (matches!(read, Ok(Ok(()))) && samples.len() == usize::from(node.count)).then_some(samples)
}

impl Stripe {
    /// Seals what a series has of histograms in `window`.
    pub(crate) fn seal_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        window: TimeRange,
    ) {
        let Some(track) = self.histograms.get(id) else { return };
        if track.open.as_ref().is_some_and(|open| window.contains(open.times().0)) {
            self.seal_open_histograms(world, windows, id);
        }
        self.seal_late_histograms(world, windows, id, window);
        self.histograms.tell(world.histograms);
    }

    /// Whether a sealed chunk of histograms lies in `window`.
    pub(crate) fn has_sealed_histograms(&self, id: u32, window: TimeRange) -> bool {
        let in_window = |track: &Track| track.sealed.iter().any(|node| window.contains(node.min_time));
        self.histograms.get(id).is_some_and(in_window)
    }

    /// Seals the open chunk of histograms, if there is one; gives it back, for the header of the next, unless late
    /// ones have changed it.
    pub(super) fn seal_open_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
    ) -> Option<HistogramAppender> {
        let open = self.histograms.tracks.get_mut(&id)?.open.take()?;
        self.histograms.recount(id);
        let (first, last) = open.times();
        let late = self.histograms.take_late(id, TimeRange::inclusive(first, last));
        if late.is_empty() {
            self.link_histograms(world, id, &open.encoded());
            return Some(open);
        }
        let samples = open_samples(&open);
        let stored_count = samples.len() + late.len();
        let joined = merged(&[late, samples]);
        self.merged_count += joined.len() as u64;
        windows.add(first, joined.len() as i64 - stored_count as i64);
        self.link_all(world, id, &joined);
        None
    }

    /// Seals the open chunk of histograms of a series if most of its late ones belong into that.
    pub(crate) fn seal_crowded_open_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
    ) {
        let Some(track) = self.histograms.get(id) else { return };
        let Some(open) = &track.open else { return };
        let inside_count = track.late.range(open.times().0..).count();
        if 2 * inside_count >= track.late.len() && inside_count > 0 {
            self.seal_open_histograms(world, windows, id);
        }
    }

    /// Seals late histograms in `range`, except for those that wait for the open chunk.
    pub(in crate::stripe) fn seal_late_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            rest = self.seal_late_histograms_slice(world, windows, id, range);
        }
    }

    /// Returns true if the series has so many late histograms that they may take several slices.
    pub(crate) fn has_many_late_histograms(&self, id: u32) -> bool {
        self.histograms.get(id).is_some_and(|track| track.late.len() > LATE_COUNT_MAX)
    }

    /// Seals as much of the late histograms in `range` as [`SLICE_HISTOGRAMS`] allow; gives the range of the rest.
    /// Between two calls the series may change in any way.
    pub(crate) fn seal_late_histograms_slice(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> Option<TimeRange> {
        let (mut start, mut moved_count) = (range.start, 0);
        loop {
            let track = self.histograms.get(id)?;
            let end = track.open.as_ref().map_or(range.end, |open| range.end.min(open.times().0));
            let (&first, _) = track.late.range(start..end.max(start)).next()?;
            if moved_count >= SLICE_HISTOGRAMS {
                return Some(TimeRange { start: first, end: range.end });
            }
            let leaf = track.sealed.leaf(TimeRange::window_of(first, world.window_ms), first);
            start = leaf.end.min(end);
            // A leaf that takes in more is split by more than one call.
            if let Some((&time, _)) = track.late.range(first..start).nth(SLICE_HISTOGRAMS) {
                start = time;
            }
            let late = self.histograms.take_late(id, TimeRange { start: first, end: start });
            moved_count += self.merge_histograms_into_leaf(world, windows, id, &leaf, late);
        }
    }

    /// Seals late histograms of one window together with the chunks of their leaf; gives how many it encoded.
    fn merge_histograms_into_leaf(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        leaf: &Leaf<SealedPlace>,
        late: Columns,
    ) -> usize {
        let (Some(&first), Some(&last)) = (late.times.first(), late.times.last()) else { return 0 };
        let Some(track) = self.histograms.get(id) else { return 0 };
        let node = |(min_time, place): &(i64, SealedPlace)| track.sealed.get(*min_time, *place).copied();
        let mut nodes: Vec<HistogramNode> = leaf.chunks.iter().filter_map(node).collect();
        let is_apart = nodes.iter().all(|node| node.max_time < first || last < node.min_time);
        if is_apart && late.len() >= SAMPLES_PER_CHUNK {
            nodes.clear();
        }
        // Of equal times the younger counts; chunks overlap only where one was damaged when others were merged.
        nodes.sort_by_key(|node| std::cmp::Reverse(node.place));
        let mut ranked = vec![late];
        nodes.retain(|node| match sealed_samples(world, node) {
            Some(samples) => {
                ranked.push(samples);
                true
            }
            None => false,
        });
        let stored_count: usize = ranked.iter().map(Columns::len).sum();
        let joined = merged(&ranked);
        windows.add_aside(first, joined.len() as i64 - stored_count as i64);
        self.merged_count += joined.len() as u64;
        self.unlink_histograms(world.store, id, &nodes);
        self.link_all(world, id, &joined);
        joined.len()
    }

    /// Seals ascending histograms of one window.
    pub(super) fn link_all(&mut self, world: &StripeWorld<'_>, id: u32, samples: &Columns) {
        let mut chunks = Vec::new();
        kinds::encode_histograms(
            samples.times.iter().copied().zip(samples.histograms_at(0..samples.len())),
            &mut chunks,
        );
        chunks.iter().for_each(|chunk| self.link_histograms(world, id, chunk));
    }

    fn link_histograms(&mut self, world: &StripeWorld<'_>, id: u32, chunk: &EncodedChunk) {
        let header = RecordHeader {
            series_id: id,
            encoding: chunk.encoding,
            count: chunk.count,
            min_time: chunk.min_time,
            max_time: chunk.max_time,
        };
        let place = world.store.push(&header, &chunk.bytes);
        let len = u32::try_from(chunk.bytes.len()).expect("chunks are far below 4 GiB");
        self.histograms.track_or_new(id).sealed.insert(HistogramNode {
            place,
            min_time: chunk.min_time,
            max_time: chunk.max_time,
            len,
            count: chunk.count,
            encoding: chunk.encoding,
        });
    }

    /// Takes sealed chunks of histograms out of the series; their files learn of it.
    pub(super) fn unlink_histograms(&mut self, store: &SealedStore, id: u32, gone: &[HistogramNode]) {
        let Some(track) = self.histograms.tracks.get_mut(&id) else { return };
        for node in gone {
            track.sealed.remove(node);
            store.release(node.place);
        }
    }

    /// Takes the sealed chunks for which `is_gone` holds out of the series, with their samples; `visit` gets the first
    /// time and sample count of each.
    pub(crate) fn drop_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        id: u32,
        is_gone: impl Fn(SealedPlace, i64) -> bool,
        mut visit: impl FnMut(i64, u16),
    ) {
        let Some(track) = self.histograms.get(id) else { return };
        let is_gone = |node: &&HistogramNode| is_gone(node.place, node.min_time);
        let gone: Vec<HistogramNode> = track.sealed.iter().filter(is_gone).copied().collect();
        gone.iter().for_each(|node| visit(node.min_time, node.count));
        self.unlink_histograms(world.store, id, &gone);
        self.settle_histograms(id, world.window_ms);
    }

    /// After chunks have gone: what is the newest histogram, is there any.
    pub(super) fn settle_histograms(&mut self, id: u32, window_ms: i64) {
        if let Some(track) = self.histograms.tracks.get_mut(&id) {
            track.settle_last();
        }
        self.drop_empty_track(id, window_ms);
    }
}
