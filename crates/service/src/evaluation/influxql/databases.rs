//! Databases of a tenant: of the store, or of the bucket on a server without a store. Gateways and query
//! nodes of a cluster change the latter.
//!
//! Invariants: a request sees one version of the catalogue of the bucket, and its own changes; a name that is
//! not in the catalogue is missing only if all databases of the bucket are known.
//! Not here: statements (`storage`), users and privileges (`server`).

use std::sync::Arc;

use chronolith_model::databases::{CatalogChange, CatalogError, TenantCatalog};
use chronolith_model::query::NoSeries;
use chronolith_model::{QueryError, Queryable, ReadContext, StoreId, TenantId, TimeRange};
use chronolith_tsdb::{BucketSources, Tsdb};
use parking_lot::Mutex;

use crate::access::Identity;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::write::destination::Destination;

/// Source of the databases of all tenants.
#[derive(Clone)]
pub enum Databases {
    /// A server with a data directory.
    Local(Arc<Tsdb>),
    /// A server without a data directory.
    Bucket(Arc<BucketSources>),
}

/// Databases of one tenant during one request of one sender.
pub struct TenantDatabases {
    identity: Identity,
    origin: Origin,
}

enum Origin {
    /// A server with a data directory.
    Local(Arc<Tsdb>),
    /// A server without a data directory, with the databases at the start of the request or after its last
    /// change.
    Bucket { sources: Arc<BucketSources>, catalog: Mutex<Arc<TenantCatalog>> },
}

impl Databases {
    /// Databases of the store, or of the bucket on a read-only server.
    ///
    /// # Errors
    /// While the server starts or stops.
    pub fn of(service: &Service) -> Result<Databases, Refusal> {
        service.lifecycle.source()?;
        match (service.lifecycle.opened(), service.bucket.get()) {
            (Some(store), _) => Ok(Databases::Local(store.clone())),
            (None, Some(bucket)) => Ok(Databases::Bucket(bucket.clone())),
            (None, None) => Err(Refusal::Starting("the store is not open".to_owned())),
        }
    }

    /// Databases that statements on the catalogue alone read and change: as [`Databases::of`], and the
    /// databases of the bucket on a gateway, which has no samples.
    ///
    /// # Errors
    /// While the server starts or stops.
    pub fn of_catalog(service: &Service) -> Result<Databases, Refusal> {
        match service.lifecycle.roles.gateway() {
            Some(_) => Databases::written_to(service, &service.lifecycle.destination()?),
            None => Databases::of(service),
        }
    }

    /// Databases that writes to `destination` name.
    ///
    /// # Errors
    /// A gateway without a bucket, which is still starting.
    pub fn written_to(service: &Service, destination: &Destination) -> Result<Databases, Refusal> {
        match destination {
            Destination::Store(store) => Ok(Databases::Local(store.clone())),
            Destination::Log(_) => match service.bucket.get() {
                Some(bucket) => Ok(Databases::Bucket(bucket.clone())),
                None => Err(Refusal::Starting("the bucket is being opened".to_owned())),
            },
        }
    }

    /// Users and databases of `tenant` in the data directory; a read-only server knows no users.
    pub fn local_catalog(&self, tenant: &TenantId) -> Option<Arc<TenantCatalog>> {
        match self {
            Databases::Local(store) => store.databases().catalog().of(tenant).cloned(),
            Databases::Bucket(_) => None,
        }
    }

    /// Waits until the databases of the tenant of `identity` are known, among them `database` if that exists.
    /// Called on a thread that may wait.
    ///
    /// # Errors
    /// If the bucket does not answer.
    pub fn known(
        &self,
        identity: &Identity,
        database: &str,
        ctx: &ReadContext,
    ) -> Result<TenantDatabases, QueryError> {
        let tenant = identity.tenant();
        let origin = match self {
            Databases::Local(store) => {
                store.databases().await_known(tenant, ctx)?;
                Origin::Local(store.clone())
            }
            Databases::Bucket(sources) => {
                let catalog = match database {
                    "" => sources.databases_of(tenant, ctx)?,
                    database => sources.databases_with(tenant, database, ctx)?,
                };
                Origin::Bucket { sources: sources.clone(), catalog: Mutex::new(catalog) }
            }
        };
        Ok(TenantDatabases { identity: identity.clone(), origin })
    }
}

impl TenantDatabases {
    /// Databases of the data directory, which are known.
    pub fn of_store(store: Arc<Tsdb>, identity: Identity) -> TenantDatabases {
        TenantDatabases { identity, origin: Origin::Local(store) }
    }

