//! View of a source in nanoseconds with times in milliseconds, for languages that know no others.
//!
//! Invariants: a time is rounded down to its millisecond; of several samples in one millisecond the last one
//! counts, so times ascend and each has one sample. Ranges and labels stay the source's.
//! Not here: which stores a query reads (`server`).

use std::sync::Arc;

use chronolith_model::query::{ColumnType, ReadEstimate, SelectHints, TypedColumns};
use chronolith_model::{
    Columns, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches, SeriesRead,
    TimeRange, TimeUnit,
};

/// Unit of the source.
const UNIT: TimeUnit = TimeUnit::Nano;

/// Returns a view of `source`, whose times are nanoseconds, with times in milliseconds.
#[must_use]
pub fn in_milliseconds(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Milliseconds { source })
}

struct Milliseconds {
    source: Arc<dyn Queryable>,
}

/// Returns a range of milliseconds in nanoseconds.
fn in_nanoseconds(range_ms: TimeRange) -> TimeRange {
    // Sources answer some questions about all times from counts alone.
    if range_ms == TimeRange::ALL { range_ms } else { UNIT.range_from_ms(range_ms) }
}

fn selector_of<'a>(selector: &Selector<'a>) -> Selector<'a> {
    Selector { matchers: selector.matchers, range: in_nanoseconds(selector.range) }
}

impl Queryable for Milliseconds {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let batches = self.source.select(&selector_of(selector), ctx)?;
        Ok(Box::new(MillisecondBatches { batches, batch: Vec::new() }))
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let batches = self.source.select_with(&selector_of(selector), hints, ctx)?;
        Ok(Box::new(MillisecondBatches { batches, batch: Vec::new() }))
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        self.source.estimate(&selector_of(selector), ctx)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        self.source.label_names(&selector_of(selector), limit, ctx)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        self.source.label_values(name, &selector_of(selector), limit, ctx)
    }
}

struct MillisecondBatches {
    batches: Box<dyn SeriesBatches>,
    batch: Vec<SeriesRead>,
}

impl SeriesBatches for MillisecondBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        let has_more = self.batches.next_batch(&mut self.batch);
        out.extend(self.batch.drain(..).map(|SeriesRead { labels, samples }| SeriesRead {
            labels,
            samples: Box::new(MillisecondSamples { samples }),
        }));
        has_more
    }
}

struct MillisecondSamples {
    samples: Box<dyn SampleSource>,
}

/// Returns the index of the last sample of each millisecond.
fn last_of_each_ms(times: &[i64]) -> impl Iterator<Item = usize> {
    (0..times.len())
        .filter(|&idx| times.get(idx + 1).is_none_or(|&next| UNIT.to_ms(next) != UNIT.to_ms(times[idx])))
}

impl SampleSource for MillisecondSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let mut exact = Columns::default();
        let done = self.samples.read(in_nanoseconds(range), &mut exact);
        for start in &mut exact.start_times {
            *start = UNIT.to_ms(*start);
        }
        let kept: Vec<usize> = last_of_each_ms(&exact.times).collect();
        for time in &mut exact.times {
            *time = UNIT.to_ms(*time);
        }
        if kept.len() == exact.len() {
            out.extend_from(&exact, 0..exact.len());
        } else {
            kept.into_iter().for_each(|idx| out.push_after_gap(&exact, idx));
        }
        done
    }

    fn column_type(&self) -> ColumnType {
        self.samples.column_type()
    }

    fn read_typed(&self, range: TimeRange, out: &mut TypedColumns) -> Result<(), QueryError> {
        let mut exact = TypedColumns::new(out.values.column_type());
        let done = self.samples.read_typed(in_nanoseconds(range), &mut exact);
        for idx in last_of_each_ms(&exact.times) {
            out.times.push(UNIT.to_ms(exact.times[idx]));
            out.values.push_from(&exact.values, idx);
        }
        done
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
        let (first, last) = self.samples.time_bounds()?;
        Some((UNIT.to_ms(first), UNIT.to_ms(last)))
    }
}
