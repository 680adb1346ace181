//! View of a source without the samples before the start of a read (`query.max-lookback`).
//!
//! Invariants: no series is selected for, and no sample returned from, the time before the start; a read
//! without a start is passed on as it is.
//! Not here: the start (`server`), the expiry of samples (`maintenance::retention`).

use std::sync::Arc;

use chronolith_model::query::{
    ColumnType, LabelValueCursor, LabelValueScan, ReadEstimate, SelectHints, SoleLabelValues, SortedValues,
    TypedColumns, VecBatches,
};
use chronolith_model::rollup::{RollupArchive, RollupRead};
use chronolith_model::{
    Columns, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches, SeriesRead, TimeRange,
};

/// Returns a view of `source`, whose times are milliseconds, that keeps to the start of each read.
pub(crate) fn bounded(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Bounded { source })
}

struct Bounded {
    source: Arc<dyn Queryable>,
}

/// Returns the part of `range` from `start_ms` on; `None` if it has none.
fn part_from(range: TimeRange, start_ms: i64) -> Option<TimeRange> {
    (start_ms < range.end).then(|| TimeRange::new(range.start.max(start_ms), range.end))
}

/// Calls `read` with the part of the selection from the start of the read on; `None` if it has none.
fn read_part<T>(
    selector: &Selector<'_>,
    ctx: &ReadContext,
    read: impl FnOnce(&Selector<'_>) -> Result<T, QueryError>,
) -> Result<Option<T>, QueryError> {
    let Some(start_ms) = ctx.start_ms().filter(|start_ms| selector.range.start < *start_ms) else {
        return read(selector).map(Some);
    };
    ctx.note_moved_start();
    let Some(range) = part_from(selector.range, start_ms) else { return Ok(None) };
    read(&Selector { matchers: selector.matchers, range }).map(Some)
}

impl Queryable for Bounded {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_with(selector, &SelectHints::default(), ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let batches = read_part(selector, ctx, |selector| self.source.select_with(selector, hints, ctx))?;
        Ok(match (batches, ctx.start_ms()) {
            (Some(batches), Some(start_ms)) => {
                Box::new(BoundedBatches { batches, start_ms, batch: Vec::new() })
            }
            (Some(batches), None) => batches,
            (None, _) => Box::new(VecBatches::new(Vec::new())),
        })
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        // Sources answer the question for all times from counts alone.
        if selector.range == TimeRange::ALL {
            return self.source.estimate(selector, ctx);
        }
        Ok(read_part(selector, ctx, |selector| self.source.estimate(selector, ctx))?.unwrap_or_default())
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let read = |selector: &Selector<'_>| self.source.label_names(selector, limit, ctx);
        Ok(read_part(selector, ctx, read)?.unwrap_or_default())
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let read = |selector: &Selector<'_>| self.source.label_values(name, selector, limit, ctx);
        Ok(read_part(selector, ctx, read)?.unwrap_or_default())
    }

    fn scan_label_values(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        let read = |part: &Selector<'_>| {
            self.source.scan_label_values(&LabelValueScan { range: part.range, ..*scan }, ctx, visit)
        };
        read_part(&Selector { matchers: &[], range: scan.range }, ctx, read)?;
        Ok(())
    }

    fn sole_label_values(
        &self,
        search: &SoleLabelValues<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<Box<dyn LabelValueCursor>>, QueryError> {
        let read = |part: &Selector<'_>| {
            self.source.sole_label_values(&SoleLabelValues { name: search.name, range: part.range }, ctx)
        };
        let found = read_part(&Selector { matchers: &[], range: search.range }, ctx, read)?;
        Ok(found.unwrap_or_else(|| Some(Box::new(SortedValues::default()))))
    }
}

struct BoundedBatches {
    batches: Box<dyn SeriesBatches>,
    start_ms: i64,
    batch: Vec<SeriesRead>,
}

impl SeriesBatches for BoundedBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let has_more = self.batches.next_batch(&mut self.batch);
        let start_ms = self.start_ms;
        out.extend(self.batch.drain(..).map(|SeriesRead { labels, samples }| SeriesRead {
            labels,
            samples: Box::new(BoundedSamples { samples, start_ms }),
        }));
        has_more
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
