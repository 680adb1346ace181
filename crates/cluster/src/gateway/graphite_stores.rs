//! Graphite stores of tenants: the databases of the bucket name one before a record has points for it, since
//! owners find it there.
//!
//! Invariants: a store that was found or created is never removed from the bucket by a gateway; at most
//! [`TENANTS_MAX`] tenants are in memory, a forgotten one is read again.
//! Not here: databases of InfluxDB clients, which a gateway does not create.

use std::sync::Arc;
use std::time::Duration;

use chronolith_base::hash::HashSet;
use chronolith_base::{Clock, Env};
use chronolith_bucket::snapshots::{Change, Snapshots};
use chronolith_bucket::{Folder, Purpose, RequestContext, Store};
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::TenantId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Tenants in memory whose store is known.
const TENANTS_MAX: usize = 100_000;
/// Longest time of a read, or of the creation of a store.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(10);

/// Graphite stores of all tenants.
pub(super) struct GraphiteStores {
    snapshots: Snapshots<DatabasesSnapshot>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    known: Mutex<HashSet<TenantId>>,
}

impl GraphiteStores {
    /// No store is known. Sends no request.
    pub(super) fn new(store: Arc<Store>, env: &Env, handle: Handle) -> GraphiteStores {
        GraphiteStores {
            snapshots: Snapshots::of_kind(store, env),
            clock: env.clock.clone(),
            handle,
            known: Mutex::default(),
        }
    }

    /// Returns true if the bucket names the Graphite store of a tenant. Blocks the thread.
    ///
    /// # Errors
    /// As [`GraphiteStores::ensure`].
    pub(super) fn exists(&self, tenant: &TenantId) -> Result<bool, String> {
        if self.known.lock().contains(tenant) {
            return Ok(true);
        }
        let folder = Folder::of_tenant(tenant);
        let request = RequestContext::with_timeout(&*self.clock, folder, UPDATE_TIMEOUT, Purpose::Catalog);
        let read = self.handle.block_on(self.snapshots.reader().read_latest(&request));
        let latest = read.map_err(|error| error.to_string())?;
        Ok(latest.is_some_and(|latest| latest.snapshot.content.has_graphite))
    }

    /// Makes sure that the bucket names the Graphite store of a tenant. The first call for a tenant reads the
    /// bucket, and blocks the thread.
    ///
    /// # Errors
    /// The bucket does not answer, or its databases are damaged; the text says which.
    pub(super) fn ensure(&self, tenant: &TenantId) -> Result<(), String> {
        if self.known.lock().contains(tenant) {
            return Ok(());
        }
        let folder = Folder::of_tenant(tenant);
        let request = RequestContext::with_timeout(&*self.clock, folder, UPDATE_TIMEOUT, Purpose::Catalog);
        let updated = self.snapshots.update(&request, |snapshot| {
            if snapshot.content.has_graphite {
                return Change::Keep;
            }
            snapshot.content.has_graphite = true;
            Change::Write
        });
        self.handle.block_on(updated).map_err(|error| error.to_string())?;
        let mut known = self.known.lock();
        if known.len() >= TENANTS_MAX {
            known.clear();
        }
        known.insert(tenant.clone());
        Ok(())
    }
}
