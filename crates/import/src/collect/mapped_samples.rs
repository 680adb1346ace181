//! Time ranges of each series that its m-mapped chunks hold, so that the same samples of the WAL are ignored.
//!
//! Invariants: while no chunk is damaged, a series has all samples up to the end of its last chunk in chunks,
//! which is Prometheus's rule too; with damage, only the ranges of decoded chunks count, and the WAL fills
//! the gaps.
//! Not here: decoding chunks (`read::head_chunks`).

use chronolith_base::hash::HashMap;

use crate::read::head_chunks::{ChunkSpan, HeadChunkIndex};

/// The chunks and the state of reading them.
pub(super) struct MappedSamples {
    pub(super) chunks: HeadChunkIndex,
    /// Newest time in in-order chunks of each series; as long as the last series that has any.
    newest: Vec<i64>,
    /// Inclusive ranges of decoded in-order chunks, ascending, recorded once a chunk is damaged.
    ranges: HashMap<u32, Vec<(i64, i64)>>,
}

impl MappedSamples {
    pub(super) fn new(chunks: HeadChunkIndex) -> MappedSamples {
        MappedSamples { chunks, newest: Vec::new(), ranges: HashMap::default() }
    }

    /// Records that the samples of an in-order chunk of `series` were appended.
    pub(super) fn add(&mut self, series: u32, span: ChunkSpan) {
        let idx = series as usize;
        if idx >= self.newest.len() {
            self.newest.resize(idx + 1, i64::MIN);
        }
        self.newest[idx] = self.newest[idx].max(span.max_time);
        if self.chunks.is_damaged() {
            let range = (span.min_time, span.max_time);
            let ranges = self.ranges.entry(series).or_default();
            ranges.insert(ranges.partition_point(|known| *known < range), range);
        }
    }

    /// Returns true if in-order chunks of `series` hold its sample of `time`.
    pub(super) fn contains(&self, series: u32, time: i64) -> bool {
        if self.newest.get(series as usize).is_none_or(|&newest| time > newest) {
            return false;
        }
        let Some(ranges) = self.ranges.get(&series) else { return !self.chunks.is_damaged() };
        let idx = ranges.partition_point(|&(_, max_time)| max_time < time);
        ranges.get(idx).is_some_and(|&(min_time, _)| min_time <= time)
    }
}
