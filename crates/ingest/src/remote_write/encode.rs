//! The other direction, for load generators and tests: builds a `prometheus.WriteRequest`.
//!
//! Invariants: fields in the order of their numbers, zero values left out, as Prometheus's own sender writes
//! them.
//! Not here: HTTP.

use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, zigzag};
use chronolith_model::histogram::{Buckets, Count, HistogramOf, Span};
use chronolith_model::{Exemplar, Histogram, MetadataEntry, MetricKind};

/// Builds one request after the other; `clear` keeps the memory.
#[derive(Debug, Clone, Default)]
pub struct RequestEncoder {
    body: Vec<u8>,
    message: Vec<u8>,
    field: Vec<u8>,
}

impl RequestEncoder {
    /// An empty request.
    #[must_use]
    pub fn new() -> RequestEncoder {
        RequestEncoder::default()
    }

    /// Starts the next request.
    pub fn clear(&mut self) {
        self.body.clear();
    }

    /// The request, not compressed.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The request as it is sent: a snappy block.
    ///
    /// # Panics
    /// Beyond 4 GiB.
    #[must_use]
    pub fn compressed(&self) -> Vec<u8> {
        compress(&self.body)
    }

    /// Adds a series with labels in the given order (senders sort by name) and `(milliseconds, value)`
    /// samples.
    pub fn push_series<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        samples: &[(i64, f64)],
    ) {
        self.push_series_with_exemplars(labels, samples, &[]);
    }

    /// As [`RequestEncoder::push_series`], with exemplars.
    pub fn push_series_with_exemplars<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        samples: &[(i64, f64)],
        exemplars: &[Exemplar],
    ) {
        self.message.clear();
        put_labels(&mut self.message, labels);
        self.put_samples(samples);
        for exemplar in exemplars {
            self.field.clear();
            put_labels(&mut self.field, exemplar.labels.iter());
            put_double(&mut self.field, 2, exemplar.value);
            put_int(&mut self.field, 3, exemplar.time_ms.cast_unsigned());
            put_bytes(&mut self.message, 3, &self.field);
        }
        put_bytes(&mut self.body, 1, &self.message);
    }

    /// Adds a series whose label fields were written before by [`put_labels`]: the fast way to send the same
    /// series again and again.
    pub fn push_encoded_series(&mut self, label_fields: &[u8], samples: &[(i64, f64)]) {
        self.message.clear();
        self.message.extend_from_slice(label_fields);
        self.put_samples(samples);
        put_bytes(&mut self.body, 1, &self.message);
    }

    /// Adds a series of native histograms with their times.
    pub fn push_histograms<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        samples: &[(i64, Arc<Histogram>)],
    ) {
        self.message.clear();
        put_labels(&mut self.message, labels);
        for (time, histogram) in samples {
            self.field.clear();
            put_histogram(&mut self.field, *time, 0, histogram);
            put_bytes(&mut self.message, 4, &self.field);
        }
        put_bytes(&mut self.body, 1, &self.message);
    }

    /// Adds a metadata entry.
    pub fn push_metadata(&mut self, entry: &MetadataEntry) {
        self.message.clear();
        put_int(&mut self.message, 1, kind_number(entry.kind));
        for (number, text) in [(2, &entry.metric), (4, &entry.help), (5, &entry.unit)] {
            if !text.is_empty() {
                put_bytes(&mut self.message, number, text.as_bytes());
            }
        }
        put_bytes(&mut self.body, 3, &self.message);
    }

    fn put_samples(&mut self, samples: &[(i64, f64)]) {
        for &(time, value) in samples {
            self.field.clear();
            put_double(&mut self.field, 1, value);
            put_int(&mut self.field, 2, time.cast_unsigned());
            put_bytes(&mut self.message, 2, &self.field);
        }
    }
}

/// Compresses a request body as a snappy block.
///
/// # Panics
/// Beyond 4 GiB.
#[must_use]
pub fn compress(body: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(body).expect("a request is below 4 GiB")
}

/// Appends the label fields of a series.
pub fn put_labels<'a>(out: &mut Vec<u8>, labels: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, value) in labels {
        let text_bytes = |text: &str| 1 + uvarint_bytes(text.len() as u64) + text.len();
        out.push(tag(1, 2));
        put_uvarint(out, (text_bytes(name) + text_bytes(value)) as u64);
        put_bytes(out, 1, name.as_bytes());
        put_bytes(out, 2, value.as_bytes());
    }
}

