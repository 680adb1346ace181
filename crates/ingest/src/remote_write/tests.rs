//! The decoder against a slow one that shares no code with it, and against damage of every kind.
//! Histograms are looked at in `histogram::tests`, but for what both decoders make of damaged ones.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{MemoryBudget, Rng};
use chronolith_model::histogram::{Buckets, ResetHint, Span};
use chronolith_model::{
    BatchSeries, Exemplar, FloatHistogram, Histogram, IntHistogram, Labels, LabelsBuilder, MetadataEntry,
    MetricKind, Reject, WriteBatch,
};

use super::encode::{RequestEncoder, compress, put_labels};
use super::*;

const LIMIT: usize = 32 << 20;

type Parts<'a> = &'a [&'a [u8]];
/// Labels as they come, float samples, valid histograms as text.
type SaidSeries = (Pairs, Vec<(i64, u64)>, Vec<String>);
type Pairs = Vec<(String, String)>;

/// Content of a request in owned form; values as their bits.
#[derive(Debug, Default, PartialEq)]
struct Said {
    series: Vec<SaidSeries>,
    /// Index of the series, labels, bits of the value, time.
    exemplars: Vec<(u32, Labels, u64, i64)>,
    metadata: Vec<MetadataEntry>,
    invalid_histograms: u64,
}

pub(super) enum Field<'a> {
    Int(u64),
    Double(u64),
    Bytes(&'a [u8]),
    Other,
}

fn slow_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u128;
    for i in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u128::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return u64::try_from(value).ok();
        }
    }
    None
}

/// All fields of one message, first to last.
pub(super) fn slow_fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = slow_varint(&mut bytes)?;
        if tag >> 3 == 0 || tag >> 32 != 0 {
            return None;
        }
        let field = match tag & 7 {
            0 => Field::Int(slow_varint(&mut bytes)?),
            1 => {
                let (head, rest) = bytes.split_at_checked(8)?;
                bytes = rest;
                Field::Double(u64::from_le_bytes(head.try_into().ok()?))
            }
            2 => {
                let len = usize::try_from(slow_varint(&mut bytes)?).ok()?;
                let (head, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                Field::Bytes(head)
            }
            5 => {
                bytes = bytes.split_at_checked(4)?.1;
                Field::Other
            }
            _ => return None,
        };
        out.push((tag >> 3, field));
    }
    Some(out)
}

/// Numbers of a repeated field of varints: packed or one by one.
pub(super) fn slow_varints(content: &Field<'_>, out: &mut Vec<u64>) -> Option<()> {
    match content {
        Field::Int(number) => out.push(*number),
        Field::Bytes(packed) => {
            let mut rest = *packed;
            while !rest.is_empty() {
                out.push(slow_varint(&mut rest)?);
            }
        }
        _ => return None,
    }
    Some(())
}

fn slow_doubles(content: &Field<'_>, out: &mut Vec<f64>) -> Option<()> {
    match content {
        Field::Double(bits) => out.push(f64::from_bits(*bits)),
        Field::Bytes(packed) if packed.len().is_multiple_of(8) => {
            out.extend(packed.chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())));
        }
        _ => return None,
    }
    Some(())
}

fn slow_zigzag(number: u64) -> i64 {
    if number.is_multiple_of(2) { (number / 2).cast_signed() } else { -((number / 2).cast_signed()) - 1 }
}

/// Fields of a histogram by their numbers; lists by sign, positive first.
#[derive(Default)]
struct SlowHistogram {
    is_float: bool,
    ints: [u64; 18],
    floats: [f64; 18],
    spans: [Vec<Span>; 2],
    deltas: [Vec<u64>; 2],
    counts: [Vec<f64>; 2],
    bounds: Vec<f64>,
}

