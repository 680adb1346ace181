//! Times, durations, escapes and limits as Prometheus reads them.

use super::*;

#[track_caller]
fn check_time(text: &str, want_ms: i64) {
    assert_eq!(parse_time_ms(text), Ok(want_ms), "{text}");
}

#[test]
fn times_are_floats_or_rfc3339() {
    check_time("1435781451.781", 1_435_781_451_781);
    check_time("0", 0);
    check_time("-1.5", -1500);
    check_time("1e3", 1_000_000);
    check_time("2015-07-01T20:10:51.781Z", 1_435_781_451_781);
    check_time("2015-07-01T22:10:51.781+02:00", 1_435_781_451_781);
    check_time("1969-12-31T23:59:59Z", -1000);
    check_time("2024-02-29T00:00:00Z", 1_709_164_800_000);
    check_time(MIN_TIME_TEXT, TIME_MIN_MS);
    check_time(MAX_TIME_TEXT, TIME_MAX_MS);
}

/// Results of Prometheus 3.16. Half a millisecond was rounded by its true value.
#[test]
fn fractions_are_rounded_as_floats() {
    for (text, want_ms) in [
        ("1651562891.58250", 1_651_562_891_582),
        ("1651562891.5825", 1_651_562_891_582),
        ("1651562891.58251", 1_651_562_891_583),
        ("1651562891.5815", 1_651_562_891_582),
        ("1651562891.5835", 1_651_562_891_583),
        ("1651562891.9995", 1_651_562_892_000),
        ("1651562891.9994", 1_651_562_891_999),
        ("0.0005", 1),
        ("0.00049", 0),
        ("-0.0005", -1),
        ("-1.0015", -1002),
        ("1e-9", 0),
        ("4.001", 4001),
        ("1.001", 1001),
    ] {
        check_time(text, want_ms);
    }
}

#[test]
fn what_is_no_time_is_named() {
    assert_eq!(parse_time_ms("yesterday").unwrap_err(), r#"cannot parse "yesterday" to a valid timestamp"#);
    let bad = ["", "NaN", "Inf", "1e300", "2015-02-30T00:00:00Z", "2015-07-01", "2015-07-01T25:00:00Z"];
    for text in bad.into_iter().chain(["2015-07-01T20:10:51.Z", "2015-07-01T20:10:51", "20150-1-1T00:00:00Z"])
    {
        assert!(parse_time_ms(text).is_err(), "{text}");
    }
}

#[test]
fn durations_are_floats_or_prometheus_form() {
    assert_eq!(parse_duration_ns("15"), Ok(15_000_000_000));
    assert_eq!(parse_duration_ns("0.000001"), Ok(1000));
    assert_eq!(parse_duration_ns("5m"), Ok(300_000_000_000));
    assert_eq!(parse_duration_ns("-5"), Ok(-5_000_000_000));
    assert_eq!(parse_duration_ns("x").unwrap_err(), r#"cannot parse "x" to a valid duration"#);
    assert_eq!(parse_duration_ns("293y").unwrap_err(), r#"cannot parse "293y" to a valid duration"#);
    let overflow = r#"cannot parse "1e30" to a valid duration. It overflows int64"#;
    assert_eq!(parse_duration_ns("1e30").unwrap_err(), overflow);
    assert!(parse_duration_ns("NaN").unwrap_err().ends_with("It overflows int64"));
    assert!(parse_duration_ns("9223372036.854776").unwrap_err().ends_with("It overflows int64"));
}

#[test]
fn forms_decode_and_keep_repeats() {
    let mut params = Params::default();
    params.parse("match[]=a%7Bb%3D%22c%22%7D&match%5B%5D=d+e&x=&y").unwrap();
    assert_eq!(params.all("match[]").collect::<Vec<_>>(), [r#"a{b="c"}"#, "d e"]);
    assert_eq!((params.get("x"), params.get("y")), (None, None));
    assert!(Params::default().parse("a=%ff").is_err());
    assert!(Params::default().parse(&"a=1&".repeat(PARAM_COUNT_MAX + 1)).is_err());
}

#[test]
fn broken_pairs_are_left_out_and_named() {
    let mut params = Params::default();
    params.parse("a=%zz&b=1&c=%e&d=1;e=2&f=%").unwrap();
    assert_eq!((params.get("a"), params.get("b"), params.get("d")), (None, Some("1"), None));
    let why = params.well_formed().unwrap_err().message;
    assert_eq!(why, r#"error parsing form values: invalid URL escape "%zz""#);
    let mut params = Params::default();
    params.parse("d=1;e=2").unwrap();
    let why = params.well_formed().unwrap_err().message;
    assert_eq!(why, "error parsing form values: invalid semicolon separator in query");
    assert!(Params::default().well_formed().is_ok());
}

/// A path is decoded as a whole: a broken escape is an error, and `+` stays.
#[test]
fn paths_are_decoded() {
    assert_eq!(decode_percent("a%2Fb+c%C3%bc").as_deref(), Some("a/b+cü"));
    for broken in ["%", "%e", "a%zz", "%ff", "%c3", "%+1"] {
        assert_eq!(decode_percent(broken), None, "{broken}");
    }
}

#[test]
fn limits_are_whole_numbers_and_not_negative() {
    let mut params = Params::default();
    params.parse("neg=-1&word=x&huge=99999999999999999999&ok=3").unwrap();
    let why = |name: &str| params.limit(name).unwrap_err().message;
    assert_eq!(why("neg"), r#"invalid parameter "neg": limit must be non-negative"#);
    assert_eq!(why("word"), r#"invalid parameter "word": strconv.Atoi: parsing "x": invalid syntax"#);
    let range = r#"strconv.Atoi: parsing "99999999999999999999": value out of range"#;
    assert_eq!(why("huge"), format!(r#"invalid parameter "huge": {range}"#));
    assert_eq!((params.limit("ok"), params.limit("absent")), (Ok(3), Ok(0)));
}

#[test]
fn escaped_label_names() {
    assert_eq!(unescape_name("U__host_2e_name").as_deref(), Some("host.name"));
    assert_eq!(unescape_name("U__a__b").as_deref(), Some("a_b"));
    assert_eq!(unescape_name("U___1f980_").as_deref(), Some("🦀"));
    assert_eq!(unescape_name("U__a_d800_"), None);
    assert_eq!(unescape_name("plain"), None);
}

#[test]
fn durations_are_printed_as_go_does() {
    let shown =
        [0, -1, 1_500, -2_500_000, -1_000_000_000, 90_500_000_000, -3_600_000_000_000].map(show_duration_ns);
    assert_eq!(shown, ["0s", "-1ns", "1.5µs", "-2.5ms", "-1s", "1m30.5s", "-1h0m0s"]);
}
