//! External labels of a block in Thanos's layout: they name the Prometheus server that scraped it, and belong
//! to each of its series.
//!
//! Invariants: a label of a series wins over an external one of the same name, as in Prometheus; series leave
//! sorted by all their labels. Reserved names (`__...`) are none.
//! Not here: `meta.json`, which has them (`catalog::listing`), their texts (`text`).

mod text;

use std::sync::Arc;

use chronolith_model::labels::LabelsBuilder;
use chronolith_model::query::{ReadEstimate, VecBatches};
use chronolith_model::{
    Labels, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches, SeriesRead,
};

/// External labels of one block or one writer, sorted by name, at least one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalLabels(Arc<[(String, String)]>);

/// Matchers of a selector, by what they can be applied to.
pub(crate) struct SplitMatchers {
    /// Matchers on labels that only series have.
    pub(crate) of_series: Vec<Matcher>,
    /// Matchers on names of external labels, for the labels of a series together with these.
    of_all: Vec<Matcher>,
}

impl ExternalLabels {
    /// The labels of a Thanos section; `None` if there is none that belongs to series.
    pub(crate) fn new<'a>(
        labels: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Option<ExternalLabels> {
        let visible = labels.into_iter().filter(|(name, value)| !name.starts_with("__") && !value.is_empty());
        let mut pairs: Vec<(String, String)> =
            visible.map(|(name, value)| (name.clone(), value.clone())).collect();
        pairs.sort_unstable();
        (!pairs.is_empty()).then(|| ExternalLabels(pairs.into()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The labels of a series together with these.
    fn extend(&self, labels: &Labels) -> Labels {
        let mut builder = LabelsBuilder::new();
        labels.iter().for_each(|(name, value)| builder.push(name, value));
        let missing = self.0.iter().filter(|(name, _)| labels.get(name).is_none());
        missing.for_each(|(name, value)| builder.push(name, value));
        builder.sort();
        builder.finish()
    }

    pub(crate) fn split(&self, matchers: &[Matcher]) -> SplitMatchers {
        let is_external = |matcher: &&Matcher| self.get(&matcher.name).is_some();
        let (of_all, of_series) = matchers.iter().partition::<Vec<&Matcher>, _>(is_external);
        let owned = |matchers: Vec<&Matcher>| matchers.into_iter().cloned().collect();
        SplitMatchers { of_series: owned(of_series), of_all: owned(of_all) }
    }

    /// Returns true if the series that have none of these names themselves are selected.
    fn are_selected(&self, matchers: &SplitMatchers) -> bool {
        matchers
            .of_all
            .iter()
            .all(|matcher| self.get(&matcher.name).is_some_and(|value| matcher.matches(value)))
    }

    /// Adds these labels to the series that `of_series` selected. `block` is the name of the block.
    pub(crate) fn add_to(
        &self,
        block: &str,
        matchers: SplitMatchers,
        batches: Box<dyn SeriesBatches>,
    ) -> Box<dyn SeriesBatches> {
        let block = block.to_owned();
        Box::new(ExtendedBatches { labels: self.clone(), block, matchers, batches, sorted: None })
    }
}

/// Series with external labels. All series of the block are read before the first batch: adding a label
/// changes their order.
struct ExtendedBatches {
    labels: ExternalLabels,
    block: String,
    matchers: SplitMatchers,
    batches: Box<dyn SeriesBatches>,
    sorted: Option<VecBatches>,
}

impl ExtendedBatches {
    fn read_all(&mut self) -> Result<VecBatches, QueryError> {
        let mut read = Vec::new();
        while self.batches.next_batch(&mut read)? {}
        let extended = read
            .into_iter()
            .map(|series| SeriesRead { labels: self.labels.extend(&series.labels), ..series });
        let is_selected =
            |labels: &Labels| self.matchers.of_all.iter().all(|matcher| matcher.matches_labels(labels));
        let mut all: Vec<SeriesRead> = extended.filter(|series| is_selected(&series.labels)).collect();
        all.sort_by(|a, b| a.labels.cmp(&b.labels));
        let equal = all.windows(2).find_map(|pair| match pair {
            [a, b] if a.labels == b.labels => Some(&a.labels),
            _ => None,
        });
        match equal {
            None => Ok(VecBatches::new(all)),
            Some(labels) => {
                let path = self.block.clone();
                let what = format!("two series are {labels} once the external labels of the block are added");
                Err(QueryError::Corrupt { path, what })
            }
        }
    }
}

impl SeriesBatches for ExtendedBatches {
    fn next_batch(&mut self, out: &mut Vec<SeriesRead>) -> Result<bool, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.read_all()?);
        }
        match &mut self.sorted {
            Some(sorted) => sorted.next_batch(out),
            None => Ok(false),
        }
    }
}

