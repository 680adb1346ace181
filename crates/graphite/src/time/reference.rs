//! Points in time: epoch seconds, `now`, times of day, days, months and weekdays, each with an offset.
//!
//! Invariant: the text is read as graphite-web 1.1.10 reads it, oddities included (`12am` is noon,
//! `12:10pm`
//! is ten past midnight).
//! Not here: offsets alone (`interval`).

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::error::{TimeError, in_range};
use super::interval::interval_seconds;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Bytes of a time; longer texts are refused unread.
pub const TIME_BYTES_MAX: usize = 256;

/// Reads a point in time, in seconds since 1970. Days and times of day are in `zone`.
/// # Errors
/// [`TimeError`] if the text has no accepted form or leaves the calendar.
pub fn parse_time(text: &str, zone: &TimeZone, now: i64) -> Result<i64, TimeError> {
    if text.len() > TIME_BYTES_MAX {
        return Err(TimeError::OutOfRange(format!("{} bytes", text.len())));
    }
    let text: String = text.trim().to_lowercase().replace(['_', ',', ' '], "");
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !is_calendar_date(&text) {
        let seconds = text.parse().map_err(|_| TimeError::OutOfRange(text.clone()))?;
        return in_range(seconds, &text);
    }
    let split = text.find('+').or_else(|| text.find('-')).unwrap_or(text.len());
    let (reference, offset) = text.split_at(split);
    let reference = parse_reference(reference, zone, now)?;
    in_range(reference.saturating_add(interval_seconds(offset)?), &text)
}

/// Returns true if eight digits are a date and not seconds since 1970.
fn is_calendar_date(digits: &str) -> bool {
    let part = |start: usize, end: usize| {
        digits.get(start..end).and_then(|part| part.parse::<u32>().ok()).unwrap_or(0)
    };
    digits.len() == 8 && part(0, 4) > 1900 && part(4, 6) < 13 && part(6, 8) < 32
}

fn parse_reference(reference: &str, zone: &TimeZone, now: i64) -> Result<i64, TimeError> {
    if reference.is_empty() || reference == "now" {
        return Ok(now);
    }
    let unknown = || TimeError::Reference(reference.to_owned());
    let (hour, minute, day) = time_of_day(reference).ok_or_else(unknown)?;
    let today = Timestamp::from_second(now).map_err(|_| unknown())?.to_zoned(zone.clone()).date();
    let time = Time::new(hour, minute, 0, 0).map_err(|_| unknown())?;
    let date = parse_day(day, today).ok_or_else(unknown)?;
    localize(DateTime::from_parts(date, time), zone).ok_or_else(unknown)
}

/// A wall clock time that a zone skips or repeats is read with the standard offset.
fn localize(wall: DateTime, zone: &TimeZone) -> Option<i64> {
    zone.to_ambiguous_timestamp(wall).later().ok().map(Timestamp::as_second)
}

/// Splits a time of day from the front: hour, minute, rest.
fn time_of_day(reference: &str) -> Option<(i8, i8, &str)> {
    let mut hour = 0;
    let mut minute = 0;
    let mut rest = reference;
    if let Some(colon) = rest.find(':').filter(|at| (1..3).contains(at)) {
        hour = rest.get(..colon)?.parse().ok()?;
        let end = rest.len().min(colon + 3);
        minute = rest.get(colon + 1..end)?.parse().ok()?;
        rest = rest.get(end..)?;
        if let Some(after) = rest.strip_prefix("am") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("pm") {
            hour = afternoon(hour)?;
            rest = after;
        }
    }
    if let Some(at) = rest.find("am").filter(|at| (1..3).contains(at)) {
        hour = rest.get(..at)?.parse().ok()?;
        rest = rest.get(at + 2..)?;
    }
    if let Some(at) = rest.find("pm").filter(|at| (1..3).contains(at)) {
        hour = afternoon(rest.get(..at)?.parse().ok()?)?;
        rest = rest.get(at + 2..)?;
    }
    for (name, named_hour) in [("noon", 12), ("midnight", 0), ("teatime", 16)] {
        if let Some(after) = rest.strip_prefix(name) {
            return Some((named_hour, 0, after));
        }
    }
    Some((hour, minute, rest))
}

fn afternoon(hour: i8) -> Option<i8> {
    hour.checked_add(12).map(|hour| hour.rem_euclid(24))
}

fn parse_day(day: &str, today: Date) -> Option<Date> {
    let prefix = day.get(..3).unwrap_or(day);
    match day {
        "" | "today" => return Some(today),
        "yesterday" => return today.checked_sub(1.day()).ok(),
        "tomorrow" => return today.checked_add(1.day()).ok(),
        _ => {}
    }
    if day.matches('/').count() == 2 {
        return slashed_date(day);
    }
    if day.len() == 8 && day.bytes().all(|b| b.is_ascii_digit()) {
        return Date::new(
            day.get(..4)?.parse().ok()?,
            day.get(4..6)?.parse().ok()?,
            day.get(6..)?.parse().ok()?,
        )
        .ok();
    }
    if let Some(month) = MONTHS.iter().position(|name| *name == prefix) {
        let digits = day.bytes().rev().take(2).take_while(u8::is_ascii_digit).count();
        let day_of_month = day.get(day.len() - digits..)?.parse().ok()?;
        return Date::new(today.year(), i8::try_from(month + 1).ok()?, day_of_month).ok();
    }
    let weekday = i64::try_from(WEEKDAYS.iter().position(|name| *name == prefix)?).ok()?;
    let back = (i64::from(today.weekday().to_sunday_zero_offset()) - weekday).rem_euclid(7);
    today.checked_sub(back.days()).ok()
}

/// `MM/DD/YY` or `MM/DD/YYYY`; two digits below 70 are of this century.
fn slashed_date(day: &str) -> Option<Date> {
    let mut parts = day.split('/').map(|part| part.parse::<i16>());
    let month = parts.next()?.ok()?;
    let day = parts.next()?.ok()?;
    let mut year = parts.next()?.ok()?;
    if year < 1900 {
        year = year.checked_add(1900)?;
    }
    if year < 1970 {
        year = year.checked_add(100)?;
    }
    Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}
