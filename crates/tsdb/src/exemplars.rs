//! Exemplars in memory: one FIFO buffer per tenant, with one limit for all tenants.
//!
//! Invariants: never more exemplars than the limit. At the limit the tenant with most exemplars loses its
//! earliest arrival, so no tenant evicts exemplars of a smaller one. The exemplars of a series are ordered by
//! time, whatever their order of arrival. Exemplars are not durable, as in Prometheus.

mod order;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chronolith_base::hash::HashMap;
use chronolith_model::{
    Exemplar, ExemplarReject, ExemplarRejects, Labels, LabelsBuilder, Matcher, StoreId, TimeRange,
    WriteBatch, WriteOutcome,
};
use parking_lot::Mutex;

pub(crate) use order::ExemplarWindow;

/// Characters of an exemplar's label names and values together, as OpenMetrics allows.
const LABEL_CHARS_MAX: usize = 128;

/// Position of an exemplar: the order of the map is series, time, arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ExemplarKey {
    series_id: u64,
    time_ms: i64,
    seq: u64,
}

impl ExemplarKey {
    fn first_of(series_id: u64, time_ms: i64) -> ExemplarKey {
        ExemplarKey { series_id, time_ms, seq: 0 }
    }

    fn last_of(series_id: u64, time_ms: i64) -> ExemplarKey {
        ExemplarKey { series_id, time_ms, seq: u64::MAX }
    }
}

/// A series with exemplars.
struct SeriesState {
    labels: Labels,
    exemplar_count: usize,
}

/// Exemplars of one tenant.
#[derive(Default)]
struct ExemplarBuffer {
    exemplars: BTreeMap<ExemplarKey, Exemplar>,
    /// Keys in order of arrival.
    arrivals: VecDeque<ExemplarKey>,
    ids: HashMap<Labels, u64>,
    series: HashMap<u64, SeriesState>,
    /// Number of the next series or exemplar.
    next: u64,
}

impl ExemplarBuffer {
    fn newest(&self, series_id: u64) -> Option<&Exemplar> {
        let first = ExemplarKey::first_of(series_id, i64::MIN);
        let last = ExemplarKey::last_of(series_id, i64::MAX);
        self.exemplars.range(first..=last).next_back().map(|(_, exemplar)| exemplar)
    }

    fn has_time(&self, series_id: u64, time_ms: i64) -> bool {
        let first = ExemplarKey::first_of(series_id, time_ms);
        let last = ExemplarKey::last_of(series_id, time_ms);
        self.exemplars.range(first..=last).next().is_some()
    }

    fn push(&mut self, series: &Labels, exemplar: Exemplar) {
        let id = *self.ids.entry(series.clone()).or_insert_with(|| {
            self.next += 1;
            self.series.insert(self.next, SeriesState { labels: series.clone(), exemplar_count: 0 });
            self.next
        });
        if let Some(state) = self.series.get_mut(&id) {
            state.exemplar_count += 1;
        }
        self.next += 1;
        let key = ExemplarKey { series_id: id, time_ms: exemplar.time_ms, seq: self.next };
        self.exemplars.insert(key, exemplar);
        self.arrivals.push_back(key);
        assert_eq!(self.exemplars.len(), self.arrivals.len(), "each exemplar arrives once");
    }

    /// Removes the exemplar that arrived first.
    fn pop_first(&mut self) {
        let Some(key) = self.arrivals.pop_front() else { return };
        let removed = self.exemplars.remove(&key);
        assert!(removed.is_some(), "an exemplar is there until it is the first one");
        if let Some(state) = self.series.get_mut(&key.series_id) {
            state.exemplar_count -= 1;
            if state.exemplar_count == 0
                && let Some(state) = self.series.remove(&key.series_id)
            {
                self.ids.remove(&state.labels);
            }
        }
        // Frees the memory of a tenant that had more exemplars once.
        if self.arrivals.len() < self.arrivals.capacity() / 4 {
            self.arrivals.shrink_to(self.arrivals.len() * 2);
            self.ids.shrink_to(self.ids.len() * 2);
            self.series.shrink_to(self.series.len() * 2);
        }
    }

