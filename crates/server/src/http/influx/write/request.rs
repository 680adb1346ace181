//! A write to a database: its endpoint, and its parameters once they are checked.

use chronolith_ingest::line_protocol::Precision;
use chronolith_model::databases::BucketStoreId;
use chronolith_model::{StoreId, TenantId};
use chronolith_service::access::Identity;
use chronolith_service::activity::rejects::WriteSender;
use chronolith_service::write::{TargetStore, WriteTarget};
use chronolith_tsdb::Writer;

use crate::http::request::RequestId;

/// Endpoint of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    V1,
    V2,
    /// Remote write into a database.
    Prometheus,
}

/// A request whose parameters have been checked.
pub(super) struct WriteRequest {
    pub(super) api: Api,
    pub(super) identity: Identity,
    pub(super) tenant: TenantId,
    /// Store of the retention policy.
    pub(super) target: StoreId,
    /// Id of the store in the bucket, if it has one.
    pub(super) target_id: Option<BucketStoreId>,
    pub(super) retention_ns: i64,
    pub(super) precision: Precision,
    pub(super) is_gzip: bool,
    /// As examples of refused points name it.
    pub(super) sender: WriteSender,
    pub(super) id: RequestId,
}

impl WriteRequest {
    /// Destination of the points.
    pub(super) fn write_target(&self) -> WriteTarget<'_> {
        let store = TargetStore::Policy { store: &self.target, id: self.target_id };
        WriteTarget { identity: &self.identity, store, writer: Writer::Client }
    }
}
