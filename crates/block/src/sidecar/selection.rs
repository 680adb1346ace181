//! Selection of series by a sidecar, in waves: the waves of the finder, then chunks with exact lengths, with
//! the chunks that have their times in the same wave.
//!
//! A state machine without I/O, as `crate::selection` is.
//! Invariants: series come in order of labels; no range is read twice, except for shared times that are too
//! many to be kept.

use std::ops::Range;
use std::sync::Arc;

use chronolith_base::{MemoryBudget, Reservation};
use chronolith_format::block::chunks::{chunk_len, decode_chunk, read_chunk_unverified};
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::tombstones::Interval;
use chronolith_format::bucket::sidecar::{PageSeries, SegmentRange, SizedChunk};
use chronolith_model::query::SERIES_PER_BATCH_MAX;
use chronolith_model::{Labels, Matcher, QueryError, ReadContext, SeriesRead, TimeRange};

use super::contents::SharedContents;
use super::finder::{Purpose, SeriesFinder};
use crate::chunk::{ChunkError, chunk_error, raw_chunk, times_chunk_of};
use crate::rollup::{FetchedRollups, SeriesRollups};
use crate::selection::ChunkCounts;
use crate::series::{BlockSeries, DeferredChunks};
use crate::series_chunks::SeriesChunks;
use crate::series_reader::{has_repeated_chunk, is_deleted};
use crate::source::{BlockFile, ByteRange, FetchedBatch, FetchedPart, FetchedRanges, RangeBytes, Wave};

/// Bytes of shared times that are read with the chunks, whatever these have: less than a round costs.
const TIMES_BYTES_FREE: u64 = 256 << 10;
/// Bytes of shared times that a selection keeps.
const TIMES_BYTES_MAX: u64 = 4 << 20;
/// Bytes that a chunk with shared times is taken to have where it is not read with the others.
const TIMES_CHUNK_BYTES_ESTIMATE: u64 = 2048;

/// A selected series whose chunks are still to be read.
struct SelectedSeries {
    series_ref: u32,
    labels: Labels,
    /// By start time; at least one.
    chunks: SeriesChunks,
    /// Frames of its chunks, without deferred ones.
    frames: Range<usize>,
    /// Sections of its roll-ups.
    sections: Range<usize>,
    deleted: Box<[Interval]>,
}

/// Selected series of a block, wave by wave. [`SidecarSelection::next_wave`] and [`SidecarSelection::push`]
/// alternate.
pub struct SidecarSelection {
    contents: SharedContents,
    finder: SeriesFinder,
    /// Series whose pages were read, in order.
    selected: Vec<SelectedSeries>,
    /// Frames of all their chunks, one series after the other.
    frames: Vec<ByteRange>,
    /// Sections of their roll-ups, one series after the other.
    sections: Vec<ByteRange>,
    rollups: Option<Arc<FetchedRollups>>,
    /// Memory of all these.
    memory: Option<Reservation>,
    times: SharedTimes,
    last_labels: Option<Labels>,
    last_ref: Option<u32>,
    range: TimeRange,
    ctx: ReadContext,
}

impl SidecarSelection {
    /// The series that all `matchers` select, with their chunks in `range`.
    pub(super) fn new(
        contents: &SharedContents,
        matchers: &[Matcher],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> SidecarSelection {
        let mut finder = SeriesFinder::new(contents, matchers, Purpose::Samples(range), &ctx.budget);
        if !range.overlaps(contents.range()) {
            finder.end();
        }
        SidecarSelection {
            contents: contents.clone(),
            finder,
            selected: Vec::new(),
            frames: Vec::new(),
            sections: Vec::new(),
            rollups: None,
            memory: None,
            times: SharedTimes::default(),
            last_labels: None,
            last_ref: None,
            range,
            ctx: ctx.clone(),
        }
    }

    /// Reads these roll-ups of the series, and defers chunks whose windows they have until their samples are
    /// read. Called before the first wave.
    #[must_use]
    pub fn with_rollups(self, rollups: Arc<FetchedRollups>) -> SidecarSelection {
        SidecarSelection { rollups: Some(rollups), ..self }
    }

    /// Budget of the query, from which the bytes of waves are reserved.
    #[must_use]
    pub fn budget(&self) -> &MemoryBudget {
        &self.ctx.budget
    }

    /// Returns true if all series were returned, or a push failed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.selected.is_empty() && self.finder.is_done()
    }

