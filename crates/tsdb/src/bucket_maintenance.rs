//! Maintenance of the bucket by a server that uploads: retention, removal of replaced blocks, leftovers,
//! compaction.
//!
//! Invariants: a block whose times overlap a local one never expires in the bucket, and one with a local copy
//! is no leftover, so uploads of this process need not wait for its maintenance; ages are measured by the
//! clock of retention, which does not follow jumps. A failure is logged, counted and retried, and does not
//! stop other tenants and stores.
//! Not here: the steps themselves (`bucket::maintenance`), local blocks (`maintenance`), expiry by retention
//! policies and removal of dropped stores (`upload`).

mod by_schema;
mod compaction;
mod counters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chronolith_base::backoff::{Backoff, PauseBounds};
use chronolith_block::BlockEntry;
use chronolith_bucket::lease::Leases;
use chronolith_bucket::maintenance::MaintenanceRun;
use chronolith_bucket::maintenance::leftovers::{
    LEFTOVER_AGE, LeftoverRules, find_leftovers, mark_leftovers,
};
use chronolith_bucket::maintenance::removal::{due_marks, find_due, remove_due};
use chronolith_bucket::maintenance::retention::{Expiry, retire_expired};
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_model::{StoreId, TenantId, TimeRange};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::bucket::upload_state::UploadState;
use crate::maintenance::Maintenance;
use crate::metric::Metric;
use crate::schema_retention::SchemaRetentions;
use crate::storage::Storage;
use compaction::{BucketCompaction, StepEnd};
use counters::BucketMaintenanceCounters;

/// Time between two runs of a tenant, and of the store of a retention policy: there may be thousands.
const RUN_INTERVAL_NS: u64 = 300_000_000_000;
const STORE_INTERVAL_NS: u64 = 3_600_000_000_000;
/// Time between two searches for leftovers, and between two listings of the tenants.
const SEARCH_INTERVAL_NS: u64 = 6 * 3_600_000_000_000;
const TENANTS_INTERVAL_NS: u64 = 3_600_000_000_000;
/// Pauses after failures of a store.
const RETRY_PAUSES: PauseBounds = PauseBounds { min_ns: 60_000_000_000, max_ns: 3_600_000_000_000 };
/// Time for the requests of one step of a store.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);
/// Time after which another process takes over the compaction of one that died.
const LEASE_DURATION: Duration = Duration::from_secs(7200);
/// Damaged blocks that are remembered until the next start; beyond it all are tried again.
const REFUSED_MAX: usize = 10_000;

/// Maintenance of all tenants of the bucket and of their databases, by one thread.
#[derive(Default)]
pub(crate) struct BucketMaintenance {
    schedule: Mutex<Schedule>,
    leases: OnceLock<Leases>,
    /// Blocks whose compaction was refused because they are damaged.
    refused: Mutex<BTreeSet<Ulid>>,
    /// Retentions of blocks of Graphite stores, by store.
    retentions: Mutex<BTreeMap<StoreId, SchemaRetentions>>,
    counters: BucketMaintenanceCounters,
}

/// Times of the next work, in ns of the monotonic clock.
#[derive(Default)]
struct Schedule {
    /// Tenants of the bucket, and stores of retention policies that it has.
    stores: BTreeMap<StoreId, Progress>,
    list_ns: u64,
}

/// Progress of one store.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    run_ns: u64,
    search_ns: u64,
    backoff: Backoff,
    /// Blocks of other programs that the catalogue does not name, as of the last search.
    foreign_count: u64,
}

/// Time of the next run of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// There may be more to compact.
    Soon,
    Later,
}

/// One run of a store: the default one of a tenant, or one of a retention policy.
struct StoreRun<'a> {
    parts: BucketParts<'a>,
    owner: &'a BucketMaintenance,
    store: &'a StoreId,
    folder: Folder,
    /// Time by which blocks expire and marks are due, in ms since 1970.
    now_ms: i64,
}

/// Parts of the database that the maintenance of the bucket works on.
#[derive(Clone, Copy)]
pub(crate) struct BucketParts<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) state: &'a UploadState,
    pub(crate) maintenance: &'a Maintenance,
}

