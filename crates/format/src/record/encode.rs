//! Encoder of samples: a part of a batch becomes one or more records.
//!
//! Invariants: a record is at most [`RECORD_BYTES_MAX`] long; the series of a row are in one record, so that
//! a sample that is refused for its type takes the others of its row with it; samples of a series stay in
//! their order.
//! Not here: choice of the part (`split`).

use std::ops::Range;
use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_model::{DuplicatePolicy, Histogram, WordKind, WriteBatch};

use super::columns::{Column, ColumnBuffers, FLAG_LAST_WINS};
use super::content::{RecordOrigin, RecordTooLarge};
use super::extras::{
    RuleWriter, exemplar_bytes_max, kind_number, metadata_bytes_max, put_exemplar, put_metadata,
};
use super::frame::{
    CONTENT_BYTES_MAX, FRAME_BYTES, Header, KIND_SAMPLES, ORIGIN_BYTES_MAX, RECORD_BYTES_MAX, finish,
    put_origin, start,
};
use super::keys::{FieldWriter, KEY_BYTES_MAX, put_key};
use super::packed::RecordPacker;
use super::split::BatchPart;
use crate::head::wal::{HistogramEncoder, encoded_len_max};
use crate::start_runs;

/// Bytes of a record outside of its columns: header, origin, protocol, counts, base, lengths of columns.
const OVERHEAD_BYTES_MAX: usize = FRAME_BYTES + ORIGIN_BYTES_MAX + 1 + 10 + 8 + 16 * 5;
/// Bytes of the columns of a record.
const COLUMN_BYTES_MAX: usize = RECORD_BYTES_MAX - OVERHEAD_BYTES_MAX;
/// Bytes of the columns from which a record takes no further series: a request of 5,000 samples to three
/// partitions is three records. LZ4 finds nothing that is further back than 64 KiB.
const COLUMN_BYTES_FULL: usize = 512_000;
/// Bytes of a series without its key, field, samples and exemplars: lengths, kind, reference, count, row,
/// rule.
const SERIES_BYTES_MAX: usize = 64;
/// Bytes of a sample without its text or histogram: time, value, run of start timestamps.
const SAMPLE_BYTES_MAX: usize = 10 + 8 + START_BYTES_MAX;
/// Bytes of a start timestamp in a run of its own.
const START_BYTES_MAX: usize = 5 + 10;
/// Bytes of the index of a histogram, and of the length of a text.
const INDEX_BYTES_MAX: usize = 5;

/// Request of samples, and the policy that the gateway has chosen.
#[derive(Debug, Clone, Copy)]
pub struct SampleOrigin<'a> {
    /// The request.
    pub request: &'a RecordOrigin,
    /// Policy for a second value of a series and timestamp.
    pub duplicates: DuplicatePolicy,
}

/// Encoder of records of samples; keeps its memory from batch to batch.
#[derive(Debug, Default)]
pub struct RecordEncoder {
    columns: ColumnBuffers,
    /// Start timestamps of the samples of the record, 0 = unknown.
    start_times: Vec<i64>,
    /// Histograms of the record with the indices of their samples in it.
    histograms: Vec<(u32, Arc<Histogram>)>,
    /// Indices of the series of the record in the batch.
    members: Vec<u32>,
    rules: RuleWriter,
    record: Vec<u8>,
    /// `None`: records are plain.
    packer: Option<RecordPacker>,
}

impl RecordEncoder {
    /// An encoder of packed records; one made by `default` leaves them plain.
    #[must_use]
    pub fn packed() -> RecordEncoder {
        RecordEncoder { packer: Some(RecordPacker::default()), ..RecordEncoder::default() }
    }

