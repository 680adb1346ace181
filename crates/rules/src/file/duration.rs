//! Durations of rule files: Prometheus's, from years to milliseconds.

use super::faults::quoted;

/// Units from the longest to the shortest, in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// The longest duration of Go, 2^63 ns, in milliseconds.
const DURATION_MS_MAX: u64 = (1 << 63) / 1_000_000;

/// Reads a duration in milliseconds.
///
/// # Errors
/// Prometheus's text.
pub(super) fn parse_ms(text: &str) -> Result<i64, String> {
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let invalid = || format!("not a valid duration string: {}", quoted(text));
    let out_of_range = || "duration out of range".to_owned();
    let mut rest = text;
    let mut sum_ms = 0u64;
    let mut unit_idx_min = 0;
    while !rest.is_empty() {
        let digits_end = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (digits, after) = rest.split_at_checked(digits_end).ok_or_else(invalid)?;
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end).ok_or_else(invalid)?;
        let count: u64 = digits.parse().map_err(|_| invalid())?;
        let unit_idx = UNITS.iter().position(|(name, _)| *name == unit);
        let unit_idx =
            unit_idx.ok_or_else(|| format!("unknown unit {} in duration {}", quoted(unit), quoted(text)))?;
        if unit_idx < unit_idx_min {
            return Err(invalid());
        }
        unit_idx_min = unit_idx + 1;
        let unit_ms = UNITS.get(unit_idx).map_or(1, |(_, ms)| *ms);
        sum_ms = count.checked_mul(unit_ms).and_then(|ms| sum_ms.checked_add(ms)).ok_or_else(out_of_range)?;
        if sum_ms > DURATION_MS_MAX {
            return Err(out_of_range());
        }
        rest = after;
    }
    i64::try_from(sum_ms).map_err(|_| out_of_range())
}

#[cfg(test)]
mod tests {
    use super::parse_ms;

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
            assert_eq!(parse_ms(text), want.map_err(str::to_owned), "{text}");
        }
    }
}
