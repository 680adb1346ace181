//! Type, help and unit of metrics, by tenant: in memory to be asked for, in a file to be there after a restart.
//!
//! Holds: at most [`METRICS_PER_TENANT_MAX`] metrics of a tenant, [`ENTRIES_PER_METRIC_MAX`] different entries each,
//! [`TEXT_BYTES_PER_TENANT_MAX`] of text and [`TEXT_BYTES_MAX`] of all tenants; what is beyond is not kept but counted,
//! and an entry with more than [`TEXT_BYTES_PER_ENTRY_MAX`] of it neither. What is kept is in the file, as durably as
//! samples are, when [`MetadataStore::wait`] has returned; what is known already costs a look into a set.
//! Not here: the file (`log`), its bytes (`format::head::metadata`).

mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_base::hash::{FixedState, HashSet};
use chronolith_head::{SyncMode, WriteError};
use chronolith_model::{MetadataEntry, TenantId};
use parking_lot::{Mutex, RwLock};

use crate::options::OpenError;
pub(crate) use log::{FILE_NAME, MIRROR_NAME};
use log::{Frames, LogFile};

/// Metrics of one tenant with metadata.
pub(crate) const METRICS_PER_TENANT_MAX: usize = 100_000;
/// Different entries of one metric (targets that disagree about the help text).
pub(crate) const ENTRIES_PER_METRIC_MAX: usize = 8;

/// Name, help and unit of one entry: no metric needs as much.
pub(crate) const TEXT_BYTES_PER_ENTRY_MAX: usize = 16 << 10;
/// Text of all entries of a tenant.
pub(crate) const TEXT_BYTES_PER_TENANT_MAX: usize = 64 << 20;
/// Text of all entries of all tenants.
pub(crate) const TEXT_BYTES_MAX: usize = 256 << 20;

/// Entries that moved to the front of their metric are written this often: two targets that disagree move theirs with
/// every request.
const ORDER_WRITE_EVERY_MS: i64 = 60_000;

/// See the module.
pub(crate) struct MetadataStore {
    kept: RwLock<Kept>,
    /// Taken before `kept` where both are.
    file: Mutex<LogFile>,
    /// Changes up to here are as durable as the sync mode promises.
    stored: AtomicU64,
    order_written_ms: AtomicU64,
    refused_count: AtomicU64,
    sync: SyncMode,
}

/// What to wait for before entries are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing is durable before `MetadataStore::wait`"]
pub(crate) struct Change(u64);

/// What is kept, and of that what the file does not say.
struct Kept {
    tenants: BTreeMap<TenantId, TenantMetadata>,
    text_bytes: usize,
    pending: Frames,
    /// How many changes there were since the start.
    change_count: u64,
    /// Of this process, so that nobody can choose texts that collide.
    hasher: FixedState,
}

#[derive(Default)]
struct TenantMetadata {
    /// The newest entry of a metric comes first.
    metrics: BTreeMap<String, Vec<MetadataEntry>>,
    /// Hashes of the newest entry of each metric. PERF: one hash of an entry instead of a walk down the tree of
    /// names, 205 -> 42 ns: `cargo bench -p chronolith-tsdb --bench metadata_speed`.
    newest: HashSet<u64>,
    /// Metrics whose entries have another order than in the file.
    moved: BTreeSet<String>,
    text_bytes: usize,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is the newest of its metric, as before.
    Known,
    /// It was there and is the newest now.
    Moved,
    /// It was not there.
    Added,
    /// A limit is reached.
    Refused,
}

fn text_bytes(entry: &MetadataEntry) -> usize {
    entry.metric.len() + entry.help.len() + entry.unit.len()
}

fn hash_of(hasher: &FixedState, entry: &MetadataEntry) -> u64 {
    hasher.hash_one((&entry.metric, entry.kind, &entry.help, &entry.unit))
}

impl TenantMetadata {
    /// Keeps `entry`, for which `room` bytes of text are left; the oldest of its metric makes room.
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
        self.newest.insert(hash_of(hasher, entry));
        self.text_bytes += more;
        Fate::Added
    }

    /// All entries of `metric`, the newest last.
    fn oldest_first(&self, metric: &str) -> impl Iterator<Item = &MetadataEntry> {
        self.metrics.get(metric).into_iter().flat_map(|entries| entries.iter().rev())
    }

    /// Puts everything into frames.
    fn put_all(&self, tenant: &TenantId, frames: &mut Frames) {
        self.metrics.values().for_each(|entries| frames.put(tenant, entries.iter().rev()));
        frames.end_frame();
    }
}

