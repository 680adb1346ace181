//! Calendar of UTC: date and time of day of a Unix time, RFC 3339 in both directions.
//!
//! Invariants: every time has a date, also beyond the years of jiff (-9999 to 9999): the Gregorian calendar
//! is extended in both directions. There are no leap seconds, as in Unix time.
//! Not here: time zones; the current time (`clock`).

use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::Offset;

#[cfg(test)]
mod tests;

/// Years after which the calendar repeats, days of the week included.
const CYCLE_YEARS: i64 = 400;
/// Days of these years.
const CYCLE_DAYS: i64 = 146_097;
const SECONDS_PER_DAY: i64 = 86_400;
const UNIX_EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
/// Bytes of a date and a time of day without zone and fraction.
const CIVIL_LEN: usize = "1970-01-01T00:00:00".len();

/// Date and time of day in UTC, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtcTime {
    /// Cycles of 400 years between the time and `in_cycle`.
    cycle: i64,
    /// The same time of the cycle that begins in 1970.
    in_cycle: DateTime,
}

impl UtcTime {
    /// Returns the time at `second_of_day` (0 to 86 399) of the day `day` after 1970-01-01.
    ///
    /// # Panics
    /// If `second_of_day` is centuries off.
    #[must_use]
    pub fn of_day(day: i64, second_of_day: i64) -> UtcTime {
        let seconds = day.rem_euclid(CYCLE_DAYS) * SECONDS_PER_DAY + second_of_day;
        let in_cycle = Offset::UTC.to_datetime(Timestamp::constant(seconds, 0));
        UtcTime { cycle: day.div_euclid(CYCLE_DAYS), in_cycle }
    }

    /// Returns the time `ms` milliseconds after 1970; fractions of a second are dropped towards the past.
    #[must_use]
    pub fn of_ms(ms: i64) -> UtcTime {
        let seconds = ms.div_euclid(1000);
        UtcTime::of_day(seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY))
    }

    /// Astronomical year: the one before the year 1 is 0.
    #[must_use]
    pub fn year(self) -> i64 {
        i64::from(self.in_cycle.year()) + self.cycle * CYCLE_YEARS
    }

    /// 1 to 12.
    #[must_use]
    pub fn month(self) -> i64 {
        i64::from(self.in_cycle.month())
    }

    /// 1 to 31.
    #[must_use]
    pub fn day_of_month(self) -> i64 {
        i64::from(self.in_cycle.day())
    }

    /// 1 to 366.
    #[must_use]
    pub fn day_of_year(self) -> i64 {
        i64::from(self.in_cycle.day_of_year())
    }

    /// 0 (Sunday) to 6.
    #[must_use]
    pub fn day_of_week(self) -> i64 {
        i64::from(self.in_cycle.weekday().to_sunday_zero_offset())
    }

    /// 28 to 31.
    #[must_use]
    pub fn days_in_month(self) -> i64 {
        i64::from(self.in_cycle.days_in_month())
    }

    /// 0 to 23.
    #[must_use]
    pub fn hour(self) -> i64 {
        i64::from(self.in_cycle.hour())
    }

    /// 0 to 59.
    #[must_use]
    pub fn minute(self) -> i64 {
        i64::from(self.in_cycle.minute())
    }

    /// 0 to 59.
    #[must_use]
    pub fn second(self) -> i64 {
        i64::from(self.in_cycle.second())
    }

    /// Returns the time in the basic format of ISO 8601, which fits a file name: `20261120T164500Z`.
    #[must_use]
    pub fn basic_format(self) -> String {
        let [year, month, day] = [self.year(), self.month(), self.day_of_month()];
        let [hour, minute, second] = [self.hour(), self.minute(), self.second()];
        format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
    }

    /// RFC 3339 without the zone.
    fn civil_text(self) -> String {
        let [year, month, day] = [self.year(), self.month(), self.day_of_month()];
        let [hour, minute, second] = [self.hour(), self.minute(), self.second()];
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

/// Returns a time in RFC 3339, to the second: `2026-11-20T16:45:00Z`.
#[must_use]
pub fn rfc3339_seconds(ms: i64) -> String {
    format!("{}Z", UtcTime::of_ms(ms).civil_text())
}

/// Returns a time in RFC 3339, to the millisecond: `2026-11-20T16:45:00.123Z`.
#[must_use]
pub fn rfc3339_ms(ms: i64) -> String {
    format!("{}.{:03}Z", UtcTime::of_ms(ms).civil_text(), ms.rem_euclid(1000))
}

/// Returns a time in RFC 3339 with as many digits of the second as it needs, as Go's `RFC3339Nano`:
/// `2026-11-20T16:45:00.5Z`.
#[must_use]
pub fn rfc3339_ns(ns: i64) -> String {
    let civil = UtcTime::of_ms(ns.div_euclid(1_000_000)).civil_text();
    match ns.rem_euclid(1_000_000_000) {
        0 => format!("{civil}Z"),
        fraction_ns => {
            let digits = format!("{fraction_ns:09}");
            format!("{civil}.{}Z", digits.trim_end_matches('0'))
        }
    }
}

/// Returns the milliseconds since 1970 of a time in RFC 3339; digits after the third of a fraction are
/// dropped. `None` for anything else, a leap second included.
#[must_use]
pub fn parse_rfc3339_ms(text: &str) -> Option<i64> {
    let (civil, rest) = text.split_at_checked(CIVIL_LEN)?;
    // jiff takes more than RFC 3339 has: a space for the `T`, years of six digits, a 60th second (as the
    // 59th).
    let is_strict = has_shape(&civil.replace('t', "T"), "0000-00-00T00:00:00") && !civil.ends_with("60");
    let civil: DateTime = if is_strict { civil.parse().ok()? } else { return None };
    let (fraction_ms, zone) = split_fraction(rest)?;
    let local_seconds = civil.duration_since(UNIX_EPOCH).as_secs();
    Some((local_seconds - zone_offset_seconds(zone)?) * 1000 + fraction_ms)
}

/// Returns true if `text` has a digit for each `0` of `shape` and otherwise equals it.
fn has_shape(text: &str, shape: &str) -> bool {
    let is_like =
        |(byte, wanted): (u8, u8)| if wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(is_like)
}

/// Splits `.123456Z` into milliseconds and zone.
fn split_fraction(rest: &str) -> Option<(i64, &str)> {
    let Some(after_point) = rest.strip_prefix('.') else { return Some((0, rest)) };
    let digit_count = after_point.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, zone) = after_point.split_at_checked(digit_count)?;
    if digits.is_empty() {
        return None;
    }
    Some((format!("{digits:0<3}").get(..3)?.parse().ok()?, zone))
}

/// Returns the seconds of `Z` or of an offset such as `+02:00`.
fn zone_offset_seconds(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, clock) = match zone.split_at_checked(1)? {
        ("+", clock) => (1, clock),
        ("-", clock) => (-1, clock),
        _ => return None,
    };
    let (hours, minutes) = clock.split_once(':').filter(|_| has_shape(clock, "00:00"))?;
    let hours: i64 = hours.parse().ok()?;
    let minutes: i64 = minutes.parse().ok()?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}
