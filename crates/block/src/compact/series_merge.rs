//! Merge of the chunks of one series from several blocks: a sweep over their start times.
//!
//! Invariant: chunks are written in order of time, none overlapping. A chunk in the output's encoding that
//! overlaps nothing and is full, or has no neighbour to join, is copied after its checksum was verified; all
//! others are decoded and written as full chunks (the last with fewer samples). Start times stay with their
//! samples.
//! Memory: the samples of the chunks that overlap at one time, and less than one chunk that waits to be
//! filled.
//! Not here: the order of series (`compact`), chunk bytes (`format`).

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::tombstones::Interval;
use chronolith_format::chunk::RawChunk;
use chronolith_format::chunk::dense::{
    ENCODING_BOOLEAN, ENCODING_DENSE, ENCODING_DENSE_STARTS, ENCODING_INTEGERS, ENCODING_PACKED,
    ENCODING_TEXTS,
};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::{ENCODING_XOR, SAMPLES_PER_CHUNK};
use chronolith_format::chunk::xor2::ENCODING_XOR2;
use chronolith_model::{BlockEncoding, Columns, DuplicatePolicy, Histogram, TimeRange};

use super::{CompactError, MergeRules};
use crate::BlockWriter;
use crate::chunk::{self, ChunkError, chunk_error, claimed_samples, raw_chunk};
use crate::series::drop_deleted;
use crate::source::RangeBytes;
use crate::writer::ChunkView;
use crate::writer::samples::DENSE_SAMPLES_MAX;

/// Histograms that wait at most; they are cut into chunks by count and bytes.
const HISTOGRAMS_OPEN_MAX: usize = 1024;

/// A chunk of the series in one of the blocks.
pub(super) struct MergeChunk<'a> {
    /// Bytes of the series' chunks in that block.
    pub(super) bytes: RangeBytes,
    /// Deleted intervals of the series in that block.
    pub(super) deleted: &'a [Interval],
    pub(super) meta: ChunkMeta,
    /// Position of its block among the inputs: those that were written earlier have lower ones.
    pub(super) input: u32,
    /// Position among the chunks of its block: of two samples with the same time the one of the lower is
    /// kept.
    pub(super) idx: u32,
}

/// A decoded sample that a later chunk may still precede or repeat.
struct Sample {
    time: i64,
    /// Rank of the block: the lower rank wins at equal timestamps.
    rank: u64,
    value: f64,
    histogram: Option<Arc<Histogram>>,
}

/// Buffers, reused from series to series.
pub(super) struct SeriesMerge {
    rules: MergeRules,
    /// Samples of a full chunk of the current series.
    chunk_samples: usize,
    /// By time and rank.
    pending: Vec<Sample>,
    /// Samples in their final order that wait for a full chunk.
    open: Columns,
    decoded: Columns,
    /// Known start times of pending samples, by time and rank.
    starts: HashMap<(i64, u64), i64>,
    /// Texts to which the values of pending and open samples are indices; empty for other values.
    texts: Vec<Arc<[u8]>>,
    dictionary: Vec<Arc<[u8]>>,
}

/// Number of texts that may stay without a sample in memory.
const SPARE_TEXTS: usize = 4096;

impl SeriesMerge {
    pub(super) fn new(rules: MergeRules) -> SeriesMerge {
        let (pending, open, decoded) = (Vec::new(), Columns::default(), Columns::default());
        let starts = HashMap::default();
        let texts = Vec::new();
        let dictionary = Vec::new();
        SeriesMerge { rules, chunk_samples: 1, pending, open, decoded, starts, texts, dictionary }
    }