    /// Ref of the series that was returned last: those after it are still to come.
    #[must_use]
    pub fn last_ref(&self) -> Option<u32> {
        self.last_ref
    }

    /// Counts of the wave that is read next; 0 if it is none of chunks.
    #[must_use]
    pub fn chunk_counts(&self) -> ChunkCounts {
        ChunkCounts { series: self.wave_series().len() as u64, chunks: self.wave_frames().len() as u64 }
    }

    /// The wave that is read next; `None` after the last one.
    #[must_use]
    pub fn next_wave(&self) -> Option<Box<dyn Wave + '_>> {
        if self.selected.is_empty() {
            return Some(Box::new(self.finder.next_wave()?));
        }
        let frames = self.wave_frames();
        let times = self.times.ranges_for(frames, self.contents.times());
        let kept = self.times.kept.as_deref();
        let sections = self.wave_sections();
        let may_share = self.contents.may_share_times();
        Some(Box::new(FrameWave { frames, sections, times, kept, may_share }))
    }

    /// Takes the bytes of the wave that [`SidecarSelection::next_wave`] named, or the error of reading it.
    /// Appends the series whose chunks they are; none if they are others.
    ///
    /// # Errors
    /// The error of reading; [`QueryError::Corrupt`], and as [`ReadContext::check`]. The selection is done
    /// then; series that were appended before the error are complete.
    pub fn push(
        &mut self,
        bytes: Result<RangeBytes, QueryError>,
        out: &mut Vec<SeriesRead>,
    ) -> Result<(), QueryError> {
        let done = bytes.and_then(|bytes| {
            match self.selected.is_empty() {
                true => self.finder.push(bytes)?,
                false => self.push_chunks(bytes, out)?,
            }
            self.fill()
        });
        if done.is_err() {
            self.finder.end();
            self.selected.clear();
        }
        done
    }

    /// Verifies the chunks in the bytes of the wave that [`SidecarSelection::next_wave`] named, without
    /// decoding them; nothing if they are others. Chunks that others take their times from are not among
    /// them.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`].
    pub fn verify_chunks(&self, bytes: &RangeBytes) -> Result<(), QueryError> {
        let chunks = self.wave_series().iter().flat_map(|series| &*series.chunks);
        let mut frames = self.wave_frames().iter().peekable();
        for chunk in chunks {
            // Deferred chunks have no frame.
            let file = BlockFile::Segment(chunk.chunk_ref.segment_idx());
            let start = u64::from(chunk.chunk_ref.offset());
            if frames.next_if(|frame| (frame.file, frame.start) == (file, start)).is_none() {
                continue;
            }
            let verified = raw_chunk(bytes, chunk.chunk_ref);
            verified.map_err(|e| chunk_error(bytes, chunk.chunk_ref, ChunkError::Segment(e)))?;
        }
        Ok(())
    }

    /// Adds series of the pages that were read.
    fn fill(&mut self) -> Result<(), QueryError> {
        if !self.selected.is_empty() {
            return Ok(());
        }
        self.frames.clear();
        self.sections.clear();
        self.memory = None;
        let mut slab = Vec::new();
        while self.selected.len() < SERIES_PER_BATCH_MAX && self.finder.has_page() {
            self.ctx.check()?;
            let mut taker = SeriesTaker {
                contents: &self.contents,
                range: self.range,
                selected: &mut self.selected,
                frames: &mut self.frames,
                sections: &mut self.sections,
                rollups: self.rollups.as_deref(),
                last_labels: &mut self.last_labels,
                slab: &mut slab,
                chunks: Vec::new(),
            };
            self.finder.visit_page(&mut |series| taker.take(&series))?;
        }
        let range_count = self.frames.len() + self.sections.len();
        let chunk_bytes = range_count * size_of::<ByteRange>() + size_of_val(&*slab);
        let label_bytes = |series: &SelectedSeries| size_of_val(series) + series.labels.heap_bytes();
        let bytes = chunk_bytes + self.selected.iter().map(label_bytes).sum::<usize>();
        self.memory = Some(self.ctx.budget.reserve(bytes as u64)?);
        let slab = Arc::new(slab);
        self.selected.iter_mut().for_each(|series| series.chunks.set_slab(&slab));
        Ok(())
    }

    /// Series of the next chunk wave: as many of those that wait as one wave may read.
    fn wave_series(&self) -> &[SelectedSeries] {
        let batch = self.selected.get(..SERIES_PER_BATCH_MAX).unwrap_or(&self.selected);
        let bytes_max = self.contents.wave_bytes_max().unwrap_or(u64::MAX);
        let mut bytes = 0u64;
        let mut count = 0;
        for series in batch {
            let frames = self.frames.get(series.frames.clone()).unwrap_or_default();
            let sections = self.sections.get(series.sections.clone()).unwrap_or_default();
            bytes = bytes.saturating_add(frames.iter().chain(sections).map(ByteRange::len).sum());
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        batch.get(..count).unwrap_or(batch)
    }

    fn wave_frames(&self) -> &[ByteRange] {
        self.ranges_of_wave(&self.frames, |series| &series.frames)
    }

    fn wave_sections(&self) -> &[ByteRange] {
        self.ranges_of_wave(&self.sections, |series| &series.sections)
    }

    /// The part of `all` that belongs to the series of the next chunk wave.
    fn ranges_of_wave<'a>(
        &self,
        all: &'a [ByteRange],
        part: impl Fn(&SelectedSeries) -> &Range<usize>,
    ) -> &'a [ByteRange] {
        let series = self.wave_series();
        let start = series.first().map_or(0, |first| part(first).start);
        let end = series.last().map_or(0, |last| part(last).end);
        all.get(start..end).unwrap_or_default()
    }

    fn push_chunks(&mut self, bytes: RangeBytes, out: &mut Vec<SeriesRead>) -> Result<(), QueryError> {
        let series_count = self.wave_series().len();
        let ranges = self.times.ranges_for(self.wave_frames(), self.contents.times());
        self.times.keep(&ranges, &bytes, &self.ctx.budget)?;
        let bytes = self.times.joined(bytes);
        for series in self.selected.drain(..series_count) {
            self.last_ref = Some(series.series_ref);
            let chunk_count = series.chunks.len();
            let mut samples = BlockSeries::new(bytes.clone(), series.chunks, series.deleted);
            if let Some(rollups) = self.rollups.as_ref().filter(|_| !series.sections.is_empty()) {
                let of_series = SeriesRollups::fetched(rollups.clone(), bytes.clone(), series.series_ref);
                samples = samples.with_rollups(Some(of_series));
                if series.frames.len() < chunk_count {
                    let samples_per_chunk = rollups.samples_per_chunk();
                    samples = samples.with_deferred(DeferredChunks { samples_per_chunk });
                }
            }
            out.push(SeriesRead { labels: series.labels, samples: Box::new(samples) });
        }
        Ok(())
    }
}

