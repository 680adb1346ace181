//! The walk over an `io.prometheus.write.v2.Request`: unfolds the labels of series, copies their samples into
//! columns.
//!
//! Invariants: fields may come in any order and be repeated, numbers packed or not, missing ones have
//! proto3's defaults, unknown ones are skipped. A refused series adds nothing to the batch.

use std::fmt::Write as _;

use chronolith_base::Reservation;
use chronolith_model::batch::BatchExemplar;
use chronolith_model::labels::is_legacy_label_name;
use chronolith_model::quote::write_quoted;
use chronolith_model::{BatchSeries, ExemplarReject, LabelsBuilder, WriteBatch};

use super::family::{Families, SeriesMetadata};
use super::labels::LabelRefs;
use super::limits::REFS_SHOWN_MAX;
use super::symbols::Symbols;
use super::unfolded::Unfolded;
use crate::remote_write::charge::Charge;
use crate::remote_write::histogram::{HistogramReader, HistogramTally};
use crate::remote_write::labels::{WireLabel, parse_labels, push_label};
use crate::remote_write::wire::{Cursor, FIXED64, LEN, VARINT};
use crate::remote_write::{
    DecodeError, EXEMPLAR_COUNT_MAX, EXEMPLAR_LABEL_BYTES_MAX, Refused, SAMPLE_COUNT_MAX, SERIES_COUNT_MAX,
};

/// Tag byte of `timeseries` in the request.
const TAG_SERIES: u8 = 0x2a;
/// Tag byte of packed `labels_refs` in a series.
const TAG_LABEL_REFS: u8 = 0x0a;
/// Tag byte of `samples` in a series.
const TAG_SAMPLE: u8 = 0x12;
/// Tag byte of `value` in a sample.
const TAG_VALUE: u8 = 0x09;
/// Tag byte of `timestamp` in a sample.
const TAG_TIME: u8 = 0x10;

/// Fills `batch` from the decompressed `body`.
pub(super) fn request<N: Naming>(
    body: &[u8],
    bytes_max: usize,
    held: &mut Reservation,
    charge: Charge<'_>,
    batch: &mut WriteBatch,
) -> Result<Refused, DecodeError> {
    let symbols = Symbols::find(body)?;
    held.grow(symbols.heap_bytes() as u64)?;
    let mut walk = Walk {
        symbols,
        unfolded: Unfolded::new(bytes_max, held),
        batch,
        labels: LabelRefs::default(),
        last: LabelRefs::default(),
        exemplar: LabelRefs::default(),
        families: Families::default(),
        reader: HistogramReader::new(charge),
        refused: Refused::default(),
    };
    let mut at = Cursor::new(body);
    while !at.is_empty() {
        if at.peek() == Some(TAG_SERIES) {
            at.advance();
            N::series(&mut walk, at.message()?)?;
            continue;
        }
        match at.tag()? {
            (5, LEN) => N::series(&mut walk, at.message()?)?,
            (5, _) => return Err(at.wrong_type().into()),
            // Acknowledging a request of which nothing was understood would lose it.
            (1..=3, _) => {
                return Err(at.error("field of remote write 1.0 in a request of remote write 2.0").into());
            }
            (_, other) => at.skip(other)?,
        }
    }
    walk.batch.pad_start_times();
    Ok(walk.refused)
}