impl BucketMaintenance {
    /// Runs the maintenance that is due. `now_ms` is the time by which blocks expire. Blocks the thread until
    /// then.
    pub(crate) fn run(&self, parts: BucketParts<'_>, now_ms: i64) {
        let storage = parts.storage;
        let bucket = parts.state.bucket();
        let clock = &storage.env().clock;
        self.list_stores(storage, bucket);
        let is_due = |progress: &Progress| progress.run_ns <= clock.mono_ns();
        let due: Vec<(StoreId, Progress)> = {
            let schedule = self.schedule.lock();
            let due = schedule.stores.iter().filter(|(_, progress)| is_due(progress));
            due.map(|(store, progress)| (store.clone(), *progress)).collect()
        };
        for (store, before) in due {
            // A store may be dropped since it was listed.
            let Some(folder) = storage.folder_of(&store) else { continue };
            let mut progress = before;
            let run = StoreRun { parts, owner: self, store: &store, folder, now_ms };
            let done = run.run(&mut progress);
            if bucket.is_stopped() {
                return;
            }
            let mono_ns = clock.mono_ns();
            match done {
                Ok(next) => {
                    progress.backoff = Backoff::default();
                    let wait_ns = match next {
                        Next::Soon => 0,
                        Next::Later if !store.is_default() => STORE_INTERVAL_NS,
                        Next::Later => RUN_INTERVAL_NS,
                    };
                    progress.run_ns = mono_ns.saturating_add(wait_ns);
                    self.counters.success_seconds.set(clock.now_ms().max(0).unsigned_abs() / 1000);
                }
                Err(error) => {
                    progress.backoff = before.backoff.after_failure(mono_ns, RETRY_PAUSES);
                    progress.run_ns = progress.backoff.retry_ns();
                    let retry_s = progress.backoff.pause_s();
                    let folder = &run.folder;
                    tracing::error!(%folder, error, retry_s, "maintenance of the bucket failed, retrying after retry_s");
                    self.counters.failures.increment();
                }
            }
            self.schedule.lock().stores.insert(store, progress);
        }
    }

    /// Brings the list of tenants and stores up to date, if that is due.
    fn list_stores(&self, storage: &Storage, bucket: &Bucket) {
        let mono_ns = storage.env().clock.mono_ns();
        let mut schedule = self.schedule.lock();
        if schedule.list_ns > mono_ns {
            return;
        }
        let request = request(storage, &Folder::of_tenant(&TenantId::anonymous()), STEP_TIMEOUT);
        match bucket.tenants(&request) {
            Ok(tenants) => {
                let before = std::mem::take(&mut schedule.stores);
                let of = |store: &StoreId| before.get(store).copied().unwrap_or_default();
                let catalog = storage.databases().catalog();
                let policies = catalog.policies().map(|(_, policy)| policy.store.clone());
                let in_bucket = policies.filter(|store| storage.folder_of(store).is_some());
                let stores = tenants.into_iter().map(StoreId::from).chain(in_bucket);
                schedule.stores = stores.map(|store| (store.clone(), of(&store))).collect();
                self.retentions.lock().retain(|store, _| schedule.stores.contains_key(store));
                schedule.list_ns = mono_ns.saturating_add(TENANTS_INTERVAL_NS);
            }
            Err(error) => {
                schedule.list_ns = mono_ns.saturating_add(RETRY_PAUSES.min_ns);
                if !bucket.is_stopped() {
                    self.counters.failures.increment();
                    tracing::error!(%error, "listing the tenants of the bucket failed, retrying in 60 s");
                }
            }
        }
    }

    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let foreign_count = self.schedule.lock().stores.values().map(|of| of.foreign_count).sum();
        self.counters.metrics(foreign_count)
    }
}

fn request(storage: &Storage, folder: &Folder, timeout: Duration) -> RequestContext {
    let clock = &*storage.env().clock;
    RequestContext::with_timeout(clock, folder, timeout, Purpose::Maintenance)
}