/// Takes the series of a page.
struct SeriesTaker<'a> {
    contents: &'a SharedContents,
    range: TimeRange,
    selected: &'a mut Vec<SelectedSeries>,
    frames: &'a mut Vec<ByteRange>,
    sections: &'a mut Vec<ByteRange>,
    rollups: Option<&'a FetchedRollups>,
    last_labels: &'a mut Option<Labels>,
    /// Chunks of all series.
    slab: &'a mut Vec<ChunkMeta>,
    /// Chunks of one series.
    chunks: Vec<SizedChunk>,
}

impl SeriesTaker<'_> {
    fn take(&mut self, series: &PageSeries<'_>) -> Result<(), QueryError> {
        let deleted = self.contents.deleted(series.series_ref);
        let is_wanted = |c: &&SizedChunk| {
            self.range.overlaps_inclusive(c.meta.min_time, c.meta.max_time) && !is_deleted(deleted, &c.meta)
        };
        self.chunks.clear();
        self.chunks.extend(series.chunks.iter().filter(is_wanted));
        if self.chunks.is_empty() {
            return Ok(());
        }
        if !self.chunks.is_sorted_by_key(|chunk| chunk.meta.min_time) {
            self.chunks.sort_by_key(|chunk| chunk.meta.min_time);
        }
        let chunks: Vec<ChunkMeta> = self.chunks.iter().map(|chunk| chunk.meta).collect();
        if has_repeated_chunk(&chunks) {
            return Err(self.series_error(series.series_ref, "names a chunk twice"));
        }
        let labels = series.labels();
        if self.last_labels.as_ref().is_some_and(|last| *last >= labels) {
            return Err(self.series_error(series.series_ref, "is out of order"));
        }
        *self.last_labels = Some(labels.clone());
        let frames_start = self.frames.len();
        let sections_start = self.sections.len();
        let covered = self.rollups.and_then(|all| all.push_sections(series.series_ref, self.sections));
        let is_read = |chunk: &&SizedChunk| {
            !covered.as_ref().is_some_and(|covered| covered.covers(&chunk.meta, deleted))
        };
        self.frames.extend(self.chunks.iter().filter(is_read).map(frame_of));
        self.selected.push(SelectedSeries {
            series_ref: series.series_ref,
            labels,
            chunks: SeriesChunks::appended(self.slab, &chunks),
            frames: frames_start..self.frames.len(),
            sections: sections_start..self.sections.len(),
            deleted: Box::from(deleted),
        });
        Ok(())
    }

    #[cold]
    fn series_error(&self, series_ref: u32, what: &str) -> QueryError {
        self.contents.damaged_content(format!("series {series_ref} {what}"))
    }
}

