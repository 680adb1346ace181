//! Destination of samples: the store of the process, or the replicated log (ADR 0137).
//!
//! Invariants: a process has one destination for all protocols; one match per batch is all that a server of
//! its own pays for the other one.
//! Not here: records of the log (`cluster`), choice of the destination (`lifecycle`).

use std::fmt;
use std::sync::Arc;

use chronolith_cluster::gateway::{
    Acknowledged, Gateway, GatewayError, GatewayWrite, PendingRecords, RecordStore,
};
use chronolith_model::databases::{BucketStoreId, CatalogChange, CatalogError};
use chronolith_model::{DuplicatePolicy, StoreId, TenantId, WriteBatch};
use chronolith_tsdb::{Tsdb, WriteError, Writer};

use super::failure::StoreFailure;

/// Destination of samples.
#[derive(Clone)]
pub enum Destination {
    /// The store of the process.
    Store(Arc<Tsdb>),
    /// The replicated log.
    Log(Arc<Gateway>),
}

/// Store of the samples of a request.
#[derive(Clone, Copy)]
pub enum TargetStore<'a> {
    /// The default store of the tenant.
    Default,
    /// The store of a retention policy, which exists.
    Policy {
        /// Store in the process.
        store: &'a StoreId,
        /// Id in the bucket, by which owners of a cluster find it; `None` if it has none.
        id: Option<BucketStoreId>,
    },
    /// The Graphite store of the tenant, which is created before its first point.
    Graphite,
}

/// Batches of one request that were handed to their destination, and are not durable yet.
#[must_use = "samples are acknowledged once they are durable"]
pub enum Applied {
    /// Visible in the store, queued for its WAL.
    Store(chronolith_tsdb::Applied),
    /// Queued for the replicated log.
    Log(PendingRecords),
}

impl Applied {
    /// Bytes that are queued for the WAL.
    #[must_use]
    pub fn wal_bytes(&self) -> u64 {
        match self {
            Applied::Store(applied) => applied.wal_bytes(),
            Applied::Log(_) => 0,
        }
    }

    /// Joins a later batch of the same request, which is acknowledged together with this one.
    ///
    /// # Panics
    /// If they have different destinations.
    pub fn join(self, later: Applied) -> Applied {
        match (self, later) {
            (Applied::Store(before), Applied::Store(later)) => Applied::Store(before.join(later)),
            (Applied::Log(before), Applied::Log(later)) => Applied::Log(before.join(later)),
            (Applied::Store(_), Applied::Log(_)) | (Applied::Log(_), Applied::Store(_)) => {
                panic!("a process has one destination")
            }
        }
    }
}

/// Failure of a destination before it is counted.
pub(super) enum Failure {
    /// The store, or the rate limit of a gateway.
    Write(WriteError),
    /// Failures that no limit of a batch has caused.
    Other(StoreFailure),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        Failure::Write(error)
    }
}

impl From<StoreFailure> for Failure {
    fn from(failure: StoreFailure) -> Failure {
        Failure::Other(failure)
    }
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Failure {
        match error {
            GatewayError::Limit(error) => Failure::Write(error),
            error => Failure::Other(StoreFailure::Log(error)),
        }
    }
}

/// Request of a batch.
pub(super) struct BatchOrigin<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) store: TargetStore<'a>,
    pub(super) writer: Writer,
    pub(super) request_id: &'a dyn fmt::Display,
    /// Clock when the batch came, milliseconds since 1970.
    pub(super) arrival_ms: i64,
}

impl Destination {
    /// Hands a batch over. Blocks the thread.
    pub(super) fn apply(&self, origin: &BatchOrigin<'_>, batch: &WriteBatch) -> Result<Applied, Failure> {
        match self {
            Destination::Store(store) => {
                let own;
                let store_id = match origin.store {
                    TargetStore::Policy { store, .. } => store,
                    TargetStore::Default => {
                        own = StoreId::from(origin.tenant);
                        &own
                    }
                    TargetStore::Graphite => {
                        own = graphite_store(store, origin.tenant).map_err(StoreFailure::Catalog)?;
                        &own
                    }
                };
                Ok(Applied::Store(store.apply_of(store_id, batch, origin.writer)?))
            }
            Destination::Log(gateway) => append(gateway, origin, batch),
        }
    }

    /// Waits until batches are durable. Blocks the thread.
    pub(super) fn wait(&self, applied: Applied) -> Result<Acknowledged, Failure> {
        match (self, applied) {
            (Destination::Store(store), Applied::Store(applied)) => {
                let outcome = store.wait_durable(applied)?;
                Ok(Acknowledged { outcome, ..Acknowledged::default() })
            }
            (_, Applied::Log(pending)) => Ok(pending.wait()?),
            (Destination::Log(_), Applied::Store(_)) => panic!("a process has one destination"),
        }
    }
}

fn append(gateway: &Gateway, origin: &BatchOrigin<'_>, batch: &WriteBatch) -> Result<Applied, Failure> {
    let store = match origin.store {
        TargetStore::Default => RecordStore::Default,
        TargetStore::Policy { id, .. } => database_of(id)?,
        TargetStore::Graphite => gateway.graphite_store(origin.tenant)?,
    };
    let BatchOrigin { tenant, request_id, arrival_ms, writer, .. } = *origin;
    // Two processes may evaluate one round, after a takeover: the first result stays, whatever the policy of
    // the tenant (ADR 0144).
    let duplicates = (writer == Writer::Rule).then_some(DuplicatePolicy::KeepFirst);
    let write = GatewayWrite { tenant, store, request_id, arrival_ms, duplicates };
    Ok(Applied::Log(gateway.append(write, batch)?))
}

fn database_of(id: Option<BucketStoreId>) -> Result<RecordStore, GatewayError> {
    id.map(RecordStore::Database).ok_or(GatewayError::LocalStore)
}

/// Returns the Graphite store of a tenant; creates it if there is none.
fn graphite_store(store: &Tsdb, tenant: &TenantId) -> Result<StoreId, CatalogError> {
    let find = || Some(store.databases().catalog().of(tenant)?.graphite.as_ref()?.store.clone());
    if let Some(found) = find() {
        return Ok(found);
    }
    store.databases().change(tenant, &CatalogChange::CreateGraphiteStore)?;
    find().ok_or_else(|| CatalogError::Storage("the Graphite store was not created".to_owned()))
}
