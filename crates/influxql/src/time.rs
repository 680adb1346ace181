//! Times of statements: the forms of string literals, time zones.
//!
//! Invariants: times of queries are nanoseconds since 1970 in [`TIME_MIN_NS`], [`TIME_MAX_NS`].
//! Not here: windows of a calendar (`exec`).

use jiff::tz::Offset;
pub use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil};

/// Earliest time of a query, two ticks after the smallest number, as in InfluxDB.
pub const TIME_MIN_NS: i64 = i64::MIN + 2;
/// Latest time of a query.
pub const TIME_MAX_NS: i64 = i64::MAX - 1;

/// Returns true if `zone` is the name of a time zone, in its exact case.
#[must_use]
pub fn zone_exists(zone: &str) -> bool {
    zone_named(zone).is_some()
}

/// Returns the time zone of a name, in its exact case.
#[must_use]
pub fn zone_named(zone: &str) -> Option<TimeZone> {
    if zone == "UTC" || zone == "Local" {
        return Some(TimeZone::UTC);
    }
    TimeZone::get(zone).ok().filter(|found| found.iana_name() == Some(zone))
}

/// Returns the offset of a zone from UTC in seconds; 0 at times beyond the calendar.
#[must_use]
pub fn offset_seconds_at(zone: &TimeZone, time_ns: i64) -> i32 {
    Timestamp::from_nanosecond(time_ns.into()).map_or(0, |time| zone.to_offset(time).seconds())
}

/// Returns the time of a string literal in `zone`: a date, optionally a time of day after a space with a
/// fraction, or after `T` with `Z` or an offset. `None` for a text of any other form; clients call it an
/// invalid timestamp if [`looks_like_time`].
#[must_use]
pub fn parse_literal(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let (civil, offset_seconds) = civil_and_offset(text)?;
    let as_utc = Offset::UTC.to_timestamp(civil).ok()?;
    let minus = |seconds: i64| as_utc.checked_sub(SignedDuration::from_secs(seconds)).ok();
    if let Some(seconds) = offset_seconds {
        return minus(seconds);
    }
    // A change of clocks repeats or skips a local time. It is first read with the offset at the same time in
    // UTC; the zone's offset at the resulting time counts.
    let offset_at = |time: Timestamp| i64::from(zone.to_offset(time).seconds());
    match offset_at(as_utc) {
        0 => Some(as_utc),
        first_guess => minus(offset_at(minus(first_guess)?)),
    }
}

/// Returns true if `text` begins with the form of a date, whatever its numbers: a string of this form is a
/// time where it is compared with one.
#[must_use]
pub fn looks_like_time(text: &str) -> bool {
    let shape: String = text.chars().take(10).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00"
}

/// Splits a literal into its local time, and the seconds of its offset if it has one.
fn civil_and_offset(text: &str) -> Option<(civil::DateTime, Option<i64>)> {
    let (date, rest) = text.split_at_checked(10)?;
    let mut parts = Numbers { rest: date };
    let date = civil::Date::new(
        i16::try_from(parts.digits(4)?).ok()?,
        i8::try_from(parts.after('-')?.digits(2)?).ok()?,
        i8::try_from(parts.after('-')?.digits(2)?).ok()?,
    );
    let date = date.ok()?;
    if rest.is_empty() {
        return Some((date.at(0, 0, 0, 0), None));
    }
    let has_t = rest.starts_with('T');
    let clock = rest.strip_prefix(['T', ' '])?;
    let mut parts = Numbers { rest: clock };
    let hour = parts.digits(if clock.get(1..2) == Some(":") { 1 } else { 2 })?;
    let minute = parts.after(':')?.digits(2)?;
    let second = parts.after(':')?.digits(2)?;
    let nanosecond = parts.fraction()?;
    let time = civil::Time::new(
        i8::try_from(hour).ok()?,
        i8::try_from(minute).ok()?,
        i8::try_from(second).ok()?,
        i32::try_from(nanosecond).ok()?,
    );
    let civil = date.to_datetime(time.ok()?);
    let offset = match parts.rest {
        "" if !has_t => None,
        "Z" if has_t => Some(0),
        zone if has_t => Some(offset_seconds(zone)?),
        _ => return None,
    };
    Some((civil, offset))
}

/// Seconds of `+02:00`.
fn offset_seconds(zone: &str) -> Option<i64> {
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let mut parts = Numbers { rest: zone.strip_prefix(['+', '-'])? };
    let hours = parts.digits(2)?;
    let minutes = parts.after(':')?.digits(2)?;
    let is_valid = parts.rest.is_empty() && hours <= 24 && minutes <= 60;
    is_valid.then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Reader of digits.
struct Numbers<'a> {
    rest: &'a str,
}

impl Numbers<'_> {
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        self.rest = rest;
        digits.parse().ok()
    }

    fn after(&mut self, separator: char) -> Option<&mut Self> {
        self.rest = self.rest.strip_prefix(separator)?;
        Some(self)
    }

    /// Nanoseconds of a fraction after a point or comma; 0 without one. Digits after the ninth are dropped.
    fn fraction(&mut self) -> Option<i64> {
        let Some(after_point) = self.rest.strip_prefix(['.', ',']) else { return Some(0) };
        let digit_count = after_point.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = after_point.split_at_checked(digit_count)?;
        if digits.is_empty() {
            return None;
        }
        self.rest = rest;
        format!("{digits:0<9}").get(..9)?.parse().ok()
    }
}
