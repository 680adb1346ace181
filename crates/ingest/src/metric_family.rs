//! Encoder of `io.prometheus.client.MetricFamily`, the protobuf exposition format, for federation:
//! untyped samples and histograms, with timestamps.
//!
//! Invariants: fields in the order of their numbers, numbers not packed, zero values written out: the
//! messages are proto2, and Prometheus writes them so.
//! Not here: grouping of samples into families, sizes of answers (`server`).

#[cfg(test)]
mod tests;

use chronolith_base::bytes::{put_uvarint, zigzag};
use chronolith_model::Histogram;
use chronolith_model::histogram::{Buckets, Count, HistogramOf, Span};

use crate::remote_write::encode::{put_bytes, put_labels, tag, uvarint_bytes};

/// Type of a family, by its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FamilyType {
    /// Floats of which nothing is known.
    Untyped = 3,
    /// Histograms of counters.
    Histogram = 4,
    /// Histograms of gauges.
    GaugeHistogram = 5,
}

/// Value of a metric.
#[derive(Debug, Clone, Copy)]
pub enum MetricValue<'a> {
    /// A float.
    Untyped(f64),
    /// A native histogram. One with custom bounds is written as a classic histogram, as Prometheus does: the
    /// format has no field for custom bounds.
    Histogram(&'a Histogram),
}

/// Appends the fields of a `Metric`.
pub fn put_metric<'a>(
    out: &mut Vec<u8>,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    time_ms: i64,
    value: MetricValue<'_>,
) {
    put_labels(out, labels);
    let mut field = Vec::new();
    if let MetricValue::Untyped(value) = value {
        put_f64(&mut field, 1, value);
        put_bytes(out, 5, &field);
    }
    put_u64(out, 6, time_ms.cast_unsigned());
    let MetricValue::Histogram(histogram) = value else { return };
    match histogram {
        Histogram::Int(histogram) if histogram.is_custom() => put_classic(&mut field, histogram),
        Histogram::Int(histogram) => put_native(&mut field, histogram),
        Histogram::Float(histogram) if histogram.is_custom() => put_classic(&mut field, histogram),
        Histogram::Float(histogram) => put_native(&mut field, histogram),
    }
    put_bytes(out, 7, &field);
}

/// Bytes that a metric of `metric_bytes` takes within its family.
#[must_use]
pub fn metric_field_bytes(metric_bytes: usize) -> u64 {
    (1 + uvarint_bytes(metric_bytes as u64) + metric_bytes) as u64
}

/// Appends the length of a `MetricFamily` and all of its fields but the metrics, which take `metrics_bytes`
/// (the sum of [`metric_field_bytes`]) and follow by [`put_metric_field`].
pub fn put_family_head(out: &mut Vec<u8>, name: &str, family_type: FamilyType, metrics_bytes: u64) {
    let mut head = Vec::with_capacity(name.len() + 8);
    put_bytes(&mut head, 1, name.as_bytes());
    put_u64(&mut head, 3, family_type as u64);
    put_uvarint(out, head.len() as u64 + metrics_bytes);
    out.extend_from_slice(&head);
}

/// Appends a metric, as [`put_metric`] has written it, to its family.
pub fn put_metric_field(out: &mut Vec<u8>, metric: &[u8]) {
    put_bytes(out, 4, metric);
}

/// Upper bound and cumulative count of each bucket of a histogram with custom bounds, but for the last
/// bucket, which is above all bounds and has the count of all observations.
pub fn classic_buckets<C: Count>(histogram: &HistogramOf<C>) -> impl Iterator<Item = (f64, C)> + '_ {
    let mut buckets = histogram.positive.walk().peekable();
    let mut cumulative = C::default();
    histogram.custom_values.iter().enumerate().map(move |(idx, &bound)| {
        while let Some((_, count)) = buckets.next_if(|(at, _)| usize::try_from(*at).is_ok_and(|at| at <= idx))
        {
            cumulative += count;
        }
        (bound, cumulative)
    })
}

/// Fields that depend on the kind of counts.
trait WireCount: Count {
    const ZERO_COUNT: u8;

    fn put(self, out: &mut Vec<u8>, number: u8);