    /// Adds the merged chunks of a series to `out`; the caller ends the series. Returns the bytes read.
    pub(super) fn run(
        &mut self,
        chunks: &mut [MergeChunk<'_>],
        out: &mut BlockWriter,
    ) -> Result<u64, CompactError> {
        chunks.sort_by_key(|chunk| (chunk.meta.min_time, chunk.input, chunk.idx));
        self.chunk_samples = out.chunk_samples(chunks.iter().map(MergeChunk::sample_count_claimed).sum());
        let (mut reached, mut read_bytes) = (None, 0);
        for (i, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(i + 1);
            self.settle(chunk.meta.min_time, out)?;
            let raw = chunk.raw()?;
            let count = chunk.sample_count(raw)?;
            read_bytes += raw.bytes.len() as u64;
            let overlaps = reached.is_some_and(|last| chunk.meta.min_time <= last)
                || next.is_some_and(|next| next.meta.min_time <= chunk.meta.max_time);
            reached = reached.max(Some(chunk.meta.max_time));
            if count == 0 {
                continue;
            }
            let joins = !self.open.is_empty() || next.is_some();
            if overlaps || chunk.is_cut() || !self.keeps(raw, count, joins, next) {
                self.decode(chunk)?;
            } else {
                self.close(out)?;
                let ChunkMeta { min_time, max_time, .. } = chunk.meta;
                let (encoding, bytes) = (raw.encoding, raw.bytes);
                out.add_chunk(&ChunkView { encoding, min_time, max_time, count, bytes })?;
            }
        }
        self.settle(i64::MAX, out)?;
        self.close(out)?;
        self.texts.clear();
        Ok(read_bytes)
    }

    /// Returns true if a chunk that overlaps nothing is copied.
    fn keeps(&self, raw: RawChunk<'_>, count: u16, joins: bool, next: Option<&MergeChunk<'_>>) -> bool {
        let count = usize::from(count);
        match (self.rules.encoding, raw.encoding) {
            (BlockEncoding::Prometheus, ENCODING_XOR) => {
                let joins = !self.open.is_empty() || next.is_some_and(MergeChunk::is_small);
                count >= SAMPLES_PER_CHUNK || !joins
            }
            (_, ENCODING_DENSE_STARTS)
            | (BlockEncoding::Prometheus, ENCODING_DENSE | ENCODING_PACKED | ENCODING_BOOLEAN) => false,
            (BlockEncoding::Dense, ENCODING_XOR | ENCODING_XOR2) => false,
            (BlockEncoding::Dense, ENCODING_DENSE | ENCODING_PACKED | ENCODING_BOOLEAN)
            | (_, ENCODING_INTEGERS | ENCODING_TEXTS) => {
                // A reference to times in another chunk holds in its own segment only.
                let has_times = chunk::times_offset(raw).is_ok_and(|offset| offset.is_none());
                has_times && (!joins || count >= DENSE_SAMPLES_MAX / 2)
            }
            _ => true,
        }
    }

    /// Decodes a chunk; its samples wait for the chunks that overlap it.
    fn decode(&mut self, chunk: &MergeChunk<'_>) -> Result<(), CompactError> {
        self.decoded.clear();
        let dictionary = &mut self.dictionary;
        let decoded = &mut self.decoded;
        let done = chunk::decode_with_texts(&chunk.bytes, &chunk.meta, TimeRange::ALL, dictionary, decoded);
        done.map_err(|error| chunk.error(error))?;
        if !self.dictionary.is_empty() {
            self.add_dictionary();
        }
        drop_deleted(chunk.deleted, 0, &mut self.decoded);
        let sorted = self.pending.is_empty();
        let block_rank = match self.rules.duplicates {
            DuplicatePolicy::KeepFirst => chunk.input,
            DuplicatePolicy::LastWins => u32::MAX - chunk.input,
        };
        let rank = u64::from(block_rank) << 32 | u64::from(chunk.idx);
        let Columns { times, values, histograms, start_times } = &mut self.decoded;
        let known = times.iter().zip(start_times.iter()).filter(|(_, start_ms)| **start_ms != 0);
        self.starts.extend(known.map(|(&time, &start_ms)| ((time, rank), start_ms)));
        let mut histograms = histograms.drain(..).peekable();
        let samples = (0u32..).zip(times.iter().zip(values.iter()));
        self.pending.extend(samples.map(|(idx, (&time, &value))| {
            let histogram = histograms.next_if(|(at, _)| *at == idx).map(|(_, histogram)| histogram);
            Sample { time, rank, value, histogram }
        }));
        if !sorted {
            // Two ascending runs: the sort merges them in one pass.
            self.pending.sort_by_key(|sample| (sample.time, sample.rank));
        }
        Ok(())
    }

    /// Adds the texts of the decoded chunk to the texts of the series.
    fn add_dictionary(&mut self) {
        if self.texts.len() > SPARE_TEXTS + 2 * (self.pending.len() + self.open.len()) {
            let mut kept = Vec::new();
            let pending = self.pending.iter_mut().map(|sample| &mut sample.value);
            for value in pending.chain(&mut self.open.values) {
                let next = kept.len() as u64;
                kept.push(self.texts[value.to_bits() as usize].clone());
                *value = f64::from_bits(next);
            }
            self.texts = kept;
        }
        let first = self.texts.len() as u64;
        for value in &mut self.decoded.values {
            *value = f64::from_bits(first + value.to_bits());
        }
        self.texts.append(&mut self.dictionary);
    }

    /// Moves the samples before `time`, which no later chunk can change, to the open chunk; writes full ones.
    fn settle(&mut self, time: i64, out: &mut BlockWriter) -> Result<(), CompactError> {
        let final_count = self.pending.partition_point(|sample| sample.time < time);
        let mut pending = std::mem::take(&mut self.pending);
        for sample in pending.drain(..final_count) {
            if self.open.times.last() == Some(&sample.time) {
                continue;
            }
            if sample.histogram.is_some() == self.open.histograms.is_empty() {
                // A chunk holds one kind.
                self.close(out)?;
            }
            match sample.histogram {
                None => self.open.push(sample.time, sample.value),
                Some(histogram) => self.open.push_histogram(sample.time, histogram),
            }
            if let Some(&start_ms) = self.starts.get(&(sample.time, sample.rank)) {
                self.open.set_start_time(start_ms);
            }
        }
        if pending.is_empty() {
            self.starts.clear();
        }
        self.pending = pending;
        if !self.open.histograms.is_empty() {
            return if self.open.len() >= HISTOGRAMS_OPEN_MAX { self.close(out) } else { Ok(()) };
        }
        let full = self.open.len() - self.open.len() % self.chunk_samples;
        self.write(full, out)
    }

    /// Writes the open chunk, full or not.
    fn close(&mut self, out: &mut BlockWriter) -> Result<(), CompactError> {
        if !self.open.histograms.is_empty() {
            let mut chunks = Vec::new();
            kinds::encode(&self.open, &mut chunks);
            self.open.clear();
            for chunk in &chunks {
                out.add_chunk(&ChunkView::from(chunk))?;
            }
            return Ok(());
        }
        self.write(self.open.len(), out)
    }

    fn write(&mut self, sample_count: usize, out: &mut BlockWriter) -> Result<(), CompactError> {
        let Columns { times, values, start_times, .. } = &mut self.open;
        let (Some(ready_times), Some(ready_values)) = (times.get(..sample_count), values.get(..sample_count))
        else {
            return Ok(());
        };
        if !self.texts.is_empty() {
            let text = |value: &f64| self.texts[value.to_bits() as usize].clone();
            let texts: Vec<Arc<[u8]>> = ready_values.iter().map(text).collect();
            out.push_texts(ready_times, &texts)?;
            times.drain(..sample_count);
            values.drain(..sample_count);
            return Ok(());
        }
        let chunks = ready_times.chunks(self.chunk_samples).zip(ready_values.chunks(self.chunk_samples));
        let mut starts = start_times.chunks(self.chunk_samples);
        for (times, values) in chunks {
            out.add_chunk_of(times, values, starts.next().unwrap_or(&[]))?;
        }
        times.drain(..sample_count);
        values.drain(..sample_count);
        start_times.drain(..sample_count.min(start_times.len()));
        Ok(())
    }
}

impl MergeChunk<'_> {
    fn raw(&self) -> Result<RawChunk<'_>, CompactError> {
        let raw = raw_chunk(&self.bytes, self.meta.chunk_ref);
        raw.map_err(|error| self.error(ChunkError::Segment(error)))
    }

    fn sample_count(&self, raw: RawChunk<'_>) -> Result<u16, CompactError> {
        raw.sample_count().map_err(|error| self.error(ChunkError::Segment(error)))
    }

    /// Number of samples that it claims, not verified: only good for sizing.
    fn sample_count_claimed(&self) -> usize {
        claimed_samples(&self.bytes, self.meta.chunk_ref)
    }

    /// Returns true if some of its samples are deleted.
    fn is_cut(&self) -> bool {
        let touches = |d: &Interval| d.first <= self.meta.max_time && self.meta.min_time <= d.last;
        self.deleted.iter().any(touches)
    }

    /// Returns true if it has room for samples of its neighbours. Damage is reported when it is merged.
    fn is_small(&self) -> bool {
        self.raw().is_ok_and(|raw| self.sample_count(raw).is_ok_and(|count| is_small(raw.encoding, count)))
    }

    #[cold]
    fn error(&self, error: ChunkError) -> CompactError {
        CompactError::Read(chunk_error(&self.bytes, self.meta.chunk_ref, error))
    }
}

/// Returns true if an XOR chunk has room; chunks of other encodings stay as their writer cut them.
fn is_small(encoding: u8, count: u16) -> bool {
    encoding == ENCODING_XOR && usize::from(count) < SAMPLES_PER_CHUNK
}
