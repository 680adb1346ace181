//! View of a source without the samples before the start of a read (`query.max-lookback`).
//!
//! Invariants: no series is selected for, and no sample returned from, the time before the start; a read
//! without a start is passed on as it is.
//! Not here: the start (`server`), the expiry of samples (`maintenance::retention`).

use std::sync::Arc;

use chronolith_model::query::{ColumnType, Layer, Layered, Opened, Read, TypedColumns, VisitSamples, Wanted};
use chronolith_model::rollup::{RollupArchive, RollupRead};
use chronolith_model::{Columns, QueryError, Queryable, ReadContext, SampleSource, SeriesRead, TimeRange};

/// Returns a view of `source`, whose times are milliseconds, that keeps to the start of each read.
pub(crate) fn bounded(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Layered { layer: Bounded, source })
}

struct Bounded;

/// Returns the part of `range` from `start_ms` on; `None` if it has none.
fn part_from(range: TimeRange, start_ms: i64) -> Option<TimeRange> {
    (start_ms < range.end).then(|| TimeRange::new(range.start.max(start_ms), range.end))
}

impl Layer for Bounded {
    fn rewrite(&self, mut read: Read, ctx: &ReadContext) -> Option<Read> {
        let range = &mut read.request.range;
        // Sources answer an estimate for all times from counts alone.
        let is_of_counts = read.wanted == Wanted::Estimate && *range == TimeRange::ALL;
        if let Some(start_ms) = ctx.start_ms()
            && range.start < start_ms
            && !is_of_counts
        {
            ctx.note_moved_start();
            *range = part_from(*range, start_ms)?;
        }
        Some(read)
    }

    fn map(&self, _: &Read, opened: Opened, ctx: &ReadContext) -> Opened {
        let Some(start_ms) = ctx.start_ms() else { return opened };
        opened.map_series(move |SeriesRead { labels, samples }| SeriesRead {
            labels,
            samples: Box::new(BoundedSamples { samples, start_ms }),
        })
    }
}

/// Samples from `start_ms` on.
struct BoundedSamples {
    samples: Box<dyn SampleSource>,
    start_ms: i64,
}

impl SampleSource for BoundedSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        part_from(range, self.start_ms).map_or(Ok(()), |range| self.samples.read(range, out))
    }

    fn visit_chunks(
        &self,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        part_from(range, self.start_ms)
            .map_or(Ok(()), |range| self.samples.visit_chunks(range, accepts, scratch, visit))
    }

    fn column_type(&self) -> ColumnType {
        self.samples.column_type()
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        part_from(range, self.start_ms).map_or(Ok(()), |range| self.samples.read_typed(range, out))
    }

    fn rollup_archives(&self, out: &mut Vec<RollupArchive>) {
        self.samples.rollup_archives(out);
    }

    fn read_rollup(
        &self,
        archive: &RollupArchive,
        range: TimeRange,
        out: &mut RollupRead,
    ) -> Result<(), QueryError> {
        // A window before the start, or that has samples on both sides of it, is not known.
        let whole = archive.window_of(self.start_ms.saturating_add(archive.span_ms() - 1));
        let first = whole.max(range.start);
        if first < range.end {
            self.samples.read_rollup(archive, TimeRange::new(first, range.end), out)?;
        }
        out.add_raw(archive, TimeRange::new(self.start_ms, first), range);
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.samples.sample_count_hint()
    }

    fn prefetch(&self) {
        self.samples.prefetch();
    }

    fn chunk_count_hint(&self) -> usize {
        self.samples.chunk_count_hint()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        self.samples.time_bounds()
    }
}
