//! Selection of series with their samples, in waves: entries of a batch of series, then their chunks, as
//! many at once as one wave may read. A batch is returned when its chunks are in memory.
//!
//! A state machine without I/O: it names the next wave and takes its bytes, so that the same code serves
//! mapped blocks and blocks in object storage, for which no thread waits.
//! Invariant: series come in order of labels, which the index promises and the reader verifies.
//! Not here: postings, the wave before these (`postings`); reading (`select`, and crates above).

use std::sync::Arc;

use chronolith_base::{MemoryBudget, Reservation};
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::{Labels, QueryError, ReadContext, SeriesRead, TimeRange};

use crate::chunk::{ChunkError, chunk_error, raw_chunk};
use crate::contents::BlockContents;
use crate::rollup::SeriesRollups;
use crate::series::BlockSeries;
use crate::series_chunks::SeriesChunks;
use crate::series_reader::{SeriesReader, is_deleted};
use crate::shard::{Shard, labels_hash};
use crate::source::{ByteRange, RangeBytes, Wave};
use crate::waves::push_chunk_ranges;

/// A selected series whose chunks are still to be read.
struct SelectedSeries {
    series_ref: u32,
    labels: Labels,
    /// By start time; at least one.
    chunks: SeriesChunks,
    deleted: Box<[Interval]>,
}

impl AsRef<[ChunkMeta]> for SelectedSeries {
    fn as_ref(&self) -> &[ChunkMeta] {
        &self.chunks
    }
}

/// Series of a wave of chunks, and their chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkCounts {
    /// Number of series.
    pub series: u64,
    /// Number of their chunks.
    pub chunks: u64,
}

/// Selected series of a block, wave by wave. [`Selection::next_wave`] and [`Selection::push`] alternate.
pub struct Selection {
    contents: Arc<BlockContents>,
    series: SeriesReader,
    /// Series whose entries were read, in order.
    selected: Vec<SelectedSeries>,
    range: TimeRange,
    /// Shard of the refs, unless all are known to be in it.
    shard: Option<Shard>,
    ctx: ReadContext,
    _reserved: Reservation,
    /// Memory of `selected`, where its chunks are requested.
    memory: Option<Reservation>,
}

impl Selection {
    /// The series `refs`, which ascend, with their chunks in `range`.
    ///
    /// # Errors
    /// [`QueryError::Memory`] without room for the refs.
    pub(crate) fn new(
        contents: &Arc<BlockContents>,
        refs: Vec<u32>,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Selection, QueryError> {
        let reserved = ctx.budget.reserve(4 * refs.len() as u64)?;
        Ok(Selection {
            contents: contents.clone(),
            series: SeriesReader::new(refs),
            selected: Vec::new(),
            range,
            shard: None,
            ctx: ctx.clone(),
            _reserved: reserved,
            memory: None,
        })
    }

    /// Leaves out the series up to `series_ref`, before any wave was read.
    pub fn skip_through(&mut self, series_ref: u32) {
        self.series.skip_through(series_ref);
    }

    /// Only the series of `shard`. Called before the first wave.
    #[must_use]
    pub fn in_shard(mut self, shard: Shard) -> Selection {
        let mut refs = self.series.take_refs();
        let knows_all = self.contents.hashes().retain_shard(&mut refs, shard);
        let shard = Some(shard).filter(|_| !knows_all);
        Selection { series: SeriesReader::new(refs), shard, ..self }
    }

    pub(crate) fn contents(&self) -> &Arc<BlockContents> {
        &self.contents
    }

    /// Budget of the query, from which the bytes of waves are reserved.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.ctx.budget
    }

