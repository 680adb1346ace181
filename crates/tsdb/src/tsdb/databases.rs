//! Databases of InfluxDB clients and Graphite stores of all tenants: the catalogue as others read and change
//! it.
//!
//! Not here: the file of the catalogue (`crate::databases`), its copy in the bucket (`upload::databases`).

use std::sync::Arc;
use std::time::Duration;

use chronolith_model::databases::{CatalogChange, CatalogError, DatabaseCatalog};
use chronolith_model::{QueryError, ReadContext, StoreId, TenantId, TimeRange};

use crate::query::view::{await_databases, knows_databases};
use crate::storage::Storage;
use crate::upload::adoption::read_again;

/// Longest time of a read of databases that another process has changed.
const READ_AGAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Databases of all tenants, see [`crate::Tsdb::databases`].
pub struct Databases<'a> {
    pub(super) storage: &'a Storage,
}

impl Databases<'_> {
    /// Returns the databases of all tenants: one version of the catalogue.
    #[must_use]
    pub fn catalog(&self) -> Arc<DatabaseCatalog> {
        self.storage.databases().catalog()
    }

    /// Returns true if [`Databases::catalog`] has all databases of `tenant`. Databases that only the bucket
    /// has are read in the background after the start: until then a name that is not in the catalogue may
    /// exist.
    #[must_use]
    pub fn are_known(&self, tenant: &TenantId) -> bool {
        knows_databases(self.storage, tenant)
    }

    /// Waits until [`Databases::are_known`]. Cost the first time: two requests to the bucket.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer; as [`ReadContext::begin_wait`].
    pub fn await_known(&self, tenant: &TenantId, ctx: &ReadContext) -> Result<(), QueryError> {
        await_databases(self.storage, tenant, ctx)
    }

    /// Reads the databases of `tenant` in the bucket again, and adds those that are new there. Waits on the
    /// calling thread for a bounded time; without a bucket it does nothing.
    ///
    /// # Errors
    /// The text for logs: the bucket does not answer, or has damaged databases.
    pub fn read_again(&self, tenant: &TenantId) -> Result<(), String> {
        let Some(uploads) = self.storage.uploads() else { return Ok(()) };
        read_again(self.storage, uploads, tenant, READ_AGAIN_TIMEOUT)
    }

    /// Changes the databases of `tenant` and returns when the change is durable. The samples of dropped
    /// stores cannot be read any more then; a maintenance job removes them.
    ///
    /// # Errors
    /// [`CatalogError`]: nothing changed, now or after a restart, unless the text says that it may have.
    pub fn change(&self, tenant: &TenantId, change: &CatalogChange) -> Result<(), CatalogError> {
        let permit = self.storage.tenant_deletions().admit(tenant);
        let _permit = permit.map_err(|refused| CatalogError::Storage(refused.to_string()))?;
        self.storage.databases().change(tenant, change)?;
        if !matches!(change, CatalogChange::SetLastRun { .. }) {
            self.storage.changes().note_range(&tenant.into(), TimeRange::ALL);
        }
        let is_of_tenant =
            |store: &StoreId| self.storage.databases().owner_of(store).as_ref() == Some(tenant);
        self.storage.blocks().mark_changed_if(|store| !store.is_default() && is_of_tenant(store));
        Ok(())
    }
}
