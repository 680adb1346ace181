//! Metadata store: type, help and unit of metrics by tenant, in memory for queries and in a file for
//! restarts.
//!
//! Invariants: at most [`METRICS_PER_TENANT_MAX`] metrics per tenant with [`ENTRIES_PER_METRIC_MAX`] distinct
//! entries each, [`TEXT_BYTES_PER_TENANT_MAX`] of text per tenant and [`TEXT_BYTES_MAX`] in all; entries
//! beyond that, or with more than [`TEXT_BYTES_PER_ENTRY_MAX`], are counted and refused. An accepted entry is
//! in the file, as durable as samples are, once [`MetadataStore::wait`] has returned. A known entry costs one
//! lookup in a set.
//! Not here: the file (`log`), its bytes (`format::head::metadata`).

mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_base::hash::{FixedState, HashSet};
use chronolith_head::{SyncMode, WriteError};
use chronolith_model::{MetadataEntry, StoreId};

use crate::frame_log::copies::{Findings, LogFormat};
use crate::frame_log::frames::LogFrames;
use crate::frame_log::{FrameLog, LogEntries};
use crate::options::OpenError;
pub(crate) use log::FORMAT;

/// Metrics of one tenant with metadata.
pub(crate) const METRICS_PER_TENANT_MAX: usize = 100_000;
/// Distinct entries of one metric (targets with different help texts).
pub(crate) const ENTRIES_PER_METRIC_MAX: usize = 8;

/// Name, help and unit of one entry.
pub(crate) const TEXT_BYTES_PER_ENTRY_MAX: usize = 16 << 10;
/// Text of all entries of a tenant.
pub(crate) const TEXT_BYTES_PER_TENANT_MAX: usize = 64 << 20;
/// Text of all entries of all tenants.
pub(crate) const TEXT_BYTES_MAX: usize = 256 << 20;

/// Metadata of all tenants in memory, and its file.
pub(crate) struct MetadataStore {
    log: FrameLog<Kept>,
    refused_count: AtomicU64,
}

/// Change that must be durable before its entries are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "nothing is durable before `MetadataStore::wait`"]
pub(crate) struct Change(u64);

/// Entries in memory.
struct Kept {
    tenants: BTreeMap<StoreId, TenantMetadata>,
    text_bytes: usize,
    /// Seeded per process, so that no sender can choose texts that collide.
    hasher: FixedState,
}

#[derive(Default)]
struct TenantMetadata {
    /// The newest entry of a metric comes first.
    metrics: BTreeMap<String, Vec<MetadataEntry>>,
    /// Hashes of the newest entry of each metric. PERF: one hash of an entry instead of a walk down the tree
    /// of names, 205 -> 42 ns: `cargo bench -p chronolith-tsdb --bench metadata_speed`.
    newest: HashSet<u64>,
    /// Metrics whose entries have an order that differs from the file.
    moved: BTreeSet<String>,
    text_bytes: usize,
}

/// Outcome of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The entry was the newest of its metric already.
    Known,
    /// The entry was known and became the newest of its metric.
    Moved,
    /// The entry was unknown.
    Added,
    /// A limit is exceeded.
    Refused,
}

fn text_bytes(entry: &MetadataEntry) -> usize {
    entry.metric.len() + entry.help.len() + entry.unit.len()
}

fn hash_of(hasher: &FixedState, entry: &MetadataEntry) -> u64 {
    hasher.hash_one((&entry.metric, entry.kind, &entry.help, &entry.unit))
}

