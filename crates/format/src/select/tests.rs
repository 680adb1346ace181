//! Calls and answers round-trip, in pieces of any size; damage and forged bytes end with an error; golden
//! files read as ever.

use std::sync::Arc;

use chronolith_model::databases::BucketStoreId;
use chronolith_model::histogram::{Buckets, ResetHint, Span};
use chronolith_model::min_offsets::ReadConsistency;
use chronolith_model::query::{
    ColumnType, Read, ReadEstimate, SelectRequest, SelectionExceeded, Selector, StoredChunk,
};
use chronolith_model::sample::STALE_NAN;
use chronolith_model::{
    Columns, Exemplar, Histogram, IntHistogram, Labels, MatchOp, Matcher, MetadataEntry, MetricKind,
    SeriesExemplars, TenantId, TimeRange,
};

use super::*;
use crate::chunk::kinds;
use crate::record::RecordStore;

mod forged;
mod golden;
mod random;

/// Bits of a sample: time, value, start, histogram.
type Sample = (i64, u64, i64, Option<Arc<Histogram>>);

/// A series as it was decoded.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    labels: Labels,
    column_type: ColumnType,
    samples: Vec<Sample>,
    texts: Vec<(i64, Vec<u8>)>,
}

/// Everything that an answer has.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    header: Option<AnswerHeader>,
    series: Vec<Series>,
    list: Vec<String>,
    estimates: Vec<Option<ReadEstimate>>,
    metadata: Vec<MetadataEntry>,
    exemplars: Vec<SeriesExemplars>,
    ranges: Vec<TimeRange>,
    warnings: Vec<AnswerWarnings>,
    failure: Option<SelectFailure>,
    end: Option<AnswerCounts>,
}

fn samples_of(columns: &Columns) -> Vec<Sample> {
    let one = |at: usize| {
        let histogram = columns.histogram_at(at).cloned();
        (columns.times[at], columns.values[at].to_bits(), columns.start_time_at(at), histogram)
    };
    (0..columns.len()).map(one).collect()
}

/// Adds the entries of a frame.
fn read_entries(
    decoder: &mut AnswerDecoder,
    payload: &[u8],
    series: &mut Vec<Series>,
) -> Result<(), SelectError> {
    let mut offset = 0;
    while let Some(entry) = decoder.next_entry(payload, &mut offset)? {
        if let Some(SeriesStart { labels, column_type }) = entry.start {
            series.push(Series { labels, column_type, samples: Vec::new(), texts: Vec::new() });
        }
        let mut columns = Columns::default();
        let mut times = Vec::new();
        let mut texts = Vec::new();
        for part in Parts::new(&payload[entry.parts]) {
            let part = part?;
            part.read(TimeRange::ALL, &mut columns)?;
            part.read_texts(TimeRange::ALL, &mut times, &mut texts)?;
        }
        let last = series.last_mut().expect("an entry that continues follows another one");
        last.samples.extend(samples_of(&columns));
        last.texts.extend(times.into_iter().zip(texts.iter().map(|text| text.to_vec())));
    }
    Ok(())
}

/// Decodes an answer that arrives in pieces of `piece_bytes`.
fn decode_in_pieces(bytes: &[u8], piece_bytes: usize) -> Result<Answer, SelectError> {
    let mut decoder = AnswerDecoder::default();
    let mut answer = Answer::default();
    for piece in bytes.chunks(piece_bytes.max(1)) {
        decoder.push(piece);
        while let Some(item) = decoder.next_item()? {
            match item {
                AnswerItem::Header(header) => answer.header = Some(header),
                AnswerItem::Series(payload) => {
                    read_entries(&mut decoder, &payload, &mut answer.series)?;
                }
                AnswerItem::List(list) => answer.list.extend(list),
                AnswerItem::Estimate(estimate) => answer.estimates.push(estimate),
                AnswerItem::Metadata(entries) => answer.metadata.extend(entries),
                AnswerItem::Exemplars(exemplars) => answer.exemplars.extend(exemplars),
                AnswerItem::Ranges(ranges) => answer.ranges.extend(ranges),
                AnswerItem::Warnings(warnings) => answer.warnings.push(warnings),
                AnswerItem::Failed(failure) => answer.failure = Some(failure),
                AnswerItem::End(counts) => answer.end = Some(counts),
            }
        }
    }
    assert_eq!(decoder.is_ended(), answer.end.is_some() || answer.failure.is_some());
    Ok(answer)
}

