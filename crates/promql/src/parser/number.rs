//! Numbers and durations as Go and Prometheus read them.
//!
//! Invariants: a duration is counted in nanoseconds that fit 63 bits, as Prometheus counts it, so that
//! rounding and refusals agree.
//! Not here: end of a number in the text (lexer).

use std::fmt;

use chronolith_model::decimal::{decimal, scientific};

/// Nanoseconds of a second.
const NANOS_PER_SECOND: f64 = 1e9;
/// Nanoseconds of a millisecond.
const NANOS_PER_MS: i64 = 1_000_000;
/// First count of seconds that is too long for a duration.
const DURATION_SECONDS_MAX: f64 = (1u64 << 63) as f64 / NANOS_PER_SECOND;

/// Units, longest first: their order in a duration.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads a number literal.
///
/// # Errors
/// Prometheus's text.
pub(super) fn parse_number(text: &str) -> Result<f64, String> {
    if text.eq_ignore_ascii_case("inf") {
        return Ok(f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Ok(f64::NAN);
    }
    let failed = |why: &str| format!("error parsing number: strconv.ParseFloat: parsing \"{text}\": {why}");
    // The lexer refuses all other characters next to an underscore.
    if text.ends_with('_') || text.contains("._") {
        return Err(failed("invalid syntax"));
    }
    let digits = text.replace('_', "");
    if let Some(value) = parse_integer(&digits) {
        return Ok(value as f64);
    }
    match digits.parse::<f64>() {
        Ok(value) if value.is_infinite() => Err(failed("value out of range")),
        Ok(value) => Ok(value),
        Err(_) => Err(failed("invalid syntax")),
    }
}

/// An integer with Go's prefixes: `0x` for 16, a leading 0 for 8.
fn parse_integer(digits: &str) -> Option<i64> {
    let (base, rest) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if rest.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(rest, base).ok()
}

/// Reads a duration with units (`1h30m`) to seconds.
///
/// # Errors
/// Prometheus's text.
pub(super) fn parse_duration(text: &str) -> Result<f64, String> {
    const OUT_OF_RANGE: &str = "duration out of range";
    let invalid = || format!("not a valid duration string: \"{text}\"");
    let mut rest = text;
    let mut nanos: u64 = 0;
    let mut units_left = 0;
    while !rest.is_empty() {
        let (count, after) = split_at_first(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_at_first(after, |c| c.is_ascii_digit());
        let count: u64 = count.parse().map_err(|_| invalid())?;
        if unit.is_empty() {
            return Err(invalid());
        }
        let idx = UNITS.iter().position(|(name, _)| *name == unit);
        let idx = idx.ok_or_else(|| format!("unknown unit \"{unit}\" in duration \"{text}\""))?;
        if idx < units_left {
            return Err(invalid());
        }
        units_left = idx + 1;
        let part = count.checked_mul(UNITS[idx].1).and_then(|ms| ms.checked_mul(NANOS_PER_MS.unsigned_abs()));
        nanos = part.and_then(|part| nanos.checked_add(part)).ok_or(OUT_OF_RANGE)?;
        if i64::try_from(nanos).is_err() {
            return Err(OUT_OF_RANGE.to_owned());
        }
        rest = after;
    }
    let per_second = NANOS_PER_SECOND as u64;
    Ok((nanos / per_second) as f64 + (nanos % per_second) as f64 / NANOS_PER_SECOND)
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

/// Milliseconds of a count of seconds, `None` where it does not fit a duration. Nanoseconds are rounded, then
/// truncated to milliseconds.
pub(super) fn seconds_to_ms(seconds: f64) -> Option<i64> {
    if seconds.abs() >= DURATION_SECONDS_MAX {
        return None;
    }
    // A NaN has no duration: it counts as none.
    Some((seconds * NANOS_PER_SECOND).round() as i64 / NANOS_PER_MS)
}

/// Prints seconds as a duration with units, cut to milliseconds.
pub(super) fn write_seconds(f: &mut impl fmt::Write, seconds: f64) -> fmt::Result {
    let ms = (seconds * NANOS_PER_SECOND) as i64 / NANOS_PER_MS;
    write_duration_ms(f, ms)
}

/// Prints milliseconds as a duration with units. Years and weeks are used only where they fit exactly.
pub(super) fn write_duration_ms(f: &mut impl fmt::Write, ms: i64) -> fmt::Result {
    if ms == 0 {
        return f.write_str("0s");
    }
    if ms < 0 {
        f.write_char('-')?;
    }
    let mut left = ms.unsigned_abs();
    for (idx, (name, unit_ms)) in UNITS.iter().enumerate() {
        let only_exact = idx < 2;
        if left < *unit_ms || (only_exact && !left.is_multiple_of(*unit_ms)) {
            continue;
        }
        write!(f, "{}{name}", left / unit_ms)?;
        left %= unit_ms;
    }
    Ok(())
}

/// Prints a number in the shortest form that reads back, without an exponent.
pub(super) fn write_number(f: &mut impl fmt::Write, value: f64) -> fmt::Result {
    if value.is_nan() {
        f.write_str("NaN")
    } else if value.is_infinite() {
        f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        f.write_str(&decimal(value))
    }
}

/// Decimal exponents of the numbers that [`write_number_general`] prints without an exponent.
const EXPONENTS_PLAIN: std::ops::Range<i32> = -4..6;

/// Prints a number in the shortest form that reads back, with an exponent where it is small or large (`%g` of
/// Go).
pub(super) fn write_number_general(f: &mut impl fmt::Write, value: f64) -> fmt::Result {
    if !value.is_finite() || value == 0.0 {
        return write_number(f, value);
    }
    let scientific = scientific(value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if EXPONENTS_PLAIN.contains(&exponent) {
        return f.write_str(&decimal(value));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(f, "{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests;
