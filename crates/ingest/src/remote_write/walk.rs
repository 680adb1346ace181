//! The walk over a `prometheus.WriteRequest`: finds where series lie and copies their samples into columns.
//!
//! Invariants: fields may come in any order and be repeated, missing ones have proto3's defaults, unknown
//! ones are skipped. Labels are not looked into: that they are well-formed is checked when the series is new.

use chronolith_model::batch::BatchExemplar;
use chronolith_model::{BatchSeries, LabelsBuilder, MetadataEntry, MetricKind, WriteBatch};

use super::charge::Charge;
use super::histogram::{HistogramReader, HistogramTally};
use super::labels::{label, push_label};
use super::wire::{Cursor, FIXED64, LEN, VARINT};
use super::{
    DecodeError, EXEMPLAR_COUNT_MAX, EXEMPLAR_LABEL_BYTES_MAX, LABEL_SECTION_BYTES_MAX, METADATA_COUNT_MAX,
    Refused, SAMPLE_COUNT_MAX, SERIES_COUNT_MAX,
};

/// Tag byte of a length-prefixed field 1: a series in the request, a label in a series.
const TAG_1_LEN: u8 = 0x0a;
/// Tag byte of `samples` in a series.
const TAG_2_LEN: u8 = 0x12;
/// Tag byte of `value` in a sample.
const TAG_1_FIXED64: u8 = 0x09;
/// Tag byte of `timestamp` in a sample.
const TAG_2_VARINT: u8 = 0x10;

/// Fills the columns of `batch` from `body`. Ranges of series point into `body` and, for labels that other
/// fields interrupt, past its end: into the returned copies, which the caller appends to it.
pub(super) fn request(
    body: &[u8],
    charge: Charge<'_>,
    batch: &mut WriteBatch,
) -> Result<(Vec<u8>, Refused), DecodeError> {
    let reader = HistogramReader::new(charge);
    let mut walk = Walk { body, copies: Vec::new(), batch, reader, refused: Refused::default() };
    let mut at = Cursor::new(body);
    while !at.is_empty() {
        if at.peek() == Some(TAG_1_LEN) {
            at.advance();
            walk.series(at.message()?)?;
            continue;
        }
        match at.tag()? {
            (1, LEN) => walk.series(at.message()?)?,
            (3, LEN) => metadata(at.message()?, &mut walk.batch.metadata, &mut walk.refused)?,
            (1 | 3, _) => return Err(at.wrong_type().into()),
            // Acknowledging a request of which nothing was understood would lose it.
            (4 | 5, LEN) => {
                return Err(at.error("field of remote write 2.0 in a request of remote write 1.0").into());
            }
            (_, other) => at.skip(other)?,
        }
    }
    walk.batch.pad_start_times();
    Ok((walk.copies, walk.refused))
}

struct Walk<'a, 'b> {
    body: &'a [u8],
    copies: Vec<u8>,
    batch: &'b mut WriteBatch,
    reader: HistogramReader<'b>,
    refused: Refused,
}

