//! Ledger: the expected value per tenant, series and timestamp.
//!
//! Invariants: an acknowledged value is the only expected one, by the tenant's duplicate policy; a write that
//! failed may be stored or not, until the start after a power cut shows which.
//! Not here: comparing with the store (`compare`), acknowledgement of writes (`write`).

use std::collections::{BTreeMap, BTreeSet};

use chronolith_base::hash::HashMap;
use chronolith_model::{DuplicatePolicy, Labels, Matcher, StoreId, TenantLimits, TimeRange, TimeUnit};

use crate::bucket_ledger::{BucketLedger, BucketState};
use crate::expected::{Candidates, Expected, is_certain, open};
use crate::labels::labels_of;
use crate::value::Value;

/// Acknowledgement of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckState {
    /// Acknowledged as stored.
    Acked,
    /// Stored, or refused as a conflict; the store returns only the number of conflicts per batch.
    AckedOrConflict,
    /// The write failed: stored or not.
    InFlight,
}

/// Expected samples of one series.
pub(crate) struct SeriesLedger {
    pub(crate) labels: Labels,
    pub(crate) samples: BTreeMap<i64, Expected>,
}

impl SeriesLedger {
    /// Records a written sample.
    fn put(&mut self, policy: DuplicatePolicy, ack: AckState, time: i64, value: Value) -> Certainty {
        let known = self.samples.get_mut(&time);
        let next = match (known, policy, ack) {
            (None, _, AckState::Acked | AckState::AckedOrConflict) => Expected::Exactly(value),
            (None, _, AckState::InFlight) => {
                open(Candidates { allowed: vec![None, Some(value)], hidden: Vec::new() })
            }
            (Some(Expected::Exactly(old)), _, _) if *old == value => return Certainty::Certain,
            (Some(_), DuplicatePolicy::LastWins, AckState::Acked) => Expected::Exactly(value),
            (Some(known), DuplicatePolicy::LastWins, _) => {
                let mut candidates = known.candidates();
                candidates.allow(Some(value));
                open(candidates)
            }
            (Some(known), DuplicatePolicy::KeepFirst, _) => {
                let mut candidates = known.candidates();
                let may_be_empty = candidates.allowed.contains(&None);
                let has_other = candidates.allowed.iter().any(|v| v.is_some_and(|v| v != value));
                if !may_be_empty {
                    candidates.hide(value);
                } else {
                    candidates.allow(Some(value));
                    let is_stored =
                        ack == AckState::Acked || (ack == AckState::AckedOrConflict && !has_other);
                    if is_stored {
                        candidates.allowed.retain(Option::is_some);
                    }
                }
                open(candidates)
            }
        };
        let certainty = if is_certain(&next) { Certainty::Certain } else { Certainty::Uncertain };
        self.samples.insert(time, next);
        certainty
    }

    /// Returns the samples in `range`.
    pub(crate) fn samples_in(&self, range: TimeRange) -> impl Iterator<Item = (i64, &Expected)> {
        self.samples.range(range.start..range.end.max(range.start)).map(|(time, expected)| (*time, expected))
    }

