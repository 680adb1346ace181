//! Databases of a server without a data directory, as the bucket has them.
//!
//! Invariants: the first request of a tenant waits for them; a copy younger than the poll interval counts as
//! complete, an older one is read again, and stays in use if the bucket does not answer. If the newest copy
//! is damaged or missing, requests are refused until it can be read. A store has the same id in this process
//! as long as it has the same id in the bucket.
//! Not here: databases of a server with a data directory (`crate::databases`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_base::hash::HashMap;
use chronolith_bucket::snapshots::{Latest, SnapshotReader};
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext};
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::databases::{
    BucketDatabase, BucketPolicy, BucketStoreId, ContinuousQuery, Database, RetentionPolicy, TenantCatalog,
};
use chronolith_model::{QueryError, ReadContext, StoreId, TenantId};
use parking_lot::Mutex;
use tokio::runtime::Handle;

/// Tenants whose databases are in memory; of more, those that were read least recently are forgotten.
const TENANTS_MAX: usize = 10_000;
/// Longest time for reading the databases of a tenant.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Age from which databases are read again for a name that they do not have.
const MISS_AGE_NS: u64 = 1_000_000_000;

/// Databases of all tenants.
pub(crate) struct RemoteDatabases {
    reader: SnapshotReader<DatabasesSnapshot>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    poll_ns: u64,
    tenants: Mutex<HashMap<TenantId, Arc<Slot>>>,
}

/// Databases of one tenant.
#[derive(Default)]
struct Slot {
    current: Mutex<Option<Version>>,
    /// Held by the task that reads.
    reading: tokio::sync::Mutex<()>,
    /// Monotonic time of the last use, ns.
    used_ns: AtomicU64,
}

/// One version of the databases of a tenant.
#[derive(Clone)]
struct Version {
    catalog: Arc<TenantCatalog>,
    /// `None` if the bucket has none.
    latest: Option<Latest<DatabasesSnapshot>>,
    /// Start of the read, by the monotonic clock.
    read_ns: u64,
}

impl RemoteDatabases {
    pub(crate) fn new(
        reader: SnapshotReader<DatabasesSnapshot>,
        clock: Arc<dyn Clock>,
        handle: Handle,
        poll: Duration,
    ) -> Arc<RemoteDatabases> {
        let poll_ns = as_ns(poll);
        Arc::new(RemoteDatabases { reader, clock, handle, poll_ns, tenants: Mutex::default() })
    }

    /// Returns the databases of `tenant`, without users. The first call for a tenant waits on the calling
    /// thread, which is none of the runtime.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer the first call; as
    /// [`ReadContext::begin_wait`].
    pub(crate) fn of(
        self: &Arc<RemoteDatabases>,
        tenant: &TenantId,
        ctx: &ReadContext,
    ) -> Result<Arc<TenantCatalog>, QueryError> {
        ctx.check()?;
        let slot = self.slot(tenant);
        let current = slot.current.lock().clone();
        if let Some(version) = current {
            if self.clock.mono_ns().saturating_sub(version.read_ns) >= self.poll_ns {
                self.refresh(tenant.clone(), slot);
            }
            return Ok(version.catalog);
        }
        ctx.begin_wait()?;
        let timeout_ns = ctx.remaining_ns().min(as_ns(READ_TIMEOUT));
        self.handle.block_on(self.first(tenant, &slot, Duration::from_nanos(timeout_ns))).map_err(|error| {
            let what =
                format!("the databases of tenant {tenant} in the bucket cannot be read: {error}; try again");
            QueryError::Unavailable { what }
        })
    }

    /// As [`RemoteDatabases::of`], read again if they do not have the database `name`, unless they were read
    /// within [`MISS_AGE_NS`]: another process may have created it.
    ///
    /// # Errors
    /// As [`RemoteDatabases::of`]; if the bucket does not answer again, the last ones stay in use.
    pub(crate) fn with(
        self: &Arc<RemoteDatabases>,
        tenant: &TenantId,
        name: &str,
        ctx: &ReadContext,
    ) -> Result<Arc<TenantCatalog>, QueryError> {
        let known = self.of(tenant, ctx)?;
        let slot = self.slot(tenant);
        if known.database(name).is_some() || self.is_recent(&slot) {
            return Ok(known);
        }
        ctx.begin_wait()?;
        let timeout = Duration::from_nanos(ctx.remaining_ns().min(as_ns(READ_TIMEOUT)));
        let read = async {
            let _reading = slot.reading.lock().await;
            // Another request may have read them meanwhile.
            let current = slot.current.lock().clone();
            match current.filter(|_| self.is_recent(&slot)) {
                Some(version) => Ok(version.catalog),
                None => self.read(tenant, &slot, timeout).await,
            }
        };
        match self.handle.block_on(read) {
            Ok(catalog) => Ok(catalog),
            Err(error) => {
                tracing::warn!(%tenant, %error, "reading the databases in the bucket failed, the last ones stay in use");
                Ok(known)
            }
        }
    }

    /// Reads the databases of `tenant` after a change of this process, and returns them. Waits on the calling
    /// thread.
    ///
    /// # Errors
    /// As other requests.
    pub(crate) fn read_changed(
        &self,
        tenant: &TenantId,
        timeout: Duration,
    ) -> Result<Arc<TenantCatalog>, BucketError> {
        let slot = self.slot(tenant);
        self.handle.block_on(async {
            let _reading = slot.reading.lock().await;
            self.read(tenant, &slot, timeout).await
        })
    }

