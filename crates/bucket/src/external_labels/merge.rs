//! Samples of series that differ only in labels that external ones replace: they are one series.
//!
//! Invariants: samples ascend; at equal timestamps the first series wins.
//! Not here: merge of several blocks (`tsdb`).

use chronolith_model::query::merged;
use chronolith_model::{Columns, QueryError, SampleSource, TimeRange};

/// Merges the samples of series that are equal. `sources` has at least one.
pub(super) fn merge_equal_series(mut sources: Vec<Box<dyn SampleSource>>) -> Box<dyn SampleSource> {
    assert!(!sources.is_empty(), "a series has samples of one source at least");
    match sources.pop() {
        Some(only) if sources.is_empty() => only,
        last => {
            sources.extend(last);
            Box::new(EqualSeries(sources))
        }
    }
}

struct EqualSeries(Vec<Box<dyn SampleSource>>);

impl SampleSource for EqualSeries {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let read = |source: &dyn SampleSource| {
            let mut columns = Columns::default();
            source.read(range, &mut columns).map(|()| columns)
        };
        let columns: Vec<Columns> = self.0.iter().map(|source| read(&**source)).collect::<Result<_, _>>()?;
        let columns = merged(&columns);
        (0..columns.times.len()).for_each(|idx| out.push_from(&columns, idx));
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.iter().map(|source| source.sample_count_hint()).sum()
    }

    fn chunk_count_hint(&self) -> usize {
        self.0.iter().map(|source| source.chunk_count_hint()).sum()
    }

    fn time_bounds(&self) -> Option<(i64, i64)> {
        let bounds: Vec<(i64, i64)> =
            self.0.iter().map(|source| source.time_bounds()).collect::<Option<_>>()?;
        Some((bounds.iter().map(|(first, _)| *first).min()?, bounds.iter().map(|(_, last)| *last).max()?))
    }
}
