//! Sealed chunks by time: an ordered index per series that has so many sealed chunks that a walk over all of
//! them for each out-of-order sample would cost more than the sample. Other series are walked.
//!
//! Holds: an index has exactly the chunks of its series: whoever links or unlinks one says so here, or has
//! the index forgotten; it is built again when it is needed.
//! Not here: which of them an out-of-order sample belongs into (`leaf`), whether a time is taken (`order`).

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_model::TimeRange;

use super::leaf::{ChunkSpan, Leaf, leaf_of, near};
use super::{SealedNode, SealedNodes, Stripe};

/// Sealed chunks of a series up to which they are walked.
const WALK_COUNT_MAX: usize = 32;
/// Bytes per entry of the index: key and slot, in nodes that are about three quarters full.
const ENTRY_BYTES: u64 = 24;

/// Sealed chunks of one series by first time and slot: damaged chunks stay beside those that take their place.
#[derive(Default)]
struct Index {
    slots: BTreeMap<(i64, u32), ()>,
    sample_count: usize,
}

/// See the module.
#[derive(Default)]
pub(super) struct SealedByTime {
    by_series: HashMap<u32, Index>,
    entry_count: u64,
}

impl SealedByTime {
    /// A chunk of series `id` was put into `slot`.
    pub(super) fn add(&mut self, id: u32, slot: u32, node: &SealedNode) {
        if self.by_series.is_empty() {
            return;
        }
        if let Some(index) = self.by_series.get_mut(&id) {
            index.slots.insert((node.min_time, slot), ());
            index.sample_count += usize::from(node.count);
            self.entry_count += 1;
        }
    }

    /// The chunk of series `id` in `slot` goes.
    pub(super) fn remove(&mut self, id: u32, slot: u32, node: &SealedNode) {
        if let Some(index) = self.by_series.get_mut(&id) {
            index.slots.remove(&(node.min_time, slot));
            index.sample_count -= usize::from(node.count);
            self.entry_count -= 1;
        }
    }

    /// Chunks of series `id` go that are not named one by one.
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

    /// Samples of the sealed chunks of series `id`, whose list starts at `start`.
    pub(super) fn sample_count(&mut self, nodes: &SealedNodes, id: u32, start: u32) -> usize {
        match self.index(nodes, id, start) {
            Some(index) => index.sample_count,
            None => nodes.list(start).map(|n| usize::from(n.count)).sum(),
        }
    }

    /// The index of series `id`, whose list of chunks starts at `start`; `None` if the list is short.
    fn index(&mut self, nodes: &SealedNodes, id: u32, start: u32) -> Option<&Index> {
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
    /// Puts the sealed chunks of series `id` that overlap `first..=last` into `found`, the youngest first. Of
    /// chunks that overlap each other, which only damage leaves, an index finds neighbours.
    pub(super) fn sealed_in(
        &mut self,
        id: u32,
        start: u32,
        first: i64,
        last: i64,
        found: &mut Vec<SealedNode>,
    ) {
        let overlaps = |n: &&SealedNode| n.min_time <= last && first <= n.max_time();
        found.clear();
        match self.by_time.index(&self.nodes, id, start) {
            None => found.extend(self.nodes.list(start).filter(overlaps).copied()),
            Some(index) => {
                let until_last = index.slots.range(..=(last, u32::MAX)).rev();
                let nodes = until_last.filter_map(|((_, slot), ())| self.nodes.get(*slot));
                found.extend(nodes.take_while(|n| first <= n.max_time()).copied());
            }
        }
        if found.len() > 1 {
            found.sort_by_key(|n| std::cmp::Reverse(n.place));
        }
    }

    /// The chunks in `window` of series `id` into which an out-of-order sample of time `first` belongs.
    pub(super) fn leaf(&mut self, id: u32, start: u32, window: TimeRange, first: i64) -> Leaf<u32> {
        let nodes = &self.nodes;
        let (by_time, end) = match self.by_time.index(nodes, id, start) {
            Some(index) => near(&index.slots, window, first),
            None => {
                let inside = nodes.slots(start).filter(|(_, n)| window.contains(n.min_time));
                let mut all: Vec<(i64, u32)> = inside.map(|(slot, n)| (n.min_time, slot)).collect();
                all.sort_unstable();
                (all, window.end)
            }
        };
        let span = |node: &SealedNode| ChunkSpan { max_time: node.max_time(), count: node.count };
        leaf_of(&by_time, end, first, |(_, slot)| nodes.get(slot).map(span))
    }
}
