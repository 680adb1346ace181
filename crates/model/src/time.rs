//! Half-open ranges of time, and the unit of the times of a store.
//! Invariants: `start <= end`; sample times of a store are in [`TimeUnit::sample_times`] of its unit.
//! Arithmetic on times saturates: the samples of a store in nanoseconds may have nearly any `i64`.

use std::ops::RangeInclusive;

/// Earliest valid sample time in milliseconds, about 146 million years before 1970.
pub const TIME_MIN_MS: i64 = i64::MIN / 2;
/// Latest valid sample time in milliseconds.
pub const TIME_MAX_MS: i64 = i64::MAX / 2;
/// Earliest valid sample time in nanoseconds, as in InfluxDB.
pub const TIME_MIN_NS: i64 = i64::MIN + 2;
/// Latest valid sample time in nanoseconds, as in InfluxDB.
pub const TIME_MAX_NS: i64 = i64::MAX - 1;

/// Unit of the times of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimeUnit {
    /// Milliseconds: default stores and Graphite stores.
    #[default]
    Milli,
    /// Nanoseconds: databases of InfluxDB clients.
    Nano,
}

impl TimeUnit {
    /// Ticks of the unit per millisecond.
    #[must_use]
    pub const fn ticks_per_ms(self) -> i64 {
        match self {
            TimeUnit::Milli => 1,
            TimeUnit::Nano => 1_000_000,
        }
    }

    /// Milliseconds in ticks of the unit, saturating.
    #[must_use]
    pub const fn from_ms(self, ms: i64) -> i64 {
        ms.saturating_mul(self.ticks_per_ms())
    }

    /// The shard group of `width` ticks, which is positive, that contains `time`: a window counted from the
    /// first day of the year 1, a Monday, so that groups of a week begin on Mondays. Cut at the ends of
    /// `i64`.
    #[must_use]
    pub fn shard_group_of(self, time: i64, width: i64) -> TimeRange {
        const YEAR_1_MS: i128 = -62_135_596_800_000;
        let origin = YEAR_1_MS * i128::from(self.ticks_per_ms());
        let width = i128::from(width);
        let start = origin + (i128::from(time) - origin).div_euclid(width) * width;
        let cut = |tick: i128| tick.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        TimeRange { start: cut(start), end: cut(start + width) }
    }

    /// Ticks of the unit in milliseconds, rounded down.
    #[must_use]
    pub const fn to_ms(self, ticks: i64) -> i64 {
        ticks.div_euclid(self.ticks_per_ms())
    }

    /// Ticks of the unit in milliseconds, rounded up.
    #[must_use]
    pub const fn to_ms_ceil(self, ticks: i64) -> i64 {
        let is_between = ticks.rem_euclid(self.ticks_per_ms()) != 0;
        self.to_ms(ticks) + is_between as i64
    }

    /// A range of milliseconds in ticks of the unit, saturating.
    #[must_use]
    pub fn range_from_ms(self, range_ms: TimeRange) -> TimeRange {
        TimeRange { start: self.from_ms(range_ms.start), end: self.from_ms(range_ms.end) }
    }

    /// The shortest range of whole milliseconds around a range in ticks of the unit.
    #[must_use]
    pub fn range_to_ms(self, range: TimeRange) -> TimeRange {
        TimeRange { start: self.to_ms(range.start), end: self.to_ms_ceil(range.end) }
    }

    /// First and last valid sample time in ticks of the unit.
    #[must_use]
    pub const fn sample_times(self) -> RangeInclusive<i64> {
        match self {
            TimeUnit::Milli => TIME_MIN_MS..=TIME_MAX_MS,
            TimeUnit::Nano => TIME_MIN_NS..=TIME_MAX_NS,
        }
    }
}

/// `[start, end)` in the unit of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimeRange {
    /// First time inside.
    pub start: i64,
    /// First time after.
    pub end: i64,
}

impl TimeRange {
    /// All times that a store of any unit can have.
    pub const ALL: TimeRange = TimeRange { start: TIME_MIN_NS, end: TIME_MAX_NS + 1 };