impl Walk<'_, '_> {
    fn series(&mut self, message: Cursor<'_>) -> Result<(), DecodeError> {
        if self.batch.series.len() >= SERIES_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "series", limit: SERIES_COUNT_MAX });
        }
        let sample_start = self.batch.times.len();
        let mut at = message;
        let section_start = at.offset();
        label_fields(&mut at)?;
        let mut section = section_start..at.offset();
        sample_fields(&mut at, &mut self.batch.times, &mut self.batch.values)?;
        if !at.is_empty() {
            let mut rest = Rest { section, copied: None, tally: HistogramTally::default() };
            self.rest(&mut at, &mut rest)?;
            section = match rest.copied {
                Some(start) => self.body.len() + start..self.body.len() + self.copies.len(),
                None => rest.section,
            };
            self.refused.invalid_histogram_count += rest.tally.invalid_count;
            if let Some(error) = rest.tally.invalid {
                self.refused.note(|| error.to_string());
            }
        }
        if section.len() > LABEL_SECTION_BYTES_MAX {
            let found = section.len() as u64;
            let limit = LABEL_SECTION_BYTES_MAX as u64;
            return Err(DecodeError::TooLarge { what: "labels of one series", found, limit });
        }
        if self.batch.times.len() > SAMPLE_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "samples", limit: SAMPLE_COUNT_MAX });
        }
        self.batch.series.push(BatchSeries {
            raw: index(section.start)..index(section.end),
            samples: index(sample_start)..index(self.batch.times.len()),
        });
        Ok(())
    }

    /// Reads the fields after the usual "labels, then samples".
    fn rest(&mut self, at: &mut Cursor<'_>, rest: &mut Rest) -> Result<(), DecodeError> {
        while !at.is_empty() {
            let start = at.offset();
            match at.tag()? {
                (1, LEN) => {
                    at.message()?;
                    rest.add_label(start..at.offset(), self.body, &mut self.copies);
                }
                (2, LEN) => {
                    let (time, value) = sample(at.message()?)?;
                    self.batch.times.push(time);
                    self.batch.values.push(value);
                    if self.batch.times.len() > SAMPLE_COUNT_MAX {
                        return Err(DecodeError::TooMany { what: "samples", limit: SAMPLE_COUNT_MAX });
                    }
                }
                (3, LEN) => exemplar(at.message()?, self.batch, &mut self.refused)?,
                (4, LEN) => self.reader.read(at.message()?, self.batch, &mut rest.tally)?,
                (1..=4, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(())
    }
}

/// Body and copies together stay below [`super::DECOMPRESSED_BYTES_MAX`] twice, samples below their limit.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a request fit u32")
}

/// Steps over label fields for as long as they follow each other.
fn label_fields(at: &mut Cursor<'_>) -> Result<(), DecodeError> {
    while at.peek() == Some(TAG_1_LEN) {
        at.advance();
        at.message()?;
    }
    Ok(())
}

/// Copies samples for as long as they follow each other.
fn sample_fields(
    at: &mut Cursor<'_>,
    times: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Result<(), DecodeError> {
    while at.peek() == Some(TAG_2_LEN) {
        at.advance();
        let (time, value) = sample(at.message()?)?;
        times.push(time);
        values.push(value);
        if times.len() > SAMPLE_COUNT_MAX {
            break;
        }
    }
    Ok(())
}

fn sample(mut message: Cursor<'_>) -> Result<(i64, f64), DecodeError> {
    let mut time = 0i64;
    let mut value = 0f64;
    while let Some(byte) = message.peek() {
        match byte {
            TAG_1_FIXED64 => {
                message.advance();
                value = f64::from_bits(message.fixed64()?);
            }
            TAG_2_VARINT => {
                message.advance();
                time = message.varint()?.cast_signed();
            }
            _ => match message.tag()? {
                (1, FIXED64) => value = f64::from_bits(message.fixed64()?),
                (2, VARINT) => time = message.varint()?.cast_signed(),
                (1 | 2, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            },
        }
    }
    Ok((time, value))
}

/// State of a series that has more than labels followed by samples.
struct Rest {
    /// The labels so far, within the body.
    section: std::ops::Range<usize>,
    /// Start of the copied labels of this series, once they are interrupted.
    copied: Option<usize>,
    tally: HistogramTally,
}

impl Rest {
    fn add_label(&mut self, field: std::ops::Range<usize>, body: &[u8], copies: &mut Vec<u8>) {
        let bytes = |range: &std::ops::Range<usize>| body.get(range.clone()).unwrap_or(&[]);
        if self.copied.is_some() {
            copies.extend_from_slice(bytes(&field));
        } else if self.section.is_empty() {
            self.section = field;
        } else if self.section.end == field.start {
            self.section.end = field.end;
        } else {
            self.copied = Some(copies.len());
            copies.extend_from_slice(bytes(&self.section));
            copies.extend_from_slice(bytes(&field));
        }
    }
}

/// Adds an exemplar of the series that is pushed next.
fn exemplar(
    mut message: Cursor<'_>,
    batch: &mut WriteBatch,
    refused: &mut Refused,
) -> Result<(), DecodeError> {
    if batch.exemplars.len() as u64 + refused.exemplars.total() >= EXEMPLAR_COUNT_MAX as u64 {
        return Err(DecodeError::TooMany { what: "exemplars", limit: EXEMPLAR_COUNT_MAX });
    }
    let mut labels = LabelsBuilder::new();
    let mut label_bytes = 0usize;
    let mut is_utf8 = true;
    let mut time_ms = 0i64;
    let mut value = 0f64;
    while !message.is_empty() {
        match message.tag()? {
            (1, LEN) => {
                let field = message.message()?;
                label_bytes = label_bytes.saturating_add(field.rest().len());
                if label_bytes > EXEMPLAR_LABEL_BYTES_MAX {
                    let found = label_bytes as u64;
                    let limit = EXEMPLAR_LABEL_BYTES_MAX as u64;
                    return Err(DecodeError::TooLarge { what: "labels of one exemplar", found, limit });
                }
                is_utf8 &= push_label(label(field)?, &mut labels);
            }
            (2, FIXED64) => value = f64::from_bits(message.fixed64()?),
            (3, VARINT) => time_ms = message.varint()?.cast_signed(),
            (1..=3, _) => return Err(message.wrong_type().into()),
            (_, other) => message.skip(other)?,
        }
    }
    if let Some(exemplar) = refused.exemplar(&mut labels, is_utf8, value, time_ms) {
        batch.exemplars.push(BatchExemplar { series_idx: index(batch.series.len()), exemplar });
    }
    Ok(())
}

fn metadata(
    mut message: Cursor<'_>,
    out: &mut Vec<MetadataEntry>,
    refused: &mut Refused,
) -> Result<(), DecodeError> {
    if out.len() as u64 + refused.metadata_count >= METADATA_COUNT_MAX as u64 {
        return Err(DecodeError::TooMany { what: "metadata entries", limit: METADATA_COUNT_MAX });
    }
    let mut kind = MetricKind::Unknown;
    let mut metric: &[u8] = b"";
    let mut help: &[u8] = b"";
    let mut unit: &[u8] = b"";
    while !message.is_empty() {
        match message.tag()? {
            (1, VARINT) => kind = MetricKind::from_remote_write(message.varint()?),
            (2, LEN) => metric = message.message()?.rest(),
            (4, LEN) => help = message.message()?.rest(),
            (5, LEN) => unit = message.message()?.rest(),
            (1 | 2 | 4 | 5, _) => return Err(message.wrong_type().into()),
            (_, other) => message.skip(other)?,
        }
    }
    // Without its name an entry belongs to nothing; without a help text or a unit it still has a type.
    let is_named = metric.is_empty();
    let metric = refused.metadata_text("name", metric);
    if metric.is_empty() && !is_named {
        return Ok(());
    }
    let help = refused.metadata_text("help", help).to_owned();
    let unit = refused.metadata_text("unit", unit).to_owned();
    out.push(MetadataEntry { metric: metric.to_owned(), kind, help, unit });
    Ok(())
}
