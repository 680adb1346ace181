//! Databases of a tenant: the store's, or on a read-only server the databases in the bucket.
//!
//! Invariants: a request sees one version of the catalogue of a read-only server; a name that is not in the
//! catalogue is missing only if all databases of the bucket are known.
//! Not here: statements (`storage`), users and privileges (`server`).

use std::sync::Arc;

use chronolith_model::databases::TenantCatalog;
use chronolith_model::query::NoSeries;
use chronolith_model::{QueryError, Queryable, ReadContext, StoreId, TenantId, TimeRange};
use chronolith_tsdb::{BucketSources, Tsdb};

use crate::access::Identity;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::write::destination::Destination;

/// Source of the databases of all tenants.
#[derive(Clone)]
pub enum Databases {
    /// A server with a data directory.
    Local(Arc<Tsdb>),
    /// A read-only server.
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
    /// A read-only server, with the databases at the start of the request.
    Bucket { sources: Arc<BucketSources>, catalog: Arc<TenantCatalog> },
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

    /// Waits until the databases of the tenant of `identity` are known. Called on a thread that may wait.
    ///
    /// # Errors
    /// If the bucket does not answer.
    pub fn known(&self, identity: &Identity, ctx: &ReadContext) -> Result<TenantDatabases, QueryError> {
        let tenant = identity.tenant();
        let origin = match self {
            Databases::Local(store) => {
                store.databases().await_known(tenant, ctx)?;
                Origin::Local(store.clone())
            }
            Databases::Bucket(sources) => {
                Origin::Bucket { sources: sources.clone(), catalog: sources.databases_of(tenant, ctx)? }
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

    /// The store; `None` on a read-only server.
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
            Origin::Bucket { catalog, .. } => catalog.clone(),
        }
    }

    /// Series of a store with their types that the sender may read.
    pub fn typed(&self, store: &StoreId) -> Arc<dyn Queryable> {
        self.identity.filtered(match &self.origin {
            Origin::Local(tsdb) => tsdb.reader().typed_queryable(store),
            Origin::Bucket { sources, catalog } => {
                sources.typed_queryable(self.tenant(), catalog, store).unwrap_or_else(|| Arc::new(NoSeries))
            }
        })
    }

    /// Fields `value` of a store as metrics that the sender may read.
    pub fn as_metrics(&self, store: &StoreId) -> Arc<dyn Queryable> {
        self.identity.filtered(match &self.origin {
            Origin::Local(tsdb) => tsdb.reader().as_metrics(store),
            Origin::Bucket { sources, catalog } => {
                sources.as_metrics(self.tenant(), catalog, store).unwrap_or_else(|| Arc::new(NoSeries))
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
            Origin::Bucket { sources, catalog } => sources.sample_ranges(self.tenant(), catalog, store, ctx),
        }
    }
}
