//! Sealing: the open chunk with the late samples that belong into it, late samples into the sealed chunks
//! that they overlap. The sealed chunks are the leaves of a B-tree: late samples gather in a buffer of their
//! series until each makes the head encode few others again, then each leaf that has some in its range is
//! encoded again with them and split where it is large. So the cost of a sample is bounded in whatever order
//! they come.
//!
//! Holds: no sealed chunk overlaps another or the open one, so a query decodes as much as if nothing had been
//! late; a sample that waits as late wins over one of the same time in a chunk, because it came later.

use chronolith_format::sealed::RecordHeader;
use chronolith_format::xor::{self, ENCODING_XOR, SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{Columns, TimeRange};

use super::free::SeriesWindow;
use super::leaf::Leaf;
use super::{Hot, NONE, SealedNode, Stripe, StripeWorld};
use crate::chain::Chain;
use crate::sealed::SealedPlace;
use crate::windows::WindowTally;

/// An open chunk that is sealed takes late samples in if each of them makes at most this many others be encoded
/// again. Fewer wait on: more of the same chunk may come, and cutting its window encodes it once for all of them.
const SEAL_FACTOR: usize = 10;
/// Samples that are encoded in one go, half a millisecond of work, before others may have the stripe.
const SLICE_SAMPLES: usize = 1 << 14;

impl Stripe {
    /// Seals the open chunk, if there is one; the record keeps the last sample.
    pub(crate) fn seal_open(&mut self, world: &StripeWorld<'_>, windows: &mut WindowTally, id: u32) {
        let Some(hot) = self.hot(id).filter(|hot| !hot.open.is_none()).cloned() else { return };
        let mut last = hot.xor;
        let late = self.take_late_of_open(id, &hot);
        self.chunk.clear();
        self.chains.copy(hot.open, &hot.xor, &mut self.chunk);
        if late.is_empty() {
            let header = RecordHeader {
                series_id: id,
                encoding: ENCODING_XOR,
                count: hot.xor.count(),
                min_time: hot.open_min,
                max_time: hot.xor.time(),
            };
            let place = world.store.push(&header, &self.chunk);
            let node = SealedNode::new(place, &header, self.chunk.len());
            self.link_sealed(id, node);
        } else {
            let mut samples = Columns::default();
            // The process wrote these bytes itself.
            let decoded = xor::decode(&self.chunk, TimeRange::ALL, &mut samples);
            debug_assert!(decoded.is_ok(), "open chunks decode");
            let stored_count = samples.len() + late.len();
            join(&mut samples, &late);
            self.merged_count += samples.len() as u64;
            windows.add(hot.open_min, samples.len() as i64 - stored_count as i64);
            self.free.note_merge(SeriesWindow::of(world, id, hot.open_min));
            self.push_sealed(world, id, &samples);
            if let (Some(&time), Some(value)) = (samples.times.last(), samples.values.last()) {
                last = XorState::ended(time, value.to_bits());
            }
        }
        self.chains.free(hot.open);
        if let Some(hot) = self.hot_mut(id) {
            hot.open = Chain::NONE;
            hot.xor = last;
        }
    }

    /// Takes the late samples within the open chunk `hot`; none of them if they are too few to encode it again.
    fn take_late_of_open(&mut self, id: u32, hot: &Hot) -> Columns {
        if hot.late == NONE {
            return Columns::default();
        }
        let (before_count, count) = self.late.counts(hot.late, hot.open_min);
        // The last sample stays in the record: one that replaces it must not wait.
        let replaces_last = self.late.find(hot.late, hot.xor.time()).is_some();
        if SEAL_FACTOR * (count - before_count) < usize::from(hot.xor.count()) && !replaces_last {
            return Columns::default();
        }
        self.take_late(id, TimeRange { start: hot.open_min, end: i64::MAX })
    }

    /// Seals the late samples in `range`, except for those that wait for the open chunk.
    pub(crate) fn seal_late(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            rest = self.seal_late_slice(world, windows, id, range);
        }
    }

    /// Returns true if the series has so many late samples that they may take several slices.
    pub(crate) fn has_late_tree(&self, id: u32) -> bool {
        self.hot(id).is_some_and(|hot| self.late.is_tree(hot.late))
    }

    /// Seals as much of the late samples in `range` as [`SLICE_SAMPLES`] allow; gives the range of the rest.
    /// Between two calls the series may change in any way.
    pub(crate) fn seal_late_slice(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) -> Option<TimeRange> {
        let hot = self.hot(id).filter(|h| h.late != NONE)?;
        let end = if hot.open.is_none() { range.end } else { range.end.min(hot.open_min) };
        if !self.late.is_tree(hot.late) {
            self.seal_list(world, windows, id, TimeRange { start: range.start, end });
            return None;
        }
        let (mut start, mut moved_count) = (range.start, 0);
        loop {
            let hot = self.hot(id)?;
            let (late, sealed) = (hot.late, hot.sealed);
            let first = self.late.first_of_tree(late, TimeRange { start, end })?;
            if moved_count >= SLICE_SAMPLES {
                return Some(TimeRange { start: first, end: range.end });
            }
            let window = TimeRange::window_of(first, world.window_ms);
            let leaf = self.leaf(id, sealed, window, first);
            start = leaf.end.min(end);
            let late = self.take_late(id, TimeRange { start: first, end: start });
            moved_count += self.merge_into_leaf(world, windows, id, &leaf, &late);
        }
    }

    /// Seals the late samples in `range` of a series that has few of them.
    fn seal_list(&mut self, world: &StripeWorld<'_>, windows: &mut WindowTally, id: u32, range: TimeRange) {
        let taken = self.take_late(id, range);
        let mut start = 0;
        while let Some(&first) = taken.times.get(start) {
            let Some(sealed) = self.hot(id).map(|hot| hot.sealed) else { return };
            let leaf = self.leaf(id, sealed, TimeRange::window_of(first, world.window_ms), first);
            let len = taken.times[start..].partition_point(|&t| t < leaf.end);
            let part = Columns {
                times: taken.times[start..start + len].to_vec(),
                values: taken.values[start..start + len].to_vec(),
                ..Columns::default()
            };
            self.merge_into_leaf(world, windows, id, &leaf, &part);
            start += len;
        }
    }

    /// Takes late samples of a series out of those that wait.
    pub(super) fn take_late(&mut self, id: u32, range: TimeRange) -> Columns {
        let Some(chain) = self.hot(id).map(|hot| hot.late).filter(|&late| late != NONE) else {
            return Columns::default();
        };
        let (rest, taken) = self.late.take(chain, range);
        if let Some(hot) = self.hot_mut(id) {
            hot.late = rest;
        }
        taken
    }

    /// Seals samples of one window together with the chunks of their leaf; gives how many samples it encoded.
    fn merge_into_leaf(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        leaf: &Leaf<u32>,
        late: &Columns,
    ) -> usize {
        let (Some(&first), Some(&last)) = (late.times.first(), late.times.last()) else { return 0 };
        let node = |(_, slot): &(i64, u32)| self.nodes.get(*slot).map(|node| (*slot, *node));
        let mut picked: Vec<(u32, SealedNode)> = leaf.chunks.iter().filter_map(node).collect();
        let is_apart = picked.iter().all(|(_, n)| n.max_time() < first || last < n.min_time);
        if is_apart && late.len() >= SAMPLES_PER_CHUNK {
            picked.clear();
        }
        if picked.windows(2).any(|two| two[0].1.max_time() >= two[1].1.min_time) {
            // Of equal times the one of the younger chunk is added last.
            picked.sort_by_key(|(_, n)| n.place);
        }
        let mut samples = Columns::default();
        // A damaged chunk stays as it is; queries name the damage.
        picked.retain(|(_, node)| self.decode_sealed(world, node, &mut samples));
        let stored_count = samples.len() + late.len();
        join(&mut samples, late);
        let window = TimeRange::window_of(first, world.window_ms);
        if let Some(&oldest) = samples.times.first() {
            windows.add_aside(oldest, samples.len() as i64 - stored_count as i64);
        }
        self.free.note_merge(SeriesWindow { id, range: window });
        self.merged_count += samples.len() as u64;
        self.replace_sealed(world, id, &picked, &samples);
        if let (Some(&time), Some(value)) = (samples.times.last(), samples.values.last())
            && let Some(hot) = self.hot_mut(id)
            && hot.open.is_none()
            && hot.xor.time() == time
        {
            // Its value may have been replaced.
            hot.xor = XorState::ended(time, value.to_bits());
        }
        samples.len()
    }

    /// Seals `samples` in place of `old` chunks, which are named by their slots: the list of the series is
    /// not walked unless it gets shorter.
    fn replace_sealed(
        &mut self,
        world: &StripeWorld<'_>,
        id: u32,
        old: &[(u32, SealedNode)],
        samples: &Columns,
    ) {
        let mut vacant = old.iter();
        for_each_chunk(world, id, samples, |node| match vacant.next() {
            Some((slot, old)) => {
                world.store.release(old.place);
                self.by_time.remove(id, *slot, old);
                self.nodes.replace(*slot, node);
                self.by_time.add(id, *slot, &node);
            }
            None => self.link_sealed(id, node),
        });
        let gone: Vec<SealedPlace> = vacant.map(|(_, old)| old.place).collect();
        if !gone.is_empty() {
            self.unlink_sealed(world, id, |node| gone.contains(&node.place));
        }
    }

    /// Appends the samples of a sealed chunk to `out`; false, and nothing appended, if it cannot be read.
    pub(super) fn decode_sealed(
        &self,
        world: &StripeWorld<'_>,
        node: &SealedNode,
        out: &mut Columns,
    ) -> bool {
        let before = out.len();
        let Some(file) = world.store.file(node.place.file) else { return false };
        let read = file.read_chunk(world.disk, node.place.offset, usize::from(node.len), |bytes| {
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
    pub(super) fn push_sealed(&mut self, world: &StripeWorld<'_>, id: u32, samples: &Columns) {
        for_each_chunk(world, id, samples, |node| self.link_sealed(id, node));
    }

    fn link_sealed(&mut self, id: u32, node: SealedNode) {
        let Some(sealed) = self.hot(id).map(|hot| hot.sealed) else { return };
        let start = self.nodes.push(node, sealed);
        self.by_time.add(id, start, &node);
        if let Some(hot) = self.hot_mut(id) {
            hot.sealed = start;
        }
    }

    /// Takes sealed chunks out of the series; their files learn of it.
    pub(crate) fn unlink_sealed(
        &mut self,
        world: &StripeWorld<'_>,
        id: u32,
        mut is_gone: impl FnMut(&SealedNode) -> bool,
    ) {
        let Some(start) = self.hot(id).map(|hot| hot.sealed) else { return };
        self.by_time.forget(id);
        let kept = self.nodes.remove(start, |node| {
            let is_gone = is_gone(node);
            if is_gone {
                world.store.release(node.place);
            }
            is_gone
        });
        if let Some(hot) = self.hot_mut(id) {
            hot.sealed = kept;
        }
    }
}

/// Pushes ascending samples of one window as chunks of about equal size, each full or the only one, and gives
/// each to `put`.
fn for_each_chunk(world: &StripeWorld<'_>, id: u32, samples: &Columns, mut put: impl FnMut(SealedNode)) {
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
        let place = world.store.push(&header, &chunk);
        put(SealedNode::new(place, &header, chunk.len()));
    }
}

/// Adds `late` (ascending) to `samples`: ascending, one a time, of equal times the one that was added last.
pub(super) fn join(samples: &mut Columns, late: &Columns) {
    if samples.times.is_sorted_by(|a, b| a < b) {
        *samples = merged(samples, late);
        return;
    }
    // Chunks of earlier versions overlap.
    samples.times.extend_from_slice(&late.times);
    samples.values.extend_from_slice(&late.values);
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

/// Both, each ascending, as one; of equal times the late one.
fn merged(samples: &Columns, late: &Columns) -> Columns {
    let mut times = Vec::with_capacity(samples.len() + late.len());
    let mut values = Vec::with_capacity(samples.len() + late.len());
    let mut start = 0;
    for (&time, &value) in late.times.iter().zip(&late.values) {
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
