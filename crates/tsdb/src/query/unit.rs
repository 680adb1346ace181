//! View of a source in nanoseconds with times in milliseconds, for languages that know no others.
//!
//! Invariants: a time is rounded down to its millisecond; of several samples in one millisecond the last one
//! counts, so times ascend and each has one sample. Ranges and labels stay the source's.
//! Not here: which stores a query reads (`server`).

use std::sync::Arc;

use chronolith_model::query::{ColumnType, Layer, Layered, Opened, Read, TypedColumns};
use chronolith_model::{
    Columns, QueryError, Queryable, ReadContext, SampleSource, SeriesRead, TimeRange, TimeUnit,
};

/// Unit of the source.
const UNIT: TimeUnit = TimeUnit::Nano;

/// Returns a view of `source`, whose times are nanoseconds, with times in milliseconds.
#[must_use]
pub fn in_milliseconds(source: Arc<dyn Queryable>) -> Arc<dyn Queryable> {
    Arc::new(Layered { layer: Milliseconds, source })
}

struct Milliseconds;

/// Returns a range of milliseconds in nanoseconds.
fn in_nanoseconds(range_ms: TimeRange) -> TimeRange {
    // Sources answer some questions about all times from counts alone.
    if range_ms == TimeRange::ALL { range_ms } else { UNIT.range_from_ms(range_ms) }
}

impl Layer for Milliseconds {
    fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
        read.request.range = in_nanoseconds(read.request.range);
        Some(read)
    }

    fn map(&self, _: &Read, opened: Opened, _: &ReadContext) -> Opened {
        opened.map_series(|SeriesRead { labels, samples }| SeriesRead {
            labels,
            samples: Box::new(MillisecondSamples { samples }),
        })
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
