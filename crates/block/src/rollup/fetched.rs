//! Roll-ups of a block in object storage: tables of series in memory, sections fetched with the chunks of
//! their series.
//!
//! Invariant: a chunk is deferred only if a section of its series has the windows of all its samples; it is
//! fetched when its samples are read.
//! Not here: requests (`bucket`), choice of archives (`model::query`).

use std::sync::Arc;

use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::rollup::RollupTail;
use chronolith_format::block::tombstones::Interval;
use chronolith_model::TimeRange;
use chronolith_model::rollup::{RollupArchive, RollupMethods, RollupSpan};

use crate::source::{BlockFile, ByteRange, RangeBytes};

/// Archives of a block that a selection reads.
pub struct FetchedRollups {
    archives: Vec<FetchedArchive>,
    block_range: TimeRange,
    /// Average number of samples of a chunk.
    samples_per_chunk: usize,
}

/// An archive, with the offsets of its sections.
struct FetchedArchive {
    span: RollupSpan,
    /// Windows of the archive, of no method.
    windows: RollupArchive,
    tail: Arc<RollupTail>,
}

impl FetchedRollups {
    /// The archives with these tables, of a block that covers `block_range`.
    #[must_use]
    pub fn new(
        tables: Vec<(RollupSpan, Arc<RollupTail>)>,
        block_range: TimeRange,
        samples_per_chunk: usize,
    ) -> FetchedRollups {
        let of_table = |(span, tail): (RollupSpan, Arc<RollupTail>)| {
            let windows = RollupArchive::new(span.span_ms, span.slot_ms, RollupMethods::default())?;
            Some(FetchedArchive { span, windows, tail })
        };
        let archives = tables.into_iter().filter_map(of_table).collect();
        FetchedRollups { archives, block_range, samples_per_chunk }
    }

    pub(crate) fn spans(&self) -> impl Iterator<Item = RollupSpan> + '_ {
        self.archives.iter().map(|archive| archive.span)
    }

    pub(crate) fn block_range(&self) -> TimeRange {
        self.block_range
    }

    pub(crate) fn samples_per_chunk(&self) -> usize {
        self.samples_per_chunk
    }

    /// Appends the ranges of the sections of a series. Returns the times that their windows cover; `None` if
    /// it has no section.
    pub(crate) fn push_sections(
        &self,
        series_ref: u32,
        out: &mut Vec<ByteRange>,
    ) -> Option<CoveredTimes<'_>> {
        let mut covered: Option<CoveredTimes<'_>> = None;
        for archive in &self.archives {
            let Some(place) = archive.tail.place(series_ref) else { continue };
            let Some(inner) = archive.windows.narrowed(self.block_range) else { continue };
            let file = BlockFile::Rollup(archive.span);
            out.push(ByteRange { file, start: place.start, end: place.end });
            covered.get_or_insert(CoveredTimes { windows: &archive.windows, inner });
        }
        covered
    }

    /// Bytes of a section, if they were fetched.
    pub(crate) fn section<'b>(
        &self,
        bytes: &'b RangeBytes,
        span: RollupSpan,
        series_ref: u32,
    ) -> Option<&'b [u8]> {
        let archive = self.archives.iter().find(|archive| archive.span == span)?;
        let place = archive.tail.place(series_ref)?;
        let len = usize::try_from(place.end - place.start).ok()?;
        bytes.at(BlockFile::Rollup(span), place.start).get(..len)
    }
}

/// Times that the windows of a section cover.
pub(crate) struct CoveredTimes<'a> {
    windows: &'a RollupArchive,
    inner: TimeRange,
}

impl CoveredTimes<'_> {
    /// Returns true if the samples of `chunk` are in windows without a deletion.
    pub(crate) fn covers(&self, chunk: &ChunkMeta, deleted: &[Interval]) -> bool {
        let samples = TimeRange::inclusive(chunk.min_time, chunk.max_time);
        let widened = self.windows.widened(samples);
        let is_deleted = |interval: &Interval| widened.overlaps_inclusive(interval.first, interval.last);
        self.inner.start <= widened.start && widened.end <= self.inner.end && !deleted.iter().any(is_deleted)
    }
}
