//! Out-of-order samples of one series, buffered until they are merged into a chunk: an unrolled linked list
//! (3 samples per 64-byte node) in arrival order, a B-tree for a series with more samples than a list
//! searches quickly.
//!
//! Invariants: a buffer has one sample per timestamp; a buffered sample is younger than one of the same
//! timestamp in a chunk, and wins. All nodes of a list but the first, which took the last sample, are full.
//! Returned samples are sorted.
//! Not here: deciding whether a timestamp is unused (`out_of_order`, `timestamp_cache`), merging (`seal`).

mod trees;

use chronolith_model::{Columns, TimeRange};

use trees::Trees;

use super::NONE;
use crate::series::slots::{SLOT_NONE, Slot, Slots};

/// Out-of-order samples of one series at which they are merged.
pub(crate) const OOO_COUNT_MAX: usize = 256;
/// Upper limit of the buffer of a series that has so many sealed chunks that merging pays only with more
/// samples. A checkpoint writes the buffer as one chunk, whose count has 16 bits; appenders that run at the
/// same time may exceed the limit by some thousands.
const OOO_COUNT_LIMIT: usize = 1 << 15;
/// Chunk samples that one out-of-order sample may make the head encode again, below the limit.
const MERGE_FACTOR: usize = 8;
/// Out-of-order samples beyond [`OOO_COUNT_MAX`] after which the limit is checked again.
const CHECK_COUNT: usize = 64;
/// Bytes of out-of-order samples in a stripe that halve [`OOO_COUNT_MAX`]; each further portion halves it
/// again, so all stripes together never hold more than half a gigabyte.
const OOO_BYTES_STEP: usize = 4 << 20;
/// Samples per node, which is a cache line.
const NODE_SAMPLES: usize = 3;

/// Node of the unrolled list: a few samples, and totals of the list from here on.
// PERF: an out-of-order sample touches this cache line only, and allocates every third time; a sorted buffer
// per series touched its header, its middle and the part after that, and was moved as it grew. With the
// timestamp cache: 260 -> 160 ns per sample of a load with a tenth out of order; 124 with the same series in
// the same order and none out of order (a busy machine).
//   cargo run --release -p chronolith-head --example late_speed -- 4000 1440 10 withheld 60000
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct OooNode {
    samples: [(i64, u64); NODE_SAMPLES],
    /// In the first node: upper bound of the timestamps in the list.
    newest: i64,
    /// Slot of the node that was filled before.
    next: u32,
    /// Samples of this node and of all following ones; except in the first node, a multiple of the node size.
    count: u32,
}

const _: () = assert!(size_of::<OooNode>() == 64 && NONE == SLOT_NONE);

impl Slot for OooNode {
    const EMPTY: OooNode =
        OooNode { samples: [(0, 0); NODE_SAMPLES], newest: i64::MIN, next: SLOT_NONE, count: 0 };
    const PAGE_BITS: u32 = 10;

    fn link(&self) -> u32 {
        self.next
    }

    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

impl OooNode {
    /// Returns the samples of this node alone.
    fn own(&self) -> &[(i64, u64)] {
        &self.samples[..own_count(self.count)]
    }
}

/// Returns how many of the `count` samples of a list are in its first node.
fn own_count(count: u32) -> usize {
    match count as usize % NODE_SAMPLES {
        0 => NODE_SAMPLES.min(count as usize),
        rest => rest,
    }
}

/// Returns true if `count` out-of-order samples of a series must be merged while those of the stripe take
/// `buffered_bytes`. `sealed_count` returns the samples in the sealed chunks of the series: merging encodes
/// those again that lie where the buffer has samples, all of them in the worst order.
pub(super) fn is_buffer_full(
    count: usize,
    buffered_bytes: usize,
    sealed_count: impl FnOnce() -> usize,
) -> bool {
    let halvings = (buffered_bytes / OOO_BYTES_STEP).min(OOO_COUNT_MAX.ilog2() as usize);
    if count < OOO_COUNT_MAX >> halvings || (halvings == 0 && !count.is_multiple_of(CHECK_COUNT)) {
        return false;
    }
    let count_max = (sealed_count() / MERGE_FACTOR).clamp(OOO_COUNT_MAX, OOO_COUNT_LIMIT);
    // Memory goes first to series with few samples.
    count >= (count_max >> (2 * halvings)).max(OOO_COUNT_MAX >> halvings)
}

/// Out-of-order buffers of one stripe. A buffer is identified by its first node or by its tree; [`NONE`] is
/// empty.
pub(crate) struct OooBuffers {
    nodes: Slots<OooNode>,
    trees: Trees,
    buffer_count: u64,
}

impl OooBuffers {
    pub(crate) fn new() -> OooBuffers {
        OooBuffers { nodes: Slots::new(), trees: Trees::default(), buffer_count: 0 }
    }

