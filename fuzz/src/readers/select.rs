//! Answers of a select between nodes: `AnswerDecoder`, and the samples of its parts. Checksums of frames are
//! computed again before an input is read, so that changes get past them.
//!
//! Property: series that are encoded again have the same labels, types, samples and texts. Not here: the
//! transport.

use std::sync::Arc;

use chronolith_base::Rng;
use chronolith_base::crc::Crc32c;
use chronolith_format::select::{
    AnswerDecoder, AnswerEncoder, AnswerForm, AnswerHeader, AnswerItem, AnswerWarnings, Parts, SelectError,
    SelectFailure, SeriesStart,
};
use chronolith_model::query::{ColumnType, ReadEstimate};
use chronolith_model::{Columns, Histogram, Labels, TimeRange};

use super::mutate::{offset, pick};
use super::reader::{Reader, check_equal};

const ALL: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };
/// Kind, length and checksum of a frame.
const HEAD_BYTES: usize = 9;

const TOKENS: &[&[u8]] = &[
    &[0],
    &[1],
    &[2],
    &[0x7f],
    &[0x80, 1],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    &[7, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    b"CLSA\x01\x00",
    &[0x02, 0, 0, 0, 0, 0, 0xf0, 0x7f],
];

/// The reader.
pub(super) struct SelectReader;

/// A series as it was decoded.
struct Series {
    labels: Labels,
    column_type: ColumnType,
    columns: Columns,
    times: Vec<i64>,
    texts: Vec<Arc<[u8]>>,
}

fn columns(start: i64, count: i64) -> Columns {
    let mut columns = Columns::default();
    for at in 0..count {
        let time = start + at * 15_000;
        if at % 7 == 3 {
            columns.push_histogram(time, Histogram::stale().into());
        } else {
            columns.push(time, at as f64 / 4.0);
        }
        if at % 5 == 1 {
            columns.set_start_time(start);
        }
    }
    columns
}

fn encoded(series: &[Series]) -> Result<Vec<u8>, String> {
    let mut encoder = AnswerEncoder::new(AnswerHeader { form: AnswerForm::Series, catalogue: 7 });
    for one in series {
        let put = encoder
            .start_series(&one.labels, one.column_type)
            .and_then(|()| encoder.put_columns(&one.columns))
            .and_then(|()| encoder.put_texts(&one.times, &one.texts));
        put.map_err(|error| format!("encoded again: {error}"))?;
        encoder.end_series();
    }
    Ok(encoder.finish())
}

/// Computes the checksums of all frames.
fn with_checksums(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut start = 0;
    while let Some(head) = bytes.get(start..start + HEAD_BYTES) {
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let end = start.saturating_add(HEAD_BYTES).saturating_add(len);
        let Some(payload) = bytes.get(start + HEAD_BYTES..end) else { break };
        let mut sum = Crc32c::new();
        sum.update(&head[..5]);
        sum.update(payload);
        let sum = sum.finish().to_le_bytes();
        bytes[start + 5..start + HEAD_BYTES].copy_from_slice(&sum);
        start = end;
    }
    bytes
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
            let columns = Columns::default();
            series.push(Series { labels, column_type, columns, times: Vec::new(), texts: Vec::new() });
        }
        let last = series.last_mut().expect("an entry that continues follows another one");
        for part in Parts::new(&payload[entry.parts]) {
            let part = part?;
            part.read(ALL, &mut last.columns)?;
            part.read_texts(ALL, &mut last.times, &mut last.texts)?;
        }
    }
    Ok(())
}

