//! Times from the command line and from this machine, in milliseconds since 1970.

use anyhow::{Context, Result};
use chronolith_base::utc;

/// A time of the command line, in milliseconds.
pub(crate) fn parse_time(text: &str) -> Result<i64> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1000).context("--end: seconds since 1970 are too large");
    }
    utc::parse_rfc3339_ms(text).with_context(|| {
        format!("--end {text:?}: expected RFC 3339, such as 2026-11-20T12:00:00Z, or seconds since 1970")
    })
}

/// The time of this machine.
pub(crate) fn now_ms() -> Result<i64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.context("the clock of this machine is before 1970")?;
    i64::try_from(since.as_millis()).context("the clock of this machine is too far ahead")
}

#[cfg(test)]
mod tests {
    use super::parse_time;

    #[test]
    fn times_are_rfc_3339_or_seconds() {
        assert_eq!(parse_time("2025-11-20T12:00:00Z").expect("a time"), 1_763_640_000_000);
        assert_eq!(parse_time("1763640000").expect("a time"), 1_763_640_000_000);
        for wrong in ["yesterday", "2025-11-20", "99999999999999999"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
