//! Merge of the blocks of one series: points by time; the latest file wins at equal times.
//!
//! Invariants: blocks are added in order of their first time; points come out ascending, each time once.
//! Memory: the points of blocks that overlap.
//! Not here: decoding (`encoding`), writing (`write::window_blocks`).

use std::sync::Arc;

use chronolith_format::block::tombstones::Interval;
use chronolith_format::chunk::dense::TEXT_BYTES_MAX;
use chronolith_model::{TimeRange, TimeUnit};

use super::encoding::BlockPoints;
use crate::write::window_blocks::BlockValue;

/// Type of a value: a word or a text.
pub(crate) trait Value: Clone + BlockValue {
    /// Column of the values.
    fn column(points: &BlockPoints) -> &[Self];
    /// Returns true if a block can hold the value.
    fn is_storable(&self) -> bool;
    /// Bytes of the value outside of its column.
    fn heap_bytes(&self) -> usize;
}

impl Value for f64 {
    fn column(points: &BlockPoints) -> &[f64] {
        &points.words
    }

    fn is_storable(&self) -> bool {
        true
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Value for Arc<[u8]> {
    fn column(points: &BlockPoints) -> &[Arc<[u8]>] {
        &points.texts
    }

    fn is_storable(&self) -> bool {
        self.len() <= TEXT_BYTES_MAX
    }

    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

/// Points that a merge left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOutPoints {
    /// Replaced by a later point of the same time, in a later file or in the WAL.
    pub overwritten: u64,
    /// Deleted by a tombstone.
    pub deleted: u64,
    /// Points whose time a store cannot have.
    pub out_of_bounds: u64,
    /// Texts longer than a block can hold.
    pub long_texts: u64,
}

/// Points in the merge, with the rank of their file.
pub(crate) struct SeriesMerge<V> {
    pending: Vec<(i64, u32, V)>,
    is_sorted: bool,
    pub(super) left_out: LeftOutPoints,
}

impl<V: Value> SeriesMerge<V> {
    pub(crate) fn new() -> SeriesMerge<V> {
        SeriesMerge { pending: Vec::new(), is_sorted: true, left_out: LeftOutPoints::default() }
    }

    /// Points that wait.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Adds the points of a block in `range`. Of two blocks the one with the greater `rank` is the later one.
    pub(crate) fn add(&mut self, points: &BlockPoints, rank: u32, range: TimeRange, deleted: &[Interval]) {
        let valid = TimeUnit::Nano.sample_times();
        for (&time, value) in points.times.iter().zip(V::column(points)) {
            if !range.contains(time) {
                self.left_out.out_of_bounds += u64::from(!valid.contains(&time));
            } else if deleted.iter().any(|part| (part.first..=part.last).contains(&time)) {
                self.left_out.deleted += 1;
            } else if !value.is_storable() {
                self.left_out.long_texts += 1;
            } else {
                self.is_sorted &= self.pending.last().is_none_or(|last| last.0 < time);
                self.pending.push((time, rank, value.clone()));
            }
        }
    }

    /// Moves the points before `bound`, or all, to the ends of `times` and `values`.
    pub(crate) fn take_before(&mut self, bound: Option<i64>, times: &mut Vec<i64>, values: &mut Vec<V>) {
        if !self.is_sorted {
            self.pending.sort_by_key(|point| (point.0, point.1));
            let count = self.pending.len();
            // The latest one of a time is the last one; `dedup_by` keeps the first.
            self.pending.dedup_by(|next, kept| {
                let is_same = next.0 == kept.0;
                if is_same {
                    std::mem::swap(next, kept);
                }
                is_same
            });
            self.left_out.overwritten += (count - self.pending.len()) as u64;
            self.is_sorted = true;
        }
        let end = match bound {
            Some(bound) => self.pending.partition_point(|point| point.0 < bound),
            None => self.pending.len(),
        };
        for point in self.pending.drain(..end) {
            times.push(point.0);
            values.push(point.2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(points: &[(i64, f64)]) -> BlockPoints {
        let (times, words) = points.iter().copied().unzip();
        BlockPoints { times, words, texts: Vec::new() }
    }

    #[test]
    fn the_latest_file_wins_and_points_before_the_bound_come_out() {
        let mut merge = SeriesMerge::new();
        let (mut times, mut values) = (Vec::new(), Vec::new());
        merge.add(&block(&[(1, 1.0), (2, 1.0), (5, 1.0)]), 1, TimeRange::ALL, &[]);
        merge.add(&block(&[(2, 0.5), (3, 0.5)]), 0, TimeRange::ALL, &[]);
        merge.add(&block(&[(3, 2.0), (9, 2.0)]), 2, TimeRange::new(0, 9), &[]);
        merge.take_before(Some(5), &mut times, &mut values);
        assert_eq!((times.as_slice(), values.as_slice()), (&[1, 2, 3][..], &[1.0, 1.0, 2.0][..]));
        assert_eq!((merge.len(), merge.left_out.overwritten), (1, 2));
        merge.add(&block(&[(5, 3.0), (6, 3.0)]), 3, TimeRange::ALL, &[Interval { first: 6, last: 6 }]);
        merge.take_before(None, &mut times, &mut values);
        assert_eq!((times[3], values[3], times.len()), (5, 3.0, 4));
        assert_eq!((merge.left_out.overwritten, merge.left_out.deleted), (3, 1));
    }

    /// A block may hold a time twice only if it is damaged; the last point counts there too.
    #[test]
    fn points_that_no_store_holds_are_counted() {
        let mut merge = SeriesMerge::new();
        merge.add(&block(&[(4, 1.0), (4, 2.0)]), 0, TimeRange::ALL, &[]);
        merge.add(&block(&[(i64::MIN, 1.0), (i64::MAX, 2.0)]), 0, TimeRange::ALL, &[]);
        let (mut times, mut values) = (Vec::new(), Vec::new());
        merge.take_before(None, &mut times, &mut values);
        assert_eq!((times, values, merge.left_out.out_of_bounds), (vec![4], vec![2.0], 2));
    }
}
