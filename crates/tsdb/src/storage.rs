//! Storage: head, blocks, metadata and settings of all tenants, shared by writes, queries and maintenance.
//!
//! Invariants: limits are replaced as a whole, so no reader sees those of two configurations.
//! Not here: background work (`maintenance`), the public interface (`tsdb`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::{BlockEntry, encoding_for};
use chronolith_head::Head;
use chronolith_model::{BlockEncoding, TenantId, TenantLimits};
use parking_lot::RwLock;

use crate::blocks::BlockStore;
use crate::bucket::BucketSources;
use crate::changes::Changes;
use crate::databases::DatabaseStore;
use crate::limits::LimitsTable;
use crate::metadata::MetadataStore;
use crate::options::TsdbOptions;
use crate::upload::state::UploadState;

/// Parts of the storage that writes, queries and maintenance share.
pub(crate) struct Storage {
    env: Env,
    options: TsdbOptions,
    head: Arc<Head>,
    blocks: Arc<BlockStore>,
    metadata: MetadataStore,
    databases: DatabaseStore,
    /// Bucket to which blocks are uploaded.
    uploads: Option<UploadState>,
    limits: RwLock<LimitsTable>,
    changes: Changes,
}

impl Storage {
    pub(crate) fn new(
        env: Env,
        options: TsdbOptions,
        head: Head,
        blocks: Arc<BlockStore>,
        metadata: MetadataStore,
        databases: DatabaseStore,
        uploads: Option<UploadState>,
    ) -> Storage {
        let limits = RwLock::new(options.limits.clone());
        let head = Arc::new(head);
        let changes = Changes::default();
        Storage { env, options, head, blocks, metadata, databases, uploads, limits, changes }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn options(&self) -> &TsdbOptions {
        &self.options
    }

    pub(crate) fn head(&self) -> &Arc<Head> {
        &self.head
    }

    pub(crate) fn blocks(&self) -> &Arc<BlockStore> {
        &self.blocks
    }

    pub(crate) fn metadata(&self) -> &MetadataStore {
        &self.metadata
    }

    pub(crate) fn databases(&self) -> &DatabaseStore {
        &self.databases
    }

    /// Uploads to the bucket, if there is one.
    pub(crate) fn uploads(&self) -> Option<&UploadState> {
        self.uploads.as_ref()
    }

    /// Returns true if the bucket has all deletions of a block, or none is to have them.
    pub(crate) fn has_bucket_deletions(&self, tenant: &TenantId, entry: &BlockEntry) -> bool {
        tenant.is_store() || self.uploads().is_none_or(|uploads| uploads.has(tenant, entry))
    }

    /// The bucket, if there is one.
    pub(crate) fn bucket(&self) -> Option<&Arc<BucketSources>> {
        self.uploads.as_ref().map(UploadState::bucket)
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Returns a copy of the limits of all tenants.
    pub(crate) fn limits(&self) -> LimitsTable {
        self.limits.read().clone()
    }

    pub(crate) fn limits_of(&self, tenant: &TenantId) -> TenantLimits {
        let of_owner = |tenant: &TenantId| self.limits.read().of(tenant).clone();
        let of_store = if tenant.is_store() { self.databases.limits_of(tenant, of_owner) } else { None };
        of_store.unwrap_or_else(|| of_owner(tenant))
    }

    /// Returns the encoding of the blocks of `tenant`: the setting of a tenant in milliseconds.
    pub(crate) fn block_encoding_of(&self, tenant: &TenantId) -> BlockEncoding {
        encoding_for(tenant.time_unit(), self.limits.read().of(tenant).block_encoding)
    }

    /// Replaces the limits of all tenants. Blocks of tenants with another retention are planned again, and
    /// cached results that another duplicate policy may change count as changed.
    pub(crate) fn set_limits(&self, limits: LimitsTable) {
        let before = std::mem::replace(&mut *self.limits.write(), limits.clone());
        self.changes.note_all(|tenant| before.of(tenant).duplicates != limits.of(tenant).duplicates);
        self.blocks
            .mark_changed_if(|tenant| before.of(tenant).retention_ms != limits.of(tenant).retention_ms);
    }
}
