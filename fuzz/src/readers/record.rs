//! Records of the replicated log: `decode_record`. Inputs are records without their checksum, which the
//! reader adds, so that changes get past it.
//!
//! Properties: samples that are encoded again have the same series, times, values and rows; a batch with an
//! error is empty. Not here: the log.

use chronolith_base::Rng;
use chronolith_base::crc::crc32c;
use chronolith_format::record::{
    BatchSplit, Cut, Record, RecordEncoder, RecordOrigin, RecordStore, SampleOrigin, decode_record,
    encode_event,
};
use chronolith_ingest::added_labels::source_of;
use chronolith_ingest::line_protocol;
use chronolith_model::batch::{BatchExemplar, BatchSeries};
use chronolith_model::{
    DuplicatePolicy, Exemplar, Histogram, Labels, MatchOp, Matcher, MetadataEntry, MetricKind, ReorderRule,
    TenantId, TimeRange, WordKind, WriteBatch, reorder::Update,
};

use super::mutate::{offset, pick};
use super::reader::{Reader, check_equal};

const CHECKSUM_BYTES: usize = 4;
/// Offset of the flags.
const FLAGS_AT: usize = 6;

const TOKENS: &[&[u8]] = &[
    b"CLRR\x01\x01",
    &[0],
    &[1],
    &[2],
    &[0x7f],
    &[0x80, 1],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    &[0; 8],
    &[0x02, 0, 0, 0, 0, 0, 0xf0, 0x7f],
    b"\x06team-1\x00",
];

/// The reader.
pub(super) struct RecordReader {
    batch: WriteBatch,
    again: WriteBatch,
}

impl Default for RecordReader {
    fn default() -> RecordReader {
        RecordReader { batch: line_protocol::new_batch(), again: line_protocol::new_batch() }
    }
}

fn origin() -> RecordOrigin {
    RecordOrigin {
        tenant: TenantId::new("team-1").expect("a tenant id"),
        store: RecordStore::Default,
        request_id: "9f8e".to_owned(),
        arrival_ms: 1_700_000_000_123,
    }
}

/// A batch with every column.
fn batch_of(protocol: u8, series_count: u32) -> WriteBatch {
    let mut batch = WriteBatch::new(source_of(protocol).expect("a protocol"));
    let rule = ReorderRule::new(1_000, 12, Update::Disallow).expect("a rule");
    batch.reorder_rules.push(rule);
    for idx in 0..series_count {
        let raw = batch.raw.len() as u32;
        batch.raw.extend_from_slice(format!("cpu,host=web{},region=eu", idx / 5).as_bytes());
        let field = batch.raw.len() as u32;
        batch.raw.extend_from_slice(format!("f{}", idx % 5).as_bytes());
        batch.fields.push(field..batch.raw.len() as u32);
        let kind = WordKind::ALL[idx as usize % WordKind::ALL.len()];
        batch.kinds.push(kind);
        batch.rows.push(idx / 5);
        batch.reordered.push((idx % 2) as u16);
        let first = batch.times.len() as u32;
        for at in 0..idx % 3 {
            let mut value = f64::from(idx + at);
            if kind == WordKind::Text {
                value = f64::from_bits(batch.texts.len() as u64);
                batch.texts.push(raw..raw + at);
            }
            if kind == WordKind::Float && at == 1 {
                batch.histograms.push((batch.times.len() as u32, Histogram::stale().into()));
            }
            batch.push_sample(i64::from(idx % 2 * 1_000 + at), value, i64::from(at));
        }
        batch.series.push(BatchSeries { raw: raw..field, samples: first..batch.times.len() as u32 });
        let labels = Labels::from_pairs([("span_id", "b"), ("trace_id", "a")]);
        batch
            .exemplars
            .push(BatchExemplar { series_idx: idx, exemplar: Exemplar { labels, value: 0.5, time_ms: 7 } });
    }
    batch.pad_start_times();
    let text = |text: &str| text.to_owned();
    batch.metadata.push(MetadataEntry {
        metric: text("cpu"),
        kind: MetricKind::Gauge,
        help: text("h"),
        unit: text("s"),
    });
    batch
}

fn records_of(batch: &WriteBatch, duplicates: DuplicatePolicy) -> Result<Vec<Vec<u8>>, String> {
    let mut split = BatchSplit::default();
    split.fill(batch, 1, |_| 0);
    let origin = origin();
    let mut records = Vec::new();
    for part in split.parts() {
        let origin = SampleOrigin { request: &origin, duplicates };
        let encoded =
            RecordEncoder::default().encode(origin, batch, part, |record| records.push(record.to_vec()));
        encoded.map_err(|error| format!("encoded again: {error}"))?;
    }
    Ok(records)
}

