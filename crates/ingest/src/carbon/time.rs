//! Times of points: seconds since 1970 with an ignored fraction, milliseconds of 13 digits, or the clock.
//!
//! Invariant: a time is positive and at most year 5138. Not here: limits of the store.

use super::float;
use super::refused::RefusedReason;

/// Largest number of seconds, of 11 digits.
const SECONDS_MAX: f64 = 99_999_999_999.0;
/// Milliseconds have 13 digits.
const MILLISECONDS: std::ops::Range<f64> = 1e12..1e13;

/// Returns milliseconds of digits of seconds or milliseconds.
#[inline]
pub(super) fn from_digits(digits: u64) -> Option<i64> {
    // Both ranges are exact as floats.
    from_number(digits as f64, 0).ok()
}

/// Returns the milliseconds of a time as sent; `-1` and `N` are the clock.
pub(super) fn parse(text: &[u8], now_ms: i64) -> Result<i64, RefusedReason> {
    if text == b"N" {
        return Ok(now_ms);
    }
    from_number(float::parse(text).ok_or(RefusedReason::BadTime)?, now_ms)
}

/// Returns the milliseconds of a number of seconds or milliseconds; -1 is the clock.
#[inline]
pub(super) fn from_number(sent: f64, now_ms: i64) -> Result<i64, RefusedReason> {
    if !sent.is_finite() {
        return Err(RefusedReason::BadTime);
    }
    let whole = sent.trunc();
    if (1.0..=SECONDS_MAX).contains(&whole) {
        Ok(whole as i64 * 1000)
    } else if MILLISECONDS.contains(&whole) {
        Ok(whole as i64)
    } else if whole == -1.0 {
        Ok(now_ms)
    } else {
        Err(RefusedReason::TimeRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<i64, RefusedReason>) {
        assert_eq!(parse(text.as_bytes(), 42), want, "{text}");
    }

    #[test]
    fn times_are_seconds_milliseconds_or_the_clock() {
        check("1700000000", Ok(1_700_000_000_000));
        check("1700000000.9", Ok(1_700_000_000_000));
        check("1.7e9", Ok(1_700_000_000_000));
        check("+1700000000", Ok(1_700_000_000_000));
        check("1_700_000_000", Ok(1_700_000_000_000));
        check("1700000000123", Ok(1_700_000_000_123));
        check("1", Ok(1000));
        check("99999999999", Ok(99_999_999_999_000));
        check("9999999999999", Ok(9_999_999_999_999));
        for now in ["-1", "N", "-1.5", "-1.0"] {
            check(now, Ok(42));
        }
    }

    #[test]
    fn other_times_are_refused() {
        for text in ["0", "0.5", "-0.5", "-5", "100000000000", "999999999999", "10000000000000", "1e300"] {
            check(text, Err(RefusedReason::TimeRange));
        }
        for text in ["nan", "inf", "-inf", "1e400", "n", "now", "", "12:00"] {
            check(text, Err(RefusedReason::BadTime));
        }
    }
}
