//! Answer of a node to a select: the frames of the series, list or estimate of a source.
//!
//! Invariants: frames are sent while the source is read, so that memory depends on the largest series and not
//! on the answer; series and samples are counted against the limits of the call before they are sent, bytes
//! after; of a chunk that reaches beyond the range, samples count in proportion to its time; an answer that
//! cannot be completed ends with its failure.
//! Not here: bytes of frames (`format::select`), the transport, the asking node (`peer`).

use std::ops::Range;

use chronolith_base::Reservation;
use chronolith_format::select::{
    AnswerEncoder, AnswerForm, AnswerHeader, AnswerWarnings, RecordFrames, SelectCall, SelectEncodeError,
    SelectLimits, SelectQuestion, is_sent_as_stored,
};
use chronolith_model::kind::{word_of_integer, word_of_unsigned};
use chronolith_model::query::{
    ColumnType, Opened, Read, SampleNeed, SamplesPart, SelectRequest, SelectionExceeded, StoredChunk,
    TypedColumns, TypedValues,
};
use chronolith_model::{
    Columns, MetadataEntry, QueryError, Queryable, ReadContext, SampleSource, SeriesExemplars, SeriesRead,
    TimeRange,
};

use super::peer_failure::failure_of;

/// Bytes of a time and a value.
const SAMPLE_BYTES: u64 = 16;
/// Chunks that reach beyond the range travel as they are stored if a series has at most this many times its
/// length: a copy of bytes costs less than to decode a part and to encode it again. Only the reader knows
/// which samples are in the range.
const SPAN_OF_CHUNKS_MAX: u64 = 4;

/// Sink of the frames of an answer. An error ends the answer.
pub type SendFrames<'s> = dyn FnMut(Vec<u8>) -> Result<(), QueryError> + 's;

/// End of an answer.
#[derive(Debug)]
pub enum AnswerEnd {
    /// Everything was sent.
    Complete,
    /// The failure was sent.
    Failed(QueryError),
}

/// Records of a store besides samples.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredRecords {
    /// Metadata, sorted by metric.
    Metadata(Vec<MetadataEntry>),
    /// Exemplars by series, times ascending.
    Exemplars(Vec<SeriesExemplars>),
    /// Ranges of time with samples.
    Ranges(Vec<TimeRange>),
}

/// Sends the answer of `source` to a call for series, a list or an estimate. `catalogue` is the number of the
/// catalogue of blocks that the source reads; 0 = none. Cost: chunks of Prometheus's encodings and dense ones
/// with their own times travel without being decoded. `check` is called once everything was read; its error
/// ends the answer.
///
/// # Errors
/// The error of `send`; all others end the answer.
pub fn send_answer(
    source: &dyn Queryable,
    call: &SelectCall,
    catalogue: u64,
    ctx: &ReadContext,
    check: &dyn Fn() -> Result<(), QueryError>,
    send: &mut SendFrames<'_>,
) -> Result<AnswerEnd, QueryError> {
    let form = AnswerForm::of(&call.question);
    send_with(call, catalogue, ctx, send, |writer| {
        match (&call.question, form) {
            (SelectQuestion::Read(read), Some(AnswerForm::Series)) => {
                writer.write_series(source, &read.request)?;
            }
            (SelectQuestion::Read(read), Some(_)) => writer.write_other(source, read)?,
            _ => {
                let what = "a node answers with series, lists and estimates, not with visits".to_owned();
                return Err(QueryError::Unavailable { what });
            }
        }
        check()
    })
}

/// As [`send_answer`] for a call for other records, which `records` reads.
///
/// # Errors
/// As [`send_answer`].
pub fn send_records(
    records: impl FnOnce() -> Result<StoredRecords, QueryError>,
    call: &SelectCall,
    ctx: &ReadContext,
    send: &mut SendFrames<'_>,
) -> Result<AnswerEnd, QueryError> {
    send_with(call, 0, ctx, send, |writer| writer.write_records(&records()?))
}

