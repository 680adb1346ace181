//! Parts of a series in an answer: a chunk as its source keeps it, columns of samples, or texts.
//!
//! Invariants: parts of one entry ascend and do not overlap; a part has 1 to 65535 samples, and begins with
//! the times of the first and the last one; columns keep every bit of values, histograms and start times.
//! Not here: decoded samples of a part (`samples`), entries of series (`encode`, `decode`).

use std::ops::Range;
use std::sync::Arc;

use chronolith_base::bytes::{put_uvarint, put_varint};
use chronolith_base::hash::HashMap;
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::query::StoredChunk;
use chronolith_model::{Columns, Histogram};

use super::content::SelectEncodeError;
use crate::chunk::dense::{self, DenseScratch};
use crate::chunk::starts::{self, StartRun};
use crate::head::wal::HistogramEncoder;
use crate::record::invalid;

/// Samples of the longest part of columns that a writer makes.
const SAMPLES_PER_PART: usize = 8192;
/// Memory of histograms, or bytes of texts, at which a writer ends a part.
const PART_BYTES_FULL: usize = 1 << 20;

const FLAG_STARTS: u8 = 1 << 2;
const FLAG_HISTOGRAMS: u8 = 1 << 3;
const KIND_MASK: u8 = 3;
const FLAGS_KNOWN: u8 = KIND_MASK | FLAG_STARTS | FLAG_HISTOGRAMS;

const WHAT: &str = "part of a series";

/// Content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// A chunk as its source keeps it.
    Chunk {
        /// Encoding byte.
        encoding: u8,
    },
    /// Columns of samples.
    Columns,
    /// Texts.
    Texts,
}

/// A part of a series that is not decoded.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Content.
    pub kind: PartKind,
    /// Time of the first sample.
    pub first_time: i64,
    /// Time of the last sample.
    pub last_time: i64,
    /// Samples, at least one.
    pub sample_count: u16,
    /// The chunk, or a dense chunk of the columns; of one sample the bits of its value.
    pub body: &'a [u8],
    /// Dictionary of texts.
    pub(super) texts: &'a [u8],
    /// Runs of start timestamps.
    pub(super) starts: &'a [u8],
    /// Histograms with the indices of their samples.
    pub(super) histograms: &'a [u8],
}

/// Parts of an entry, in order of time.
#[derive(Clone)]
pub struct Parts<'a> {
    reader: ByteReader<'a>,
    /// Last time of the part before.
    last_time: Option<i64>,
}

impl<'a> Parts<'a> {
    /// Parts that `bytes` has, from the first one of an entry on.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Parts<'a> {
        Parts { reader: ByteReader::new(bytes), last_time: None }
    }

    fn read_next(&mut self) -> Result<Part<'a>, DecodeError> {
        let reader = &mut self.reader;
        let start = reader.offset();
        let flags = reader.u8(WHAT)?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(invalid(WHAT, start, "flags of version 1", flags.into()));
        }
        let step = reader.varint(WHAT)?;
        let first_time = self.last_time.unwrap_or(0).wrapping_add(step);
        let span = reader.uvarint(WHAT)?;
        let sample_count = reader.uvarint(WHAT)?;
        let last_time = first_time.checked_add_unsigned(span);
        let is_first = self.last_time.is_none();
        let ascends = is_first || self.last_time.is_some_and(|last_time| first_time > last_time);
        let count = u16::try_from(sample_count).ok().filter(|&count| count > 0);
        // Times are integers that ascend, so that a span has room for each sample.
        let is_possible = sample_count.checked_sub(1).is_some_and(|steps| steps <= span);
        let is_possible = is_possible && ascends && (sample_count > 1 || span == 0);
        let Some((sample_count, last_time)) = count.zip(last_time).filter(|_| is_possible) else {
            return Err(invalid(WHAT, start, "ascending times and 1 to 65535 samples", sample_count));
        };
        let kind = match flags & KIND_MASK {
            0 => PartKind::Chunk { encoding: reader.u8(WHAT)? },
            1 => PartKind::Columns,
            2 => PartKind::Texts,
            _ => return Err(invalid(WHAT, start, "kind 0, 1 or 2", flags.into())),
        };
        let is_single = kind == PartKind::Columns && sample_count == 1;
        let body = if is_single { reader.bytes(WHAT, 8)? } else { counted(reader)? };
        let texts = if kind == PartKind::Texts { counted(reader)? } else { &[] };
        let starts = if flags & FLAG_STARTS != 0 { counted(reader)? } else { &[] };
        let histograms = if flags & FLAG_HISTOGRAMS != 0 { counted(reader)? } else { &[] };
        if kind != PartKind::Columns && flags & !KIND_MASK != 0 {
            return Err(invalid(WHAT, start, "columns with start times or histograms", flags.into()));
        }
        self.last_time = Some(last_time);
        Ok(Part { kind, first_time, last_time, sample_count, body, texts, starts, histograms })
    }
}

