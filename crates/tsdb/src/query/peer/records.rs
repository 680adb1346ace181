//! Metadata, exemplars and ranges of time of all nodes, merged as one store has them.
//!
//! Invariant: equal records of several nodes count once.
//! Not here: calls (`sources`).

use chronolith_format::record::RecordStore;
use chronolith_format::select::{AnswerItem, SelectQuestion, SelectView};
use chronolith_model::{
    Matcher, MetadataEntry, QueryError, ReadContext, SeriesExemplars, TenantId, TimeRange,
};

use super::PeerStore;
use super::sources::PeerSources;

const DEFAULT_STORE: PeerStore = PeerStore { store: RecordStore::Default, view: SelectView::Store };

impl PeerSources {
    /// Returns the metadata of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    ///
    /// # Errors
    /// As a query that no node may be missing from.
    pub(crate) fn metadata(
        &self,
        tenant: &TenantId,
        metric: Option<&str>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<MetadataEntry>, QueryError> {
        let question = SelectQuestion::Metadata { metric: metric.map(str::to_owned), limit: limit as u64 };
        let mut all: Vec<MetadataEntry> = Vec::new();
        self.ask_records(tenant, DEFAULT_STORE, &question, ctx, |item| {
            if let AnswerItem::Metadata(part) = item {
                all.extend(part);
            }
        })?;
        Ok(merged_metadata(all, limit))
    }

    /// Returns the exemplars of series that match any of `selectors`, by labels of the series, times
    /// ascending.
    ///
    /// # Errors
    /// As a query that no node may be missing from.
    pub(crate) fn exemplars(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<SeriesExemplars>, QueryError> {
        let question = SelectQuestion::Exemplars { selectors: selectors.to_vec(), range };
        let mut all: Vec<SeriesExemplars> = Vec::new();
        self.ask_records(tenant, DEFAULT_STORE, &question, ctx, |item| {
            if let AnswerItem::Exemplars(part) = item {
                all.extend(part);
            }
        })?;
        Ok(merged_exemplars(all))
    }

    /// Returns ranges of time in which the nodes may have samples of a store, in its unit.
    ///
    /// # Errors
    /// As a query that no node may be missing from.
    pub(crate) fn sample_ranges(
        &self,
        tenant: &TenantId,
        store: RecordStore,
        ctx: &ReadContext,
    ) -> Result<Vec<TimeRange>, QueryError> {
        let store = PeerStore { store, view: SelectView::Store };
        let mut all: Vec<TimeRange> = Vec::new();
        self.ask_records(tenant, store, &SelectQuestion::Ranges, ctx, |item| {
            if let AnswerItem::Ranges(part) = item {
                all.extend(part);
            }
        })?;
        Ok(all)
    }
}

/// Sorts entries by metric, and entries of one metric in the order of nodes.
fn merged_metadata(mut all: Vec<MetadataEntry>, limit: usize) -> Vec<MetadataEntry> {
    all.sort_by(|a, b| a.metric.cmp(&b.metric));
    let mut merged: Vec<MetadataEntry> = Vec::with_capacity(all.len());
    let mut metric_count = 0;
    for of_metric in all.chunk_by(|a, b| a.metric == b.metric) {
        metric_count += 1;
        if limit > 0 && metric_count > limit {
            break;
        }
        let start = merged.len();
        for entry in of_metric {
            if merged.iter().skip(start).all(|known| known != entry) {
                merged.push(entry.clone());
            }
        }
    }
    debug_assert!(merged.is_sorted_by(|a, b| a.metric <= b.metric), "metadata is sorted by metric");
    merged
}

/// Sorts by labels, then by time.
fn merged_exemplars(mut all: Vec<SeriesExemplars>) -> Vec<SeriesExemplars> {
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut merged: Vec<SeriesExemplars> = Vec::with_capacity(all.len());
    for (labels, exemplars) in all {
        match merged.last_mut() {
            Some((last, of_series)) if *last == labels => of_series.extend(exemplars),
            _ => merged.push((labels, exemplars)),
        }
    }
    for (_, exemplars) in &mut merged {
        exemplars.sort_by_key(|one| one.time_ms);
        exemplars.dedup();
    }
    debug_assert!(merged.is_sorted_by(|(a, _), (b, _)| a < b), "a series is there once");
    merged
}

#[cfg(test)]
mod tests {
    use chronolith_model::{Exemplar, Labels, MetricKind};

    use super::*;

    #[test]
    fn metadata_of_nodes_is_that_of_one_store() {
        let entry = |metric: &str, help: &str| MetadataEntry {
            metric: metric.to_owned(),
            kind: MetricKind::Gauge,
            help: help.to_owned(),
            unit: String::new(),
        };
        let all = vec![entry("b", "1"), entry("c", "1"), entry("a", "1"), entry("b", "2"), entry("b", "1")];
        let want = [entry("a", "1"), entry("b", "1"), entry("b", "2"), entry("c", "1")];
        assert_eq!(merged_metadata(all.clone(), 0), want);
        assert_eq!(merged_metadata(all, 2), want[..3], "the limit counts metrics");
    }

    #[test]
    fn exemplars_of_nodes_are_sorted_and_count_once() {
        let labels = |job: &str| Labels::from_pairs([("job", job)]);
        let exemplar = |time_ms: i64| Exemplar { labels: labels("trace"), value: 1.0, time_ms };
        let found = merged_exemplars(vec![
            (labels("b"), vec![exemplar(5)]),
            (labels("a"), vec![exemplar(3), exemplar(9)]),
            (labels("a"), vec![exemplar(3), exemplar(4)]),
        ]);
        let want =
            [(labels("a"), vec![exemplar(3), exemplar(4), exemplar(9)]), (labels("b"), vec![exemplar(5)])];
        assert_eq!(found, want);
    }
}
