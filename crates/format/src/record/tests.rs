//! Records round-trip in every shape of a batch; they stay within their limit; damage and forged bytes end
//! with an error; golden files read as ever.

use std::sync::Arc;

use chronolith_model::batch::{BatchExemplar, BatchSeries, LabelSource};
use chronolith_model::databases::BucketStoreId;
use chronolith_model::histogram::{Buckets, Span};
use chronolith_model::reorder::Update;
use chronolith_model::{
    DuplicatePolicy, Exemplar, Histogram, IntHistogram, Labels, LabelsBuilder, MatchOp, Matcher,
    MetadataEntry, MetricKind, Reject, ReorderRule, SeriesKey, TenantId, TimeRange, TimeUnit, WordKind,
    WriteBatch,
};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};

use super::*;

mod forged;
mod golden;

fn no_labels(_: SeriesKey<'_>, _: &mut LabelsBuilder) -> Result<(), Reject> {
    Ok(())
}

/// Sources of protocols below 10.
fn source(protocol: u8) -> Option<LabelSource> {
    (protocol < 10).then_some(LabelSource { protocol, parse: no_labels, is_typed: true })
}

fn new_batch() -> WriteBatch {
    WriteBatch::new(source(7).expect("a source"))
}

fn origin() -> RecordOrigin {
    RecordOrigin {
        tenant: TenantId::new("team-1").expect("a tenant id"),
        store: RecordStore::Database(BucketStoreId::from_bytes([5; 16])),
        request_id: "9f8e".to_owned(),
        arrival_ms: 1_700_000_000_123,
    }
}

/// Records of a batch.
fn records(batch: &WriteBatch, part_count: usize, part_of: impl Fn(&[u8]) -> u32) -> Vec<Vec<u8>> {
    let origin = origin();
    let mut split = BatchSplit::default();
    split.fill(batch, part_count, part_of);
    let mut encoder = RecordEncoder::default();
    let mut records = Vec::new();
    for part in split.parts() {
        let origin = SampleOrigin { request: &origin, duplicates: DuplicatePolicy::LastWins };
        encoder.encode(origin, batch, part, |record| records.push(record.to_vec())).expect("fits");
    }
    records
}

fn records_of(batch: &WriteBatch) -> Vec<Vec<u8>> {
    records(batch, 1, |_| 0)
}

fn decoded(record: &[u8]) -> WriteBatch {
    let mut batch = new_batch();
    let found = decode_record(record, source, &mut batch).expect("a record");
    assert_eq!(found, Record::Samples { origin: origin(), duplicates: DuplicatePolicy::LastWins });
    batch
}

/// A sample with everything that the batch has about it.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    time: i64,
    bits: u64,
    start_time: i64,
    text: Option<Vec<u8>>,
    histogram: Option<Arc<Histogram>>,
}

/// A series with everything that the batch has about it.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    protocol: u8,
    key: Vec<u8>,
    field: Vec<u8>,
    kind: WordKind,
    rule: Option<ReorderRule>,
    samples: Vec<Sample>,
    exemplars: Vec<Exemplar>,
}

fn series_of(batch: &WriteBatch) -> Vec<Series> {
    let of_series = |idx: usize| {
        let series = &batch.series[idx];
        let kind = batch.kind_of(idx);
        let sample = |at: usize| {
            let bits = batch.values[at].to_bits();
            let text = (kind == WordKind::Text).then(|| {
                let range = &batch.texts[bits as usize];
                batch.raw[range.start as usize..range.end as usize].to_vec()
            });
            let histograms = batch.histograms_of(series).iter();
            Sample {
                time: batch.times[at],
                bits: if text.is_some() { 0 } else { bits },
                start_time: batch.start_times.get(at).copied().unwrap_or(0),
                text,
                histogram: histograms.filter(|(of, _)| *of as usize == at).map(|(_, one)| one.clone()).next(),
            }
        };
        let exemplars = batch.exemplars.iter().filter(|one| one.series_idx as usize == idx);
        Series {
            protocol: batch.source.protocol,
            key: batch.raw_of(series).to_vec(),
            field: batch.field_of(idx).to_vec(),
            kind,
            rule: batch.reorder_rule_of(idx),
            samples: (series.samples.start as usize..series.samples.end as usize).map(sample).collect(),
            exemplars: exemplars.map(|one| one.exemplar.clone()).collect(),
        }
    };
    (0..batch.series.len()).map(of_series).collect()
}

