//! Numbers and durations, read and printed.

use super::{
    parse_duration, parse_number, seconds_to_ms, write_duration_ms, write_number, write_number_general,
};

#[track_caller]
fn check_number(text: &str, want: f64) {
    assert_eq!(parse_number(text), Ok(want), "{text}");
}

#[test]
fn numbers_as_go_reads_them() {
    check_number("017", 15.0);
    check_number("08", 8.0);
    check_number("0_1", 1.0);
    check_number("0x_1F", 31.0);
    check_number("0777.5", 777.5);
    check_number("1_000.5", 1000.5);
    check_number("1.", 1.0);
    check_number(".5", 0.5);
    check_number("9223372036854775808", 9_223_372_036_854_775_808.0);
    check_number("iNf", f64::INFINITY);
    assert!(parse_number("NaN").is_ok_and(f64::is_nan));
}

#[test]
fn numbers_refused() {
    for text in ["1_", "0x", "0x.5", "0x8000000000000000", "1e", "1e5.5", "1e400"] {
        assert!(parse_number(text).is_err(), "{text}");
    }
}

#[test]
fn durations() {
    assert_eq!(parse_duration("1h30m"), Ok(5400.0));
    assert_eq!(parse_duration("1y1w1d1h1m1s1ms"), Ok(32_230_861.001));
    assert_eq!(parse_duration("1h1h"), Err("not a valid duration string: \"1h1h\"".to_owned()));
    assert_eq!(parse_duration("1.5h"), Err("unknown unit \".\" in duration \"1.5h\"".to_owned()));
    assert_eq!(parse_duration("300y"), Err("duration out of range".to_owned()));
    assert_eq!(seconds_to_ms(1.0005), Some(1000));
    assert_eq!(seconds_to_ms(1.001), Some(1001));
    assert_eq!(seconds_to_ms(9_223_372_037.0), None);
}

fn printed(write: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut out = String::new();
    assert!(write(&mut out).is_ok());
    out
}

#[test]
fn printing() {
    assert_eq!(printed(|f| write_duration_ms(f, 5_400_000)), "1h30m");
    assert_eq!(printed(|f| write_duration_ms(f, 382 * 86_400_000)), "382d");
    assert_eq!(printed(|f| write_duration_ms(f, 14 * 86_400_000)), "2w");
    assert_eq!(printed(|f| write_duration_ms(f, -1500)), "-1s500ms");
    assert_eq!(printed(|f| write_number(f, 1e21)), "1000000000000000000000");
    assert_eq!(printed(|f| write_number(f, f64::NEG_INFINITY)), "-Inf");
    assert_eq!(printed(|f| write_number_general(f, 1e6)), "1e+06");
    assert_eq!(printed(|f| write_number_general(f, 999_999.0)), "999999");
    assert_eq!(printed(|f| write_number_general(f, 1.5e-5)), "1.5e-05");
    assert_eq!(printed(|f| write_number_general(f, 0.0001)), "0.0001");
}
