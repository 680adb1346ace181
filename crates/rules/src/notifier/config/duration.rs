//! Durations as Prometheus writes them: `1m30s`, `500ms`.

use super::fields::{Fault, Text};

/// A duration in Prometheus's form, in milliseconds.
pub(super) fn duration_ms(duration: &Text) -> Result<u64, Fault> {
    const UNITS: [(&str, u64); 7] = [
        ("y", 365 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ];
    let fault = || Fault::new(duration.position, format!("not a valid duration string: {:?}", duration.text));
    if duration.text == "0" {
        return Ok(0);
    }
    let mut rest = duration.text.as_str();
    let mut units = UNITS.as_slice();
    let mut total_ms = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let idx = units.iter().position(|(name, _)| *name == unit).ok_or_else(fault)?;
        let (_, unit_ms) = units.get(idx).ok_or_else(fault)?;
        let number: u64 = number.parse().map_err(|_| fault())?;
        total_ms = number.checked_mul(*unit_ms).and_then(|ms| total_ms.checked_add(ms)).ok_or_else(fault)?;
        units = units.get(idx + 1..).unwrap_or_default();
        rest = tail;
    }
    if duration.text.is_empty() {
        return Err(Fault::new(duration.position, "empty duration string"));
    }
    Ok(total_ms)
}
