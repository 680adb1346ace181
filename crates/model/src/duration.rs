//! Durations as people write them: `15d`, `1h30m`, `100ms`.
//! Invariant: what does not fit an `i64` of milliseconds is no duration, never rounded away.

const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Milliseconds of a duration in Prometheus's form: units from large to small, each at most once.
/// `None` for anything else, also for what overflows.
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text;
    let mut unit_from = 0;
    let mut total = 0i64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at_checked(letters)?;
        let at = UNITS.iter().position(|(name, _)| *name == unit).filter(|&at| at >= unit_from)?;
        let (_, unit_ms) = UNITS.get(at)?;
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(*unit_ms)?)?;
        unit_from = at + 1;
        rest = tail;
    }
    Some(total)
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
}