/// Naming of series.
pub(super) trait Naming {
    /// Reads one series.
    fn series(walk: &mut Walk<'_, '_>, message: Cursor<'_>) -> Result<(), DecodeError>;
}

pub(super) struct Walk<'a, 'b> {
    symbols: Symbols<'a>,
    unfolded: Unfolded<'b>,
    batch: &'b mut WriteBatch,
    /// Labels of the series at hand.
    labels: LabelRefs,
    /// Labels of the series before.
    last: LabelRefs,
    /// References of the exemplar at hand.
    exemplar: LabelRefs,
    families: Families,
    reader: HistogramReader<'b>,
    refused: Refused,
}

/// Samples, histograms and exemplars of a series, without its labels.
#[derive(Default)]
struct Content {
    metadata: SeriesMetadata,
    histograms: HistogramTally,
    /// Refused exemplars, and the fault of the first one.
    bad_exemplar_count: u64,
    bad_exemplar: Option<String>,
}

/// Ends of the columns before a series, to which a refused series is rolled back.
struct Marks {
    raw: usize,
    samples: usize,
    histograms: usize,
    exemplars: usize,
}

impl Walk<'_, '_> {
    pub(super) fn series(&mut self, message: Cursor<'_>) -> Result<(), DecodeError> {
        if self.batch.series.len() + self.refused.series_count as usize >= SERIES_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "series", limit: SERIES_COUNT_MAX });
        }
        let marks = Marks {
            raw: self.batch.raw.len(),
            samples: self.batch.times.len(),
            histograms: self.batch.histograms.len(),
            exemplars: self.batch.exemplars.len(),
        };
        let content = self.content(message)?;
        let raw = &mut self.batch.raw;
        self.labels.unfold(&self.last, &self.symbols, &mut self.unfolded, raw)?;
        match self.fault(&content, &marks) {
            Some(why) => self.refuse(why, &content, &marks),
            None => self.accept(content, &marks)?,
        }
        Ok(())
    }

    fn accept(&mut self, content: Content, marks: &Marks) -> Result<(), DecodeError> {
        self.families.keep(
            &self.labels.refs,
            content.metadata,
            &self.symbols,
            &mut self.unfolded,
            &mut self.batch.metadata,
            &mut self.refused,
        )?;
        let series = || label_text(self.batch.raw.get(marks.raw..).unwrap_or(&[]));
        self.refused.invalid_histogram_count += content.histograms.invalid_count;
        if let Some(error) = content.histograms.invalid {
            self.refused.note(|| format!("{error} for series {}", series()));
        }
        if let Some(fault) = content.bad_exemplar {
            let series = series();
            self.refused.exemplars.add(ExemplarReject::BadReference, content.bad_exemplar_count);
            self.refused.note(|| format!("parsing exemplar for series {series}: {fault}"));
        }
        let batch = &mut *self.batch;
        batch.series.push(BatchSeries {
            raw: index(marks.raw)..index(batch.raw.len()),
            samples: index(marks.samples)..index(batch.times.len()),
        });
        Ok(())
    }

    /// Number of accepted series.
    pub(super) fn series_count(&self) -> usize {
        self.batch.series.len()
    }

    /// Replaces labels of the series that was accepted last; the value of the second is a symbol.
    pub(super) fn put_over(
        &mut self,
        first: (&[u8], &[u8]),
        second: (&[u8], u32),
    ) -> Result<(), DecodeError> {
        // A sender without symbols refers to nothing.
        let value = if second.1 == 0 { None } else { self.symbols.get(second.1) };
        // The unit is dropped alone, as in metadata; as a label it would refuse the series.
        let value = value.filter(|unit| std::str::from_utf8(unit).is_ok());
        let over = [first, (second.0, value.unwrap_or(b""))];
        let raw = &mut self.batch.raw;
        if over.iter().any(|(_, value)| !value.is_empty()) {
            self.labels.put_over(over, &self.symbols, &mut self.unfolded, raw)?;
        }
        let end = index(raw.len());
        self.batch.series.iter_mut().next_back().into_iter().for_each(|series| series.raw.end = end);
        Ok(())
    }

    /// Takes back what the series has written.
    fn refuse(&mut self, why: String, content: &Content, marks: &Marks) {
        let batch = &mut *self.batch;
        self.refused.series_count += 1;
        let kept = batch.histograms.len() - marks.histograms;
        self.refused.sample_count += (batch.times.len() - marks.samples - kept) as u64;
        self.refused.histogram_count += kept as u64 + content.histograms.invalid_count;
        let exemplar_count = (batch.exemplars.len() - marks.exemplars) as u64 + content.bad_exemplar_count;
        self.refused.exemplars.add(ExemplarReject::BadReference, exemplar_count);
        self.refused.note(|| why);
        self.labels.clear();
        batch.raw.truncate(marks.raw);
        batch.times.truncate(marks.samples);
        batch.values.truncate(marks.samples);
        batch.start_times.truncate(marks.samples);
        batch.histograms.truncate(marks.histograms);
        batch.exemplars.truncate(marks.exemplars);
    }

    /// Returns the reason for refusing the series, if the decoder can see one.
    fn fault(&self, content: &Content, marks: &Marks) -> Option<String> {
        let symbol_count = self.symbols.len();
        if let Some(fault) = refs_fault(&self.labels.refs, symbol_count) {
            return Some(format!("parsing labels for series {}: {fault}", refs_text(&self.labels.refs)));
        }
        if let Some(fault) = content.metadata.fault(symbol_count) {
            return Some(format!("parsing metadata for series {}: {fault}", refs_text(&self.labels.refs)));
        }
        if self.batch.times.len() == marks.samples && content.histograms.invalid.is_none() {
            let series = label_text(self.batch.raw.get(marks.raw..).unwrap_or(&[]));
            let what = "TimeSeries must contain at least one sample or histogram for series";
            return Some(format!("{what} {series}"));
        }
        None
    }

    fn content(&mut self, message: Cursor<'_>) -> Result<Content, DecodeError> {
        let mut at = message;
        let mut content = Content::default();
        std::mem::swap(&mut self.labels, &mut self.last);
        self.labels.clear();
        if at.peek() == Some(TAG_LABEL_REFS) {
            at.advance();
            self.labels.push_packed(at.message()?)?;
        }
        while at.peek() == Some(TAG_SAMPLE) {
            at.advance();
            self.sample(at.message()?)?;
        }
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => self.labels.push_packed(at.message()?)?,
                (1, VARINT) => self.labels.push(at.varint_u32()?)?,
                (2, LEN) => self.sample(at.message()?)?,
                (3, LEN) => self.reader.read(at.message()?, self.batch, &mut content.histograms)?,
                (4, LEN) => self.exemplar(at.message()?, &mut content)?,
                (5, LEN) => content.metadata = SeriesMetadata::read(at.message()?)?,
                (1..=5, _) => return Err(at.wrong_type().into()),
                (_, other) => at.skip(other)?,
            }
        }
        Ok(content)
    }

    fn sample(&mut self, message: Cursor<'_>) -> Result<(), DecodeError> {
        let (time, value, start) = sample(message)?;
        let batch = &mut *self.batch;
        if batch.times.len() >= SAMPLE_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "samples", limit: SAMPLE_COUNT_MAX });
        }
        batch.push_sample(time, value, start);
        Ok(())
    }

    fn exemplar(&mut self, mut message: Cursor<'_>, content: &mut Content) -> Result<(), DecodeError> {
        let count = self.batch.exemplars.len() as u64 + self.refused.exemplars.total();
        if count + content.bad_exemplar_count >= EXEMPLAR_COUNT_MAX as u64 {
            return Err(DecodeError::TooMany { what: "exemplars", limit: EXEMPLAR_COUNT_MAX });
        }
        self.exemplar.clear();
        let mut time_ms = 0i64;
        let mut value = 0f64;
        while !message.is_empty() {
            match message.tag()? {
                (1, LEN) => self.exemplar.push_packed(message.message()?)?,
                (1, VARINT) => self.exemplar.push(message.varint_u32()?)?,
                (2, FIXED64) => value = f64::from_bits(message.fixed64()?),
                (3, VARINT) => time_ms = message.varint()?.cast_signed(),
                (1..=3, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            }
        }
        let refs = &self.exemplar.refs;
        if let Some(fault) = refs_fault(refs, self.symbols.len()) {
            content.bad_exemplar_count += 1;
            content.bad_exemplar.get_or_insert(fault);
            return Ok(());
        }
        let bytes = refs.iter().map(|&idx| self.symbols.get(idx).map_or(0, <[u8]>::len)).sum::<usize>();
        if bytes > EXEMPLAR_LABEL_BYTES_MAX {
            let found = bytes as u64;
            let limit = EXEMPLAR_LABEL_BYTES_MAX as u64;
            return Err(DecodeError::TooLarge { what: "labels of one exemplar", found, limit });
        }
        self.unfolded.take(size_of::<BatchExemplar>() + bytes)?;
        let mut labels = LabelsBuilder::new();
        let mut is_utf8 = true;
        for &[name, value] in refs.as_chunks::<2>().0 {
            let bytes_of = |idx| self.symbols.get(idx).unwrap_or(b"");
            let label = WireLabel { name: bytes_of(name), value: bytes_of(value) };
            is_utf8 &= push_label(label, &mut labels);
        }
        if let Some(exemplar) = self.refused.exemplar(&mut labels, is_utf8, value, time_ms) {
            let series_idx = index(self.batch.series.len());
            self.batch.exemplars.push(BatchExemplar { series_idx, exemplar });
        }
        Ok(())
    }
}