    /// Adds a sample at a timestamp that the buffer does not have; returns the id of the buffer and its count
    /// from then on.
    pub(crate) fn insert(&mut self, buffer: u32, time: i64, value_bits: u64) -> (u32, usize) {
        let (mut count, mut newest) = (0, i64::MIN);
        if let Some(first) = self.nodes.get_mut(buffer) {
            newest = first.newest.max(time);
            let own = own_count(first.count);
            if own < NODE_SAMPLES {
                first.samples[own] = (time, value_bits);
                first.newest = newest;
                first.count += 1;
                return (buffer, first.count as usize);
            }
            count = first.count;
            if count as usize >= OOO_COUNT_MAX {
                return self.insert_into_new_tree(buffer, time, value_bits);
            }
        } else if let Some(count) = self.trees.insert(buffer, time, value_bits) {
            return (buffer, count);
        } else {
            self.buffer_count += 1;
        }
        let mut node = OooNode { newest: newest.max(time), next: buffer, count: count + 1, ..OooNode::EMPTY };
        node.samples[0] = (time, value_bits);
        (self.nodes.alloc(node), count as usize + 1)
    }

    /// As [`OooBuffers::insert`] for a list that is long enough to become a tree.
    #[cold]
    fn insert_into_new_tree(&mut self, buffer: u32, time: i64, value_bits: u64) -> (u32, usize) {
        let samples: Vec<(i64, u64)> = self.each(buffer).chain([(time, value_bits)]).collect();
        self.free_nodes(buffer);
        let count = samples.len();
        (self.trees.add(samples.into_iter()), count)
    }

    /// Returns true if the buffer is a tree, so that it may have more samples than can be merged under one
    /// lock.
    pub(crate) fn is_tree(&self, buffer: u32) -> bool {
        self.trees.get(buffer).is_some()
    }

    /// Returns the timestamp of the first sample of a tree in `range`.
    pub(crate) fn first_of_tree(&self, buffer: u32, range: TimeRange) -> Option<i64> {
        self.trees.range(buffer, range).next().map(|s| s.0)
    }

    /// Creates a buffer with `samples`.
    pub(crate) fn store(&mut self, samples: &Columns) -> u32 {
        let mut buffer = NONE;
        for (&time, value) in samples.times.iter().zip(&samples.values) {
            buffer = self.insert(buffer, time, value.to_bits()).0;
        }
        buffer
    }

    /// Replaces the value at `time`, which the buffer has.
    pub(crate) fn replace(&mut self, buffer: u32, time: i64, value_bits: u64) {
        if self.is_tree(buffer) {
            self.trees.insert(buffer, time, value_bits);
            return;
        }
        let mut at = buffer;
        while let Some(node) = self.nodes.get_mut(at) {
            let own = own_count(node.count);
            if let Some(sample) = node.samples[..own].iter_mut().find(|s| s.0 == time) {
                sample.1 = value_bits;
                return;
            }
            at = node.next;
        }
        unreachable!("the sample was found before");
    }

    /// As [`is_buffer_full`] for a buffer of `count` samples.
    pub(crate) fn is_full(&self, count: usize, sealed_count: impl FnOnce() -> usize) -> bool {
        is_buffer_full(count, self.sample_bytes(), sealed_count)
    }

