//! Exemplars in memory: a ring buffer per tenant, with one limit for all tenants.
//!
//! Invariants: never more exemplars than the limit. At the limit the tenant with most exemplars loses its
//! oldest one, so no tenant evicts those of a smaller one. Exemplars are not durable, as in Prometheus.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chronolith_base::hash::HashMap;
use chronolith_model::{Exemplar, Labels, Matcher, TenantId, TimeRange};
use parking_lot::Mutex;

/// Characters of an exemplar's label names and values together, as OpenMetrics allows.
const LABEL_CHARS_MAX: usize = 128;

/// Outcome of one exemplar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExemplarFate {
    /// It is in the ring; an earlier request may have added it.
    Kept,
    /// The series has a later one.
    Late,
    /// Its labels are too long, or no exemplars are kept at all.
    Refused,
}

/// Exemplars of one tenant.
#[derive(Default)]
struct Ring {
    entries: VecDeque<(Labels, Exemplar)>,
    /// The newest exemplar of every series in the ring.
    newest: HashMap<Labels, Exemplar>,
}

impl Ring {
    fn push(&mut self, series: &Labels, exemplar: Exemplar) {
        self.newest.insert(series.clone(), exemplar.clone());
        self.entries.push_back((series.clone(), exemplar));
    }

    fn pop_oldest(&mut self) {
        if let Some((series, oldest)) = self.entries.pop_front()
            && self.newest.get(&series) == Some(&oldest)
        {
            self.newest.remove(&series);
        }
        // Frees the memory of a tenant that had more exemplars once.
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
            self.newest.shrink_to(self.newest.len() * 2);
        }
    }

    fn heap_bytes(&self) -> usize {
        let slots = self.entries.capacity() * size_of::<(Labels, Exemplar)>() + self.newest.allocation_size();
        let text: usize = self.entries.iter().map(|(_, exemplar)| exemplar.labels.heap_bytes()).sum();
        // The labels of a series are shared by its exemplars.
        let series: usize = self.newest.keys().map(Labels::heap_bytes).sum();
        slots + text + series
    }
}

#[derive(Default)]
struct Rings {
    by_tenant: BTreeMap<TenantId, Ring>,
    /// Tenants by length of their rings.
    by_len: BTreeSet<(usize, TenantId)>,
    count: usize,
}

impl Rings {
    fn push(&mut self, tenant: &TenantId, series: &Labels, exemplar: Exemplar) {
        let ring = self.by_tenant.entry(tenant.clone()).or_default();
        ring.push(series, exemplar);
        let len = ring.entries.len();
        self.by_len.remove(&(len - 1, tenant.clone()));
        self.by_len.insert((len, tenant.clone()));
        self.count += 1;
    }

    /// Removes the oldest exemplar of the tenant with most; of `tenant` if no other has more.
    fn make_room(&mut self, tenant: &TenantId) {
        let own_len = self.by_tenant.get(tenant).map_or(0, |ring| ring.entries.len());
        let largest = self.by_len.last().filter(|(len, _)| *len > own_len);
        let loser = largest.map_or_else(|| tenant.clone(), |(_, tenant)| tenant.clone());
        let Some(ring) = self.by_tenant.get_mut(&loser) else { return };
        let len = ring.entries.len();
        ring.pop_oldest();
        self.count -= 1;
        self.by_len.remove(&(len, loser.clone()));
        if len > 1 {
            self.by_len.insert((len - 1, loser));
        } else {
            self.by_tenant.remove(&loser);
        }
    }
}

/// Newest exemplars of all tenants.
pub(crate) struct ExemplarRing {
    count_max: usize,
    rings: Mutex<Rings>,
}

impl ExemplarRing {
    pub(crate) fn new(count_max: usize) -> ExemplarRing {
        ExemplarRing { count_max, rings: Mutex::default() }
    }

    /// Adds an exemplar, unless it is not later than the newest one of its series (senders repeat whole
    /// requests) or its labels are longer than OpenMetrics allows.
    pub(crate) fn push(&self, tenant: &TenantId, series: &Labels, exemplar: Exemplar) -> ExemplarFate {
        let chars = |labels: &Labels| {
            labels.iter().map(|(n, v)| n.chars().count() + v.chars().count()).sum::<usize>()
        };
        if self.count_max == 0 || chars(&exemplar.labels) > LABEL_CHARS_MAX {
            return ExemplarFate::Refused;
        }
        let mut rings = self.rings.lock();
        match rings.by_tenant.get(tenant).and_then(|ring| ring.newest.get(series)) {
            Some(newest) if *newest == exemplar => return ExemplarFate::Kept,
            Some(newest) if newest.time_ms >= exemplar.time_ms => return ExemplarFate::Late,
            _ => {}
        }
        if rings.count >= self.count_max {
            rings.make_room(tenant);
        }
        rings.push(tenant, series, exemplar);
        ExemplarFate::Kept
    }

    pub(crate) fn len(&self) -> usize {
        self.rings.lock().count
    }

    /// Returns the bytes on the heap, and the number of exemplars.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let rings = self.rings.lock();
        let slots = rings.by_tenant.len() * (size_of::<(TenantId, Ring)>() + size_of::<(usize, TenantId)>());
        let bytes = slots + rings.by_tenant.values().map(Ring::heap_bytes).sum::<usize>();
        (bytes as u64, rings.count as u64)
    }

    /// Returns the exemplars of series that match any selector, by series, times ascending.
    pub(crate) fn select(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        let is_match = |labels: &Labels| selectors.iter().any(|s| s.iter().all(|m| m.matches_labels(labels)));
        let mut found: BTreeMap<Labels, Vec<Exemplar>> = BTreeMap::new();
        let rings = self.rings.lock();
        for (series, exemplar) in rings.by_tenant.get(tenant).iter().flat_map(|ring| &ring.entries) {
            if range.contains(exemplar.time_ms) && is_match(series) {
                found.entry(series.clone()).or_default().push(exemplar.clone());
            }
        }
        drop(rings);
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
    fn the_oldest_are_evicted_and_tenants_are_separate() {
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

    /// With one ring for all, a tenant that sent many exemplars evicted those of all others.
    #[test]
    fn a_busy_tenant_does_not_evict_exemplars_of_others() {
        let ring = ExemplarRing::new(100);
        let at = |time_ms| Exemplar { labels: Labels::empty(), value: 1.0, time_ms };
        let series = Labels::from_pairs([("__name__", "x")]);
        let selectors = vec![vec![Matcher::equal("__name__", "x")]];
        let times = |tenant: &TenantId| -> Vec<i64> {
            let found = ring.select(tenant, &selectors, TimeRange::ALL);
            found.iter().flat_map(|(_, exemplars)| exemplars.iter().map(|e| e.time_ms)).collect()
        };
        let (small, busy) = (TenantId::new("small").unwrap(), TenantId::new("busy").unwrap());
        for time in 0..3 {
            ring.push(&small, &series, at(time));
        }
        for time in 0..1000 {
            ring.push(&busy, &series, at(time));
        }
        assert_eq!((times(&small), times(&busy).len(), ring.len()), (vec![0, 1, 2], 97, 100));
        assert_eq!(times(&busy).last(), Some(&999));
        // More tenants than places: one exemplar each, the total stays.
        for idx in 0..300 {
            ring.push(&TenantId::new(&format!("t{idx}")).unwrap(), &series, at(1));
        }
        assert_eq!(ring.len(), 100);
        let rings = ring.rings.lock();
        assert_eq!(rings.by_len.len(), rings.by_tenant.len());
    }
}
