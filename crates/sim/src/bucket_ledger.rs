//! Ledger of the bucket: the samples that are known to be in it, and earlier values of samples, which it may
//! still have.
//!
//! Invariants: a sample that was read from the bucket stays in it until it is deleted; a value that was
//! replaced or deleted may come back from the bucket until all of the ledger was found in it.
//! Not here: expected samples of a store with its disk (`ledger`).

use std::collections::{BTreeMap, BTreeSet};

use crate::expected::{Candidates, Expected, open};
use crate::value::Value;

/// Series number and time.
type SampleKey = (u32, i64);

/// Samples of one tenant in the bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct BucketLedger {
    /// Samples that the bucket has, in any version.
    confirmed: BTreeSet<SampleKey>,
    /// Values before the present one, also of deleted samples.
    earlier: BTreeMap<SampleKey, Vec<Value>>,
    /// Values that the bucket has no more, but may have had when a reader read its catalogue.
    past: BTreeMap<SampleKey, Vec<Value>>,
}

/// State of the bucket that a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketState {
    /// The present one.
    Present,
    /// Any up to the present one.
    Any,
}

impl BucketLedger {
    /// Records that the values of a sample may be in the bucket, before it changes.
    pub(crate) fn keep_earlier(&mut self, number: u32, time: i64, old: &Expected) {
        let candidates = old.candidates();
        let earlier = self.earlier.entry((number, time)).or_default();
        for value in candidates.allowed.into_iter().flatten().chain(candidates.hidden) {
            if !earlier.contains(&value) {
                earlier.push(value);
            }
        }
    }

    /// Records that a sample is deleted, perhaps only here.
    pub(crate) fn delete(&mut self, number: u32, time: i64, old: &Expected) {
        self.keep_earlier(number, time, old);
        self.confirmed.remove(&(number, time));
    }

    /// Records a sample that was read from the bucket.
    pub(crate) fn confirm(&mut self, number: u32, time: i64) {
        self.confirmed.insert((number, time));
    }

    /// Records that the bucket has exactly the present samples: earlier values are gone.
    pub(crate) fn forget_earlier(&mut self) {
        for (key, values) in std::mem::take(&mut self.earlier) {
            let past = self.past.entry(key).or_default();
            past.extend(values.iter().filter(|value| !past.contains(value)).copied().collect::<Vec<_>>());
        }
    }

    /// Samples from `floor` on of a series as the bucket may have them.
    pub(crate) fn samples_in_bucket(
        &self,
        number: u32,
        floor: i64,
        samples: &BTreeMap<i64, Expected>,
        state: BucketState,
    ) -> BTreeMap<i64, Expected> {
        let past = (state == BucketState::Any).then_some(&self.past);
        let sources = [Some(&self.earlier), past];
        let earlier_of = |time: i64| {
            let values = sources.into_iter().flatten().filter_map(move |map| map.get(&(number, time)));
            values.flatten().copied()
        };
        let mut found = BTreeMap::new();
        for (time, expected) in samples.range(floor..) {
            let mut candidates = expected.candidates();
            let hidden = std::mem::take(&mut candidates.hidden);
            hidden.into_iter().chain(earlier_of(*time)).for_each(|value| candidates.allow(Some(value)));
            if state == BucketState::Any || !self.confirmed.contains(&(number, *time)) {
                candidates.allow(None);
            }
            found.insert(*time, open(candidates));
        }
        let range = (number, floor)..=(number, i64::MAX);
        for (_, time) in
            sources.into_iter().flatten().flat_map(|map| map.range(range.clone())).map(|(key, _)| *key)
        {
            found.entry(time).or_insert_with(|| {
                let allowed = earlier_of(time).map(Some).chain([None]).collect();
                open(Candidates { allowed, ..Candidates::default() })
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_confirmed_samples_must_be_in_the_bucket() {
        let [one, two] = [1, 2].map(Value::Float);
        let mut bucket = BucketLedger::default();
        bucket.confirm(7, 10);
        bucket.keep_earlier(7, 10, &Expected::Exactly(one));
        bucket.confirm(7, 30);
        bucket.delete(7, 30, &Expected::Exactly(one));
        let samples = BTreeMap::from([(10, Expected::Exactly(two)), (20, Expected::Exactly(two))]);
        let found = bucket.samples_in_bucket(7, i64::MIN, &samples, BucketState::Present);
        assert!(found[&10].allows(Some(one)) && found[&10].allows(Some(two)), "an earlier version");
        assert!(!found[&10].allows(None), "it was seen in the bucket");
        assert!(found[&20].allows(None) && !found[&20].allows(Some(one)), "it may be lost with the disk");
        assert!(found[&30].allows(None) && found[&30].allows(Some(one)), "the deletion may be lost as well");
        bucket.forget_earlier();
        let found = bucket.samples_in_bucket(7, i64::MIN, &samples, BucketState::Present);
        assert!(!found[&10].allows(Some(one)) && !found.contains_key(&30), "all versions were replaced");
        let found = bucket.samples_in_bucket(7, i64::MIN, &samples, BucketState::Any);
        assert!(found[&10].allows(Some(one)) && found[&30].allows(Some(one)), "a reader may be behind");
    }
}