    fn heap_bytes(&self) -> usize {
        // Nodes of the tree are at least half full.
        let tree = self.exemplars.len() * 2 * size_of::<(ExemplarKey, Exemplar)>();
        let tables = self.ids.allocation_size() + self.series.allocation_size();
        let arrivals = self.arrivals.capacity() * size_of::<ExemplarKey>();
        let text: usize = self.exemplars.values().map(|exemplar| exemplar.labels.heap_bytes()).sum();
        let series: usize = self.ids.keys().map(Labels::heap_bytes).sum();
        tree + tables + arrivals + text + series
    }
}

#[derive(Default)]
struct Buffers {
    by_tenant: BTreeMap<StoreId, ExemplarBuffer>,
    /// Tenants by number of exemplars.
    by_len: BTreeSet<(usize, StoreId)>,
    count: usize,
}

impl Buffers {
    fn push(&mut self, store: &StoreId, series: &Labels, exemplar: Exemplar) {
        let buffer = self.by_tenant.entry(store.clone()).or_default();
        buffer.push(series, exemplar);
        let len = buffer.arrivals.len();
        let was_listed = self.by_len.remove(&(len - 1, store.clone()));
        assert!(was_listed || len == 1, "a store is listed by its number of exemplars");
        self.by_len.insert((len, store.clone()));
        self.count += 1;
    }

    /// Removes one exemplar of the store with most; of `store` if no other has more.
    fn make_room(&mut self, store: &StoreId) {
        let own_len = self.by_tenant.get(store).map_or(0, |buffer| buffer.arrivals.len());
        let largest = self.by_len.last().filter(|(len, _)| *len > own_len);
        let loser = largest.map_or_else(|| store.clone(), |(_, store)| store.clone());
        let buffer = self.by_tenant.get_mut(&loser);
        assert!(buffer.is_some(), "a full storage has a store with exemplars");
        let Some(buffer) = buffer else { return };
        let len = buffer.arrivals.len();
        buffer.pop_first();
        self.count -= 1;
        self.by_len.remove(&(len, loser.clone()));
        if len > 1 {
            self.by_len.insert((len - 1, loser));
        } else {
            self.by_tenant.remove(&loser);
        }
    }

    fn check(&self, store: &StoreId, series: &Labels, exemplar: &Exemplar, window: ExemplarWindow) -> Fate {
        let Some(buffer) = self.by_tenant.get(store) else { return Fate::New };
        let Some(&id) = buffer.ids.get(series) else { return Fate::New };
        let Some(newest) = buffer.newest(id) else { return Fate::New };
        if order::is_equal(newest, exemplar) {
            return Fate::Repeated;
        }
        if !order::is_accepted(newest, exemplar, window) {
            return Fate::OutOfOrder;
        }
        // The labels of older ones are not compared, as in Prometheus: one exemplar per time.
        let is_older = exemplar.time_ms < newest.time_ms;
        if is_older && buffer.has_time(id, exemplar.time_ms) { Fate::Repeated } else { Fate::New }
    }
}

/// Relation of an exemplar to the stored ones of its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    New,
    /// Stored already: senders repeat whole requests.
    Repeated,
    OutOfOrder,
}

/// Newest exemplars of all tenants.
pub(crate) struct ExemplarStorage {
    count_max: usize,
    buffers: Mutex<Buffers>,
}

impl ExemplarStorage {
    pub(crate) fn new(count_max: usize) -> ExemplarStorage {
        ExemplarStorage { count_max, buffers: Mutex::default() }
    }

    /// Adds the exemplars of a batch. A series that cannot be parsed was rejected by the head; its exemplars
    /// go with it.
    pub(crate) fn append(
        &self,
        store: &StoreId,
        window: ExemplarWindow,
        batch: &WriteBatch,
        outcome: &mut WriteOutcome,
    ) {
        if batch.exemplars.is_empty() {
            return;
        }
        let mut builder = LabelsBuilder::new();
        let mut labels_of = |series_idx: u32| {
            let idx = series_idx as usize;
            builder.clear();
            let is_valid =
                idx < batch.series.len() && (batch.source.parse)(batch.key_of(idx), &mut builder).is_ok();
            is_valid.then(|| builder.finish())
        };
        let mut exemplars = Vec::with_capacity(batch.exemplars.len());
        for of_series in batch.exemplars.chunk_by(|a, b| a.series_idx == b.series_idx) {
            match of_series.first().and_then(|first| labels_of(first.series_idx)) {
                Some(labels) => {
                    exemplars.extend(of_series.iter().map(|entry| (labels.clone(), entry.exemplar.clone())));
                }
                None => {
                    outcome.exemplars_rejected.add(ExemplarReject::BadReference, of_series.len() as u64);
                }
            }
        }
        outcome.exemplars_accepted +=
            self.push_all(store, window, exemplars, &mut outcome.exemplars_rejected);
    }

