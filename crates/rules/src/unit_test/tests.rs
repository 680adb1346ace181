//! Test files, input by time, texts of failures. Whole files run in the tests of the binary, which has a
//! storage.

use super::input::Input;
use super::*;
use crate::round::SampleValue;

fn read(text: &str) -> TestFile {
    parse("t.yml", text.as_bytes()).expect("a good file")
}

fn errors(text: &str) -> Vec<String> {
    parse("t.yml", text.as_bytes()).expect_err("a bad file").iter().map(ToString::to_string).collect()
}

#[test]
fn fields_of_a_file_reach_its_tests() {
    let file = read(
        "rule_files: [a.yml, ~]\nevaluation_interval: 30s\ngroup_eval_order: [x, y]\nfuzzy_compare: yes\ntests:\n\
         - name: t\n  interval: 15s\n  start_timestamp: 2026-01-01T00:00:00.5Z\n  external_labels: {a: b}\n  external_url: u\n  \
         input_series: [{series: x, values: 5}]\n  alert_rule_test: [{eval_time: 1m, alertname: A, exp_alerts: [{exp_labels: {c: d}}, ~]}]\n  \
         promql_expr_test: [{expr: x, eval_time: 2m, exp_samples: [{labels: y, value: -.inf}, {histogram: h}]}]\n- ~\n",
    );
    assert_eq!(file.rule_files, ["a.yml", ""]);
    assert_eq!((file.interval_ms, file.is_fuzzy, file.group_order["y"]), (30_000, true, 1));
    let [test, empty] = &file.tests[..] else { panic!("{file:?}") };
    assert_eq!(
        (test.name.as_str(), test.interval_ms, test.start_ns),
        ("t", 15_000, 1_767_225_600_500_000_000)
    );
    assert_eq!((test.external_labels["a"].as_str(), test.external_url.as_str()), ("b", "u"));
    assert_eq!(test.input_series, [InputSeries { series: "x".to_owned(), values: "5".to_owned() }]);
    assert_eq!(test.alert_tests[0].alerts.len(), 2);
    assert_eq!(test.alert_tests[0].alerts[0].labels["c"], "d");
    let [sample, histogram] = &test.expr_tests[0].samples[..] else { panic!("{test:?}") };
    assert_eq!(
        (sample.labels.as_str(), sample.value, histogram.histogram.as_str()),
        ("y", f64::NEG_INFINITY, "h")
    );
    assert_eq!(empty, &Test { interval_ms: 30_000, ..Test::default() });
    assert_eq!(read("").interval_ms, 60_000);
}

#[test]
fn all_errors_of_a_file_are_reported_with_their_positions() {
    let text = "owner: me\ntests:\n- nonsense: 1\n  interval: soon\n- promql_expr_test: [{value: 1, exp_samples: [{value: '1'}]}]\n\
                fuzzy_compare: maybe\ngroup_eval_order: [a, a]\n";
    let want = [
        "t.yml: 1:1: field owner not found in type main.unitTestFile",
        "t.yml: 3:3: field nonsense not found in type main.testGroup",
        "t.yml: 4:13: not a valid duration string: \"soon\"",
        "t.yml: 5:23: field value not found in type main.promqlTestCase",
        "t.yml: 5:55: cannot unmarshal !!str `1` into float64",
        "t.yml: 6:16: cannot unmarshal !!str `maybe` into bool",
        "t.yml: 7:19: group name repeated in evaluation order: a",
    ];
    assert_eq!(errors(text), want);
}

#[test]
fn a_file_is_bounded() {
    assert_eq!(
        errors(&"#".repeat(FILE_BYTES_MAX + 1)),
        ["t.yml: 1:1: file has 33554433 bytes, at most 33554432 are allowed"]
    );
}

fn test_of(series: &[(&str, &str)]) -> Test {
    let input = |(series, values): &(&str, &str)| InputSeries {
        series: (*series).to_owned(),
        values: (*values).to_owned(),
    };
    Test { interval_ms: 60_000, input_series: series.iter().map(input).collect(), ..Test::default() }
}

