//! Time ranges of head windows and of the blocks that they are flushed to.
//!
//! Invariants: windows are aligned to two hours, days to 24 hours since 1970.
//! Not here: the windows that a tenant has (`head`), when they are flushed (`maintenance::flush`).

use chronolith_model::{StoreId, TimeRange, TimeUnit};

/// Width of a head window, which is the time range of a fresh block.
pub(crate) const WINDOW_MS: i64 = 2 * 3_600_000;
/// Old windows are flushed together to blocks of this width: backfilled months do not become thousands of
/// blocks.
pub(crate) const OLD_BLOCK_MS: i64 = 12 * WINDOW_MS;

/// Blocks of old windows that one flush writes for a store in nanoseconds; beyond it they are wider than a
/// day.
const OLD_BLOCK_COUNT_MAX: usize = 64;

/// Ranges of the blocks of a tenant, in the unit of its times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockRanges {
    unit: TimeUnit,
    /// Days that end later are not old.
    old_end: i64,
}

impl BlockRanges {
    pub(crate) fn new(store: &StoreId, now_ms: i64) -> BlockRanges {
        let unit = store.time_unit();
        BlockRanges { unit, old_end: unit.from_ms(now_ms.saturating_sub(OLD_BLOCK_MS)) }
    }

    /// Returns the range of the block that a window is flushed to: its own range, or its day if that ended
    /// more than a day ago.
    pub(crate) fn of(&self, window: TimeRange) -> TimeRange {
        let day = self.day_of(window);
        assert!(day.start <= window.start && window.end <= day.end, "a window lies within its day");
        if day.end <= self.old_end { day } else { window }
    }

    /// Returns the day in which `window` starts.
    pub(crate) fn day_of(&self, window: TimeRange) -> TimeRange {
        TimeRange::window_of(window.start, self.unit.from_ms(OLD_BLOCK_MS))
    }

    /// Returns the width of aligned ranges to which the old ones of `ranges`, ascending, are to be widened:
    /// they must not become thousands of blocks when a client writes points of many years at once. `None` if
    /// they are few, and for stores in milliseconds, whose blocks keep Prometheus's ranges.
    pub(crate) fn width_of_old(&self, ranges: &[TimeRange]) -> Option<i64> {
        assert!(ranges.is_sorted_by_key(|range| range.start), "ranges that are widened ascend");
        let old: Vec<i64> = ranges.iter().filter(|r| r.end <= self.old_end).map(|r| r.start).collect();
        if self.unit == TimeUnit::Milli || old.len() <= OLD_BLOCK_COUNT_MAX {
            return None;
        }
        let mut width = self.unit.from_ms(OLD_BLOCK_MS);
        loop {
            width = width.saturating_mul(3);
            let count = old.chunk_by(|a, b| a.div_euclid(width) == b.div_euclid(width)).count();
            if count <= OLD_BLOCK_COUNT_MAX {
                return Some(width);
            }
        }
    }

    /// Returns `ranges`, ascending and unique, the old ones widened if they are many.
    pub(crate) fn widened_all(&self, mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
        ranges.sort_unstable();
        ranges.dedup();
        let width = self.width_of_old(&ranges);
        ranges.iter_mut().for_each(|range| *range = self.widened(*range, width));
        ranges.dedup();
        ranges
    }

    /// Returns the aligned range of `width` around an old range; the range itself if it is not old.
    pub(crate) fn widened(&self, range: TimeRange, width: Option<i64>) -> TimeRange {
        let Some(width) = width else { return range };
        let around = TimeRange::window_of(range.start, width);
        if range.end <= around.end && around.end <= self.old_end { around } else { range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn ranges() -> BlockRanges {
        BlockRanges { unit: TimeUnit::Milli, old_end: 48 * HOUR_MS }
    }

    #[test]
    fn an_old_window_is_flushed_to_its_day() {
        let window = |hour: i64| TimeRange::new(hour * HOUR_MS, (hour + 2) * HOUR_MS);
        assert_eq!(ranges().of(window(22)), TimeRange::new(0, 24 * HOUR_MS));
        assert_eq!(ranges().of(window(24)), TimeRange::new(24 * HOUR_MS, 48 * HOUR_MS));
        assert_eq!(ranges().of(window(48)), window(48));
    }

    /// The block would not have the samples after midnight, which leave the head with it.
    #[test]
    #[should_panic(expected = "a window lies within its day")]
    fn no_window_goes_over_midnight() {
        ranges().of(TimeRange::new(23 * HOUR_MS, 25 * HOUR_MS));
    }

    #[test]
    #[should_panic(expected = "ranges that are widened ascend")]
    fn ranges_that_are_widened_ascend() {
        ranges().width_of_old(&[TimeRange::new(2, 3), TimeRange::new(0, 1)]);
    }
}
