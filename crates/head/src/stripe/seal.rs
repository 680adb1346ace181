//! Sealing: the open chunk with the late samples that belong into it, late samples into the sealed chunks that
//! they overlap.
//!
//! Holds: no sealed chunk overlaps another or the open one, so a query decodes as much as if nothing had been
//! late; a sample that waits as late wins over one of the same time in a chunk, because it came later.

use chronolith_format::sealed::RecordHeader;
use chronolith_format::xor::{self, ENCODING_XOR, SAMPLES_PER_CHUNK, XorState};
use chronolith_model::{Columns, TimeRange};

use super::free::SeriesWindow;
use super::{Hot, NONE, SealedNode, Stripe, StripeWorld};
use crate::chain::Chain;
use crate::windows::WindowTally;

/// A chunk with fewer samples is joined with its neighbour when that is encoded again.
const SMALL_COUNT: u16 = SAMPLES_PER_CHUNK as u16 / 2;
/// An open chunk that is sealed takes late samples in if each of them makes at most this many others be encoded
/// again. Fewer wait on: more of the same chunk may come, and cutting its window encodes it once for all of them.
const SEAL_FACTOR: usize = 10;

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

    /// Seals the late samples in `range`, window by window, except for those that wait for the open chunk.
    pub(crate) fn seal_late(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) {
        let Some(hot) = self.hot(id).filter(|h| h.late != NONE) else { return };
        let end = if hot.open.is_none() { range.end } else { range.end.min(hot.open_min) };
        let taken = self.take_late(id, TimeRange { start: range.start, end });
        let mut start = 0;
        while let Some(&first) = taken.times.get(start) {
            let window = TimeRange::window_of(first, world.window_ms);
            let len = taken.times[start..].partition_point(|&t| t < window.end);
            let part = Columns {
                times: taken.times[start..start + len].to_vec(),
                values: taken.values[start..start + len].to_vec(),
                ..Columns::default()
            };
            self.merge_into_sealed(world, windows, id, window, part);
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

    /// Seals samples of one window, together with the sealed chunks between which they lie.
    fn merge_into_sealed(
        &mut self,
        world: &StripeWorld<'_>,
        windows: &mut WindowTally,
        id: u32,
        window: TimeRange,
        late: Columns,
    ) {
        let Some(start) = self.hot(id).map(|hot| hot.sealed) else { return };
        let mut nodes: Vec<SealedNode> =
            self.nodes.list(start).filter(|n| window.contains(n.min_time)).copied().collect();
        nodes.sort_by_key(|n| (n.min_time, n.place));
        let picked = overlapped(&nodes, &late);
        let mut samples = Columns::default();
        let mut stored_count = late.len();
        let mut gone = Vec::with_capacity(picked.len());
        for node in &nodes[picked] {
            // A damaged chunk stays as it is; queries name the damage.
            if self.decode_sealed(world, node, &mut samples) {
                stored_count += usize::from(node.count);
                gone.push(node.place);
            }
        }
        join(&mut samples, &late);
        if let Some(&oldest) = samples.times.first() {
            windows.add_aside(oldest, samples.len() as i64 - stored_count as i64);
        }
        self.free.note_merge(SeriesWindow { id, range: window });
        self.unlink_sealed(world, id, |node| gone.contains(&node.place));
        self.push_sealed(world, id, &samples);
        if let (Some(&time), Some(value)) = (samples.times.last(), samples.values.last())
            && let Some(hot) = self.hot_mut(id)
            && hot.open.is_none()
            && hot.xor.time() == time
        {
            // Its value may have been replaced.
            hot.xor = XorState::ended(time, value.to_bits());
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
            self.link_sealed(id, SealedNode::new(place, &header, chunk.len()));
        }
    }

    fn link_sealed(&mut self, id: u32, node: SealedNode) {
        let Some(sealed) = self.hot(id).map(|hot| hot.sealed) else { return };
        let start = self.nodes.push(node, sealed);
        if let Some(hot) = self.hot_mut(id) {
            hot.sealed = start;
        }
    }

    /// Takes sealed chunks out of the series; their files learn of it.
    pub(super) fn unlink_sealed(
        &mut self,
        world: &StripeWorld<'_>,
        id: u32,
        is_gone: impl Fn(&SealedNode) -> bool,
    ) {
        let Some(start) = self.hot(id).map(|hot| hot.sealed) else { return };
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

/// Which of `nodes` (sorted by time) are encoded again with `late`: all that overlap it or, through others, its
/// neighbourhood, and small ones beside them.
fn overlapped(nodes: &[SealedNode], late: &Columns) -> std::ops::Range<usize> {
    let (Some(&first), Some(&last)) = (late.times.first(), late.times.last()) else { return 0..0 };
    let mut end = nodes.partition_point(|n| n.min_time <= last);
    let mut start = nodes[..end].iter().position(|n| n.max_time() >= first).unwrap_or(end);
    if start > 0 && nodes[start - 1].count < SMALL_COUNT {
        start -= 1;
    }
    if nodes.get(end).is_some_and(|n| n.count < SMALL_COUNT) {
        end += 1;
    }
    // Chunks of earlier versions may overlap each other.
    while let Some(reach) = nodes[start..end].iter().map(SealedNode::max_time).max()
        && nodes.get(end).is_some_and(|n| n.min_time <= reach)
    {
        end += 1;
    }
    while let Some(reach) = nodes.get(start).map(|n| n.min_time)
        && let Some(earlier) = nodes[..start].iter().position(|n| n.max_time() >= reach)
    {
        start = earlier;
    }
    start..end
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
