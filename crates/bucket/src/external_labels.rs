//! External labels of a block in Thanos's layout: they name the Prometheus server that scraped it, and belong
//! to each of its series.
//!
//! Invariants: an external label wins over a label of a series with the same name, as in Thanos's store
//! gateway, and series that are equal by then are one, merged; series leave sorted by all their labels.
//! Reserved names (`__...`) are none.
//! Not here: `meta.json`, which has them (`catalog::listing`), their texts (`text`).

mod merge;
mod text;

use std::sync::Arc;

use chronolith_model::labels::LabelsBuilder;
use chronolith_model::query::{Layer, Opened, Read, SelectRequest, VecBatches, Wanted};
use chronolith_model::{Labels, Matcher, QueryError, ReadContext, SeriesBatches, SeriesRead};

/// External labels of one block or one writer, sorted by name, at least one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExternalLabels(Arc<[(String, String)]>);

/// Matchers of a selector, applied to external labels.
pub(crate) struct SplitMatchers {
    /// Matchers on other names.
    pub(crate) of_series: Vec<Matcher>,
    /// True if the matchers on names of external labels select their values: of all series, or of none.
    pub(crate) is_selected: bool,
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
        let others = labels.iter().filter(|(name, _)| self.get(name).is_none());
        others.for_each(|(name, value)| builder.push(name, value));
        self.0.iter().for_each(|(name, value)| builder.push(name, value));
        builder.sort();
        builder.finish()
    }

    pub(crate) fn split(&self, matchers: &[Matcher]) -> SplitMatchers {
        let mut split = SplitMatchers { of_series: Vec::new(), is_selected: true };
        for matcher in matchers {
            match self.get(&matcher.name) {
                Some(value) => split.is_selected &= matcher.matches(value),
                None => split.of_series.push(matcher.clone()),
            }
        }
        split
    }

    /// Adds these labels to series that are selected by `of_series`.
    pub(crate) fn add_to(&self, batches: Box<dyn SeriesBatches>) -> Box<dyn SeriesBatches> {
        Box::new(ExtendedBatches { labels: self.clone(), batches, sorted: None })
    }
}

/// Series with external labels. All series of the block are read before the first batch: adding a label
/// changes their order.
struct ExtendedBatches {
    labels: ExternalLabels,
    batches: Box<dyn SeriesBatches>,
    sorted: Option<VecBatches>,
}

impl ExtendedBatches {
    fn read_all(&mut self) -> Result<VecBatches, QueryError> {
        let mut read = Vec::new();
        while self.batches.next_batch(&mut read)? {}
        for series in &mut read {
            series.labels = self.labels.extend(&series.labels);
        }
        // A stable sort: equal series keep the order of the block.
        read.sort_by(|a, b| a.labels.cmp(&b.labels));
        let mut all: Vec<SeriesRead> = Vec::with_capacity(read.len());
        let mut read = read.into_iter().peekable();
        while let Some(SeriesRead { labels, samples }) = read.next() {
            let mut equal = vec![samples];
            while let Some(next) = read.next_if(|next| next.labels == labels) {
                equal.push(next.samples);
            }
            all.push(SeriesRead { labels, samples: merge::merge_equal_series(equal) });
        }
        debug_assert!(all.is_sorted_by(|a, b| a.labels < b.labels), "series ascend, each label set once");
        Ok(VecBatches::new(all))
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

/// View of a block whose series have these labels.
impl Layer for ExternalLabels {
    fn rewrite(&self, mut read: Read, _: &ReadContext) -> Option<Read> {
        let matchers = self.split(&read.request.matchers);
        read.request = SelectRequest { matchers: matchers.of_series, ..read.request.before_relabeling() };
        if let Wanted::LabelValues { name } = &read.wanted
            && self.get(name).is_some()
        {
            // One name tells that there is a series.
            read.wanted = Wanted::LabelNames;
            read.request.limit = 1;
        }
        matchers.is_selected.then_some(read)
    }

    fn map(&self, asked: &Read, opened: Opened, _: &ReadContext) -> Opened {
        let limit = asked.request.limit;
        match &asked.wanted {
            Wanted::Series => Opened::Series(asked.request.filter(self.add_to(opened.into_series()))),
            Wanted::LabelNames => {
                let labels = self.clone();
                opened.map_list(move |mut names| {
                    if !names.is_empty() {
                        names.extend(labels.0.iter().map(|(name, _)| name.clone()));
                    }
                    sorted(names, limit)
                })
            }
            Wanted::LabelValues { name } => match self.get(name) {
                None => opened.map_list(move |values| sorted(values, limit)),
                Some(value) => {
                    let value = value.to_owned();
                    opened.map_list(|names| if names.is_empty() { Vec::new() } else { vec![value] })
                }
            },
            Wanted::Estimate | Wanted::EachLabelValue { .. } | Wanted::SoleLabelValues { .. } => opened,
        }
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
