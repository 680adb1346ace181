//! Bodies of all formats: samples, labels, start times, exemplars, metadata and faults.

mod chunks;
mod golden;
mod rules;

use chronolith_model::{LabelsBuilder, WriteBatch};

use super::*;
use crate::added_labels::{AddedLabels, Conflict, tailed_keys};

/// Time of samples without a timestamp.
const NOW_MS: i64 = 7;

/// Content of batches, and the faults of the body.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Decoded {
    /// Series with value and time, start time and exemplars.
    pub(super) samples: Vec<String>,
    /// Metric, type, help and unit.
    pub(super) metadata: Vec<String>,
    pub(super) refused: Refused,
    /// Error that refuses the body.
    pub(super) error: Option<ExpositionError>,
}

pub(super) fn options() -> DecodeOptions {
    DecodeOptions::new(NOW_MS)
}

pub(super) fn strict() -> DecodeOptions {
    DecodeOptions { mode: Mode::Strict, ..options() }
}

/// Decodes a body that arrives in `chunks`.
pub(super) fn decode_chunks<'a>(
    format: Format,
    options: &DecodeOptions,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Decoded {
    let mut out = Decoded::default();
    let mut decoder = Decoder::new(format, options.clone());
    let mut batch = WriteBatch::new(tailed_keys(decoder.source(), &options.added));
    let result = chunks.into_iter().try_for_each(|chunk| {
        let mut at = 0;
        while at < chunk.len() {
            at += decoder.feed(&chunk[at..], &mut batch)?;
            if at < chunk.len() {
                take_batch(&mut batch, &mut out);
            }
        }
        Ok(())
    });
    match result.and_then(|()| decoder.finish(&mut batch)) {
        Ok(refused) => out.refused = refused,
        Err(error) => out.error = Some(error),
    }
    take_batch(&mut batch, &mut out);
    out
}

pub(super) fn decode(format: Format, options: &DecodeOptions, body: &[u8]) -> Decoded {
    decode_chunks(format, options, [body])
}

fn take_batch(batch: &mut WriteBatch, out: &mut Decoded) {
    let starts = |idx: u32| batch.start_times.get(idx as usize).copied().unwrap_or(0);
    let mut builder = LabelsBuilder::new();
    for (idx, series) in batch.series.iter().enumerate() {
        builder.clear();
        let parsed = (batch.source.parse)(batch.key_of(idx), &mut builder);
        builder.sort();
        let mut text = format!("{}", builder.finish());
        if parsed.is_err() {
            text = format!("{parsed:?}");
        }
        let sample = series.samples.start;
        let histogram = batch.histograms_of(series).first().map(|(_, histogram)| histogram.to_float());
        match histogram {
            Some(histogram) => text.push_str(&format!(" {histogram}")),
            None => text.push_str(&format!(" {}", batch.values[sample as usize])),
        }
        text.push_str(&format!(" @{}", batch.times[sample as usize]));
        if starts(sample) != 0 {
            text.push_str(&format!(" start {}", starts(sample)));
        }
        for exemplar in batch.exemplars.iter().filter(|exemplar| exemplar.series_idx == idx as u32) {
            let exemplar = &exemplar.exemplar;
            text.push_str(&format!(" # {} {} @{}", exemplar.labels, exemplar.value, exemplar.time_ms));
        }
        out.samples.push(text);
    }
    for entry in &batch.metadata {
        out.metadata.push(format!(
            "{} {} {:?} {}",
            entry.metric,
            entry.kind.as_str(),
            entry.help,
            entry.unit
        ));
    }
    batch.clear();
}

/// Decodes a strict body without faults.
#[track_caller]
fn check(format: Format, body: &str, want: &[&str]) {
    let decoded = decode(format, &strict(), body.as_bytes());
    assert_eq!(decoded.error, None, "{body}");
    assert_eq!(decoded.samples, want, "{body}");
}

