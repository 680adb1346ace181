//! Errors of times, and the years that times are kept within.

/// Seconds of a year-1 to year-9999 calendar that times are kept within.
pub(super) const SECONDS_MIN: i64 = -62_135_596_800;
pub(super) const SECONDS_MAX: i64 = 253_402_300_799;

/// A time or interval that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// No day, month, weekday or time of day has this form.
    #[error("unknown day reference: {0}")]
    Reference(String),
    /// The offset has no sign, number or unit where one is expected.
    #[error("invalid offset: {0}")]
    Offset(String),
    /// The unit begins with none of s, min, h, d, w, mon, y.
    #[error("invalid offset unit '{0}'")]
    Unit(String),
    /// Outside of years 1 to 9999, or no date of the calendar.
    #[error("time out of range: {0}")]
    OutOfRange(String),
    /// Both ends of the range are equal.
    #[error("invalid empty time range")]
    EmptyRange,
}

pub(super) fn in_range(seconds: i64, text: &str) -> Result<i64, TimeError> {
    if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
        return Ok(seconds);
    }
    Err(TimeError::OutOfRange(text.to_owned()))
}