/// Rows as groups of series.
fn rows_of(batch: &WriteBatch) -> Vec<usize> {
    batch.rows.chunk_by(|left, right| left == right).map(<[u32]>::len).collect()
}

fn range(start: usize, end: usize) -> std::ops::Range<u32> {
    start as u32..end as u32
}

/// Adds a series with the samples that are added until the next one.
fn push_series(batch: &mut WriteBatch, key: &[u8]) {
    let start = batch.raw.len();
    batch.raw.extend_from_slice(key);
    let samples = range(batch.times.len(), batch.times.len());
    batch.series.push(BatchSeries { raw: range(start, batch.raw.len()), samples });
}

fn push_sample(batch: &mut WriteBatch, time: i64, value: f64) {
    batch.push_sample(time, value, 0);
    batch.series.last_mut().expect("a series").samples.end += 1;
}

fn histogram(count: u64, bucket_count: u32) -> Arc<Histogram> {
    let spans = vec![Span { offset: 2, length: bucket_count }];
    Arc::new(Histogram::Int(IntHistogram {
        count: count * u64::from(bucket_count),
        sum: count as f64 / 3.0,
        positive: Buckets { spans, counts: vec![count; bucket_count as usize] },
        ..IntHistogram::default()
    }))
}

fn exemplar(series_idx: u32, trace: &str) -> BatchExemplar {
    let labels = Labels::from_pairs([("span_id", "b"), ("trace_id", trace)]);
    BatchExemplar { series_idx, exemplar: Exemplar { labels, value: 0.25, time_ms: -7 } }
}

fn metadata(metric: &str) -> MetadataEntry {
    let kind = MetricKind::GaugeHistogram;
    MetadataEntry { metric: metric.to_owned(), kind, help: "Größe".to_owned(), unit: "bytes".to_owned() }
}

/// A scrape: keys that differ in the middle, one time but for one sample, start times, histograms, exemplars,
/// metadata, a series without samples.
fn scrape() -> WriteBatch {
    let mut batch = new_batch();
    for idx in 0..40 {
        push_series(
            &mut batch,
            format!("requests_total code={} instance=10.0.0.1:9100 job=api", idx * 7).as_bytes(),
        );
        let at = batch.times.len() as u32;
        if idx % 5 == 3 {
            let one = histogram(idx, 1 + idx as u32 % 4);
            push_sample(&mut batch, 1_700_000_000_000, one.sum());
            batch.histograms.push((at, one));
        } else if idx != 20 {
            let time = if idx == 30 { -5 } else { 1_700_000_000_000 };
            push_sample(&mut batch, time, f64::from_bits(0x7ff0_0000_0000_0002 + idx));
        }
    }
    batch.start_times =
        (0..batch.times.len() as i64).map(|idx| [0, 1_600_000_000_000, idx][idx as usize % 3]).collect();
    batch.exemplars = vec![exemplar(0, "x"), exemplar(20, "y"), exemplar(20, "z"), exemplar(39, "")];
    batch.metadata = vec![metadata("requests_total"), metadata("")];
    batch
}

