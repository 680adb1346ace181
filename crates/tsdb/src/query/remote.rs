//! Views of a tenant and of its databases over the bucket alone, as `view` and `typed` give them with a data
//! directory.
//!
//! Invariant: a view looks the databases up when it is read, within the deadline of the query, and fails if
//! the bucket does not answer.
//! Not here: which databases there are (`crate::bucket::databases`), blocks (`bucket`).

use std::sync::Arc;

use chronolith_base::Clock;
use chronolith_bucket::{BlockCatalog, Folder};
use chronolith_model::databases::{RetentionPolicy, TenantCatalog};
use chronolith_model::{QueryError, Queryable, ReadContext, TenantId};

use super::bucket::TenantBucket;
use super::databases::{PolicySource, WithDatabases};
use super::deferred::DeferredSource;
use super::fanout::stores_as_one;
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
}

impl RemoteSources {
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
        Arc::new(TenantBucket::of_tenant(source))
    }

    /// The default store of `tenant`, and its Graphite store.
    fn with_graphite(&self, tenant: &TenantId, catalog: &TenantCatalog) -> Arc<dyn Queryable> {
        let own = self.own(tenant);
        let graphite = catalog.graphite.as_ref().and_then(|policy| Some((policy, policy.bucket_id?)));
        let Some((policy, id)) = graphite else { return own };
        let source = self.store(Folder::of_store(tenant, id), policy);
        let graphite: Arc<dyn Queryable> = Arc::new(TenantBucket::of_policy(source));
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
                    source: in_milliseconds(Arc::new(TenantBucket::of_policy(source))),
                });
            }
        }
        if policies.is_empty() {
            return Ok(own);
        }
        Ok(Arc::new(WithDatabases::new(own, policies, self.separator.clone())))
    }
}
