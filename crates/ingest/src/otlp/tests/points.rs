//! Kinds of points: values, temporality, reasons of rejects, resources.

use chronolith_base::Rng;
use chronolith_model::histogram::{Buckets, SCHEMA_MAX, Span};
use chronolith_model::sample;
use chronolith_model::{Histogram, IntHistogram, MetricKind};

use super::text::text;
use super::{Decoder, MessageEncoder, TIME_NS, list, metric, number, request, service};
use crate::otlp::{OtlpSettings, PointReject, QUOTED_COUNT_MAX, Refused, TARGET_INFO_COUNT_MAX};

const GAUGE: u64 = 5;
const SUM: u64 = 7;
const HISTOGRAM: u64 = 9;
const EXPONENTIAL: u64 = 10;
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

fn decode(settings: OtlpSettings, body: MessageEncoder) -> (Decoder, Refused) {
    let mut decoder = Decoder::new(settings);
    let refused = decoder.decode(&body.into_bytes()).expect("a request");
    (decoder, refused)
}

/// Decodes one metric of a service with the settings of Prometheus.
fn decode_metric(field: u64, list: MessageEncoder) -> (Decoder, Refused) {
    decode(OtlpSettings::default(), request(service("shop"), [metric("m", field, list)]))
}

#[test]
fn deltas_are_apart_from_cumulative_points() {
    let start = TIME_NS - 10_000_000_000;
    let point = || number(3.0).fixed64(2, start);
    let metrics = [
        metric("delta", SUM, list([point()], DELTA).varint(3, 1)),
        metric("requests", SUM, list([point()], CUMULATIVE).varint(3, 1)),
        metric("now", GAUGE, MessageEncoder::new().message(1, number(1.0))),
    ];
    let (decoder, refused) = decode(OtlpSettings::default(), request(service("shop"), metrics));
    assert_eq!((refused.delta_point_count, refused.point_count()), (1, 0));
    let deltas = text(&[&decoder.out.deltas]);
    assert_eq!(deltas.series, [r#"{__name__="delta_total", job="shop"}"#]);
    assert_eq!(decoder.out.deltas.start_times, [1_699_999_990_000]);
    let cumulative = text(&[&decoder.out.cumulative]);
    let want = [r#"{__name__="now", job="shop"}"#, r#"{__name__="requests_total", job="shop"}"#];
    assert_eq!(cumulative.series, want);
    let kinds: Vec<MetricKind> = decoder.out.cumulative.metadata.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [MetricKind::Counter, MetricKind::Counter, MetricKind::Gauge]);
}

/// A caller without an accumulator rejects deltas by count: a point of several series is one, a rejected or
/// cumulative one is none.
#[test]
fn points_of_deltas_are_counted_once() {
    let explicit = || MessageEncoder::new().fixed64(3, TIME_NS).double(7, 1.0).fixed64(6, 0).fixed64(6, 0);
    let bad = || explicit().attribute(9, "...", "v");
    let metrics = [
        metric("delta", HISTOGRAM, list([explicit(), bad(), explicit()], DELTA)),
        metric("sum", SUM, list([number(1.0)], DELTA)),
        metric("cumulative", HISTOGRAM, list([explicit()], CUMULATIVE)),
    ];
    let (decoder, refused) = decode(OtlpSettings::default(), request(service("shop"), metrics));
    assert_eq!((refused.delta_point_count, refused.point_count()), (3, 1));
    assert_eq!(decoder.out.deltas.series.len(), 7, "count and two buckets of two points, and a sum");
}

#[test]
fn each_reason_is_counted_and_the_other_points_are_stored() {
    let check = |field: u64, bad: MessageEncoder, reason: PointReject| {
        let (decoder, refused) = decode_metric(field, bad);
        assert_eq!(refused.of(reason), 1, "{reason:?} {refused:?}");
        assert_eq!(refused.point_count(), 1, "{reason:?}");
        assert!(refused.first[0].contains(reason.message()), "{:?}", refused.first);
        assert_eq!(decoder.out.cumulative.series.len(), 1, "{reason:?}: the good point is stored");
        assert_eq!(decoder.out.cumulative.times, [1_700_000_000_000], "{reason:?}");
    };
    let gauge = |bad: MessageEncoder| list([bad, number(1.0)], 0);
    let many = (0..1_025).fold(number(2.0), |point, idx| point.attribute(7, &format!("a{idx}"), "v"));
    check(GAUGE, gauge(many), PointReject::TooManyAttributes);
    check(GAUGE, gauge(number(2.0).attribute(7, "...", "v")), PointReject::InvalidLabelName);
    check(GAUGE, gauge(number(2.0).bytes(7, b"\x0a\x01\xff")), PointReject::InvalidUtf8);
    check(GAUGE, gauge(number(2.0).bytes(7, b"\x0a\x09")), PointReject::Malformed);
    check(GAUGE, gauge(MessageEncoder::new().fixed64(3, TIME_NS)), PointReject::NoValue);
    check(GAUGE, gauge(MessageEncoder::new().double(4, 1.0)), PointReject::NoTime);
    let long = "v".repeat(1 << 20);
    check(GAUGE, gauge(number(2.0).attribute(7, "a", &long)), PointReject::LabelsTooLong);
    let deep = (0..17).fold(MessageEncoder::new().varint(2, 1), |value, _| {
        MessageEncoder::new().message(5, MessageEncoder::new().message(1, value))
    });
    let deep = MessageEncoder::new().bytes(1, "a").message(2, deep);
    check(GAUGE, gauge(number(2.0).message(7, deep)), PointReject::AttributeTooDeep);
    let exponential =
        |count: u64, scale: i64| MessageEncoder::new().fixed64(3, TIME_NS).fixed64(4, count).signed(6, scale);
    let two = |bad: MessageEncoder| list([bad, exponential(0, 0)], CUMULATIVE);
    check(EXPONENTIAL, two(exponential(0, -5)), PointReject::ScaleTooLow);
    check(EXPONENTIAL, two(exponential(1, 0)), PointReject::HistogramInvalid);
}

#[test]
fn metrics_at_fault_are_counted_by_their_points() {
    let metrics = [
        metric("...", GAUGE, list([number(1.0), number(2.0)], 0)),
        metric("sum", SUM, list([number(1.0), number(2.0), number(3.0)], 0)),
        metric("good", GAUGE, list([number(1.0)], 0)),
    ];
    let (decoder, refused) = decode(OtlpSettings::default(), request(service("shop"), metrics));
    assert_eq!(refused.of(PointReject::InvalidMetricName), 2);
    assert_eq!(refused.of(PointReject::NoTemporality), 3);
    assert_eq!(refused.point_count(), 5);
    assert_eq!(decoder.out.cumulative.series.len(), 1);
    let texts = [
        "metric \"...\": metric name has no character that can be kept",
        "metric \"sum\": aggregation temporality is neither cumulative nor delta",
    ];
    assert_eq!(refused.first, texts);
}

#[test]
fn quoted_reasons_are_bounded() {
    let metrics = (0..100).map(|idx| metric(&format!("m{idx}"), SUM, list([number(1.0)], 0)));
    let (_, refused) = decode(OtlpSettings::default(), request(service("shop"), metrics));
    assert_eq!((refused.point_count(), refused.first.len()), (100, QUOTED_COUNT_MAX));
}

#[test]
fn a_point_without_recorded_value_is_a_staleness_marker() {
    let stale = |point: MessageEncoder, flags: u64| point.fixed64(3, TIME_NS).varint(flags, 1);
    let (decoder, refused) = decode_metric(GAUGE, list([stale(MessageEncoder::new(), 8)], 0));
    assert_eq!(refused.point_count(), 0);
    assert!(sample::is_stale(decoder.out.cumulative.values[0]));
    let explicit = MessageEncoder::new().double(7, 1.0).fixed64(6, 0).fixed64(6, 0).double(5, 0.0);
    let (decoder, _) = decode_metric(HISTOGRAM, list([stale(explicit, 10)], CUMULATIVE));
    assert_eq!(decoder.out.cumulative.values.len(), 4);
    assert!(decoder.out.cumulative.values.iter().all(|value| sample::is_stale(*value)));
    let (decoder, _) = decode_metric(EXPONENTIAL, list([stale(MessageEncoder::new(), 10)], CUMULATIVE));
    assert!(
        matches!(&*decoder.out.cumulative.histograms[0].1, histogram if sample::is_stale(histogram.sum()))
    );
}

#[test]
fn integers_that_a_float_rounds_are_counted_and_stored() {
    let int = |value: i64| MessageEncoder::new().fixed64(3, TIME_NS).fixed64(6, value.cast_unsigned());
    let points = [int(1 << 53), int((1 << 53) + 1), int(i64::MAX), int(i64::MIN)];
    let (decoder, refused) = decode_metric(GAUGE, list(points, 0));
    assert_eq!(refused.rounded_count, 2);
    assert_eq!(
        decoder.out.cumulative.values,
        [9007199254740992.0, 9007199254740992.0, 9223372036854775807.0, -9223372036854775808.0]
    );
}

/// Scale 10 has four buckets for one of scale 8; the zero threshold is the sender's.
#[test]
fn fine_scales_are_merged_down_and_the_zero_threshold_is_kept() {
    let side = MessageEncoder::new().signed(1, -5).bytes(2, [1, 2, 3, 4, 5, 6]);
    let point = MessageEncoder::new()
        .double(14, 0.25)
        .message(8, side)
        .fixed64(7, 9)
        .signed(6, 10)
        .fixed64(4, 30)
        .fixed64(3, TIME_NS);
    let (decoder, refused) = decode_metric(EXPONENTIAL, list([point], CUMULATIVE));
    assert_eq!(refused.first, Vec::<String>::new());
    let Histogram::Int(histogram) = &*decoder.out.cumulative.histograms[0].1 else { panic!("integers") };
    assert_eq!((histogram.schema, histogram.zero_threshold, histogram.zero_count), (8, 0.25, 9));
    // Indices -5 | -4 to -1 | 0 become -2, -1 and 0, which native histograms number from their upper bound.
    assert_eq!(histogram.positive.walk().collect::<Vec<_>>(), [(-1, 1), (0, 14), (1, 6)]);
}

/// Merging down equals the resolution reduction that storage and queries use.
#[test]
fn random_fine_scales_equal_a_reduced_resolution() {
    let rng = Rng::from_seed(11);
    for _ in 0..500 {
        let scale = SCHEMA_MAX + 1 + rng.below(12) as i32;
        let side = || -> (i64, Vec<u64>) {
            let counts = (0..rng.below(160)).map(|_| rng.below(3) * rng.below(1_000)).collect();
            (rng.below(4_000) as i64 - 2_000, counts)
        };
        let positive = side();
        let negative = side();
        let count = positive.1.iter().chain(&negative.1).sum();
        let sum = rng.below(1 << 40) as f64 / 64.0;
        let message = |(offset, counts): &(i64, Vec<u64>)| {
            counts.iter().fold(MessageEncoder::new().signed(1, *offset), |side, count| side.varint(2, *count))
        };
        let point = MessageEncoder::new()
            .fixed64(3, TIME_NS)
            .fixed64(4, count)
            .double(5, sum)
            .signed(6, scale.into())
            .message(8, message(&positive))
            .message(9, message(&negative));
        let (decoder, refused) = decode_metric(EXPONENTIAL, list([point], CUMULATIVE));
        assert_eq!(refused, Refused::default());
        let buckets = |(offset, counts): (i64, Vec<u64>)| {
            let span = Span { offset: offset as i32 + 1, length: counts.len() as u32 };
            Buckets { spans: vec![span], counts }
        };
        let mut want = Histogram::Int(IntHistogram {
            schema: scale,
            zero_threshold: 1e-128,
            count,
            sum,
            positive: buckets(positive),
            negative: buckets(negative),
            ..IntHistogram::default()
        });
        want.reduce_resolution(SCHEMA_MAX).expect("spans and counts match");
        let found = &decoder.out.cumulative.histograms[0].1;
        assert!(found.is_equivalent(&want), "{found:?} {want:?}");
    }
}

#[test]
fn resources_without_a_service_are_counted_or_get_an_instance() {
    let resource = || MessageEncoder::new().attribute(1, "host.id", "h1").attribute(1, "k8s.pod.uid", "p");
    let body = || request(resource(), [metric("m", GAUGE, list([number(1.0), number(2.0)], 0))]);
    let (decoder, refused) = decode(OtlpSettings::default(), body());
    assert_eq!(text(&[&decoder.out.cumulative]).series, [r#"{__name__="m"}"#]);
    assert_eq!((refused.resource_without_target_count, refused.point_without_target_count), (1, 2));
    let instance_from = ["none", "k8s.pod.uid", "host.id"].map(str::to_owned).to_vec();
    let (decoder, refused) = decode(OtlpSettings { instance_from, ..OtlpSettings::default() }, body());
    let want = [
        r#"{__name__="m", instance="p"}"#,
        r#"{__name__="target_info", host_id="h1", instance="p", k8s_pod_uid="p"}"#,
    ];
    assert_eq!(text(&[&decoder.out.cumulative]).series, want);
    assert_eq!((refused.resource_without_target_count, refused.point_without_target_count), (0, 0));
}

/// Two points 55 years apart would make 11 million samples of `target_info`.
#[test]
fn samples_of_target_info_are_bounded() {
    let early = MessageEncoder::new().fixed64(3, 1_000_000_000).double(4, 1.0);
    let resource = service("shop").attribute(1, "host.id", "h");
    let body = request(resource, [metric("m", GAUGE, list([early, number(1.0)], 0))]);
    let (decoder, refused) = decode(OtlpSettings::default(), body);
    let batch = &decoder.out.cumulative;
    let target = batch.series.last().expect("a series").samples.clone();
    assert_eq!(target.len() as i64, TARGET_INFO_COUNT_MAX);
    let times = &batch.times[target.start as usize..target.end as usize];
    assert_eq!(times.last(), Some(&1_700_000_000_000));
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 150_000 && pair[0] < pair[1]));
    assert_eq!(refused.target_info_count, 1_699_999_999 / 150 + 2 - TARGET_INFO_COUNT_MAX as u64);
}

/// Attributes with another field between them name the same series.
#[test]
fn scattered_attributes_name_the_same_series() {
    let joined = number(1.0).attribute(7, "a", "1").attribute(7, "b", "2");
    let scattered = MessageEncoder::new()
        .attribute(7, "a", "1")
        .fixed64(3, TIME_NS)
        .attribute(7, "b", "2")
        .double(4, 1.0);
    for _ in 0..2 {
        let (decoder, _) = decode_metric(GAUGE, list([joined.clone(), scattered.clone()], 0));
        let batch = &decoder.out.cumulative;
        assert_eq!(batch.raw_of(&batch.series[0]), batch.raw_of(&batch.series[1]));
    }
    let other = MessageEncoder::new()
        .attribute(7, "a", "1")
        .fixed64(3, TIME_NS)
        .attribute(7, "b", "3")
        .double(4, 1.0);
    let (decoder, _) = decode_metric(GAUGE, list([scattered, other], 0));
    let batch = &decoder.out.cumulative;
    assert_ne!(batch.raw_of(&batch.series[0]), batch.raw_of(&batch.series[1]));
}

#[test]
fn exemplars_at_fault_are_counted_and_their_point_is_stored() {
    let exemplar = |id: &[u8]| MessageEncoder::new().double(3, 1.0).bytes(5, id);
    let point = number(1.0)
        .message(5, exemplar(&[1; 16]))
        .message(5, exemplar(&[1; 15]))
        .message(5, MessageEncoder::new().fixed64(2, TIME_NS))
        .message(5, exemplar(&[0; 16]).attribute(7, "a", "1").attribute(7, "a", "2"));
    let (decoder, refused) = decode_metric(SUM, list([point], CUMULATIVE));
    assert_eq!((refused.point_count(), refused.exemplars.total()), (0, 3));
    assert_eq!(decoder.out.cumulative.exemplars.len(), 1);
    assert_eq!(decoder.out.cumulative.exemplars[0].exemplar.time_ms, 1_700_000_000_000);
}
