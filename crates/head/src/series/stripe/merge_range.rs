//! Selects the leaf of an out-of-order sample: the sealed chunks of a series are the leaves of a B-tree whose
//! insert buffer holds its out-of-order samples. A leaf is encoded again with the buffered samples in its
//! range.
//!
//! Invariant: for floats and histograms alike, a leaf has the chunk that a timestamp belongs to and at most
//! its small neighbours, so the cost of emptying a buffer is bounded by its samples, not by the chunks of the
//! series.
//! Not here: encoding (`seal`, `histograms::seal`), storage of chunk metadata (`by_time`,
//! `histograms::sealed`).

use std::collections::BTreeMap;

use chronolith_format::chunk::xor::SAMPLES_PER_CHUNK;
use chronolith_model::TimeRange;

/// A chunk with fewer samples is joined with its neighbour when that is encoded again.
const SMALL_COUNT: u16 = SAMPLES_PER_CHUNK as u16 / 2;
/// Chunks considered before and after a timestamp: a leaf is one of them and the neighbours with which it is
/// joined.
const NEIGHBOUR_COUNT: usize = 4;

/// Chunk metadata that the selection needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSpan {
    pub(super) max_time: i64,
    pub(super) count: u16,
}

/// A leaf: neighbouring sealed chunks of a window, encoded again with the out-of-order samples before `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeRange<K> {
    /// First timestamp and key of each chunk, ascending; empty if the window has no chunk.
    pub(super) chunks: Vec<(i64, K)>,
    /// First timestamp of the next chunk, or the end of the window.
    pub(super) end: i64,
}

/// Returns the chunks of `window` around `first`, ascending by first timestamp, and an upper bound of the end
/// of the last.
pub(super) fn near<K: Copy + Ord + Default, V>(
    all: &BTreeMap<(i64, K), V>,
    window: TimeRange,
    first: i64,
) -> (Vec<(i64, K)>, i64) {
    let keys = |from, to| all.range((from, K::default())..(to, K::default())).map(|(key, _)| *key);
    let after = first.saturating_add(1).min(window.end);
    let mut near: Vec<(i64, K)> = keys(window.start, after).rev().take(NEIGHBOUR_COUNT).collect();
    near.reverse();
    let before_count = near.len();
    near.extend(keys(after, window.end).take(NEIGHBOUR_COUNT));
    let mut end = window.end;
    if near.len() - before_count == NEIGHBOUR_COUNT {
        end = near.pop().map_or(end, |(time, _)| time);
    }
    (near, end)
}

/// Returns the leaf of `first` among chunks that are given by first timestamp and end at `end`.
pub(super) fn merge_range_of<K: Copy>(
    by_time: &[(i64, K)],
    end: i64,
    first: i64,
    span: impl Fn((i64, K)) -> Option<ChunkSpan>,
) -> MergeRange<K> {
    let span = |at: usize| by_time.get(at).and_then(|key| span(*key));
    let is_small = |at: usize| span(at).is_some_and(|n| n.count < SMALL_COUNT);
    let max_time = |at: usize| span(at).map_or(i64::MIN, |n| n.max_time);
    let mut from = by_time.partition_point(|(time, _)| *time <= first).saturating_sub(1);
    let mut to = (from + 1).min(by_time.len());
    // Neighbours of damaged chunks may overlap.
    while from > 0 && max_time(from - 1) >= by_time[from].0 {
        from -= 1;
    }
    while to < by_time.len() && (from..to).any(|at| max_time(at) >= by_time[to].0) {
        to += 1;
    }
    let is_lonely = to == from + 1 && is_small(from);
    if from > 0 && (is_small(from - 1) || (is_lonely && to == by_time.len())) {
        from -= 1;
    } else if to < by_time.len() && (is_small(to) || is_lonely) {
        to += 1;
    }
    let end = by_time.get(to).map_or(end, |(time, _)| *time);
    MergeRange { chunks: by_time[from..to].to_vec(), end }
}