/// Samples, rows and extras of a batch as text, without what an encoder may choose.
fn content_of(batch: &WriteBatch) -> Vec<String> {
    let of_series = |(idx, series): (usize, &BatchSeries)| {
        let samples = series.samples.start as usize..series.samples.end as usize;
        let kind = batch.kind_of(idx);
        let value = |at: usize| match kind {
            WordKind::Text => batch
                .texts
                .get(batch.values[at].to_bits() as usize)
                .map(|text| batch.raw[text.start as usize..text.end as usize].to_vec()),
            _ => Some(batch.values[at].to_bits().to_le_bytes().to_vec()),
        };
        let words: Vec<_> = samples.clone().map(value).collect();
        let starts: Vec<i64> =
            samples.clone().map(|at| batch.start_times.get(at).copied().unwrap_or(0)).collect();
        format!(
            "{:?} {:?} {kind:?} {:?} {:?} {words:?} {starts:?} {:?} {}",
            batch.raw_of(series),
            batch.field_of(idx),
            batch.reorder_rule_of(idx),
            &batch.times[samples],
            batch.histograms_of(series).iter().map(|(_, one)| format!("{one:?}")).collect::<Vec<_>>(),
            batch
                .rows
                .get(idx)
                .zip(batch.rows.get(idx.wrapping_sub(1)))
                .is_some_and(|(row, before)| row == before),
        )
    };
    let mut content: Vec<String> = batch.series.iter().enumerate().map(of_series).collect();
    let mut exemplars: Vec<_> = batch.exemplars.iter().collect();
    exemplars.sort_by_key(|one| one.series_idx);
    // Bits, as a value that is no number does not equal itself.
    content.extend(exemplars.iter().map(|one| {
        let Exemplar { labels, value, time_ms } = &one.exemplar;
        format!("{} {labels} {:x} {time_ms}", one.series_idx, value.to_bits())
    }));
    content.extend(batch.metadata.iter().map(|entry| format!("{entry:?}")));
    content
}

impl Reader for RecordReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for protocol in [0, 1, 2, 3, 4, 0x82] {
            let batch = batch_of(protocol, 1 + u32::from(protocol) % 7 * 6);
            seeds.extend(records_of(&batch, DuplicatePolicy::LastWins).expect("small"));
        }
        let matcher = Matcher::new("job", MatchOp::Regex, "a|b").expect("a matcher");
        let range = TimeRange { start: 0, end: 60_000 };
        let events = [
            Record::Delete { origin: origin(), number: Some(7), selectors: vec![vec![matcher]], range },
            Record::Tick { arrival_ms: 5 },
            Record::Cut(Cut { arrival_ms: 5, before_ms: 3, scope: None }),
        ];
        for event in events {
            let mut out = Vec::new();
            encode_event(&event, &mut out).expect("small");
            seeds.push(out);
        }
        seeds.iter_mut().for_each(|seed| seed.truncate(seed.len() - CHECKSUM_BYTES));
        seeds
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Changes flags, and bytes to numbers near theirs: most are lengths and counts.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        match rng.below(4) {
            0 => {
                if let Some(byte) = input.get_mut(FLAGS_AT + rng.below(2) as usize) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            _ => {
                for _ in 0..=rng.below(3) {
                    let at = offset(rng, input);
                    if let Some(byte) = input.get_mut(at) {
                        *byte = byte.wrapping_add(*pick(rng, &[1, 2, 0xff, 0xfe, 0x80, 0x40]));
                    }
                }
            }
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let record = [input, &crc32c(input).to_le_bytes()].concat();
        let found = match decode_record(&record, source_of, &mut self.batch) {
            Ok(found) => found,
            Err(error) => {
                let WriteBatch { raw, series, times, .. } = &self.batch;
                if !raw.is_empty() || !series.is_empty() || !times.is_empty() {
                    return Err(format!("a batch with the error {error} has samples"));
                }
                return Ok(error.to_string().split(" at offset").next().unwrap_or_default().to_owned());
            }
        };
        let Record::Samples { duplicates, .. } = found else {
            let mut out = Vec::new();
            encode_event(&found, &mut out).map_err(|error| error.to_string())?;
            let again = decode_record(&out, source_of, &mut self.again);
            check_equal("events", &again, &Ok(found))?;
            return Ok("event".to_owned());
        };
        let records = records_of(&self.batch, duplicates)?;
        if let [only] = &records[..] {
            decode_record(only, source_of, &mut self.again)
                .map_err(|error| format!("encoded again: {error}"))?;
            check_equal("content", &content_of(&self.batch), &content_of(&self.again))?;
        } else if !self.batch.series.is_empty() {
            return Err(format!("{} records of a small one", records.len()));
        }
        let WriteBatch { series, times, texts, histograms, exemplars, .. } = &self.batch;
        Ok(format!(
            "{} {} {} {} {}",
            series.len(),
            times.len(),
            texts.len(),
            histograms.len(),
            exemplars.len()
        ))
    }
}
