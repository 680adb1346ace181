//! Comparison of results with stored samples, and the write of what differs.
//!
//! Invariants: a write is durable when it returns, and wins whatever the duplicate policy of the tenant; a
//! removal selects the series alone that it is about.
//! Not here: results (`queries`), the comparison of one series (`chronolith_rules::backfill`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use chronolith_model::{
    Columns, Deletion, DuplicatePolicy, Histogram, Labels, Matcher, StoreId, TenantId, TimeRange, WriteBatch,
};
use chronolith_rules::backfill::{RoundResults, RoundTimes, SampleCounts, SeriesChange, compare};
use chronolith_rules::repair::{Correction, RemovedSample, stored_value};
use chronolith_rules::round::{RuleSample, SampleValue};

use super::queries::{BackfillError, StoredSeries};
use crate::service::Service;

/// Samples of one write to the head. Under the other policy a write is one block per range, however large.
const HEAD_WRITE_SAMPLES: usize = 100_000;

/// Series of a unit between two chunks.
#[derive(Default)]
pub(super) struct UnitSeries {
    /// Series with a sample in the last round that did not fail; `None` before the first chunk.
    pub(super) live: Option<BTreeSet<Labels>>,
    /// Hashes of all series with a sample in some round.
    seen: HashSet<u64>,
}

/// Changes of a unit in a chunk.
#[derive(Default)]
pub(super) struct UnitChanges {
    pub(super) series: Vec<(Labels, SeriesChange)>,
    pub(super) counts: SampleCounts,
    /// Series with a sample for the first time.
    pub(super) new_series_count: u64,
}

impl UnitSeries {
    /// Compares the results of all rules of a unit in `rounds` with the stored samples of their series, which
    /// begin with the round before in the first chunk.
    pub(super) fn compare(
        &mut self,
        rounds: RoundTimes,
        results: &RoundResults,
        stored: &BTreeMap<Labels, Columns>,
    ) -> UnitChanges {
        let before = self.live.take().unwrap_or_else(|| live_at(stored, rounds.previous_ms()));
        let mut changes = UnitChanges::default();
        let mut live = BTreeSet::new();
        let none = Columns::default();
        let all: BTreeSet<&Labels> = results.series.keys().chain(stored.keys()).chain(&before).collect();
        for labels in all {
            let result = results.series.get(labels);
            let of_series = stored.get(labels).unwrap_or(&none);
            let compared = compare(rounds, result, &results.failed, of_series, before.contains(labels));
            changes.counts.add(compared.counts);
            if !compared.change.is_empty() {
                changes.series.push((labels.clone(), compared.change));
            }
            if compared.is_live {
                live.insert(labels.clone());
            }
            if result.is_some() && self.seen.insert(labels.hash64()) {
                changes.new_series_count += 1;
            }
        }
        self.live = Some(live);
        changes
    }
}

/// Series with a sample at a time that is no staleness marker.
pub(super) fn live_at(stored: &BTreeMap<Labels, Columns>, time_ms: i64) -> BTreeSet<Labels> {
    let is_live = |columns: &Columns| {
        let found = columns.times.binary_search(&time_ms);
        found.is_ok_and(|idx| stored_value(columns, idx) != SampleValue::Stale)
    };
    stored.iter().filter(|(_, columns)| is_live(columns)).map(|(labels, _)| labels.clone()).collect()
}

/// The change of a series, for a view above the store.
pub(super) fn correction_of(labels: &Labels, change: &SeriesChange) -> Correction {
    let sample = |time_ms, value| RuleSample { labels: labels.clone(), time_ms, value };
    let floats = change.floats.iter().map(|(time_ms, value)| {
        let is_stale = chronolith_model::sample::is_stale(*value);
        sample(*time_ms, if is_stale { SampleValue::Stale } else { SampleValue::Float(*value) })
    });
    let histograms = change.histograms.iter();
    let histograms =
        histograms.map(|(time_ms, value)| sample(*time_ms, SampleValue::Histogram(value.clone())));
    let removed = change.removed.iter().map(|(time_ms, _)| RemovedSample {
        labels: labels.clone(),
        time_ms: *time_ms,
        absent_labels: Vec::new(),
    });
    Correction { replaced: floats.chain(histograms).collect(), added: Vec::new(), removed: removed.collect() }
}

/// Samples that the store refused.
#[derive(Default)]
pub(super) struct Rejected {
    pub(super) count: u64,
    pub(super) first: Option<String>,
}

/// Changes of a chunk that are not stored yet.
pub(super) struct PendingWrite {
    batches: Vec<WriteBatch>,
    /// Samples of a batch at most.
    batch_samples_max: usize,
    /// Selectors of removed samples by first and last time.
    removed: BTreeMap<(i64, i64), Vec<Vec<Matcher>>>,
    rejected: Rejected,
    /// First and last time of a change.
    range: Option<(i64, i64)>,
}