    /// Calls `emit` with the records of a part of `batch`, in the order of the part. Cost: one pass over the
    /// bytes of keys and samples; nothing is allocated per sample.
    ///
    /// # Errors
    /// [`RecordTooLarge`]; `emit` may have got records before, of which none may be written.
    pub fn encode(
        &mut self,
        origin: SampleOrigin<'_>,
        batch: &WriteBatch,
        part: BatchPart<'_>,
        mut emit: impl FnMut(&[u8]),
    ) -> Result<(), RecordTooLarge> {
        let mut writer = SampleWriter::new(self, origin, batch);
        let mut exemplars = part.exemplars;
        let mut rest = part.series;
        while let Some(&first) = rest.first() {
            let (row, after) = rest.split_at(row_len(batch, rest));
            rest = after;
            writer.put_row(first, row, &mut emit)?;
            for &series_idx in row {
                let of_series = |idx: &u32| exemplar_series(batch, *idx) == series_idx;
                let count = exemplars.iter().take_while(|idx| of_series(idx)).count();
                let (own, after) = exemplars.split_at(count);
                exemplars = after;
                writer.put_exemplars(series_idx, own, &mut emit)?;
            }
        }
        for &idx in part.metadata {
            if let Some(entry) = batch.metadata.get(idx as usize) {
                writer.make_room("a metadata entry", metadata_bytes_max(entry), &mut emit)?;
                put_metadata(entry, writer.buffers.columns.of(Column::Metadata));
            }
        }
        writer.finish_record(&mut emit);
        Ok(())
    }
}

/// Returns the number of series at the start of `rest` that are one row.
fn row_len(batch: &WriteBatch, rest: &[u32]) -> usize {
    if batch.rows.is_empty() {
        return 1;
    }
    let row_of = |series_idx: &u32| batch.rows.get(*series_idx as usize);
    let first = rest.first().and_then(row_of);
    rest.iter().take_while(|series_idx| row_of(series_idx) == first).count().max(1)
}

fn exemplar_series(batch: &WriteBatch, idx: u32) -> u32 {
    batch.exemplars.get(idx as usize).map_or(u32::MAX, |exemplar| exemplar.series_idx)
}

/// The open record.
struct SampleWriter<'b> {
    buffers: &'b mut RecordEncoder,
    origin: SampleOrigin<'b>,
    batch: &'b WriteBatch,
    fields: FieldWriter,
    /// Series of the row before, the distance at which fields repeat.
    row_series_count: usize,
    sample_count: usize,
    base: i64,
    last_time: i64,
    /// Upper bound of the bytes of the columns.
    bytes_max: usize,
    /// Upper bound of the bytes of keys, fields and texts after decoding.
    key_bytes_max: usize,
    /// Upper bound of the bytes of the histograms, which are encoded last.
    histogram_bytes_max: usize,
    has_kinds: bool,
    has_counts: bool,
    has_times: bool,
}