    /// The store; `None` on a server without one.
    pub fn store(&self) -> Option<&Arc<Tsdb>> {
        match &self.origin {
            Origin::Local(store) => Some(store),
            Origin::Bucket { .. } => None,
        }
    }

    /// Sender of the request.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    fn tenant(&self) -> &TenantId {
        self.identity.tenant()
    }

    /// The current catalogue.
    pub fn catalog(&self) -> Arc<TenantCatalog> {
        match &self.origin {
            Origin::Local(store) => {
                store.databases().catalog().of(self.tenant()).cloned().unwrap_or_default()
            }
            Origin::Bucket { catalog, .. } => catalog.lock().clone(),
        }
    }

    /// Changes the databases, durably.
    ///
    /// # Errors
    /// [`CatalogError`]; a server that only reads refuses all changes.
    pub fn change(&self, service: &Service, change: &CatalogChange) -> Result<(), CatalogError> {
        let refused = |refusal: Refusal| CatalogError::Storage(refusal.to_string());
        match &self.origin {
            Origin::Local(_) => {
                let store = service.lifecycle.store().map_err(refused)?;
                store.databases().change(self.tenant(), change)
            }
            Origin::Bucket { sources, catalog } => {
                if !service.lifecycle.roles.changes_bucket_databases() {
                    return Err(refused(Refusal::ReadOnly));
                }
                check_supported(change)?;
                *catalog.lock() = sources.change_databases(self.tenant(), change)?;
                // An owner in this process would notice later.
                if let Some(store) = service.lifecycle.opened()
                    && let Err(error) = store.databases().read_again(self.tenant())
                {
                    tracing::warn!(tenant = %self.tenant(), error, "the databases were changed, and this process could not read them, it tries again later");
                }
                Ok(())
            }
        }
    }

    /// Series of a store with their types that the sender may read.
    pub fn typed(&self, store: &StoreId) -> Arc<dyn Queryable> {
        self.identity.filtered(match &self.origin {
            Origin::Local(tsdb) => tsdb.reader().typed_queryable(store),
            Origin::Bucket { sources, catalog } => {
                let found = sources.typed_queryable(self.tenant(), &catalog.lock(), store);
                found.unwrap_or_else(|| Arc::new(NoSeries))
            }
        })
    }

    /// Fields `value` of a store as metrics that the sender may read.
    pub fn as_metrics(&self, store: &StoreId) -> Arc<dyn Queryable> {
        self.identity.filtered(match &self.origin {
            Origin::Local(tsdb) => tsdb.reader().as_metrics(store),
            Origin::Bucket { sources, catalog } => {
                let found = sources.as_metrics(self.tenant(), &catalog.lock(), store);
                found.unwrap_or_else(|| Arc::new(NoSeries))
            }
        })
    }

    /// Series of other protocols as measurements that the sender may read.
    pub fn as_measurements(&self) -> Arc<dyn Queryable> {
        self.identity.filtered(match &self.origin {
            Origin::Local(store) => store.reader().as_measurements(self.tenant()),
            Origin::Bucket { sources, .. } => sources.as_measurements(self.tenant()),
        })
    }

    /// Ranges of time in which a store may have samples.
    pub fn sample_ranges(&self, store: &StoreId, ctx: &ReadContext) -> Result<Vec<TimeRange>, QueryError> {
        match &self.origin {
            Origin::Local(tsdb) => tsdb.reader().sample_ranges(store, ctx),
            Origin::Bucket { sources, catalog } => {
                let catalog = catalog.lock().clone();
                sources.sample_ranges(self.tenant(), &catalog, store, ctx)
            }
        }
    }
}

/// Refuses changes that a cluster has no place for: users are in no bucket, and nothing runs continuous
/// queries there.
fn check_supported(change: &CatalogChange) -> Result<(), CatalogError> {
    use CatalogChange as C;
    let what = match change {
        C::CreateDatabase { .. }
        | C::CreateGraphiteStore
        | C::DropDatabase { .. }
        | C::CreatePolicy { .. }
        | C::AlterPolicy { .. }
        | C::DropPolicy { .. }
        | C::DropContinuousQuery { .. } => return Ok(()),
        C::CreateContinuousQuery { .. } | C::SetLastRun { .. } => "no continuous queries",
        C::CreateUser { .. }
        | C::DropUser { .. }
        | C::SetPassword { .. }
        | C::SetPrivilege { .. }
        | C::SetAdmin { .. } => "no users of InfluxDB, use an access file (--access.file)",
    };
    Err(CatalogError::Storage(format!("a cluster has {what}")))
}