fn slow_histogram_fields(bytes: &[u8]) -> Option<SlowHistogram> {
    let mut out = SlowHistogram::default();
    for (number, content) in slow_fields(bytes)? {
        let at = number as usize;
        match (number, &content) {
            (1 | 4 | 6 | 14 | 15 | 17, Field::Int(v)) => out.ints[at] = *v,
            (2 | 3 | 5 | 7, Field::Double(v)) => out.floats[at] = f64::from_bits(*v),
            (8 | 11, Field::Bytes(b)) => {
                let mut span = Span::default();
                for field in slow_fields(b)? {
                    match field {
                        (1, Field::Int(v)) => span.offset = slow_zigzag(v % (1 << 32)) as i32,
                        (2, Field::Int(v)) => span.length = v as u32,
                        (1 | 2, _) => return None,
                        _ => {}
                    }
                }
                out.spans[usize::from(number == 8)].push(span);
            }
            (9 | 12, content) => slow_varints(content, &mut out.deltas[usize::from(number == 9)])?,
            (10 | 13, content) => slow_doubles(content, &mut out.counts[usize::from(number == 10)])?,
            (16, content) => slow_doubles(content, &mut out.bounds)?,
            (1..=17, _) => return None,
            _ => {}
        }
        match number {
            1 => out.is_float = false,
            2 => out.is_float = true,
            6 => out.floats[7] = 0.0,
            7 => out.ints[6] = 0,
            _ => {}
        }
    }
    Some(out)
}

fn slow_absolute(deltas: &[u64]) -> Option<Vec<u64>> {
    let mut count = 0i128;
    let counts = deltas.iter().map(|&delta| {
        count += i128::from(slow_zigzag(delta));
        u64::try_from(count).ok().filter(|count| *count <= u64::MAX / 2)
    });
    counts.collect()
}

/// Time and text of a histogram; the inner `None` if it is not valid, the outer if the message is bad.
#[expect(clippy::option_option, reason = "a bad message and a bad histogram are different things")]
pub(super) fn slow_histogram(bytes: &[u8]) -> Option<Option<(i64, String)>> {
    let SlowHistogram { is_float, ints, floats, spans, deltas, counts, bounds } =
        slow_histogram_fields(bytes)?;
    let (schema, time, start) =
        (slow_zigzag(ints[4] % (1 << 32)) as i32, ints[15].cast_signed(), ints[17].cast_signed());
    let reset_hint = ResetHint::from_number(ints[14]).unwrap_or(ResetHint::Unknown);
    let (zero_threshold, sum, custom_values) = (floats[5], floats[3], bounds.into());
    let [positive, negative] = spans;
    let mut histogram = if is_float {
        let [above, below] = counts;
        Histogram::Float(FloatHistogram {
            reset_hint,
            schema,
            zero_threshold,
            zero_count: floats[7],
            count: floats[2],
            sum,
            positive: Buckets { spans: positive, counts: above },
            negative: Buckets { spans: negative, counts: below },
            custom_values,
        })
    } else {
        let (Some(above), Some(below)) = (slow_absolute(&deltas[0]), slow_absolute(&deltas[1])) else {
            return Some(None);
        };
        Histogram::Int(IntHistogram {
            reset_hint,
            schema,
            zero_threshold,
            zero_count: ints[6],
            count: ints[1],
            sum,
            positive: Buckets { spans: positive, counts: above },
            negative: Buckets { spans: negative, counts: below },
            custom_values,
        })
    };
    if (9..=52).contains(&schema) && histogram.reduce_resolution(8).is_err() {
        return Some(None);
    }
    let valid = histogram.validate().is_ok();
    Some(valid.then(|| (time, format!("{time} {start} {histogram:?}"))))
}