impl<'b> SampleWriter<'b> {
    fn new(
        buffers: &'b mut RecordEncoder,
        origin: SampleOrigin<'b>,
        batch: &'b WriteBatch,
    ) -> SampleWriter<'b> {
        let mut writer = SampleWriter {
            buffers,
            origin,
            batch,
            fields: FieldWriter::default(),
            row_series_count: 0,
            sample_count: 0,
            base: 0,
            last_time: 0,
            bytes_max: 0,
            key_bytes_max: 0,
            histogram_bytes_max: 0,
            has_kinds: false,
            has_counts: false,
            has_times: false,
        };
        writer.begin_record();
        writer
    }

    fn begin_record(&mut self) {
        self.buffers.columns.clear();
        self.buffers.start_times.clear();
        self.buffers.histograms.clear();
        self.buffers.members.clear();
        self.buffers.rules.begin(self.batch.reorder_rules.len());
        self.fields = FieldWriter::default();
        self.row_series_count = 0;
        self.sample_count = 0;
        self.bytes_max = 0;
        self.key_bytes_max = 0;
        self.histogram_bytes_max = 0;
        self.has_kinds = false;
        self.has_counts = false;
        self.has_times = false;
    }

    /// Returns true if `bytes` further ones fit into the record, which an empty one has more room for.
    fn fits(&mut self, bytes: usize) -> bool {
        let is_empty = self.bytes_max == 0;
        let column_bytes_max = if is_empty { COLUMN_BYTES_MAX } else { COLUMN_BYTES_FULL };
        if self.bytes_max + bytes > column_bytes_max {
            let starts = self.buffers.start_times.len() * START_BYTES_MAX;
            self.bytes_max = self.buffers.columns.bytes() + starts + self.histogram_bytes_max;
        }
        self.bytes_max + bytes <= column_bytes_max && self.key_bytes_max + bytes <= KEY_BYTES_MAX
    }

    /// Ends the record if it has no room for `bytes` further ones, and counts them.
    ///
    /// # Errors
    /// [`RecordTooLarge`] if no record has room.
    fn make_room(
        &mut self,
        what: &'static str,
        bytes: usize,
        emit: &mut impl FnMut(&[u8]),
    ) -> Result<(), RecordTooLarge> {
        if bytes > COLUMN_BYTES_MAX {
            return Err(RecordTooLarge { what, bytes, bytes_max: COLUMN_BYTES_MAX });
        }
        if !self.fits(bytes) {
            self.finish_record(emit);
            self.begin_record();
        }
        self.bytes_max += bytes;
        self.key_bytes_max += bytes;
        Ok(())
    }

    /// Adds the series of a row, of which `first` is the first one. A series that is a row of its own is
    /// divided by its samples where it does not fit.
    fn put_row(
        &mut self,
        first: u32,
        row: &[u32],
        emit: &mut impl FnMut(&[u8]),
    ) -> Result<(), RecordTooLarge> {
        let bytes = row.iter().map(|&idx| self.series_bytes_max(idx) + self.samples_bytes_max(idx)).sum();
        if bytes > COLUMN_BYTES_MAX && row.len() == 1 {
            return self.put_divided(first, emit);
        }
        let what = if row.len() == 1 { "a sample with its series" } else { "a row" };
        self.make_room(what, bytes, emit)?;
        for &series_idx in row {
            self.put_series(series_idx, self.samples_of(series_idx));
        }
        self.row_series_count = row.len();
        Ok(())
    }

    fn put_divided(&mut self, series_idx: u32, emit: &mut impl FnMut(&[u8])) -> Result<(), RecordTooLarge> {
        let samples = self.samples_of(series_idx);
        let of_series = self.series_bytes_max(series_idx);
        let mut next = samples.start;
        while next < samples.end {
            let first_bytes = self.sample_bytes_max(series_idx, next);
            self.make_room("a sample with its series", of_series + first_bytes, emit)?;
            let mut end = next + 1;
            while end < samples.end {
                let bytes = self.sample_bytes_max(series_idx, end);
                // The bounds alone: the columns do not have the samples yet.
                if self.bytes_max + bytes > COLUMN_BYTES_MAX || self.key_bytes_max + bytes > KEY_BYTES_MAX {
                    break;
                }
                self.bytes_max += bytes;
                self.key_bytes_max += bytes;
                end += 1;
            }
            self.put_series(series_idx, next..end);
            next = end;
        }
        Ok(())
    }

    fn samples_of(&self, series_idx: u32) -> Range<usize> {
        let series = self.batch.series.get(series_idx as usize);
        series.map_or(0..0, |series| series.samples.start as usize..series.samples.end as usize)
    }

    fn key_of(&self, series_idx: u32) -> &'b [u8] {
        self.batch.series.get(series_idx as usize).map_or(&[], |series| self.batch.raw_of(series))
    }

    fn series_bytes_max(&self, series_idx: u32) -> usize {
        SERIES_BYTES_MAX + self.key_of(series_idx).len() + self.batch.field_of(series_idx as usize).len()
    }

    fn samples_bytes_max(&self, series_idx: u32) -> usize {
        let samples = self.samples_of(series_idx);
        let is_text = self.batch.kind_of(series_idx as usize) == WordKind::Text;
        if !is_text && self.batch.histograms.is_empty() {
            return SAMPLE_BYTES_MAX * samples.len();
        }
        samples.map(|at| self.sample_bytes_max(series_idx, at)).sum()
    }

    fn sample_bytes_max(&self, series_idx: u32, at: usize) -> usize {
        let is_text = self.batch.kind_of(series_idx as usize) == WordKind::Text;
        let text = if is_text { INDEX_BYTES_MAX + self.text_of(at).len() } else { 0 };
        let histograms = &self.batch.histograms;
        let place = histograms.binary_search_by_key(&at, |(idx, _)| *idx as usize).ok();
        let histogram = place.and_then(|place| histograms.get(place));
        let histogram = histogram.map_or(0, |(_, one)| INDEX_BYTES_MAX + encoded_len_max(one));
        SAMPLE_BYTES_MAX + text + histogram
    }

    /// Returns the text of a sample of a series of texts.
    fn text_of(&self, at: usize) -> &'b [u8] {
        let word = self.batch.values.get(at).map_or(u64::MAX, |value| value.to_bits());
        let range = usize::try_from(word).ok().and_then(|idx| self.batch.texts.get(idx));
        let text = range.and_then(|range| self.batch.raw.get(range.start as usize..range.end as usize));
        text.unwrap_or_default()
    }

    /// Adds a series with some of its samples, for which there is room.
    fn put_series(&mut self, series_idx: u32, samples: Range<usize>) {
        let batch = self.batch;
        let last = self.buffers.members.last().copied();
        let mut lens = std::mem::take(self.buffers.columns.of(Column::KeyLens));
        put_key(
            self.key_of(series_idx),
            last.map(|last| self.key_of(last)),
            &mut lens,
            self.buffers.columns.of(Column::KeyBytes),
        );
        *self.buffers.columns.of(Column::KeyLens) = lens;
        self.buffers.members.push(series_idx);
        let kind = batch.kind_of(series_idx as usize);
        if !batch.kinds.is_empty() {
            self.has_kinds |= kind != WordKind::Float;
            self.buffers.columns.of(Column::Kinds).push(kind_number(kind));
        }
        if !batch.fields.is_empty() {
            self.put_field(series_idx);
        }
        self.has_counts |= samples.len() != 1;
        put_uvarint(self.buffers.columns.of(Column::Counts), samples.len() as u64);
        if let Some(row) = batch.rows.get(series_idx as usize) {
            let before = last.and_then(|last| batch.rows.get(last as usize)).unwrap_or(row);
            put_uvarint(self.buffers.columns.of(Column::Rows), u64::from(row.saturating_sub(*before)));
        }
        if !batch.reordered.is_empty() {
            let RecordEncoder { rules, columns, .. } = &mut *self.buffers;
            rules.put(batch, series_idx, columns.of(Column::Reorder));
        }
        self.put_samples(series_idx, kind, samples);
    }

    fn put_field(&mut self, series_idx: u32) {
        let batch = self.batch;
        let RecordEncoder { members, columns, .. } = &mut *self.buffers;
        let before = |distance: usize| {
            // The series itself is the last member.
            let idx = members.len().checked_sub(distance + 1)?;
            Some(batch.field_of(*members.get(idx)? as usize))
        };
        let mut refs = std::mem::take(columns.of(Column::FieldRefs));
        let field = batch.field_of(series_idx as usize);
        self.fields.put(field, self.row_series_count, before, &mut refs, columns.of(Column::FieldBytes));
        *columns.of(Column::FieldRefs) = refs;
    }

    fn put_samples(&mut self, series_idx: u32, kind: WordKind, samples: Range<usize>) {
        let batch = self.batch;
        let times = batch.times.get(samples.clone()).unwrap_or_default();
        if self.sample_count == 0
            && let Some(&first) = times.first()
        {
            self.base = first;
            self.last_time = first;
        }
        let column = self.buffers.columns.of(Column::Times);
        for &time in times {
            let difference = time.wrapping_sub(self.last_time);
            self.has_times |= difference != 0;
            self.last_time = time;
            put_varint(column, difference);
        }
        if kind == WordKind::Text {
            for at in samples.clone() {
                let text = self.text_of(at);
                put_uvarint(self.buffers.columns.of(Column::TextLens), text.len() as u64);
                self.buffers.columns.of(Column::TextBytes).extend_from_slice(text);
            }
        } else {
            let column = self.buffers.columns.of(Column::Values);
            for value in batch.values.get(samples.clone()).unwrap_or_default() {
                column.extend_from_slice(&value.to_bits().to_le_bytes());
            }
        }
        if let Some(series) = batch.series.get(series_idx as usize)
            && !batch.histograms.is_empty()
        {
            let own = batch.histograms_of(series).iter();
            for (at, histogram) in own.filter(|(at, _)| samples.contains(&(*at as usize))) {
                let idx = self.sample_count + (*at as usize - samples.start);
                self.histogram_bytes_max += INDEX_BYTES_MAX + encoded_len_max(histogram);
                self.buffers.histograms.push((idx as u32, histogram.clone()));
            }
        }
        if !batch.start_times.is_empty() {
            let known = batch.start_times.get(samples.start..).unwrap_or_default();
            let all = known.iter().copied().chain(std::iter::repeat(0)).take(samples.len());
            self.buffers.start_times.extend(all);
        }
        self.sample_count += samples.len();
    }

    /// Adds the exemplars of the series that was added last, which follows again without samples where a
    /// record ends.
    fn put_exemplars(
        &mut self,
        series_idx: u32,
        exemplars: &[u32],
        emit: &mut impl FnMut(&[u8]),
    ) -> Result<(), RecordTooLarge> {
        for &idx in exemplars {
            let Some(one) = self.batch.exemplars.get(idx as usize) else { continue };
            let bytes = exemplar_bytes_max(&one.exemplar);
            let of_series = self.series_bytes_max(series_idx);
            self.make_room("an exemplar with its series", bytes + of_series, emit)?;
            if self.buffers.members.last() != Some(&series_idx) {
                let start = self.samples_of(series_idx).start;
                self.put_series(series_idx, start..start);
            }
            let idx = self.buffers.members.len() - 1;
            put_exemplar(idx as u64, &one.exemplar, self.buffers.columns.of(Column::Exemplars));
        }
        Ok(())
    }

    /// Ends the record and emits it, unless it is empty.
    fn finish_record(&mut self, emit: &mut impl FnMut(&[u8])) {
        let RecordEncoder { columns, start_times, histograms, members, record, packer, .. } =
            &mut *self.buffers;
        if members.is_empty() && columns.of(Column::Metadata).is_empty() {
            return;
        }
        let unused = [
            (self.has_kinds, Column::Kinds),
            (self.has_counts, Column::Counts),
            (self.has_times, Column::Times),
        ];
        for (_, column) in unused.into_iter().filter(|(is_used, _)| !is_used) {
            columns.of(column).clear();
        }
        if start_times.iter().any(|&start| start != 0) {
            start_runs::put(start_times.iter().copied(), self.base, columns.of(Column::Starts));
        }
        put_histograms(histograms, columns.of(Column::Histograms));
        let last_wins = if self.origin.duplicates == DuplicatePolicy::LastWins { FLAG_LAST_WINS } else { 0 };
        let request = self.origin.request;
        let flags = columns.flags() | last_wins;
        start(Header { kind: KIND_SAMPLES, flags, arrival_ms: request.arrival_ms }, record);
        put_origin(request, record);
        record.push(self.batch.source.protocol);
        put_uvarint(record, members.len() as u64);
        put_uvarint(record, self.sample_count as u64);
        record.extend_from_slice(&self.base.to_le_bytes());
        columns.put(flags, record);
        assert!(record.len() <= CONTENT_BYTES_MAX, "the bounds of rows and samples are upper ones");
        if let Some(packed) = packer.as_mut().and_then(|packer| packer.pack(record)) {
            emit(packed);
        } else {
            finish(record);
            emit(record);
        }
    }
}

/// Appends histograms with their distances, after their number.
fn put_histograms(histograms: &[(u32, Arc<Histogram>)], out: &mut Vec<u8>) {
    if histograms.is_empty() {
        return;
    }
    put_uvarint(out, histograms.len() as u64);
    let mut encoder = HistogramEncoder::new(out);
    let mut last = 0;
    for (idx, histogram) in histograms {
        put_uvarint(encoder.out(), u64::from(idx - last));
        encoder.put(histogram);
        last = *idx;
    }
}
