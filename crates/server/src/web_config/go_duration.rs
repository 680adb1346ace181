//! Durations as Go writes them: `1.5h`, `100ms`, `1m30s`.

/// Units of Go with their nanoseconds. Both code points for micro count.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Parses a duration to nanoseconds; a whole number without unit is nanoseconds, as YAML gives it to Go.
pub(super) fn parse(text: &str) -> Option<i64> {
    if let Ok(ns) = text.parse::<i64>() {
        return Some(ns);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let mut rest = unsigned;
    let mut total_ns = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let number: f64 = rest.get(..number_end)?.parse().ok()?;
        rest = rest.get(number_end..)?;
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = rest.get(..unit_end)?;
        let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total_ns += number * unit_ns;
        rest = rest.get(unit_end..)?;
    }
    // Go has 64 bits of nanoseconds, 292 years.
    (total_ns < i64::MAX as f64).then_some((sign * total_ns) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, want) in [
            ("1s", Some(1_000_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5ms", Some(500_000)),
            ("-1s", Some(-1_000_000_000)),
            ("1\u{b5}s", Some(1000)),
            ("10", Some(10)),
            ("0", Some(0)),
            ("1d", None),
            ("", None),
            ("s", None),
            ("1", Some(1)),
            ("1.5", None),
            ("1 s", None),
            ("9999999h", None),
        ] {
            assert_eq!(parse(text), want, "{text:?}");
        }
    }
}
