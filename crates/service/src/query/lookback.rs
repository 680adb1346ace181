//! View of a source without the samples before a start (`query.max-lookback`).
//!
//! Invariant: no series is selected for, and no sample returned from, the time before the start.
//! Not here: the start of a call (`evaluation::call_context`), the expiry of samples (`tsdb`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_model::query::{Layer, Layered, Opened, Read, TypedColumns, VisitSamples, Wanted};
use chronolith_model::rollup::{RollupArchive, RollupRead};
use chronolith_model::{Columns, QueryError, Queryable, ReadContext, SampleSource, SeriesRead, TimeRange};

/// Start of the time that a call reads.
#[derive(Debug)]
pub(crate) struct ReadStart {
    start_ms: i64,
    /// Set once a read of the call begins before the start.
    is_moved: AtomicBool,
}

impl ReadStart {
    pub(crate) fn new(start_ms: i64) -> ReadStart {
        ReadStart { start_ms, is_moved: AtomicBool::new(false) }
    }

    pub(crate) fn start_ms(&self) -> i64 {
        self.start_ms
    }

    /// Returns true if the call selects samples before the start.
    pub(crate) fn is_moved(&self) -> bool {
        self.is_moved.load(Ordering::Relaxed)
    }
}

/// Returns a view of `source`, whose times are milliseconds, from `start` on.
pub(crate) fn bounded(source: Arc<dyn Queryable>, start: Arc<ReadStart>) -> Arc<dyn Queryable> {
    Arc::new(Layered { layer: Bounded { start }, source })
}

struct Bounded {
    start: Arc<ReadStart>,
}

/// Returns the part of `range` from `start_ms` on; `None` if it has none.
fn part_from(range: TimeRange, start_ms: i64) -> Option<TimeRange> {
    (start_ms < range.end).then(|| TimeRange::new(range.start.max(start_ms), range.end))
}

impl Layer for Bounded {
    fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
        let ReadStart { start_ms, ref is_moved } = *self.start;
        let range = &mut read.request.range;
        // Sources answer an estimate for all times from counts alone.
        let is_of_counts = read.wanted == Wanted::Estimate && *range == TimeRange::ALL;
        if range.start < start_ms && !is_of_counts {
            is_moved.store(true, Ordering::Relaxed);
            *range = part_from(*range, start_ms)?;
        }
        Some(read)
    }

    fn map(&self, _: &Read, opened: Opened, _: &ReadContext) -> Opened {
        let start_ms = self.start.start_ms;
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
    fn inner(&self) -> Option<&dyn SampleSource> {
        Some(&*self.samples)
    }

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

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        part_from(range, self.start_ms).map_or(Ok(()), |range| self.samples.read_typed(range, out))
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
}
