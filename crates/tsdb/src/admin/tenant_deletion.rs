//! Steps of the deletion of a tenant: rules, bucket, databases, head, blocks, and what else has its name.
//!
//! Invariants: each step may be repeated, so a deletion that died anywhere begins again; other tenants
//! keep everything. Uploads and the maintenance of the bucket wait meanwhile, so no object of the tenant
//! is written after the removal. The samples in the WAL are gone before the mark is.
//! Not here: marks and progress (`tenant_deletions`).

use std::io;

use chronolith_bucket::snapshots::Change;
use chronolith_bucket::{BucketError, BucketLayout, Folder};
use chronolith_format::store_name;
use chronolith_head::{DeleteProgress, HeadError};
use chronolith_model::databases::{BucketDatabases, BucketStoreId};
use chronolith_model::{StoreId, TenantId, TimeRange};

use super::Admin;
use super::error::AdminError;
use crate::bucket::FolderOwner;
use crate::bucket::upload_state::BLOCK_TIMEOUT;
use crate::exemplars::ExemplarStorage;
use crate::maintenance::store_removal::remove_samples;
use crate::storage::Storage;
use crate::tenant_deletions::{DeletionState, DeletionStep, TenantDeletions};

/// Deletions of tenants, see [`crate::Tsdb::tenant_deletions`].
pub struct TenantDeletionJobs<'a> {
    storage: &'a Storage,
    admin: Admin<'a>,
    exemplars: &'a ExemplarStorage,
}

