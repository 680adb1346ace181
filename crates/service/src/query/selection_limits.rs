//! View of a source that counts series and samples of a query against the limits of its tenant
//! (`query.max-selected-series`, `query.max-selected-samples`, `query.max-range`).
//!
//! Invariants: all views of a call share one count; a query whose count is above a limit fails. A count may
//! exceed its limit by one batch of series, or by the samples of one series per thread, before that.
//! Not here: limits of blocks in object storage (`model::query::FetchLimit`), memory of the query.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_model::query::{
    Opened, Read, SamplesPart, SelectionExceeded, Source, TypedColumns, VisitSamples, Wanted, map_series,
};
use chronolith_model::{
    Columns, QueryError, Queryable, ReadContext, SampleSource, SelectionLimits, SeriesBatches, SeriesRead,
    TimeRange, TimeUnit,
};

/// Counts of one call, and their limits.
#[derive(Debug)]
pub(crate) struct SelectionCounts {
    limits: SelectionLimits,
    now_ms: i64,
    series: AtomicU64,
    samples: AtomicU64,
}

impl SelectionCounts {
    /// Counts of a call at `now_ms`; `None` if it has no limits.
    pub(crate) fn of(limits: SelectionLimits, now_ms: i64) -> Option<Arc<SelectionCounts>> {
        let has_limits = limits != SelectionLimits::default();
        let counts =
            SelectionCounts { limits, now_ms, series: AtomicU64::new(0), samples: AtomicU64::new(0) };
        has_limits.then(|| Arc::new(counts))
    }

    fn add_series(&self, count: usize) -> Result<(), QueryError> {
        let limit = self.limits.series_max;
        match add(&self.series, count, limit) {
            Some(used) => Err(SelectionExceeded::Series { used, limit }.into()),
            None => Ok(()),
        }
    }

    fn add_samples(&self, count: usize) -> Result<(), QueryError> {
        let limit = self.limits.samples_max;
        match add(&self.samples, count, limit) {
            Some(used) => Err(SelectionExceeded::Samples { used, limit }.into()),
            None => Ok(()),
        }
    }

    fn check_range(&self, range: TimeRange, unit: TimeUnit) -> Result<(), QueryError> {
        // A range without an end ends where samples end.
        let end = range.end.min(unit.from_ms(self.now_ms).saturating_add(1).max(range.start));
        let width = end.saturating_sub(range.start);
        let limit_ms = self.limits.range_ms;
        if limit_ms == 0 || width <= unit.from_ms(limit_ms) {
            return Ok(());
        }
        let duration = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let used = duration(unit.to_ms_ceil(width));
        Err(SelectionExceeded::Range { used, limit: duration(limit_ms) }.into())
    }
}

/// Adds to a count. Returns the count if it is above its limit; 0 = no limit.
fn add(counter: &AtomicU64, count: usize, max: u64) -> Option<u64> {
    if max == 0 {
        return None;
    }
    let count = count as u64;
    let used = counter.fetch_add(count, Ordering::Relaxed).saturating_add(count);
    (used > max).then_some(used)
}

/// A source whose series and samples are counted.
pub(crate) struct Limited {
    counts: Arc<SelectionCounts>,
    source: Arc<dyn Queryable>,
    unit: TimeUnit,
}

impl Limited {
    /// View of `source`, whose times have this unit.
    pub(crate) fn new(counts: Arc<SelectionCounts>, source: Arc<dyn Queryable>, unit: TimeUnit) -> Limited {
        Limited { counts, source, unit }
    }
}

impl Source for Limited {
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<Opened, QueryError> {
        if read.wanted != Wanted::Series {
            return self.source.open(read, ctx);
        }
        self.counts.check_range(read.request.range, self.unit)?;
        let opened = self.source.open(read, ctx)?;
        let Opened::Series(batches) = opened else { return Ok(opened) };
        let counts = self.counts.clone();
        let batches: Box<dyn SeriesBatches> = Box::new(CountedSeries { batches, counts: counts.clone() });
        if counts.limits.samples_max == 0 {
            return Ok(Opened::Series(batches));
        }
        Ok(Opened::Series(map_series(batches, move |SeriesRead { labels, samples }| SeriesRead {
            labels,
            samples: Box::new(CountedSamples { samples, counts: counts.clone() }),
        })))
    }
}

struct CountedSeries {
    batches: Box<dyn SeriesBatches>,
    counts: Arc<SelectionCounts>,
}

impl SeriesBatches for CountedSeries {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let before = out.len();
        let has_more = self.batches.next_batch(out)?;
        self.counts.add_series(out.len() - before)?;
        Ok(has_more)
    }
}

struct CountedSamples {
    samples: Box<dyn SampleSource>,
    counts: Arc<SelectionCounts>,
}

impl SampleSource for CountedSamples {
    fn inner(&self) -> Option<&dyn SampleSource> {
        Some(&*self.samples)
    }

    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let before = out.len();
        self.samples.read(range, out)?;
        self.counts.add_samples(out.len() - before)
    }

    fn visit_chunks(
        &self,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        scratch: &mut Columns,
        visit: &mut VisitSamples<'_>,
    ) -> Result<(), QueryError> {
        self.samples.visit_chunks(range, accepts, scratch, &mut |part| {
            self.counts.add_samples(match &part {
                SamplesPart::Stored(chunk) => chunk.sample_count,
                SamplesPart::Decoded(columns) => columns.len(),
            })?;
            visit(part)
        })
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let before = out.times.len();
        self.samples.read_typed(range, out)?;
        self.counts.add_samples(out.times.len() - before)
    }

    fn sample_count_hint(&self) -> usize {
        self.samples.sample_count_hint()
    }
}
