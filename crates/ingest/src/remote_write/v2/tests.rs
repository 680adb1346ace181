//! The decoder against golden requests, a slow decoder that shares no code with it, and damage of every kind.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{MemoryBudget, Rng};
use chronolith_model::{Exemplar, ExemplarReject, Labels, LabelsBuilder, MetadataEntry, MetricKind};

use super::encode::{RequestEncoder, SampleOut, SeriesExtras};
use super::*;
use crate::remote_write::encode::compress;
use crate::remote_write::tests::{
    Field, field, labels_of, random_message, samples_of, slow_exemplar_labels, slow_fields, slow_histogram,
    slow_varints,
};
use crate::remote_write::{
    EXEMPLAR_COUNT_MAX, LABEL_SECTION_BYTES_MAX, SAMPLE_COUNT_MAX, SERIES_COUNT_MAX, new_batch, parse_labels,
};

const LIMIT: usize = 32 << 20;
const GOLDEN_V1: &[u8] = include_bytes!("../../../testdata/remote_write/request-1.0.bin");
const GOLDEN_V2: &[u8] = include_bytes!("../../../testdata/remote_write/request-2.0.bin");
const GOLDEN_FLOATS: &[u8] = include_bytes!("../../../testdata/remote_write/floats-2.0.bin");

fn reservation() -> Reservation {
    MemoryBudget::new("test", 1 << 30).reserve(0).unwrap()
}

fn decode_plain(body: &[u8], batch: &mut WriteBatch) -> Result<Refused, DecodeError> {
    let naming = SeriesNaming::AsSent;
    decode(&compress(body), LIMIT, &mut reservation(), &mut reservation(), naming, batch)
}

type Pairs = Vec<(String, String)>;
/// Labels, samples as (time, bits, start), valid histograms as text.
type SaidSeries = (Pairs, Vec<(i64, u64, i64)>, Vec<String>);

/// Stored content of a request in owned form, and the number of refused items.
#[derive(Debug, Default, PartialEq)]
struct Said {
    series: Vec<SaidSeries>,
    exemplars: Vec<(u32, Labels, u64, i64)>,
    /// Every different entry once, in order of appearance.
    metadata: Vec<(String, MetricKind, String, String)>,
    refused_series: u64,
    refused_samples: u64,
    refused_histograms: u64,
    invalid_histograms: u64,
}

fn slow_text(symbols: &[&[u8]], idx: u64) -> Option<String> {
    String::from_utf8(symbols.get(idx as u32 as usize)?.to_vec()).ok()
}

/// References: 32 bits are looked at.
fn slow_numbers(content: &Field<'_>, out: &mut Vec<u64>) -> Option<()> {
    let start = out.len();
    slow_varints(content, out)?;
    out[start..].iter_mut().for_each(|number| *number = u64::from(*number as u32));
    Some(())
}

/// Labels of references; the outer `None` if the message is bad, the inner if the references are.
#[expect(clippy::option_option, reason = "a bad message and a bad series are different things")]
fn slow_labels(refs: &[u64], symbols: &[&[u8]]) -> Option<Option<Pairs>> {
    if !refs.len().is_multiple_of(2) || refs.iter().any(|&idx| idx as usize >= symbols.len()) {
        return Some(None);
    }
    let text = |idx: u64| slow_text(symbols, idx);
    let pairs = refs.chunks(2).map(|pair| Some((text(pair[0])?, text(pair[1])?)));
    pairs.collect::<Option<Pairs>>().map(Some)
}

