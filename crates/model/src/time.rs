//! Half-open ranges of milliseconds. Holds: `start <= end`; sample times lie in [`TIME_MIN_MS`], [`TIME_MAX_MS`].

/// Earliest legal sample time (about 146 million years before 1970): leaves room for window arithmetic.
pub const TIME_MIN_MS: i64 = i64::MIN / 2;
/// Latest legal sample time.
pub const TIME_MAX_MS: i64 = i64::MAX / 2;

/// Milliseconds `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimeRange {
    /// First millisecond inside.
    pub start: i64,
    /// First millisecond after.
    pub end: i64,
}

impl TimeRange {
    /// Everything that can be stored.
    pub const ALL: TimeRange = TimeRange { start: TIME_MIN_MS, end: TIME_MAX_MS + 1 };

    /// `[start, end)`; an end before the start gives an empty range at `start`.
    #[must_use]
    pub fn new(start: i64, end: i64) -> TimeRange {
        TimeRange { start, end: end.max(start) }
    }

    /// `[start, last]`, saturating at the end of time.
    #[must_use]
    pub fn inclusive(start: i64, last: i64) -> TimeRange {
        TimeRange::new(start, last.saturating_add(1))
    }

    /// Whether `time` lies inside.
    #[must_use]
    pub fn contains(self, time: i64) -> bool {
        self.start <= time && time < self.end
    }

    /// Whether both share a millisecond.
    #[must_use]
    pub fn overlaps(self, other: TimeRange) -> bool {
        self.start < other.end && other.start < self.end && !self.is_empty() && !other.is_empty()
    }

    /// Whether some sample of `[first, last]` may lie inside.
    #[must_use]
    pub fn overlaps_inclusive(self, first: i64, last: i64) -> bool {
        self.start <= last && first < self.end
    }

    /// Whether nothing lies inside.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The aligned window of `width_ms` that holds `time`. `time` must be a legal sample time and `width_ms` positive.
    #[must_use]
    pub fn window_of(time: i64, width_ms: i64) -> TimeRange {
        let start = time.div_euclid(width_ms) * width_ms;
        TimeRange { start, end: start + width_ms }
    }
}