impl Kept {
    fn new(seed: u64, pending: Frames) -> Kept {
        let hasher = FixedState::with_seed(seed);
        Kept { tenants: BTreeMap::new(), text_bytes: 0, pending, change_count: 0, hasher }
    }

    fn keep(&mut self, tenant: &TenantId, entry: &MetadataEntry) -> Fate {
        let kept = self.tenants.entry(tenant.clone()).or_default();
        let before = kept.text_bytes;
        let fate = kept.keep(entry, &self.hasher, TEXT_BYTES_MAX.saturating_sub(self.text_bytes));
        self.text_bytes = self.text_bytes - before + kept.text_bytes;
        fate
    }

    fn knows(&self, tenant: &TenantId, entries: &[MetadataEntry]) -> bool {
        let Some(TenantMetadata { newest, .. }) = self.tenants.get(tenant) else { return false };
        entries.iter().all(|entry| newest.contains(&hash_of(&self.hasher, entry)))
    }

    /// Queues frames with all entries of `metrics`.
    fn queue(&mut self, tenant: &TenantId, metrics: &BTreeSet<String>) {
        let Some(kept) = self.tenants.get_mut(tenant) else { return };
        for metric in metrics {
            kept.moved.remove(metric);
            self.pending.put(tenant, kept.oldest_first(metric));
        }
        self.pending.end_frame();
        self.change_count += 1;
    }

    /// Queues frames with the metrics whose entries moved.
    fn queue_moved(&mut self) {
        let moved = self.tenants.iter_mut().map(|(t, kept)| (t.clone(), std::mem::take(&mut kept.moved)));
        let moved: Vec<_> = moved.filter(|(_, metrics)| !metrics.is_empty()).collect();
        moved.iter().for_each(|(tenant, metrics)| self.queue(tenant, metrics));
    }

    /// A file of all there is, in place of what is queued.
    fn whole_file(&mut self) -> Vec<u8> {
        self.pending = self.pending.anew();
        for (tenant, kept) in &mut self.tenants {
            kept.moved.clear();
            kept.put_all(tenant, &mut self.pending);
        }
        self.pending.take()
    }
}

impl MetadataStore {
    /// Reads the file in `data_dir`, if there is one; notes say what of it cannot be used, `repaired` which copy was
    /// damaged without a loss.
    ///
    /// # Errors
    /// [`OpenError`] if the file cannot be read or is of a later version.
    pub(crate) fn open(
        env: &Env,
        data_dir: &std::path::Path,
        sync: SyncMode,
        notes: &mut Vec<String>,
        repaired: &mut Vec<String>,
    ) -> Result<MetadataStore, OpenError> {
        let seed = env.rng.next_u64();
        let mut kept = Kept::new(seed, Frames::new(0));
        let (file, pending) = log::load(env, data_dir, notes, repaired, |tenant, entry| {
            kept.keep(tenant, entry);
        })?;
        kept.pending = pending;
        kept.tenants.values_mut().for_each(|tenant| tenant.moved.clear());
        let store = MetadataStore {
            kept: RwLock::new(kept),
            file: Mutex::new(file),
            stored: AtomicU64::new(0),
            order_written_ms: AtomicU64::new(0),
            refused_count: AtomicU64::new(0),
            sync,
        };
        store.repair(notes);
        Ok(store)
    }

    /// Keeps `entries`; the newest of a metric comes first, the oldest makes room.
    pub(crate) fn keep(&self, tenant: &TenantId, entries: &[MetadataEntry]) -> Change {
        if entries.is_empty() {
            return Change(0);
        }
        {
            let kept = self.kept.read();
            if kept.knows(tenant, entries) {
                // Somebody else may still be writing what is known.
                return Change(kept.change_count);
            }
        }
        let mut kept = self.kept.write();
        let mut changed = BTreeSet::new();
        for entry in entries {
            match kept.keep(tenant, entry) {
                Fate::Known => {}
                Fate::Moved => {
                    let tenant = kept.tenants.get_mut(tenant);
                    tenant.map(|tenant| tenant.moved.insert(entry.metric.clone()));
                }
                Fate::Added => drop(changed.insert(entry.metric.clone())),
                Fate::Refused => drop(self.refused_count.fetch_add(1, Ordering::Relaxed)),
            }
        }
        if !changed.is_empty() {
            kept.queue(tenant, &changed);
        }
        Change(kept.change_count)
    }

    /// Writes both copies anew if a start has found one of them missing, cut off or damaged.
    fn repair(&self, notes: &mut Vec<String>) {
        let mut file = self.file.lock();
        let has_entries = !self.kept.read().tenants.is_empty();
        if has_entries
            && file.is_due_anew(0)
            && let Err(error) = self.write(&mut file)
        {
            notes.push(format!("metadata: one copy is left until the other is written again: {error}"));
        }
    }

