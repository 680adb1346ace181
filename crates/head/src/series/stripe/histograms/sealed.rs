//! Sealed histogram chunks of one series: a B-tree by time.
//!
//! Invariant: chunks overlap each other only where one is damaged. Not here: their bytes
//! (`crate::series::sealed`).

use std::collections::BTreeMap;

use chronolith_model::TimeRange;

use super::super::merge_range::{ChunkSpan, MergeRange, merge_range_of, near};
use super::SealedHistogramChunk;
use crate::series::sealed::ChunkRef;

/// Sealed histogram chunks of one series by first timestamp.
#[derive(Debug, Clone, Default)]
pub(crate) struct SealedHistograms {
    nodes: BTreeMap<(i64, ChunkRef), SealedHistogramChunk>,
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

    /// Returns the samples of all chunks.
    pub(super) fn sample_count(&self) -> usize {
        self.sample_count
    }

    /// Iterates over all chunks by first timestamp.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SealedHistogramChunk> {
        self.nodes.values()
    }

    /// Returns the chunks that may have samples in `range`, by first timestamp. Cost: visits each chunk
    /// before its end.
    pub(crate) fn overlapping(&self, range: TimeRange) -> impl Iterator<Item = &SealedHistogramChunk> {
        let until_end = self.nodes.range(..(range.end, ChunkRef::default())).map(|(_, node)| node);
        until_end.filter(move |node| node.max_time >= range.start)
    }

    /// As [`SealedHistograms::overlapping`] for one timestamp, the last chunk first. Of chunks that overlap
    /// each other, which only damage causes, it finds only neighbours.
    pub(super) fn near(&self, time: i64) -> impl Iterator<Item = &SealedHistogramChunk> {
        let until_time = self.nodes.range(..=(time, ChunkRef::MAX)).rev().map(|(_, node)| node);
        until_time.take(NEIGHBOUR_COUNT).filter(move |node| node.max_time >= time)
    }

    /// Returns the chunks in `window` into which an out-of-order histogram at `first` belongs.
    pub(super) fn leaf(&self, window: TimeRange, first: i64) -> MergeRange<ChunkRef> {
        let (by_time, end) = near(&self.nodes, window, first);
        let span = |node: &SealedHistogramChunk| ChunkSpan { max_time: node.max_time, count: node.count };
        merge_range_of(&by_time, end, first, |key| self.nodes.get(&key).map(span))
    }

    /// Returns the chunk at `chunk_ref` that begins at `min_time`.
    pub(super) fn get(&self, min_time: i64, chunk_ref: ChunkRef) -> Option<&SealedHistogramChunk> {
        self.nodes.get(&(min_time, chunk_ref))
    }

    pub(super) fn insert(&mut self, node: SealedHistogramChunk) {
        self.sample_count += usize::from(node.count);
        self.nodes.insert((node.min_time, node.chunk_ref), node);
    }

    pub(super) fn remove(&mut self, node: &SealedHistogramChunk) {
        if self.nodes.remove(&(node.min_time, node.chunk_ref)).is_some() {
            self.sample_count -= usize::from(node.count);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        ENTRY_BYTES * self.nodes.len()
    }
}

/// Chunks before a timestamp that [`SealedHistograms::near`] visits.
const NEIGHBOUR_COUNT: usize = 4;
/// Bytes per chunk: key and value, in nodes that are about three quarters full.
const ENTRY_BYTES: usize = (size_of::<SealedHistogramChunk>() + size_of::<(i64, ChunkRef)>()) * 4 / 3;