    /// Returns the bits of the value at `time`. Newest arrivals are searched first. Cost: one cache line for
    /// a timestamp newer than all others, else up to the whole list.
    pub(crate) fn find(&self, buffer: u32, time: i64) -> Option<u64> {
        let Some(first) = self.nodes.get(buffer) else { return self.trees.get(buffer)?.get(&time).copied() };
        if first.newest < time {
            return None;
        }
        self.list(buffer).find_map(|node| node.own().iter().find(|s| s.0 == time)).map(|s| s.1)
    }

    /// Sorts the samples of a buffer by time, so that later copies need not sort; samples that arrive
    /// afterwards precede them in the list.
    pub(crate) fn settle(&mut self, buffer: u32) {
        if self.is_tree(buffer) || self.each(buffer).is_sorted_by_key(|s| s.0) {
            return;
        }
        let mut samples: Vec<(i64, u64)> = self.each(buffer).collect();
        sort(&mut samples);
        let (mut at, mut samples) = (buffer, samples.into_iter());
        while let Some(node) = self.nodes.get_mut(at) {
            let own = own_count(node.count);
            node.samples[..own].iter_mut().zip(&mut samples).for_each(|(slot, sample)| *slot = sample);
            at = node.next;
        }
    }

    /// Returns a sorted copy of all samples.
    pub(crate) fn samples(&self, buffer: u32) -> Columns {
        self.samples_in(buffer, TimeRange { start: i64::MIN, end: i64::MAX })
    }

    /// Returns a sorted copy of the samples in `range`.
    pub(crate) fn samples_in(&self, buffer: u32, range: TimeRange) -> Columns {
        let mut found = Columns::default();
        if self.is_tree(buffer) {
            self.trees.range(buffer, range).for_each(|(time, bits)| found.push(time, f64::from_bits(bits)));
            return found;
        }
        let count = self.nodes.get(buffer).map_or(0, |first| first.count as usize);
        found.times.reserve(count);
        found.values.reserve(count);
        for (time, value_bits) in self.each(buffer).filter(|s| range.contains(s.0)) {
            found.push(time, f64::from_bits(value_bits));
        }
        if found.times.is_sorted() {
            return found;
        }
        sorted(self.each(buffer).filter(|s| range.contains(s.0)).collect())
    }

    /// Returns true if a sample lies in `range`.
    pub(crate) fn overlaps(&self, buffer: u32, range: TimeRange) -> bool {
        let Some(first) = self.nodes.get(buffer) else { return self.first_of_tree(buffer, range).is_some() };
        first.newest >= range.start && self.each(buffer).any(|s| range.contains(s.0))
    }

    /// Returns true if all samples, if any, are certainly not after `time`.
    pub(crate) fn is_before(&self, buffer: u32, time: i64) -> bool {
        let newest = match self.nodes.get(buffer) {
            Some(first) => Some(first.newest),
            None => self.trees.get(buffer).and_then(|tree| tree.last_key_value()).map(|(&newest, _)| newest),
        };
        newest.is_none_or(|newest| newest <= time)
    }

    /// Returns the number of samples before `time`, and the number of all.
    pub(crate) fn counts(&self, buffer: u32, time: i64) -> (usize, usize) {
        let Some(first) = self.nodes.get(buffer) else {
            let count = self.trees.get(buffer).map_or(0, |tree| tree.len());
            let from_time = TimeRange { start: time, end: i64::MAX };
            return (count - self.trees.range(buffer, from_time).count(), count);
        };
        let count = first.count as usize;
        if first.newest < time {
            return (count, count);
        }
        (self.each(buffer).filter(|s| s.0 < time).count(), count)
    }

    /// Returns the timestamps of the buffer, unordered.
    pub(crate) fn times(&self, buffer: u32) -> impl Iterator<Item = i64> {
        self.times_in(buffer, TimeRange { start: i64::MIN, end: i64::MAX })
    }