/// Lines: fields of all kinds, rows, texts, repeated keys.
fn lines() -> WriteBatch {
    let mut batch = new_batch();
    for line in 0..6_u32 {
        let key = format!("cpu,host=web{:02},region=eu", line / 2);
        for (idx, kind) in (0..).zip(WordKind::ALL) {
            if line == 4 && idx == 1 {
                continue;
            }
            match batch.series.last().map(|last| last.raw.clone()) {
                Some(raw) if idx > 0 => {
                    let samples = range(batch.times.len(), batch.times.len());
                    batch.series.push(BatchSeries { raw, samples });
                }
                _ => push_series(&mut batch, key.as_bytes()),
            }
            let start = batch.raw.len();
            batch.raw.extend_from_slice(format!("field{}", idx + line / 5).as_bytes());
            batch.fields.push(range(start, batch.raw.len()));
            batch.kinds.push(kind);
            batch.rows.push(10 + line * 3);
            let mut value = f64::from_bits(u64::from(line) << 55 | 3);
            if kind == WordKind::Text {
                value = f64::from_bits(batch.texts.len() as u64);
                let start = batch.raw.len();
                batch.raw.extend_from_slice(if line == 3 { b"" } else { b"a text \xff" });
                batch.texts.push(range(start, batch.raw.len()));
            }
            push_sample(&mut batch, 1_700_000_000_000_000_000 + i64::from(line), value);
        }
    }
    batch
}

/// Paths with rules of reorder buffers.
fn paths() -> WriteBatch {
    let mut batch = new_batch();
    let rule = |interval, update| ReorderRule::new(interval, 12, update).expect("a rule");
    batch.reorder_rules =
        vec![rule(1_000, Update::Allow), rule(60_000, Update::Disallow), rule(10_000, Update::Allow)];
    for reference in [0, 2, 2, 1, 0, 2] {
        push_series(&mut batch, b"servers.web01.cpu");
        push_sample(&mut batch, 60_000, 1.0);
        batch.reordered.push(reference);
    }
    batch
}

#[test]
fn batches_round_trip() {
    for batch in [scrape(), lines(), paths()] {
        let records = records_of(&batch);
        assert_eq!(records.len(), 1);
        let found = decoded(&records[0]);
        assert_eq!(series_of(&found), series_of(&batch));
        assert_eq!((rows_of(&found), &found.metadata), (rows_of(&batch), &batch.metadata));
        assert_eq!(found.start_times.is_empty(), batch.start_times.is_empty());
        // The same batch gives the same bytes, whatever it was decoded from.
        assert_eq!(records_of(&found), records);
    }
    assert_eq!(records_of(&new_batch()), Vec::<Vec<u8>>::new(), "an empty batch has no records");
}

#[test]
fn columns_that_have_nothing_to_tell_are_left_out() {
    let mut batch = new_batch();
    for idx in 0..100 {
        push_series(&mut batch, format!("up instance={idx}").as_bytes());
        batch.kinds.push(WordKind::Float);
        push_sample(&mut batch, 1_700_000_000_000, f64::from(idx));
    }
    let records = records_of(&batch);
    // Three bytes per key and one or two that differ, eight per value.
    assert!(records[0].len() < 100 * 13 + 120, "{} bytes", records[0].len());
    let found = decoded(&records[0]);
    assert!(found.kinds.is_empty() && found.fields.is_empty() && found.rows.is_empty());
    assert_eq!(series_of(&found), series_of(&batch));
}

#[test]
fn events_round_trip() {
    let matchers = |value: &str| {
        let matcher = |name, op| Matcher::new(name, op, value).expect("a matcher");
        vec![matcher("job", MatchOp::Equal), matcher("__name__", MatchOp::NotRegex)]
    };
    let scope = CutScope { tenant: origin().tenant, store: RecordStore::Graphite(BucketStoreId::GRAPHITE) };
    let events = [
        Record::Delete {
            origin: RecordOrigin { store: RecordStore::Default, ..origin() },
            number: Some(u64::MAX),
            selectors: vec![matchers("a.*"), matchers("")],
            range: TimeRange { start: i64::MIN, end: 7 },
        },
        Record::Tick { arrival_ms: -1 },
        Record::Cut(Cut { arrival_ms: 5, before_ms: i64::MAX, scope: None }),
        Record::Cut(Cut { arrival_ms: 5, before_ms: 0, scope: Some(scope) }),
    ];
    let mut batch = scrape();
    for event in events {
        let mut out = vec![1, 2, 3];
        encode_event(&event, &mut out).expect("fits");
        assert_eq!(decode_record(&out, source, &mut batch), Ok(event));
        assert!(batch.series.is_empty(), "an event has no samples");
    }
}

