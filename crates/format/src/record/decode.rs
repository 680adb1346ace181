//! Decoder of records.
//!
//! Invariants: memory is bounded by the bytes of the record, by [`super::KEY_BYTES_MAX`] for keys, and by
//! 64 MiB for histograms, which the encoder stays far below; the batch of a record with an error is empty.
//! Not here: parsers of wire keys, which the caller passes.

use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::{DuplicatePolicy, LabelSource, WordKind, WriteBatch};

use super::columns::{Column, ColumnReaders, FLAG_LAST_WINS, check_flags};
use super::content::{Record, RecordError};
use super::events::read_event;
use super::extras::{read_exemplar, read_kind, read_metadata, read_rules};
use super::frame::{HEADER_BYTES, Header, KIND_SAMPLES, Opened, invalid, open, read_origin};
use super::keys::{KEY_BYTES_MAX, check_room, length_of, read_fields, read_keys};
use super::packed::unpack;
use crate::head::wal::BoundedHistogramDecoder;
use crate::start_runs;

/// Decoder of records; keeps its memory from record to record.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    /// Header and body of the last packed record.
    unpacked: Vec<u8>,
}

impl RecordDecoder {
    /// Decodes a record; `batch` becomes the samples of a record of samples, and is empty after others.
    /// `source` returns the parser of wire keys of a protocol by its number. Cost: one pass, after LZ4's
    /// own; keys are copied once into [`WriteBatch::raw`], nothing is allocated per sample.
    ///
    /// # Errors
    /// [`RecordError`]; the batch is empty then. Offsets in it count in the unpacked record.
    pub fn decode(
        &mut self,
        bytes: &[u8],
        source: impl Fn(u8) -> Option<LabelSource>,
        batch: &mut WriteBatch,
    ) -> Result<Record, RecordError> {
        batch.clear();
        let Opened { header, body, is_packed } = open(bytes)?;
        let (content, body) = if is_packed {
            let packed_header = bytes.get(..HEADER_BYTES).unwrap_or_default();
            let end = unpack(packed_header, body, &mut self.unpacked)?;
            let content = self.unpacked.get(..end).unwrap_or_default();
            (content, ByteReader::at(content, HEADER_BYTES))
        } else {
            (bytes.get(..body.offset() + body.remaining()).unwrap_or_default(), body)
        };
        if header.kind != KIND_SAMPLES {
            return read_event(header, body);
        }
        let result = read_samples(header, content, body, source, batch);
        if result.is_err() {
            batch.clear();
        }
        result
    }
}

/// Decodes a record as [`RecordDecoder::decode`], which costs less for many.
///
/// # Errors
/// [`RecordError`]; the batch is empty then.
pub fn decode_record(
    bytes: &[u8],
    source: impl Fn(u8) -> Option<LabelSource>,
    batch: &mut WriteBatch,
) -> Result<Record, RecordError> {
    RecordDecoder::default().decode(bytes, source, batch)
}

fn read_samples<'a>(
    header: Header,
    content: &'a [u8],
    mut body: ByteReader<'a>,
    source: impl Fn(u8) -> Option<LabelSource>,
    batch: &mut WriteBatch,
) -> Result<Record, RecordError> {
    let Header { flags, arrival_ms, .. } = header;
    check_flags(flags)?;
    let last_wins = flags & FLAG_LAST_WINS != 0;
    let duplicates = if last_wins { DuplicatePolicy::LastWins } else { DuplicatePolicy::KeepFirst };
    let origin = read_origin(&mut body, arrival_ms)?;
    let number = body.u8("protocol")?;
    batch.source = source(number).ok_or(RecordError::Protocol { number })?;
    let series_count = body.length("series count")?;
    let offset = body.offset();
    let found = body.uvarint("sample count")?;
    let base = body.le_u64("base time")?.cast_signed();
    // A sample has at least a byte of a column.
    let left = body.remaining();
    let sample_count = usize::try_from(found).ok().filter(|&count| count <= left);
    let sample_count =
        sample_count.ok_or_else(|| invalid("sample count", offset, "at most the bytes left", found))?;
    let mut columns = ColumnReaders::read(flags, content, &mut body)?;
    super::frame::expect_end(&body, "record")?;
    read_series(&mut columns, series_count, batch)?;
    read_counts(&mut columns, sample_count, batch)?;
    read_times(&mut columns, sample_count, base, batch)?;
    read_values(&mut columns, sample_count, batch)?;
    read_histograms(&mut columns, batch)?;
    if columns.has(Column::Starts) {
        start_runs::read(columns.of(Column::Starts), sample_count, base, &mut batch.start_times)?;
    }
    if columns.has(Column::Exemplars) {
        while !columns.of(Column::Exemplars).is_empty() {
            batch.exemplars.push(read_exemplar(columns.of(Column::Exemplars), series_count)?);
        }
    }
    if columns.has(Column::Metadata) {
        while !columns.of(Column::Metadata).is_empty() {
            batch.metadata.push(read_metadata(columns.of(Column::Metadata))?);
        }
    }
    columns.expect_ends()?;
    Ok(Record::Samples { origin, duplicates })
}

