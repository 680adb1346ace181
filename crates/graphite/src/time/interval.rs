//! Offsets and intervals: `-1h30min`, `7d`, `10minutes`.
//!
//! Invariants: one sign at most, then number and unit repeated; months have 30 days, years 365.
//! Not here: points in time (`reference`).

use super::error::TimeError;

/// Units by their prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalUnit {
    /// `s...`
    Seconds,
    /// `min...`
    Minutes,
    /// `h...`
    Hours,
    /// `d...`
    Days,
    /// `w...`
    Weeks,
    /// `mon...`, 30 days in arithmetic
    Months,
    /// `y...`, 365 days in arithmetic
    Years,
}

/// Seconds beyond which an interval is refused: about 2.7 million years.
const INTERVAL_SECONDS_MAX: i64 = 86_400 * 999_999_999;

/// Reads a unit by its prefix.
/// # Errors
/// [`TimeError::Unit`] for any other prefix; `m` alone is neither minutes nor months.
pub fn interval_unit(text: &str) -> Result<IntervalUnit, TimeError> {
    const UNITS: [(&str, IntervalUnit); 7] = [
        ("s", IntervalUnit::Seconds),
        ("min", IntervalUnit::Minutes),
        ("h", IntervalUnit::Hours),
        ("d", IntervalUnit::Days),
        ("w", IntervalUnit::Weeks),
        ("mon", IntervalUnit::Months),
        ("y", IntervalUnit::Years),
    ];
    let unit = UNITS.iter().find(|(prefix, _)| text.starts_with(prefix));
    unit.map(|(_, unit)| *unit).ok_or_else(|| TimeError::Unit(text.to_owned()))
}

fn unit_seconds(unit: IntervalUnit) -> i64 {
    match unit {
        IntervalUnit::Seconds => 1,
        IntervalUnit::Minutes => 60,
        IntervalUnit::Hours => 3600,
        IntervalUnit::Days => 86_400,
        IntervalUnit::Weeks => 7 * 86_400,
        IntervalUnit::Months => 30 * 86_400,
        IntervalUnit::Years => 365 * 86_400,
    }
}

/// Returns the seconds of an offset, negative after `-`. An empty text is 0.
/// # Errors
/// [`TimeError`] if a number or a unit is missing, or the sum is out of range.
pub fn interval_seconds(text: &str) -> Result<i64, TimeError> {
    let invalid = || TimeError::Offset(text.to_owned());
    let (sign, mut rest) = match text.chars().next() {
        None => return Ok(0),
        Some('+') => (1, text.get(1..).unwrap_or("")),
        Some('-') => (-1, text.get(1..).unwrap_or("")),
        Some(c) if c.is_ascii_digit() => (1, text),
        Some(_) => return Err(invalid()),
    };
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: i64 = number.parse().map_err(|_| invalid())?;
        let seconds = number.checked_mul(unit_seconds(interval_unit(unit)?)).ok_or_else(invalid)?;
        total =
            total.checked_add(seconds).filter(|total| *total <= INTERVAL_SECONDS_MAX).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(sign * total)
}