    /// Returns the timestamps of the buffer in `range`, unordered.
    pub(crate) fn times_in(&self, buffer: u32, range: TimeRange) -> impl Iterator<Item = i64> {
        let of_nodes = self.each(buffer).map(|s| s.0).filter(move |&time| range.contains(time));
        of_nodes.chain(self.trees.range(buffer, range).map(|s| s.0))
    }

    /// Removes and returns the samples in `range`, sorted, after the id of the buffer from then on.
    pub(crate) fn take(&mut self, buffer: u32, range: TimeRange) -> (u32, Columns) {
        if self.is_tree(buffer) {
            let (is_left, taken) = self.trees.take(buffer, range);
            self.buffer_count -= u64::from(!is_left);
            return (if is_left { buffer } else { NONE }, taken);
        }
        let (mut first, mut at, mut taken) = (buffer, buffer, Vec::new());
        while let Some(node) = self.nodes.get(at).copied() {
            let mut idx = 0;
            while let Some(&sample) = self.nodes.get(at).and_then(|node| node.own().get(idx)) {
                if !range.contains(sample.0) {
                    idx += 1;
                    continue;
                }
                taken.push(sample);
                // The last sample of the first node fills the gap, so all others stay where they are.
                let was_first = first;
                let moved;
                (first, moved) = self.pop(first);
                if was_first == at && first != at {
                    break;
                }
                if let Some(idx) = self.nodes.get_mut(at).and_then(|node| node.samples.get_mut(idx)) {
                    *idx = moved;
                }
            }
            at = node.next;
        }
        self.buffer_count -= u64::from(buffer != NONE && first == NONE);
        (first, sorted(taken))
    }

    /// Removes the last sample of the first node of a list that is not empty, and the node if it had no
    /// other; returns the id of the list from then on.
    fn pop(&mut self, buffer: u32) -> (u32, (i64, u64)) {
        let node = self.nodes.get_mut(buffer).expect("a buffer with samples has nodes");
        let own = own_count(node.count);
        let (last, next, newest) = (node.samples[own - 1], node.next, node.newest);
        node.count -= 1;
        if own > 1 {
            return (buffer, last);
        }
        self.nodes.free(buffer);
        if let Some(first) = self.nodes.get_mut(next) {
            // This node may have received samples of nodes that preceded it.
            first.newest = newest;
        }
        (next, last)
    }

    /// Reads the cache line that an insertion will touch.
    pub(crate) fn touch(&self, buffer: u32) -> u32 {
        self.nodes.get(buffer).map_or(0, |first| first.count)
    }

    /// Number of buffers with samples.
    pub(crate) fn count(&self) -> u64 {
        self.buffer_count
    }

    /// Frees the nodes or the tree of a buffer.
    pub(crate) fn free(&mut self, buffer: u32) {
        self.buffer_count -= u64::from(buffer != NONE);
        if !self.trees.remove(buffer) {
            self.free_nodes(buffer);
        }
    }

    fn free_nodes(&mut self, buffer: u32) {
        let mut at = buffer;
        while let Some(next) = self.nodes.get(at).map(|node| node.next) {
            self.nodes.free(at);
            at = next;
        }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        self.nodes.heap_bytes() + self.trees.heap_bytes() as u64
    }

    fn sample_bytes(&self) -> usize {
        size_of::<OooNode>() * self.nodes.used_count() as usize + self.trees.sample_bytes()
    }

    /// Iterates over the nodes of a list, the youngest samples first.
    fn list(&self, buffer: u32) -> impl Iterator<Item = &OooNode> {
        let mut at = buffer;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at)?;
            at = node.next;
            Some(node)
        })
    }

    /// Iterates over the samples of a list, the youngest node first.
    fn each(&self, buffer: u32) -> impl Iterator<Item = (i64, u64)> {
        self.list(buffer).flat_map(|node| node.own().iter().copied())
    }
}

/// Sorted samples from before form a run, which the stable sort only merges with those that arrived since.
fn sort(samples: &mut [(i64, u64)]) {
    samples.sort_by_key(|s| s.0);
}

