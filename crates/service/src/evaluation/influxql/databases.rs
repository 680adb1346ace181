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

use crate::refusal::Refusal;
use crate::service::Service;

/// Source of the databases of all tenants.
#[derive(Clone)]
pub enum Databases {
    /// A server with a data directory.
    Local(Arc<Tsdb>),
    /// A read-only server.
    Bucket(Arc<BucketSources>),
}

/// Databases of one tenant during one request.
pub enum TenantDatabases {
    /// A server with a data directory.
    Local {
        /// The store.
        store: Arc<Tsdb>,
        /// Owner of the databases.
        tenant: TenantId,
    },
    /// A read-only server.
    Bucket {
        /// The bucket.
        sources: Arc<BucketSources>,
        /// Owner of the databases.
        tenant: TenantId,
        /// Databases at the start of the request.
        catalog: Arc<TenantCatalog>,
    },
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

    /// Users and databases of `tenant` in the data directory; a read-only server knows no users.
    pub fn local_catalog(&self, tenant: &TenantId) -> Option<Arc<TenantCatalog>> {
        match self {
            Databases::Local(store) => store.databases().catalog().of(tenant).cloned(),
            Databases::Bucket(_) => None,
        }
    }

    /// Waits until the databases of `tenant` are known. Called on a thread that may wait.
    ///
    /// # Errors
    /// If the bucket does not answer.
    pub fn known(&self, tenant: &TenantId, ctx: &ReadContext) -> Result<TenantDatabases, QueryError> {
        let tenant = tenant.clone();
        Ok(match self {
            Databases::Local(store) => {
                store.databases().await_known(&tenant, ctx)?;
                TenantDatabases::Local { store: store.clone(), tenant }
            }
            Databases::Bucket(sources) => {
                let catalog = sources.databases_of(&tenant, ctx)?;
                TenantDatabases::Bucket { sources: sources.clone(), tenant, catalog }
            }
        })
    }
}

impl TenantDatabases {
    /// The current catalogue.
    pub fn catalog(&self) -> Arc<TenantCatalog> {
        match self {
            TenantDatabases::Local { store, tenant } => {
                store.databases().catalog().of(tenant).cloned().unwrap_or_default()
            }
            TenantDatabases::Bucket { catalog, .. } => catalog.clone(),
        }
    }

    /// Series of a store with their types.
    pub fn typed(&self, store: &StoreId) -> Arc<dyn Queryable> {
        match self {
            TenantDatabases::Local { store: tsdb, .. } => tsdb.reader().typed_queryable(store),
            TenantDatabases::Bucket { sources, tenant, catalog } => {
                sources.typed_queryable(tenant, catalog, store).unwrap_or_else(|| Arc::new(NoSeries))
            }
        }
    }

    /// Fields `value` of a store as metrics.
    pub fn as_metrics(&self, store: &StoreId) -> Arc<dyn Queryable> {
        match self {
            TenantDatabases::Local { store: tsdb, .. } => tsdb.reader().as_metrics(store),
            TenantDatabases::Bucket { sources, tenant, catalog } => {
                sources.as_metrics(tenant, catalog, store).unwrap_or_else(|| Arc::new(NoSeries))
            }
        }
    }

    /// Series of other protocols as measurements.
    pub fn as_measurements(&self) -> Arc<dyn Queryable> {
        match self {
            TenantDatabases::Local { store, tenant } => store.reader().as_measurements(tenant),
            TenantDatabases::Bucket { sources, tenant, .. } => sources.as_measurements(tenant),
        }
    }

    /// Ranges of time in which a store may have samples.
    pub fn sample_ranges(&self, store: &StoreId, ctx: &ReadContext) -> Result<Vec<TimeRange>, QueryError> {
        match self {
            TenantDatabases::Local { store: tsdb, .. } => tsdb.reader().sample_ranges(store, ctx),
            TenantDatabases::Bucket { sources, tenant, catalog } => {
                sources.sample_ranges(tenant, catalog, store, ctx)
            }
        }
    }
}
