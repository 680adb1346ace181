//! Values and timestamps of the text formats, as Go's `strconv` reads them.
//!
//! Invariants: a value has the bits of Go's result; a NaN is always the usual one, so that no sender can
//! write a staleness marker; seconds become milliseconds without passing through a float where they are
//! decimals.

use chronolith_model::sample::NORMAL_NAN_BITS;

use crate::number;

use super::fault::What;

/// Digits of seconds that fit i64 as milliseconds.
const SECOND_DIGITS_MAX: usize = 15;
/// Milliseconds within which a float has an integer of i64.
const TIME_MAX_MS: f64 = 9.2e18;

/// Returns the value of a float.
// PERF: inlined with the usual form of a number, which most values have.
#[inline]
pub(super) fn float(text: &[u8]) -> Result<f64, What> {
    match number::float(text) {
        Some(value) => Ok(value),
        None => any_float(text),
    }
}

#[cold]
fn any_float(text: &[u8]) -> Result<f64, What> {
    let (is_signed, magnitude) = match text.split_first() {
        Some((b'-' | b'+', magnitude)) => (true, magnitude),
        _ => (false, text),
    };
    if magnitude.eq_ignore_ascii_case(b"nan") && !is_signed {
        return Ok(f64::from_bits(NORMAL_NAN_BITS));
    }
    let is_infinite = magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"infinity");
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    if !is_infinite && !text.iter().all(is_number) {
        return Err(What::ValueSyntax);
    }
    let text = std::str::from_utf8(text).map_err(|_| What::ValueSyntax)?;
    let value: f64 = text.parse().map_err(|_| What::ValueSyntax)?;
    if value.is_infinite() && !is_infinite { Err(What::ValueRange) } else { Ok(value) }
}

/// Returns a value with the usual bits if it is NaN.
pub(super) fn without_marker(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(NORMAL_NAN_BITS) } else { value }
}

/// Returns the milliseconds of digits of text format 0.0.4.
pub(super) fn milliseconds(digits: &[u8]) -> Result<i64, What> {
    let value = number::unsigned(digits).ok_or(What::TimestampRange)?;
    i64::try_from(value).map_err(|_| What::TimestampRange)
}

/// Returns the milliseconds of seconds of OpenMetrics; digits below a millisecond are cut off.
pub(super) fn seconds(text: &[u8]) -> Result<i64, What> {
    match decimal_seconds(text) {
        Some(time_ms) => Ok(time_ms),
        None => float_seconds(float(text).map_err(|_| What::TimestampSyntax)?),
    }
}

/// Returns the milliseconds of seconds as a float, cut off below a millisecond.
pub(super) fn float_seconds(seconds: f64) -> Result<i64, What> {
    let time_ms = seconds * 1000.0;
    // NaN fails the comparison as well.
    if time_ms.abs() < TIME_MAX_MS { Ok(time_ms as i64) } else { Err(What::TimestampRange) }
}

/// Returns the milliseconds of `-?digits[.digits]`.
fn decimal_seconds(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
    let (whole, fraction) = digits.split_at(point);
    if whole.len() > SECOND_DIGITS_MAX {
        return None;
    }
    let mut time_ms = i64::try_from(number::unsigned(whole)?).ok()?;
    let fraction = fraction.get(1..).unwrap_or(&[]);
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    for idx in 0..3 {
        time_ms = time_ms * 10 + i64::from(fraction.get(idx).map_or(0, |digit| digit - b'0'));
    }
    Some(if is_negative { -time_ms } else { time_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_those_of_go() {
        for (text, want) in [
            ("1", Ok(1.0)),
            ("+1.5e3", Ok(1500.0)),
            ("-.5", Ok(-0.5)),
            ("5.", Ok(5.0)),
            ("+Inf", Ok(f64::INFINITY)),
            ("-inf", Ok(f64::NEG_INFINITY)),
            ("iNfInItY", Ok(f64::INFINITY)),
            ("1e400", Err(What::ValueRange)),
            ("-1e400", Err(What::ValueRange)),
            ("1e-400", Ok(0.0)),
            ("0x1p4", Err(What::ValueSyntax)),
            ("1_000", Err(What::ValueSyntax)),
            ("+nan", Err(What::ValueSyntax)),
            ("infinit", Err(What::ValueSyntax)),
            ("1\r", Err(What::ValueSyntax)),
            ("", Err(What::ValueSyntax)),
            ("--1", Err(What::ValueSyntax)),
        ] {
            assert_eq!(float(text.as_bytes()).map(f64::to_bits), want.map(f64::to_bits), "{text}");
        }
        assert_eq!(float(b"nAn").map(f64::to_bits), Ok(NORMAL_NAN_BITS));
    }

    #[test]
    fn seconds_are_exact_to_the_millisecond() {
        for (text, want) in [
            ("1520879607.789", Ok(1_520_879_607_789)),
            // As a float, these seconds times 1000 are below the millisecond.
            ("1520879607.001", Ok(1_520_879_607_001)),
            ("-1520879607.7899", Ok(-1_520_879_607_789)),
            ("0", Ok(0)),
            ("1.5e9", Ok(1_500_000_000_000)),
            ("+5", Ok(5_000)),
            ("5.", Ok(5_000)),
            (".5", Ok(500)),
            ("999999999999999.9999", Ok(999_999_999_999_999_999)),
            ("1e300", Err(What::TimestampRange)),
            ("NaN", Err(What::TimestampRange)),
            ("-Inf", Err(What::TimestampRange)),
            ("1.2.3", Err(What::TimestampSyntax)),
            ("", Err(What::TimestampSyntax)),
        ] {
            assert_eq!(seconds(text.as_bytes()), want, "{text}");
        }
        assert_eq!(milliseconds(b"9223372036854775807"), Ok(i64::MAX));
        assert_eq!(milliseconds(b"9223372036854775808"), Err(What::TimestampRange));
    }
}