impl TenantMetadata {
    /// Keeps `entry` if its text is within `room` bytes; it may replace the oldest entry of its metric.
    fn keep(&mut self, entry: &MetadataEntry, hasher: &FixedState, room: usize) -> Fate {
        if let Some(known) = self.metrics.get_mut(&entry.metric)
            && let Some(place) = known.iter().position(|e| e == entry)
        {
            if place == 0 {
                return Fate::Known;
            }
            self.newest.remove(&hash_of(hasher, &known[0]));
            known[..=place].rotate_right(1);
            self.newest.insert(hash_of(hasher, entry));
            return Fate::Moved;
        }
        let more = text_bytes(entry);
        let full = self.metrics.len() >= METRICS_PER_TENANT_MAX && !self.metrics.contains_key(&entry.metric);
        let room = room.min(TEXT_BYTES_PER_TENANT_MAX.saturating_sub(self.text_bytes));
        if full || more > TEXT_BYTES_PER_ENTRY_MAX || more > room {
            return Fate::Refused;
        }
        let known = self.metrics.entry(entry.metric.clone()).or_default();
        if let Some(front) = known.first() {
            self.newest.remove(&hash_of(hasher, front));
        }
        if known.len() >= ENTRIES_PER_METRIC_MAX {
            self.text_bytes -= known.pop().as_ref().map_or(0, text_bytes);
        }
        known.insert(0, entry.clone());
        assert!(known.len() <= ENTRIES_PER_METRIC_MAX, "an entry replaces the oldest one of its metric");
        self.newest.insert(hash_of(hasher, entry));
        self.text_bytes += more;
        Fate::Added
    }

    /// Returns all entries of `metric`, the newest last.
    fn oldest_first(&self, metric: &str) -> impl Iterator<Item = &MetadataEntry> {
        self.metrics.get(metric).into_iter().flat_map(|entries| entries.iter().rev())
    }

    /// Puts all entries into frames.
    fn put_all(&self, store: &StoreId, frames: &mut LogFrames) {
        self.metrics.values().for_each(|entries| log::put(frames, store, entries.iter().rev()));
        frames.end_frame();
    }
}

impl Kept {
    fn new(seed: u64) -> Kept {
        Kept { tenants: BTreeMap::new(), text_bytes: 0, hasher: FixedState::with_seed(seed) }
    }

    fn keep(&mut self, store: &StoreId, entry: &MetadataEntry) -> Fate {
        let kept = self.tenants.entry(store.clone()).or_default();
        let before = kept.text_bytes;
        assert!(before <= self.text_bytes, "the text of a tenant is in the sum of all");
        let fate = kept.keep(entry, &self.hasher, TEXT_BYTES_MAX.saturating_sub(self.text_bytes));
        self.text_bytes = self.text_bytes - before + kept.text_bytes;
        fate
    }

    fn knows(&self, store: &StoreId, entries: &[MetadataEntry]) -> bool {
        let Some(TenantMetadata { newest, .. }) = self.tenants.get(store) else { return false };
        entries.iter().all(|entry| newest.contains(&hash_of(&self.hasher, entry)))
    }

    /// Queues frames with all entries of `metrics`.
    fn queue(&mut self, store: &StoreId, metrics: &BTreeSet<String>, frames: &mut LogFrames) {
        let Some(kept) = self.tenants.get_mut(store) else { return };
        for metric in metrics {
            kept.moved.remove(metric);
            log::put(frames, store, kept.oldest_first(metric));
        }
        frames.end_frame();
    }

    /// Queues frames with the metrics whose entries moved.
    fn queue_moved(&mut self, frames: &mut LogFrames) {
        let moved = self.tenants.iter_mut().map(|(t, kept)| (t.clone(), std::mem::take(&mut kept.moved)));
        let moved: Vec<_> = moved.filter(|(_, metrics)| !metrics.is_empty()).collect();
        moved.iter().for_each(|(tenant, metrics)| self.queue(tenant, metrics, frames));
    }
}

impl LogEntries for Kept {
    const FORMAT: &'static LogFormat = &log::FORMAT;

    fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    fn put_all(&mut self, frames: &mut LogFrames) {
        for (tenant, kept) in &mut self.tenants {
            kept.moved.clear();
            kept.put_all(tenant, frames);
        }
    }
}

impl MetadataStore {
    /// Reads the file in `data_dir`, if there is one.
    ///
    /// # Errors
    /// [`OpenError`] if the file cannot be read or is of a later version.
    pub(crate) fn open(
        env: &Env,
        data_dir: &std::path::Path,
        sync: SyncMode,
        findings: &mut Findings<'_>,
    ) -> Result<MetadataStore, OpenError> {
        let kept = Kept::new(env.rng.next_u64());
        let log = FrameLog::open(env, data_dir, sync, kept, findings, |kept, kind, payload| {
            log::load(kind, payload, |tenant, entry| {
                kept.keep(tenant, entry);
            })
        })?;
        // The file has the entries in their order.
        log.change(|kept, _| kept.tenants.values_mut().for_each(|tenant| tenant.moved.clear()));
        Ok(MetadataStore { log, refused_count: AtomicU64::new(0) })
    }

