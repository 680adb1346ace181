//! Upload of the database catalogue, which names Graphite stores too: the copy in the bucket follows the
//! local one, and the objects of dropped stores are removed after a delay.
//!
//! Invariants: an id of a store is durable in the local catalogue before the bucket sees it, and the bucket
//! names a store before it gets its first block; a local drop is remembered until the bucket has it. Each
//! step can be repeated after it died anywhere.
//! Not here: the rules of the copy (`model::databases`), reading it at the start (`adoption`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::backoff::Backoff;
use chronolith_base::hash::HashSet;
use chronolith_bucket::Folder;
use chronolith_bucket::snapshots::Change;
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::TenantId;
use chronolith_model::databases::{
    BucketDatabase, BucketStoreId, DatabaseCatalog, Recorded, RetentionPolicy, TenantCatalog,
};
use parking_lot::Mutex;

use super::adoption::{adopt_all, after_failed_read, ensure_known};
use crate::bucket::FolderOwner;
use crate::bucket::upload_state::{BLOCK_TIMEOUT, CATALOG_TIMEOUT, RETRY_PAUSES, UploadState, text};
use crate::storage::Storage;

/// Time between a drop and the removal of the objects: readers with an earlier copy end their queries, and an
/// operator can restore it.
const REMOVAL_DELAY_MS: i64 = 12 * 3_600_000;

/// Copies of the databases of all tenants, kept up to date by the upload thread.
#[derive(Default)]
pub(super) struct DatabaseUploads {
    owners: Mutex<BTreeMap<TenantId, OwnerProgress>>,
    /// Backoff of reading the databases of all tenants.
    adoption: Mutex<Backoff>,
}

/// Progress of one tenant.
#[derive(Default)]
struct OwnerProgress {
    recorded: Option<RecordedCopy>,
    backoff: Backoff,
}

/// The copy in the bucket as this process knows it.
struct RecordedCopy {
    /// Local catalogue that it follows.
    own: Arc<TenantCatalog>,
    /// Local databases as the bucket has them.
    databases: Vec<BucketDatabase>,
    /// Stores that it names.
    ids: HashSet<BucketStoreId>,
    /// Wall clock time of the next removal of a dropped store.
    removal_due_ms: Option<i64>,
}

impl DatabaseUploads {
    /// Returns true if the bucket names the store of `folder`, so that it may get blocks.
    pub(super) fn has_recorded(&self, folder: &Folder) -> bool {
        let Some(id) = folder.store() else { return true };
        let owners = self.owners.lock();
        let recorded = owners.get(folder.tenant()).and_then(|owner| owner.recorded.as_ref());
        recorded.is_some_and(|copy| copy.ids.contains(&id))
    }

    /// Brings the copies of all tenants up to date. Blocks the thread until then; a failure is logged,
    /// counted and retried by a later call.
    pub(super) fn run(&self, storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) {
        let with_drops = self.adopt(storage, state, is_stopped);
        let catalog = storage.databases().catalog();
        let with_databases = catalog.tenants.iter().filter(|(_, own)| own.has_stores());
        let mut owners: BTreeSet<TenantId> = with_databases.map(|(owner, _)| owner.clone()).collect();
        owners.extend(catalog.bucket_drops.iter().map(|drop| drop.owner.clone()));
        owners.extend(with_drops);
        owners.extend(self.owners.lock().keys().cloned());
        for owner in owners {
            if is_stopped.load(Ordering::SeqCst) {
                return;
            }
            self.run_owner(&OwnerUpload { storage, state, owner: &owner }, is_stopped);
        }
    }

    /// Reads the databases of all tenants of the bucket, until that is done; returns the tenants with dropped
    /// stores.
    fn adopt(&self, storage: &Storage, state: &UploadState, is_stopped: &AtomicBool) -> Vec<TenantId> {
        let clock = &storage.env().clock;
        let before = *self.adoption.lock();
        if state.known().is_complete() || !before.is_due(clock.mono_ns()) {
            return Vec::new();
        }
        match adopt_all(storage, state, is_stopped) {
            Ok(with_drops) => with_drops,
            Err(_) if is_stopped.load(Ordering::SeqCst) => Vec::new(),
            Err(error) => {
                *self.adoption.lock() = after_failed_read(storage, state, before, error);
                Vec::new()
            }
        }
    }

    fn run_owner(&self, upload: &OwnerUpload<'_>, is_stopped: &AtomicBool) {
        let clock = &upload.storage.env().clock;
        let catalog = upload.storage.databases().catalog();
        let own = catalog.of(upload.owner).cloned().unwrap_or_default();
        let has_drops = !drops_of(&catalog, upload.owner).is_empty();
        let backoff = {
            let owners = self.owners.lock();
            let progress = owners.get(upload.owner);
            let is_current = |copy: &RecordedCopy| copy.is_of(&own) && !copy.is_removal_due(clock.now_ms());
            let recorded = progress.and_then(|progress| progress.recorded.as_ref());
            if recorded.is_some_and(is_current) && !has_drops {
                return;
            }
            progress.map(|progress| progress.backoff).unwrap_or_default()
        };
        if !backoff.is_due(clock.mono_ns()) {
            return;
        }
        let progress = match upload.run() {
            Ok(copy) if !copy.own.has_stores() && copy.removal_due_ms.is_none() => {
                self.owners.lock().remove(upload.owner);
                return;
            }
            Ok(copy) => OwnerProgress { recorded: Some(copy), backoff: Backoff::default() },
            Err(_) if is_stopped.load(Ordering::SeqCst) => return,
            Err(error) => {
                let backoff = backoff.after_failure(clock.mono_ns(), RETRY_PAUSES);
                let tenant = upload.owner;
                let retry_s = backoff.pause_s();
                tracing::error!(%tenant, error, retry_s, "uploading the databases failed, retrying after retry_s");
                upload.state.counters().count_failure();
                OwnerProgress { recorded: None, backoff }
            }
        };
        self.owners.lock().insert(upload.owner.clone(), progress);
    }
}