fn decode(bytes: &[u8]) -> Result<Answer, SelectError> {
    decode_in_pieces(bytes, bytes.len())
}

fn header(form: AnswerForm) -> AnswerHeader {
    AnswerHeader { form, catalogue: 77 }
}

fn labels(id: usize) -> Labels {
    let id = format!("{id:05}");
    Labels::from_pairs([("__name__", "up"), ("id", id.as_str()), ("job", "node")])
}

fn histogram(count: u64, bucket_count: u32, reset_hint: ResetHint) -> Arc<Histogram> {
    let spans = vec![Span { offset: 1, length: bucket_count }];
    let counts = (0..u64::from(bucket_count)).map(|at| count + at).collect();
    Arc::new(Histogram::Int(IntHistogram {
        reset_hint,
        count,
        sum: count as f64,
        positive: Buckets { spans, counts },
        ..IntHistogram::default()
    }))
}

fn floats(range: std::ops::Range<i64>) -> Columns {
    let mut columns = Columns::default();
    range.for_each(|time| columns.push(time * 1000, time as f64 / 8.0));
    columns
}

/// Columns with each kind of sample.
fn mixed() -> Columns {
    let mut columns = floats(0..20);
    columns.push(20_000, STALE_NAN);
    columns.push(20_001, f64::from_bits(0x7ff8_dead_beef_0001));
    for time in 21..30 {
        let hint = [ResetHint::Unknown, ResetHint::NotReset, ResetHint::Gauge][time as usize % 3];
        columns.push_histogram(time * 1000, histogram(time as u64, time as u32 % 4, hint));
        columns.set_start_time(time * 1000 - 7);
    }
    columns.push(31_000, -0.0);
    columns
}

fn call() -> SelectCall {
    let matchers = [Matcher::equal("job", "a"), Matcher::new("i", MatchOp::Regex, "b+").expect("compiles")];
    let selector = Selector { matchers: &matchers, range: TimeRange { start: -1, end: 300 } };
    SelectCall {
        tenant: TenantId::new("team-1").expect("a tenant id"),
        store: RecordStore::Database(BucketStoreId::from_bytes([5; 16])),
        view: SelectView::Typed,
        deadline_ms: 30_000,
        limits: SelectLimits { series_max: 1, samples_max: 200, bytes_max: 1 << 40 },
        catalogue: 99,
        consistency: ReadConsistency {
            is_strong: true,
            offsets: Some(
                "2W6PfBtaSjybDw7__gABAg:0:5,2W6PfBtaSjybDw7__gABAg:300:70000".parse().expect("offsets"),
            ),
        },
        question: SelectQuestion::Read(Read::series(SelectRequest::newest(&selector))),
    }
}

#[test]
fn a_call_is_decoded_as_it_was_encoded() {
    let graphite = RecordStore::Graphite(BucketStoreId::GRAPHITE);
    for store in [RecordStore::Default, call().store, graphite] {
        for view in SelectView::ALL {
            let call = SelectCall { store, view, ..call() };
            assert_eq!(decode_call(&encode_call(&call)), Ok(call.clone()));
            for is_strong in [false, true] {
                let consistency = ReadConsistency { is_strong, offsets: None };
                let call = SelectCall { consistency, ..call.clone() };
                assert_eq!(decode_call(&encode_call(&call)), Ok(call));
            }
        }
    }
}

#[test]
fn series_arrive_with_every_bit_in_pieces_of_any_size() {
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    let mut want = Vec::new();
    for id in 0..50 {
        encoder.start_series(&labels(id), ColumnType::Float).expect("short");
        let columns = if id % 2 == 0 { mixed() } else { floats(id as i64..40) };
        encoder.put_columns(&columns).expect("ascends");
        encoder.end_series();
        let samples = samples_of(&columns);
        want.push(Series { labels: labels(id), column_type: ColumnType::Float, samples, texts: Vec::new() });
    }
    let bytes = encoder.finish();
    for piece_bytes in [1, 7, 100, bytes.len()] {
        let found = decode_in_pieces(&bytes, piece_bytes).expect("an answer");
        assert_eq!(found.series, want);
        assert_eq!(found.header, Some(header(AnswerForm::Series)));
        assert_eq!(found.end.map(|end| end.series), Some(50));
    }
}

