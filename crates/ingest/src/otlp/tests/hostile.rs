//! Hostile bytes: cut off, flipped bits, nesting, JSON that is none. No panic, and good points are stored.

use std::collections::BTreeSet;

use super::text::text;
use super::{Decoder, MessageEncoder, TIME_NS, list, metric, number, request, service};
use crate::otlp::{JsonError, OtlpSettings, PointReject};
use crate::remote_write::DecodeError;

/// A resource with a metric of each type.
fn resource(name: &str) -> MessageEncoder {
    let exemplar = MessageEncoder::new().double(3, 0.5).bytes(5, [1; 16]).attribute(7, "user", "u");
    let attributes =
        |point: MessageEncoder, field: u64| point.attribute(field, "a.b", "x").attribute(field, "c", "y");
    let explicit = MessageEncoder::new()
        .fixed64(3, TIME_NS)
        .fixed64(4, 3)
        .double(5, 2.5)
        .packed(6, [1, 2])
        .packed(7, [1.0f64.to_bits()])
        .message(8, exemplar.clone());
    let exponential = MessageEncoder::new()
        .fixed64(3, TIME_NS)
        .fixed64(4, 6)
        .signed(6, 9)
        .message(8, MessageEncoder::new().signed(1, -3).bytes(2, [1, 2, 3]))
        .message(11, exemplar.clone());
    let quantile = MessageEncoder::new().double(1, 0.5).double(2, 3.0);
    let summary = MessageEncoder::new().fixed64(3, TIME_NS).fixed64(4, 1).double(5, 3.0).message(6, quantile);
    let metrics = [
        metric("gauge", 5, list([attributes(number(1.0), 7)], 0)).bytes(2, "help").bytes(3, "By"),
        metric("sum", 7, list([attributes(number(2.0), 7).message(5, exemplar)], 2).varint(3, 1)),
        metric("explicit", 9, list([attributes(explicit, 9)], 2)),
        metric("exponential", 10, list([attributes(exponential, 1)], 2)),
        metric("summary", 11, list([attributes(summary, 7)], 0)),
    ];
    request(service(name).attribute(1, "host.id", "h"), metrics)
}

fn settings() -> OtlpSettings {
    OtlpSettings {
        promote_all_resource_attributes: true,
        promote_scope_metadata: true,
        ..OtlpSettings::default()
    }
}

/// A body that is cut off stores nothing, unless the cut is between two resources.
#[test]
fn a_body_that_is_cut_off_is_refused() {
    let first = resource("one").into_bytes();
    let body = [first.clone(), resource("two").into_bytes()].concat();
    for len in 0..body.len() {
        let mut decoder = Decoder::new(settings());
        let result = decoder.decode(&body[..len]);
        let is_whole = len == 0 || len == first.len();
        assert_eq!(result.is_ok(), is_whole, "{len} bytes");
        assert!(is_whole || matches!(result, Err(DecodeError::Protobuf(_))), "{len} bytes: {result:?}");
        assert_eq!(decoder.out.cumulative.series.is_empty(), len != first.len(), "{len} bytes");
    }
}

/// Each bit of the resource in the middle is flipped: its neighbours are stored, whatever it becomes.
#[test]
fn flipped_bits_of_a_resource_leave_the_others() {
    let resources = ["one", "two", "three"].map(|name| resource(name).into_bytes());
    let mut decoder = Decoder::new(settings());
    let body = resources.concat();
    decoder.decode(&body).expect("a request");
    let keys = |decoder: &Decoder| -> BTreeSet<Vec<u8>> {
        let batch = &decoder.out.cumulative;
        batch.series.iter().map(|series| batch.raw_of(series).to_vec()).collect()
    };
    let mut want = keys(&decoder);
    assert_eq!(want.len(), 33, "eleven series of each resource");
    want.retain(|key| !key.windows(3).any(|text| text == b"two"));
    assert_eq!(want.len(), 22, "all series have the name of their service");
    // Tag and length of the resource are framing of the request.
    let start = resources[0].len() + 3;
    let end = resources[0].len() + resources[1].len();
    let mut rejected_count = 0;
    for bit in start * 8..end * 8 {
        let mut flipped = body.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refused = decoder.decode(&flipped).expect("framing of the request is whole");
        rejected_count += refused.point_count();
        assert!(keys(&decoder).is_superset(&want), "bit {bit}");
    }
    assert!(rejected_count > 1_000, "{rejected_count} points");
}

#[test]
fn flipped_bits_of_a_request_never_panic() {
    let body = resource("one").into_bytes();
    let mut decoder = Decoder::new(OtlpSettings { convert_histograms_to_nhcb: true, ..settings() });
    let mut error_count = 0;
    for bit in 0..body.len() * 8 {
        let mut flipped = body.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        error_count += u32::from(decoder.decode(&flipped).is_err());
    }
    assert!(error_count > 0, "some bits are framing of the request");
}

