//! The walk over an `io.prometheus.write.v2.Request`: unfolds the labels of series, copies their samples into
//! columns.
//!
//! Holds: fields may come in any order and be repeated, numbers packed or not, missing ones have proto3's
//! defaults, unknown ones are skipped. A series that is refused leaves nothing behind.

use std::fmt::Write as _;

use chronolith_base::Reservation;
use chronolith_base::bytes::put_uvarint;
use chronolith_model::batch::BatchExemplar;
use chronolith_model::labels::is_legacy_label_name;
use chronolith_model::quote::write_quoted;
use chronolith_model::{BatchSeries, Exemplar, LabelsBuilder, WriteBatch};

use super::family::{Families, SeriesMetadata};
use super::symbols::Symbols;
use super::{LABEL_REF_COUNT_MAX, REFS_SHOWN_MAX, Refused, Unfolded};
use crate::remote_write::labels::parse_labels;
use crate::remote_write::wire::{Cursor, FIXED64, LEN, VARINT};
use crate::remote_write::{
    DecodeError, EXEMPLAR_COUNT_MAX, EXEMPLAR_LABEL_BYTES_MAX, LABEL_SECTION_BYTES_MAX, SAMPLE_COUNT_MAX,
    SERIES_COUNT_MAX,
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
pub(super) fn request(
    body: &[u8],
    bytes_max: usize,
    held: &mut Reservation,
    batch: &mut WriteBatch,
) -> Result<Refused, DecodeError> {
    let symbols = Symbols::find(body)?;
    held.grow(symbols.heap_bytes() as u64)?;
    let mut walk = Walk {
        symbols,
        unfolded: Unfolded::new(bytes_max, held),
        batch,
        refs: Vec::new(),
        families: Families::default(),
        refused: Refused::default(),
    };
    let mut at = Cursor::new(body);
    while !at.is_empty() {
        if at.peek() == Some(TAG_SERIES) {
            at.advance();
            walk.series(at.message()?)?;
            continue;
        }
        match at.tag()? {
            (5, LEN) => walk.series(at.message()?)?,
            (5, _) => return Err(at.wrong_type().into()),
            // Acknowledging a request of which nothing was understood would lose it.
            (1..=3, _) => {
                return Err(at.error("field of remote write 1.0 in a request of remote write 2.0").into());
            }
            (_, other) => at.skip(other)?,
        }
    }
    walk.pad_start_times();
    Ok(walk.refused)
}

struct Walk<'a, 'b> {
    symbols: Symbols<'a>,
    unfolded: Unfolded<'b>,
    batch: &'b mut WriteBatch,
    /// References to the labels of the series at hand.
    refs: Vec<u32>,
    families: Families,
    refused: Refused,
}

/// What a series holds beside its labels.
#[derive(Default)]
struct Content {
    metadata: SeriesMetadata,
    histogram_count: u32,
    /// Exemplars that were refused, and what is wrong with the first.
    bad_exemplar_count: u64,
    bad_exemplar: Option<String>,
}

/// Where the columns ended before a series.
struct Marks {
    raw: usize,
    samples: usize,
    exemplars: usize,
}

impl Walk<'_, '_> {
    fn series(&mut self, message: Cursor<'_>) -> Result<(), DecodeError> {
        if self.batch.series.len() + self.refused.series_count as usize >= SERIES_COUNT_MAX {
            return Err(DecodeError::TooMany { what: "series", limit: SERIES_COUNT_MAX });
        }
        let marks = Marks {
            raw: self.batch.raw.len(),
            samples: self.batch.times.len(),
            exemplars: self.batch.exemplars.len(),
        };
        let content = self.content(message)?;
        self.unfold_labels()?;
        match self.fault(&content, &marks) {
            Some(why) => self.refuse(why, &content, &marks),
            None => self.accept(content, &marks)?,
        }
        Ok(())
    }

    fn accept(&mut self, content: Content, marks: &Marks) -> Result<(), DecodeError> {
        self.families.keep(
            &self.refs,
            content.metadata,
            &self.symbols,
            &mut self.unfolded,
            &mut self.batch.metadata,
        )?;
        if let Some(fault) = content.bad_exemplar {
            let series = label_text(self.batch.raw.get(marks.raw..).unwrap_or(&[]));
            self.refused.exemplar_count += content.bad_exemplar_count;
            self.refused.note(|| format!("parsing exemplar for series {series}: {fault}"));
        }
        let batch = &mut *self.batch;
        batch.series.push(BatchSeries {
            raw: index(marks.raw)..index(batch.raw.len()),
            samples: index(marks.samples)..index(batch.times.len()),
            histogram_count: content.histogram_count,
        });
        Ok(())
    }

    /// Takes back what the series has written.
    fn refuse(&mut self, why: String, content: &Content, marks: &Marks) {
        let batch = &mut *self.batch;
        self.refused.series_count += 1;
        self.refused.sample_count += (batch.times.len() - marks.samples) as u64;
        self.refused.histogram_count += u64::from(content.histogram_count);
        self.refused.exemplar_count +=
            (batch.exemplars.len() - marks.exemplars) as u64 + content.bad_exemplar_count;
        self.refused.note(|| why);
        batch.raw.truncate(marks.raw);
        batch.times.truncate(marks.samples);
        batch.values.truncate(marks.samples);
        batch.start_times.truncate(marks.samples);
        batch.exemplars.truncate(marks.exemplars);
    }

    /// Why the series cannot be stored, as far as it shows here.
    fn fault(&self, content: &Content, marks: &Marks) -> Option<String> {
        let symbol_count = self.symbols.len();
        if let Some(fault) = refs_fault(&self.refs, symbol_count) {
            return Some(format!("parsing labels for series {}: {fault}", refs_text(&self.refs)));
        }
        if let Some(fault) = content.metadata.fault(symbol_count) {
            return Some(format!("parsing metadata for series {}: {fault}", refs_text(&self.refs)));
        }
        if self.batch.times.len() == marks.samples && content.histogram_count == 0 {
            let series = label_text(self.batch.raw.get(marks.raw..).unwrap_or(&[]));
            let what = "TimeSeries must contain at least one sample or histogram for series";
            return Some(format!("{what} {series}"));
        }
        None
    }

    fn content(&mut self, message: Cursor<'_>) -> Result<Content, DecodeError> {
        let mut at = message;
        let mut content = Content::default();
        self.refs.clear();
        if at.peek() == Some(TAG_LABEL_REFS) {
            at.advance();
            packed_refs(at.message()?, &mut self.refs)?;
        }
        while at.peek() == Some(TAG_SAMPLE) {
            at.advance();
            self.sample(at.message()?)?;
        }
        while !at.is_empty() {
            match at.tag()? {
                (1, LEN) => packed_refs(at.message()?, &mut self.refs)?,
                (1, VARINT) => push_ref(at.varint_u32()?, &mut self.refs)?,
                (2, LEN) => self.sample(at.message()?)?,
                (3, LEN) => {
                    at.message()?;
                    // A histogram field takes two bytes at least, so the count stays far below u32::MAX.
                    content.histogram_count += 1;
                }
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
        if start != 0 {
            batch.start_times.resize(batch.times.len(), 0);
            batch.start_times.push(start);
        }
        batch.times.push(time);
        batch.values.push(value);
        Ok(())
    }

    /// The column of start times is as long as that of the times, or empty.
    fn pad_start_times(&mut self) {
        if !self.batch.start_times.is_empty() {
            self.batch.start_times.resize(self.batch.times.len(), 0);
        }
    }

    fn exemplar(&mut self, mut message: Cursor<'_>, content: &mut Content) -> Result<(), DecodeError> {
        let count = self.batch.exemplars.len() as u64 + self.refused.exemplar_count;
        if count + content.bad_exemplar_count >= EXEMPLAR_COUNT_MAX as u64 {
            return Err(DecodeError::TooMany { what: "exemplars", limit: EXEMPLAR_COUNT_MAX });
        }
        let mut refs = Vec::new();
        let (mut time_ms, mut value) = (0i64, 0f64);
        while !message.is_empty() {
            match message.tag()? {
                (1, LEN) => packed_refs(message.message()?, &mut refs)?,
                (1, VARINT) => push_ref(message.varint_u32()?, &mut refs)?,
                (2, FIXED64) => value = f64::from_bits(message.fixed64()?),
                (3, VARINT) => time_ms = message.varint()?.cast_signed(),
                (1..=3, _) => return Err(message.wrong_type().into()),
                (_, other) => message.skip(other)?,
            }
        }
        if let Some(fault) = refs_fault(&refs, self.symbols.len()) {
            content.bad_exemplar_count += 1;
            content.bad_exemplar.get_or_insert(fault);
            return Ok(());
        }
        let bytes = refs.iter().map(|&idx| self.symbols.get(idx).map_or(0, <[u8]>::len)).sum::<usize>();
        if bytes > EXEMPLAR_LABEL_BYTES_MAX {
            let (found, limit) = (bytes as u64, EXEMPLAR_LABEL_BYTES_MAX as u64);
            return Err(DecodeError::TooLarge { what: "labels of one exemplar", found, limit });
        }
        self.unfolded.take(size_of::<BatchExemplar>() + bytes)?;
        let mut labels = LabelsBuilder::new();
        for &[name, value] in refs.as_chunks::<2>().0 {
            labels.push(self.symbols.text(name)?, self.symbols.text(value)?);
        }
        let exemplar = Exemplar { labels: labels.finish(), value, time_ms };
        self.batch.exemplars.push(BatchExemplar { series_idx: index(self.batch.series.len()), exemplar });
        Ok(())
    }

    /// Appends the labels that `refs` name to the raw bytes, up to the first bad reference.
    fn unfold_labels(&mut self) -> Result<(), DecodeError> {
        let start = self.batch.raw.len();
        for &[name, value] in self.refs.as_chunks::<2>().0 {
            let (Some(name), Some(value)) = (self.symbols.get(name), self.symbols.get(value)) else {
                break;
            };
            // Tag and length of label, name and value.
            self.unfolded.take(3 * (1 + 5) + name.len() + value.len())?;
            put_label(&mut self.batch.raw, name, value);
            let section = self.batch.raw.len() - start;
            if section > LABEL_SECTION_BYTES_MAX {
                let (found, limit) = (section as u64, LABEL_SECTION_BYTES_MAX as u64);
                return Err(DecodeError::TooLarge { what: "labels of one series", found, limit });
            }
        }
        Ok(())
    }
}

/// Appends a label as the senders of remote write 1.0 write it: empty text is left out.
fn put_label(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.push(0x0a);
    if let (1..=60, 1..=60) = (name.len(), value.len()) {
        // All lengths take one byte.
        let (name_len, value_len) = (name.len() as u8, value.len() as u8);
        out.extend_from_slice(&[name_len + value_len + 4, 0x0a, name_len]);
        out.extend_from_slice(name);
        out.extend_from_slice(&[0x12, value_len]);
        out.extend_from_slice(value);
        return;
    }
    let field_bytes = |text: &[u8]| match text.len() {
        0 => 0,
        len => 1 + (64 - (len as u64).leading_zeros()).div_ceil(7) as usize + len,
    };
    put_uvarint(out, (field_bytes(name) + field_bytes(value)) as u64);
    for (tag, text) in [(0x0a, name), (0x12, value)] {
        if !text.is_empty() {
            out.push(tag);
            put_uvarint(out, text.len() as u64);
            out.extend_from_slice(text);
        }
    }
}

fn push_ref(idx: u32, refs: &mut Vec<u32>) -> Result<(), DecodeError> {
    if refs.len() >= LABEL_REF_COUNT_MAX {
        return Err(DecodeError::TooMany { what: "label references", limit: LABEL_REF_COUNT_MAX });
    }
    refs.push(idx);
    Ok(())
}

fn packed_refs(mut message: Cursor<'_>, refs: &mut Vec<u32>) -> Result<(), DecodeError> {
    while !message.is_empty() {
        push_ref(message.varint_u32()?, refs)?;
    }
    Ok(())
}

/// Time, value and start time.
fn sample(mut message: Cursor<'_>) -> Result<(i64, f64, i64), DecodeError> {
    let (mut time, mut value, mut start) = (0i64, 0f64, 0i64);
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

/// What is wrong with references to labels, in upstream's words.
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

/// References as upstream prints them, cut where they are many.
fn refs_text(refs: &[u32]) -> String {
    let mut out = String::from("[");
    for (i, idx) in refs.iter().take(REFS_SHOWN_MAX).enumerate() {
        out.push_str(if i > 0 { " " } else { "" });
        out.push_str(&idx.to_string());
    }
    out.push_str(if refs.len() > REFS_SHOWN_MAX { " ...]" } else { "]" });
    out
}

/// The labels of a series as upstream prints them in these errors: the metric name among the others.
fn label_text(raw: &[u8]) -> String {
    let mut builder = LabelsBuilder::new();
    if parse_labels(raw, &mut builder).is_err() {
        return "with labels that are not valid UTF-8".to_owned();
    }
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
