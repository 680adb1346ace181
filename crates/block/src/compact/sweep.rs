//! Joins the chunks of one series from several blocks, from early to late.
//!
//! Holds: chunks leave in order of time, none overlapping. A chunk in the output's encoding that overlaps nothing and
//! is full, or has no neighbour to join, is copied byte by byte after its checksum; all others leave as full chunks (the
//! last with fewer samples). Start times stay with their samples.
//! Memory: the samples of the chunks that overlap at one moment, and less than one chunk that waits to be filled.
//! Not here: which chunks (`compact`), chunk bytes (`format`).

use std::sync::Arc;

use chronolith_base::hash::HashMap;
use chronolith_format::block::chunks::RawChunk;
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::tombstones::Interval;
use chronolith_format::chunk::dense::{self, ENCODING_DENSE, ENCODING_DENSE_STARTS, ENCODING_PACKED};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::{ENCODING_XOR, SAMPLES_PER_CHUNK};
use chronolith_format::chunk::xor2::ENCODING_XOR2;
use chronolith_model::{BlockEncoding, Columns, DuplicatePolicy, Histogram, TimeRange};

use super::{CompactError, MergeRules};
use crate::BlockWriter;
use crate::block::{BlockFiles, ChunkError};
use crate::series::drop_deleted;
use crate::writer::ChunkView;
use crate::writer::samples::DENSE_SAMPLES_MAX;

/// Histograms that wait at most: they leave as chunks of what is full by count or bytes.
const HISTOGRAMS_OPEN_MAX: usize = 1024;

/// A chunk of the series in one of the blocks.
pub(super) struct Piece<'a> {
    pub(super) files: &'a BlockFiles,
    /// Deleted intervals of the series in that block.
    pub(super) deleted: &'a [Interval],
    pub(super) chunk: ChunkMeta,
    /// Place of its block: those that were written earlier have lower ones.
    pub(super) block: u32,
    /// Place in its block: of two samples of the same time that of the lower one is right.
    pub(super) place: u32,
}

/// A decoded sample that a later chunk may still precede or repeat.
struct Sample {
    time: i64,
    /// Of two samples of the same time that of the lower rank is right.
    rank: u64,
    value: f64,
    histogram: Option<Arc<Histogram>>,
}

/// Buffers, reused from series to series.
pub(super) struct Sweep {
    rules: MergeRules,
    /// Samples of a full chunk of the current series.
    chunk_samples: usize,
    /// By time and rank.
    pending: Vec<Sample>,
    /// Samples in their final order that wait for a full chunk.
    open: Columns,
    decoded: Columns,
    /// Start times of pending samples, as far as they are known: by time and rank.
    starts: HashMap<(i64, u64), i64>,
}

impl Sweep {
    pub(super) fn new(rules: MergeRules) -> Sweep {
        let (pending, open, decoded) = (Vec::new(), Columns::default(), Columns::default());
        Sweep { rules, chunk_samples: 1, pending, open, decoded, starts: HashMap::default() }
    }

