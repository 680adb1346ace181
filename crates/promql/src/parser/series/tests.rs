//! Metrics, sequences and histograms, accepted and refused as by Prometheus.

use super::*;
use crate::parser::{ParseError, parse_metric, parse_series_description};

fn describe(text: &str) -> Result<Vec<String>, ParseError> {
    let description = parse_series_description(text, ParserOptions::default())?;
    let shown = |value: &SequenceValue| match value {
        SequenceValue::Gap => "_".to_owned(),
        SequenceValue::Float(value) if value.to_bits() == STALE_NAN.to_bits() => "stale".to_owned(),
        SequenceValue::Float(value) => value.to_string(),
        SequenceValue::Histogram(histogram) => histogram.test_expression(),
    };
    Ok(description.values.iter().map(shown).collect())
}

#[track_caller]
fn check(values: &str, want: &[&str]) {
    let found = describe(&format!("a {values}"));
    assert_eq!(
        found.as_deref().map(|found| found.to_vec()),
        Ok(want.iter().map(|v| (*v).to_owned()).collect())
    );
}

#[track_caller]
fn refused(text: &str) {
    assert!(describe(text).is_err(), "{text:?} is accepted");
}

#[test]
fn sequences_expand_as_in_prometheus() {
    check("1 2 3", &["1", "2", "3"]);
    check("1x2 5", &["1", "1", "1", "5"]);
    check("1+2x2", &["1", "3", "5"]);
    check("-1-2x2", &["-1", "-3", "-5"]);
    check("_ _x2 _x0 1x0", &["_", "_", "_", "1"]);
    check("stale -Inf +Inf NaN inf", &["stale", "-inf", "inf", "NaN", "inf"]);
    check("1e3 1_000 010 .5 1.5e-1x1", &["1000", "1000", "8", "0.5", "0.15", "0.15"]);
    check("  1\t2  ", &["1", "2"]);
    check("", &[]);
}

#[test]
fn what_prometheus_refuses_is_refused() {
    for text in [
        "",
        "1 2",
        "a 1+2",
        "a 1x",
        "a x3",
        "a 1x1.5",
        "a 1 x2",
        "a stalex2",
        "a Stale",
        "a 1m",
        "a 1,2",
        "a 1-",
        "a 1..2",
        "a 1ee2",
        "a 1e",
        "a 1_ 2",
        "a b",
        "a {b=\"c\"} 1",
        "a{b=c} 1",
        "a{b} 1",
        "a{,} 1",
        "a{b=\"c\" 1",
        "a{} 1+x2",
        "on 1",
        "a _y",
        "a 1x-2",
        "a 0x10g",
    ] {
        refused(text);
    }
}

#[test]
fn a_metric_may_have_any_form() {
    let labels = |text: &str| -> Result<Vec<String>, ParseError> {
        let labels = parse_metric(text, ParserOptions::default())?;
        Ok(labels.iter().map(|(name, value)| format!("{name}={value}")).collect())
    };
    for (text, want) in [
        ("", &[][..]),
        ("{}", &[]),
        ("up", &["__name__=up"]),
        ("sum {b='x', a=`y`,}", &["__name__=sum", "a=y", "b=x"]),
        ("{\"my.name\", \"a.b\"=\"c\"}", &["__name__=my.name", "a.b=c"]),
        ("a:b{__name__=\"c\", d=\"\"}", &["__name__=a:b"]),
        ("{d=\"\"}", &["d="]),
        ("{a=\"1\",a=\"2\"}", &["a=1", "a=2"]),
    ] {
        assert_eq!(
            labels(text).as_deref(),
            Ok(&want.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>()[..]),
            "{text}"
        );
    }
    for text in ["up 1", "1", "{a}", "{a=}", "{a!=\"b\"}", "{a=\"b\"", "up[5m]", "on", "up{} up"] {
        assert!(labels(text).is_err(), "{text:?} is accepted");
    }
}

#[test]
fn histograms_have_the_fields_of_prometheus() {
    check("{{}} {{ }}", &["{{}}", "{{}}"]);
    check(
        "{{schema:1 count:3.5 sum:-2 z_bucket:1 z_bucket_w:0.1 offset:-2 buckets:[1 2.5 ] n_buckets:[1] n_offset:1 counter_reset_hint:gauge }}",
        &[
            "{{schema:1 count:3.5 sum:-2 z_bucket:1 z_bucket_w:0.1 counter_reset_hint:gauge offset:-2 buckets:[1 2.5] n_offset:1 n_buckets:[1]}}",
        ],
    );
    check("{{sum:1}}x1 2", &["{{sum:1}}", "{{sum:1}}", "2"]);
    check("{{sum:1}}+{{sum:2}}x2", &["{{sum:1}}", "{{sum:3}}", "{{sum:5}}"]);
    check("{{count:5}}-{{count:2}}x1", &["{{count:5}}", "{{count:3}}"]);
    for histogram in [
        "{{",
        "{{ sum:1}}",
        "{{sum:1 sum:2}}",
        "{{sum: 1}}",
        "{{sum:+1}}",
        "{{sum:.5}}",
        "{{buckets:[]}}",
        "{{buckets:[ 1]}}",
        "{{buckets:[1,2]}}",
        "{{schema:1.5}}",
        "{{z_bucket_w:-1}}",
        "{{weight:1}}",
        "{{sum:1}}+{{sum:2}}",
        "{{sum:1}}+1x2",
        "{{counter_reset_hint:maybe}}",
        "{{schema:3}}+{{schema:1}}x1",
        "{{sum:1}}1",
    ] {
        refused(&format!("a {histogram}"));
    }
}

#[test]
fn a_sequence_has_at_most_a_million_values() {
    for values in ["1x9999999999", "_x1000001", "0+1x1000000", "{{}}x18446744073709551615", "_x999999 1 2"] {
        let error = describe(&format!("a {values}")).expect_err(values);
        assert!(error.message.contains("more than 1000000 values"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[-a-z{}\\[\\]\"_+x:,= .0-9\u{e4}]{0,60}") {
        drop(describe(&text));
        drop(describe(&format!("a {text}")));
        drop(describe(&format!("a {{{{{text}}}}}")));
    }
}