/// Sends an answer whose content `write` writes.
fn send_with(
    call: &SelectCall,
    catalogue: u64,
    ctx: &ReadContext,
    send: &mut SendFrames<'_>,
    write: impl FnOnce(&mut AnswerWriter<'_>) -> Result<(), QueryError>,
) -> Result<AnswerEnd, QueryError> {
    let form = AnswerForm::of(&call.question);
    let header = AnswerHeader { form: form.unwrap_or(AnswerForm::List), catalogue };
    let encoder = AnswerEncoder::new(header);
    let memory = match ctx.budget.reserve(encoder.heap_bytes() as u64) {
        Ok(memory) => memory,
        Err(full) => {
            let error = QueryError::from(full);
            send(encoder.fail(&failure_of(&error)))?;
            return Ok(AnswerEnd::Failed(error));
        }
    };
    let limits = call.limits;
    let output = Output { send, bytes: 0, bytes_max: limits.bytes_max, failure: None };
    let columns = Columns::default();
    let mut writer = AnswerWriter { encoder, limits, ctx, output, columns, outside_count: 0, memory };
    let written = write(&mut writer);
    writer.end(written)
}

/// Writer of an answer.
struct AnswerWriter<'a> {
    encoder: AnswerEncoder,
    limits: SelectLimits,
    ctx: &'a ReadContext,
    output: Output<'a>,
    /// Samples of a part, and memory of the next one.
    columns: Columns,
    /// Samples outside of the range that were sent with their chunks, by estimate.
    outside_count: u64,
    /// Memory of the encoder and of the columns.
    memory: Reservation,
}

/// Frames that are sent.
struct Output<'a> {
    send: &'a mut SendFrames<'a>,
    bytes: u64,
    bytes_max: u64,
    /// Error of the sink, after which nothing is sent.
    failure: Option<QueryError>,
}

impl Output<'_> {
    /// Sends finished frames.
    fn flush(&mut self, encoder: &mut AnswerEncoder) -> Result<(), QueryError> {
        if encoder.finished_bytes() == 0 {
            return Ok(());
        }
        let frames = encoder.take();
        debug_assert_eq!(encoder.finished_bytes(), 0, "all finished frames are taken");
        self.bytes = self.bytes.saturating_add(frames.len() as u64);
        if self.bytes_max > 0 && self.bytes > self.bytes_max {
            let what = "reads more bytes of a node than its limit of an answer allows";
            return Err(QueryError::Limit { what, limit: self.bytes_max });
        }
        self.send(frames)
    }

    fn send(&mut self, frames: Vec<u8>) -> Result<(), QueryError> {
        (self.send)(frames).map_err(|error| {
            self.failure = Some(error);
            QueryError::Canceled
        })
    }
}

/// Damage of samples that a source returns in a wrong order; a text or chunk that is too long.
fn encode_error(error: SelectEncodeError) -> QueryError {
    QueryError::Corrupt { path: "select answer".to_owned(), what: error.to_string() }
}

fn check_samples(encoder: &AnswerEncoder, outside_count: u64, limit: u64) -> Result<(), QueryError> {
    let used = encoder.counts().samples.saturating_sub(outside_count);
    if limit > 0 && used > limit {
        return Err(SelectionExceeded::Samples { used, limit }.into());
    }
    Ok(())
}

/// Returns the range in which chunks are visited: all of them if few samples are outside of `range`.
fn visited_range(samples: &dyn SampleSource, range: TimeRange) -> TimeRange {
    let Some((first, last)) = samples.time_bounds() else { return range };
    let all = TimeRange::inclusive(first.min(range.start), last.max(range.end.saturating_sub(1)));
    let len = |range: TimeRange| range.end.saturating_sub(range.start).max(0).cast_unsigned();
    if len(all) <= len(range).saturating_mul(SPAN_OF_CHUNKS_MAX) { all } else { range }
}

/// Estimates the samples of a chunk that are outside of `range`, by its times; `None` if all of them are.
fn count_outside(chunk: &StoredChunk<'_>, range: TimeRange) -> Option<u64> {
    let StoredChunk { min_time, max_time, sample_count, .. } = *chunk;
    if !range.overlaps_inclusive(min_time, max_time) {
        return None;
    }
    let span = u128::from(max_time.abs_diff(min_time)) + 1;
    let inside = range.end.saturating_sub(1).min(max_time).abs_diff(range.start.max(min_time));
    let inside = (u128::from(inside) + 1) * sample_count as u128 / span;
    Some((sample_count as u64).saturating_sub(u64::try_from(inside).unwrap_or(u64::MAX)))
}