#[test]
fn input_is_taken_up_to_the_time_of_a_round() {
    let mut input = Input::parse(&test_of(&[("x", "1 _ stale 4"), ("y", "5x1")])).expect("good series");
    let mut taken = |time_ms: i64| -> Vec<String> {
        let samples = input.take_until(time_ms).expect("stored labels");
        samples
            .iter()
            .map(|sample| format!("{} {:?} @{}", sample.labels, sample.value, sample.time_ms))
            .collect()
    };
    assert_eq!(taken(59_999), ["x Float(1.0) @0", "y Float(5.0) @0"]);
    assert_eq!(taken(120_000), ["x Stale @120000", "y Float(5.0) @60000"]);
    assert_eq!(taken(i64::MAX), ["x Float(4.0) @180000"]);
    assert!(taken(i64::MAX).is_empty());
}

#[test]
fn series_are_lines_of_a_load_command() {
    let count = |series: &[(&str, &str)]| -> usize {
        let mut input = Input::parse(&test_of(series)).expect("good series");
        input.take_until(i64::MAX).expect("stored labels").len()
    };
    assert_eq!(count(&[("x", "1"), ("#y", "2"), ("z", "3")]), 1, "a comment ends the list");
    assert_eq!(count(&[("x", "1\ny 2 3")]), 3, "a line break begins a series");
    assert_eq!(count(&[("x", "1 2 3"), ("x", "4")]), 1, "the last of two equal series counts");
}

#[test]
fn labels_that_no_storage_takes_are_an_error_at_their_first_sample() {
    for (series, why) in [
        ("{}", "empty labelset: invalid sample"),
        ("x{a=\"1\",a=\"2\"}", "label name \"a\" is not unique: invalid sample"),
    ] {
        let mut input = Input::parse(&test_of(&[(series, "_ 1")])).expect("a good series");
        assert_eq!(input.take_until(0), Ok(Vec::new()));
        assert_eq!(input.take_until(60_000), Err(why.to_owned()));
    }
    assert!(Input::parse(&test_of(&[("x", "one")])).is_err());
    assert!(Input::parse(&test_of(&[("x@st", "-1m")])).is_err());
}

#[test]
fn a_histogram_is_shared_by_its_repetitions() {
    let mut input = Input::parse(&test_of(&[("h", "{{sum:1}}x2")])).expect("a good series");
    let samples = input.take_until(i64::MAX).expect("stored labels");
    let sum = |value: &SampleValue| if let SampleValue::Histogram(h) = value { h.sum } else { 0.0 };
    assert_eq!(samples.iter().map(|sample| sum(&sample.value)).collect::<Vec<_>>(), [1.0, 1.0, 1.0]);
}

#[test]
fn durations_and_floats_are_printed_as_by_go() {
    for (ms, want) in [
        (0, "0s"),
        (250, "250ms"),
        (1_500, "1.5s"),
        (60_000, "1m0s"),
        (3_600_000, "1h0m0s"),
        (90_061_001, "25h1m1.001s"),
        (-60_000, "-1m0s"),
    ] {
        assert_eq!(text::duration(ms), want);
    }
    for (value, want) in
        [(0.0, "0E+00"), (-1.5, "-1.5E+00"), (1e21, "1E+21"), (0.001, "1E-03"), (f64::INFINITY, "+Inf")]
    {
        assert_eq!(text::float(value), want);
    }
}

#[test]
fn a_difference_keeps_equal_lines_once() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(text::difference(&lines("a b c d"), &lines("a x d")), ["  a", "- b", "- c", "+ x", "  d"]);
    assert_eq!(text::difference(&lines("a"), &lines("a a")), ["  a", "+ a"]);
    assert_eq!(text::difference(&lines("a b"), &lines("a b")), ["  a", "  b"]);
}
