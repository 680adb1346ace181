//! Sealed chunks by time: a B-tree per series that has too many sealed chunks to walk all of them for each
//! out-of-order sample. The lists of other series are walked.
//!
//! Invariant: an index has exactly the chunks of its series: all code that links or unlinks a chunk updates
//! the index or drops it; it is rebuilt on demand.
//! Not here: choosing the chunks of an out-of-order sample (`merge_range`), lookups of timestamps
//! (`out_of_order`).

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_model::TimeRange;

use super::merge_range::{ChunkSpan, MergeRange, merge_range_of, near};
use super::{SealedChunk, SealedChunks, Stripe};

/// Sealed chunks of a series up to which the list is walked.
const WALK_COUNT_MAX: usize = 32;
/// Bytes per index entry: key and slot, in nodes that are about three quarters full.
const ENTRY_BYTES: u64 = 24;

/// Sealed chunks of one series by first timestamp and slot: damaged chunks stay next to those that replace
/// them.
#[derive(Default)]
struct Index {
    slots: BTreeMap<(i64, u32), ()>,
    sample_count: usize,
}

/// Indexes of the series with many sealed chunks.
#[derive(Default)]
pub(super) struct SealedByTime {
    by_series: HashMap<u32, Index>,
    entry_count: u64,
}

impl SealedByTime {
    /// Adds the chunk of series `id` in `slot`.
    pub(super) fn add(&mut self, id: u32, slot: u32, node: &SealedChunk) {
        if self.by_series.is_empty() {
            return;
        }
        if let Some(index) = self.by_series.get_mut(&id) {
            index.slots.insert((node.min_time, slot), ());
            index.sample_count += usize::from(node.count);
            self.entry_count += 1;
        }
    }

    /// Removes the chunk of series `id` in `slot`.
    pub(super) fn remove(&mut self, id: u32, slot: u32, node: &SealedChunk) {
        if let Some(index) = self.by_series.get_mut(&id) {
            index.slots.remove(&(node.min_time, slot));
            index.sample_count -= usize::from(node.count);
            self.entry_count -= 1;
        }
    }

    /// Drops the index of series `id`, before several of its chunks are removed at once.
    pub(super) fn forget(&mut self, id: u32) {
        if !self.by_series.is_empty()
            && let Some(index) = self.by_series.remove(&id)
        {
            self.entry_count -= index.slots.len() as u64;
        }
    }

    pub(super) fn heap_bytes(&self) -> u64 {
        ENTRY_BYTES * self.entry_count + (self.by_series.capacity() * size_of::<(u32, Index)>()) as u64
    }

    /// Returns the samples of the sealed chunks of series `id`, whose list starts at `start`.
    pub(super) fn sample_count(&mut self, nodes: &SealedChunks, id: u32, start: u32) -> usize {
        match self.index(nodes, id, start) {
            Some(index) => index.sample_count,
            None => nodes.list(start).map(|n| usize::from(n.count)).sum(),
        }
    }

    /// Returns the index of series `id`, whose list of chunks starts at `start`; `None` if the list is short.
    fn index(&mut self, nodes: &SealedChunks, id: u32, start: u32) -> Option<&Index> {
        if !self.by_series.contains_key(&id) {
            nodes.list(start).nth(WALK_COUNT_MAX)?;
            let mut index = Index::default();
            for (slot, node) in nodes.slots(start) {
                index.slots.insert((node.min_time, slot), ());
                index.sample_count += usize::from(node.count);
            }
            self.entry_count += index.slots.len() as u64;
            self.by_series.insert(id, index);
        }
        self.by_series.get(&id)
    }
}

impl Stripe {
    /// Replaces `found` by the sealed chunks of series `id` that overlap `first..=last`, the youngest first.
    /// Of chunks that overlap each other, which only damage causes, an index finds only neighbours.
    pub(super) fn sealed_in(
        &mut self,
        id: u32,
        start: u32,
        first: i64,
        last: i64,
        found: &mut Vec<SealedChunk>,
    ) {
        let overlaps = |n: &&SealedChunk| n.min_time <= last && first <= n.max_time();
        found.clear();
        match self.by_time.index(&self.sealed_chunks, id, start) {
            None => found.extend(self.sealed_chunks.list(start).filter(overlaps).copied()),
            Some(index) => {
                let until_last = index.slots.range(..=(last, u32::MAX)).rev();
                let nodes = until_last.filter_map(|((_, slot), ())| self.sealed_chunks.get(*slot));
                found.extend(nodes.take_while(|n| first <= n.max_time()).copied());
            }
        }
        if found.len() > 1 {
            found.sort_by_key(|n| std::cmp::Reverse(n.chunk_ref));
        }
    }

    /// Returns the chunks in `window` of series `id` into which an out-of-order sample at `first` belongs.
    pub(super) fn leaf(&mut self, id: u32, start: u32, window: TimeRange, first: i64) -> MergeRange<u32> {
        let nodes = &self.sealed_chunks;
        let (by_time, end) = match self.by_time.index(nodes, id, start) {
            Some(index) => near(&index.slots, window, first),
            None => {
                let inside = nodes.slots(start).filter(|(_, n)| window.contains(n.min_time));
                let mut all: Vec<(i64, u32)> = inside.map(|(slot, n)| (n.min_time, slot)).collect();
                all.sort_unstable();
                (all, window.end)
            }
        };
        let span = |node: &SealedChunk| ChunkSpan { max_time: node.max_time(), count: node.count };
        merge_range_of(&by_time, end, first, |(_, slot)| nodes.get(slot).map(span))
    }
}
