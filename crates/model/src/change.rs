//! Contract for result caches and rules: times of a tenant's data that may have changed since a generation.
//!
//! Invariants: a reader that takes a generation before it reads sees all data that is not reported as changed
//! since that generation. A change is reported after it is visible and before it is acknowledged.
//! Not here: the cache (`service`), recording of changes (`tsdb`).

use std::sync::Arc;

use crate::TenantId;

/// Times that may have changed: old samples that were removed, and samples that were written or removed
/// within ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Samples before this time may be removed; `i64::MIN`: none.
    pub removed_before_ms: i64,
    /// Samples within these ranges may be new, different or removed.
    pub written: ChangedRanges,
}

/// Ranges of time in ms, both ends included; ascending, disjoint and not adjacent, at most
/// [`ChangedRanges::COUNT_MAX`]. Beyond that the two with the smallest gap become one, so that more counts as
/// changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChangedRanges {
    ranges: [(i64, i64); ChangedRanges::COUNT_MAX],
    /// Used entries of `ranges`; the others are equal for equal sets.
    count: u8,
}

/// Range of an unused entry.
const UNUSED: (i64, i64) = (0, 0);

impl ChangedRanges {
    /// Ranges of one set.
    pub const COUNT_MAX: usize = 6;

    /// No time.
    pub const EMPTY: ChangedRanges = ChangedRanges { ranges: [UNUSED; ChangedRanges::COUNT_MAX], count: 0 };

    /// All times.
    pub const ALL: ChangedRanges = {
        let mut all = ChangedRanges::EMPTY;
        all.ranges[0] = (i64::MIN, i64::MAX);
        all.count = 1;
        all
    };

    /// The ranges, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[(i64, i64)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Adds the range from `first_ms` to `last_ms`.
    ///
    /// # Panics
    /// If it ends before it starts.
    pub fn add(&mut self, first_ms: i64, last_ms: i64) {
        assert!(first_ms <= last_ms, "range from {first_ms} to {last_ms} ms");
        let mut joined = (first_ms, last_ms);
        let mut kept = [UNUSED; ChangedRanges::COUNT_MAX + 1];
        let mut count = 0;
        let mut is_placed = false;
        for &range in self.as_slice() {
            if range.1.saturating_add(1) < joined.0 {
                kept[count] = range;
                count += 1;
            } else if joined.1.saturating_add(1) < range.0 {
                if !is_placed {
                    kept[count] = joined;
                    count += 1;
                    is_placed = true;
                }
                kept[count] = range;
                count += 1;
            } else {
                joined = (joined.0.min(range.0), joined.1.max(range.1));
            }
        }
        if !is_placed {
            kept[count] = joined;
            count += 1;
        }
        if count > ChangedRanges::COUNT_MAX {
            join_nearest(&mut kept);
            count -= 1;
        }
        self.ranges.copy_from_slice(&kept[..ChangedRanges::COUNT_MAX]);
        self.count = count as u8;
        debug_assert!(self.as_slice().windows(2).all(|pair| pair[0].1 < pair[1].0), "{self:?}");
    }

    /// Adds all ranges of `other`.
    pub fn add_all(&mut self, other: &ChangedRanges) {
        for &(first_ms, last_ms) in other.as_slice() {
            self.add(first_ms, last_ms);
        }
    }

    /// Returns true if each time of `other` is one of these.
    #[must_use]
    pub fn covers(&self, other: &ChangedRanges) -> bool {
        let is_within =
            |inner: &(i64, i64)| self.as_slice().iter().any(|range| range.0 <= inner.0 && inner.1 <= range.1);
        other.as_slice().iter().all(is_within)
    }

    /// Start of the first range that ends at `time_ms` or later.
    #[must_use]
    pub fn next_from(&self, time_ms: i64) -> Option<i64> {
        self.as_slice().iter().find(|range| range.1 >= time_ms).map(|range| range.0)
    }
}

/// Makes one range of the two neighbours with the smallest gap; the last entry is unused then.
fn join_nearest(ranges: &mut [(i64, i64); ChangedRanges::COUNT_MAX + 1]) {
    let gap = |at: &usize| ranges[at + 1].0.abs_diff(ranges[*at].1);
    let Some(at) = (0..ChangedRanges::COUNT_MAX).min_by_key(gap) else { return };
    ranges[at].1 = ranges[at + 1].1;
    ranges.copy_within(at + 2.., at + 1);
    ranges[ChangedRanges::COUNT_MAX] = UNUSED;
}

impl Default for ChangedRanges {
    fn default() -> ChangedRanges {
        ChangedRanges::EMPTY
    }
}

impl std::fmt::Debug for ChangedRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl Changed {
    /// No change.
    pub const NOTHING: Changed = Changed { removed_before_ms: i64::MIN, written: ChangedRanges::EMPTY };

    /// Everything may have changed.
    pub const EVERYTHING: Changed = Changed { removed_before_ms: i64::MAX, written: ChangedRanges::ALL };