    /// Returns true if all series were returned, or a push failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.selected.is_empty() && self.series.len() == 0
    }

    /// Counts of the wave that is read next; 0 if it is none of chunks.
    #[must_use]
    pub fn chunk_counts(&self) -> ChunkCounts {
        let series = self.chunk_wave_series();
        let chunks = series.iter().map(|one| one.chunks.len() as u64).sum();
        ChunkCounts { series: series.len() as u64, chunks }
    }

    /// The wave that is read next; `None` after the last one.
    #[must_use]
    pub fn next_wave(&self) -> Option<Box<dyn Wave + '_>> {
        match self.chunk_wave_series() {
            [] => Some(Box::new(self.series.next_wave(&self.contents)?)),
            series => Some(Box::new(self.contents.chunk_wave(series))),
        }
    }

    /// Takes the bytes of the wave that [`Selection::next_wave`] named, or the error of reading it. Appends
    /// the series whose chunks they are; none if they are entries.
    ///
    /// # Errors
    /// The error of reading; [`QueryError::Corrupt`], and as [`ReadContext::check`]. The selection is done
    /// then.
    pub fn push(
        &mut self,
        bytes: Result<RangeBytes, QueryError>,
        out: &mut Vec<SeriesRead>,
    ) -> Result<(), QueryError> {
        let done = bytes.and_then(|bytes| match self.chunk_wave_series().len() {
            0 => self.push_entries(bytes),
            series_count => {
                self.push_chunks(series_count, &bytes, out);
                Ok(())
            }
        });
        if done.is_err() {
            self.series.end();
            self.selected.clear();
        }
        done
    }

    /// Series of the next chunk wave: as many of those that wait as one wave may read.
    fn chunk_wave_series(&self) -> &[SelectedSeries] {
        match self.contents.wave_bytes_max() {
            None => &self.selected,
            Some(bytes_max) => {
                let estimate = self.contents.chunk_bytes_estimate();
                let count = series_within(&self.selected, bytes_max, estimate);
                self.selected.get(..count).unwrap_or(&self.selected)
            }
        }
    }

    fn push_entries(&mut self, bytes: RangeBytes) -> Result<(), QueryError> {
        self.series.set_wave_bytes(bytes);
        let mut hashes = Vec::new();
        let mut slab = Vec::new();
        while let Some(series_ref) = self.series.next_ref_of_wave() {
            self.ctx.check()?;
            let selected = self.read_entry(series_ref, &mut slab, &mut hashes)?;
            self.selected.extend(selected);
        }
        if self.contents.wave_bytes_max().is_some() {
            let label_bytes = |series: &SelectedSeries| size_of_val(series) + series.labels.heap_bytes();
            let bytes = size_of_val(&*slab) + self.selected.iter().map(label_bytes).sum::<usize>();
            self.memory = None;
            self.memory = Some(self.ctx.budget.reserve(bytes as u64)?);
        }
        let slab = Arc::new(slab);
        self.selected.iter_mut().for_each(|series| series.chunks.set_slab(&slab));
        self.contents.hashes().add(&hashes);
        Ok(())
    }

    /// Verifies the chunks in the bytes of the wave that [`Selection::next_wave`] named, without decoding
    /// them; nothing if they are entries. Chunks that others take their times from are not among them.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`].
    pub fn verify_chunks(&self, bytes: &RangeBytes) -> Result<(), QueryError> {
        for chunk in self.chunk_wave_series().iter().flat_map(|series| &*series.chunks) {
            let verified = raw_chunk(bytes, chunk.chunk_ref);
            verified.map_err(|e| chunk_error(bytes, chunk.chunk_ref, ChunkError::Segment(e)))?;
        }
        Ok(())
    }

    /// Reads an entry. Appends its chunks to `slab`, and the hash of its labels if a shard is selected.
    fn read_entry(
        &mut self,
        series_ref: u32,
        slab: &mut Vec<ChunkMeta>,
        hashes: &mut Vec<(u32, u64)>,
    ) -> Result<Option<SelectedSeries>, QueryError> {
        let contents = &self.contents;
        let entry = self.series.decode_checked(contents, series_ref)?;
        if let Some(shard) = self.shard {
            let hash = labels_hash(entry);
            hashes.push((series_ref, hash));
            if !shard.has(hash) {
                return Ok(None);
            }
        }
        let deleted = contents.deleted(series_ref);
        let wanted =
            |c: &ChunkMeta| self.range.overlaps_inclusive(c.min_time, c.max_time) && !is_deleted(deleted, c);
        entry.chunks.retain(wanted);
        if entry.chunks.is_empty() {
            return Ok(None);
        }
        if !entry.chunks.is_sorted_by_key(|c| c.min_time) {
            entry.chunks.sort_by_key(|c| c.min_time);
        }
        let chunks = SeriesChunks::appended(slab, &entry.chunks);
        let labels = self.series.ascending_labels(contents, series_ref)?;
        Ok(Some(SelectedSeries { series_ref, labels, chunks, deleted: Box::from(deleted) }))
    }

    fn push_chunks(&mut self, series_count: usize, bytes: &RangeBytes, out: &mut Vec<SeriesRead>) {
        let rollups = self.contents.rollups();
        out.extend(self.selected.drain(..series_count).map(|series| {
            let rollups = rollups.map(|rollups| SeriesRollups::new(rollups.clone(), series.series_ref));
            let samples = BlockSeries::new(bytes.clone(), series.chunks, series.deleted);
            SeriesRead { labels: series.labels, samples: Box::new(samples.with_rollups(rollups)) }
        }));
    }
}

/// Number of series, from the first, whose chunks have about `bytes_max` bytes; at least one.
fn series_within(series: &[SelectedSeries], bytes_max: u64, chunk_bytes_estimate: u64) -> usize {
    let (mut bytes, mut ranges) = (0, Vec::new());
    let fits = |series: &&SelectedSeries| {
        ranges.clear();
        push_chunk_ranges(&series.chunks, chunk_bytes_estimate, &mut ranges);
        bytes += ranges.iter().map(ByteRange::len).sum::<u64>();
        bytes <= bytes_max
    };
    series.iter().take_while(fits).count().max(1).min(series.len())
}