    /// Appends `count` and what `rest` appends (fields 2 and 3) in the order of their numbers: the count of a
    /// histogram or bucket is field 1 if it is an integer, and field 4 if it is a float.
    fn put_in_order(out: &mut Vec<u8>, count: Self, rest: impl FnOnce(&mut Vec<u8>));

    /// Appends the counts of one sign: integers to field `deltas`, floats to the next one.
    fn put_buckets(buckets: &Buckets<Self>, out: &mut Vec<u8>, deltas: u8);
}

impl WireCount for u64 {
    const ZERO_COUNT: u8 = 7;

    fn put(self, out: &mut Vec<u8>, number: u8) {
        put_u64(out, number, self);
    }

    fn put_in_order(out: &mut Vec<u8>, count: u64, rest: impl FnOnce(&mut Vec<u8>)) {
        put_u64(out, 1, count);
        rest(out);
    }

    fn put_buckets(buckets: &Buckets<u64>, out: &mut Vec<u8>, deltas: u8) {
        buckets.deltas().for_each(|delta| put_u64(out, deltas, zigzag(delta)));
    }
}

impl WireCount for f64 {
    const ZERO_COUNT: u8 = 8;

    fn put(self, out: &mut Vec<u8>, number: u8) {
        put_f64(out, number, self);
    }

    fn put_in_order(out: &mut Vec<u8>, count: f64, rest: impl FnOnce(&mut Vec<u8>)) {
        rest(out);
        put_f64(out, 4, count);
    }

    fn put_buckets(buckets: &Buckets<f64>, out: &mut Vec<u8>, deltas: u8) {
        buckets.counts.iter().for_each(|&count| put_f64(out, deltas + 1, count));
    }
}

/// Appends the fields of a `Histogram` with exponential buckets.
fn put_native<C: WireCount>(out: &mut Vec<u8>, histogram: &HistogramOf<C>) {
    put_totals(out, histogram, |_| {});
    put_u64(out, 5, zigzag(i64::from(histogram.schema)));
    put_f64(out, 6, histogram.zero_threshold);
    histogram.zero_count.put(out, C::ZERO_COUNT);
    put_spans(out, 9, &histogram.negative.spans);
    C::put_buckets(&histogram.negative, out, 10);
    let has_spans = !histogram.positive.spans.is_empty() || !histogram.negative.spans.is_empty();
    if has_spans || histogram.zero_threshold > 0.0 {
        put_spans(out, 12, &histogram.positive.spans);
    } else {
        // Readers take a histogram without spans and zero threshold for a classic one.
        put_spans(out, 12, &[Span { offset: 0, length: 0 }]);
    }
    C::put_buckets(&histogram.positive, out, 13);
}

/// Appends the fields of a `Histogram` with classic buckets, but for the last bucket, which is optional.
fn put_classic<C: WireCount>(out: &mut Vec<u8>, histogram: &HistogramOf<C>) {
    put_totals(out, histogram, |out| {
        let mut bucket = Vec::with_capacity(24);
        for (bound, cumulative) in classic_buckets(histogram) {
            bucket.clear();
            C::put_in_order(&mut bucket, cumulative, |bucket| put_f64(bucket, 2, bound));
            put_bytes(out, 3, &bucket);
        }
    });
}

/// Appends count, sum and what `put_buckets` appends.
fn put_totals<C: WireCount>(
    out: &mut Vec<u8>,
    histogram: &HistogramOf<C>,
    put_buckets: impl FnOnce(&mut Vec<u8>),
) {
    C::put_in_order(out, histogram.count, |out| {
        put_f64(out, 2, histogram.sum);
        put_buckets(out);
    });
}

fn put_spans(out: &mut Vec<u8>, number: u8, spans: &[Span]) {
    let mut field = Vec::new();
    for span in spans {
        field.clear();
        put_u64(&mut field, 1, zigzag(i64::from(span.offset)));
        put_u64(&mut field, 2, u64::from(span.length));
        put_bytes(out, number, &field);
    }
}

/// Appends a varint, zero too.
fn put_u64(out: &mut Vec<u8>, number: u8, value: u64) {
    out.push(tag(number, 0));
    put_uvarint(out, value);
}

/// Appends a double, zero too.
fn put_f64(out: &mut Vec<u8>, number: u8, value: f64) {
    out.push(tag(number, 1));
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}
