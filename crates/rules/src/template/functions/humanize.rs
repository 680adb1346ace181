//! Numbers, durations and times for people, and the conversions between them.

use super::super::format;
use super::super::text::{parse_float, quote, to_text};
use super::super::value::{IntType, SECOND_NANOS, Time, Value, go_int};
use super::environment::Failure;

const LARGE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const LARGE_BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

/// Returns a number, or the number that a text is.
pub(super) fn to_float(value: &Value) -> Result<f64, Failure> {
    match value {
        Value::Float(value) => Ok(*value),
        Value::Int(IntType::Int | IntType::Int64, value) => Ok(*value as f64),
        Value::Int(IntType::Duration, nanos) => {
            Ok((nanos / SECOND_NANOS) as f64 + (nanos % SECOND_NANOS) as f64 / SECOND_NANOS as f64)
        }
        Value::Text(text) => parse_float(&to_text(text)).map_err(|fault| {
            Failure::Message(format!("strconv.ParseFloat: parsing {}: {}", quote(text), fault.text()))
        }),
        Value::Nil => Err("can't convert <nil> to float".into()),
        value => Err(format!("can't convert {} to float", value.type_name()).into()),
    }
}

/// Returns four significant digits.
fn four_digits(value: f64) -> String {
    /// Bytes that are always enough.
    const BYTES_MAX: usize = 64;
    format::printf(b"%.4g", &[Value::Float(value)], BYTES_MAX).map(|text| to_text(&text)).unwrap_or_default()
}

/// Divides `value` while it is too large for its prefix.
fn with_prefix(mut value: f64, divisor: f64, prefixes: [&str; 8]) -> String {
    let mut prefix = "";
    for larger in prefixes {
        if value.abs() < divisor {
            break;
        }
        prefix = larger;
        value /= divisor;
    }
    format!("{}{prefix}", four_digits(value))
}

/// Multiplies a value below one.
fn with_small_prefix(mut value: f64) -> String {
    let mut prefix = "";
    for smaller in SMALL {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = smaller;
        value *= 1000.0;
    }
    format!("{}{prefix}", four_digits(value))
}

pub(super) fn decimal(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        four_digits(value)
    } else if value.abs() >= 1.0 {
        with_prefix(value, 1000.0, LARGE)
    } else {
        with_small_prefix(value)
    }
}

pub(super) fn binary(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return four_digits(value);
    }
    with_prefix(value, 1024.0, LARGE_BINARY)
}

pub(super) fn duration(value: f64) -> String {
    if !value.is_finite() {
        return four_digits(value);
    }
    if value == 0.0 {
        return format!("{}s", four_digits(value));
    }
    if value.abs() < 1.0 {
        return format!("{}s", with_small_prefix(value));
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let total = go_int(value.abs());
    let seconds = total % 60;
    let minutes = total / 60 % 60;
    let hours = total / 3600 % 24;
    let days = total / 86_400;
    if days != 0 {
        format!("{sign}{days}d {hours}h {minutes}m {seconds}s")
    } else if hours != 0 {
        format!("{sign}{hours}h {minutes}m {seconds}s")
    } else if minutes != 0 {
        format!("{sign}{minutes}m {seconds}s")
    } else {
        format!("{sign}{}s", four_digits(value.abs()))
    }
}

pub(super) fn percentage(value: f64) -> String {
    format!("{}%", four_digits(value * 100.0))
}

pub(super) fn timestamp(value: f64) -> Result<String, Failure> {
    if value.is_finite() { Ok(time(value)?.text()) } else { Ok(four_digits(value)) }
}

/// Returns the time at `value` seconds after 1970, cut to milliseconds.
pub(super) fn time(value: f64) -> Result<Time, Failure> {
    if !value.is_finite() {
        return Err("value is NaN or Inf".into());
    }
    let nanos = value * SECOND_NANOS as f64;
    if nanos.abs() > 2f64.powi(63) {
        let shown = chronolith_model::histogram::go_float(value);
        let why = "cannot be represented as a nanoseconds timestamp since it overflows int64";
        return Err(format!("{shown} {why}").into());
    }
    Ok(Time::of_ms(go_int(nanos) / 1_000_000))
}

/// Returns a pointer to the duration of `value` seconds.
pub(super) fn to_duration(value: f64) -> Value {
    Value::Int(IntType::Duration, go_int(value * SECOND_NANOS as f64)).pointer()
}

/// Returns the seconds of a duration with units, which may have a sign.
pub(super) fn parse_duration(text: &[u8]) -> Result<f64, Failure> {
    let nanos = match text.strip_prefix(b"-") {
        Some(magnitude) => -parse_nanos(magnitude)?,
        None => parse_nanos(text)?,
    };
    Ok(nanos as f64 / SECOND_NANOS as f64)
}

/// Units in the order that they have in a duration, in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 24 * 3_600_000),
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

fn parse_nanos(text: &[u8]) -> Result<i64, Failure> {
    const OUT_OF_RANGE: &str = "duration out of range";
    match text {
        b"0" => return Ok(0),
        b"" => return Err("empty duration string".into()),
        _ => {}
    }
    let quoted = quote(text);
    let invalid = || Failure::Message(format!("not a valid duration string: {quoted}"));
    let mut rest = text;
    let mut nanos: u64 = 0;
    let mut units: &[(&str, u64)] = &UNITS;
    while !rest.is_empty() {
        let digits_len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (count, after) = rest.split_at_checked(digits_len).ok_or_else(invalid)?;
        let count: u64 = to_text(count).parse().map_err(|_| invalid())?;
        let unit_len = after.iter().take_while(|byte| !byte.is_ascii_digit()).count();
        let (unit, after) = after.split_at_checked(unit_len).ok_or_else(invalid)?;
        if unit.is_empty() {
            return Err(invalid());
        }
        let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| name.as_bytes() == unit) else {
            return Err(format!("unknown unit {} in duration {quoted}", quote(unit)).into());
        };
        let at = units.iter().position(|(name, _)| name.as_bytes() == unit).ok_or_else(invalid)?;
        units = units.get(at + 1..).unwrap_or_default();
        let part = count.checked_mul(unit_ms * 1_000_000).filter(|part| i64::try_from(*part).is_ok());
        nanos = part.and_then(|part| nanos.checked_add(part)).ok_or(OUT_OF_RANGE)?;
        if i64::try_from(nanos).is_err() {
            return Err(OUT_OF_RANGE.into());
        }
        rest = after;
    }
    i64::try_from(nanos).map_err(|_| OUT_OF_RANGE.into())
}