/// Decodes a line with a fault between two good ones, leniently and strictly.
#[track_caller]
fn check_fault(format: Format, line: &str, want: &str) {
    let body = format!("x 1\n{line}\ny 2\n# EOF\n");
    let decoded = decode(format, &options(), body.as_bytes());
    assert_eq!(decoded.samples, ["x 1 @7", "y 2 @7"], "{line}");
    assert_eq!(decoded.refused.total(), 1, "{:?}", decoded.refused);
    assert_eq!(decoded.refused.errors.first().map(ToString::to_string).as_deref(), Some(want));
    let decoded = decode(format, &strict(), body.as_bytes());
    assert_eq!(decoded.error.map(|error| error.to_string()).as_deref(), Some(want));
}

#[test]
fn text_lines_have_blanks_between_tokens() {
    check(
        Format::Text,
        concat!(
            "# HELP a_total Help \\\\ with \\n escapes \\\"\n# TYPE a_total counter\n",
            "a_total 1\n",
            "\n  \t\n# a comment\n#HELP no blank\n",
            "a_total{} 2 1000\n",
            " \ta_total { le = \"x\" ,b=\"\\\\ \\n \\\" \\x\" , } \t 3.5e3 \t 2000 \t\n",
            "a_total{b=\"1\"c=\"2\"}4\n",
            "a_total+5\n",
            "{\"with.dots\",\"lab el\"=\"ü\"} NaN\n",
            "{b=\"1\",\"with \\\"quotes\\\"\"}-Inf 0\n",
            "a:b_1 +Inf 9223372036854775807",
        ),
        &[
            "a_total 1 @7",
            "a_total 2 @1000",
            r#"a_total{b="\\ \n \" \\x", le="x"} 3500 @2000"#,
            r#"a_total{b="1", c="2"} 4 @7"#,
            "a_total 5 @7",
            r#"{"with.dots", "lab el"="ü"} NaN @7"#,
            r#"{"with \"quotes\"", b="1"} -inf @0"#,
            "a:b_1 inf @9223372036854775807",
        ],
    );
}

#[test]
fn openmetrics_lines_have_single_spaces() {
    check(
        Format::OpenMetrics,
        concat!(
            "a 1\na{} 2 1.5\na{b=\"1\",} 3 -1.0009\n{\"a.b\",c=\"d\"} NaN 1e3\n",
            "a{b=\"2\"} 4 # {} 0.5\na 5 6 # {trace_id=\"x\\\"y\",\"ü\"=\"2\"} 7 8.0011\n# EOF",
        ),
        &[
            "a 1 @7",
            "a 2 @1500",
            r#"a{b="1"} 3 @-1000"#,
            r#"{"a.b", c="d"} NaN @1000000"#,
            r#"a{b="2"} 4 @7 # {} 0.5 @7"#,
            r#"a 5 @6000 # {trace_id="x\"y", "ü"="2"} 7 @8001"#,
        ],
    );
}

