//! Half-open ranges of time, and the unit of the times of a store.
//! Invariants: `start <= end`; sample times of a store in milliseconds are in [`TIME_MIN_MS`],
//! [`TIME_MAX_MS`].

/// Earliest valid sample time (about 146 million years before 1970): leaves room for window arithmetic.
pub const TIME_MIN_MS: i64 = i64::MIN / 2;
/// Latest valid sample time.
pub const TIME_MAX_MS: i64 = i64::MAX / 2;

/// Unit of the times of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimeUnit {
    /// Milliseconds: default stores and those of Graphite.
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

    /// Ticks of the unit in milliseconds, rounded down.
    #[must_use]
    pub const fn to_ms(self, ticks: i64) -> i64 {
        ticks.div_euclid(self.ticks_per_ms())
    }
}

/// `[start, end)` in the unit of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimeRange {
    /// First millisecond inside.
    pub start: i64,
    /// First millisecond after.
    pub end: i64,
}

impl TimeRange {
    /// All times that can be stored.
    pub const ALL: TimeRange = TimeRange { start: TIME_MIN_MS, end: TIME_MAX_MS + 1 };

    /// `[start, end)`; an end before the start gives an empty range at `start`.
    #[must_use]
    pub fn new(start: i64, end: i64) -> TimeRange {
        TimeRange { start, end: end.max(start) }
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

    /// Returns true if both share a millisecond.
    #[must_use]
    pub fn overlaps(self, other: TimeRange) -> bool {
        self.start < other.end && other.start < self.end && !self.is_empty() && !other.is_empty()
    }

    /// Returns true if the range shares a millisecond with `[first, last]`.
    #[must_use]
    pub fn overlaps_inclusive(self, first: i64, last: i64) -> bool {
        self.start <= last && first < self.end
    }

    /// Returns true if the range contains no time.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The aligned window of `width_ms` that contains `time`. `time` must be a valid sample time and
    /// `width_ms` positive.
    #[must_use]
    pub fn window_of(time: i64, width_ms: i64) -> TimeRange {
        let start = time.div_euclid(width_ms) * width_ms;
        TimeRange { start, end: start + width_ms }
    }
}