/// Reads everything about series but their samples.
fn read_series(
    columns: &mut ColumnReaders<'_>,
    count: usize,
    batch: &mut WriteBatch,
) -> Result<(), DecodeError> {
    let mut bytes = columns.of(Column::KeyBytes).clone();
    read_keys(columns.of(Column::KeyLens), &mut bytes, count, &mut batch.raw, &mut batch.series)?;
    *columns.of(Column::KeyBytes) = bytes;
    if columns.has(Column::Kinds) {
        for _ in 0..count {
            batch.kinds.push(read_kind(columns.of(Column::Kinds))?);
        }
    }
    if columns.has(Column::FieldRefs) {
        let mut bytes = columns.of(Column::FieldBytes).clone();
        let refs = columns.of(Column::FieldRefs);
        read_fields(refs, &mut bytes, count, &mut batch.raw, &mut batch.fields)?;
        *columns.of(Column::FieldBytes) = bytes;
    }
    if columns.has(Column::Rows) {
        let reader = columns.of(Column::Rows);
        let mut row = 0u32;
        for _ in 0..count {
            let offset = reader.offset();
            let found = reader.uvarint("row")?;
            let next = u32::try_from(found).ok().and_then(|found| row.checked_add(found));
            row = next.ok_or_else(|| invalid("row", offset, "fewer than 2^32 rows", found))?;
            batch.rows.push(row);
        }
    }
    if columns.has(Column::Reorder) {
        read_rules(columns.of(Column::Reorder), count, batch)?;
    }
    Ok(())
}

/// Reads the numbers of samples per series, which add up to `sample_count`.
fn read_counts(
    columns: &mut ColumnReaders<'_>,
    sample_count: usize,
    batch: &mut WriteBatch,
) -> Result<(), DecodeError> {
    let what = "sample counts";
    let has_counts = columns.has(Column::Counts);
    let reader = columns.of(Column::Counts);
    let mut next = 0u64;
    for series in &mut batch.series {
        let offset = reader.offset();
        let count = if has_counts { reader.uvarint(what)? } else { 1 };
        let end = next.checked_add(count).filter(|&end| end <= sample_count as u64);
        let end = end.ok_or_else(|| invalid(what, offset, "at most the samples of the record", count))?;
        series.samples = next as u32..end as u32;
        next = end;
    }
    if next != sample_count as u64 {
        return Err(invalid(what, reader.offset(), "all samples of the record", next));
    }
    Ok(())
}

fn read_times(
    columns: &mut ColumnReaders<'_>,
    sample_count: usize,
    base: i64,
    batch: &mut WriteBatch,
) -> Result<(), DecodeError> {
    if !columns.has(Column::Times) {
        batch.times.resize(sample_count, base);
        return Ok(());
    }
    let reader = columns.of(Column::Times);
    let mut time = base;
    for _ in 0..sample_count {
        time = time.wrapping_add(reader.varint("time")?);
        batch.times.push(time);
    }
    Ok(())
}

fn read_values(
    columns: &mut ColumnReaders<'_>,
    sample_count: usize,
    batch: &mut WriteBatch,
) -> Result<(), DecodeError> {
    let of_bytes = |bytes: &[u8; 8]| f64::from_bits(u64::from_le_bytes(*bytes));
    if !batch.kinds.contains(&WordKind::Text) {
        let values = columns.of(Column::Values).bytes("values", sample_count.saturating_mul(8))?;
        batch.values.extend(values.as_chunks::<8>().0.iter().map(of_bytes));
        return Ok(());
    }
    let mut text_bytes = columns.of(Column::TextBytes).clone();
    for (series_idx, series) in batch.series.iter().enumerate() {
        if batch.kinds.get(series_idx) != Some(&WordKind::Text) {
            let values = columns.of(Column::Values).bytes("values", 8 * series.samples.len())?;
            batch.values.extend(values.as_chunks::<8>().0.iter().map(of_bytes));
            continue;
        }
        for _ in 0..series.samples.len() {
            let lens = columns.of(Column::TextLens);
            let offset = lens.offset();
            let len = length_of(lens, "text", &text_bytes)?;
            check_room("text", offset, &batch.raw, len)?;
            let start = batch.raw.len() as u32;
            batch.raw.extend_from_slice(text_bytes.bytes("text", len)?);
            batch.values.push(f64::from_bits(batch.texts.len() as u64));
            batch.texts.push(start..batch.raw.len() as u32);
        }
    }
    *columns.of(Column::TextBytes) = text_bytes;
    Ok(())
}

fn read_histograms(columns: &mut ColumnReaders<'_>, batch: &mut WriteBatch) -> Result<(), DecodeError> {
    if !columns.has(Column::Histograms) {
        return Ok(());
    }
    let what = "histogram";
    let reader = columns.of(Column::Histograms);
    let count = reader.length(what)?;
    let mut decoder = BoundedHistogramDecoder::default();
    let mut idx = 0u64;
    for at in 0..count {
        let offset = reader.offset();
        let distance = reader.uvarint(what)?;
        let is_repeated = at > 0 && distance == 0;
        idx = idx.saturating_add(distance);
        let value = usize::try_from(idx).ok().and_then(|idx| batch.values.get_mut(idx));
        let Some(value) = value.filter(|_| !is_repeated) else {
            return Err(invalid(what, offset, "a later sample of the record", idx));
        };
        let histogram = decoder.next(reader)?;
        *value = histogram.sum();
        let idx = idx as u32;
        let series_idx = batch.series.partition_point(|series| series.samples.end <= idx);
        if batch.kinds.get(series_idx).is_some_and(|kind| *kind != WordKind::Float) {
            return Err(invalid(what, offset, "a series of floats", u64::from(idx)));
        }
        batch.histograms.push((idx, histogram));
    }
    Ok(())
}

const _: () = assert!(KEY_BYTES_MAX <= u32::MAX as usize, "ranges of a batch have 32 bits");