/// Time, value and start time.
fn sample(mut message: Cursor<'_>) -> Result<(i64, f64, i64), DecodeError> {
    let mut time = 0i64;
    let mut value = 0f64;
    let mut start = 0i64;
    while let Some(byte) = message.peek() {
        match byte {
            TAG_VALUE => {
                message.advance();
                value = f64::from_bits(message.fixed64()?);
            }
            TAG_TIME => {
                message.advance();
                time = message.varint()?.cast_signed();
            }
            _ => match message.tag()? {
                (1, FIXED64) => value = f64::from_bits(message.fixed64()?),
                (2, VARINT) => time = message.varint()?.cast_signed(),
                (3, VARINT) => start = message.varint()?.cast_signed(),
                (1..=3, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            },
        }
    }
    Ok((time, value, start))
}

/// Returns the fault of references to labels, in Prometheus's words.
fn refs_fault(refs: &[u32], symbol_count: usize) -> Option<String> {
    let (pairs, rest) = refs.as_chunks::<2>();
    if !rest.is_empty() {
        return Some(format!("invalid labelRefs length {}", refs.len()));
    }
    let outside = |&&[name, value]: &&[u32; 2]| name.max(value) as usize >= symbol_count;
    pairs.iter().find(outside).map(|[name, value]| {
        format!("labelRefs {name} (name) = {value} (value) outside of symbols table (size {symbol_count})")
    })
}

/// References as Prometheus prints them, cut where they are many.
fn refs_text(refs: &[u32]) -> String {
    let mut out = String::from("[");
    for (i, idx) in refs.iter().take(REFS_SHOWN_MAX).enumerate() {
        out.push_str(if i > 0 { " " } else { "" });
        out.push_str(&idx.to_string());
    }
    out.push_str(if refs.len() > REFS_SHOWN_MAX { " ...]" } else { "]" });
    out
}

/// The labels of a series as Prometheus prints them in these errors: the metric name among the others.
fn label_text(raw: &[u8]) -> String {
    let mut builder = LabelsBuilder::new();
    // Labels that are not valid are refused when the series is stored; the text shows them repaired.
    let _ = parse_labels(raw, &mut builder);
    let mut out = String::from("{");
    for (name, value) in builder.finish().iter() {
        out.push_str(if out.len() > 1 { ", " } else { "" });
        // Writing to a string does not fail.
        let _ = if is_legacy_label_name(name) { out.write_str(name) } else { write_quoted(&mut out, name) };
        out.push('=');
        let _ = write_quoted(&mut out, value);
    }
    out.push('}');
    out
}

/// Unfolded text stays below [`crate::remote_write::DECOMPRESSED_BYTES_MAX`], samples below their limit.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a request fit u32")
}