    /// Returns true if the last read began within [`MISS_AGE_NS`].
    fn is_recent(&self, slot: &Slot) -> bool {
        let read_ns = slot.current.lock().as_ref().map(|version| version.read_ns);
        read_ns.is_some_and(|read_ns| self.clock.mono_ns().saturating_sub(read_ns) < MISS_AGE_NS)
    }

    /// Returns the databases of `tenant` and the number of their version, without a request; `None` if they
    /// are not known yet.
    pub(crate) fn known(&self, tenant: &TenantId) -> Option<(Arc<TenantCatalog>, u64)> {
        let slot = self.tenants.lock().get(tenant).cloned()?;
        let current = slot.current.lock();
        let version = current.as_ref()?;
        let number = version.latest.as_ref().map_or(0, |latest| latest.snapshot.stamp.number);
        Some((version.catalog.clone(), number))
    }

    fn slot(&self, tenant: &TenantId) -> Arc<Slot> {
        let mut tenants = self.tenants.lock();
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant) {
            let unused = tenants.iter().min_by_key(|(_, slot)| slot.used_ns.load(Ordering::Relaxed));
            let unused = unused.map(|(tenant, _)| tenant.clone());
            unused.and_then(|tenant| tenants.remove(&tenant));
        }
        let slot = tenants.entry(tenant.clone()).or_default();
        slot.used_ns.store(self.clock.mono_ns(), Ordering::Relaxed);
        slot.clone()
    }

    async fn first(
        &self,
        tenant: &TenantId,
        slot: &Slot,
        timeout: Duration,
    ) -> Result<Arc<TenantCatalog>, BucketError> {
        let _reading = slot.reading.lock().await;
        // Another request may have read them meanwhile.
        if let Some(version) = slot.current.lock().clone() {
            return Ok(version.catalog);
        }
        self.read(tenant, slot, timeout).await
    }

    /// Reads them in the background, unless that is being done.
    fn refresh(self: &Arc<RemoteDatabases>, tenant: TenantId, slot: Arc<Slot>) {
        let databases = self.clone();
        self.handle.spawn(async move {
            let Ok(_reading) = slot.reading.try_lock() else { return };
            match databases.read(&tenant, &slot, READ_TIMEOUT).await {
                Ok(_) => {}
                Err(error @ BucketError::Corrupt { .. }) => {
                    tracing::error!(%tenant, %error, "databases in the bucket are damaged, refusing requests for them");
                    *slot.current.lock() = None;
                }
                Err(error) => {
                    tracing::warn!(%tenant, %error, "reading the databases in the bucket failed, the last ones stay in use");
                }
            }
        });
    }

    async fn read(
        &self,
        tenant: &TenantId,
        slot: &Slot,
        timeout: Duration,
    ) -> Result<Arc<TenantCatalog>, BucketError> {
        let request = RequestContext::with_timeout(&*self.clock, tenant, timeout, Purpose::Catalog);
        let read_ns = self.clock.mono_ns();
        let known = slot.current.lock().clone();
        let latest = match known.as_ref().and_then(|version| version.latest.as_ref()) {
            Some(latest) => self.reader.poll(&request, latest).await?,
            None => self.reader.read_latest(&request).await?,
        };
        let is_same = |version: &Version| match (&version.latest, &latest) {
            (Some(before), Some(after)) => before.snapshot.stamp == after.snapshot.stamp,
            (before, after) => before.is_none() && after.is_none(),
        };
        let catalog = match known.filter(is_same) {
            Some(version) => version.catalog,
            None => Arc::new(latest.as_ref().map(|latest| catalog_of(&latest.snapshot)).unwrap_or_default()),
        };
        *slot.current.lock() = Some(Version { catalog: catalog.clone(), latest, read_ns });
        Ok(catalog)
    }
}

/// Returns the folder of a store of `catalog`, and the duration of its policy in nanoseconds.
pub(crate) fn store_of<'a>(
    owner: &TenantId,
    catalog: &'a TenantCatalog,
    store: &StoreId,
) -> Option<(Folder, &'a RetentionPolicy)> {
    let policy = catalog.policies().find(|policy| policy.store == *store)?;
    Some((Folder::of_store(owner, policy.bucket_id?), policy))
}

fn catalog_of(snapshot: &DatabasesSnapshot) -> TenantCatalog {
    let databases = snapshot.content.databases.iter().map(database).collect();
    let graphite = snapshot.content.has_graphite.then(|| {
        let store = StoreId::Graphite { number: number_of(BucketStoreId::GRAPHITE) };
        RetentionPolicy::of_graphite(store, Some(BucketStoreId::GRAPHITE))
    });
    TenantCatalog { databases, graphite, ..TenantCatalog::default() }
}

fn database(copy: &BucketDatabase) -> Database {
    let query = |(name, text): &(String, String)| ContinuousQuery {
        name: name.clone(),
        text: text.clone(),
        last_run_ns: None,
    };
    Database {
        name: copy.name.clone(),
        default_policy: copy.default_policy.clone(),
        policies: copy.policies.iter().map(policy).collect(),
        continuous_queries: copy.continuous_queries.iter().map(query).collect(),
    }
}

fn policy(copy: &BucketPolicy) -> RetentionPolicy {
    RetentionPolicy {
        name: copy.name.clone(),
        duration_ns: copy.duration_ns,
        shard_group_ns: copy.shard_group_ns,
        replica_count: copy.replica_count,
        store: StoreId::Database { number: number_of(copy.id) },
        bucket_id: Some(copy.id),
    }
}

/// Number of a store in this process: bits of its id.
fn number_of(id: BucketStoreId) -> u64 {
    id.to_bytes().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
