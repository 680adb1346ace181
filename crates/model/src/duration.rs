//! Durations as people write them: `15d`, `1h30m`, `100ms`.
//! Invariant: what does not fit an `i64` of milliseconds is no duration, never rounded away.

/// Units from the longest to the shortest, in milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The longest duration of Prometheus, 2^63 ns, in milliseconds.
const PROMETHEUS_MS_MAX: i64 = i64::MAX / 1_000_000;

/// Reason that a text is no duration, with Prometheus's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text is empty.
    #[error("empty duration string")]
    Empty,
    /// Units are missing, out of order or repeated, or a number is.
    #[error("not a valid duration string: {0:?}")]
    Invalid(String),
    /// A unit that does not exist.
    #[error("unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit as written.
        unit: String,
        /// The whole text.
        text: String,
    },
    /// Longer than the longest duration.
    #[error("duration out of range")]
    OutOfRange,
}

/// Milliseconds of a duration in Prometheus's form: units from large to small, each at most once.
/// `None` for anything else, also for what overflows.
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    parse(text, i64::MAX).ok()
}

/// Milliseconds of a duration in a file of Prometheus: as [`parse_duration_ms`], up to 292 years.
///
/// # Errors
/// [`DurationError`].
pub fn parse_prometheus_duration_ms(text: &str) -> Result<i64, DurationError> {
    parse(text, PROMETHEUS_MS_MAX)
}

fn parse(text: &str, max_ms: i64) -> Result<i64, DurationError> {
    match text {
        "0" => return Ok(0),
        "" => return Err(DurationError::Empty),
        _ => {}
    }
    let invalid = || DurationError::Invalid(text.to_owned());
    let mut rest = text;
    let mut sum_ms = 0i64;
    let mut unit_idx_min = 0;
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (digits, after) = rest.split_at_checked(digits_end).ok_or_else(invalid)?;
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end).ok_or_else(invalid)?;
        let count: u64 = digits.parse().map_err(|_| invalid())?;
        let found = UNITS.iter().enumerate().find(|(_, (name, _))| *name == unit);
        let unknown = || DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() };
        let (unit_idx, (_, unit_ms)) = found.ok_or_else(unknown)?;
        if unit_idx < unit_idx_min {
            return Err(invalid());
        }
        unit_idx_min = unit_idx + 1;
        let part_ms = i64::try_from(count).ok().and_then(|count| count.checked_mul(*unit_ms));
        let total_ms = part_ms.and_then(|ms| sum_ms.checked_add(ms)).filter(|ms| *ms <= max_ms);
        sum_ms = total_ms.ok_or(DurationError::OutOfRange)?;
        rest = after;
    }
    Ok(sum_ms)
}

/// A duration in the shortest form that [`parse_duration_ms`] reads back.
#[must_use]
pub fn show_duration_ms(ms: i64) -> String {
    if ms <= 0 {
        return "0s".to_owned();
    }
    let mut rest = ms;
    let mut out = String::new();
    for (name, unit_ms) in UNITS {
        // Years and weeks only where nothing is left over: `30d` reads better than `4w2d`.
        if matches!(name, "y" | "w") && rest % unit_ms != 0 {
            continue;
        }
        if rest >= unit_ms {
            out.push_str(&format!("{}{name}", rest / unit_ms));
            rest %= unit_ms;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_follow_prometheus() {
        let cases = [("5m", 300_000), ("1h30m", 5_400_000), ("100ms", 100), ("1y", 31_536_000_000), ("0", 0)];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Some(ms), "{text}");
        }
        for bad in
            ["", "5", "m", "5m5m", "1s1h", "-5m", "1.5h", "5 m", "99999999999999999999s", "9999999999999y"]
        {
            assert_eq!(parse_duration_ms(bad), None, "{bad}");
        }
        for ms in [1, 999, 60_000, 300_000, 86_400_000 * 30, 31_536_000_000, 90_061_001] {
            assert_eq!(parse_duration_ms(&show_duration_ms(ms)), Some(ms), "{ms}");
        }
    }

    #[test]
    fn units_go_from_long_to_short_once_each() {
        for (text, want) in [
            ("0", Ok(0)),
            ("0s", Ok(0)),
            ("5m", Ok(300_000)),
            ("1h30m", Ok(5_400_000)),
            ("1y2w3d4h5m6s7ms", Ok(31_536_000_000 + 1_209_600_000 + 259_200_000 + 14_706_007)),
            ("292y", Ok(292 * 31_536_000_000)),
            ("", Err("empty duration string")),
            ("5", Err("not a valid duration string: \"5\"")),
            ("m", Err("not a valid duration string: \"m\"")),
            ("-5m", Err("not a valid duration string: \"-5m\"")),
            ("1m1h", Err("not a valid duration string: \"1m1h\"")),
            ("1m1m", Err("not a valid duration string: \"1m1m\"")),
            ("1.5h", Err("unknown unit \".\" in duration \"1.5h\"")),
            ("5 m", Err("unknown unit \" m\" in duration \"5 m\"")),
            ("5min", Err("unknown unit \"min\" in duration \"5min\"")),
            ("300y", Err("duration out of range")),
            ("99999999999y", Err("duration out of range")),
            ("99999999999999999999s", Err("not a valid duration string: \"99999999999999999999s\"")),
        ] {
            let found = parse_prometheus_duration_ms(text).map_err(|error| error.to_string());
            assert_eq!(found, want.map_err(str::to_owned), "{text}");
        }
    }
}