    /// Adds the merged chunks of a series to `out`, the caller ends the series; gives the bytes read.
    pub(super) fn run(
        &mut self,
        pieces: &mut [Piece<'_>],
        out: &mut BlockWriter,
    ) -> Result<u64, CompactError> {
        pieces.sort_by_key(|piece| (piece.chunk.min_time, piece.block, piece.place));
        self.chunk_samples = out.chunk_samples(pieces.iter().map(Piece::sample_count_claimed).sum());
        let (mut reached, mut read_bytes) = (None, 0);
        for (i, piece) in pieces.iter().enumerate() {
            let next = pieces.get(i + 1);
            self.settle(piece.chunk.min_time, out)?;
            let raw = piece.raw()?;
            let count = piece.sample_count(raw)?;
            read_bytes += raw.bytes.len() as u64;
            let overlaps = reached.is_some_and(|last| piece.chunk.min_time <= last)
                || next.is_some_and(|next| next.chunk.min_time <= piece.chunk.max_time);
            reached = reached.max(Some(piece.chunk.max_time));
            if count == 0 {
                continue;
            }
            let joins = !self.open.is_empty() || next.is_some();
            if overlaps || piece.is_cut() || !self.keeps(raw, count, joins, next) {
                self.decode(piece)?;
            } else {
                self.close(out)?;
                let ChunkMeta { min_time, max_time, .. } = piece.chunk;
                let (encoding, bytes) = (raw.encoding, raw.bytes);
                out.add_chunk(&ChunkView { encoding, min_time, max_time, count, bytes })?;
            }
        }
        self.settle(i64::MAX, out)?;
        self.close(out)?;
        Ok(read_bytes)
    }

    /// Whether a chunk that overlaps nothing stays as it is.
    fn keeps(&self, raw: RawChunk<'_>, count: u16, joins: bool, next: Option<&Piece<'_>>) -> bool {
        let count = usize::from(count);
        match (self.rules.encoding, raw.encoding) {
            (BlockEncoding::Prometheus, ENCODING_XOR) => {
                let joins = !self.open.is_empty() || next.is_some_and(Piece::is_small);
                count >= SAMPLES_PER_CHUNK || !joins
            }
            (_, ENCODING_DENSE_STARTS) | (BlockEncoding::Prometheus, ENCODING_DENSE | ENCODING_PACKED) => {
                false
            }
            (BlockEncoding::Dense, ENCODING_XOR | ENCODING_XOR2) => false,
            (BlockEncoding::Dense, ENCODING_DENSE | ENCODING_PACKED) => {
                // A reference to times in another chunk holds in its own segment only.
                let has_times = raw.encoding == ENCODING_DENSE
                    || dense::shared_times_offset(raw.bytes).is_ok_and(|offset| offset.is_none());
                has_times && (!joins || count >= DENSE_SAMPLES_MAX / 2)
            }
            _ => true,
        }
    }

    /// Decodes a chunk to where it waits for the chunks that overlap it.
    fn decode(&mut self, piece: &Piece<'_>) -> Result<(), CompactError> {
        self.decoded.clear();
        let done = piece.files.decode(&piece.chunk, TimeRange::ALL, &mut self.decoded);
        done.map_err(|error| piece.error(error))?;
        drop_deleted(piece.deleted, 0, &mut self.decoded);
        let sorted = self.pending.is_empty();
        let block_rank = match self.rules.duplicates {
            DuplicatePolicy::KeepFirst => piece.block,
            DuplicatePolicy::LastWins => u32::MAX - piece.block,
        };
        let rank = u64::from(block_rank) << 32 | u64::from(piece.place);
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

    /// Moves the samples before `time`, which no later chunk can change, to the open chunk; writes full ones.
    fn settle(&mut self, time: i64, out: &mut BlockWriter) -> Result<(), CompactError> {
        let settled = self.pending.partition_point(|sample| sample.time < time);
        let mut pending = std::mem::take(&mut self.pending);
        for sample in pending.drain(..settled) {
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

    /// Writes what waits as a chunk, full or not.
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

impl<'a> Piece<'a> {
    fn raw(&self) -> Result<RawChunk<'a>, CompactError> {
        self.files.chunk(self.chunk.chunk_ref).map_err(|error| self.error(ChunkError::Segment(error)))
    }

    fn sample_count(&self, raw: RawChunk<'_>) -> Result<u16, CompactError> {
        raw.sample_count().map_err(|error| self.error(ChunkError::Segment(error)))
    }

    /// As its segment has it, unchecked: good for sizing only.
    fn sample_count_claimed(&self) -> usize {
        let chunk_ref = self.chunk.chunk_ref;
        let segment = self.files.segments.get(chunk_ref.segment_idx() as usize);
        segment.and_then(|s| s.sample_count_claimed(chunk_ref.offset())).map_or(0, usize::from)
    }

    /// Whether part of it is deleted.
    fn is_cut(&self) -> bool {
        let touches = |d: &Interval| d.first <= self.chunk.max_time && self.chunk.min_time <= d.last;
        self.deleted.iter().any(touches)
    }

    /// Whether it has room for samples of its neighbours. Damage is reported when its turn comes.
    fn is_small(&self) -> bool {
        self.raw().is_ok_and(|raw| self.sample_count(raw).is_ok_and(|count| is_small(raw.encoding, count)))
    }

    #[cold]
    fn error(&self, error: ChunkError) -> CompactError {
        CompactError::Read(self.files.chunk_error(&self.chunk, error))
    }
}

/// Whether an XOR chunk has room; other encodings are left as their writer cut them.
fn is_small(encoding: u8, count: u16) -> bool {
    encoding == ENCODING_XOR && usize::from(count) < SAMPLES_PER_CHUNK
}
