//! Storage: head, blocks, metadata and settings of all tenants, shared by writes, queries and maintenance.
//!
//! Invariants: limits are replaced as a whole, so no reader sees limits of two configurations.
//! Not here: background work (`maintenance`), the public interface (`tsdb`).

use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::{BlockEntry, encoding_for};
use chronolith_bucket::Folder;
use chronolith_format::block::meta::Ulid;
use chronolith_head::{Head, WriteError};
use chronolith_model::rollup::RollupRules;
use chronolith_model::{BlockEncoding, StoreId, TenantId, TenantLimits, TimeRange};
use parking_lot::RwLock;

use crate::blocks::BlockStore;
use crate::blocks::tenant::TenantBlocks;
use crate::bucket::Bucket;
use crate::bucket::folder_source::FolderSource;
use crate::bucket::upload_state::{BlockPlace, UploadState};
use crate::changes::{Changes, Writer};
use crate::databases::DatabaseStore;
use crate::graphite::GraphiteLog;
use crate::limits::LimitsTable;
use crate::metadata::MetadataStore;
use crate::options::TsdbOptions;
use crate::tenant_deletions::{TenantDeletions, WritePermit};

/// Stores of everything but samples, each with a file of its own.
pub(crate) struct SideStores {
    metadata: MetadataStore,
    databases: Arc<DatabaseStore>,
    graphite: GraphiteLog,
    deletions: Arc<TenantDeletions>,
}

impl SideStores {
    pub(crate) fn new(
        metadata: MetadataStore,
        databases: Arc<DatabaseStore>,
        graphite: GraphiteLog,
        deletions: Arc<TenantDeletions>,
    ) -> SideStores {
        SideStores { metadata, databases, graphite, deletions }
    }
}

/// Parts of the storage that writes, queries and maintenance share.
pub(crate) struct Storage {
    env: Env,
    options: TsdbOptions,
    head: Arc<Head>,
    blocks: Arc<BlockStore>,
    side: SideStores,
    /// Bucket to which blocks are uploaded.
    uploads: Option<UploadState>,
    limits: RwLock<LimitsTable>,
    changes: Changes,
    rollup_rules: RwLock<Option<Arc<dyn RollupRules>>>,
    /// Locked for reading over a round of uploads or of maintenance of the bucket, for writing over the
    /// deletion of a tenant.
    bucket_rounds: RwLock<()>,
}

impl Storage {
    pub(crate) fn new(
        env: Env,
        options: TsdbOptions,
        head: Head,
        blocks: Arc<BlockStore>,
        side: SideStores,
        uploads: Option<UploadState>,
    ) -> Storage {
        let limits = RwLock::new(options.limits.clone());
        let head = Arc::new(head);
        let changes = Changes::default();
        let rollup_rules = RwLock::default();
        Storage {
            env,
            options,
            head,
            blocks,
            side,
            uploads,
            limits,
            changes,
            rollup_rules,
            bucket_rounds: RwLock::new(()),
        }
    }

    /// Rules of roll-ups of Graphite stores.
    pub(crate) fn rollup_rules(&self) -> Option<Arc<dyn RollupRules>> {
        self.rollup_rules.read().clone()
    }

    pub(crate) fn set_rollup_rules(&self, rules: Option<Arc<dyn RollupRules>>) {
        *self.rollup_rules.write() = rules;
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
        &self.side.metadata
    }

    pub(crate) fn databases(&self) -> &Arc<DatabaseStore> {
        &self.side.databases
    }

    pub(crate) fn graphite(&self) -> &GraphiteLog {
        &self.side.graphite
    }

    /// Tenants that are being deleted.
    pub(crate) fn tenant_deletions(&self) -> &TenantDeletions {
        &self.side.deletions
    }