    /// Expects the found samples from now on, where several were possible.
    fn resolve(&mut self, found: &BTreeMap<i64, Value>) {
        self.samples.retain(|time, expected| {
            let Expected::AnyOf(candidates) = expected else { return true };
            let found = found.get(time).copied();
            // A value that was accepted while another one was possible may be hidden by that.
            let hidden = std::mem::take(&mut candidates.allowed);
            hidden.into_iter().flatten().for_each(|value| candidates.hide(value));
            candidates.hidden.retain(|value| found.is_some() && Some(*value) != found);
            candidates.allowed = vec![found];
            if let (true, Some(value)) = (candidates.hidden.is_empty(), found) {
                *expected = Expected::Exactly(value);
            }
            found.is_some()
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Certain,
    Uncertain,
}

impl SeriesLedger {
    /// Returns true if a sample may be refused because another value is stored.
    pub(crate) fn may_conflict(&self, time: i64, value: Value) -> bool {
        match self.samples.get(&time) {
            None => false,
            Some(Expected::Exactly(found)) => *found != value,
            Some(Expected::AnyOf(candidates)) => {
                candidates.allowed.iter().flatten().chain(&candidates.hidden).any(|found| *found != value)
            }
        }
    }
}

/// Expected samples of one tenant, or of one writer within a tenant.
pub(crate) struct TenantLedger {
    pub(crate) id: StoreId,
    pub(crate) limits: TenantLimits,
    /// Older samples may have expired: nothing is expected of them.
    pub(crate) floor: i64,
    /// Upper bound of the timestamps that were ever accepted.
    pub(crate) newest: i64,
    /// By series number.
    pub(crate) series: BTreeMap<u32, SeriesLedger>,
    by_labels: HashMap<Labels, u32>,
    uncertain: BTreeSet<u32>,
    /// Label of all series, if several ledgers share a tenant.
    owner: Option<usize>,
    /// Samples that the bucket has or may have, if there is one.
    pub(crate) bucket: Option<BucketLedger>,
}

impl TenantLedger {
    pub(crate) fn new(id: StoreId, limits: TenantLimits, owner: Option<usize>) -> TenantLedger {
        TenantLedger {
            id,
            limits,
            floor: i64::MIN,
            newest: i64::MIN,
            series: BTreeMap::new(),
            by_labels: HashMap::default(),
            uncertain: BTreeSet::new(),
            owner,
            bucket: None,
        }
    }

    /// Returns the unit of all times of the tenant.
    pub(crate) fn unit(&self) -> TimeUnit {
        self.id.time_unit()
    }

    /// Returns the labels of series `number`.
    pub(crate) fn labels(&self, number: u32) -> Labels {
        match self.series.get(&number) {
            Some(series) => series.labels.clone(),
            None => labels_of(self.owner, number),
        }
    }

    pub(crate) fn put(&mut self, number: u32, ack: AckState, time: i64, value: Value) {
        self.newest = self.newest.max(time);
        let owner = self.owner;
        let by_labels = &mut self.by_labels;
        let series = self.series.entry(number).or_insert_with(|| {
            let labels = labels_of(owner, number);
            by_labels.insert(labels.clone(), number);
            SeriesLedger { labels, samples: BTreeMap::new() }
        });
        if let (Some(bucket), Some(known)) = (&mut self.bucket, series.samples.get(&time)) {
            bucket.keep_earlier(number, time, known);
        }
        if series.put(self.limits.duplicates, ack, time, value) == Certainty::Uncertain {
            self.uncertain.insert(number);
        }
    }

    /// Returns the number of the series with `labels`, if it was ever written.
    pub(crate) fn number_of(&self, labels: &Labels) -> Option<u32> {
        self.by_labels.get(labels).copied()
    }

    /// Returns the series that all of `matchers` select.
    pub(crate) fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
    ) -> impl Iterator<Item = (u32, &'a SeriesLedger)> {
        let is_selected = |series: &SeriesLedger| matchers.iter().all(|m| m.matches_labels(&series.labels));
        self.series
            .iter()
            .filter(move |(_, series)| is_selected(series))
            .map(|(number, series)| (*number, series))
    }

    /// Deletes the samples in `range` of series that any of `selectors` selects.
    pub(crate) fn delete(&mut self, selectors: &[Vec<Matcher>], range: TimeRange, ack: AckState) {
        let range_of = || range.start..range.end.max(range.start);
        for (number, series) in &mut self.series {
            if !selectors.iter().any(|all| all.iter().all(|m| m.matches_labels(&series.labels))) {
                continue;
            }
            if let Some(bucket) = &mut self.bucket {
                series.samples.range(range_of()).for_each(|(time, old)| bucket.delete(*number, *time, old));
            }
            if ack == AckState::Acked {
                let deleted: Vec<i64> = series.samples.range(range_of()).map(|(time, _)| *time).collect();
                deleted.iter().for_each(|time| {
                    series.samples.remove(time);
                });
                continue;
            }
            for (_, expected) in series.samples.range_mut(range_of()) {
                let mut candidates = expected.candidates();
                candidates.allow(None);
                candidates.hidden.clone().into_iter().for_each(|value| candidates.allow(Some(value)));
                *expected = Expected::AnyOf(Box::new(candidates));
                self.uncertain.insert(*number);
            }
        }
    }

    /// Returns the series with uncertain samples.
    pub(crate) fn uncertain(&self) -> Vec<u32> {
        self.uncertain.iter().copied().collect()
    }

    /// Expects the found samples of a series from now on, where several were possible.
    pub(crate) fn resolve(&mut self, number: u32, found: &BTreeMap<i64, Value>) {
        if let Some(series) = self.series.get_mut(&number) {
            if let Some(bucket) = &mut self.bucket {
                series.samples.iter().for_each(|(time, old)| bucket.keep_earlier(number, *time, old));
            }
            series.resolve(found);
        }
        self.uncertain.remove(&number);
    }

    /// Returns what a reader of the bucket alone may find: the samples that the bucket has, in any of their
    /// versions, and perhaps others.
    pub(crate) fn in_bucket(&self, state: BucketState) -> TenantLedger {
        let mut copy = TenantLedger::new(self.id.clone(), self.limits.clone(), self.owner);
        (copy.floor, copy.newest) = (self.floor, self.newest);
        copy.by_labels.clone_from(&self.by_labels);
        copy.bucket.clone_from(&self.bucket);
        let Some(bucket) = &self.bucket else { return copy };
        for (number, series) in &self.series {
            let samples = bucket.samples_in_bucket(*number, self.floor, &series.samples, state);
            if samples.values().any(|expected| !is_certain(expected)) {
                copy.uncertain.insert(*number);
            }
            copy.series.insert(*number, SeriesLedger { labels: series.labels.clone(), samples });
        }
        copy
    }

    /// Records that all samples were read from the bucket.
    pub(crate) fn confirm_all(&mut self) {
        let Some(bucket) = &mut self.bucket else { return };
        for (number, series) in &self.series {
            series.samples.keys().for_each(|time| bucket.confirm(*number, *time));
        }
    }

    /// Removes samples that may have expired at `now_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64) {
        let in_bucket = self.bucket.as_ref().map(|_| self.limits.bucket_retention_ms);
        let retentions = [Some(self.limits.retention_ms), in_bucket].into_iter().flatten();
        let Some(retention_ms) = retentions.filter(|retention_ms| *retention_ms > 0).min() else { return };
        let floor = self.unit().from_ms(now_ms.saturating_sub(retention_ms));
        if floor > self.floor {
            self.floor = floor;
            for series in self.series.values_mut() {
                series.samples = series.samples.split_off(&floor);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The write of 1 failed, but 1 was stored and flushed to a block; then 2 was accepted, and queries
    /// return 1.
    #[test]
    fn a_hidden_value_is_still_expected() {
        let mut series = SeriesLedger { labels: labels_of(None, 0), samples: BTreeMap::new() };
        let [one, two, three] = [1, 2, 3].map(Value::Float);
        series.put(DuplicatePolicy::KeepFirst, AckState::InFlight, 10, one);
        series.put(DuplicatePolicy::KeepFirst, AckState::Acked, 10, two);
        series.resolve(&BTreeMap::from([(10, one)]));
        assert!(series.samples[&10].allows(Some(one)) && !series.samples[&10].allows(Some(two)));
        assert!(series.may_conflict(10, one), "2 may be in the head");
        series.put(DuplicatePolicy::KeepFirst, AckState::Acked, 20, three);
        assert!(!series.may_conflict(20, three));
    }
}