    /// Adds the exemplars of one request. Returns how many are accepted, repeats included; counts the others.
    ///
    /// All are compared with the exemplars before the request, and then inserted by time, value and labels:
    /// their order within the request is irrelevant.
    fn push_all(
        &self,
        store: &StoreId,
        window: ExemplarWindow,
        exemplars: Vec<(Labels, Exemplar)>,
        rejects: &mut ExemplarRejects,
    ) -> u64 {
        if self.count_max == 0 {
            rejects.add(ExemplarReject::Disabled, exemplars.len() as u64);
            return 0;
        }
        let mut accepted = exemplars;
        let mut buffers = self.buffers.lock();
        accepted.retain(|(series, exemplar)| {
            let reason = if window.is_future(exemplar.time_ms) {
                ExemplarReject::OutOfBounds
            } else if label_chars(&exemplar.labels) > LABEL_CHARS_MAX {
                ExemplarReject::LabelsTooLong
            } else if buffers.check(store, series, exemplar, window) == Fate::OutOfOrder {
                ExemplarReject::OutOfOrder
            } else {
                return true;
            };
            rejects.add(reason, 1);
            false
        });
        let count = accepted.len() as u64;
        accepted.sort_by(|(_, a), (_, b)| order::compare(a, b));
        for (series, exemplar) in accepted {
            if buffers.check(store, &series, &exemplar, window) != Fate::New {
                continue;
            }
            if buffers.count >= self.count_max {
                buffers.make_room(store);
            }
            buffers.push(store, &series, exemplar);
        }
        assert!(buffers.count <= self.count_max, "room is made before an exemplar is added");
        count
    }

    /// Removes the exemplars of a store.
    pub(crate) fn remove(&self, store: &StoreId) {
        let mut buffers = self.buffers.lock();
        let Some(buffer) = buffers.by_tenant.remove(store) else { return };
        let len = buffer.arrivals.len();
        buffers.by_len.remove(&(len, store.clone()));
        buffers.count -= len;
    }

    pub(crate) fn len(&self) -> usize {
        self.buffers.lock().count
    }

    /// Returns the bytes on the heap, and the number of exemplars.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let buffers = self.buffers.lock();
        let slot_bytes = size_of::<(StoreId, ExemplarBuffer)>() + size_of::<(usize, StoreId)>();
        let slots = buffers.by_tenant.len() * slot_bytes;
        let bytes = slots + buffers.by_tenant.values().map(ExemplarBuffer::heap_bytes).sum::<usize>();
        (bytes as u64, buffers.count as u64)
    }

    /// Returns the exemplars of series that match any selector, by series, times ascending.
    pub(crate) fn select(
        &self,
        store: &StoreId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Vec<(Labels, Vec<Exemplar>)> {
        let is_match = |labels: &Labels| selectors.iter().any(|s| s.iter().all(|m| m.matches_labels(labels)));
        let buffers = self.buffers.lock();
        let Some(buffer) = buffers.by_tenant.get(store) else { return Vec::new() };
        let matching = buffer.ids.iter().filter(|(labels, _)| is_match(labels));
        let mut found: Vec<(Labels, Vec<Exemplar>)> = matching
            .map(|(labels, &id)| {
                let first = ExemplarKey::first_of(id, i64::MIN);
                let last = ExemplarKey::last_of(id, i64::MAX);
                let of_series = buffer.exemplars.range(first..=last);
                let in_range = of_series.filter(|(key, _)| range.contains(key.time_ms));
                (labels.clone(), in_range.map(|(_, exemplar)| exemplar.clone()).collect())
            })
            .filter(|(_, exemplars): &(Labels, Vec<Exemplar>)| !exemplars.is_empty())
            .collect();
        drop(buffers);
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        found
    }
}

fn label_chars(labels: &Labels) -> usize {
    labels.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum()
}
