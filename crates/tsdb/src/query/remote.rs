//! Views of a tenant and of its databases over the bucket and owners of recent samples, without a data
//! directory, as `view` and `typed` give them with one.
//!
//! Invariant: a view looks the databases up when it is read, within the deadline of the query, and fails if
//! the bucket does not answer. Owners are asked store by store, as blocks are read.
//! Not here: which databases there are (`crate::bucket::databases`), blocks (`bucket`).

use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_bucket::{BlockCatalog, Folder};
use chronolith_format::record::RecordStore;
use chronolith_format::select::SelectView;
use chronolith_model::databases::{RetentionPolicy, TenantCatalog};
use chronolith_model::{DuplicatePolicy, QueryError, Queryable, ReadContext, TenantId};

use super::bucket::TenantBucket;
use super::databases::{PolicySource, WithDatabases};
use super::deferred::DeferredSource;
use super::fanout::stores_as_one;
use super::peer::PeerStore;
use super::peer::sources::PeerSources;
use super::seam::SeamSource;
use super::typed_bucket::TypedBucket;
use super::unit::in_milliseconds;
use crate::bucket::databases::RemoteDatabases;
use crate::bucket::folder_source::FolderSource;

/// Parts that all views share.
#[derive(Clone)]
pub(crate) struct RemoteSources {
    pub(crate) blocks: Arc<BlockCatalog>,
    pub(crate) databases: Arc<RemoteDatabases>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Text between measurement and field in the name of a metric.
    pub(crate) separator: String,
    /// Nodes that have samples which are in no block yet; `None`: all samples are in blocks.
    recent: Option<Arc<PeerSources>>,
}

impl RemoteSources {
    /// The blocks of a bucket.
    pub(crate) fn new(
        blocks: Arc<BlockCatalog>,
        databases: Arc<RemoteDatabases>,
        clock: Arc<dyn Clock>,
        separator: String,
    ) -> RemoteSources {
        RemoteSources { blocks, databases, clock, separator, recent: None }
    }

    /// The same with the samples that other nodes have.
    pub(crate) fn with_peers(self, recent: Arc<PeerSources>) -> RemoteSources {
        RemoteSources { recent: Some(recent), ..self }
    }

    /// Nodes that have samples which are in no block yet.
    pub(crate) fn peers(&self) -> Option<&Arc<PeerSources>> {
        self.recent.as_ref()
    }

    /// Returns true if other nodes have samples that are in no block.
    pub(crate) fn has_peers(&self) -> bool {
        self.recent.is_some()
    }

    /// Blocks of the store of `policy`, without expired ones.
    pub(crate) fn store(&self, folder: Folder, policy: &RetentionPolicy) -> FolderSource {
        let now_ns = self.clock.now_ms().saturating_mul(1_000_000);
        let expired_end = match policy.duration_ns {
            0 => i64::MIN,
            duration_ns => now_ns.saturating_sub(duration_ns),
        };
        FolderSource { catalog: self.blocks.clone(), folder, expired_end }
    }

    /// The default store of `tenant`.
    pub(crate) fn own(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        let source =
            FolderSource { catalog: self.blocks.clone(), folder: tenant.into(), expired_end: i64::MIN };
        let duplicates = source.duplicates();
        let blocks: Arc<dyn Queryable> = Arc::new(TenantBucket::of_tenant(source.clone()));
        let store = PeerStore { store: RecordStore::Default, view: SelectView::Store };
        self.with_recent(tenant, store, duplicates, source, blocks)
    }

    /// The store of `policy` as floats, in its own unit of time.
    pub(crate) fn policy(
        &self,
        tenant: &TenantId,
        store: RecordStore,
        blocks: FolderSource,
    ) -> Arc<dyn Queryable> {
        let source: Arc<dyn Queryable> = Arc::new(TenantBucket::of_policy(blocks.clone()));
        let store = PeerStore { store, view: SelectView::Store };
        self.with_recent(tenant, store, DuplicatePolicy::LastWins, blocks, source)
    }

    /// The store of a policy with types.
    pub(crate) fn typed(
        &self,
        tenant: &TenantId,
        store: RecordStore,
        blocks: FolderSource,
    ) -> Arc<dyn Queryable> {
        let source: Arc<dyn Queryable> = Arc::new(TypedBucket(blocks.clone()));
        let store = PeerStore { store, view: SelectView::Typed };
        self.with_recent(tenant, store, DuplicatePolicy::LastWins, blocks, source)
    }

    /// Adds the samples that owners have of a store to its blocks. Samples of blocks are older.
    fn with_recent(
        &self,
        tenant: &TenantId,
        store: PeerStore,
        duplicates: DuplicatePolicy,
        folder: FolderSource,
        blocks: Arc<dyn Queryable>,
    ) -> Arc<dyn Queryable> {
        let Some(recent) = &self.recent else { return blocks };
        let recent = recent.clone();
        let tenant = tenant.clone();
        Arc::new(SeamSource { recent, tenant, store, duplicates, catalogue: Arc::new(folder), blocks })
    }

    /// The default store of `tenant`, and its Graphite store.
    fn with_graphite(&self, tenant: &TenantId, catalog: &TenantCatalog) -> Arc<dyn Queryable> {
        let own = self.own(tenant);
        let graphite = catalog.graphite.as_ref().and_then(|policy| Some((policy, policy.bucket_id?)));
        let Some((policy, id)) = graphite else { return own };
        let source = self.store(Folder::of_store(tenant, id), policy);
        let graphite = self.policy(tenant, RecordStore::Graphite(id), source);
        stores_as_one(vec![(tenant.as_str(), own), (&policy.name, graphite)])
    }

    /// A tenant for PromQL: its default store, its Graphite store and its databases.
    pub(crate) fn tenant(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        let sources = self.clone();
        let tenant = tenant.clone();
        Arc::new(DeferredSource::new(move |_, ctx| sources.view(&tenant, ctx)))
    }

    fn view(&self, tenant: &TenantId, ctx: &ReadContext) -> Result<Arc<dyn Queryable>, QueryError> {
        // Both lists are read at the same time by the first query.
        self.blocks.prefetch_list(&tenant.into(), ctx);
        let catalog = self.databases.of(tenant, ctx)?;
        let own = self.with_graphite(tenant, &catalog);
        let mut policies = Vec::new();
        for database in &catalog.databases {
            for policy in &database.policies {
                let Some(id) = policy.bucket_id else { continue };
                let source = self.store(Folder::of_store(tenant, id), policy);
                policies.push(PolicySource {
                    database: database.name.clone(),
                    policy: policy.name.clone(),
                    source: in_milliseconds(self.policy(tenant, RecordStore::Database(id), source)),
                });
            }
        }
        if policies.is_empty() {
            return Ok(own);
        }
        Ok(Arc::new(WithDatabases::new(own, policies, self.separator.clone())))
    }
}