/// Appends the fields of a histogram; both versions have the same, but 1.0 has no start time.
pub(crate) fn put_histogram(out: &mut Vec<u8>, time_ms: i64, start_ms: i64, histogram: &Histogram) {
    match histogram {
        Histogram::Int(histogram) => {
            // The count field that is present tells integer from float histograms, so zero is written as
            // well.
            out.push(tag(1, 0));
            put_uvarint(out, histogram.count);
            let zero_count = |out: &mut Vec<u8>| {
                out.push(tag(6, 0));
                put_uvarint(out, histogram.zero_count);
            };
            let counts = |out: &mut Vec<u8>, number: u8, side: &Buckets<u64>| {
                let mut packed = Vec::new();
                side.deltas().for_each(|delta| put_uvarint(&mut packed, zigzag(delta)));
                put_unless_empty(out, number, &packed);
            };
            put_shape(out, histogram, zero_count, |out, side| match side {
                Sign::Negative => counts(out, 9, &histogram.negative),
                Sign::Positive => counts(out, 12, &histogram.positive),
            });
        }
        Histogram::Float(histogram) => {
            out.push(tag(2, 1));
            out.extend_from_slice(&histogram.count.to_le_bytes());
            let zero_count = |out: &mut Vec<u8>| {
                out.push(tag(7, 1));
                out.extend_from_slice(&histogram.zero_count.to_le_bytes());
            };
            put_shape(out, histogram, zero_count, |out, side| match side {
                Sign::Negative => put_unless_empty(out, 10, &doubles(&histogram.negative.counts)),
                Sign::Positive => put_unless_empty(out, 13, &doubles(&histogram.positive.counts)),
            });
        }
    }
    put_int(out, 14, histogram.reset_hint() as u64);
    put_int(out, 15, time_ms.cast_unsigned());
    let bounds = match histogram {
        Histogram::Int(histogram) => doubles(&histogram.custom_values),
        Histogram::Float(histogram) => doubles(&histogram.custom_values),
    };
    // Field numbers from 16 on have tags of two bytes.
    if !bounds.is_empty() {
        put_uvarint(out, 16 << 3 | 2);
        put_uvarint(out, bounds.len() as u64);
        out.extend_from_slice(&bounds);
    }
    if start_ms != 0 {
        put_uvarint(out, 17 << 3);
        put_uvarint(out, start_ms.cast_unsigned());
    }
}

enum Sign {
    Negative,
    Positive,
}

/// Appends the fields of both kinds between the total count and the reset hint.
fn put_shape<C: Count>(
    out: &mut Vec<u8>,
    histogram: &HistogramOf<C>,
    zero_count: impl Fn(&mut Vec<u8>),
    counts: impl Fn(&mut Vec<u8>, Sign),
) {
    put_double(out, 3, histogram.sum);
    put_int(out, 4, zigzag(i64::from(histogram.schema)));
    put_double(out, 5, histogram.zero_threshold);
    zero_count(out);
    put_spans(out, 8, &histogram.negative.spans);
    counts(out, Sign::Negative);
    put_spans(out, 11, &histogram.positive.spans);
    counts(out, Sign::Positive);
}

fn put_spans(out: &mut Vec<u8>, number: u8, spans: &[Span]) {
    let mut field = Vec::new();
    for span in spans {
        field.clear();
        put_int(&mut field, 1, zigzag(i64::from(span.offset)));
        put_int(&mut field, 2, u64::from(span.length));
        put_bytes(out, number, &field);
    }
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Appends packed numbers, unless there are none.
pub(crate) fn put_unless_empty(out: &mut Vec<u8>, number: u8, packed: &[u8]) {
    if !packed.is_empty() {
        put_bytes(out, number, packed);
    }
}

/// Appends a length-prefixed field.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(tag(number, 2));
    put_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a double, unless it is the default. Negative zero is not.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u8, value: f64) {
    if value.to_bits() != 0 {
        out.push(tag(number, 1));
        out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
}

/// Appends a varint, unless it is the default.
pub(crate) fn put_int(out: &mut Vec<u8>, number: u8, value: u64) {
    if value != 0 {
        out.push(tag(number, 0));
        put_uvarint(out, value);
    }
}

/// Returns the number of bytes that `put_uvarint` appends.
pub(crate) fn uvarint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

pub(crate) fn tag(number: u8, wire_type: u8) -> u8 {
    debug_assert!(number < 16 && wire_type < 8, "a tag of one byte");
    number << 3 | wire_type
}

pub(super) fn kind_number(kind: MetricKind) -> u64 {
    match kind {
        MetricKind::Unknown => 0,
        MetricKind::Counter => 1,
        MetricKind::Gauge => 2,
        MetricKind::Histogram => 3,
        MetricKind::GaugeHistogram => 4,
        MetricKind::Summary => 5,
        MetricKind::Info => 6,
        MetricKind::StateSet => 7,
    }
}