/// Copies the samples at `indices`. The reset hint of a histogram refers to the sample before it.
fn columns_at(samples: &Columns, indices: Range<usize>) -> Columns {
    let mut copied = Columns::default();
    for idx in indices.clone() {
        if idx == indices.start && idx > 0 {
            copied.push_after_gap(samples, idx);
        } else {
            copied.push_from(samples, idx);
        }
    }
    copied
}

impl AnswerWriter<'_> {
    /// Writes the series of `request`. Roll-ups stay where they are: a reader gets the samples.
    fn write_series(&mut self, source: &dyn Queryable, request: &SelectRequest) -> Result<(), QueryError> {
        let request = SelectRequest { rollups: Vec::new(), ..request.clone() };
        let range = request.range;
        let need = request.samples;
        let mut batches = source.open_series(request, self.ctx)?;
        let mut batch = Vec::new();
        loop {
            let has_more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                self.ctx.check()?;
                self.put_series(&series, range, need)?;
            }
            if !has_more {
                return Ok(());
            }
        }
    }

    fn put_series(
        &mut self,
        series: &SeriesRead,
        range: TimeRange,
        need: SampleNeed,
    ) -> Result<(), QueryError> {
        let limit = self.limits.series_max;
        let used = self.encoder.counts().series.saturating_add(1);
        if limit > 0 && used > limit {
            return Err(SelectionExceeded::Series { used, limit }.into());
        }
        let column_type = series.samples.column_type();
        self.encoder.start_series(&series.labels, column_type).map_err(encode_error)?;
        let sample_count = series.samples.sample_count_hint().max(self.columns.times.capacity());
        self.reserve(sample_count as u64 * SAMPLE_BYTES)?;
        match column_type {
            ColumnType::Integer | ColumnType::Unsigned | ColumnType::Text => {
                self.put_typed(series, column_type, range)?;
            }
            ColumnType::Float | ColumnType::Boolean | ColumnType::Histogram => match need {
                SampleNeed::All => self.put_parts(series, range)?,
                SampleNeed::Newest => self.put_newest(series, range)?,
            },
        }
        check_samples(&self.encoder, self.outside_count, self.limits.samples_max)?;
        self.encoder.end_series();
        self.output.flush(&mut self.encoder)?;
        let columns_bytes = self.columns.times.capacity() as u64 * SAMPLE_BYTES;
        self.reserve(columns_bytes.saturating_add(self.columns.histogram_bytes() as u64))
    }

    /// Reserves the memory of the encoder, and `bytes` of samples.
    fn reserve(&mut self, bytes: u64) -> Result<(), QueryError> {
        let bytes = bytes.saturating_add(self.encoder.heap_bytes() as u64);
        let missing = bytes.saturating_sub(self.memory.bytes());
        Ok(self.memory.grow(missing)?)
    }

    /// Appends the samples in order of time, chunks as they are stored.
    fn put_parts(&mut self, series: &SeriesRead, range: TimeRange) -> Result<(), QueryError> {
        let AnswerWriter { encoder, limits, output, columns, outside_count, .. } = self;
        let visited = visited_range(&*series.samples, range);
        series.samples.visit_chunks(visited, &is_sent_as_stored, columns, &mut |part| {
            let put = match part {
                SamplesPart::Stored(chunk) => {
                    let Some(outside) = count_outside(&chunk, range) else { return Ok(()) };
                    *outside_count = outside_count.saturating_add(outside);
                    encoder.put_chunk(&chunk)
                }
                SamplesPart::Decoded(samples) => match samples.indices_in(range) {
                    indices if indices.is_empty() => return Ok(()),
                    indices if indices.len() == samples.len() => encoder.put_columns(samples),
                    indices => encoder.put_columns(&columns_at(samples, indices)),
                },
            };
            put.map_err(encode_error)?;
            check_samples(encoder, *outside_count, limits.samples_max)?;
            output.flush(encoder)
        })
    }

    /// Appends the newest sample.
    fn put_newest(&mut self, series: &SeriesRead, range: TimeRange) -> Result<(), QueryError> {
        self.columns.clear();
        series.samples.read(range, &mut self.columns)?;
        let Some(last) = self.columns.len().checked_sub(1) else { return Ok(()) };
        let mut newest = Columns::default();
        newest.push_from(&self.columns, last);
        self.encoder.put_columns(&newest).map_err(encode_error)
    }

    /// Appends samples of a type that floats do not hold: texts, and integers as words.
    fn put_typed(
        &mut self,
        series: &SeriesRead,
        column_type: ColumnType,
        range: TimeRange,
    ) -> Result<(), QueryError> {
        let mut typed = TypedColumns::new(column_type);
        series.samples.read_typed(range, &mut typed)?;
        let _values = self.ctx.budget.reserve(typed.values.heap_bytes() as u64)?;
        let words: Vec<u64> = match typed.values {
            TypedValues::Integers(values) => values.into_iter().map(word_of_integer).collect(),
            TypedValues::Unsigned(values) => values.into_iter().map(word_of_unsigned).collect(),
            TypedValues::Texts(texts) => {
                return self.encoder.put_texts(&typed.times, &texts).map_err(encode_error);
            }
            other => unreachable!("{:?} was read as {column_type:?}", other.column_type()),
        };
        debug_assert_eq!(words.len(), typed.times.len(), "a sample has a time and a value");
        let values = words.into_iter().map(f64::from_bits).collect();
        let columns = Columns { times: typed.times, values, ..Columns::default() };
        self.encoder.put_columns(&columns).map_err(encode_error)
    }

    fn write_other(&mut self, source: &dyn Queryable, read: &Read) -> Result<(), QueryError> {
        match source.open(read.clone(), self.ctx)? {
            Opened::Estimate(estimate) => self.encoder.put_estimate(estimate),
            opened => {
                let list = opened.into_list()()?;
                self.reserve(list.iter().map(|entry| entry.len() as u64).sum())?;
                self.encoder.put_list(&list).map_err(encode_error)?;
            }
        }
        Ok(())
    }

    fn write_records(&mut self, records: &StoredRecords) -> Result<(), QueryError> {
        let mut frames = RecordFrames::default();
        match records {
            StoredRecords::Metadata(entries) => {
                debug_assert!(entries.is_sorted_by(|a, b| a.metric <= b.metric), "sorted by metric");
                let bytes: usize = entries.iter().map(|entry| entry.metric.len() + entry.help.len()).sum();
                self.reserve(bytes as u64)?;
                frames.put_metadata(entries).map_err(encode_error)?;
            }
            StoredRecords::Exemplars(all) => {
                for (labels, exemplars) in all {
                    self.ctx.check()?;
                    frames.put_exemplars(labels, exemplars).map_err(encode_error)?;
                    self.encoder.put_frames(&mut frames);
                    self.output.flush(&mut self.encoder)?;
                }
                frames.end_exemplars();
            }
            StoredRecords::Ranges(ranges) => frames.put_ranges(ranges),
        }
        self.encoder.put_frames(&mut frames);
        Ok(())
    }

    /// Sends warnings and the end, or the failure.
    fn end(mut self, written: Result<(), QueryError>) -> Result<AnswerEnd, QueryError> {
        let warnings = self.ctx.warnings();
        let mut sent = written;
        if sent.is_ok() && !warnings.texts().is_empty() {
            let texts = warnings.texts().to_vec();
            self.encoder.put_warnings(&AnswerWarnings { is_partial: warnings.is_partial(), texts });
        }
        self.encoder.end_frame();
        if sent.is_ok() {
            sent = self.output.flush(&mut self.encoder);
        }
        debug_assert!(sent.is_err() || self.output.failure.is_none(), "a failed sink ends the answer");
        let end = match sent {
            Ok(()) => {
                let frames = self.encoder.finish();
                self.output.send(frames).map(|()| AnswerEnd::Complete)
            }
            Err(error) if self.output.failure.is_none() => {
                let frames = self.encoder.fail(&failure_of(&error));
                self.output.send(frames).map(|()| AnswerEnd::Failed(error))
            }
            Err(error) => Err(error),
        };
        match self.output.failure {
            Some(failure) => Err(failure),
            None => end,
        }
    }
}