fn frame_of(chunk: &SizedChunk) -> ByteRange {
    let start = u64::from(chunk.meta.chunk_ref.offset());
    let file = BlockFile::Segment(chunk.meta.chunk_ref.segment_idx());
    ByteRange { file, start, end: start + u64::from(chunk.len) }
}

/// Chunks with times that others share, kept from wave to wave.
#[derive(Default)]
struct SharedTimes {
    kept: Option<Arc<FetchedRanges>>,
    /// Ranges that are kept, ascending.
    ranges: Vec<SegmentRange>,
    bytes: u64,
}

impl SharedTimes {
    /// The ranges to be read with `frames`: those before them in the same segments, if they are not kept and
    /// not too many. A chunk refers to an earlier one of its segment.
    fn ranges_for(&self, frames: &[ByteRange], all: &[SegmentRange]) -> Vec<SegmentRange> {
        if all.is_empty() {
            return Vec::new();
        }
        let mut ends: Vec<(u32, u64)> = Vec::new();
        let mut frame_bytes = 0u64;
        for frame in frames {
            let BlockFile::Segment(segment_idx) = frame.file else { continue };
            frame_bytes += frame.len();
            match ends.last_mut() {
                Some((last, end)) if *last == segment_idx => *end = frame.start.max(*end),
                _ => ends.push((segment_idx, frame.start)),
            }
        }
        ends.sort_unstable();
        let mut found = Vec::new();
        for (segment_idx, end) in ends {
            let first = all.partition_point(|range| range.segment_idx < segment_idx);
            let of_segment = all.iter().skip(first).take_while(|range| range.segment_idx == segment_idx);
            let before = of_segment.take_while(|range| u64::from(range.start) < end);
            found.extend(before.filter(|range| self.ranges.binary_search(range).is_err()).copied());
        }
        found.sort_unstable();
        found.dedup();
        let bytes: u64 = found.iter().map(|range| u64::from(range.end.saturating_sub(range.start))).sum();
        if bytes > TIMES_BYTES_FREE.max(frame_bytes) || self.bytes + bytes > TIMES_BYTES_MAX {
            found.clear();
        }
        found
    }