    /// Keeps `entries`; the newest of a metric comes first and may replace the oldest.
    pub(crate) fn keep(&self, store: &StoreId, entries: &[MetadataEntry]) -> Change {
        if entries.is_empty() {
            return Change(0);
        }
        if let Some(change) = self.log.last_change_if(|kept| kept.knows(store, entries)) {
            return Change(change);
        }
        let queue = |kept: &mut Kept, frames: &mut LogFrames| {
            let mut changed = BTreeSet::new();
            for entry in entries {
                match kept.keep(store, entry) {
                    Fate::Known => {}
                    Fate::Moved => {
                        let store = kept.tenants.get_mut(store);
                        store.map(|store| store.moved.insert(entry.metric.clone()));
                    }
                    Fate::Added => drop(changed.insert(entry.metric.clone())),
                    Fate::Refused => drop(self.refused_count.fetch_add(1, Ordering::Relaxed)),
                }
            }
            if !changed.is_empty() {
                kept.queue(store, &changed, frames);
            }
        };
        Change(self.log.change(queue).1)
    }

    /// Returns once `change` is as durable as the sync mode promises.
    ///
    /// # Errors
    /// As [`FrameLog::wait`].
    pub(crate) fn wait(&self, change: Change) -> Result<(), WriteError> {
        self.log.wait(change.0)
    }

    /// Syncs written frames. Cheap if there is nothing to do.
    ///
    /// # Errors
    /// As [`MetadataStore::wait`].
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.log.sync()
    }

    /// Removes the entries of `stores` and returns when that is durable. Cost: the file is written as a
    /// whole.
    ///
    /// # Errors
    /// As [`FrameLog::rewrite`].
    pub(crate) fn remove(&self, stores: &[StoreId]) -> Result<(), WriteError> {
        self.log.rewrite(|kept| {
            for store in stores {
                if let Some(removed) = kept.tenants.remove(store) {
                    kept.text_bytes -= removed.text_bytes;
                }
            }
        })
    }

    /// Writes the order of the entries that moved.
    ///
    /// # Errors
    /// As [`MetadataStore::wait`].
    pub(crate) fn write_order(&self) -> Result<(), WriteError> {
        let ((), change) = self.log.change(Kept::queue_moved);
        self.log.wait(change)
    }

    /// Brings the file up to date, whatever the sync mode.
    ///
    /// # Errors
    /// As [`MetadataStore::wait`].
    pub(crate) fn close(&self) -> Result<(), WriteError> {
        self.write_order()?;
        self.sync()
    }

    /// Returns a file with the entries of `stores`; `None` if there is none.
    pub(crate) fn file_of(&self, stores: &[StoreId]) -> Option<Vec<u8>> {
        self.log.file_with(|kept, frames| {
            for store in stores {
                if let Some(metadata) = kept.tenants.get(store) {
                    metadata.put_all(store, frames);
                }
            }
        })
    }

    /// Returns the approximate bytes on the heap, and the number of metrics.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let kept = self.log.entries();
        let one = |tenant: &TenantMetadata| {
            let entry_bytes = size_of::<(String, Vec<MetadataEntry>, u64)>() + size_of::<MetadataEntry>();
            (tenant.text_bytes + tenant.metrics.len() * entry_bytes) as u64
        };
        let count = kept.tenants.values().map(|tenant| tenant.metrics.len() as u64).sum();
        (kept.tenants.values().map(one).sum(), count)
    }

    /// Returns the number of metrics of `store` with metadata.
    pub(crate) fn metric_count(&self, store: &StoreId) -> u64 {
        self.log.entries().tenants.get(store).map_or(0, |store| store.metrics.len() as u64)
    }

    /// Returns the number of refused entries, repetitions included.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }

    /// Returns the entries of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    pub(crate) fn list(&self, store: &StoreId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        let kept = self.log.entries();
        let Some(TenantMetadata { metrics, .. }) = kept.tenants.get(store) else { return Vec::new() };
        let shown = if limit == 0 { usize::MAX } else { limit };
        match metric {
            Some(name) => metrics.get(name).cloned().unwrap_or_default(),
            None => metrics.values().take(shown).flatten().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