impl PendingWrite {
    pub(super) fn new(policy: DuplicatePolicy) -> PendingWrite {
        PendingWrite {
            batches: Vec::new(),
            batch_samples_max: match policy {
                DuplicatePolicy::LastWins => HEAD_WRITE_SAMPLES,
                DuplicatePolicy::KeepFirst => usize::MAX,
            },
            removed: BTreeMap::new(),
            rejected: Rejected::default(),
            range: None,
        }
    }

    /// Adds the changes of a unit. `stored` has the samples of its series in the chunk.
    pub(super) fn add(&mut self, changes: Vec<(Labels, SeriesChange)>, stored: &BTreeMap<Labels, Columns>) {
        for (labels, change) in changes {
            let times = change.floats.iter().map(|(time_ms, _)| (*time_ms, *time_ms));
            let times = times.chain(change.histograms.iter().map(|(time_ms, _)| (*time_ms, *time_ms)));
            for (first_ms, last_ms) in times.chain(change.removed.iter().copied()) {
                let (first, last) = self.range.unwrap_or((first_ms, last_ms));
                self.range = Some((first.min(first_ms), last.max(last_ms)));
            }
            for range in &change.removed {
                let selector = selector_of(&labels, stored);
                self.removed.entry(*range).or_default().push(selector);
            }
            if !change.floats.is_empty() {
                self.batch().push_labels(&labels, &change.floats);
            }
            self.push_histograms(&labels, change.histograms);
        }
    }

    fn push_histograms(
        &mut self,
        labels: &Labels,
        histograms: Vec<(i64, Arc<chronolith_model::FloatHistogram>)>,
    ) {
        let mut valid = Vec::with_capacity(histograms.len());
        for (time_ms, histogram) in histograms {
            match histogram.validate() {
                Ok(()) => valid.push((time_ms, Arc::new(Histogram::Float(Arc::unwrap_or_clone(histogram))))),
                Err(error) => {
                    self.rejected.count += 1;
                    self.rejected.first.get_or_insert_with(|| format!("{labels}: {error}"));
                }
            }
        }
        if !valid.is_empty() {
            self.batch().push_histograms(labels, &valid);
        }
    }

    /// The batch for the next series.
    fn batch(&mut self) -> &mut WriteBatch {
        let is_full = self.batches.last().is_none_or(|batch| batch.sample_count() >= self.batch_samples_max);
        if is_full {
            self.batches.push(WriteBatch::from_labels());
        }
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// First and last time of the changes; `None` if there are none.
    pub(super) fn range(&self) -> Option<(i64, i64)> {
        self.range
    }

    /// Stores all changes durably.
    pub(super) fn store(mut self, service: &Service, tenant: &TenantId) -> Result<Rejected, BackfillError> {
        // Removals alone have a batch too.
        self.batch();
        let mut rejected = self.rejected;
        let store = service.lifecycle.store()?;
        let id = StoreId::from(tenant);
        let deletion = |((first_ms, last_ms), selectors)| Deletion {
            store: id.clone(),
            selectors,
            range: TimeRange::inclusive(first_ms, last_ms),
        };
        assert!(self.range.is_none_or(|(first_ms, last_ms)| first_ms <= last_ms), "a range has an end");
        let mut removed: Vec<Deletion> = self.removed.into_iter().map(deletion).collect();
        for batch in &self.batches {
            let stored = store.correct(&id, batch, &std::mem::take(&mut removed));
            let outcome = stored.map_err(|error| BackfillError::Write(error.to_string()))?;
            rejected.count += outcome.rejected_count();
            if let Some((kind, series, _)) = &outcome.first_reject {
                rejected.first.get_or_insert_with(|| format!("{series}: {}", outcome.message(*kind)));
            }
        }
        Ok(rejected)
    }
}

/// Selects a series and none of the others that are stored: it names the labels too that others have.
fn selector_of(labels: &Labels, stored: &BTreeMap<Labels, Columns>) -> Vec<Matcher> {
    let names: BTreeSet<&str> = stored.keys().flat_map(Labels::iter).map(|(name, _)| name).collect();
    let present = labels.iter().map(|(name, value)| Matcher::equal(name, value));
    let absent = names.into_iter().filter(|name| labels.get(name).is_none());
    present.chain(absent.map(|name| Matcher::equal(name, ""))).collect()
}

/// Results that are the stored samples in one round, without staleness markers.
pub(super) fn results_as_stored(stored: &StoredSeries, time_ms: i64) -> RoundResults {
    let mut results = RoundResults::default();
    for (labels, columns) in &stored.series {
        let Ok(idx) = columns.times.binary_search(&time_ms) else { continue };
        let mut series = chronolith_promql::MatrixSeries {
            labels: labels.clone(),
            times: Vec::new(),
            values: Vec::new(),
            histograms: Vec::new(),
        };
        match stored_value(columns, idx) {
            SampleValue::Stale => continue,
            SampleValue::Float(value) => {
                series.times.push(time_ms);
                series.values.push(value);
            }
            SampleValue::Histogram(histogram) => series.histograms.push((time_ms, histogram)),
        }
        results.series.insert(labels.clone(), series);
    }
    results
}
