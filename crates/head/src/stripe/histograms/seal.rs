//! Sealing histograms: the open chunk with the late ones within it, late ones into the sealed chunks they overlap.
//!
//! Holds: sealed chunks of histograms do not overlap, and none crosses a window; a damaged chunk stays as it is.

use chronolith_format::histogram::{self, HistogramAppender};
use chronolith_format::kinds;
use chronolith_format::sealed::RecordHeader;
use chronolith_format::xor::EncodedChunk;
use chronolith_model::query::merged;
use chronolith_model::{Columns, TimeRange};

use super::super::{Stripe, StripeWorld};
use super::{HistogramNode, Track};
use crate::sealed::{SealedPlace, SealedStore};
use crate::windows::WindowTally;

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
        windows.add(first, joined.len() as i64 - stored_count as i64);
        self.link_all(world, id, &joined);
        None
    }

    /// Seals late histograms in `range`, window by window, except for those that wait for the open chunk.
    pub(super) fn seal_late_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) {
        let Some(track) = self.histograms.get(id).filter(|track| !track.late.is_empty()) else { return };
        let end = track.open.as_ref().map_or(range.end, |open| range.end.min(open.times().0));
        let taken = self.histograms.take_late(id, TimeRange { start: range.start, end });
        let mut start = 0;
        while let Some(&first) = taken.times.get(start) {
            let window = TimeRange::window_of(first, world.window_ms);
            let len = taken.times[start..].partition_point(|&time| time < window.end);
            let mut part = Columns::default();
            part.extend_from(&taken, start..start + len);
            self.merge_histograms(world, windows, id, part);
            start += len;
        }
    }

    /// Seals late histograms of one window with the sealed chunks that they overlap.
    fn merge_histograms(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        late: Columns,
    ) {
        let (Some(&first), Some(&last)) = (late.times.first(), late.times.last()) else { return };
        let range = TimeRange::inclusive(first, last);
        let Some(track) = self.histograms.get(id) else { return };
        let overlaps = |node: &&HistogramNode| range.overlaps_inclusive(node.min_time, node.max_time);
        let mut nodes: Vec<HistogramNode> = track.sealed.iter().filter(overlaps).copied().collect();
        // Of equal times the younger counts; chunks overlap only where one was damaged when others were merged.
        nodes.sort_by_key(|node| std::cmp::Reverse(node.place));
        let (mut gone, mut ranked, mut stored_count) = (Vec::new(), vec![late], 0);
        for node in &nodes {
            if let Some(samples) = sealed_samples(world, node) {
                gone.push(node.place);
                ranked.push(samples);
            }
        }
        stored_count += ranked.iter().map(Columns::len).sum::<usize>();
        let joined = merged(&ranked);
        windows.add_aside(first, joined.len() as i64 - stored_count as i64);
        self.unlink_histograms(world.store, id, |node| gone.contains(&node.place));
        self.link_all(world, id, &joined);
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
        self.histograms.track_or_new(id).sealed.push(HistogramNode {
            place,
            min_time: chunk.min_time,
            max_time: chunk.max_time,
            len,
            count: chunk.count,
            encoding: chunk.encoding,
        });
    }

    /// Takes sealed chunks of histograms out of the series; their files learn of it.
    pub(super) fn unlink_histograms(
        &mut self,
        store: &SealedStore,
        id: u32,
        is_gone: impl Fn(&HistogramNode) -> bool,
    ) {
        let Some(track) = self.histograms.tracks.get_mut(&id) else { return };
        track.sealed.retain(|node| {
            let is_gone = is_gone(node);
            if is_gone {
                store.release(node.place);
            }
            !is_gone
        });
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
        let is_gone = |node: &HistogramNode| is_gone(node.place, node.min_time);
        track.sealed.iter().filter(|node| is_gone(node)).for_each(|node| visit(node.min_time, node.count));
        self.unlink_histograms(world.store, id, is_gone);
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
