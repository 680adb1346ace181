//! Numbers as Python's `float()` reads them: signs, bare points, exponents, underscores between digits, `inf`
//! and `nan` in any case, values beyond the largest float as infinite.
//!
//! Invariant: the result has the bits that Python gives. Not here: times (`time`).

use crate::number;

/// Returns the value of a number, NaN included; `None` for other text.
// PERF: digits with at most one point take the exact division of `number::float`, all others the cold path.
//   cargo bench -p chronolith-ingest --bench carbon_speed
#[inline]
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    match number::float(text) {
        Some(value) => Some(value),
        None => unusual(text),
    }
}

#[cold]
fn unusual(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii();
    let (is_negative, magnitude) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let value = if magnitude.eq_ignore_ascii_case(b"inf") || magnitude.eq_ignore_ascii_case(b"infinity") {
        f64::INFINITY
    } else if magnitude.eq_ignore_ascii_case(b"nan") {
        f64::NAN
    } else {
        decimal(magnitude)?
    };
    Some(if is_negative { -value } else { value })
}

/// Returns the value of a decimal number without its sign.
fn decimal(text: &[u8]) -> Option<f64> {
    if !matches!(text.first(), Some(b'0'..=b'9' | b'.')) {
        return None;
    }
    let mut plain = String::with_capacity(text.len());
    for (idx, &byte) in text.iter().enumerate() {
        let is_digit = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_digit);
        match byte {
            b'_' if is_digit(idx.checked_sub(1)) && is_digit(Some(idx + 1)) => {}
            b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-' => plain.push(char::from(byte)),
            _ => return None,
        }
    }
    plain.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Option<f64>) {
        assert_eq!(parse(text.as_bytes()).map(f64::to_bits), want.map(f64::to_bits), "{text}");
    }

    /// Each line was compared with `python3.10 -c 'print(float(TEXT))'`.
    #[test]
    fn numbers_are_those_of_python() {
        for (text, want) in [
            ("1", 1.0),
            ("-0", -0.0),
            ("+5", 5.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("+.5e-3", 0.0005),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("1.e2", 100.0),
            ("1_000", 1000.0),
            ("1_0.0_1", 10.01),
            ("1e1_0", 1e10),
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("1e-400", 0.0),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            (" 7 ", 7.0),
            ("123456789012345678901234567890", 123456789012345678901234567890.0),
        ] {
            check(text, Some(want));
        }
        assert!(parse(b"nan").is_some_and(f64::is_nan));
        assert!(parse(b"-NaN").is_some_and(f64::is_nan));
    }

    #[test]
    fn other_texts_are_no_numbers() {
        let texts = [
            "", " ", ".", "+", "-", "--5", "+-5", "1e", "1e+", "e5", "_1", "1_", "1__0", "1_e3", "1._5",
            "1_.5", "1e_5", "0x10", "1,5", "true", "1i", "infinit", "nan0", "1+5", "1.2.3", "1 2", "\u{661}",
        ];
        for text in texts {
            check(text, None);
        }
    }
}