/// A label: `None` within if it is not UTF-8.
#[expect(clippy::option_option, reason = "a bad message and a bad text are different things")]
fn slow_label(bytes: &[u8]) -> Option<Option<(String, String)>> {
    let (mut name, mut value) = (&[][..], &[][..]);
    for field in slow_fields(bytes)? {
        match field {
            (1, Field::Bytes(b)) => name = b,
            (2, Field::Bytes(b)) => value = b,
            (1 | 2, _) => return None,
            _ => {}
        }
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(text(name).zip(text(value)))
}

/// Labels of an exemplar that is stored: UTF-8, each name once, none empty; labels without a value are none.
pub(super) fn slow_exemplar_labels(pairs: Vec<Option<(String, String)>>) -> Option<Labels> {
    let mut pairs = pairs.into_iter().collect::<Option<Vec<_>>>()?;
    pairs.retain(|(_, value)| !value.is_empty());
    let names = pairs.iter().map(|(name, _)| name).collect::<std::collections::HashSet<_>>();
    (names.len() == pairs.len() && !names.contains(&String::new()))
        .then(|| Labels::from_pairs(pairs.iter().map(|(n, v)| (&**n, &**v))))
}

fn slow_series(bytes: &[u8], said: &mut Said) -> Option<()> {
    let (mut labels, mut samples, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
    for field in slow_fields(bytes)? {
        match field {
            (1, Field::Bytes(b)) => labels.push(slow_label(b)??),
            (2, Field::Bytes(b)) => {
                let (mut time, mut value) = (0, 0);
                for field in slow_fields(b)? {
                    match field {
                        (1, Field::Double(v)) => value = v,
                        (2, Field::Int(v)) => time = v.cast_signed(),
                        (1 | 2, _) => return None,
                        _ => {}
                    }
                }
                samples.push((time, value));
            }
            (3, Field::Bytes(b)) => {
                let (mut pairs, mut time, mut value) = (Vec::new(), 0, 0);
                for field in slow_fields(b)? {
                    match field {
                        (1, Field::Bytes(b)) => pairs.push(slow_label(b)?),
                        (2, Field::Double(v)) => value = v,
                        (3, Field::Int(v)) => time = v.cast_signed(),
                        (1..=3, _) => return None,
                        _ => {}
                    }
                }
                if let Some(labels) = slow_exemplar_labels(pairs) {
                    said.exemplars.push((said.series.len() as u32, labels, value, time));
                }
            }
            (4, Field::Bytes(b)) => match slow_histogram(b)? {
                Some((_, text)) => histograms.push(text),
                None => said.invalid_histograms += 1,
            },
            (1..=4, _) => return None,
            _ => {}
        }
    }
    said.series.push((labels, samples, histograms));
    Some(())
}

fn slow_request(bytes: &[u8]) -> Option<Said> {
    let mut said = Said::default();
    for field in slow_fields(bytes)? {
        match field {
            (1, Field::Bytes(b)) => slow_series(b, &mut said)?,
            (3, Field::Bytes(b)) => {
                let mut entry = MetadataEntry {
                    metric: String::new(),
                    kind: MetricKind::Unknown,
                    help: String::new(),
                    unit: String::new(),
                };
                let mut is_named = true;
                for field in slow_fields(b)? {
                    let text = |b: &[u8]| String::from_utf8(b.to_vec());
                    match field {
                        (1, Field::Int(v)) => entry.kind = MetricKind::from_remote_write(v),
                        (2, Field::Bytes(b)) => {
                            is_named = text(b).is_ok();
                            entry.metric = text(b).unwrap_or_default();
                        }
                        (4, Field::Bytes(b)) => entry.help = text(b).unwrap_or_default(),
                        (5, Field::Bytes(b)) => entry.unit = text(b).unwrap_or_default(),
                        (1 | 2 | 4 | 5, _) => return None,
                        _ => {}
                    }
                }
                said.metadata.extend(is_named.then_some(entry));
            }
            (1 | 3, _) | (4 | 5, Field::Bytes(_)) => return None,
            _ => {}
        }
    }
    Some(said)
}

/// Float samples of a series as (time, bits, start), and its histograms as text.
pub(super) fn samples_of(batch: &WriteBatch, series: &BatchSeries) -> (Vec<(i64, u64, i64)>, Vec<String>) {
    let (mut floats, mut histograms) = (Vec::new(), Vec::new());
    for idx in series.samples.clone() {
        let at = idx as usize;
        let (time, start) = (batch.times[at], batch.start_times.get(at).copied().unwrap_or(0));
        match batch.histograms_of(series).iter().find(|(i, _)| *i == idx) {
            Some((_, histogram)) => {
                assert_eq!(batch.values[at].to_bits(), histogram.sum().to_bits());
                histograms.push(format!("{time} {start} {histogram:?}"));
            }
            None => floats.push((time, batch.values[at].to_bits(), start)),
        }
    }
    (floats, histograms)
}

/// The batch in owned form; `None` if the labels of a series are refused.
fn said_of(batch: &WriteBatch, refused: &Refused) -> Option<Said> {
    let invalid_histograms = refused.invalid_histogram_count;
    let mut said = Said { metadata: batch.metadata.clone(), invalid_histograms, ..Said::default() };
    for series in &batch.series {
        let mut builder = LabelsBuilder::new();
        parse_labels(batch.raw_of(series), &mut builder).ok()?;
        let labels = builder.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let (samples, histograms) = samples_of(batch, series);
        said.series.push((
            labels,
            samples.into_iter().map(|(time, bits, _)| (time, bits)).collect(),
            histograms,
        ));
    }
    said.exemplars = batch
        .exemplars
        .iter()
        .map(|e| (e.series_idx, e.exemplar.labels.clone(), e.exemplar.value.to_bits(), e.exemplar.time_ms))
        .collect();
    Some(said)
}

/// As [`super::decode`], with memory for all histograms.
fn decode(body: &[u8], bytes_max: usize, batch: &mut WriteBatch) -> Result<Refused, DecodeError> {
    let mut held = MemoryBudget::new("test", 1 << 30).reserve(0).unwrap();
    super::decode(body, bytes_max, &mut held, batch)
}

/// Requires that both decoders return the same for `body`, or that both refuse it.
#[track_caller]
fn check_body(body: &[u8], batch: &mut WriteBatch) {
    let want = slow_request(body);
    let got = decode(&compress(body), LIMIT, batch).ok().and_then(|refused| said_of(batch, &refused));
    assert_eq!(got, want, "body {body:02x?}");
}

fn golden() -> Vec<u8> {
    let mut request = RequestEncoder::new();
    request.push_series(
        [("__name__", "http_requests_total"), ("instance", "a:9090"), ("job", "api")],
        &[(1_700_000_000_000, 1.5), (1_700_000_015_000, f64::from_bits(0x7ff0_0000_0000_0002)), (-5, -0.0)],
    );
    let exemplar = Exemplar {
        labels: Labels::from_pairs([("trace_id", "abc")]),
        value: 0.25,
        time_ms: 1_700_000_000_001,
    };
    request.push_series_with_exemplars([("__name__", "b"), ("é", "ü")], &[(0, 0.0)], &[exemplar]);
    request.push_metadata(&MetadataEntry {
        metric: "b".to_owned(),
        kind: MetricKind::StateSet,
        help: "Helps.".to_owned(),
        unit: "bytes".to_owned(),
    });
    request.body().to_vec()
}

pub(super) fn field(number: u64, wire_type: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_uvarint(&mut out, number << 3 | wire_type);
    if wire_type == 2 {
        put_uvarint(&mut out, payload.len() as u64);
    }
    out.extend_from_slice(payload);
    out
}

pub(super) fn labels_of(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_labels(&mut out, pairs.iter().copied());
    out
}

fn sample_of(time: u64, value: f64) -> Vec<u8> {
    let mut out = field(1, 1, &value.to_bits().to_le_bytes());
    out.push(2 << 3);
    put_uvarint(&mut out, time);
    field(2, 2, &out)
}

#[test]
fn the_golden_request_is_read_as_written() {
    let mut batch = new_batch();
    let body = golden();
    check_body(&body, &mut batch);
    assert_eq!(batch.raw, body);
    assert_eq!(batch.series.len(), 2);
    assert_eq!(batch.times, [1_700_000_000_000, 1_700_000_015_000, -5, 0]);
    let bits = batch.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits, [0x3ff8_0000_0000_0000, 0x7ff0_0000_0000_0002, 0x8000_0000_0000_0000, 0]);
    let mut builder = LabelsBuilder::new();
    parse_labels(batch.raw_of(&batch.series[1]), &mut builder).unwrap();
    assert_eq!(builder.finish().to_string(), r#"b{"é"="ü"}"#);
    assert_eq!(batch.exemplars[0].series_idx, 1);
    assert_eq!(batch.metadata[0].kind, MetricKind::StateSet);
}

#[test]
fn bytes_of_the_encoder_are_the_wire_format() {
    let mut request = RequestEncoder::new();
    request.push_series([("a", "bc")], &[(300, 1.0), (0, 0.0)]);
    let want = [
        0x0a, 0x19, 0x0a, 0x07, 0x0a, 1, b'a', 0x12, 2, b'b', b'c', 0x12, 0x0c, 0x09, 0, 0, 0, 0, 0, 0, 0xf0,
        0x3f, 0x10, 0xac, 0x02, 0x12, 0,
    ];
    assert_eq!(request.body(), want);
    let mut again = RequestEncoder::new();
    again.push_encoded_series(&labels_of(&[("a", "bc")]), &[(300, 1.0), (0, 0.0)]);
    assert_eq!(again.body(), want);
    let long = "x".repeat(200);
    let fields = labels_of(&[(&long, &long), ("a", "")]);
    let mut builder = LabelsBuilder::new();
    parse_labels(&fields, &mut builder).unwrap();
    assert_eq!(builder.iter().collect::<Vec<_>>(), [(&*long, &*long), ("a", "")]);
}

#[test]
fn fields_may_come_in_any_order_and_labels_be_interrupted() {
    let a = labels_of(&[("a", "1")]);
    let b = labels_of(&[("b", "2")]);
    let c = labels_of(&[("c", "3")]);
    let s = sample_of(7, 2.5);
    let histogram = field(4, 2, &[0x20, 2]);
    let unknown = field(99, 5, &[1, 2, 3, 4]);
    let orders: [(Parts<'_>, Parts<'_>); 5] = [
        (&[&s, &a, &b, &s], &[&a, &b]),
        (&[&a, &s, &b, &c], &[&a, &b, &c]),
        (&[&a, &s, &b, &histogram, &c, &s], &[&a, &b, &c]),
        (&[&histogram, &histogram, &s], &[]),
        (&[&unknown, &a, &unknown, &b], &[&a, &b]),
    ];
    let mut batch = new_batch();
    let mut body = Vec::new();
    for (parts, _) in &orders {
        body.extend(field(1, 2, &parts.concat()));
    }
    check_body(&body, &mut batch);
    for (series, (_, want)) in batch.series.iter().zip(&orders) {
        assert_eq!(batch.raw_of(series), want.concat());
    }
    assert_eq!(batch.histograms_of(&batch.series[3]).len(), 2);
    assert_eq!(batch.times.len() - batch.histograms.len(), 6);
    assert_eq!(&batch.raw[..body.len()], body);
    // A histogram that contradicts itself is refused and leaves the rest alone.
    let bad = field(4, 2, &[0x08, 1]);
    let body = field(1, 2, &[&*a, &*s, &*bad, &*histogram].concat());
    let refused = decode(&compress(&body), LIMIT, &mut batch).unwrap();
    let want = "0 observations found in buckets, but the Count field is 1: histogram's observation count should equal the number of observations found in the buckets (in absence of NaN)";
    assert_eq!((refused.invalid_histogram_count, refused.first.as_deref()), (1, Some(want)));
    assert_eq!((batch.times.len(), batch.histograms.len()), (2, 1));
}

#[test]
fn last_of_a_repeated_number_counts_and_defaults_are_zero() {
    let mut twice = field(1, 1, &1f64.to_bits().to_le_bytes());
    twice.extend(field(1, 1, &2f64.to_bits().to_le_bytes()));
    // A tag that takes more bytes than it needs is legal.
    twice.extend([0x90, 0x00, 5]);
    let body = field(1, 2, &[field(2, 2, &twice), field(2, 2, &[])].concat());
    let mut batch = new_batch();
    check_body(&body, &mut batch);
    assert_eq!((&batch.times[..], &batch.values[..]), (&[5i64, 0][..], &[2.0, 0.0][..]));
}

#[test]
fn wrong_types_and_groups_are_refused_with_their_offset() {
    let check = |body: &[u8], want: &str| {
        let mut batch = new_batch();
        let error = decode(&compress(body), LIMIT, &mut batch).unwrap_err();
        assert_eq!(error.to_string(), want);
        assert!(batch.series.is_empty() && batch.raw.is_empty());
    };
    check(&[0x08, 1], "protobuf: field has the wrong wire type at offset 1");
    check(&[0x0b], "protobuf: field has the wrong wire type at offset 1");
    check(&[0x33, 0x34], "protobuf: group or unknown wire type at offset 1");
    check(&[0x37, 0x34], "protobuf: group or unknown wire type at offset 1");
    check(&[0x00, 0x00], "protobuf: illegal field number at offset 0");
    check(&[0x0a, 5, 1], "protobuf: length is past the end of its message at offset 1");
    check(&[0x0a, 2, 0x0a, 1, 0], "protobuf: length is past the end of its message at offset 3");
    check(&[0x0a, 0xff], "protobuf: varint is cut off at offset 1");
    check(
        &[0x30, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        "protobuf: varint has more than 64 bits at offset 1",
    );
    check(&[0x35, 0, 0, 0], "protobuf: 4-byte number is cut off at offset 1");
    check(&[0x22, 0], "protobuf: field of remote write 2.0 in a request of remote write 1.0 at offset 1");
    check(&[0x2a, 0], "protobuf: field of remote write 2.0 in a request of remote write 1.0 at offset 1");
}

#[test]
fn labels_are_checked_when_they_are_parsed() {
    let mut builder = LabelsBuilder::new();
    let bad = field(1, 2, &[field(1, 2, b"a"), field(2, 2, &[0xff])].concat());
    assert_eq!(parse_labels(&bad, &mut builder), Err(Reject::InvalidUtf8));
    assert_eq!(parse_labels(&[0x0a], &mut builder), Err(Reject::InvalidUtf8));
    assert_eq!(parse_labels(&[0x12, 0], &mut builder), Err(Reject::InvalidUtf8));
}

#[test]
fn claims_are_checked_before_memory_is_taken() {
    let check = |claim: u64, body: &[u8], want: &str| {
        let mut bytes = Vec::new();
        put_uvarint(&mut bytes, claim);
        bytes.extend_from_slice(body);
        let mut batch = new_batch();
        let error = decode(&bytes, LIMIT, &mut batch).unwrap_err();
        assert!(error.to_string().starts_with(want), "{error}");
        assert!(batch.raw.capacity() < 1024, "memory is taken for {claim}");
    };
    let large = "decompressed body of 4294967296 bytes is larger than the limit of 33554432 bytes";
    check(1 << 32, &[0], large);
    check(1 << 60, &[0], "decompressed body of 1152921504606846976 bytes is larger");
    check(LIMIT as u64 + 1, &[0], "decompressed body of 33554433 bytes is larger");
    check(LIMIT as u64, &[0; 50], "snappy: 54 bytes cannot hold the claimed 33554432 bytes");
    check(5, &[0x0c, 1, 2, 3, 4], "snappy: ");
    check(3, &[0x0c, 1, 2, 3, 4], "snappy: ");
    check(4, &[0x0c, 1, 2], "snappy: ");
    check(4, &[0x05, 0x09], "snappy: ");
    let mut batch = new_batch();
    assert!(matches!(decode(&[], LIMIT, &mut batch), Err(DecodeError::Snappy(_))));
    assert!(matches!(decode(&[0xff; 20], LIMIT, &mut batch), Err(DecodeError::Snappy(_))));
    // The empty request is one, and a batch is usable after an error.
    assert_eq!(decode(&[0], LIMIT, &mut batch), Ok(Refused::default()));
    assert_eq!(decode(&compress(&golden()), LIMIT, &mut batch), Ok(Refused::default()));
}

#[test]
fn counts_and_sizes_have_limits() {
    let check = |body: &[u8], want: &str| {
        let error = decode(&compress(body), LIMIT, &mut new_batch()).unwrap_err();
        assert_eq!(error.to_string(), want);
    };
    check(&[0x0a, 0].repeat(SERIES_COUNT_MAX + 1), "request has more than 1048576 series");
    check(&[0x1a, 0].repeat(METADATA_COUNT_MAX + 1), "request has more than 65536 metadata entries");
    let samples = [0x12, 0].repeat(SAMPLE_COUNT_MAX + 1);
    check(&field(1, 2, &samples), "request has more than 4194304 samples");
    check(&field(1, 2, &[0x1a, 0].repeat(EXEMPLAR_COUNT_MAX + 1)), "request has more than 65536 exemplars");
    let long = "x".repeat(LABEL_SECTION_BYTES_MAX);
    let want = "labels of one series of 1048586 bytes is larger than the limit of 1048576 bytes";
    check(&field(1, 2, &labels_of(&[("", &long)])), want);
    let many = field(3, 2, &labels_of(&[("a", "b")]).repeat(1000));
    let want = "labels of one exemplar of 4098 bytes is larger than the limit of 4096 bytes";
    check(&field(1, 2, &many), want);
}

#[test]
fn every_cut_and_every_flip_is_read_as_the_slow_decoder_reads_it() {
    let body = golden();
    let mut batch = new_batch();
    for end in 0..body.len() {
        check_body(&body[..end], &mut batch);
    }
    for at in 0..body.len() {
        for flip in 1..=255u8 {
            let mut damaged = body.clone();
            damaged[at] ^= flip;
            check_body(&damaged, &mut batch);
        }
    }
}

#[test]
fn damaged_snappy_is_an_error_or_a_request_but_no_panic() {
    let sent = compress(&golden());
    let mut batch = new_batch();
    for end in 0..sent.len() {
        assert!(decode(&sent[..end], LIMIT, &mut batch).is_err(), "cut at {end}");
    }
    for at in 0..sent.len() {
        for flip in 1..=255u8 {
            let mut damaged = sent.clone();
            damaged[at] ^= flip;
            let _ = decode(&damaged, 1 << 16, &mut batch);
        }
    }
}

/// A random message that is mostly well-formed, nested at most `depth` deep.
pub(super) fn random_message(rng: &Rng, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(6) {
        let number = if rng.below(12) == 0 { rng.below(40) } else { 1 + rng.below(5) };
        match rng.below(40) {
            0 => out.push(rng.next_u64() as u8),
            1..=4 => {
                put_uvarint(&mut out, number << 3);
                put_uvarint(&mut out, rng.next_u64() >> rng.below(64));
            }
            5..=8 => out.extend(field(number, 1, &rng.next_u64().to_le_bytes())),
            9 => out.extend(field(number, 5, &[1, 2, 3, 4])),
            _ if depth == 0 => {
                out.extend(field(number, 2, "xyzé".get(..rng.below(4) as usize).unwrap_or("").as_bytes()))
            }
            _ => out.extend(field(number, 2, &random_message(rng, depth - 1))),
        }
    }
    out
}

#[test]
fn random_requests_are_read_as_the_slow_decoder_reads_them() {
    let rng = Rng::from_seed(1);
    let mut batch = new_batch();
    let mut accepted = 0;
    for _ in 0..100_000 {
        let body = field(1, 2, &random_message(&rng, 2));
        check_body(&body, &mut batch);
        accepted += usize::from(!batch.series.is_empty());
    }
    assert!(accepted > 5_000, "only {accepted} requests are well-formed");
    for _ in 0..50_000 {
        let mut body = vec![0u8; rng.below(64) as usize];
        rng.fill(&mut body);
        check_body(&body, &mut batch);
        let _ = decode(&body, LIMIT, &mut batch);
    }
}

/// As in version 2.0: metadata are items of their own here.
#[test]
fn one_byte_that_is_not_utf8_drops_its_item_alone() {
    #[track_caller]
    fn check(metadata: [&[u8]; 3], label: [&[u8]; 2], want: [u64; 2], kept: usize) {
        let label = [field(1, 2, label[0]), field(2, 2, label[1])].concat();
        let exemplar = field(3, 2, &[field(1, 2, &label), vec![0x18, 3]].concat());
        let name = field(1, 2, &[field(1, 2, b"__name__"), field(2, 2, b"u_a")].concat());
        let series = field(1, 2, &[name, field(2, 2, &[0x10, 7]), exemplar].concat());
        let [name, help, unit] = metadata;
        let entry = [vec![0x08, 2], field(2, 2, name), field(4, 2, help), field(5, 2, unit)].concat();
        let body = compress(&[series, field(3, 2, &entry)].concat());
        let mut batch = new_batch();
        let refused = decode(&body, LIMIT, &mut batch).unwrap();
        assert_eq!((batch.times.len(), refused.first), (1, None));
        assert_eq!([refused.metadata_count, refused.exemplars.total()], want);
        assert_eq!([batch.metadata.len(), batch.exemplars.len()], [kept, 1 - want[1] as usize]);
    }
    let good = [&b"u_a"[..], b"Help.", b"bytes"];
    let label = [&b"trace_id"[..], b"abc"];
    check(good, label, [0, 0], 1);
    check([b"", good[1], good[2]], label, [0, 0], 1);
    for bad in [&b"\xb0"[..], b"a\xff", b"\xc3(", b"\xf8\x88\x80\x80\x80"] {
        check([bad, good[1], good[2]], label, [1, 0], 0);
        check([good[0], bad, good[2]], label, [1, 0], 1);
        check([good[0], good[1], bad], label, [1, 0], 1);
        check(good, [bad, label[1]], [0, 1], 1);
        check(good, [label[0], bad], [0, 1], 1);
    }
    // Names that are empty or occur twice name no trace; the first is a name like any other to the wire.
    check(good, [b"", b"abc"], [0, 1], 1);
}
