//! Joins the chunks of one series from several blocks, from early to late.
//!
//! Holds: chunks leave in order of time, none overlapping. A chunk that overlaps nothing and is full, or has no
//! neighbour to join, is copied byte by byte after its checksum; all others leave with 120 samples (the last with fewer).
//! Memory: the samples of the chunks that overlap at one moment, and less than one chunk that waits to be filled.
//! Not here: which chunks (`compact`), chunk bytes (`format`).

use chronolith_base::DecodeError;
use chronolith_format::chunks::{ENCODINGS_HISTOGRAM, RawChunk};
use chronolith_format::index::ChunkMeta;
use chronolith_format::tombstones::Interval;
use chronolith_format::xor::{self, ENCODING_XOR, SAMPLES_PER_CHUNK};
use chronolith_model::{Columns, Labels, TimeRange};

use super::CompactError;
use crate::BlockWriter;
use crate::block::{BlockFiles, ChunkError};
use crate::series::drop_deleted;
use crate::writer::ChunkView;

/// A chunk of the series in one of the blocks.
pub(super) struct Piece<'a> {
    pub(super) files: &'a BlockFiles,
    /// Deleted intervals of the series in that block.
    pub(super) deleted: &'a [Interval],
    pub(super) chunk: ChunkMeta,
    /// Of two samples of the same time that of the lower place is right.
    pub(super) place: usize,
}

/// A decoded sample that a later chunk may still precede or repeat.
struct Sample {
    time: i64,
    place: usize,
    value: f64,
}

/// Buffers, reused from series to series.
#[derive(Default)]
pub(super) struct Sweep {
    /// By time and place.
    pending: Vec<Sample>,
    /// Samples in their final order that wait for a full chunk.
    open: Columns,
    decoded: Columns,
}

impl Sweep {
    /// Adds the merged chunks of the series `labels` to `out`; the caller ends the series.
    pub(super) fn run(
        &mut self,
        labels: &Labels,
        pieces: &mut [Piece<'_>],
        out: &mut BlockWriter,
    ) -> Result<(), CompactError> {
        pieces.sort_by_key(|piece| (piece.chunk.min_time, piece.place));
        let mut reached = None;
        for (i, piece) in pieces.iter().enumerate() {
            let next = pieces.get(i + 1);
            self.settle(piece.chunk.min_time, out)?;
            let raw = piece.raw()?;
            let count = piece.sample_count(raw)?;
            let overlaps = reached.is_some_and(|last| piece.chunk.min_time <= last)
                || next.is_some_and(|next| next.chunk.min_time <= piece.chunk.max_time);
            reached = reached.max(Some(piece.chunk.max_time));
            if count == 0 {
                continue;
            }
            let joins = || !self.open.is_empty() || next.is_some_and(Piece::is_small);
            if overlaps || piece.is_cut() || (is_small(raw.encoding, count) && joins()) {
                self.decode(labels, piece, raw)?;
            } else {
                self.close(out)?;
                let ChunkMeta { min_time, max_time, .. } = piece.chunk;
                let (encoding, bytes) = (raw.encoding, raw.bytes);
                out.add_chunk(&ChunkView { encoding, min_time, max_time, count, bytes })?;
            }
        }
        self.settle(i64::MAX, out)?;
        self.close(out)
    }

    /// Decodes a chunk to where it waits for the chunks that overlap it.
    fn decode(&mut self, labels: &Labels, piece: &Piece<'_>, raw: RawChunk<'_>) -> Result<(), CompactError> {
        let encoding = raw.encoding;
        // Reading leaves histograms out, which would lose them here. Other unknown encodings are an error there.
        if ENCODINGS_HISTOGRAM.contains(&encoding) {
            let (chunk_ref, labels) = (piece.chunk.chunk_ref, labels.clone());
            let (path, offset) = (piece.files.segment_path(chunk_ref), chunk_ref.offset());
            return Err(CompactError::Opaque { path, offset, encoding, labels });
        }
        self.decoded.clear();
        let done = piece.files.decode(&piece.chunk, TimeRange::ALL, &mut self.decoded);
        done.map_err(|error| piece.error(error))?;
        drop_deleted(piece.deleted, 0, &mut self.decoded);
        let sorted = self.pending.is_empty();
        let (times, values) = (self.decoded.times.iter(), self.decoded.values.iter());
        let place = piece.place;
        self.pending.extend(times.zip(values).map(|(&time, &value)| Sample { time, place, value }));
        if !sorted {
            // Two ascending runs: the sort merges them in one pass.
            self.pending.sort_by_key(|sample| (sample.time, sample.place));
        }
        Ok(())
    }

    /// Moves the samples before `time`, which no later chunk can change, to the open chunk; writes full ones.
    fn settle(&mut self, time: i64, out: &mut BlockWriter) -> Result<(), CompactError> {
        let settled = self.pending.partition_point(|sample| sample.time < time);
        for sample in self.pending.drain(..settled) {
            if self.open.times.last() != Some(&sample.time) {
                self.open.push(sample.time, sample.value);
            }
        }
        let full = self.open.len() - self.open.len() % SAMPLES_PER_CHUNK;
        self.write(full, out)
    }

    /// Writes what waits as a chunk, full or not.
    fn close(&mut self, out: &mut BlockWriter) -> Result<(), CompactError> {
        self.write(self.open.len(), out)
    }

    fn write(&mut self, sample_count: usize, out: &mut BlockWriter) -> Result<(), CompactError> {
        let Columns { times, values, .. } = &mut self.open;
        let (Some(ready_times), Some(ready_values)) = (times.get(..sample_count), values.get(..sample_count))
        else {
            return Ok(());
        };
        for chunk in xor::encode(ready_times, ready_values) {
            out.add_chunk(&ChunkView::from(&chunk))?;
        }
        times.drain(..sample_count);
        values.drain(..sample_count);
        Ok(())
    }
}

impl<'a> Piece<'a> {
    fn raw(&self) -> Result<RawChunk<'a>, CompactError> {
        self.files.chunk(self.chunk.chunk_ref).map_err(|error| self.error(ChunkError::Segment(error)))
    }

    /// Every encoding starts with the number of its samples.
    fn sample_count(&self, raw: RawChunk<'_>) -> Result<u16, CompactError> {
        let Some((front, _)) = raw.bytes.split_first_chunk::<2>() else {
            let (what, offset) = ("chunk sample count", self.chunk.chunk_ref.offset() as usize);
            let short = DecodeError::Short { what, offset, needed: 2, left: raw.bytes.len() };
            return Err(self.error(ChunkError::Segment(short)));
        };
        Ok(u16::from_be_bytes(*front))
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

/// Other encodings are left as their writer cut them.
fn is_small(encoding: u8, count: u16) -> bool {
    encoding == ENCODING_XOR && usize::from(count) < SAMPLES_PER_CHUNK
}