/// Series of an answer, and a text about its other items.
fn read_answer(bytes: &[u8]) -> Result<(Vec<Series>, String), SelectError> {
    let mut decoder = AnswerDecoder::default();
    let mut series = Vec::new();
    let mut outcome = String::new();
    decoder.push(bytes);
    while let Some(item) = decoder.next_item()? {
        match item {
            AnswerItem::Series(payload) => read_entries(&mut decoder, &payload, &mut series)?,
            AnswerItem::Header(header) => outcome.push_str(&format!("{:?} ", header.form)),
            AnswerItem::List(list) => outcome.push_str(&format!("list {} ", list.len())),
            AnswerItem::Estimate(estimate) => outcome.push_str(&format!("{} ", estimate.is_some())),
            AnswerItem::Metadata(entries) => outcome.push_str(&format!("metadata {} ", entries.len())),
            AnswerItem::Exemplars(exemplars) => outcome.push_str(&format!("exemplars {} ", exemplars.len())),
            AnswerItem::Ranges(ranges) => outcome.push_str(&format!("ranges {} ", ranges.len())),
            AnswerItem::Warnings(warnings) => {
                outcome.push_str(&format!("warnings {} {} ", warnings.is_partial, warnings.texts.len()));
            }
            AnswerItem::Failed(failure) => {
                let name = format!("{failure:?}");
                outcome.push_str(name.split([' ', '{', '(']).next().unwrap_or_default());
            }
            AnswerItem::End(_) => outcome.push_str("end"),
        }
    }
    Ok((series, outcome))
}

/// Samples and texts of series as text, without what an encoder may choose.
fn content_of(series: &[Series]) -> Vec<String> {
    let of_series = |one: &Series| {
        let values: Vec<u64> = one.columns.values.iter().map(|value| value.to_bits()).collect();
        let starts: Vec<i64> = (0..one.columns.len()).map(|at| one.columns.start_time_at(at)).collect();
        format!(
            "{} {:?} {:?} {values:?} {starts:?} {:?} {:?} {:?}",
            one.labels, one.column_type, one.columns.times, one.columns.histograms, one.times, one.texts
        )
    };
    series.iter().map(of_series).collect()
}

impl Reader for SelectReader {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let series = |id: i64, column_type| Series {
            labels: Labels::from_pairs([("__name__", "up"), ("id", &*id.to_string())]),
            column_type,
            columns: columns(id * 1000, id),
            times: Vec::new(),
            texts: Vec::new(),
        };
        let mut texts = series(0, ColumnType::Text);
        texts.times = vec![1, 2, 5];
        texts.texts = vec![Arc::from(&b"a"[..]), Arc::from(&b""[..]), Arc::from(&b"a"[..])];
        let floats: Vec<Series> = [1, 2, 40].into_iter().map(|id| series(id, ColumnType::Float)).collect();
        let header = |form| AnswerHeader { form, catalogue: 300 };
        let mut list = AnswerEncoder::new(header(AnswerForm::List));
        list.put_list(&["a".to_owned(), "b".to_owned()]).expect("short");
        list.put_warnings(&AnswerWarnings { is_partial: true, texts: vec!["w".to_owned()] });
        let mut estimate = AnswerEncoder::new(header(AnswerForm::Estimate));
        estimate.put_estimate(Some(ReadEstimate { series: 5, samples: 600 }));
        let failure = SelectFailure::Limit { what: "series".to_owned(), limit: 5 };
        vec![
            encoded(&floats).expect("ascends"),
            encoded(&[texts]).expect("ascends"),
            list.finish(),
            estimate.finish(),
            AnswerEncoder::new(header(AnswerForm::Series)).fail(&failure),
        ]
    }

    fn tokens(&self) -> &'static [&'static [u8]] {
        TOKENS
    }

    /// Changes bytes to numbers near theirs: most are lengths and counts.
    fn mutate(&self, rng: &Rng, input: &mut Vec<u8>) {
        for _ in 0..=rng.below(3) {
            let at = offset(rng, input);
            if let Some(byte) = input.get_mut(at) {
                *byte = byte.wrapping_add(*pick(rng, &[1, 2, 0xff, 0xfe, 0x80, 0x40]));
            }
        }
    }

    fn read(&mut self, input: &[u8]) -> Result<String, String> {
        let (series, outcome) = match read_answer(&with_checksums(input)) {
            Ok(read) => read,
            Err(error) => {
                return Ok(error.to_string().split(" at offset").next().unwrap_or_default().to_owned());
            }
        };
        // A forged series may have texts between other samples, which no writer makes.
        let is_of_one_kind = |one: &Series| one.columns.is_empty() || one.times.is_empty();
        if series.iter().all(is_of_one_kind) {
            let (again, _) =
                read_answer(&encoded(&series)?).map_err(|error| format!("encoded again: {error}"))?;
            check_equal("series", &content_of(&series), &content_of(&again))?;
        }
        Ok(outcome)
    }
}