    /// Returns once `change` is as durable as the sync mode promises. One of those who wait writes for all.
    ///
    /// # Errors
    /// [`WriteError`]: it may or may not become durable; the next wait tries again.
    pub(crate) fn wait(&self, change: Change) -> Result<(), WriteError> {
        if self.stored.load(Ordering::Acquire) >= change.0 {
            return Ok(());
        }
        let mut file = self.file.lock();
        if self.stored.load(Ordering::Acquire) >= change.0 {
            return Ok(());
        }
        self.write(&mut file)
    }

    /// Writes what is queued, and syncs it if an acknowledgement waits for that.
    fn write(&self, file: &mut LogFile) -> Result<(), WriteError> {
        let mut kept = self.kept.write();
        let change_count = kept.change_count;
        let is_anew = file.is_due_anew(kept.pending.len());
        let bytes = if is_anew { kept.whole_file() } else { kept.pending.take() };
        drop(kept);
        let mut written = if is_anew { file.replace(&bytes) } else { file.append(&bytes) };
        if self.sync == SyncMode::Fsync {
            written = written.and_then(|()| file.sync());
        }
        written.map_err(|error| file.fail(&error))?;
        self.stored.store(change_count, Ordering::Release);
        Ok(())
    }

    /// Syncs what is written. Cheap when there is nothing to do.
    ///
    /// # Errors
    /// As [`MetadataStore::wait`].
    pub(crate) fn settle(&self) -> Result<(), WriteError> {
        let mut file = self.file.lock();
        if !file.is_unsynced() {
            return Ok(());
        }
        if file.is_due_anew(0) {
            return self.write(&mut file);
        }
        file.sync().map_err(|error| file.fail(&error))
    }

    /// Writes the order of entries, at most every [`ORDER_WRITE_EVERY_MS`].
    ///
    /// # Errors
    /// As [`MetadataStore::wait`].
    pub(crate) fn write_order_due(&self, now_ms: i64) -> Result<(), WriteError> {
        let now_ms = now_ms.cast_unsigned();
        let since_ms = now_ms.saturating_sub(self.order_written_ms.load(Ordering::Relaxed));
        if since_ms < ORDER_WRITE_EVERY_MS.cast_unsigned() {
            return Ok(());
        }
        self.order_written_ms.store(now_ms, Ordering::Relaxed);
        self.write_order()
    }

    fn write_order(&self) -> Result<(), WriteError> {
        let change = {
            let mut kept = self.kept.write();
            kept.queue_moved();
            Change(kept.change_count)
        };
        self.wait(change)
    }

    /// Brings the file up to date, whatever the sync mode.
    ///
    /// # Errors
    /// As [`MetadataStore::wait`].
    pub(crate) fn close(&self) -> Result<(), WriteError> {
        self.write_order()?;
        self.settle()
    }

    /// A file that says what is kept of `tenants`; `None` if that is nothing.
    pub(crate) fn file_of(&self, tenants: &[TenantId]) -> Option<Vec<u8>> {
        let kept = self.kept.read();
        let mut frames = kept.pending.anew();
        let header_len = frames.len();
        for tenant in tenants {
            if let Some(metadata) = kept.tenants.get(tenant) {
                metadata.put_all(tenant, &mut frames);
            }
        }
        (frames.len() > header_len).then(|| frames.take())
    }

    /// About how many bytes on the heap, and metrics.
    pub(crate) fn heap_bytes(&self) -> (u64, u64) {
        let kept = self.kept.read();
        let one = |tenant: &TenantMetadata| {
            let entry_bytes = size_of::<(String, Vec<MetadataEntry>, u64)>() + size_of::<MetadataEntry>();
            (tenant.text_bytes + tenant.metrics.len() * entry_bytes) as u64
        };
        let count = kept.tenants.values().map(|tenant| tenant.metrics.len() as u64).sum();
        (kept.tenants.values().map(one).sum(), count)
    }

    /// Entries that were not kept because a limit is reached, each time they came.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused_count.load(Ordering::Relaxed)
    }

    /// Of one metric or all, sorted by metric; at most `limit` metrics (0 = all).
    pub(crate) fn list(&self, tenant: &TenantId, metric: Option<&str>, limit: usize) -> Vec<MetadataEntry> {
        let kept = self.kept.read();
        let Some(TenantMetadata { metrics, .. }) = kept.tenants.get(tenant) else { return Vec::new() };
        let shown = if limit == 0 { usize::MAX } else { limit };
        match metric {
            Some(name) => metrics.get(name).cloned().unwrap_or_default(),
            None => metrics.values().take(shown).flatten().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