    /// Adds the changes of another part of the source.
    pub fn add_all(&mut self, other: &Changed) {
        self.removed_before_ms = self.removed_before_ms.max(other.removed_before_ms);
        self.written.add_all(&other.written);
    }

    /// Returns true if nothing in `[first_ms, last_ms]` has changed.
    #[must_use]
    pub fn spares(&self, first_ms: i64, last_ms: i64) -> bool {
        first_ms >= self.removed_before_ms
            && self.written.next_from(first_ms).is_none_or(|next_ms| next_ms > last_ms)
    }
}

/// State of a source at one time; only the source that returned it knows what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Generation {
    /// Number of a source without parts. Numbers ascend; what has changed since 0 is not known.
    Number(u64),
    /// Generations of the parts of a source, in their order.
    Parts(Arc<[Generation]>),
}

impl Generation {
    /// Changes since this generation are not known.
    pub const UNKNOWN: Generation = Generation::Number(0);

    /// Number of a source without parts; 0 for others.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Generation::Number(number) => *number,
            Generation::Parts(_) => 0,
        }
    }
}

/// Source of changes of tenants, each with all its stores, or of single stores.
pub trait ChangeWatch<Id = TenantId>: Send + Sync {
    /// Returns the current generation. Changes of the tenant or store are recorded from the first call on.
    fn generation(&self, id: &Id) -> Generation;

    /// Returns the ranges that may have changed since `generation`, which is of this process. May report too
    /// much.
    fn changed_since(&self, id: &Id, generation: &Generation) -> Changed;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(i64, i64)]) -> ChangedRanges {
        let mut set = ChangedRanges::EMPTY;
        ranges.iter().for_each(|range| set.add(range.0, range.1));
        set
    }

    #[test]
    fn ranges_that_meet_are_one() {
        assert_eq!(of(&[(10, 20), (21, 30)]).as_slice(), [(10, 30)]);
        assert_eq!(of(&[(10, 20), (22, 30)]).as_slice(), [(10, 20), (22, 30)]);
        assert_eq!(of(&[(10, 20), (30, 40), (15, 35)]).as_slice(), [(10, 40)]);
        assert_eq!(of(&[(30, 40), (10, 20)]).as_slice(), [(10, 20), (30, 40)]);
        assert_eq!(of(&[(10, 20), (0, 100)]).as_slice(), [(0, 100)]);
        assert_eq!(of(&[(i64::MIN, 0), (1, i64::MAX)]), ChangedRanges::ALL);
        assert_eq!(of(&[(0, 0)]).as_slice(), [(0, 0)]);
    }

    #[test]
    fn beyond_the_limit_the_smallest_gap_is_closed() {
        let set = of(&[(0, 1), (10, 11), (20, 21), (24, 25), (40, 41), (50, 51), (60, 61)]);
        assert_eq!(set.as_slice(), [(0, 1), (10, 11), (20, 25), (40, 41), (50, 51), (60, 61)]);
        let far = of(&[(i64::MIN, i64::MIN), (0, 0), (2, 2), (4, 4), (6, 6), (8, 8), (i64::MAX, i64::MAX)]);
        assert_eq!(far.as_slice().len(), ChangedRanges::COUNT_MAX);
        assert!(far.covers(&of(&[(0, 0), (i64::MAX, i64::MAX)])));
    }

    #[test]
    fn times_outside_of_all_ranges_are_spared() {
        let changed = Changed { removed_before_ms: 5, written: of(&[(10, 20), (40, 50)]) };
        for (range, want) in [
            ((5, 9), true),
            ((4, 9), false),
            ((5, 10), false),
            ((20, 30), false),
            ((21, 39), true),
            ((21, 40), false),
            ((51, i64::MAX), true),
            ((15, 16), false),
        ] {
            assert_eq!(changed.spares(range.0, range.1), want, "{range:?}");
        }
        assert!(Changed::NOTHING.spares(i64::MIN, i64::MAX));
        assert!(!Changed::EVERYTHING.spares(0, 0));
    }

    /// Against a list of all times, for random ranges in a small world.
    #[test]
    fn every_added_time_is_in_the_set() {
        let mut seed = 7_u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        for _ in 0..2_000 {
            let mut set = ChangedRanges::EMPTY;
            let mut times = [false; 64];
            let added = random(12);
            for _ in 0..added {
                let first = random(60);
                let last = (first + random(4)).min(63);
                set.add(first as i64, last as i64);
                times[first as usize..=last as usize].fill(true);
            }
            let is_in = |time: i64| set.as_slice().iter().any(|range| range.0 <= time && time <= range.1);
            let joined = times.iter().enumerate().filter(|(time, known)| is_in(*time as i64) != **known);
            let joined: Vec<bool> = joined.map(|(_, known)| *known).collect();
            assert!(joined.iter().all(|known| !known), "a time is missing in {set:?}");
            assert!(joined.is_empty() || added > ChangedRanges::COUNT_MAX as u64, "{set:?}");
        }
    }
}
