//! The encoder against messages that Go wrote with Prometheus's own types. Tests of federation are in
//! `server`.

use chronolith_model::{FloatHistogram, IntHistogram};

use super::*;

const GOLDEN: &[u8] = include_bytes!("../../testdata/metric_family/families.bin");
const TIME: i64 = 1_700_000_000_000;

fn side(spans: &[(i32, u32)], counts: &[u64]) -> Buckets<u64> {
    let spans = spans.iter().map(|&(offset, length)| Span { offset, length }).collect();
    Buckets { spans, counts: counts.to_vec() }
}

fn exponential() -> IntHistogram {
    IntHistogram {
        schema: -1,
        count: 21,
        sum: 18.5,
        zero_threshold: 0.25,
        zero_count: 2,
        positive: side(&[(-2, 2), (3, 3)], &[1, 3, 1, 2, 1]),
        negative: side(&[(4, 2)], &[5, 6]),
        ..IntHistogram::default()
    }
}

fn custom() -> IntHistogram {
    IntHistogram {
        schema: -53,
        count: 7,
        sum: 2.5,
        // The last bucket is above all bounds.
        positive: side(&[(0, 1), (1, 2)], &[2, 4, 1]),
        custom_values: [0.5, 1.0, 2.5].into(),
        ..IntHistogram::default()
    }
}

type Metric<'a> = (&'a [(&'a str, &'a str)], i64, MetricValue<'a>);

fn put_family(out: &mut Vec<u8>, name: &str, family_type: FamilyType, metrics: &[Metric<'_>]) {
    let messages: Vec<Vec<u8>> = metrics
        .iter()
        .map(|(labels, time_ms, value)| {
            let mut message = Vec::new();
            put_metric(&mut message, labels.iter().copied(), *time_ms, *value);
            message
        })
        .collect();
    let bytes = messages.iter().map(|message| metric_field_bytes(message.len())).sum();
    put_family_head(out, name, family_type, bytes);
    messages.iter().for_each(|message| put_metric_field(out, message));
}

#[test]
fn families_are_written_as_go_writes_them() {
    let mut out = Vec::new();
    let up: [Metric<'_>; 2] = [
        (&[("job", "a"), ("instance", "")], TIME, MetricValue::Untyped(0.0)),
        (&[], -5, MetricValue::Untyped(-1.5)),
    ];
    put_family(&mut out, "up", FamilyType::Untyped, &up);
    let ints = [exponential(), custom()].map(Histogram::Int);
    let floats = [exponential().to_float(), custom().to_float()].map(Histogram::Float);
    for (name, family_type, histograms) in
        [("h", FamilyType::Histogram, ints), ("g", FamilyType::GaugeHistogram, floats)]
    {
        let metrics = histograms
            .each_ref()
            .map(|histogram| -> Metric<'_> { (&[], TIME, MetricValue::Histogram(histogram)) });
        put_family(&mut out, name, family_type, &metrics);
    }
    assert_eq!(out, GOLDEN);
}

#[test]
fn cumulative_counts_end_at_the_last_bound() {
    let found: Vec<_> = classic_buckets(&custom()).collect();
    assert_eq!(found, [(0.5, 2), (1.0, 2), (2.5, 6)]);
    // Buckets outside of the bounds are no reason to panic.
    let odd = FloatHistogram {
        positive: Buckets { spans: vec![Span { offset: -2, length: 9 }], counts: vec![1.0; 9] },
        ..custom().to_float()
    };
    assert_eq!(classic_buckets(&odd).count(), 3);
    assert_eq!(classic_buckets(&IntHistogram::default()).count(), 0);
}
