//! Messages of the protobuf format: values, histograms, exemplars, framing and faults.

use chronolith_base::Rng;
use chronolith_base::bytes::{put_uvarint, zigzag};

use crate::exposition::tests::{Decoded, decode, decode_chunks, options, strict};
use crate::exposition::{DecodeOptions, Format, HistogramKinds, Limits, Reason};
use crate::remote_write::encode::put_labels;

/// Encoder of messages for tests.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, number: u8, value: u64) -> Message {
        self.0.push(number << 3);
        put_uvarint(&mut self.0, value);
        self
    }

    fn double(mut self, number: u8, value: f64) -> Message {
        self.0.push((number << 3) | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(mut self, number: u8, bytes: &[u8]) -> Message {
        put_uvarint(&mut self.0, u64::from(number) << 3 | 2);
        put_uvarint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, number: u8, message: &Message) -> Message {
        self.bytes(number, &message.0)
    }

    fn labels(mut self, pairs: &[(&str, &str)]) -> Message {
        put_labels(&mut self.0, pairs.iter().copied());
        self
    }

    fn delimited(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_uvarint(&mut out, self.0.len() as u64);
        out.extend_from_slice(&self.0);
        out
    }
}

fn message() -> Message {
    Message::default()
}

fn family(name: &str, family_type: u64, metrics: &[Message]) -> Vec<u8> {
    let head = message().bytes(1, name.as_bytes()).bytes(2, b"help").varint(3, family_type);
    metrics.iter().fold(head, |family, metric| family.message(4, metric)).bytes(5, b"s").delimited()
}

fn time(seconds: u64, nanos: u64) -> Message {
    message().varint(1, seconds).varint(2, nanos)
}

fn exemplar(value: f64, time_of: Option<Message>) -> Message {
    let exemplar = message().labels(&[("t", "u")]).double(2, value);
    match time_of {
        Some(time) => exemplar.message(3, &time),
        None => exemplar,
    }
}

fn bucket(bound: f64, count: u64) -> Message {
    message().varint(1, count).double(2, bound)
}

fn counter(labels: &[(&str, &str)], value: f64) -> Message {
    let value = message().double(1, value).message(2, &exemplar(1.0, None)).message(3, &time(5, 6_000_000));
    message().labels(labels).message(3, &value)
}

fn classic() -> Message {
    let histogram =
        message().varint(1, 3).double(2, 4.5).message(3, &bucket(0.5, 1)).message(3, &bucket(1.0, 2));
    message().message(7, &histogram.message(15, &time(9, 0))).labels(&[("a", "b")]).varint(6, 1234)
}

fn native(sum: f64) -> Message {
    let span = message().varint(1, zigzag(0)).varint(2, 2);
    let histogram = message()
        .varint(1, 4)
        .double(2, sum)
        .message(3, &bucket(1.0, 2))
        .varint(5, zigzag(3))
        .double(6, 0.001)
        .varint(7, 1)
        .message(12, &span)
        .varint(13, zigzag(1))
        .varint(13, zigzag(1))
        .message(16, &exemplar(0.5, Some(time(3, 0))))
        .message(16, &exemplar(0.6, None));
    message().message(7, &histogram)
}

fn sample_body() -> Vec<u8> {
    let summary = message().varint(1, 3).double(2, 4.5).message(3, &message().double(1, 0.5).double(2, 7.0));
    [
        family("c", 0, &[counter(&[("a", "b")], 1.5), counter(&[], f64::NAN)]),
        family("g", 1, &[message().message(2, &message().double(1, -1.0)).varint(6, 77)]),
        family("s", 2, &[message().message(4, &summary)]),
        family("h", 4, &[classic()]),
        family("n", 4, &[native(2.0)]),
        family("none", 9, &[]),
    ]
    .concat()
}

#[track_caller]
fn check(options: &DecodeOptions, body: &[u8], want: &[&str]) {
    let decoded = decode(Format::Protobuf, options, body);
    assert_eq!(decoded.error, None);
    assert_eq!(decoded.samples, want);
}

#[test]
fn values_become_series_in_prometheus_order() {
    let body = sample_body();
    let decoded = decode(Format::Protobuf, &strict(), &body);
    let want = [
        r#"c{a="b"} 1.5 @7 start 5006 # {t="u"} 1 @7"#,
        r#"c NaN @7 start 5006 # {t="u"} 1 @7"#,
        "g -1 @77",
        "s_count 3 @7",
        "s_sum 4.5 @7",
        r#"s{quantile="0.5"} 7 @7"#,
        r#"h_count{a="b"} 3 @1234 start 9000"#,
        r#"h_sum{a="b"} 4.5 @1234 start 9000"#,
        r#"h_bucket{a="b", le="0.5"} 1 @1234 start 9000"#,
        r#"h_bucket{a="b", le="1.0"} 2 @1234 start 9000"#,
        r#"h_bucket{a="b", le="+Inf"} 3 @1234 start 9000"#,
    ];
    assert_eq!((decoded.error, &decoded.samples[..want.len()]), (None, &want.map(String::from)[..]));
    let native = &decoded.samples[want.len()];
    assert!(
        native.starts_with("n {count:4, sum:2") && native.ends_with(r#" @7 # {t="u"} 0.5 @3000"#),
        "{native}"
    );
    assert_eq!(decoded.metadata.len(), 5);
    assert_eq!(decoded.metadata[4], r#"n histogram "help" s"#);
}

#[test]
fn histograms_with_both_representations_are_read_as_asked() {
    let body = family("n", 5, &[native(2.0)]);
    let names = |histograms| {
        let decoded = decode(Format::Protobuf, &DecodeOptions { histograms, ..strict() }, &body);
        let name = |sample: &String| sample.split([' ', '{']).next().unwrap_or("").to_owned();
        decoded.samples.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(HistogramKinds::Native), ["n"]);
    assert_eq!(names(HistogramKinds::NativeAndClassic), ["n", "n_count", "n_sum", "n_bucket", "n_bucket"]);
    assert_eq!(names(HistogramKinds::Classic), ["n_count", "n_sum", "n_bucket", "n_bucket"]);
}

#[test]
fn labels_that_other_fields_interrupt_name_the_same_series() {
    let value = message().double(1, 1.0);
    let metric =
        message().labels(&[("a", "1")]).message(2, &value).labels(&[("b", "2")]).labels(&[("c", "3")]);
    check(&strict(), &family("g", 1, &[metric]), &[r#"g{a="1", b="2", c="3"} 1 @7"#]);
}

#[test]
fn a_metric_that_is_not_valid_is_refused_alone() {
    let span = message().varint(1, 0).varint(2, 3);
    let mismatch = message().message(7, &message().varint(1, 1).message(12, &span));
    let bad_label = message().bytes(1, &message().bytes(1, b"\xff").0).message(3, &message().double(1, 1.0));
    for (family_type, metric, reason) in [
        (4, mismatch, Reason::Histogram),
        (0, bad_label, Reason::Utf8),
        (0, message().bytes(1, b""), Reason::Labels),
        (0, message().varint(3, 1), Reason::Protobuf),
    ] {
        let good = if family_type == 4 { classic() } else { counter(&[], 1.0) };
        let body = family("m", family_type, &[good.clone(), metric, good]);
        let decoded = decode(Format::Protobuf, &options(), &body);
        let whole =
            decode(Format::Protobuf, &strict(), &family("m", family_type, &[message()])).samples.len();
        assert!(decoded.samples.len() >= 2 * whole.min(1), "{:?}", decoded.samples);
        assert_eq!((decoded.refused.total(), decoded.refused.of(reason)), (1, 1), "{:?}", decoded.refused);
        let refused = decode(Format::Protobuf, &strict(), &body).error.expect("strict");
        assert_eq!(refused.reason, reason, "{refused}");
        assert!(refused.to_string().contains("(message 1, offset "), "{refused}");
    }
}

#[test]
fn messages_that_are_not_valid_are_refused_alone() {
    let good = family("g", 1, &[message().message(2, &message().double(1, 1.0))]);
    let check = |bad: Vec<u8>, reason, is_last: bool| {
        let body = [&good[..], &bad, &good].concat();
        let decoded = decode(Format::Protobuf, &options(), &body);
        assert_eq!(decoded.samples.len(), if is_last { 1 } else { 2 }, "{:?}", decoded.refused);
        assert_eq!(decoded.refused.of(reason), 1, "{:?}", decoded.refused);
    };
    check(family("", 1, &[message()]), Reason::Labels, false);
    check(family("g", 9, &[message()]), Reason::Metadata, false);
    check(message().varint(4, 1).delimited(), Reason::Protobuf, false);
    check(vec![0xff; 12], Reason::Protobuf, true);
    let mut options = options();
    options.limits = Limits { message_bytes_max: good.len(), ..options.limits };
    let large = family("g", 1, &vec![message().labels(&[("a", "b")]); 9]);
    for len in 1..large.len() {
        let body = [&good[..], &large, &good].concat();
        let decoded = decode_chunks(Format::Protobuf, &options, body.chunks(len));
        assert_eq!((decoded.samples.len(), decoded.refused.of(Reason::Limit)), (2, 1), "{len}");
    }
}

#[test]
fn no_staleness_marker_can_be_sent() {
    let stale = chronolith_model::sample::STALE_NAN;
    let body = [family("c", 0, &[counter(&[], stale)]), family("n", 4, &[native(stale)])].concat();
    let mut decoder = crate::exposition::Decoder::new(Format::Protobuf, strict());
    let mut batch = chronolith_model::WriteBatch::new(decoder.source());
    decoder.feed(&body, &mut batch).expect("valid");
    assert_eq!(batch.values.len(), 2);
    assert!(!batch.values.iter().any(|value| chronolith_model::sample::is_stale(*value)));
}

fn count_of(decoded: &Decoded) -> usize {
    decoded.samples.len()
}

#[test]
fn chunks_give_the_result_of_the_whole_body() {
    let body = sample_body();
    for options in [options(), strict()] {
        let want = decode(Format::Protobuf, &options, &body);
        assert!(count_of(&want) > 10);
        for len in 1..body.len() {
            assert_eq!(decode_chunks(Format::Protobuf, &options, body.chunks(len)), want, "{len}");
        }
    }
}

#[test]
fn bodies_cut_off_or_with_flipped_bits_never_panic() {
    let body = sample_body();
    let whole = decode(Format::Protobuf, &options(), &body);
    for end in 0..body.len() {
        let decoded = decode(Format::Protobuf, &options(), &body[..end]);
        assert!(whole.samples.starts_with(&decoded.samples), "{end}");
    }
    for at in 0..body.len() {
        for bit in 0..8 {
            let mut bytes = body.clone();
            bytes[at] ^= 1 << bit;
            for options in [options(), strict()] {
                let decoded = decode(Format::Protobuf, &options, &bytes);
                assert!(!decoded.samples.iter().any(|sample| sample.contains("Err")), "{decoded:?}");
            }
        }
    }
}

#[test]
fn a_family_larger_than_a_batch_is_read_in_parts() {
    let metric_count = 2 * crate::exposition::room::SERIES_COUNT_SOFT + 100;
    let metrics: Vec<Message> = (0..metric_count)
        .map(|idx| {
            let value = message().double(1, idx as f64);
            message().labels(&[("i", idx.to_string().as_str())]).message(2, &value)
        })
        .collect();
    let body = [family("g", 1, &metrics), family("c", 0, &[counter(&[], 1.0)])].concat();
    let want = decode(Format::Protobuf, &strict(), &body);
    assert_eq!((want.error.clone(), want.samples.len(), want.metadata.len()), (None, metric_count + 1, 2));
    let rng = Rng::from_seed(8);
    for _ in 0..5 {
        let len = 1 + rng.below(body.len() as u64) as usize;
        assert_eq!(decode_chunks(Format::Protobuf, &strict(), body.chunks(len)), want, "{len}");
    }
}