    /// Returns the right to write to a store.
    ///
    /// # Errors
    /// [`WriteError::TenantDeleted`] while its tenant is being deleted.
    pub(crate) fn admit_write(&self, store: &StoreId) -> Result<WritePermit<'_>, WriteError> {
        let owner_of = || store.tenant().cloned().or_else(|| self.side.databases.owner_of(store));
        self.side.deletions.admit_store(owner_of)
    }

    /// Lock of rounds of work on the bucket.
    pub(crate) fn bucket_rounds(&self) -> &RwLock<()> {
        &self.bucket_rounds
    }

    /// Uploads to the bucket, if there is one.
    pub(crate) fn uploads(&self) -> Option<&UploadState> {
        self.uploads.as_ref()
    }

    /// Returns true if the bucket has all deletions of a block, or none is to have them.
    pub(crate) fn has_bucket_deletions(&self, store: &StoreId, entry: &Arc<BlockEntry>) -> bool {
        match self.uploads.as_ref().zip(self.folder_of(store)) {
            Some((uploads, folder)) => uploads.has(&folder, entry),
            None => true,
        }
    }

    /// The bucket, if there is one.
    pub(crate) fn bucket(&self) -> Option<&Arc<Bucket>> {
        self.uploads.as_ref().map(UploadState::bucket)
    }

    /// Returns true if the bucket has a local block with all its deletions, and queries know that.
    pub(crate) fn is_uploaded(&self, store: &StoreId, block: &Arc<BlockEntry>) -> bool {
        let uploads = self.uploads.as_ref().zip(self.folder_of(store));
        uploads.is_some_and(|(uploads, folder)| uploads.has(&folder, block))
    }

    /// Returns the blocks that the bucket has of a store, local ones included; `None` if that is not known.
    pub(crate) fn places_in_bucket(&self, store: &StoreId) -> Option<Vec<BlockPlace>> {
        match self.uploads.as_ref().zip(self.folder_of(store)) {
            None => Some(Vec::new()),
            Some((uploads, folder)) => {
                uploads.read_once(&folder);
                uploads.places(&folder)
            }
        }
    }

    /// Returns the latest name of a block of a store, known blocks of the bucket included: the next block
    /// gets a later one.
    pub(crate) fn newest_ulid(&self, blocks: &TenantBlocks) -> Option<Ulid> {
        let uploads = self.uploads.as_ref().zip(self.folder_of(blocks.tenant()));
        let in_bucket = uploads.and_then(|(uploads, folder)| {
            uploads.read_once(&folder);
            uploads.newest_ulid(&folder)
        });
        blocks.newest_ulid().max(in_bucket)
    }

    /// Folder of a store in the bucket; `None` for the store of a retention policy that was never uploaded
    /// or is dropped.
    pub(crate) fn folder_of(&self, store: &StoreId) -> Option<Folder> {
        match store.tenant() {
            Some(tenant) => Some(Folder::of_tenant(tenant)),
            None => self.side.databases.folder_of(store),
        }
    }

    /// Blocks of a store in the bucket; `None` without a bucket, or if that never had a block of the store.
    pub(crate) fn bucket_blocks(&self, store: &StoreId) -> Option<FolderSource> {
        let catalog = self.bucket()?.catalog().clone();
        let folder = self.folder_of(store)?;
        let retention_ms = if !store.is_default() { self.limits_of(store).retention_ms } else { 0 };
        let expired_end = match retention_ms {
            0 => i64::MIN,
            _ => store.time_unit().from_ms(self.env.clock.now_ms().saturating_sub(retention_ms)),
        };
        Some(FolderSource { catalog, folder, expired_end })
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Records that samples of `store` in `range`, in its unit, changed by another way than a batch or
    /// retention. To be called after the change.
    pub(crate) fn note_change(&self, store: &StoreId, range: TimeRange) {
        self.note_change_by(store, range, Writer::Client);
    }

    /// As [`Storage::note_change`], for a change that `writer` made.
    pub(crate) fn note_change_by(&self, store: &StoreId, range: TimeRange, writer: Writer) {
        self.changes.note_range_by(store, range, writer);
        self.note_change_of_owner(store, range.start);
    }

    /// Records that samples of a store from `first` on changed for readers of all stores of its owner.
    pub(crate) fn note_change_of_owner(&self, store: &StoreId, first: i64) {
        let owner = if store.is_default() { None } else { self.side.databases.owner_of(store) };
        if let Some(owner) = owner {
            let from_ms = TimeRange::new(store.time_unit().to_ms(first), i64::MAX);
            self.changes.note_range(&owner.into(), from_ms);
        }
    }

    /// Returns a copy of the limits of all tenants.
    pub(crate) fn limits(&self) -> LimitsTable {
        self.limits.read().clone()
    }

    pub(crate) fn limits_of(&self, store: &StoreId) -> TenantLimits {
        let of_owner = |tenant: &TenantId| self.limits.read().of(tenant).clone();
        let of_numbered =
            if store.is_default() { None } else { self.side.databases.limits_of(store, of_owner) };
        of_numbered.unwrap_or_else(|| self.limits.read().of_store(store).clone())
    }

    /// Returns the encoding of the blocks of `store`: the setting of a tenant in milliseconds.
    pub(crate) fn block_encoding_of(&self, store: &StoreId) -> BlockEncoding {
        encoding_for(store.time_unit(), self.limits.read().of_store(store).block_encoding)
    }

    /// Replaces the limits of all tenants. Blocks of tenants with another retention are planned again, and
    /// cached results that another duplicate policy may change count as changed.
    pub(crate) fn set_limits(&self, limits: LimitsTable) {
        let before = std::mem::replace(&mut *self.limits.write(), limits.clone());
        self.changes.note_all(|store| before.of_store(store).duplicates != limits.of_store(store).duplicates);
        self.blocks.mark_changed_if(|store| {
            before.of_store(store).retention_ms != limits.of_store(store).retention_ms
        });
    }
}