    /// Keeps a copy of `ranges`, so that the chunks of the wave they came with can go.
    fn keep(
        &mut self,
        ranges: &[SegmentRange],
        bytes: &RangeBytes,
        budget: &MemoryBudget,
    ) -> Result<(), QueryError> {
        let RangeBytes::Fetched(fetched) = bytes else { return Ok(()) };
        if ranges.is_empty() {
            return Ok(());
        }
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            let file = BlockFile::Segment(range.segment_idx);
            let start = u64::from(range.start);
            let found = fetched.at(file, start);
            let len = range.end.saturating_sub(range.start) as usize;
            let copy = found.get(..len).unwrap_or(found).to_vec();
            parts.push(FetchedPart { file, start, bytes: copy.into() });
        }
        let len: u64 = parts.iter().map(|part| part.bytes.len() as u64).sum();
        let memory: Reservation = budget.reserve(len)?;
        let mut batch = FetchedRanges::new(fetched.files().clone());
        batch.push(FetchedBatch::new(parts, memory));
        let others = self.kept.take().into_iter().chain([Arc::new(batch)]).collect();
        self.kept = Some(Arc::new(FetchedRanges::joined(fetched.files().clone(), others)));
        self.bytes += len;
        self.ranges.extend_from_slice(ranges);
        self.ranges.sort_unstable();
        Ok(())
    }

    /// `bytes` together with the times that are kept.
    fn joined(&self, bytes: RangeBytes) -> RangeBytes {
        match (bytes, &self.kept) {
            (RangeBytes::Fetched(wave), Some(kept)) => {
                let files = wave.files().clone();
                RangeBytes::Fetched(Arc::new(FetchedRanges::joined(files, vec![wave, kept.clone()])))
            }
            (bytes, _) => bytes,
        }
    }
}

/// Wave of chunks whose lengths the sidecar has: exact ones, or expected ones if it was made of the index
/// alone.
struct FrameWave<'a> {
    frames: &'a [ByteRange],
    /// Sections of roll-ups.
    sections: &'a [ByteRange],
    times: Vec<SegmentRange>,
    /// Shared times that were read before.
    kept: Option<&'a FetchedRanges>,
    /// Chunks may have the times of others.
    may_share: bool,
}

impl Wave for FrameWave<'_> {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        out.extend_from_slice(self.frames);
        out.extend_from_slice(self.sections);
        out.extend(self.times.iter().map(|range| ByteRange {
            file: BlockFile::Segment(range.segment_idx),
            start: u64::from(range.start),
            end: u64::from(range.end),
        }));
    }

    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        for &ByteRange { file, start, .. } in self.frames {
            let bytes = fetched.at(file, start);
            if let Some(rest) = chunk_len(bytes).and_then(|len| fetched.missing(file, start, len)) {
                out.push(rest);
                continue;
            }
            if !self.may_share {
                continue;
            }
            let Ok(offset) = u32::try_from(start) else { continue };
            // Most chunks have their own times, and are verified when they are decoded.
            if read_chunk_unverified(bytes, offset).ok().and_then(times_chunk_of).is_none() {
                continue;
            }
            let Some(times) = decode_chunk(bytes, offset).ok().and_then(times_chunk_of) else { continue };
            let times = u64::from(times);
            if self.kept.is_some_and(|kept| !kept.at(file, times).is_empty()) {
                continue;
            }
            match fetched.at(file, times) {
                [] => out.extend(fetched.missing(file, times, TIMES_CHUNK_BYTES_ESTIMATE)),
                found => out.extend(chunk_len(found).and_then(|len| fetched.missing(file, times, len))),
            }
        }
        out.sort_unstable();
        out.dedup();
    }
}