fn slow_sample(bytes: &[u8]) -> Option<(i64, u64, i64)> {
    let (mut time, mut value, mut start) = (0, 0, 0);
    for field in slow_fields(bytes)? {
        match field {
            (1, Field::Double(v)) => value = v,
            (2, Field::Int(v)) => time = v.cast_signed(),
            (3, Field::Int(v)) => start = v.cast_signed(),
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some((time, value, start))
}

fn slow_series(bytes: &[u8], symbols: &[&[u8]], said: &mut Said) -> Option<()> {
    let (mut refs, mut samples, mut histograms) = (Vec::new(), Vec::new(), Vec::new());
    let (mut exemplars, mut metadata, mut invalid) = (Vec::new(), (0, 0, 0), 0);
    for (number, content) in slow_fields(bytes)? {
        match (number, content) {
            (1, content) => slow_numbers(&content, &mut refs)?,
            (2, Field::Bytes(b)) => samples.push(slow_sample(b)?),
            (3, Field::Bytes(b)) => match slow_histogram(b)? {
                Some((_, text)) => histograms.push(text),
                None => invalid += 1,
            },
            (4, Field::Bytes(b)) => {
                let (mut refs, mut time, mut value) = (Vec::new(), 0, 0);
                for (number, content) in slow_fields(b)? {
                    match (number, content) {
                        (1, content) => slow_numbers(&content, &mut refs)?,
                        (2, Field::Double(v)) => value = v,
                        (3, Field::Int(v)) => time = v.cast_signed(),
                        (1..=3, _) => return None,
                        _ => {}
                    }
                }
                let are_known = refs.iter().all(|&idx| (idx as usize) < symbols.len());
                let pairs = refs
                    .chunks(2)
                    .map(|pair| Some((slow_text(symbols, pair[0])?, slow_text(symbols, *pair.get(1)?)?)));
                if let Some(labels) = slow_exemplar_labels(pairs.collect()).filter(|_| are_known) {
                    exemplars.push((said.series.len() as u32, labels, value, time));
                }
            }
            (5, Field::Bytes(b)) => {
                metadata = (0, 0, 0);
                for field in slow_fields(b)? {
                    match field {
                        (1, Field::Int(v)) => metadata.0 = v,
                        (3, Field::Int(v)) => metadata.1 = u64::from(v as u32),
                        (4, Field::Int(v)) => metadata.2 = u64::from(v as u32),
                        (1 | 3 | 4, _) => return None,
                        _ => {}
                    }
                }
            }
            (2..=5, _) => return None,
            _ => {}
        }
    }
    let outside = |idx: u64| idx != 0 && idx as usize >= symbols.len();
    let in_bytes = refs.len().is_multiple_of(2) && refs.iter().all(|&idx| (idx as usize) < symbols.len());
    let is_empty = samples.is_empty() && histograms.is_empty() && invalid == 0;
    if !in_bytes || outside(metadata.1) || outside(metadata.2) || is_empty {
        said.refused_series += 1;
        said.refused_samples += samples.len() as u64;
        said.refused_histograms += histograms.len() as u64 + invalid;
        return Some(());
    }
    said.invalid_histograms += invalid;
    slow_metadata(&refs, metadata, symbols, said)?;
    // Labels that are not UTF-8 are found when the series is new: `said_of` does not know them either.
    let labels = slow_labels(&refs, symbols).flatten().unwrap_or_default();
    said.series.push((labels, samples, histograms));
    said.exemplars.extend(exemplars);
    Some(())
}

fn slow_metadata(
    refs: &[u64],
    (kind, help, unit): (u64, u64, u64),
    symbols: &[&[u8]],
    said: &mut Said,
) -> Option<()> {
    let kind = MetricKind::from_remote_write(kind);
    let name = refs.chunks(2).find(|pair| symbols[pair[0] as usize] == b"__name__").map(|pair| pair[1]);
    let Some(name) = name.filter(|_| (kind, help, unit) != (MetricKind::Unknown, 0, 0)) else {
        return Some(());
    };
    let Some(name) = slow_text(symbols, name) else { return Some(()) };
    let family = family::family_of(&name, kind).to_owned();
    let text = |idx| slow_text(symbols, idx).filter(|_| idx != 0).unwrap_or_default();
    let entry = (family, kind, text(help), text(unit));
    if !said.metadata.contains(&entry) {
        said.metadata.push(entry);
    }
    Some(())
}

fn slow_request(bytes: &[u8]) -> Option<Said> {
    let fields = slow_fields(bytes)?;
    let mut symbols: Vec<&[u8]> = Vec::new();
    for (number, content) in &fields {
        match (number, content) {
            (4, Field::Bytes(b)) if symbols.is_empty() && !b.is_empty() => return None,
            (4, Field::Bytes(b)) => symbols.push(b),
            (1..=5, Field::Bytes(_)) if *number == 5 => {}
            (1..=5, _) => return None,
            _ => {}
        }
    }
    let mut said = Said::default();
    for field in fields {
        if let (5, Field::Bytes(b)) = field {
            slow_series(b, &symbols, &mut said)?;
        }
    }
    Some(said)
}

fn said_of(batch: &WriteBatch, refused: &Refused) -> Said {
    let mut said = Said {
        refused_series: refused.series_count,
        refused_samples: refused.sample_count,
        refused_histograms: refused.histogram_count,
        invalid_histograms: refused.invalid_histogram_count,
        ..Said::default()
    };
    assert!(batch.start_times.is_empty() || batch.start_times.len() == batch.times.len());
    for series in &batch.series {
        let mut builder = LabelsBuilder::new();
        let labels = match parse_labels(batch.raw_of(series), &mut builder) {
            Ok(()) => builder.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
            Err(_) => Vec::new(),
        };
        let (samples, histograms) = samples_of(batch, series);
        said.series.push((labels, samples, histograms));
    }
    let exemplars = batch.exemplars.iter();
    said.exemplars = exemplars
        .map(|e| (e.series_idx, e.exemplar.labels.clone(), e.exemplar.value.to_bits(), e.exemplar.time_ms))
        .collect();
    for entry in &batch.metadata {
        let entry = (entry.metric.clone(), entry.kind, entry.help.clone(), entry.unit.clone());
        if !said.metadata.contains(&entry) {
            said.metadata.push(entry);
        }
    }
    said
}

/// Requires that both decoders return the same for `body`, or that both refuse it; returns true if it is a
/// request.
#[track_caller]
fn check_body(body: &[u8], batch: &mut WriteBatch) -> bool {
    let want = slow_request(body);
    let got = decode_plain(body, batch).ok().map(|refused| said_of(batch, &refused));
    assert_eq!(got, want, "body {body:02x?}");
    want.is_some()
}

#[test]
fn the_golden_request_names_its_series_as_version_one_does() {
    let (mut one, mut two) = (new_batch(), new_batch());
    let mut held = reservation();
    crate::remote_write::decode(&compress(GOLDEN_V1), LIMIT, &mut held, &mut one).unwrap();
    assert!(held.bytes() > 0, "histograms are paid for");
    assert_eq!(decode_plain(GOLDEN_V2, &mut two), Ok(Refused::default()));
    assert_eq!(one.series.len(), 8);
    for (a, b) in one.series.iter().zip(&two.series) {
        assert_eq!(one.raw_of(a), two.raw_of(b), "the key of the raw bytes is the same");
        assert_eq!(a.samples, b.samples);
    }
    assert_eq!(one.source.protocol, two.source.protocol);
    let bits = |batch: &WriteBatch| batch.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!((&one.times, bits(&one), &one.exemplars), (&two.times, bits(&two), &two.exemplars));
    assert_eq!(one.histograms, two.histograms);
    let t0 = 1_700_000_000_000i64;
    assert_eq!(two.times[..4], [t0, t0 + 15_000, t0 + 30_000, -5]);
    assert_eq!(two.start_times[..7], [t0 - 1000, 0, t0 - 1000, 0, 0, 0, 0]);
    assert!(one.start_times.is_empty(), "{:?}", one.start_times);
    let entries = two.metadata.iter();
    let entries = entries.map(|e| (&*e.metric, e.kind.as_str(), &*e.help, &*e.unit)).collect::<Vec<_>>();
    let want = [
        ("http_requests_total", "counter", "Requests answered.", ""),
        ("größe", "gauge", "", "bytes"),
        ("rpc_seconds", "histogram", "Calls.", "seconds"),
        ("latency_seconds", "histogram", "Native.", ""),
        ("queue_seconds", "gaugehistogram", "", "seconds"),
    ];
    assert_eq!(entries, want);
    assert!(check_body(GOLDEN_V2, &mut two));
    // Both versions fill the same columns; only the second says when counters began.
    assert_eq!((one.times.len(), one.histograms.len()), (12, 5));
    assert_eq!(two.start_times[7..], [t0 - 7, 0, 0, 0, 0]);
}

/// The series of `floats-2.0.bin`, through the encoder.
fn golden_floats() -> RequestEncoder {
    let t0 = 1_700_000_000_000i64;
    let at = |time_ms, value, start_ms| SampleOut { time_ms, value, start_ms };
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let exemplar =
        Exemplar { labels: Labels::from_pairs([("trace_id", "abc")]), value: 0.25, time_ms: t0 + 1 };
    let requests =
        SeriesExtras { kind: MetricKind::Counter, help: "Requests answered.", ..SeriesExtras::default() };
    let mut out = RequestEncoder::new();
    let name = "__name__";
    out.push_series(
        [(name, "http_requests_total"), ("instance", "a:9090"), ("job", "api")],
        &[at(t0, 1.5, t0 - 1000), at(t0 + 15_000, 0.0, 0), at(t0 + 30_000, stale, t0 - 1000)],
        &SeriesExtras { exemplars: &[exemplar], ..requests },
    );
    out.push_series(
        [(name, "http_requests_total"), ("instance", "b:9090"), ("job", "api")],
        &[at(-5, f64::INFINITY, 0)],
        &requests,
    );
    let gauge = SeriesExtras { kind: MetricKind::Gauge, unit: "bytes", ..SeriesExtras::default() };
    let long = "x".repeat(128);
    out.push_series([(name, "größe"), ("a.b/c", "ü"), ("long", &*long)], &[at(t0, 0.0, 0)], &gauge);
    let calls = SeriesExtras {
        kind: MetricKind::Histogram,
        help: "Calls.",
        unit: "seconds",
        ..SeriesExtras::default()
    };
    out.push_series([(name, "rpc_seconds_bucket"), ("le", "0.1")], &[at(t0, 3.0, 0)], &calls);
    out.push_series([(name, "rpc_seconds_count")], &[at(t0, 3.0, 0)], &calls);
    out
}

#[test]
fn the_encoder_writes_what_prometheus_writes() {
    assert_eq!(golden_floats().body(), GOLDEN_FLOATS);
    let mut request = RequestEncoder::new();
    let refs = ["a", "b"].map(|text| request.symbol(text));
    request.push_series_refs(&refs, &[SampleOut { time_ms: 300, value: 0.0, start_ms: 0 }]);
    let want =
        [0x22, 0, 0x22, 1, b'a', 0x22, 1, b'b', 0x2a, 11, 0x0a, 2, 1, 2, 0x12, 3, 0x10, 0xac, 0x02, 0x2a, 0];
    assert_eq!(request.body(), want);
}

/// A request: these symbols after the empty one, these series.
fn request_of(symbols: &[&str], series: &[Vec<u8>]) -> Vec<u8> {
    let symbols = std::iter::once(&"").chain(symbols).flat_map(|text| field(4, 2, text.as_bytes()));
    symbols.chain(series.iter().flat_map(|series| field(5, 2, series))).collect()
}

fn sample_of(time: u64) -> Vec<u8> {
    let mut sample = vec![0x10];
    put_uvarint(&mut sample, time);
    field(2, 2, &sample)
}

#[test]
fn fields_may_come_in_any_order_and_numbers_unpacked() {
    let refs = |packed: &[u8]| field(1, 2, packed);
    let series = [
        [sample_of(1), refs(&[1, 2])].concat(),
        [vec![0x08, 1, 0x08, 2], sample_of(2)].concat(),
        // A pair that lies in two fields, with a sample and an unknown field between them.
        [refs(&[1]), sample_of(3), field(99, 5, &[0; 4]), vec![0x08, 2], refs(&[])].concat(),
        [refs(&[0x81, 0, 2]), field(3, 2, &[0x20, 2]), field(3, 2, &[])].concat(),
    ];
    let mut body = request_of(&[], &series);
    // The other symbols come after the series that use them.
    body.extend([field(4, 2, b"__name__"), field(4, 2, b"up")].concat());
    let mut batch = new_batch();
    assert!(check_body(&body, &mut batch));
    let want = labels_of(&[("__name__", "up")]);
    assert!(batch.series.iter().all(|series| batch.raw_of(series) == want));
    assert_eq!((batch.times.len(), batch.histograms_of(&batch.series[3]).len()), (5, 2));
}

#[test]
fn a_bad_series_is_refused_alone_in_the_words_of_prometheus() {
    let symbols = ["__name__", "up", "\u{1f600}"];
    let refs = |packed: &[u8]| field(1, 2, packed);
    let good = [refs(&[1, 2]), sample_of(5)].concat();
    let check = |bad: Vec<u8>, samples: u64, want: &str| {
        let mut batch = new_batch();
        let body = request_of(&symbols, &[good.clone(), bad.clone(), good.clone(), bad]);
        let refused = decode_plain(&body, &mut batch).unwrap();
        assert_eq!(refused.first.as_deref(), Some(want));
        assert_eq!((refused.series_count, refused.sample_count), (2, 2 * samples));
        assert_eq!((batch.series.len(), &*batch.times), (2, &[5, 5][..]));
        let name = labels_of(&[("__name__", "up")]);
        assert!(batch.series.iter().all(|series| batch.raw_of(series) == name));
    };
    let two = || [sample_of(6), sample_of(7)].concat();
    check(
        [refs(&[7, 9]), two()].concat(),
        2,
        "parsing labels for series [7 9]: labelRefs 7 (name) = 9 (value) outside of symbols table (size 4)",
    );
    check(
        [refs(&[1, 2, 3]), two()].concat(),
        2,
        "parsing labels for series [1 2 3]: invalid labelRefs length 3",
    );
    let metadata = field(5, 2, &[0x18, 3, 0x20, 4]);
    check(
        [refs(&[1, 2]), two(), metadata].concat(),
        2,
        "parsing metadata for series [1 2]: metadata unit_ref 4 outside of symbols table (size 4)",
    );
    check(
        [refs(&[1, 2]), two(), field(5, 2, &[0x18, 99])].concat(),
        2,
        "parsing metadata for series [1 2]: metadata help_ref 99 outside of symbols table (size 4)",
    );
    check(
        refs(&[1, 2]),
        0,
        r#"TimeSeries must contain at least one sample or histogram for series {__name__="up"}"#,
    );
    let exemplar = field(4, 2, &[0x0a, 2, 1, 9]);
    let body = request_of(&symbols, &[[good, exemplar].concat()]);
    let mut batch = new_batch();
    let refused = decode_plain(&body, &mut batch).unwrap();
    assert_eq!((refused.series_count, refused.exemplars.total(), batch.series.len()), (0, 1, 1));
    let want = r#"parsing exemplar for series {__name__="up"}: labelRefs 1 (name) = 9 (value) outside of symbols table (size 4)"#;
    assert_eq!(refused.first.as_deref(), Some(want));
}

#[test]
fn messages_that_are_none_are_refused_with_their_offset() {
    let check = |body: &[u8], want: &str| {
        let mut batch = new_batch();
        let error = decode_plain(body, &mut batch).unwrap_err();
        assert_eq!(error.to_string(), want);
        assert!(batch.series.is_empty() && batch.raw.is_empty());
    };
    check(GOLDEN_V1, "protobuf: field of remote write 1.0 in a request of remote write 2.0 at offset 1");
    check(&[0x22, 1, b'a'], "protobuf: first symbol is not the empty string at offset 2");
    check(&[0x20, 1], "protobuf: field has the wrong wire type at offset 1");
    check(&[0x28, 1], "protobuf: field has the wrong wire type at offset 1");
    check(&[0x2a, 2, 0x12, 9], "protobuf: length is past the end of its message at offset 3");
    check(&[0x2a, 3, 0x0a, 1, 0x80], "protobuf: varint is cut off at offset 4");
    // The empty request is one, with symbols or without.
    assert_eq!(decode_plain(&[], &mut new_batch()), Ok(Refused::default()));
    assert_eq!(decode_plain(&[0x22, 0], &mut new_batch()), Ok(Refused::default()));
}

#[test]
fn counts_and_sizes_have_limits() {
    let check = |body: &[u8], want: &str| {
        assert_eq!(decode_plain(body, &mut new_batch()).unwrap_err().to_string(), want);
    };
    let good = [vec![0x0a, 2, 1, 1], sample_of(1)].concat();
    check(&[0x2a, 0].repeat(SERIES_COUNT_MAX + 1), "request has more than 1048576 series");
    check(&[0x22, 0].repeat(SYMBOL_COUNT_MAX + 1), "request has more than 2097152 symbols");
    let samples = [0x12, 0].repeat(SAMPLE_COUNT_MAX + 1);
    check(&field(5, 2, &samples), "request has more than 4194304 samples");
    let exemplars = [0x22, 0].repeat(EXEMPLAR_COUNT_MAX + 1);
    check(&field(5, 2, &exemplars), "request has more than 65536 exemplars");
    let refs = field(1, 2, &[0; LABEL_REF_COUNT_MAX + 1]);
    check(&field(5, 2, &refs), "request has more than 65536 label references");
    let text = "x".repeat(LABEL_SECTION_BYTES_MAX);
    check(
        &request_of(&[&text], std::slice::from_ref(&good)),
        "labels of one series of 2097165 bytes is larger than the limit of 1048576 bytes",
    );
    let text = "x".repeat(4000);
    let exemplar = field(4, 2, &[0x0a, 2, 1, 1]);
    check(
        &request_of(&[&text], &[[good.clone(), exemplar].concat()]),
        "labels of one exemplar of 8000 bytes is larger than the limit of 4096 bytes",
    );
}

#[test]
fn what_symbols_unfold_to_is_bounded_and_paid_for() {
    // 100 kB of labels a series: 400 series are a body of some kB and 40 MB of labels.
    let text = "x".repeat(50_000);
    let series = [vec![0x0a, 2, 1, 1], sample_of(1)].concat();
    let body = request_of(&[&text], &vec![series.clone(); 400]);
    let error = decode_plain(&body, &mut new_batch()).unwrap_err().to_string();
    assert!(error.starts_with("request with its symbols written out of 3"), "{error}");
    let few = compress(&request_of(&[&text], &vec![series.clone(); 30]));
    let budget = MemoryBudget::new("write", 4 << 20);
    let mut held = budget.reserve(0).unwrap();
    let (mut unused, naming) = (reservation(), SeriesNaming::AsSent);
    let error =
        decode(&few, LIMIT, &mut held, &mut unused, naming, &mut new_batch()).unwrap_err().to_string();
    assert!(error.starts_with("write memory limit of 4194304 bytes reached"), "{error}");
    let mut held = reservation();
    decode(&few, LIMIT, &mut held, &mut unused, naming, &mut new_batch()).unwrap();
    assert!(held.bytes() > 2 * 3_000_000, "{} bytes are paid for", held.bytes());
    // Help texts unfold as labels do.
    let named = |i: u8| [vec![0x0a, 2, 1, 2 + i], sample_of(1), vec![0x2a, 4, 0x08, 1, 0x18, 2]].concat();
    let long = "h".repeat(1_000_000);
    let names = (0..60).map(|i| format!("name{i}")).collect::<Vec<_>>();
    let symbols = ["__name__", &*long].into_iter().chain(names.iter().map(|n| &**n)).collect::<Vec<_>>();
    let body = request_of(&symbols, &(1..60).map(named).collect::<Vec<_>>());
    let error = decode_plain(&body, &mut new_batch()).unwrap_err().to_string();
    assert!(error.starts_with("request with its symbols written out of 3"), "{error}");
}

#[test]
fn every_cut_and_every_flip_is_read_as_the_slow_decoder_reads_it() {
    let mut batch = new_batch();
    for end in 0..GOLDEN_V2.len() {
        check_body(&GOLDEN_V2[..end], &mut batch);
    }
    let mut requests = 0;
    for at in 0..GOLDEN_V2.len() {
        for flip in (1..=255u8).step_by(5) {
            let mut damaged = GOLDEN_V2.to_vec();
            damaged[at] ^= flip;
            requests += usize::from(check_body(&damaged, &mut batch));
        }
    }
    assert!(requests > 5_000, "only {requests} damaged requests are still requests");
}

#[test]
fn random_requests_are_read_as_the_slow_decoder_reads_them() {
    let rng = Rng::from_seed(2);
    let mut batch = new_batch();
    let (mut accepted, mut stored) = (0, 0);
    for _ in 0..100_000 {
        let mut body = request_of(&["__name__", "up", "é"], &[]);
        for _ in 0..1 + rng.below(2) {
            let mut series = random_message(&rng, 1);
            let refs = (0..rng.below(5)).map(|_| rng.below(5) as u8).collect::<Vec<_>>();
            series.extend(field(1, 2, &refs));
            body.extend(field(5, 2, &series));
        }
        accepted += usize::from(check_body(&body, &mut batch));
        stored += batch.series.len();
    }
    assert!(accepted > 10_000 && stored > 500, "{accepted} requests, {stored} series");
    for _ in 0..50_000 {
        let mut body = vec![0u8; rng.below(64) as usize];
        rng.fill(&mut body);
        check_body(&body, &mut batch);
        let _ =
            decode(&body, LIMIT, &mut reservation(), &mut reservation(), SeriesNaming::AsSent, &mut batch);
    }
}

#[test]
fn families_are_named_as_version_one_names_them() {
    let check = |name: &str, kind: MetricKind, want: &str| assert_eq!(family::family_of(name, kind), want);
    check("rpc_bucket", MetricKind::Histogram, "rpc");
    check("rpc_sum", MetricKind::Histogram, "rpc");
    check("rpc_count", MetricKind::Summary, "rpc");
    check("rpc_bucket", MetricKind::Summary, "rpc_bucket");
    check("rpc_gsum", MetricKind::GaugeHistogram, "rpc");
    check("rpc_total", MetricKind::Counter, "rpc_total");
    check("_sum", MetricKind::Histogram, "_sum");
    let entry = |help: &str| MetadataEntry {
        metric: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: help.to_owned(),
        unit: String::new(),
    };
    // Two targets that disagree about the help text.
    let mut request = RequestEncoder::new();
    for (job, help) in [("a", "One."), ("b", "Two."), ("c", "One.")] {
        let sample = SampleOut { time_ms: 1, value: 1.0, start_ms: 0 };
        let extras = SeriesExtras { kind: MetricKind::Gauge, help, ..SeriesExtras::default() };
        request.push_series([("__name__", "up"), ("job", job)], &[sample], &extras);
    }
    let mut batch = new_batch();
    decode_plain(&request.body(), &mut batch).unwrap();
    assert_eq!(batch.metadata, [entry("One."), entry("Two.")]);
}

/// Labels of each series as they are named by type and unit.
fn named(request: &RequestEncoder) -> Vec<String> {
    let (mut held, mut histograms, mut batch) = (reservation(), reservation(), new_batch());
    let naming = SeriesNaming::TypeAndUnit;
    decode(&request.compressed(), LIMIT, &mut held, &mut histograms, naming, &mut batch).unwrap();
    let labels = |series| {
        let mut builder = LabelsBuilder::new();
        parse_labels(batch.raw_of(series), &mut builder).unwrap();
        builder.finish().to_string()
    };
    batch.series.iter().map(labels).collect()
}

#[test]
fn type_and_unit_become_labels_in_place_of_those_sent() {
    let mut request = RequestEncoder::new();
    let mut push = |labels: &[(&str, &str)], kind: MetricKind, unit: &str| {
        let sample = SampleOut { time_ms: 1, value: 1.0, start_ms: 0 };
        let extras = SeriesExtras { kind, unit, help: "h", ..SeriesExtras::default() };
        request.push_series(labels.iter().copied(), &[sample], &extras);
    };
    let plain = [("__name__", "m"), ("job", "a")];
    let own = [("__name__", "m"), ("__type__", "mine"), ("__unit__", "mine"), ("job", "a")];
    let (own_type, own_unit) = ([own[0], own[1], own[3]], [own[0], own[2], own[3]]);
    // Each shares labels with the one before, which has more or fewer bytes than its labels say.
    push(&plain, MetricKind::Counter, "");
    push(&plain, MetricKind::Unknown, "seconds");
    push(&own, MetricKind::GaugeHistogram, "bytes");
    push(&own, MetricKind::Unknown, "");
    push(&own_type, MetricKind::Unknown, "bytes");
    push(&own_type, MetricKind::Unknown, "");
    push(&own_unit, MetricKind::StateSet, "");
    push(&plain, MetricKind::Unknown, "");
    push(&plain, MetricKind::Gauge, "größe");
    let want = [
        r#"m{__type__="counter", job="a"}"#,
        r#"m{__unit__="seconds", job="a"}"#,
        r#"m{__type__="gaugehistogram", __unit__="bytes", job="a"}"#,
        r#"m{__type__="mine", __unit__="mine", job="a"}"#,
        r#"m{__unit__="bytes", job="a"}"#,
        r#"m{__type__="mine", job="a"}"#,
        r#"m{__type__="stateset", job="a"}"#,
        r#"m{job="a"}"#,
        r#"m{__type__="gauge", __unit__="größe", job="a"}"#,
    ];
    assert_eq!(named(&request), want);
}

#[test]
fn named_by_type_and_unit_a_request_says_the_same_but_for_the_labels() {
    let (mut plain, mut named) = (new_batch(), new_batch());
    let (mut held, mut histograms) = (reservation(), reservation());
    let mut decode = |naming, batch: &mut WriteBatch| {
        decode(&compress(GOLDEN_V2), LIMIT, &mut held, &mut histograms, naming, batch).unwrap()
    };
    assert_eq!(decode(SeriesNaming::AsSent, &mut plain), decode(SeriesNaming::TypeAndUnit, &mut named));
    assert_eq!(
        (&plain.times, &plain.exemplars, &plain.metadata),
        (&named.times, &named.exemplars, &named.metadata)
    );
    for (a, b) in plain.series.iter().zip(&named.series) {
        // The labels follow from the bytes alone: those that were sent, and those appended to them.
        assert!(named.raw_of(b).starts_with(plain.raw_of(a)));
        assert_eq!(a.samples, b.samples);
    }
    assert!(named.raw.len() > plain.raw.len());
}

/// One byte that is not UTF-8 in a help text, unit, metric name of metadata or exemplar label refused the
/// whole request, and senders do not repeat a 400. That item alone is dropped and counted; all samples are
/// stored.
#[test]
fn one_byte_that_is_not_utf8_drops_its_item_alone() {
    /// Texts of a request, with a bad byte in one of them: help, unit, name and value of an exemplar's label.
    fn check(texts: [&[u8]; 4], metadata: Option<(&str, &str)>, exemplar_count: usize, counts: [u64; 2]) {
        let mut symbols = vec![&b""[..], b"__name__", b"u_c"];
        symbols.extend(texts);
        let mut body = Vec::new();
        for symbol in symbols {
            body.extend(field(4, 2, symbol));
        }
        let exemplar = field(4, 2, &[0x0a, 2, 5, 6, 0x18, 3]);
        let series = [vec![0x0a, 2, 1, 2], sample_of(6), exemplar, field(5, 2, &[0x08, 2, 0x18, 3, 0x20, 4])];
        body.extend(field(5, 2, &series.concat()));
        for naming in [SeriesNaming::AsSent, SeriesNaming::TypeAndUnit] {
            let (mut batch, mut held, mut held_histograms) = (new_batch(), reservation(), reservation());
            let bytes = compress(&body);
            let refused = decode(&bytes, LIMIT, &mut held, &mut held_histograms, naming, &mut batch).unwrap();
            assert_eq!((batch.times.len(), batch.exemplars.len(), refused.first), (1, exemplar_count, None));
            assert_eq!([refused.metadata_count, refused.exemplars.of(ExemplarReject::InvalidUtf8)], counts);
            let found = batch.metadata.first().map(|entry| (entry.help.as_str(), entry.unit.as_str()));
            assert_eq!(found, metadata);
            let mut labels = LabelsBuilder::new();
            assert_eq!(parse_labels(batch.raw_of(&batch.series[0]), &mut labels), Ok(()));
            for text in [refused.metadata_first, refused.exemplar_first].into_iter().flatten() {
                assert!(text.len() < 500 && !text.contains('\n'), "{text}");
            }
        }
    }
    let good = [&b"Temp C"[..], b"celsius", b"trace_id", b"abc"];
    check(good, Some(("Temp C", "celsius")), 1, [0, 0]);
    for bad in [&b"Temp \xb0C"[..], b"\xff", b"\xc3", b"\xed\xa0\x80", &[0xfe; 5000], b"a\nb\x80"] {
        check([bad, good[1], good[2], good[3]], Some(("", "celsius")), 1, [1, 0]);
        check([good[0], bad, good[2], good[3]], Some(("Temp C", "")), 1, [1, 0]);
        check([bad, bad, good[2], good[3]], Some(("", "")), 1, [2, 0]);
        check([good[0], good[1], &bad[..bad.len().min(6)], good[3]], Some(("Temp C", "celsius")), 0, [0, 1]);
        check([good[0], good[1], good[2], &bad[..bad.len().min(6)]], Some(("Temp C", "celsius")), 0, [0, 1]);
    }
}