fn sorted(mut samples: Vec<(i64, u64)>) -> Columns {
    sort(&mut samples);
    Columns {
        times: samples.iter().map(|s| s.0).collect(),
        values: samples.iter().map(|s| f64::from_bits(s.1)).collect(),
        ..Columns::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte limit holds for any number of series with out-of-order samples: the more bytes are buffered,
    /// the sooner a series is merged.
    #[test]
    fn buffers_are_full_earlier_the_more_is_buffered() {
        let mut ooo = OooBuffers::new();
        assert!(!ooo.is_full(OOO_COUNT_MAX - 1, || 0));
        assert!(ooo.is_full(OOO_COUNT_MAX, || MERGE_FACTOR * OOO_COUNT_MAX));
        assert!(!ooo.is_full(OOO_COUNT_MAX, || MERGE_FACTOR * (OOO_COUNT_MAX + 1)));
        assert!(ooo.is_full(OOO_COUNT_LIMIT, || usize::MAX));
        let mut buffers = Vec::new();
        let mut bytes_max = 0;
        for i in 0..3_000_000i64 {
            let (buffer, count) = ooo.insert(NONE, i, 1);
            if ooo.is_full(count, || usize::MAX) {
                ooo.free(buffer);
            } else {
                buffers.push(buffer);
            }
            bytes_max = bytes_max.max(ooo.sample_bytes());
        }
        assert!(bytes_max <= 9 * OOO_BYTES_STEP, "{bytes_max}");
        buffers.into_iter().for_each(|buffer| ooo.free(buffer));
        assert_eq!((ooo.sample_bytes(), ooo.count()), (0, 0));
    }

    /// Against a map: samples are added, replaced and removed in several buffers at once.
    #[test]
    fn buffers_match_a_map() {
        let rng = chronolith_base::Rng::from_seed(3);
        let mut ooo = OooBuffers::new();
        let mut buffers = vec![(NONE, std::collections::BTreeMap::new()); 6];
        for step in 0..24_000u64 {
            let idx = rng.below(6) as usize;
            let (buffer, want) = &mut buffers[idx];
            // One of them grows into a tree, and shrinks again.
            let is_large = idx == 5 && step % 12_000 > 2_000;
            let time = rng.below(if is_large { 6_000 } else { 60 }) as i64;
            assert_eq!(ooo.find(*buffer, time), want.get(&time).copied());
            if want.insert(time, step).is_some() {
                ooo.replace(*buffer, time, step);
            } else {
                let count;
                (*buffer, count) = ooo.insert(*buffer, time, step);
                assert_eq!(count, want.len());
            }
            let range = TimeRange { start: time - rng.below(30) as i64, end: time + rng.below(5) as i64 };
            let inside: Vec<(i64, u64)> = want.range(range.start..range.end).map(|(t, v)| (*t, *v)).collect();
            assert_eq!(ooo.overlaps(*buffer, range), !inside.is_empty());
            assert_eq!(ooo.counts(*buffer, time), (want.range(..time).count(), want.len()));
            if rng.below(6) == 0 {
                ooo.settle(*buffer);
                assert!(ooo.times(*buffer).is_sorted() && ooo.find(*buffer, time).is_some());
            }
            let mut got = ooo.samples_in(*buffer, range);
            if rng.below(if is_large { 200 } else { 8 }) == 0 {
                (*buffer, got) = ooo.take(*buffer, range);
                want.retain(|time, _| !range.contains(*time));
            }
            let got: Vec<(i64, u64)> =
                got.times.iter().copied().zip(got.values.iter().map(|v| v.to_bits())).collect();
            assert_eq!(got, inside);
            assert_eq!(ooo.samples(*buffer).times, want.keys().copied().collect::<Vec<_>>());
        }
        assert_eq!(ooo.count(), buffers.iter().filter(|(_, want)| !want.is_empty()).count() as u64);
        buffers.iter().for_each(|(buffer, _)| ooo.free(*buffer));
        assert_eq!((ooo.sample_bytes(), ooo.count()), (0, 0));
    }
}