impl StoreRun<'_> {
    fn run(&self, progress: &mut Progress) -> Result<Next, String> {
        let snapshot = self.bucket().snapshot(&self.request()).map_err(|error| error.to_string())?;
        let Some(snapshot) = snapshot else { return Ok(Next::Later) };
        self.expire(&snapshot).map_err(|error| format!("retention: {error}"))?;
        self.expire_by_schema(&snapshot).map_err(|error| format!("retention by schema: {error}"))?;
        self.remove_marked(&snapshot).map_err(|error| format!("removal of replaced blocks: {error}"))?;
        let mono_ns = self.parts.storage.env().clock.mono_ns();
        if progress.search_ns <= mono_ns {
            progress.foreign_count =
                self.mark_leftovers().map_err(|error| format!("search for leftovers: {error}"))?;
            progress.search_ns = mono_ns.saturating_add(SEARCH_INTERVAL_NS);
        }
        self.compact(&snapshot).map_err(|error| format!("compaction: {error}"))
    }

    fn compact(&self, snapshot: &Snapshot) -> Result<Next, String> {
        let BucketParts { storage, state, maintenance } = self.parts;
        let new_leases = || Leases::new(self.bucket().store().clone(), storage.env(), LEASE_DURATION);
        let refused = self.owner.refused.lock().clone();
        let compaction = BucketCompaction {
            storage,
            state,
            maintenance,
            leases: self.owner.leases.get_or_init(new_leases),
            counters: &self.owner.counters,
            store: self.store,
            folder: &self.folder,
            now_ms: self.now_ms,
            refused: &refused,
        };
        match compaction.run(snapshot)? {
            StepEnd::Idle => Ok(Next::Later),
            StepEnd::Replaced => Ok(Next::Soon),
            StepEnd::Damaged(blocks, error) => {
                tracing::error!(folder = %self.folder, ?blocks, error, "blocks in the bucket are not compacted, as they are damaged");
                self.owner.counters.refused_blocks.add(blocks.len() as u64);
                let mut refused = self.owner.refused.lock();
                if refused.len() >= REFUSED_MAX {
                    refused.clear();
                }
                refused.extend(blocks);
                Ok(Next::Soon)
            }
        }
    }

    fn bucket(&self) -> &Bucket {
        self.parts.state.bucket()
    }

    fn request(&self) -> RequestContext {
        request(self.parts.storage, &self.folder, STEP_TIMEOUT)
    }

    /// Blocks of the store that this process has.
    fn local_blocks(&self) -> Arc<Vec<Arc<BlockEntry>>> {
        self.parts.storage.blocks().tenant(self.store).map(|blocks| blocks.list()).unwrap_or_default()
    }

    fn expire(&self, snapshot: &Snapshot) -> Result<(), BucketError> {
        let retention_ms = self.parts.storage.limits_of(self.store).bucket_retention_ms;
        if retention_ms == 0 {
            return Ok(());
        }
        let unit = self.store.time_unit();
        let local: Vec<TimeRange> =
            self.local_blocks().iter().map(|entry| unit.range_to_ms(entry.range())).collect();
        let expiry = Expiry { oldest_ms: self.now_ms.saturating_sub(retention_ms), local: &local };
        if !snapshot.blocks.iter().any(|block| expiry.applies_to(block)) {
            return Ok(());
        }
        let request = self.request();
        let expired = self.bucket().wait(retire_expired(&self.run_with(&request), &expiry))?;
        self.owner.counters.expired_blocks.add(expired.len() as u64);
        if !expired.is_empty() {
            self.parts.state.read(&self.folder)?;
        }
        Ok(())
    }

    fn remove_marked(&self, snapshot: &Snapshot) -> Result<(), BucketError> {
        let delay = self.bucket().rules().delete_delay();
        if due_marks(snapshot, self.now_ms, delay).is_empty() {
            return Ok(());
        }
        let request = self.request();
        let run = self.run_with(&request);
        let removed = self.bucket().wait(async {
            let due = find_due(&run, delay).await?;
            remove_due(&run, &due).await
        })?;
        self.owner.counters.removed_blocks.add(removed.blocks.len() as u64);
        self.owner.counters.removed_bytes.add(removed.bytes);
        Ok(())
    }

    /// Returns the number of blocks of other programs that the catalogue does not name.
    fn mark_leftovers(&self) -> Result<u64, BucketError> {
        let kept: BTreeSet<Ulid> = self.local_blocks().iter().map(|entry| entry.ulid()).collect();
        let rules = LeftoverRules { age: LEFTOVER_AGE, kept: &kept, includes_foreign: false };
        let request = self.request();
        let run = self.run_with(&request);
        let searched = self.bucket().wait(async {
            let found = find_leftovers(&run, &rules).await?;
            let marked = mark_leftovers(&run, &found).await?;
            Ok((found, marked))
        });
        let (found, marked) = searched?;
        self.owner.counters.leftovers.add((marked.folder_count + marked.tombstones_count) as u64);
        if found.foreign_count > 0 {
            let blocks = found.foreign_count;
            let bytes = found.foreign_bytes;
            tracing::info!(folder = %self.folder, blocks, bytes, "unreferenced blocks of other programs found");
        }
        Ok(found.foreign_count)
    }

    fn run_with<'r>(&'r self, request: &'r RequestContext) -> MaintenanceRun<'r> {
        MaintenanceRun {
            store: self.bucket().store(),
            snapshots: self.bucket().snapshots(),
            request,
            now_ms: self.now_ms,
        }
    }
}