#[test]
fn nesting_does_not_use_up_the_stack() {
    let mut value = MessageEncoder::new().varint(2, 1);
    for depth in 0..2_000 {
        let inner = if depth % 2 == 0 {
            MessageEncoder::new().message(5, MessageEncoder::new().message(1, value))
        } else {
            let pair = MessageEncoder::new().bytes(1, "k").message(2, value);
            MessageEncoder::new().message(6, MessageEncoder::new().message(1, pair))
        };
        value = inner;
    }
    let attribute = MessageEncoder::new().bytes(1, "a").message(2, value);
    let body = request(service("one"), [metric("m", 5, list([number(1.0).message(7, attribute)], 0))]);
    let mut decoder = Decoder::new(settings());
    let refused = decoder.decode(&body.into_bytes()).expect("a request");
    assert_eq!(refused.of(PointReject::AttributeTooDeep), 1);
    let json = format!("{{\"resourceMetrics\": {}", "[{\"resource\": ".repeat(10_000));
    assert!(matches!(decoder.decode_json(json.as_bytes()), Err(JsonError::Json(_))));
    let arrays = "{\"arrayValue\": {\"values\": [".repeat(10_000);
    let json = format!(
        "{{\"resourceMetrics\": [{{\"resource\": {{\"attributes\": [{{\"key\": \"a\", \"value\": {arrays}"
    );
    let error = decoder.decode_json(json.as_bytes()).expect_err("nesting is bounded").to_string();
    assert!(error.contains("recursion limit exceeded at line 1"), "{error}");
}

#[test]
fn faults_of_json_have_line_and_column() {
    let check = |body: &str, want: &str| {
        let mut decoder = Decoder::new(settings());
        let error = decoder.decode_json(body.as_bytes()).expect_err(body).to_string();
        assert!(error.starts_with("json: ") && error.contains(want), "{error}");
        assert!(decoder.out.cumulative.series.is_empty());
    };
    check("", "line 1 column 0");
    check("[]", "expected an object with the fields of ExportMetricsServiceRequest at line 1 column 0");
    check("{\"resourceMetrics\":\n {}}", "expected an array for resourceMetrics at line 2 column 1");
    check(
        "{\"resourceMetrics\": [{\"resource\": 1}]}",
        "resource has a number, expected an object at line 1",
    );
    check("{} x", "trailing characters at line 1 column 4");
}

/// Numbers as texts, floats for integers, other fields and `null` are read as protobuf's JSON has them.
#[test]
fn json_has_numbers_in_several_forms() {
    let body = r#"{"other": [1, {"a": null}], "resourceMetrics": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": "shop"}}, {"key": "n", "value": {"intValue": "-7"}}]},
        "scopeMetrics": [{"scope": null, "metrics": [{"name": "m", "unit": "1", "gauge": {"dataPoints": [
        {"timeUnixNano": "1700000000000000000", "asInt": "-3", "flags": 0},
        {"timeUnixNano": 1700000000000000000, "asInt": 4.0, "attributes": [{"key": "i", "value": {"intValue": 5}}]},
        {"timeUnixNano": "1700000000000000000", "asDouble": "NaN", "attributes": [{"key": "d", "value": {"doubleValue": 1e21}}]}
        ]}}]}]}]}"#;
    let mut decoder = Decoder::new(settings());
    let refused = decoder.decode_json(body.as_bytes()).expect("a request");
    assert_eq!(refused.first, Vec::<String>::new());
    let found = text(&[&decoder.out.cumulative]);
    let want = [
        r#"{__name__="m_ratio", d="1e+21", job="shop", n="-7", service_name="shop"}"#,
        r#"{__name__="m_ratio", i="5", job="shop", n="-7", service_name="shop"}"#,
        r#"{__name__="m_ratio", job="shop", n="-7", service_name="shop"}"#,
        r#"{__name__="target_info", job="shop", n="-7"}"#,
    ];
    assert_eq!(found.series, want);
    assert!(found.samples[1].ends_with("4010000000000000") && found.samples[2].ends_with("c008000000000000"));
}

/// A request whose keys would be larger than a request may become.
#[test]
fn labels_of_a_large_resource_are_bounded() {
    let resource = service("shop").attribute(1, "big", &"x".repeat(900_000));
    let points = (0..100).map(|idx| number(1.0).attribute(7, "i", &idx.to_string()));
    let body = request(resource, [metric("m", 5, list(points, 0))]).into_bytes();
    let mut decoder = Decoder::new(settings());
    let error = decoder.decode(&body).expect_err("90 MB of keys");
    assert!(error.to_string().starts_with("request with the labels of its series of 3"), "{error}");
    assert!(decoder.out.cumulative.series.is_empty() && decoder.out.cumulative.raw.is_empty());
}
