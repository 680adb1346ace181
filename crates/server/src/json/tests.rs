//! Numbers, times and strings as Prometheus's API prints them.

use chronolith_model::decimal::decimal;

use super::*;

fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    put(&mut out);
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn check_float(value: f64, want: &str) {
    assert_eq!(text(|out| put_float(out, value)), want);
}

#[test]
fn values_print_as_go_prints_them() {
    check_float(0.0, "0");
    check_float(-0.0, "-0");
    check_float(1.0, "1");
    check_float(1e6, "1000000");
    check_float(1.5, "1.5");
    check_float(0.1 + 0.2, "0.30000000000000004");
    check_float(123_456_789_012_345_680.0, "123456789012345680");
    check_float(1e20, "100000000000000000000");
    check_float(1e21, "1e+21");
    check_float(-2.5e300, "-2.5e+300");
    check_float(1e-6, "0.000001");
    check_float(1e-7, "1e-07");
    check_float(5e-324, "5e-324");
    check_float(f64::NAN, "NaN");
    check_float(f64::INFINITY, "+Inf");
    check_float(f64::NEG_INFINITY, "-Inf");
}

#[test]
fn exposition_uses_exponents_earlier() {
    assert_eq!(text(|out| put_float_general(out, 0.00001)), "1e-05");
    assert_eq!(text(|out| put_float_general(out, 0.0001)), "0.0001");
    assert_eq!(text(|out| put_float_general(out, 999_999.5)), "999999.5");
    assert_eq!(text(|out| put_float_general(out, 123_456_789.125)), "1.23456789125e+08");
    assert_eq!(text(|out| put_float_general(out, 0.0)), "0");
    assert_eq!(text(|out| put_float_general(out, f64::INFINITY)), "+Inf");
}

#[test]
fn values_of_alerts_have_an_exponent() {
    let show = |value| text(|out| put_float_exponent(out, value));
    let shown = [0.0, 1.0, 1.5, 100.0, -2.5e-10, 1e300, f64::NAN, f64::INFINITY].map(show);
    assert_eq!(shown, ["0e+00", "1e+00", "1.5e+00", "1e+02", "-2.5e-10", "1e+300", "NaN", "+Inf"]);
}

#[test]
fn numbers_of_json_have_short_exponents() {
    let show = |value| text(|out| put_json_float(out, value));
    let shown = [0.0, 60.0, 0.000_123, 1.5e-7, 2e-10, 1e21].map(show);
    assert_eq!(shown, ["0", "60", "0.000123", "1.5e-7", "2e-10", "1e+21"]);
}

#[test]
fn html_is_escaped_as_by_go() {
    let show = |what: &str| text(|out| put_html_string(out, what));
    assert_eq!(show("a\"\u{1}b"), r#""a\"\u0001b""#);
    assert_eq!(show("a < b && c > \"d\"\u{2028}ä"), r#""a \u003c b \u0026\u0026 c \u003e \"d\"\u2028ä""#);
}

#[test]
fn times_are_seconds_with_milliseconds() {
    let show = |ms| text(|out| put_time(out, ms));
    assert_eq!(show(1_435_781_451_781), "1435781451.781");
    assert_eq!(show(1500), "1.500");
    assert_eq!(show(1000), "1");
    assert_eq!(show(0), "0");
    assert_eq!(show(7), "0.007");
    assert_eq!(show(-1), "-0.001");
    assert_eq!(show(-2500), "-2.500");
}

#[test]
fn strings_survive_a_round_trip() {
    for original in
        ["", "plain", "q\"b\\s", "line\nfeed\r\ttab", "nul\0bell\x07", "ünïcödé 漢 🦀", "\u{7f}\u{2028}"]
    {
        let json = text(|out| put_string(out, original));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), original);
    }
}

#[test]
fn labels_and_envelope_are_valid_json() {
    let labels = Labels::from_pairs([("__name__", "up"), ("job", "a\"b")]);
    let json = text(|out| {
        open_success(out);
        put_labels(out, &labels);
        close_success(out, &["careful".to_owned()], &[]);
    });
    assert_eq!(json, r#"{"status":"success","data":{"__name__":"up","job":"a\"b"},"warnings":["careful"]}"#);
}

#[test]
fn scalars_have_no_exponents_and_short_times() {
    assert_eq!(text(|out| put_scalar(out, 1500, 1e-7)), r#"[1.5,"0.0000001"]"#);
    assert_eq!(text(|out| put_scalar(out, -500, 1e21)), r#"[-0.5,"1000000000000000000000"]"#);
    assert_eq!(text(|out| put_scalar(out, 10_000, f64::NAN)), r#"[10,"NaN"]"#);
    assert_eq!(text(|out| put_time_short(out, 1_000_010)), "1000.01");
}

/// Text is copied at once if nothing in it needs an escape: one byte that does is found wherever it stands.
#[test]
fn bytes_to_escape_are_found_at_every_place() {
    for len in 1..70 {
        for at in 0..len {
            for odd in ['"', '\\', '\n', '\u{1}', '\u{1f}', '\u{7f}', 'é'] {
                let text: String = (0..len).map(|idx| if idx == at { odd } else { 'x' }).collect();
                let mut out = Vec::new();
                put_string(&mut out, &text);
                let parsed: String = serde_json::from_slice(&out).expect("valid JSON");
                assert_eq!(parsed, text);
            }
        }
    }
}

/// Numbers were printed by `Display`, which is slow; each class has a faster way. All of them give the
/// shortest digits, without an exponent between 1e-6 and 1e21.
#[test]
fn fast_digits_equal_those_of_display() {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    let check_both = |value: f64| {
        for value in [value, -value] {
            let magnitude = value.abs();
            if value.is_finite() && (magnitude == 0.0 || (1e-6..1e21).contains(&magnitude)) {
                check_float(value, &decimal(value));
            }
        }
    };
    // Ties: the value lies in the middle of its two shortest candidates, so it has 17 or 18 digits, of which
    // the last one is a 5.
    for exponent in 1..26 {
        let digits = 5_u64.pow(exponent);
        for start in [10_u64.pow(16) / digits, 10_u64.pow(17) / digits, 3 * 10_u64.pow(16) / digits] {
            for numerator in (0..200).map(|idx| (start + idx * idx) | 1).filter(|n| *n < 1 << 53) {
                check_both(numerator as f64 * 2_f64.powi(-(exponent as i32)));
            }
        }
    }
    for exponent in 1..70 {
        for numerator in (1..400).step_by(2).map(f64::from) {
            check_both(numerator * 2_f64.powi(-exponent));
            check_both(2_f64.powi(exponent) + numerator * 2_f64.powi(exponent - 52));
        }
    }
    for bound in [1e-6, 1e-5, 1e-4, 1.0, 1e15, 1e16, 2_f64.powi(53), 2_f64.powi(63), 1e20, 1e21] {
        check_both(bound);
        check_both(bound.next_down());
        check_both(bound.next_up());
        check_both(bound + 0.5);
    }
    check_both(0.0);
    for _ in 0..20_000 {
        check_both(f64::from_bits(next() << 11 ^ next()));
        check_both((next() % 1_000_000) as f64 / 285.0);
        check_both(next() as f64 / 1000.0);
        check_both((next() >> (next() % 53)) as f64);
        check_both(10_f64.powi((next() % 30) as i32 - 8) * (next() % 1000) as f64);
    }
}