#[test]
fn a_store_has_the_unit_of_its_times() {
    let id = BucketStoreId::from_bytes([1; 16]);
    let units = [RecordStore::Default, RecordStore::Graphite(id), RecordStore::Database(id)]
        .map(RecordStore::time_unit);
    assert_eq!(units, [TimeUnit::Milli, TimeUnit::Milli, TimeUnit::Nano]);
}

#[test]
fn a_long_request_id_is_cut_within_a_record() {
    let origin = RecordOrigin { request_id: "ä".repeat(REQUEST_ID_BYTES_MAX), ..origin() };
    let event =
        Record::Delete { origin, number: None, selectors: Vec::new(), range: TimeRange { start: 0, end: 1 } };
    let mut out = Vec::new();
    encode_event(&event, &mut out).expect("fits");
    let Ok(Record::Delete { origin, .. }) = decode_record(&out, source, &mut new_batch()) else {
        panic!("another record")
    };
    assert_eq!(origin.request_id, "ä".repeat(REQUEST_ID_BYTES_MAX / 2));
}

/// All series of several records, with parts of a divided series joined again.
fn joined(records: &[Vec<u8>]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for series in records.iter().flat_map(|record| series_of(&decoded(record))) {
        match all.last_mut() {
            Some(last) if (&last.key, &last.field) == (&series.key, &series.field) => {
                last.samples.extend(series.samples);
                last.exemplars.extend(series.exemplars);
            }
            _ => all.push(series),
        }
    }
    all
}

#[test]
fn a_large_batch_becomes_several_records() {
    let mut batch = new_batch();
    for idx in 0..3_000_u32 {
        // Keys that have nothing in common.
        push_series(&mut batch, &format!("{:08x}", idx.wrapping_mul(0x9e37_79b9)).repeat(100).into_bytes());
        push_sample(&mut batch, i64::from(idx), 1.0);
    }
    let records = records_of(&batch);
    assert!(records.len() >= 5 && records.iter().all(|record| record.len() <= 513 << 10));
    assert!(records[..records.len() - 1].iter().all(|record| record.len() > 486_000));
    assert_eq!(joined(&records), series_of(&batch));
}

#[test]
fn a_series_with_many_samples_is_divided() {
    let mut batch = new_batch();
    push_series(&mut batch, b"first");
    push_sample(&mut batch, 0, 0.5);
    push_series(&mut batch, b"long");
    for idx in 0..200_000_u64 {
        push_sample(&mut batch, i64::MAX.wrapping_mul(idx as i64), f64::from_bits(idx));
    }
    batch.exemplars = (0..30_000).map(|idx| exemplar(1, &format!("{idx:064}"))).collect();
    push_series(&mut batch, b"last");
    push_sample(&mut batch, 0, 0.5);
    let records = records_of(&batch);
    assert!(records.len() >= 5 && records.iter().all(|record| record.len() <= RECORD_BYTES_MAX));
    assert_eq!(joined(&records), series_of(&batch));
}

#[test]
fn the_series_of_a_row_are_in_one_record() {
    let mut batch = new_batch();
    for row in 0..60 {
        push_series(&mut batch, format!("m,row={row}").as_bytes());
        let raw = batch.series.last().expect("a series").raw.clone();
        for field in 0..300 {
            if field > 0 {
                batch.series.push(BatchSeries {
                    raw: raw.clone(),
                    samples: range(batch.times.len(), batch.times.len()),
                });
            }
            let start = batch.raw.len();
            batch.raw.extend_from_slice(format!("{row:050}{field:050}").as_bytes());
            batch.fields.push(range(start, batch.raw.len()));
            batch.rows.push(row);
            push_sample(&mut batch, 7, 1.0);
        }
    }
    let records = records_of(&batch);
    assert!(records.len() >= 3);
    let rows: Vec<usize> = records.iter().flat_map(|record| rows_of(&decoded(record))).collect();
    assert_eq!(rows, vec![300; 60], "a row that is in two records has two groups");
}

