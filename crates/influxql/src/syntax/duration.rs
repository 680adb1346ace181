//! Durations: `1h30m`, `500ms`.

use super::error::ParseError;

const NS_PER_SECOND: i64 = 1_000_000_000;

/// Nanoseconds of a unit and the bytes of the unit, at the start of `text`.
fn unit(text: &str) -> Option<(i64, usize)> {
    let units = [
        ("ns", 1),
        ("ms", 1_000_000),
        ("u", 1_000),
        ("µ", 1_000),
        ("s", NS_PER_SECOND),
        ("m", 60 * NS_PER_SECOND),
        ("h", 3_600 * NS_PER_SECOND),
        ("d", 86_400 * NS_PER_SECOND),
        ("w", 7 * 86_400 * NS_PER_SECOND),
    ];
    units.into_iter().find(|(unit, _)| text.starts_with(unit)).map(|(unit, ns)| (ns, unit.len()))
}

/// Returns the nanoseconds of a duration: numbers with units, the sum of which fits 64 bits.
///
/// # Errors
/// `invalid duration`, or `overflowed duration ..`.
pub fn parse_duration(text: &str) -> Result<i64, ParseError> {
    let invalid = || ParseError::plain("invalid duration");
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total_ns: i64 = 0;
    while !rest.is_empty() {
        let digits_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after_digits) = rest.split_at(digits_len);
        let count: i64 = digits.parse().map_err(|_| invalid())?;
        let (unit_ns, unit_len) = unit(after_digits).ok_or_else(invalid)?;
        let (_, after_unit) = after_digits.split_at(unit_len);
        let part = || rest.strip_suffix(after_unit).unwrap_or(rest);
        let sum = count.checked_mul(unit_ns).and_then(|ns| total_ns.checked_add(ns));
        total_ns = sum.ok_or_else(|| overflowed(part()))?;
        rest = after_unit;
    }
    Ok(sign * total_ns)
}

fn overflowed(part: &str) -> ParseError {
    ParseError::plain(format!("overflowed duration {part}: choose a smaller duration or INF"))
}
