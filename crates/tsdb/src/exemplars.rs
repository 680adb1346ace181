//! Exemplars of all tenants in one bounded ring: the newest stay, the oldest make room.
//! Holds: never more than the given count. Not durable: exemplars are hints, senders do not expect them back
//! after a restart (Prometheus keeps them the same way).

use std::collections::{BTreeMap, VecDeque};

use chronolith_base::hash::HashMap;
use chronolith_model::{Exemplar, Labels, Matcher, TenantId, TimeRange};
use parking_lot::Mutex;

/// Characters of an exemplar's label names and values together, as OpenMetrics allows.
const LABEL_CHARS_MAX: usize = 128;

/// What became of an exemplar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExemplarFate {
    /// It is in the ring, perhaps since an earlier request.
    Kept,
    /// The series has a later one.
    Late,
    /// Its labels are too long, or no exemplars are kept at all.
    Refused,
}

/// A series of a tenant.
type Key = (TenantId, Labels);

#[derive(Default)]
struct Ring {
    entries: VecDeque<(Key, Exemplar)>,
    /// The newest exemplar of every series in the ring.
    newest: HashMap<Key, Exemplar>,
}

/// See the module.
pub(crate) struct ExemplarRing {
    count_max: usize,
    ring: Mutex<Ring>,
}

impl ExemplarRing {
    pub(crate) fn new(count_max: usize) -> ExemplarRing {
        ExemplarRing { count_max, ring: Mutex::default() }
    }

    /// Adds one. Dropped are those that are not later than the newest one of the series (senders repeat whole
    /// requests) and those with longer labels than OpenMetrics allows.
    pub(crate) fn push(&self, tenant: &TenantId, series: &Labels, exemplar: Exemplar) -> ExemplarFate {
        let chars = |labels: &Labels| {
            labels.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum::<usize>()
        };
        if self.count_max == 0 || chars(&exemplar.labels) > LABEL_CHARS_MAX {
            return ExemplarFate::Refused;
        }
        let key = (tenant.clone(), series.clone());
        let ring = &mut *self.ring.lock();
        match ring.newest.get(&key) {
            Some(newest) if *newest == exemplar => return ExemplarFate::Kept,
            Some(newest) if newest.time_ms >= exemplar.time_ms => return ExemplarFate::Late,
            _ => {}
        }
        if ring.entries.len() == self.count_max
            && let Some((old_key, old)) = ring.entries.pop_front()
            && ring.newest.get(&old_key) == Some(&old)
        {
            ring.newest.remove(&old_key);
        }
        ring.newest.insert(key.clone(), exemplar.clone());
        ring.entries.push_back((key, exemplar));
        ExemplarFate::Kept
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.lock().entries.len()
    }

    /// Bytes on the heap, and exemplars.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let ring = self.ring.lock();
        let slots = ring.entries.capacity() * size_of::<(Key, Exemplar)>() + ring.newest.allocation_size();
        let text: usize = ring.entries.iter().map(|(_, exemplar)| exemplar.labels.heap_bytes()).sum();
        // The labels of a series and its tenant are shared by its exemplars.
        let keys: usize = ring.newest.keys().map(|(_, labels)| labels.heap_bytes()).sum();
        ((slots + text + keys) as u64, ring.entries.len() as u64)
    }

    /// By series, times ascending, for series that fit any selector.
    pub(crate) fn select(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        let fits = |labels: &Labels| selectors.iter().any(|s| s.iter().all(|m| m.matches_labels(labels)));
        let mut found: BTreeMap<Labels, Vec<Exemplar>> = BTreeMap::new();
        for ((owner, series), exemplar) in &self.ring.lock().entries {
            if owner == tenant && range.contains(exemplar.time_ms) && fits(series) {
                found.entry(series.clone()).or_default().push(exemplar.clone());
            }
        }
        for exemplars in found.values_mut() {
            exemplars.sort_by_key(|e| e.time_ms);
        }
        found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_tenants_do_not_mix() {
        let ring = ExemplarRing::new(2);
        let (a, b) = (TenantId::anonymous(), TenantId::new("b").unwrap());
        let series = Labels::from_pairs([("__name__", "x")]);
        let at = |time_ms| Exemplar { labels: Labels::empty(), value: 1.0, time_ms };
        for time in [1, 2, 2, 3, 1] {
            ring.push(&a, &series, at(time));
        }
        let selectors = vec![vec![Matcher::equal("__name__", "x")]];
        let found = ring.select(&a, &selectors, TimeRange::ALL);
        assert_eq!(found[0].1.iter().map(|e| e.time_ms).collect::<Vec<_>>(), [2, 3]);
        assert!(ring.select(&b, &selectors, TimeRange::ALL).is_empty());
        assert!(ring.select(&a, &selectors, TimeRange::new(4, 9)).is_empty());
    }
}