/// A block whose series have external labels.
pub(crate) struct ExtendedBlock<'a> {
    pub(crate) labels: &'a ExternalLabels,
    pub(crate) block: &'a str,
    pub(crate) source: &'a dyn Queryable,
}

impl ExtendedBlock<'_> {
    /// Returns true if no selected series has one of the names of external labels itself, so that lists of
    /// the block apply to all its series.
    fn is_without_own(
        &self,
        matchers: &[Matcher],
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<bool, QueryError> {
        let of_series = Selector { matchers, range: selector.range };
        for (name, _) in &*self.labels.0 {
            if !self.source.label_values(name, &of_series, 1, ctx)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Labels of the selected series, one after another.
    fn visit(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
        mut visit: impl FnMut(&Labels),
    ) -> Result<(), QueryError> {
        let mut batches = self.select(selector, ctx)?;
        let mut series = Vec::new();
        loop {
            let has_more = batches.next_batch(&mut series)?;
            series.drain(..).for_each(|series| visit(&series.labels));
            if !has_more {
                return Ok(());
            }
        }
    }
}

impl Queryable for ExtendedBlock<'_> {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let matchers = self.labels.split(selector.matchers);
        let of_series = Selector { matchers: &matchers.of_series, range: selector.range };
        let batches = self.source.select(&of_series, ctx)?;
        Ok(self.labels.add_to(self.block, matchers, batches))
    }

    fn estimate(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Option<ReadEstimate>, QueryError> {
        let matchers = self.labels.split(selector.matchers);
        self.source.estimate(&Selector { matchers: &matchers.of_series, range: selector.range }, ctx)
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = self.labels.split(selector.matchers);
        let mut names = Vec::new();
        if !self.is_without_own(&matchers.of_series, selector, ctx)? {
            self.visit(selector, ctx, |labels| names.extend(labels.iter().map(|(name, _)| name.to_owned())))?;
        } else if self.labels.are_selected(&matchers) {
            let of_series = Selector { matchers: &matchers.of_series, range: selector.range };
            names = self.source.label_names(&of_series, limit, ctx)?;
            if !names.is_empty() {
                names.extend(self.labels.0.iter().map(|(name, _)| name.clone()));
            }
        }
        Ok(sorted(names, limit))
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = self.labels.split(selector.matchers);
        let mut values = Vec::new();
        if !self.is_without_own(&matchers.of_series, selector, ctx)? {
            self.visit(selector, ctx, |labels| values.extend(labels.get(name).map(str::to_owned)))?;
        } else if self.labels.are_selected(&matchers) {
            let of_series = Selector { matchers: &matchers.of_series, range: selector.range };
            match self.labels.get(name) {
                Some(value) if !self.source.label_names(&of_series, 1, ctx)?.is_empty() => {
                    values.push(value.to_owned());
                }
                Some(_) => {}
                None => values = self.source.label_values(name, &of_series, limit, ctx)?,
            }
        }
        Ok(sorted(values, limit))
    }
}

/// Sorts a list, drops repeated entries and all after the first `limit` (0 = none).
fn sorted(mut list: Vec<String>, limit: usize) -> Vec<String> {
    list.sort_unstable();
    list.dedup();
    if limit > 0 {
        list.truncate(limit);
    }
    list
}

#[cfg(test)]
mod tests;