    /// `[start, end)`; an end before the start gives an empty range at `start`.
    #[must_use]
    pub fn new(start: i64, end: i64) -> TimeRange {
        TimeRange { start, end: end.max(start) }
    }

    /// Sorts ranges, and joins those that overlap or touch.
    #[must_use]
    pub fn joined(mut ranges: Vec<TimeRange>) -> Vec<TimeRange> {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut out: Vec<TimeRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match out.last_mut().filter(|last| range.start <= last.end) {
                Some(last) => last.end = last.end.max(range.end),
                None => out.push(range),
            }
        }
        out
    }

    /// `[start, last]`, saturating at `i64::MAX`.
    #[must_use]
    pub fn inclusive(start: i64, last: i64) -> TimeRange {
        TimeRange::new(start, last.saturating_add(1))
    }

    /// Returns true if `time` is in the range.
    #[must_use]
    pub fn contains(self, time: i64) -> bool {
        self.start <= time && time < self.end
    }

    /// Returns true if both share a time.
    #[must_use]
    pub fn overlaps(self, other: TimeRange) -> bool {
        self.start < other.end && other.start < self.end && !self.is_empty() && !other.is_empty()
    }

    /// Returns true if the range shares a time with `[first, last]`.
    #[must_use]
    pub fn overlaps_inclusive(self, first: i64, last: i64) -> bool {
        self.start <= last && first < self.end
    }

    /// Returns true if the range contains no time.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The aligned window of `width`, which is positive, that contains `time`. The first and the last window
    /// are cut at the ends of `i64`; `time` is before `i64::MAX`.
    #[must_use]
    pub fn window_of(time: i64, width: i64) -> TimeRange {
        let windows = time.div_euclid(width);
        TimeRange { start: windows.saturating_mul(width), end: (windows + 1).saturating_mul(width) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups were counted from 1970, a Thursday: a field that changed its type on a Monday was refused.
    #[test]
    fn shard_groups_of_a_week_begin_on_mondays() {
        const WEEK_NS: i64 = 7 * 86_400_000_000_000;
        const MONDAY_NS: i64 = 1_700_438_400_000_000_000;
        for (time, start) in [(MONDAY_NS, MONDAY_NS), (MONDAY_NS - 1, MONDAY_NS - WEEK_NS)] {
            let want = TimeRange { start, end: start + WEEK_NS };
            assert_eq!(TimeUnit::Nano.shard_group_of(time, WEEK_NS), want, "{time}");
        }
        assert_eq!(TimeUnit::Nano.shard_group_of(i64::MIN + 2, WEEK_NS).start, i64::MIN);
    }

    #[test]
    fn milliseconds_around_ticks() {
        let unit = TimeUnit::Nano;
        for (ticks, down, up) in
            [(0, 0, 0), (1, 0, 1), (-1, -1, 0), (1_000_000, 1, 1), (-1_000_001, -2, -1), (999_999, 0, 1)]
        {
            assert_eq!((unit.to_ms(ticks), unit.to_ms_ceil(ticks)), (down, up), "{ticks}");
        }
        assert_eq!(unit.range_to_ms(TimeRange::new(-1, 1)), TimeRange::new(-1, 1));
        assert_eq!(unit.range_from_ms(TimeRange::new(i64::MIN / 2, 5)), TimeRange::new(i64::MIN, 5_000_000));
        assert_eq!((TimeUnit::Milli.to_ms(-7), TimeUnit::Milli.to_ms_ceil(-7)), (-7, -7));
    }

    #[test]
    fn windows_at_the_ends_are_cut() {
        let width = 7_200_000_000_000;
        for time in [TIME_MIN_NS, TIME_MIN_NS + 1, -1, 0, TIME_MAX_NS - 1, TIME_MAX_NS] {
            let window = TimeRange::window_of(time, width);
            assert!(window.contains(time), "{window:?}");
            assert_eq!(TimeRange::window_of(window.start, width), window);
            assert!(window.end == i64::MAX || TimeRange::window_of(window.end, width).start == window.end);
        }
        assert_eq!(TimeRange::window_of(TIME_MIN_NS, width).start, i64::MIN);
        assert_eq!(TimeRange::window_of(-1, 10), TimeRange::new(-10, 0));
    }
}
