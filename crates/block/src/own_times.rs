//! Ranges of chunk segments whose chunks all have times of their own, found when they were first read.
//!
//! A chunk may take its times from another one, so the head of each chunk in a wave is looked at: a cache
//! miss per chunk, most of the time of a selection whose chunks are in memory. Within these ranges that is
//! not needed.
//! Invariants: ranges neither overlap nor touch; all chunks in them were verified; there are at most
//! [`RANGES_MAX`].

use std::collections::BTreeMap;

use parking_lot::{RwLock, RwLockReadGuard};

use crate::source::{BlockFile, ByteRange};

/// Ranges of one block. Neighbours are joined, so that a block that is read often has few.
const RANGES_MAX: usize = 1024;

/// Ranges of the chunk segments of one block.
#[derive(Default)]
pub(crate) struct OwnTimes(RwLock<Ranges>);

/// End of each range by its file and start.
#[derive(Default)]
pub(crate) struct Ranges(BTreeMap<(BlockFile, u64), u64>);

impl OwnTimes {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Ranges> {
        self.0.read()
    }

    pub(crate) fn add(&self, ranges: &[ByteRange]) {
        if !ranges.is_empty() {
            let mut known = self.0.write();
            ranges.iter().for_each(|range| known.add(*range));
        }
    }
}

impl Ranges {
    /// Returns true if all bytes of `range` are in one of the ranges.
    pub(crate) fn has(&self, range: ByteRange) -> bool {
        let before = self.0.range(..=(range.file, range.start)).next_back();
        before.is_some_and(|(&(file, _), &end)| file == range.file && range.end <= end)
    }

    fn add(&mut self, range: ByteRange) {
        let ByteRange { file, mut start, mut end } = range;
        loop {
            let before = self.0.range(..=(file, end)).next_back().map(|(key, end)| (*key, *end));
            match before {
                Some((key, known_end)) if key.0 == file && known_end >= start => {
                    self.0.remove(&key);
                    start = start.min(key.1);
                    end = end.max(known_end);
                }
                _ => break,
            }
        }
        if self.0.len() < RANGES_MAX {
            self.0.insert((file, start), end);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_have_what_was_added(
            added in prop::collection::vec((0u32..2, 0u64..60, 1u64..12), 0..40),
            asked in prop::collection::vec((0u32..2, 0u64..60, 1u64..12), 40),
        ) {
            let range = |&(segment, start, len): &(u32, u64, u64)| {
                ByteRange { file: BlockFile::Segment(segment), start, end: start + len }
            };
            let own_times = OwnTimes::default();
            let mut bytes = [[false; 80]; 2];
            for one in &added {
                own_times.add(&[range(one)]);
                (one.1..one.1 + one.2).for_each(|at| bytes[one.0 as usize][at as usize] = true);
            }
            for one in &asked {
                let want = (one.1..one.1 + one.2).all(|at| bytes[one.0 as usize][at as usize]);
                prop_assert_eq!(own_times.read().has(range(one)), want);
            }
            let read = own_times.read();
            let ends = read.0.iter().zip(read.0.keys().skip(1));
            for ((key, end), next) in ends {
                prop_assert!(key.0 != next.0 || *end < next.1);
            }
        }
    }
}