/// Reads bytes after their length.
fn counted<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.length(WHAT)?;
    reader.bytes(WHAT, len)
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Part<'a>, DecodeError>;

    /// Ends after an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let part = self.read_next();
        if part.is_err() {
            self.reader = ByteReader::new(&[]);
        }
        Some(part)
    }
}

/// Parts of the open entry; keeps its memory from entry to entry.
#[derive(Debug, Default)]
pub(super) struct PartWriter {
    bytes: Vec<u8>,
    /// Last time of the part before in the entry.
    last_time: Option<i64>,
    /// Last time of the series.
    series_end: Option<i64>,
    sample_count: u64,
    scratch: DenseScratch,
    column: Vec<u8>,
    runs: Vec<StartRun>,
}

/// Times and number of the samples of a part.
struct PartHead {
    flags: u8,
    first_time: i64,
    last_time: i64,
    sample_count: usize,
}

impl PartWriter {
    /// Starts a series.
    pub(super) fn start_series(&mut self) {
        self.clear_entry();
        self.series_end = None;
        self.sample_count = 0;
    }

    /// Starts the next entry of the series.
    pub(super) fn clear_entry(&mut self) {
        self.bytes.clear();
        self.last_time = None;
    }

    /// Bytes of the entry.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of the entry and of the last column.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.column.capacity()
    }

    /// Samples of the series.
    pub(super) fn sample_count(&self) -> u64 {
        self.sample_count
    }

    fn put_head(&mut self, head: &PartHead) -> Result<(), SelectEncodeError> {
        let PartHead { flags, first_time, last_time, sample_count } = *head;
        let is_later = self.series_end.is_none_or(|end| end < first_time);
        if !is_later || last_time < first_time || sample_count == 0 {
            return Err(SelectEncodeError::Order { time: first_time });
        }
        self.bytes.push(flags);
        put_varint(&mut self.bytes, first_time.wrapping_sub(self.last_time.unwrap_or(0)));
        put_uvarint(&mut self.bytes, last_time.wrapping_sub(first_time).cast_unsigned());
        put_uvarint(&mut self.bytes, sample_count as u64);
        self.last_time = Some(last_time);
        self.series_end = self.last_time;
        self.sample_count = self.sample_count.saturating_add(sample_count as u64);
        Ok(())
    }

    fn put_counted(&mut self, bytes: &[u8]) {
        put_uvarint(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a chunk.
    pub(super) fn put_chunk(&mut self, chunk: &StoredChunk<'_>) -> Result<(), SelectEncodeError> {
        let StoredChunk { min_time, max_time, sample_count, encoding, bytes } = *chunk;
        self.put_head(&PartHead { flags: 0, first_time: min_time, last_time: max_time, sample_count })?;
        self.bytes.push(encoding);
        self.put_counted(bytes);
        Ok(())
    }

    /// Appends the samples at `indices` as one part; see [`columns_len`].
    pub(super) fn put_columns(
        &mut self,
        columns: &Columns,
        indices: Range<usize>,
    ) -> Result<(), SelectEncodeError> {
        let times = columns.times.get(indices.clone()).unwrap_or_default();
        let values = columns.values.get(indices.clone()).unwrap_or_default();
        let start_times = columns.start_times.get(indices.start..).unwrap_or_default();
        let start_times = start_times.get(..indices.len()).unwrap_or(start_times);
        let histograms = histograms_in(columns, &indices);
        self.runs.clear();
        starts::runs_of(times, start_times, &mut self.runs);
        let has_starts = !self.runs.is_empty();
        let flags = 1
            | if has_starts { FLAG_STARTS } else { 0 }
            | if histograms.is_empty() { 0 } else { FLAG_HISTOGRAMS };
        self.put_samples_head(flags, times)?;
        if let [value] = values {
            self.bytes.extend_from_slice(&value.to_bits().to_le_bytes());
        } else {
            self.put_dense(times, values);
        }
        let mut column = std::mem::take(&mut self.column);
        if has_starts {
            column.clear();
            starts::encode(&self.runs, &mut column);
            self.put_counted(&column);
        }
        if !histograms.is_empty() {
            column.clear();
            put_uvarint(&mut column, histograms.len() as u64);
            let mut encoder = HistogramEncoder::new(&mut column);
            let mut before = indices.start;
            for (idx, histogram) in histograms {
                put_uvarint(encoder.out(), (*idx as usize).saturating_sub(before) as u64);
                before = *idx as usize;
                encoder.put(histogram);
            }
            self.put_counted(&column);
        }
        self.column = column;
        Ok(())
    }

    /// Appends texts, one per time, as one part; see [`texts_len`].
    pub(super) fn put_texts<T: AsRef<[u8]>>(
        &mut self,
        times: &[i64],
        texts: &[T],
    ) -> Result<(), SelectEncodeError> {
        assert_eq!(times.len(), texts.len(), "one text per time");
        let mut distinct: Vec<&[u8]> = Vec::new();
        let mut numbers = HashMap::<&[u8], u32>::default();
        let mut indices = Vec::with_capacity(texts.len());
        for text in texts {
            let text = text.as_ref();
            let number = *numbers.entry(text).or_insert_with(|| {
                distinct.push(text);
                distinct.len() as u32 - 1
            });
            indices.push(f64::from(number));
        }
        self.put_samples_head(2, times)?;
        self.put_dense(times, &indices);
        let mut dictionary = Vec::new();
        for text in distinct {
            put_uvarint(&mut dictionary, text.len() as u64);
            dictionary.extend_from_slice(text);
        }
        self.put_counted(&dictionary);
        Ok(())
    }

    fn put_samples_head(&mut self, flags: u8, times: &[i64]) -> Result<(), SelectEncodeError> {
        let first_time = times.first().copied().unwrap_or_default();
        if !times.is_sorted_by(|a, b| a < b) {
            return Err(SelectEncodeError::Order { time: first_time });
        }
        let last_time = times.last().copied().unwrap_or_default();
        self.put_head(&PartHead { flags, first_time, last_time, sample_count: times.len() })
    }

    fn put_dense(&mut self, times: &[i64], values: &[f64]) {
        self.column.clear();
        dense::encode(times, values, &mut self.scratch, &mut self.column);
        let column = std::mem::take(&mut self.column);
        self.put_counted(&column);
        self.column = column;
    }
}

/// Histograms of the samples at `indices`.
fn histograms_in<'c>(columns: &'c Columns, indices: &Range<usize>) -> &'c [(u32, Arc<Histogram>)] {
    let histograms = &columns.histograms;
    let start = histograms.partition_point(|(idx, _)| (*idx as usize) < indices.start);
    let end = histograms.partition_point(|(idx, _)| (*idx as usize) < indices.end);
    histograms.get(start..end).unwrap_or_default()
}

/// Returns the number of samples from `start` on that one part takes, at least one.
pub(super) fn columns_len(columns: &Columns, start: usize) -> usize {
    let len = columns.len().saturating_sub(start).min(SAMPLES_PER_PART);
    let mut bytes = 0usize;
    for (idx, histogram) in histograms_in(columns, &(start..start.saturating_add(len))) {
        bytes = bytes.saturating_add(histogram.memory_bytes());
        if bytes > PART_BYTES_FULL {
            return (*idx as usize).saturating_sub(start).max(1);
        }
    }
    len
}

/// Returns the number of texts that one part takes, at least one.
pub(super) fn texts_len<T: AsRef<[u8]>>(texts: &[T]) -> usize {
    let mut bytes = 0usize;
    let is_within = |text: &&T| {
        bytes = bytes.saturating_add(text.as_ref().len());
        bytes <= PART_BYTES_FULL
    };
    texts.iter().take(SAMPLES_PER_PART).take_while(is_within).count().max(1)
}

const _: () = assert!(SAMPLES_PER_PART <= dense::SAMPLES_MAX, "columns of a part are one dense chunk");