impl<'a> TenantDeletionJobs<'a> {
    pub(crate) fn new(
        storage: &'a Storage,
        admin: Admin<'a>,
        exemplars: &'a ExemplarStorage,
    ) -> TenantDeletionJobs<'a> {
        TenantDeletionJobs { storage, admin, exemplars }
    }

    /// Marks `tenant`, so that [`TenantDeletionJobs::run`] removes all of its data, also after a crash.
    /// Writes of the tenant are refused until it is done; then the name may be used again. Returns when the
    /// mark is durable.
    ///
    /// # Errors
    /// [`AdminError::Io`], and [`AdminError::Bucket`] for a bucket in Thanos's layout, where tenants have no
    /// folders; nothing is deleted.
    pub fn begin(&self, tenant: &TenantId) -> Result<(), AdminError> {
        let layout = self.storage.uploads().map(|state| state.bucket().store().layout());
        if layout.is_some_and(|layout| *layout != BucketLayout::Mimir) {
            let why = "a tenant can be deleted in Mimir's layout alone (bucket.layout)";
            return Err(AdminError::Bucket(why.to_owned()));
        }
        let begun = self.deletions().begin(tenant);
        begun.map_err(|error| AdminError::Io { path: "tenant-deletions".into(), error })?;
        tracing::info!(%tenant, "deletion of a tenant begins");
        Ok(())
    }

    /// Returns the state of the deletion of a tenant; `None` if there was none since the start.
    #[must_use]
    pub fn state_of(&self, tenant: &TenantId) -> Option<DeletionState> {
        self.deletions().state_of(tenant)
    }

    /// Returns true if a tenant is being deleted.
    #[must_use]
    pub fn is_running(&self, tenant: &TenantId) -> bool {
        matches!(self.state_of(tenant), Some(DeletionState::Running(_)))
    }

    /// Number of tenants that are being deleted.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.deletions().marked().len()
    }

    /// Number of tenants that were deleted since the start.
    #[must_use]
    pub fn done_count(&self) -> u64 {
        self.deletions().done_count()
    }

    /// Number of failed attempts since the start.
    #[must_use]
    pub fn failure_count(&self) -> u64 {
        self.deletions().failure_count()
    }

    /// Deletes the marked tenants. To be called every second, on a thread of its own. A failure is logged,
    /// counted and retried by a later call.
    ///
    /// For each tenant, `delete_rules` removes first what the caller keeps of it below the data directory. It
    /// may be called again after it has succeeded. The tenant waits for a later call if it returns false.
    pub fn run(&self, delete_rules: impl Fn(&TenantId) -> io::Result<bool>) {
        for tenant in self.deletions().marked() {
            let deletions = self.deletions();
            match self.delete_all(&tenant, &delete_rules) {
                Ok(true) => tracing::info!(%tenant, "tenant deleted"),
                Ok(false) => {}
                Err(AdminError::Closed) => return,
                Err(error) => {
                    tracing::error!(%tenant, %error, "deleting a tenant failed, retrying");
                    deletions.fail(&tenant, error.to_string());
                }
            }
        }
    }

    fn deletions(&self) -> &TenantDeletions {
        self.storage.tenant_deletions()
    }

    fn begin_step(&self, tenant: &TenantId, step: DeletionStep) {
        self.deletions().update(tenant, |progress| progress.step = step);
    }

    /// Deletes a tenant and its mark. Returns false if it has to wait.
    fn delete_all(
        &self,
        tenant: &TenantId,
        delete_rules: impl Fn(&TenantId) -> io::Result<bool>,
    ) -> Result<bool, AdminError> {
        let failed = |path: &str, error| AdminError::Io { path: path.into(), error };
        if !delete_rules(tenant).map_err(|error| failed("rules", error))? {
            return Ok(false);
        }
        self.delete(tenant)?;
        self.deletions().finish(tenant).map_err(|error| failed("tenant-deletions", error))?;
        Ok(true)
    }

    fn delete(&self, tenant: &TenantId) -> Result<(), AdminError> {
        // Uploads and maintenance of the bucket end their rounds first.
        let _bucket = self.storage.bucket_rounds().write();
        self.begin_step(tenant, DeletionStep::Bucket);
        self.delete_in_bucket(tenant)?;
        let _maintenance = self.admin.lock()?;
        self.begin_step(tenant, DeletionStep::Databases);
        let databases = self.storage.databases();
        databases.remove_tenant(tenant).map_err(|error| AdminError::Catalog(error.to_string()))?;
        // Stores that were dropped earlier are due as well, whoever had them.
        let mut stores = databases.catalog().dropped.clone();
        stores.push(StoreId::from(tenant));
        self.begin_step(tenant, DeletionStep::Head);
        let mut removed_stores = Vec::new();
        for store in stores {
            let removed = remove_samples(self.storage, &store)?;
            self.deletions().update(tenant, |progress| {
                progress.head_sample_count += removed.sample_count;
                progress.block_count += removed.block_count;
            });
            removed_stores.push(store);
        }
        self.forget_in_head(tenant)?;
        self.begin_step(tenant, DeletionStep::Blocks);
        self.storage.blocks().commit();
        for store in &removed_stores {
            if let Some(blocks) = self.storage.blocks().tenant(store) {
                self.storage.blocks().remove_files(&blocks)?;
            }
            tracing::info!(store = %store_name(store), "samples of a deleted tenant removed");
        }
        self.begin_step(tenant, DeletionStep::Metadata);
        self.exemplars.remove(&StoreId::from(tenant));
        let failed = |error| AdminError::Head(HeadError::from(error));
        self.storage.metadata().remove(&removed_stores).map_err(failed)?;
        self.storage.graphite().remove_tenant(tenant).map_err(failed)?;
        self.storage.note_change(&StoreId::from(tenant), TimeRange::ALL);
        Ok(())
    }

    /// Deletes what the head keeps of series without chunks, and makes sure that no restart reads their
    /// samples from the WAL.
    fn forget_in_head(&self, tenant: &TenantId) -> Result<(), AdminError> {
        let head = self.storage.head();
        // A series whose last sample is in a block still remembers it: the same sample, sent again under the
        // name of the tenant, would be taken for a duplicate and not be stored.
        let all_series = [Vec::new()];
        let deleted =
            head.delete(&StoreId::from(tenant), &all_series, TimeRange::ALL, &DeleteProgress::default());
        let (_, position) = deleted.map_err(HeadError::from)?;
        head.wait(position).map_err(HeadError::from)?;
        Ok(head.checkpointer().settle_drops()?)
    }

    /// Empties the lists of blocks and databases, and removes all other objects in the folder of the tenant.
    /// Empty lists stay: other readers would not notice that one is gone, and a later tenant of this name
    /// goes on with their numbers.
    fn delete_in_bucket(&self, tenant: &TenantId) -> Result<(), AdminError> {
        let Some(state) = self.storage.uploads() else { return Ok(()) };
        let bucket = state.bucket();
        let failed = |error: BucketError| AdminError::Bucket(error.to_string());
        for folder in [Folder::of_tenant(tenant), Folder::of_store(tenant, BucketStoreId::GRAPHITE)] {
            let emptied = bucket.update(&state.catalog_request(&folder), |snapshot| {
                let is_empty = snapshot.blocks.is_empty() && snapshot.deletion_marks.is_empty();
                snapshot.blocks.clear();
                snapshot.deletion_marks.clear();
                if is_empty { Change::Keep } else { Change::Write }
            });
            if let Some(snapshot) = emptied.map_err(failed)? {
                // Queries of this process find nothing from here on.
                state.record(&folder, &snapshot).map_err(failed)?;
            }
        }
        let folder = Folder::of_tenant(tenant);
        let emptied = bucket.update_databases(&state.catalog_request(&folder), |snapshot| {
            let before = std::mem::take(&mut snapshot.content);
            if before == BucketDatabases::default() { Change::Keep } else { Change::Write }
        });
        emptied.map_err(failed)?;
        let request = state.request(&folder, BLOCK_TIMEOUT);
        let object_count = bucket.remove_folder(FolderOwner::Tenant, &request).map_err(failed)?;
        self.deletions().update(tenant, |progress| progress.object_count += object_count as u64);
        state.forget_tenant(tenant);
        Ok(())
    }
}