impl RecordedCopy {
    /// Returns true if the bucket has the databases of `own`.
    fn is_of(&self, own: &Arc<TenantCatalog>) -> bool {
        let has = |policy: &RetentionPolicy| policy.bucket_id.is_some_and(|id| self.ids.contains(&id));
        let is_equal = || own.databases.iter().map(BucketDatabase::of).eq(self.databases.iter().cloned());
        // Runs of continuous queries change the local catalogue alone.
        Arc::ptr_eq(&self.own, own) || own.policies().all(has) && is_equal()
    }

    fn is_removal_due(&self, now_ms: i64) -> bool {
        self.removal_due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }
}

/// Dropped stores of `owner` that the bucket may still name.
fn drops_of(catalog: &DatabaseCatalog, owner: &TenantId) -> Vec<BucketStoreId> {
    catalog.bucket_drops.iter().filter(|drop| drop.owner == *owner).map(|drop| drop.id).collect()
}

/// Work on the databases of one tenant.
pub(super) struct OwnerUpload<'a> {
    pub(super) storage: &'a Storage,
    pub(super) state: &'a UploadState,
    pub(super) owner: &'a TenantId,
}

impl OwnerUpload<'_> {
    fn run(&self) -> Result<RecordedCopy, String> {
        let databases = self.storage.databases();
        ensure_known(self.storage, self.state, self.owner, CATALOG_TIMEOUT)?;
        let catalog = databases.assign_bucket_ids(self.owner).map_err(text)?;
        let drops = drops_of(&catalog, self.owner);
        let own = catalog.of(self.owner).cloned().unwrap_or_default();
        let now_ms = self.storage.env().clock.now_ms();
        let mut recorded = Recorded::default();
        let snapshot = self.update(|snapshot| {
            recorded = snapshot.content.record(&own, &drops, now_ms);
            recorded.is_changed
        })?;
        for (database, policy, id) in &recorded.displaced {
            tracing::error!(
                tenant = %self.owner, database, policy, store = %id,
                "a local database replaces another one of the bucket with this name, whose objects are kept"
            );
        }
        if !drops.is_empty() {
            databases.forget_bucket_drops(&drops).map_err(text)?;
            drops.iter().for_each(|id| self.state.forget(&Folder::of_store(self.owner, *id)));
        }
        let snapshot = self.remove_dropped(snapshot)?;
        let dropped = snapshot.content.dropped.iter();
        let removal_due_ms = dropped.map(|dropped| dropped.dropped_ms.saturating_add(REMOVAL_DELAY_MS)).min();
        let databases = own.databases.iter().map(BucketDatabase::of).collect();
        Ok(RecordedCopy { databases, own, ids: snapshot.content.ids().collect(), removal_due_ms })
    }

    /// Applies `change`, which returns true if the snapshot is to be written.
    fn update(
        &self,
        mut change: impl FnMut(&mut DatabasesSnapshot) -> bool,
    ) -> Result<Arc<DatabasesSnapshot>, String> {
        let request = self.state.catalog_request(&Folder::of_tenant(self.owner));
        let change = |snapshot: &mut DatabasesSnapshot| match change(snapshot) {
            true => Change::Write,
            false => Change::Keep,
        };
        let updated = self.state.bucket().update_databases(&request, change).map_err(text)?;
        Ok(updated.unwrap_or_default())
    }

    /// Removes the objects of stores that were dropped long enough ago, then their entries.
    pub(super) fn remove_dropped(
        &self,
        snapshot: Arc<DatabasesSnapshot>,
    ) -> Result<Arc<DatabasesSnapshot>, String> {
        let oldest_ms = self.storage.env().clock.now_ms().saturating_sub(REMOVAL_DELAY_MS);
        let due = snapshot.content.dropped.iter().filter(|dropped| dropped.dropped_ms <= oldest_ms);
        let due: HashSet<BucketStoreId> = due.map(|dropped| dropped.id).collect();
        if due.is_empty() {
            return Ok(snapshot);
        }
        for id in &due {
            let request = self.state.request(&Folder::of_store(self.owner, *id), BLOCK_TIMEOUT);
            let objects = self.state.bucket().remove_folder(FolderOwner::Store, &request).map_err(text)?;
            tracing::info!(folder = %request.folder, objects, "dropped store removed from the bucket");
        }
        self.update(|snapshot| {
            let before = snapshot.content.dropped.len();
            snapshot.content.dropped.retain(|dropped| !due.contains(&dropped.id));
            snapshot.content.dropped.len() < before
        })
    }
}
