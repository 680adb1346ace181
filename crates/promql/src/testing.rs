//! A source in memory, for tests of the engine and of what stands on it.
//! Holds: what [`Queryable`] promises; nothing is ever lost or merged away.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_model::query::VecBatches;
use chronolith_model::{
    Columns, Labels, Matcher, QueryError, Queryable, ReadContext, SampleSource, Selector, SeriesBatches,
    SeriesRead, TimeRange,
};

/// Series in memory, sorted by labels.
#[derive(Debug, Clone, Default)]
pub struct MemQueryable {
    series: BTreeMap<Labels, Arc<Columns>>,
}

impl MemQueryable {
    /// Without series.
    #[must_use]
    pub fn new() -> MemQueryable {
        MemQueryable::default()
    }

    /// Adds samples in any order; of two samples with equal times the later call wins.
    pub fn add(&mut self, labels: &Labels, samples: impl IntoIterator<Item = (i64, f64)>) {
        let columns = Arc::make_mut(self.series.entry(labels.clone()).or_default());
        for (time, value) in samples {
            match columns.times.binary_search(&time) {
                Ok(at) => columns.values[at] = value,
                Err(at) => {
                    columns.times.insert(at, time);
                    columns.values.insert(at, value);
                }
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
        range: TimeRange,
    ) -> impl Iterator<Item = (&'a Labels, &'a Arc<Columns>)> {
        self.series.iter().filter(move |(labels, columns)| {
            let (Some(&first), Some(&last)) = (columns.times.first(), columns.times.last()) else {
                return false;
            };
            range.overlaps_inclusive(first, last) && matchers.iter().all(|m| m.matches_labels(labels))
        })
    }
}

struct MemSamples(Arc<Columns>);

impl SampleSource for MemSamples {
    fn read(&self, range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        let from = self.0.times.partition_point(|&time| time < range.start);
        let to = self.0.times.partition_point(|&time| time < range.end);
        out.times.extend_from_slice(&self.0.times[from..to]);
        out.values.extend_from_slice(&self.0.values[from..to]);
        Ok(())
    }

    fn sample_count_hint(&self) -> usize {
        self.0.len()
    }
}

impl Queryable for MemQueryable {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        ctx.check()?;
        let read = |(labels, columns): (&Labels, &Arc<Columns>)| SeriesRead {
            labels: labels.clone(),
            samples: Box::new(MemSamples(columns.clone())),
        };
        let series = self.matching(selector.matchers, selector.range).map(read).collect();
        Ok(Box::new(VecBatches::new(series)))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        ctx.check()?;
        let series = self.matching(selector.matchers, selector.range);
        let mut names: Vec<String> =
            series.flat_map(|(labels, _)| labels.iter().map(|(name, _)| name.to_owned())).collect();
        limit_sorted(&mut names, limit);
        Ok(names)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        ctx.check()?;
        let series = self.matching(selector.matchers, selector.range);
        let mut values: Vec<String> =
            series.filter_map(|(labels, _)| labels.get(name).map(str::to_owned)).collect();
        limit_sorted(&mut values, limit);
        Ok(values)
    }
}

fn limit_sorted(texts: &mut Vec<String>, limit: usize) {
    texts.sort_unstable();
    texts.dedup();
    if limit > 0 {
        texts.truncate(limit);
    }
}
