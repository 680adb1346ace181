//! Samples of one series of a block, decoded when they are read.
//!
//! Invariants: times ascend, one sample per timestamp, nothing deleted; among two chunks with the same
//! timestamp the chunk with the earlier start wins (at a tie, the first one in the index).

use std::sync::Arc;

use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::query::{SamplesPart, StoredChunk, TypedColumns, TypedValues, VisitSamples};
use chronolith_model::rollup::{RollupArchive, RollupRead};
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

use crate::chunk::{self, ChunkError, chunk_error, claimed_samples};
use crate::rollup::SeriesRollups;
use crate::series_chunks::SeriesChunks;
use crate::source::{BlockFile, RangeBytes, Wave};
use crate::waves::ChunkWave;

/// Bytes that a chunk is taken to have if none follows it, when it is read once more.
const REREAD_CHUNK_BYTES: u64 = 4 << 10;

/// A selected series, its chunks at hand.
pub(crate) struct BlockSeries {
    /// Chunks; keeps the files of a map open.
    bytes: RangeBytes,
    /// By start time.
    chunks: SeriesChunks,
    deleted: Box<[Interval]>,
    rollups: Option<SeriesRollups>,
    deferred: Option<DeferredChunks>,
}

/// Lazily fetched chunks: roll-ups have the windows of their samples, which are seldom read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeferredChunks {
    /// Average of the block, for estimates.
    pub(crate) samples_per_chunk: usize,
}

impl SampleSource for BlockSeries {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        if let Some(fetched) = self.fetch_deferred(range)? {
            return fetched.read(range, out);
        }
        let start = out.len();
        let mut done = self.read_chunks(range, out);
        if let Err(error) = &done
            && let Some(again) = self.reread(error, range)?
        {
            out.truncate(start);
            done = again.read_chunks(range, out);
        }
        drop_deleted(&self.deleted, start, out);
        done
    }

    fn visit_chunks(
        &self,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        if let Some(fetched) = self.fetch_deferred(range)? {
            return fetched.visit_chunks(range, accepts, scratch, visit);
        }
        let wanted = |chunk: &&ChunkMeta| range.overlaps_inclusive(chunk.min_time, chunk.max_time);
        let mut chunks = self.chunks.iter().filter(wanted).peekable();
        // Samples that are not visited yet.
        let mut rest: Option<TimeRange> = None;
        let mut visited_end = i64::MIN;
        while let Some(chunk) = chunks.next() {
            let is_alone = chunk.min_time >= visited_end
                && chunks.peek().is_none_or(|next| next.min_time > chunk.max_time);
            visited_end = visited_end.max(chunk.max_time.saturating_add(1));
            match is_alone.then(|| self.stored(chunk, range, accepts)).flatten() {
                Some(stored) => {
                    self.visit_decoded(rest.take(), scratch, visit)?;
                    visit(SamplesPart::Stored(stored))?;
                }
                None => {
                    let start = rest.map_or(chunk.min_time, |rest| rest.start);
                    rest = Some(TimeRange::new(start.max(range.start), visited_end.min(range.end)));
                }
            }
        }
        self.visit_decoded(rest, scratch, visit)
    }

    /// Texts as texts; all other values as [`SampleSource::read`] returns them.
    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        if let TypedValues::Texts(texts) = &mut out.values {
            let done = self.read_texts(range, &mut out.times, texts);
            return match &done {
                Err(error) => match self.reread(error, range)? {
                    Some(again) => again.read_texts(range, &mut out.times, texts),
                    None => done,
                },
                Ok(()) => done,
            };
        }
        let mut columns = Columns::default();
        self.read(range, &mut columns)?;
        out.extend_cast(&columns);
        Ok(())
    }

    fn rollup_archives(&self, out: &mut Vec<RollupArchive>) {
        if let Some(rollups) = &self.rollups {
            rollups.archives(out);
        }
    }

    fn read_rollup(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<(), QueryError> {
        let read = |rollups: &SeriesRollups| rollups.read(archive, range, &self.deleted, out);
        if !self.rollups.as_ref().is_some_and(read) {
            for chunk in &*self.chunks {
                out.add_raw(archive, TimeRange::inclusive(chunk.min_time, chunk.max_time), range);
            }
        }
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        let samples = |chunk: &ChunkMeta| match self.deferred {
            Some(DeferredChunks { samples_per_chunk }) if !self.has(chunk) => samples_per_chunk,
            _ => claimed_samples(&self.bytes, chunk.chunk_ref),
        };
        self.chunks.iter().map(samples).sum()
    }

    fn chunk_count_hint(&self) -> usize {
        self.chunks.len()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        // Decoding keeps to the times that the index gives a chunk.
        Some((self.chunks.first()?.min_time, self.chunks.iter().map(|chunk| chunk.max_time).max()?))
    }
}

