//! Time ranges of the blocks that a shard becomes.
//!
//! Invariants: as a flush of the store chooses them, the range is two hours, or the day when that is not near
//! the present; a shard of many years has at most [`WIDE_COUNT_MAX`] wider ones.
//! Not here: writing the blocks (`write::window_blocks`).

use chronolith_model::time::TIME_MAX_NS;
use chronolith_model::{TimeRange, TimeUnit};

use crate::write::window_blocks::BlockWindows;

/// Width of a recent window.
const WINDOW_NS: i64 = TimeUnit::Nano.from_ms(2 * 3_600_000);
const DAY_NS: i64 = 12 * WINDOW_NS;
/// Windows of a day or more per shard.
const WIDE_COUNT_MAX: i64 = 64;

/// Windows of one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardWindows {
    /// Whole days near the present, whose windows take two hours.
    recent: TimeRange,
    /// Width of the other windows.
    width: i64,
}

impl ShardWindows {
    /// Windows of a shard with points from `first` to `last`.
    pub(crate) fn new(now_ms: i64, first: i64, last: i64) -> ShardWindows {
        let mut width = DAY_NS;
        while last.div_euclid(width).saturating_sub(first.div_euclid(width)) >= WIDE_COUNT_MAX {
            width = width.saturating_mul(3);
        }
        let now_ns = TimeUnit::Nano.from_ms(now_ms);
        let day_of = |time: i64| TimeRange::window_of(time.min(TIME_MAX_NS), DAY_NS);
        let start = day_of(now_ns.saturating_sub(DAY_NS)).start;
        let end = day_of(now_ns.saturating_add(DAY_NS)).end;
        ShardWindows { recent: TimeRange::new(start, end), width }
    }

    /// Consecutive windows from `first` to `last`.
    pub(crate) fn all(&self, first: i64, last: i64) -> Vec<TimeRange> {
        let mut windows = vec![self.of(first)];
        while let Some(before) = windows.last().filter(|window| window.end <= last) {
            windows.push(self.of(before.end));
        }
        windows
    }
}

impl BlockWindows for ShardWindows {
    const UNIT: TimeUnit = TimeUnit::Nano;

    fn of(&self, time: i64) -> TimeRange {
        if self.recent.contains(time) {
            return TimeRange::window_of(time, WINDOW_NS);
        }
        let wide = TimeRange::window_of(time, self.width);
        if time < self.recent.start {
            TimeRange::new(wide.start, wide.end.min(self.recent.start))
        } else {
            TimeRange::new(wide.start.max(self.recent.end), wide.end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_model::time::TIME_MIN_NS;

    const NOW_MS: i64 = 20_000 * 86_400_000 + 5 * 3_600_000;
    const NOW_NS: i64 = NOW_MS * 1_000_000;

    #[test]
    fn recent_windows_are_two_hours_and_others_a_day() {
        let windows = ShardWindows::new(NOW_MS, NOW_NS - 6 * DAY_NS, NOW_NS);
        let width = |time| windows.of(time).end - windows.of(time).start;
        assert_eq!((width(NOW_NS), width(NOW_NS - DAY_NS)), (WINDOW_NS, WINDOW_NS));
        assert_eq!((width(NOW_NS - 3 * DAY_NS), width(NOW_NS + 4 * DAY_NS)), (DAY_NS, DAY_NS));
    }

    #[test]
    fn windows_follow_one_another_and_are_few() {
        for (first, last) in [(TIME_MIN_NS, TIME_MAX_NS), (0, NOW_NS), (NOW_NS - 300 * DAY_NS, NOW_NS)] {
            let windows = ShardWindows::new(NOW_MS, first, last);
            let all = windows.all(first, last);
            assert!(all.len() <= 64 + 2 + 3 * 12, "{}", all.len());
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start && !pair[1].is_empty()));
            assert!(all[0].contains(first) && all.last().is_some_and(|window| window.contains(last)));
            assert!(all.iter().all(|window| windows.of(window.start.max(first)) == *window));
        }
    }
}
