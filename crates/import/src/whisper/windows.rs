//! Time ranges of the blocks of an import of whisper files.
//!
//! Old points are from coarse archives and few, so that ranges get wider with age: two hours for the days
//! around the present, then 3, 27 and 243 days.
//! Invariants: windows follow one another without gaps; there are at most some 200 between 1970 and 2106.
//! Not here: writing the blocks (`write::window_blocks`).

use chronolith_model::{TimeRange, TimeUnit};

use crate::write::window_blocks::BlockWindows;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const RECENT_MS: i64 = 2 * HOUR_MS;
/// Widths of older windows, with the age in days from which on they are used. Each divides the next one.
const WIDTHS_DAYS: [(i64, i64); 3] = [(3, 2), (27, 27), (243, 108)];

/// Windows by age, for a clock that stands still.
#[derive(Debug, Clone)]
pub(crate) struct AgeWindows {
    /// Whole days around the present, whose windows take two hours.
    recent: TimeRange,
    /// Widths of windows before, each with the time before which it is used, ascending by width.
    older: [(i64, i64); 3],
}

impl AgeWindows {
    pub(crate) fn new(now_ms: i64) -> AgeWindows {
        let older = WIDTHS_DAYS.map(|(width_days, age_days)| {
            let width = width_days * DAY_MS;
            // A multiple of the width, so that windows of neighbouring widths meet.
            (width, TimeRange::window_of(now_ms.saturating_sub(age_days * DAY_MS), width).start)
        });
        let start = older.first().map_or(now_ms, |(_, before)| *before);
        let end = TimeRange::window_of(now_ms.saturating_add(DAY_MS), DAY_MS).end;
        AgeWindows { recent: TimeRange::new(start, end.max(start)), older }
    }
}

impl BlockWindows for AgeWindows {
    const UNIT: TimeUnit = TimeUnit::Milli;

    fn of(&self, time: i64) -> TimeRange {
        if self.recent.contains(time) {
            return TimeRange::window_of(time, RECENT_MS);
        }
        if time >= self.recent.end {
            let wide = TimeRange::window_of(time, DAY_MS);
            return TimeRange::new(wide.start.max(self.recent.end), wide.end);
        }
        let widest = self.older.iter().rev().find(|(_, before)| time < *before);
        TimeRange::window_of(time, widest.map_or(RECENT_MS, |(width, _)| *width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 20_000 * DAY_MS + 5 * HOUR_MS;

    #[test]
    fn windows_get_wider_with_age() {
        let windows = AgeWindows::new(NOW_MS);
        let width = |age_days: i64| {
            let window = windows.of(NOW_MS - age_days * DAY_MS);
            (window.end - window.start) / HOUR_MS
        };
        assert_eq!([0, -1, 20, 90, 400].map(width), [2, 2, 72, 27 * 24, 243 * 24]);
    }

    #[test]
    fn windows_follow_one_another_and_are_few() {
        for now_ms in (0..300).map(|day| NOW_MS + day * DAY_MS + day * HOUR_MS) {
            let windows = AgeWindows::new(now_ms);
            let mut start = 0;
            let mut count = 0;
            while start <= now_ms {
                let window = windows.of(start);
                assert!(window.contains(start) && !window.is_empty(), "{window:?}");
                assert!(count == 0 || window.start == start, "{window:?} after {start}");
                assert_eq!(windows.of(window.end - 1), window);
                start = window.end;
                count += 1;
            }
            assert!(count < 220, "{count}");
        }
    }
}