/// All encodings that travel as they are, before and after decoded samples.
#[test]
fn chunks_travel_as_they_are_stored() {
    let mut all = mixed();
    for time in 32..300 {
        all.push(time * 1000, time as f64);
        if time > 100 {
            all.set_start_time(time);
        }
    }
    let mut chunks = Vec::new();
    kinds::encode(&all, &mut chunks);
    let encodings: Vec<u8> = chunks.iter().map(|chunk| chunk.encoding).collect();
    assert!([1, 4, 5].iter().all(|encoding| encodings.contains(encoding)), "{encodings:?}");
    assert!(encodings.iter().all(|encoding| is_sent_as_stored(*encoding)));
    let mut want = Columns::default();
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    encoder.start_series(&labels(1), ColumnType::Float).expect("short");
    for chunk in &chunks {
        kinds::decode(chunk.encoding, &chunk.bytes, TimeRange::ALL, &mut want).expect("decodes");
        let stored = StoredChunk {
            min_time: chunk.min_time,
            max_time: chunk.max_time,
            sample_count: chunk.count.into(),
            encoding: chunk.encoding,
            bytes: &chunk.bytes,
        };
        encoder.put_chunk(&stored).expect("ascends");
    }
    encoder.put_columns(&floats(400..500)).expect("ascends");
    encoder.end_series();
    floats(400..500)
        .times
        .iter()
        .zip(&floats(400..500).values)
        .for_each(|(time, value)| want.push(*time, *value));
    let found = decode(&encoder.finish()).expect("an answer");
    assert_eq!(found.series[0].samples, samples_of(&want));
    assert_eq!(found.end, Some(AnswerCounts { series: 1, samples: want.len() as u64 }));
}

