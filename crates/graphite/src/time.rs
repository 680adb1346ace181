//! Times of requests: `from`, `until`, `tz`, `now` and intervals of functions.
//!
//! Invariants: times are whole seconds since 1970 (UTC) within years 1 to 9999; a time that a zone skips or
//! repeats is read with the zone's standard offset, as pytz does.
//! Not here: the clock; the caller passes `now`.

mod error;
mod interval;
mod reference;
#[cfg(test)]
mod tests;

use jiff::tz::TimeZone;

pub use error::TimeError;
use error::{SECONDS_MAX, SECONDS_MIN};
pub use interval::{IntervalUnit, interval_seconds, interval_unit};
pub use reference::{TIME_BYTES_MAX, parse_time};

/// Default range of a request without `from`: one day before now.
pub const DEFAULT_FROM: &str = "-1d";

/// A point in time with the UTC offset that its wall clock shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Seconds that the wall clock is ahead of UTC.
    pub offset: i32,
}

impl Moment {
    /// Returns the moment with the offset that `zone` has at `seconds`.
    #[must_use]
    pub fn new(seconds: i64, zone: &TimeZone) -> Self {
        let offset =
            jiff::Timestamp::from_second(seconds).map_or(0, |timestamp| zone.to_offset(timestamp).seconds());
        Moment { seconds, offset }
    }

    /// Moves by `delta` seconds and keeps the offset, as dates of pytz do in arithmetic.
    #[must_use]
    pub fn plus(self, delta: i64) -> Self {
        let seconds = self.seconds.saturating_add(delta).clamp(SECONDS_MIN, SECONDS_MAX);
        Moment { seconds, offset: self.offset }
    }

    /// Seconds since 1970 of the wall clock, read as UTC.
    #[must_use]
    pub fn wall_seconds(self) -> i64 {
        self.seconds.saturating_add(i64::from(self.offset))
    }
}

/// The range of a request: start before end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRange {
    /// Exclusive start.
    pub start: Moment,
    /// Inclusive end.
    pub end: Moment,
}

/// Reads `from` and `until` (default one day before `now`, and `now`); a reversed range is swapped.
/// # Errors
/// [`TimeError`] if one of them is malformed or both are the same time.
pub fn request_range(
    from: Option<&str>,
    until: Option<&str>,
    zone: &TimeZone,
    now: i64,
) -> Result<RequestRange, TimeError> {
    let until = until.map_or(Ok(now), |text| parse_time(text, zone, now))?;
    let from = parse_time(from.unwrap_or(DEFAULT_FROM), zone, now)?;
    if from == until {
        return Err(TimeError::EmptyRange);
    }
    Ok(RequestRange { start: Moment::new(from.min(until), zone), end: Moment::new(from.max(until), zone) })
}

/// The zone of `tz=`, or `default` if the name is unknown.
#[must_use]
pub fn zone_or(name: Option<&str>, default: &TimeZone) -> TimeZone {
    name.and_then(|name| TimeZone::get(name).ok()).unwrap_or_else(|| default.clone())
}