impl BlockSeries {
    /// `chunks` are sorted by start time, and in `bytes`.
    pub(crate) fn new(bytes: RangeBytes, chunks: SeriesChunks, deleted: Box<[Interval]>) -> BlockSeries {
        BlockSeries { bytes, chunks, deleted, rollups: None, deferred: None }
    }

    /// The same series with its roll-ups.
    pub(crate) fn with_rollups(self, rollups: Option<SeriesRollups>) -> BlockSeries {
        BlockSeries { rollups, ..self }
    }

    /// The same series, of which some chunks are fetched when they are read.
    pub(crate) fn with_deferred(self, deferred: DeferredChunks) -> BlockSeries {
        BlockSeries { deferred: Some(deferred), ..self }
    }

    /// The chunk as it is, if all its samples are in `range`, none of them is deleted, its checksum is
    /// right and its first time is the one in the index. Other chunks are decoded, which reports damage.
    fn stored(
        &self,
        chunk: &ChunkMeta,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
    ) -> Option<StoredChunk<'_>> {
        let ChunkMeta { min_time, max_time, .. } = *chunk;
        let is_deleted = self.deleted.iter().any(|one| one.first <= max_time && min_time <= one.last);
        if is_deleted || !range.contains(min_time) || !range.contains(max_time) {
            return None;
        }
        // Before the checksum, which decoding verifies too.
        chunk::claimed_encoding(&self.bytes, chunk.chunk_ref).filter(|encoding| accepts(*encoding))?;
        let raw = chunk::raw_chunk(&self.bytes, chunk.chunk_ref).ok()?;
        let sample_count = chunk::xor_sample_count(raw, (min_time, max_time))?;
        Some(StoredChunk { min_time, max_time, sample_count, encoding: raw.encoding, bytes: raw.bytes })
    }

    /// Visits the samples in `range`, decoded.
    fn visit_decoded(
        &self,
        range: Option<TimeRange>,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        let Some(range) = range else { return Ok(()) };
        scratch.clear();
        self.read(range, scratch)?;
        if scratch.is_empty() { Ok(()) } else { visit(SamplesPart::Decoded(scratch)) }
    }

    fn has(&self, chunk: &ChunkMeta) -> bool {
        let file = BlockFile::Segment(chunk.chunk_ref.segment_idx());
        !self.bytes.at(file, u64::from(chunk.chunk_ref.offset())).is_empty()
    }

    /// The chunks in `range`, if some of them are not at hand.
    fn fetch_deferred(&self, range: TimeRange) -> Result<Option<BlockSeries>, QueryError> {
        let is_wanted = |chunk: &&ChunkMeta| range.overlaps_inclusive(chunk.min_time, chunk.max_time);
        if self.deferred.is_none() || self.chunks.iter().filter(is_wanted).all(|chunk| self.has(chunk)) {
            return Ok(None);
        }
        self.chunks_in(range, |bytes, wave| bytes.fetch(wave))
    }

    /// The chunks in `range`, read by `read`.
    fn chunks_in(
        &self,
        range: TimeRange,
        read: impl Fn(&RangeBytes, &dyn Wave) -> Result<Option<RangeBytes>, QueryError>,
    ) -> Result<Option<BlockSeries>, QueryError> {
        let wanted = |chunk: &&ChunkMeta| range.overlaps_inclusive(chunk.min_time, chunk.max_time);
        let chunks: Vec<ChunkMeta> = self.chunks.iter().filter(wanted).copied().collect();
        let wave = ChunkWave {
            series: &[chunks.as_slice()],
            chunk_bytes_estimate: REREAD_CHUNK_BYTES,
            own_times: None,
        };
        let bytes = read(&self.bytes, &wave)?;
        Ok(bytes.map(|bytes| BlockSeries::new(bytes, chunks.into(), self.deleted.clone())))
    }

    /// The chunks in `range` as the storage has them, if `error` is damage and the bytes may come from a
    /// cache.
    #[cold]
    fn reread(&self, error: &QueryError, range: TimeRange) -> Result<Option<BlockSeries>, QueryError> {
        if !matches!(error, QueryError::Corrupt { .. }) {
            return Ok(None);
        }
        self.chunks_in(range, |bytes, wave| bytes.reread(wave))
    }

    fn read_chunks(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let wanted = |chunk: &&ChunkMeta| range.overlaps_inclusive(chunk.min_time, chunk.max_time);
        let mut chunks = self.chunks.iter().filter(wanted).peekable();
        let mut group = Vec::new();
        while let Some(first) = chunks.next() {
            group.clear();
            group.push(first);
            let mut group_end = first.max_time;
            while let Some(next) = chunks.next_if(|next| next.min_time <= group_end) {
                group_end = group_end.max(next.max_time);
                group.push(next);
            }
            match group.as_slice() {
                [one] => self.decode(one, range, out)?,
                several => self.merge(several, range, out)?,
            }
        }
        Ok(())
    }

    /// Appends texts; nothing if it fails.
    fn read_texts(
        &self,
        range: TimeRange,
        times: &mut Vec<i64>,
        texts: &mut Vec<Arc<[u8]>>,
    ) -> Result<(), QueryError> {
        let mut columns = Columns::default();
        let mut dictionary = Vec::new();
        let mut found = Vec::new();
        let wanted = |chunk: &&ChunkMeta| range.overlaps_inclusive(chunk.min_time, chunk.max_time);
        for chunk in self.chunks.iter().filter(wanted) {
            columns.clear();
            chunk::decode_with_texts(&self.bytes, chunk, range, &mut dictionary, &mut columns)
                .map_err(|error| chunk_error(&self.bytes, chunk.chunk_ref, error))?;
            drop_deleted(&self.deleted, 0, &mut columns);
            for (&time, value) in columns.times.iter().zip(&columns.values) {
                let text = usize::try_from(value.to_bits()).ok().and_then(|idx| dictionary.get(idx));
                let no_text = || ChunkError::Content("a chunk of texts has other values".to_owned());
                let text = text.ok_or_else(|| chunk_error(&self.bytes, chunk.chunk_ref, no_text()))?;
                found.push((time, text.clone()));
            }
        }
        if !found.is_sorted_by(|a, b| a.0 < b.0) {
            // The sort is stable, so the sample of the earlier chunk is first at equal times.
            found.sort_by_key(|(time, _)| *time);
            found.dedup_by_key(|(time, _)| *time);
        }
        for (time, text) in found {
            times.push(time);
            texts.push(text);
        }
        Ok(())
    }

    fn decode(&self, chunk: &ChunkMeta, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let decoded = chunk::decode(&self.bytes, chunk, range, out);
        decoded.map_err(|error| chunk_error(&self.bytes, chunk.chunk_ref, error))
    }

    /// Decodes and sorts overlapping chunks, which are rare (out-of-order blocks of other writers).
    #[cold]
    fn merge(&self, chunks: &[&ChunkMeta], range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let mut all = Columns::default();
        for chunk in chunks {
            self.decode(chunk, range, &mut all)?;
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        // The sort is stable, so the sample of the earlier chunk is first at equal times.
        order.sort_by_key(|&at| all.times[at]);
        order.dedup_by_key(|at| all.times[*at]);
        order.into_iter().for_each(|at| out.push_after_gap(&all, at));
        Ok(())
    }
}

/// Removes the samples from index `start` on that are within one of the ascending intervals.
pub(crate) fn drop_deleted(deleted: &[Interval], start: usize, out: &mut Columns) {
    if deleted.is_empty() {
        return;
    }
    if !out.histograms.is_empty() || !out.start_times.is_empty() {
        return drop_deleted_mixed(deleted, start, out);
    }
    let Columns { times, values, .. } = out;
    let mut left = deleted.iter().peekable();
    let mut kept = start;
    for i in start..times.len() {
        let time = times[i];
        while left.next_if(|interval| interval.last < time).is_some() {}
        if left.peek().is_none_or(|interval| time < interval.first) {
            times[kept] = time;
            values[kept] = values[i];
            kept += 1;
        }
    }
    times.truncate(kept);
    values.truncate(kept);
}

/// As [`drop_deleted`] for samples that have more than times and values.
fn drop_deleted_mixed(deleted: &[Interval], start: usize, out: &mut Columns) {
    // From the last to the first, so that positions stay valid.
    for interval in deleted.iter().rev() {
        let deleted = out.indices_in(TimeRange::inclusive(interval.first, interval.last));
        let first = deleted.start.max(start);
        if first < deleted.end {
            out.remove(first..deleted.end);
        }
    }
}
