//! Selection of series with their samples, in three waves: postings lists of the matchers, entries of a batch
//! of series, chunks of the same batch. A batch is returned when its chunks are at hand.
//!
//! Invariant: series come in order of labels, which the index promises and the reader verifies. Of a map no
//! chunk is touched before samples are read.

use std::sync::Arc;

use chronolith_base::Reservation;
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::query::{ReadEstimate, SERIES_PER_BATCH_MAX, VecBatches};
use chronolith_model::{Labels, QueryError, ReadContext, Selector, SeriesBatches, SeriesRead, TimeRange};

use crate::contents::BlockContents;
use crate::postings::select_refs;
use crate::series::BlockSeries;
use crate::series_reader::{SeriesReader, is_deleted};
use crate::source::ByteRange;
use crate::waves::push_chunk_ranges;

/// Series that fit all matchers and may have samples in the range.
pub(crate) fn select(
    contents: &Arc<BlockContents>,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<Box<dyn SeriesBatches>, QueryError> {
    if !selector.range.overlaps(contents.range()) {
        return Ok(Box::new(VecBatches::new(Vec::new())));
    }
    ctx.check()?;
    let refs = select_refs(contents, selector.matchers, &ctx.budget)?;
    let reserved = ctx.budget.reserve(4 * refs.len() as u64)?;
    Ok(Box::new(BlockBatches {
        contents: contents.clone(),
        series: SeriesReader::new(refs),
        selected: Vec::new(),
        range: selector.range,
        ctx: ctx.clone(),
        _reserved: reserved,
    }))
}

/// Estimates the series that fit and their samples in the range: as many as the average series has, evenly
/// over the block. Cost: postings.
pub(crate) fn estimate(
    contents: &BlockContents,
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<ReadEstimate, QueryError> {
    let (whole, stats) = (contents.range(), &contents.meta().stats);
    let width_ms = |start: i64, end: i64| end.saturating_sub(start).max(0);
    let start = selector.range.start.max(whole.start);
    let end = selector.range.end.min(whole.end);
    let part = width_ms(start, end) as f64 / width_ms(whole.start, whole.end).max(1) as f64;
    if part <= 0.0 {
        return Ok(ReadEstimate::default());
    }
    let series = match selector.matchers {
        [] => stats.num_series,
        matchers => select_refs(contents, matchers, &ctx.budget)?.len() as u64,
    };
    let of_series = series as f64 / stats.num_series.max(1) as f64;
    Ok(ReadEstimate { series, samples: (stats.num_samples as f64 * part * of_series) as u64 })
}

/// A selected series whose chunks are still to be read.
struct SelectedSeries {
    labels: Labels,
    /// By start time; at least one.
    chunks: Box<[ChunkMeta]>,
    deleted: Box<[Interval]>,
}

impl AsRef<[ChunkMeta]> for SelectedSeries {
    fn as_ref(&self) -> &[ChunkMeta] {
        &self.chunks
    }
}

/// Selected series of a block, batch by batch.
struct BlockBatches {
    contents: Arc<BlockContents>,
    series: SeriesReader,
    /// Series whose entries were read.
    selected: Vec<SelectedSeries>,
    range: TimeRange,
    ctx: ReadContext,
    _reserved: Reservation,
}

impl SeriesBatches for BlockBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let read = self.read_entries().and_then(|()| self.read_chunks(out));
        if read.is_err() {
            self.series.end();
            self.selected.clear();
        }
        read.map(|()| self.series.len() > 0 || !self.selected.is_empty())
    }
}

impl BlockBatches {
    /// Reads the entries of the next batch, unless series of the last one wait for their chunks.
    fn read_entries(&mut self) -> Result<(), QueryError> {
        if !self.selected.is_empty() {
            return Ok(());
        }
        for _ in 0..SERIES_PER_BATCH_MAX {
            let Some(series_ref) = self.series.next_ref(&self.contents, &self.ctx.budget)? else { break };
            self.ctx.check()?;
            let selected = self.read_entry(series_ref)?;
            self.selected.extend(selected);
        }
        Ok(())
    }

    fn read_entry(&mut self, series_ref: u32) -> Result<Option<SelectedSeries>, QueryError> {
        let contents = &self.contents;
        let entry = self.series.decode_checked(contents, series_ref)?;
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
        let chunks = Box::from(entry.chunks.as_slice());
        let labels = self.series.ascending_labels(contents, series_ref)?;
        Ok(Some(SelectedSeries { labels, chunks, deleted: Box::from(deleted) }))
    }

    /// Reads the chunks of the series that wait, as many as one wave may read.
    fn read_chunks(&mut self, out: &mut Vec<SeriesRead>) -> Result<(), QueryError> {
        let count = match self.contents.wave_bytes_max() {
            None => self.selected.len(),
            Some(bytes_max) => series_within(&self.selected, bytes_max, self.contents.chunk_bytes_estimate()),
        };
        let Some(wave) = self.selected.get(..count).filter(|wave| !wave.is_empty()) else { return Ok(()) };
        let bytes = self.contents.read(&self.contents.chunk_wave(wave), &self.ctx.budget)?;
        out.extend(self.selected.drain(..count).map(|series| SeriesRead {
            labels: series.labels,
            samples: Box::new(BlockSeries::new(bytes.clone(), series.chunks, series.deleted)),
        }));
        Ok(())
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
