//! Texts of numbers as Python 3 writes them.

use super::{general, percent_format, repr, round_to, truncated};

#[test]
fn shortest_texts() {
    let cases = [
        (1.0, "1.0"),
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1.5e-5, "1.5e-05"),
        (0.0001, "0.0001"),
        (9.999_999_999_999_999e-5, "9.999999999999999e-05"),
        (9_999_999_999_999_998.0, "9999999999999998.0"),
        (0.0, "0.0"),
        (-1.0, "-1.0"),
        (-1e16, "-1e+16"),
        (1e300, "1e+300"),
        (123_456_789.125, "123456789.125"),
        (f64::INFINITY, "inf"),
        (f64::NAN, "nan"),
    ];
    for (value, want) in cases {
        assert_eq!(repr(value), want);
    }
}

#[test]
fn six_digits() {
    let cases = [
        (2.0, "2"),
        (0.5, "0.5"),
        (1e6, "1e+06"),
        (999_999.5, "1e+06"),
        (123_456.0, "123456"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (0.0, "0"),
        (-2.5, "-2.5"),
    ];
    for (value, want) in cases {
        assert_eq!(general(value), want);
    }
    assert_eq!(
        (truncated(-0.5), truncated(2.9), truncated(f64::INFINITY)),
        (Some("0".to_owned()), Some("2".to_owned()), None)
    );
}

#[test]
fn rounding_is_exact() {
    let cases = [
        (2.5, 0, 2.0),
        (3.5, 0, 4.0),
        (2.675, 2, 2.67),
        (1.005, 2, 1.0),
        (0.125, 2, 0.12),
        (1234.5, -2, 1200.0),
        (1e300, 6, 1e300),
        (0.1 + 0.2, 6, 0.3),
    ];
    for (value, places, want) in cases {
        assert_eq!(round_to(value, places), want, "{value} {places}");
    }
    // The fast path equals formatting and parsing again.
    for idx in 0..10_000 {
        let value = f64::from(idx) * 0.001_234_567 - 3.0;
        assert_eq!(round_to(value, 6), format!("{value:.6}").parse::<f64>().unwrap(), "{value}");
    }
}

#[test]
fn percent_verbs() {
    let cases = [
        ("Channel %d MHz", Some("Channel 42 MHz")),
        ("%.1f%%", Some("42.9%")),
        ("%s", Some("42.875")),
        ("%05d|", Some("00042|")),
        ("%-6d|", Some("42    |")),
        ("none", None),
        ("%d %d", None),
        ("%q", None),
        ("%", None),
    ];
    for (pattern, want) in cases {
        assert_eq!(percent_format(pattern, 42.875).as_deref(), want, "{pattern}");
    }
}

/// Texts are as short as the standard library's, and read back as the same number; between two shortest texts
/// Python's is taken.
#[test]
fn numbers_have_the_shortest_digits() {
    assert_eq!(repr(4_461_422_000_000_000.5 / 2.0), "2230711000000000.2");
    assert_eq!(repr(4_461_422_000_000_001.5 / 2.0), "2230711000000000.8");
    let rng = chronolith_base::Rng::from_seed(9);
    let check = |value: f64| {
        let text = repr(value);
        let other = format!("{value}");
        let other_len = if other.contains('.') { other.len() } else { other.len() + 2 };
        assert_eq!(text.len(), other_len, "{text} for {value}");
        assert_eq!(text.parse::<f64>().map(f64::to_bits), Ok(value.to_bits()), "{text} for {value}");
        assert!(!text.contains('e'), "{text}");
    };
    for value in [0.0, -0.0, 1.0, 0.1, -0.0001, 9_007_199_254_740_993.0, 9_999_999_999_999_998.0, 1e15] {
        check(value);
    }
    for _ in 0..20_000 {
        let magnitude = 10f64.powi(rng.below(20) as i32 - 4) * (1.0 + rng.below(9_000_000) as f64 / 1e6);
        let value = if rng.below(2) == 0 { magnitude } else { -magnitude.round() };
        if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
            check(value);
        }
    }
}