#[test]
fn faults_of_text_have_prometheus_words_and_a_position() {
    let check = |line: &str, want: &str| check_fault(Format::Text, line, want);
    check("9a 1", r#"expected a valid start token, got "9a" while parsing: "9a" (line 2, column 1)"#);
    check("a", r#"expected value after metric, got end while parsing: "a" (line 2, column 2)"#);
    check(
        "a{b=\"1\"}",
        r#"expected value after metric, got end while parsing: "a{b=\"1\"}" (line 2, column 9)"#,
    );
    check("a{b=1} 2", r#"expected label value, got "1}" while parsing: "a{b=1}" (line 2, column 5)"#);
    check("a{b\"1\"} 2", r#"expected equal, got "\"1\"}" while parsing: "a{b\"1\"}" (line 2, column 4)"#);
    check("a{,} 2", r#"expected label name, got ",}" while parsing: "a{,}" (line 2, column 3)"#);
    check("a{b=\"1} 2", r#"expected label value, got "\"1}" while parsing: "a{b=\"1}" (line 2, column 5)"#);
    check(
        "{b=\"1\"} 2",
        r#"metric name not set, got "{b=\"1\"}" while parsing: "{b=\"1\"}" (line 2, column 1)"#,
    );
    check(
        "a{\"b\"} 2",
        r#"metric name already set, got "\"b\"}" while parsing: "a{\"b\"}" (line 2, column 3)"#,
    );
    check("a b", r#"expected a float as value, got "b" while parsing: "a b" (line 2, column 3)"#);
    check(
        "a 1e999",
        r#"value out of range of a float, got "1e999" while parsing: "a 1e999" (line 2, column 3)"#,
    );
    check(
        "a 1 -5",
        r#"expected timestamp or new record, got "-5" while parsing: "a 1 -5" (line 2, column 5)"#,
    );
    check(
        "a 1 5 6",
        r#"expected next entry after timestamp, got "6" while parsing: "a 1 5 6" (line 2, column 7)"#,
    );
    check("a 1\r", r#"expected a float as value, got "1\r" while parsing: "a 1\r" (line 2, column 3)"#);
    check(
        "# TYPE a wrong",
        r##"invalid metric type, got "wrong" while parsing: "# TYPE a wrong" (line 2, column 10)"##,
    );
    check(
        "# HELP 1 x",
        r##"expected metric name after HELP, TYPE or UNIT, got "1" while parsing: "# HELP 1" (line 2, column 8)"##,
    );
}

#[test]
fn faults_of_openmetrics_have_prometheus_words_and_a_position() {
    let check = |line: &str, want: &str| check_fault(Format::OpenMetrics, line, want);
    check(" a 1", r#"expected a valid start token, got " a" while parsing: " a" (line 2, column 1)"#);
    check("", r#"expected a valid start token, got end while parsing: "" (line 2, column 1)"#);
    check("# comment", r##"expected a valid start token, got "#" while parsing: "#" (line 2, column 1)"##);
    check(
        "a{b=\"1\"c=\"2\"} 1",
        r#"expected comma or brace close, got "c=\"2\"}" while parsing: "a{b=\"1\"c=\"2\"}" (line 2, column 8)"#,
    );
    check(
        "a{ b=\"1\"} 1",
        r#"expected label name, got " b=\"1\"}" while parsing: "a{ b=\"1\"}" (line 2, column 3)"#,
    );
    check("a  1", r#"expected value after metric, got " " while parsing: "a " (line 2, column 2)"#);
    check("a 1 ", r#"expected timestamp or new record, got " " while parsing: "a 1 " (line 2, column 4)"#);
    check("a 1 x", r#"expected a number as timestamp, got "x" while parsing: "a 1 x" (line 2, column 5)"#);
    check("a 1 NaN", r#"timestamp out of range, got "NaN" while parsing: "a 1 NaN" (line 2, column 5)"#);
    check(
        "a 1 2 3",
        r#"expected next entry after timestamp, got " 3" while parsing: "a 1 2 3" (line 2, column 6)"#,
    );
    check(
        "a 1 # {\"b\"} 1",
        r#"expected label name, got "}" while parsing: "a 1 # {\"b\"}" (line 2, column 11)"#,
    );
    check(
        "a 1 # {b=\"1\"}",
        r#"expected value after exemplar labels, got end while parsing: "a 1 # {b=\"1\"}" (line 2, column 14)"#,
    );
    check(
        "a 1 # {} 1 x",
        r#"invalid exemplar timestamp, got "x" while parsing: "a 1 # {} 1 x" (line 2, column 12)"#,
    );
    check(
        "# TYPE a untyped",
        r##"invalid metric type, got "untyped" while parsing: "# TYPE a untyped" (line 2, column 10)"##,
    );
    check(
        "# UNIT a_bytes seconds",
        r##"unit is not a suffix of the metric, got "seconds" while parsing: "# UNIT a_bytes seconds" (line 2, column 16)"##,
    );
    check(
        "# TYPE a",
        r##"expected text after the metric name of HELP, TYPE or UNIT, got end while parsing: "# TYPE a" (line 2, column 9)"##,
    );
}

#[test]
fn an_openmetrics_body_ends_with_eof() {
    let error = |body: &str| {
        let decoded = decode(Format::OpenMetrics, &strict(), body.as_bytes());
        decoded.error.map(|error| (error.reason, error.to_string()))
    };
    let missing = |body| error(body).expect("an error").1;
    assert_eq!(
        missing("a 1\n"),
        "data does not end with # EOF, got end while parsing: \"\" (line 2, column 1)"
    );
    assert_eq!(missing(""), "data does not end with # EOF, got end while parsing: \"\" (line 1, column 1)");
    assert_eq!(
        missing("a 1\na 2"),
        "data does not end with # EOF, got end while parsing: \"a 2\" (line 2, column 4)"
    );
    assert_eq!(error("a 1\n# EOF\na 1\n").map(|error| error.0), Some(Reason::End));
    assert_eq!(error("a 1\n# EOF \n").map(|error| error.0), Some(Reason::End));
    assert_eq!(error("a 1\n# EOF"), None);
    // A line that was cut off has another value: it is not stored in either mode.
    let decoded = decode(Format::OpenMetrics, &options(), b"a 1\na 2");
    assert_eq!((decoded.samples, decoded.refused.of(Reason::End)), (vec!["a 1 @7".to_owned()], 1));
}

#[test]
fn comments_become_metadata() {
    let decoded = decode(
        Format::OpenMetrics,
        &strict(),
        concat!(
            "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n# HELP a_seconds A \\\"b\\\" \\n c\na_seconds_total 1\n",
            "# HELP \"b.c\" \n# TYPE d info\nd_info{x=\"y\"} 1\n# TYPE e stateset\ne{e=\"on\"} 0\n# EOF\n"
        )
        .as_bytes(),
    );
    assert_eq!(decoded.error, None);
    let want = [
        r#"a_seconds counter "A \"b\" \n c" seconds"#,
        r#"b.c unknown "" "#,
        r#"d info "" "#,
        r#"e stateset "" "#,
    ];
    assert_eq!(decoded.metadata, want);
    let body = b"# TYPE a histogram\n# HELP a x\\\"\\n  y \n# TYPE b untyped\n#TYPE c gauge\n# HELP d\n";
    let decoded = decode(Format::Text, &strict(), body);
    assert_eq!(decoded.metadata, [r#"a histogram "x\\\"\n  y " "#, r#"b unknown "" "#, r#"d unknown "" "#]);
}

#[test]
fn created_lines_are_start_times() {
    let body = concat!(
        "# TYPE a counter\na_total{b=\"1\"} 1\na_created{b=\"1\"} 1520872607.123\n",
        "a_total{b=\"2\"} 2\na_total{b=\"3\"} 3\na_created{b=\"3\"} 5\na_total{b=\"4\"} 4\n",
        "# TYPE h histogram\nh_bucket{le=\"1\",x=\"y\"} 1\nh_bucket{x=\"y\",le=\"+Inf\"} 2\nh_count{x=\"y\"} 2\n",
        "h_sum{x=\"z\"} 3\nh_created{x=\"y\"} 6\n",
        "# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_count 1\ns_created 9\n",
        "# TYPE g gauge\ng_created 8\n# EOF\n",
    );
    let want = [
        r#"a_total{b="1"} 1 @7 start 1520872607123"#,
        r#"a_total{b="2"} 2 @7"#,
        r#"a_total{b="3"} 3 @7 start 5000"#,
        r#"a_total{b="4"} 4 @7"#,
        r#"h_bucket{le="1.0", x="y"} 1 @7 start 6000"#,
        r#"h_bucket{le="+Inf", x="y"} 2 @7 start 6000"#,
        r#"h_count{x="y"} 2 @7 start 6000"#,
        r#"h_sum{x="z"} 3 @7"#,
        r#"s{quantile="0.5"} 1 @7 start 9000"#,
        "s_count 1 @7 start 9000",
        "g_created 8 @7",
    ];
    check(Format::OpenMetrics, body, &want);
    let as_series = DecodeOptions { created: CreatedLines::Series, ..strict() };
    let decoded = decode(Format::OpenMetrics, &as_series, body.as_bytes());
    assert!(decoded.samples.contains(&r#"a_created{b="3"} 5 @7"#.to_owned()), "{:?}", decoded.samples);
    assert!(!decoded.samples.iter().any(|sample| sample.contains("start")));
}

#[test]
fn bounds_have_the_form_of_openmetrics_within_their_type() {
    let body = "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"x\"} 1\n\
                h{quantile=\"1\"} 1\n# TYPE s summary\ns{quantile=\"1\"} 1\ns{le=\"1\"} 1\n";
    let want = [
        r#"h_bucket{le="1.0"} 1 @7"#,
        r#"h_bucket{le="1.0"} 1 @7"#,
        r#"h_bucket{le="x"} 1 @7"#,
        r#"h{quantile="1"} 1 @7"#,
        r#"s{quantile="1.0"} 1 @7"#,
        r#"s{le="1"} 1 @7"#,
    ];
    check(Format::Text, body, &want);
}

#[test]
fn labels_of_the_receiver_are_added() {
    let added = |conflict| AddedLabels::new([("job", "j")]).with_conflict(conflict);
    let check = |conflict, want: [&str; 2]| {
        let options = DecodeOptions { added: added(conflict), ..strict() };
        let decoded = decode(Format::Text, &options, b"# TYPE a histogram\na{job=\"x\",le=\"1\"} 1\na 2\n");
        assert_eq!(decoded.samples, want, "{conflict:?}");
    };
    check(Conflict::Replace, [r#"a{job="j", le="1.0"} 1 @7"#, r#"a{job="j"} 2 @7"#]);
    check(Conflict::KeepSent, [r#"a{job="x", le="1.0"} 1 @7"#, r#"a{job="j"} 2 @7"#]);
    check(Conflict::RenameSent, [r#"a{exported_job="x", job="j", le="1.0"} 1 @7"#, r#"a{job="j"} 2 @7"#]);
}

#[test]
fn timestamps_can_be_replaced() {
    let options = DecodeOptions { timestamps: Timestamps::Replaced, ..strict() };
    let decoded = decode(Format::OpenMetrics, &options, b"a 1 5 # {} 1\na 2 6 # {} 1 3\n# EOF\n");
    assert_eq!(decoded.samples, ["a 1 @7 # {} 1 @7", "a 2 @7 # {} 1 @3000"]);
}

#[test]
fn names_and_values_are_utf8() {
    let refuse = |body: &[u8]| {
        let decoded = decode(Format::Text, &strict(), body);
        decoded.error.map(|error| error.reason)
    };
    assert_eq!(refuse(b"a{b=\"\xff\"} 1\n"), Some(Reason::Utf8));
    assert_eq!(refuse(b"a{\"\xff\"=\"x\"} 1\n"), Some(Reason::Utf8));
    assert_eq!(refuse(b"{\"\\\xff\"} 1\n"), Some(Reason::Utf8));
    assert_eq!(refuse(b"# HELP a \xff\n"), Some(Reason::Utf8));
    assert_eq!(refuse(b"# HELP \"a\xff\" x\n"), Some(Reason::Utf8));
    assert_eq!(refuse(b"{\"\"} 1\n"), Some(Reason::Labels));
    assert_eq!(refuse(b"# \xff\na{b=\"\0\"} 1\n"), None);
}

#[test]
fn limits_refuse_lines_alone() {
    let mut options = options();
    options.limits = Limits { line_bytes_max: 12, line_count_max: 6, label_count_max: 1, ..options.limits };
    let body = b"a 1\n# a comment that is long\nlong_long_name 1\na{b=\"\"} 2\na{b=\"\",} 3456\na{a=\"\"b=\"\"}\nb 1\nc 1";
    let decoded = decode(Format::Text, &options, body);
    assert_eq!(decoded.samples, ["a 1 @7", "a 2 @7"]);
    assert_eq!(decoded.refused.of(Reason::Limit), 6);
    let texts: Vec<String> = decoded.refused.errors.iter().map(ToString::to_string).collect();
    let long = |line: &str, number: u32| {
        format!("line is longer than the limit, got end while parsing: {line:?} (line {number}, column 13)")
    };
    assert_eq!(texts[0], long("# a comment ", 2));
    assert_eq!(texts[1], long("long_long_na", 3));
    assert_eq!(texts[2], long("a{b=\"\",} 345", 5));
}

#[test]
fn no_staleness_marker_can_be_sent() {
    let mut decoder = Decoder::new(Format::Text, strict());
    let mut batch = WriteBatch::new(decoder.source());
    decoder.feed(b"a NaN\na nan\n", &mut batch).expect("valid");
    let bits: Vec<u64> = batch.values.iter().map(|value| value.to_bits()).collect();
    assert_eq!(bits, [chronolith_model::sample::NORMAL_NAN_BITS; 2]);
}