#[test]
fn keys_that_repeat_each_other_do_not_exceed_the_memory_of_a_reader() {
    let mut batch = new_batch();
    let prefix = vec![b'x'; 60_000];
    for idx in 0..400_u32 {
        push_series(&mut batch, &[&prefix[..], &idx.to_le_bytes()].concat());
        push_sample(&mut batch, 0, 0.0);
    }
    let records = records_of(&batch);
    assert_eq!(records.len(), 2, "24 MB of keys take few bytes, and two times the memory of a record");
    assert_eq!(joined(&records), series_of(&batch));
}

#[test]
fn a_part_that_no_record_holds_is_an_error_that_names_both_sizes() {
    let fails = |batch: &WriteBatch| {
        let mut split = BatchSplit::default();
        split.fill(batch, 1, |_| 0);
        let origin = origin();
        let origin = SampleOrigin { request: &origin, duplicates: DuplicatePolicy::KeepFirst };
        let part = split.parts().next().expect("one part");
        RecordEncoder::default().encode(origin, batch, part, |_| ()).expect_err("too large").to_string()
    };
    let mut long_key = new_batch();
    push_series(&mut long_key, &vec![b'k'; RECORD_BYTES_MAX]);
    push_sample(&mut long_key, 0, 0.0);
    let text = fails(&long_key);
    assert!(text.starts_with("a sample with its series takes up to 900097 bytes, and a record"), "{text}");
    let mut long_row = new_batch();
    for idx in 0..2 {
        push_series(&mut long_row, &vec![b'0' + idx; RECORD_BYTES_MAX / 2]);
        push_sample(&mut long_row, 0, 0.0);
        long_row.rows.push(0);
    }
    assert!(fails(&long_row).starts_with("a row takes"));
    let mut long_help = new_batch();
    long_help.metadata.push(metadata(&"m".repeat(RECORD_BYTES_MAX)));
    assert!(fails(&long_help).starts_with("a metadata entry takes"));
    let selectors =
        vec![vec![Matcher::new("a", MatchOp::Equal, &"x".repeat(RECORD_BYTES_MAX)).expect("valid")]];
    let range = TimeRange { start: 0, end: 0 };
    let event = Record::Delete { origin: origin(), number: None, selectors, range };
    assert!(encode_event(&event, &mut Vec::new()).is_err());
}

#[test]
fn parts_have_each_item_once_and_in_order() {
    let mut batch = scrape();
    batch.exemplars.reverse();
    let part_of = |key: &[u8]| key.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 3;
    let mut split = BatchSplit::default();
    split.fill(&batch, 4, part_of);
    let parts: Vec<BatchPart<'_>> = split.parts().collect();
    assert!(parts[3].is_empty() && !parts[0].is_empty());
    for (part, number) in parts.iter().zip(0..) {
        assert!(part.series.is_sorted());
        let in_part = |series_idx: &u32| part_of(batch.raw_of(&batch.series[*series_idx as usize])) == number;
        assert!(part.series.iter().all(in_part));
        let series: Vec<u32> =
            part.exemplars.iter().map(|&idx| batch.exemplars[idx as usize].series_idx).collect();
        assert!(series.is_sorted() && series.iter().all(in_part));
    }
    let count = |of: fn(&BatchPart<'_>) -> usize| parts.iter().map(of).sum::<usize>();
    assert_eq!(count(|part| part.series.len()), 40);
    assert_eq!((count(|part| part.exemplars.len()), count(|part| part.metadata.len())), (4, 2));
    let by_key = |mut series: Vec<Series>| {
        series.iter_mut().for_each(|one| one.exemplars.sort_by_key(|one| one.labels.to_string()));
        series.sort_by(|left, right| left.key.cmp(&right.key));
        series
    };
    let found = records(&batch, 4, part_of).iter().flat_map(|record| series_of(&decoded(record))).collect();
    assert_eq!(by_key(found), by_key(series_of(&batch)));
}
