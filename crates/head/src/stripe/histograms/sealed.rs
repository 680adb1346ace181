//! Sealed chunks of histograms of one series, by time.
//!
//! Holds: chunks overlap each other only where one is damaged. Not here: their bytes (`crate::sealed`).

use std::collections::BTreeMap;

use chronolith_model::TimeRange;

use super::super::leaf::{ChunkSpan, Leaf, leaf_of, near};
use super::HistogramNode;
use crate::sealed::SealedPlace;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct SealedHistograms {
    nodes: BTreeMap<(i64, SealedPlace), HistogramNode>,
    sample_count: usize,
}

impl SealedHistograms {
    pub(super) const EMPTY: SealedHistograms = SealedHistograms { nodes: BTreeMap::new(), sample_count: 0 };

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Samples of all chunks.
    pub(super) fn sample_count(&self) -> usize {
        self.sample_count
    }

    /// All chunks by first time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HistogramNode> {
        self.nodes.values()
    }

    /// Chunks that may have samples in `range`, by first time. Cost: a look at each chunk before its end.
    pub(crate) fn overlapping(&self, range: TimeRange) -> impl Iterator<Item = &HistogramNode> {
        let until_end = self.nodes.range(..(range.end, SealedPlace::default())).map(|(_, node)| node);
        until_end.filter(move |node| node.max_time >= range.start)
    }

    /// As [`SealedHistograms::overlapping`] for one time, the last chunk first. Of chunks that overlap each other, which
    /// only damage leaves, it finds neighbours.
    pub(super) fn near(&self, time: i64) -> impl Iterator<Item = &HistogramNode> {
        let until_time = self.nodes.range(..=(time, SealedPlace::MAX)).rev().map(|(_, node)| node);
        until_time.take(NEIGHBOUR_COUNT).filter(move |node| node.max_time >= time)
    }

    /// The chunks in `window` into which an out-of-order histogram of time `first` belongs.
    pub(super) fn leaf(&self, window: TimeRange, first: i64) -> Leaf<SealedPlace> {
        let (by_time, end) = near(&self.nodes, window, first);
        let span = |node: &HistogramNode| ChunkSpan { max_time: node.max_time, count: node.count };
        leaf_of(&by_time, end, first, |key| self.nodes.get(&key).map(span))
    }

    /// The chunk at `place` that begins at `min_time`.
    pub(super) fn get(&self, min_time: i64, place: SealedPlace) -> Option<&HistogramNode> {
        self.nodes.get(&(min_time, place))
    }

    pub(super) fn insert(&mut self, node: HistogramNode) {
        self.sample_count += usize::from(node.count);
        self.nodes.insert((node.min_time, node.place), node);
    }

    pub(super) fn remove(&mut self, node: &HistogramNode) {
        if self.nodes.remove(&(node.min_time, node.place)).is_some() {
            self.sample_count -= usize::from(node.count);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        ENTRY_BYTES * self.nodes.len()
    }
}

/// Chunks before a time that [`SealedHistograms::near`] looks at.
const NEIGHBOUR_COUNT: usize = 4;
/// Bytes per chunk: key and value, in nodes that are about three quarters full.
const ENTRY_BYTES: usize = (size_of::<HistogramNode>() + size_of::<(i64, SealedPlace)>()) * 4 / 3;