/// A series larger than a frame, and more texts than one dictionary has.
#[test]
fn memory_of_the_encoder_does_not_grow_with_the_answer() {
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    let mut bytes = Vec::new();
    let mut sent_bytes_max = 0;
    let mut columns = Columns::default();
    // Values without a pattern take eight bytes each.
    let noise = |at: i64| f64::from_bits((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
    (0..300_000).for_each(|at| columns.push(at, noise(at)));
    encoder.start_series(&labels(0), ColumnType::Float).expect("short");
    encoder.put_columns(&columns).expect("ascends");
    encoder.end_series();
    bytes.append(&mut encoder.take());
    for id in 1..1500 {
        let value = format!("{id:05}{}", "x".repeat(4096));
        let of_series = Labels::from_pairs([("id", value.as_str())]);
        encoder.start_series(&of_series, ColumnType::Float).expect("short");
        encoder.put_columns(&floats(0..1)).expect("ascends");
        encoder.end_series();
        sent_bytes_max = sent_bytes_max.max(encoder.finished_bytes());
        bytes.append(&mut encoder.take());
    }
    bytes.append(&mut encoder.finish());
    assert!(sent_bytes_max < 600_000, "{sent_bytes_max} bytes in one frame");
    let found = decode_in_pieces(&bytes, 100_000).expect("an answer");
    assert_eq!(found.series.len(), 1500);
    assert!(found.series[0].samples == samples_of(&columns));
    assert!(found.series.is_sorted_by(|a, b| a.labels.get("id") < b.labels.get("id")));
}

/// Warnings came between the frames of a series that fills several ones, which the reader refuses.
#[test]
fn warnings_follow_the_whole_of_a_series() {
    let mut columns = Columns::default();
    let noise = |at: i64| f64::from_bits((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
    (0..50_000).for_each(|at| columns.push(at, noise(at)));
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    encoder.start_series(&labels(0), ColumnType::Float).expect("short");
    encoder.put_columns(&columns).expect("ascends");
    encoder.end_series();
    encoder.put_warnings(&AnswerWarnings { is_partial: false, texts: vec!["w".to_owned()] });
    let found = decode(&encoder.finish()).expect("an answer");
    assert_eq!((found.series.len(), found.warnings.len(), found.end.is_some()), (1, 1, true));
}

#[test]
fn texts_arrive_as_they_are() {
    let texts: Vec<Arc<[u8]>> =
        (0..20_000).map(|at| Arc::from(format!("text {}", at % 7).as_bytes())).collect();
    let times: Vec<i64> = (0..20_000).map(|at| at * 3).collect();
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    encoder.start_series(&labels(1), ColumnType::Text).expect("short");
    encoder.put_texts(&times, &texts).expect("ascends");
    encoder.end_series();
    let bytes = encoder.finish();
    assert!(bytes.len() < 20_000, "{} bytes", bytes.len());
    let found = decode(&bytes).expect("an answer").series.remove(0);
    assert!(found.samples.is_empty(), "texts are no floats");
    let want: Vec<(i64, Vec<u8>)> = times.into_iter().zip(texts.iter().map(|text| text.to_vec())).collect();
    assert!(found.texts == want);
}

/// Reset hints refer to the sample before, as in a read of a source.
#[test]
fn a_range_of_a_part_is_read_as_from_its_source() {
    let columns = mixed();
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    encoder.start_series(&labels(1), ColumnType::Float).expect("short");
    encoder.put_columns(&columns).expect("ascends");
    encoder.end_series();
    let bytes = encoder.finish();
    let mut decoder = AnswerDecoder::default();
    decoder.push(&bytes);
    let mut payloads = Vec::new();
    while let Some(item) = decoder.next_item().expect("an item") {
        if let AnswerItem::Series(payload) = item {
            let entry = decoder.next_entry(&payload, &mut 0).expect("an entry").expect("a series");
            assert_eq!(entry.times, Some(0..=31_000));
            payloads.push(payload[entry.parts].to_vec());
        }
    }
    for start in 0..columns.len() {
        for end in start..columns.len() {
            let range = TimeRange::new(columns.times[start], columns.times[end]);
            let mut want = Columns::default();
            want.extend_from(&columns, columns.indices_in(range));
            if start == 0 {
                want = Columns::default();
                (0..end).for_each(|at| want.push_from(&columns, at));
            }
            let mut found = Columns::default();
            for part in Parts::new(&payloads[0]) {
                part.expect("a part").read(range, &mut found).expect("reads");
            }
            assert_eq!(samples_of(&found), samples_of(&want), "{start} to {end}");
        }
    }
}

#[test]
fn lists_estimates_and_warnings_arrive() {
    let list: Vec<String> = (0..50_000).map(|at| format!("value {at:06}")).collect();
    let mut encoder = AnswerEncoder::new(header(AnswerForm::List));
    encoder.put_list(&list).expect("short");
    let texts = vec!["a".to_owned(), "b".to_owned()];
    encoder.put_warnings(&AnswerWarnings { is_partial: true, texts: texts.clone() });
    let found = decode(&encoder.finish()).expect("an answer");
    assert!(found.list == list);
    assert_eq!(found.warnings, [AnswerWarnings { is_partial: true, texts }]);
    assert_eq!(found.end, Some(AnswerCounts::default()));
    for estimate in [None, Some(ReadEstimate { series: 5, samples: u64::MAX })] {
        let mut encoder = AnswerEncoder::new(header(AnswerForm::Estimate));
        encoder.put_estimate(estimate);
        assert_eq!(decode(&encoder.finish()).expect("an answer").estimates, [estimate]);
    }
}

/// Questions other than reads of series.
fn questions() -> Vec<SelectQuestion> {
    let matcher = Matcher::new("i", MatchOp::Regex, "b+").expect("compiles");
    vec![
        SelectQuestion::Metadata { metric: None, limit: 0 },
        SelectQuestion::Metadata { metric: Some("up".to_owned()), limit: 300 },
        SelectQuestion::Exemplars {
            selectors: vec![vec![Matcher::equal("job", "a"), matcher], Vec::new()],
            range: TimeRange { start: -5, end: 70_000 },
        },
        SelectQuestion::Ranges,
    ]
}

#[test]
fn questions_are_decoded_as_they_were_encoded() {
    for question in questions() {
        let call = SelectCall { question, ..call() };
        assert_eq!(decode_call(&encode_call(&call)), Ok(call));
    }
}

fn metadata(metric: &str, kind: MetricKind) -> MetadataEntry {
    let text = |text: &str| text.to_owned();
    MetadataEntry { metric: text(metric), kind, help: text("a help"), unit: text("s") }
}

#[test]
fn metadata_exemplars_and_ranges_arrive() {
    let entries: Vec<MetadataEntry> =
        (0..20_000).map(|at| metadata(&format!("m{at}"), MetricKind::from_remote_write(at % 8))).collect();
    let mut frames = RecordFrames::default();
    frames.put_metadata(&entries).expect("short");
    let answer_of = |form: AnswerForm, frames: &mut RecordFrames| {
        let mut encoder = AnswerEncoder::new(header(form));
        encoder.put_frames(frames);
        encoder.finish()
    };
    let bytes = answer_of(AnswerForm::Metadata, &mut frames);
    assert!(decode_in_pieces(&bytes, 100_000).expect("an answer").metadata == entries);
    let exemplar = |at: i64| Exemplar { labels: labels(at as usize), value: -0.0, time_ms: at - 5 };
    let many: Vec<Exemplar> = (0..600).map(exemplar).collect();
    frames.put_exemplars(&labels(1), &many).expect("short");
    frames.put_exemplars(&Labels::empty(), &many[..1]).expect("short");
    frames.end_exemplars();
    let found = decode(&answer_of(AnswerForm::Exemplars, &mut frames)).expect("an answer").exemplars;
    let lens: Vec<(bool, usize)> = found.iter().map(|(of, all)| (*of == labels(1), all.len())).collect();
    assert_eq!(lens, [(true, 256), (true, 256), (true, 88), (false, 1)]);
    assert!(found.into_iter().take(3).flat_map(|(_, all)| all).eq(many));
    let ranges = [TimeRange::new(-7, 3), TimeRange::new(i64::MIN, i64::MAX)];
    frames.put_ranges(&ranges);
    assert_eq!(decode(&answer_of(AnswerForm::Ranges, &mut frames)).expect("an answer").ranges, ranges);
}

pub(super) fn failures() -> Vec<SelectFailure> {
    let text = |text: &str| text.to_owned();
    let second = std::time::Duration::from_secs(1);
    vec![
        SelectFailure::Canceled,
        SelectFailure::Timeout,
        SelectFailure::Memory { what: text("memory") },
        SelectFailure::Limit { what: text("series"), limit: 5 },
        SelectFailure::Selection(SelectionExceeded::Series { used: 2, limit: 1 }),
        SelectFailure::Selection(SelectionExceeded::Samples { used: 4, limit: 3 }),
        SelectFailure::Selection(SelectionExceeded::Range { used: 2 * second, limit: second }),
        SelectFailure::Corrupt { path: text("a/index"), what: text("checksum") },
        SelectFailure::Io { path: text("a/index"), what: text("no space") },
        SelectFailure::Unavailable { what: text("starting") },
    ]
}

#[test]
fn each_failure_ends_an_answer() {
    for failure in failures() {
        let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
        encoder.start_series(&labels(1), ColumnType::Float).expect("short");
        encoder.put_columns(&mixed()).expect("ascends");
        let found = decode(&encoder.fail(&failure)).expect("an answer");
        assert_eq!((found.failure, found.series.len()), (Some(failure), 0));
    }
}

#[test]
fn samples_that_do_not_ascend_are_an_error_of_the_source() {
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    encoder.start_series(&labels(1), ColumnType::Float).expect("short");
    encoder.put_columns(&floats(0..5)).expect("ascends");
    let error = encoder.put_columns(&floats(4..5)).expect_err("a time again");
    assert_eq!(error.to_string(), "samples from 4000 on are not in order of time");
    let mut backwards = floats(10..12);
    backwards.times.reverse();
    assert!(encoder.put_columns(&backwards).is_err());
    let long = "x".repeat(17 << 20);
    let labels = Labels::from_pairs([("id", long.as_str())]);
    let mut encoder = AnswerEncoder::new(header(AnswerForm::Series));
    let error = encoder.start_series(&labels, ColumnType::Float).expect_err("too long").to_string();
    assert!(error.starts_with("labels of 17825816 bytes") && error.ends_with("16777216 at most"), "{error}");
}
