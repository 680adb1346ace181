//! Blocks in a bucket as the source of all tenants, for queries of a server without a data directory.
//!
//! Invariants: sources are opened without a request; a query reads the lists of blocks and databases that it
//! needs.
//! Not here: requests to the bucket (`bucket`), views of a tenant (`query::remote`).

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Env;
use chronolith_base::hash::FixedState;
use chronolith_bucket::snapshots::{Change, SnapshotReader};
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext, Store};
use chronolith_format::record::RecordStore;
use chronolith_model::change::{ChangeWatch, Changed, Generation};
use chronolith_model::databases::{BucketStoreId, CatalogChange, CatalogError, TenantCatalog};
use chronolith_model::query::TenantSources;
use chronolith_model::{
    Exemplar, Labels, Matcher, MetadataEntry, QueryError, Queryable, ReadContext, StoreId, TenantId,
    TimeRange,
};
use tokio::runtime::Handle;

use crate::bucket::databases::{RemoteDatabases, store_of};
use crate::bucket::folder_source::FolderSource;
use crate::bucket::{Bucket, BucketOptions};
use crate::query::measurements::as_measurements;
use crate::query::metrics::as_metrics;
use crate::query::peer::sources::PeerSources;
use crate::query::remote::RemoteSources;
use crate::query::unit::in_milliseconds;

/// Longest time of a change of databases.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Blocks in a bucket as the source of all tenants.
pub struct BucketSources {
    bucket: Arc<Bucket>,
    remote: RemoteSources,
    env: Env,
}

impl BucketSources {
    /// The blocks in the bucket; requests run on the runtime of `handle`. Sends no request.
    ///
    /// # Errors
    /// [`BucketError::Config`].
    pub fn open(options: &BucketOptions, env: &Env, handle: &Handle) -> Result<BucketSources, BucketError> {
        Ok(BucketSources::new(Bucket::open(options, env, handle)?, options, env, handle))
    }

    /// As [`BucketSources::open`], with requests to `store`.
    #[must_use]
    pub fn over(store: Arc<Store>, options: &BucketOptions, env: &Env, handle: &Handle) -> BucketSources {
        BucketSources::new(Bucket::over(store, options, env, handle), options, env, handle)
    }

    fn new(bucket: Bucket, options: &BucketOptions, env: &Env, handle: &Handle) -> BucketSources {
        let reader = SnapshotReader::of_kind(bucket.store().clone(), env.clock.clone());
        let poll = options.catalog.poll;
        let remote = RemoteSources::new(
            bucket.catalog().clone(),
            RemoteDatabases::new(reader, env.clock.clone(), handle.clone(), poll),
            env.clock.clone(),
            options.field_separator.clone(),
        );
        BucketSources { bucket: Arc::new(bucket), remote, env: env.clone() }
    }

    /// The same sources with the samples that other nodes have next to the blocks of each store.
    #[must_use]
    pub fn with_recent(self, recent: Arc<PeerSources>) -> BucketSources {
        BucketSources { remote: self.remote.with_peers(recent), ..self }
    }

    /// Returns the bucket, to which a store may upload its blocks.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    /// Returns a call after which each query reads the list of blocks of its tenant again, once.
    pub fn outdate_lists(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        let catalog = self.bucket.catalog().clone();
        move || catalog.outdate_lists()
    }

    /// Returns the databases of `tenant`, without users. The first call for a tenant waits.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer the first call.
    pub fn databases_of(
        &self,
        tenant: &TenantId,
        ctx: &ReadContext,
    ) -> Result<Arc<TenantCatalog>, QueryError> {
        self.remote.databases.of(tenant, ctx)
    }

    /// As [`BucketSources::databases_of`], read again if they do not have the database `name`, at most once
    /// per second and tenant: another process may have created it.
    ///
    /// # Errors
    /// As [`BucketSources::databases_of`].
    pub fn databases_with(
        &self,
        tenant: &TenantId,
        name: &str,
        ctx: &ReadContext,
    ) -> Result<Arc<TenantCatalog>, QueryError> {
        self.remote.databases.with(tenant, name, ctx)
    }

    /// Changes the databases of `tenant` in the bucket, which are the original of a cluster, and returns them
    /// as they are then. Waits on the calling thread; a race against another process is repeated.
    ///
    /// # Errors
    /// [`CatalogError`], as from a local catalogue. [`CatalogError::Storage`] if the bucket does not answer:
    /// the change may be made then, and may be repeated.
    pub fn change_databases(
        &self,
        tenant: &TenantId,
        change: &CatalogChange,
    ) -> Result<Arc<TenantCatalog>, CatalogError> {
        let storage = |error: BucketError| {
            CatalogError::Storage(format!("changing the databases in the bucket failed: {error}; try again"))
        };
        let clock = &*self.env.clock;
        let folder = Folder::of_tenant(tenant);
        let request = RequestContext::with_timeout(clock, folder, CHANGE_TIMEOUT, Purpose::Catalog);
        let mut refused = None;
        let new_id = || {
            let mut bytes = [0; 16];
            self.env.rng.fill(&mut bytes);
            BucketStoreId::from_bytes(bytes)
        };
        let updated = self.bucket.update_databases(&request, |snapshot| {
            // A snapshot of another process may have come in between.
            let applied = snapshot.content.apply(change, new_id, clock.now_ms());
            let is_changed = *applied.as_ref().unwrap_or(&false);
            refused = applied.err();
            if is_changed { Change::Write } else { Change::Keep }
        });
        updated.map_err(storage)?;
        match refused {
            Some(error) => Err(error),
            None => self.remote.databases.read_changed(tenant, CHANGE_TIMEOUT).map_err(storage),
        }
    }

    /// Returns the source for languages with types of a store of `catalog`, the databases of `tenant`; as
    /// [`crate::TsdbReader::typed_queryable`].
    #[must_use]
    pub fn typed_queryable(
        &self,
        tenant: &TenantId,
        catalog: &TenantCatalog,
        store: &StoreId,
    ) -> Option<Arc<dyn Queryable>> {
        let (id, blocks) = self.blocks_of(tenant, catalog, store)?;
        Some(self.remote.typed(tenant, id, blocks))
    }

    /// Returns the store of a retention policy as metrics; as [`crate::TsdbReader::as_metrics`].
    #[must_use]
    pub fn as_metrics(
        &self,
        tenant: &TenantId,
        catalog: &TenantCatalog,
        store: &StoreId,
    ) -> Option<Arc<dyn Queryable>> {
        let (id, blocks) = self.blocks_of(tenant, catalog, store)?;
        Some(as_metrics(in_milliseconds(self.remote.policy(tenant, id, blocks))))
    }

    /// Returns the default store of `tenant` as measurements; as [`crate::TsdbReader::as_measurements`].
    #[must_use]
    pub fn as_measurements(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        as_measurements(self.remote.own(tenant))
    }

    /// Returns ranges of time in which a store of `catalog` has blocks.
    ///
    /// # Errors
    /// As a query that reads the list of blocks.
    pub fn sample_ranges(
        &self,
        tenant: &TenantId,
        catalog: &TenantCatalog,
        store: &StoreId,
        ctx: &ReadContext,
    ) -> Result<Vec<TimeRange>, QueryError> {
        let Some((id, blocks)) = self.blocks_of(tenant, catalog, store) else { return Ok(Vec::new()) };
        let blocks = blocks.blocks_in(TimeRange::ALL, ctx)?;
        let mut ranges: Vec<TimeRange> = blocks.iter().map(|block| block.range()).collect();
        if let Some(peers) = self.remote.peers() {
            ranges.extend(peers.sample_ranges(tenant, id, ctx)?);
        }
        Ok(ranges)
    }

    /// Returns the metadata of one metric or all that other nodes have, as [`crate::TsdbReader::metadata`];
    /// blocks have none.
    ///
    /// # Errors
    /// As a query that no node may be missing from.
    pub fn metadata(
        &self,
        tenant: &TenantId,
        metric: Option<&str>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<MetadataEntry>, QueryError> {
        let peers = self.remote.peers();
        peers.map_or(Ok(Vec::new()), |peers| peers.metadata(tenant, metric, limit, ctx))
    }

    /// Returns the exemplars that other nodes have, as [`crate::TsdbReader::exemplars`]; blocks have none.
    ///
    /// # Errors
    /// As a query that no node may be missing from.
    pub fn exemplars(
        &self,
        tenant: &TenantId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<(Labels, Vec<Exemplar>)>, QueryError> {
        let peers = self.remote.peers();
        peers.map_or(Ok(Vec::new()), |peers| peers.exemplars(tenant, selectors, range, ctx))
    }

    /// Blocks of a folder, expired ones included.
    pub(crate) fn folder_source(&self, folder: Folder) -> FolderSource {
        FolderSource { catalog: self.bucket.catalog().clone(), folder, expired_end: i64::MIN }
    }

    /// A number that differs whenever the blocks or the databases of `tenant` do; 0 while one of them is not
    /// known.
    fn state_of(&self, tenant: &TenantId) -> u64 {
        let own = self.bucket.catalog().generation(tenant);
        let Some((databases, version)) = self.remote.databases.known(tenant) else { return 0 };
        if databases.policies().next().is_none() {
            return own;
        }
        let mut hasher = FixedState::default().build_hasher();
        (own, version).hash(&mut hasher);
        for id in databases.policies().filter_map(|policy| policy.bucket_id) {
            let of_store = self.bucket.catalog().generation(Folder::of_store(tenant, id));
            if own == 0 || of_store == 0 {
                return 0;
            }
            (id, of_store).hash(&mut hasher);
        }
        hasher.finish().max(1)
    }

    /// Returns the id of a store, and its blocks.
    fn blocks_of(
        &self,
        tenant: &TenantId,
        catalog: &TenantCatalog,
        store: &StoreId,
    ) -> Option<(RecordStore, FolderSource)> {
        let (folder, policy) = store_of(tenant, catalog, store)?;
        let id = policy.bucket_id?;
        let id = match store {
            StoreId::Graphite { .. } => RecordStore::Graphite(id),
            _ => RecordStore::Database(id),
        };
        Some((id, self.remote.store(folder, policy)))
    }
}

impl ChangeWatch for BucketSources {
    fn generation(&self, tenant: &TenantId) -> Generation {
        // Owners do not report their changes, so that no result with their samples is cached.
        match self.remote.has_peers() {
            true => Generation::UNKNOWN,
            false => Generation::Number(self.state_of(tenant)),
        }
    }

    fn changed_since(&self, tenant: &TenantId, generation: &Generation) -> Changed {
        if self.remote.has_peers() {
            return Changed::EVERYTHING;
        }
        // A query that waits for the first listing sees the blocks of generation 1.
        let since = generation.number();
        let is_same = since > 0 && self.state_of(tenant) == since;
        if is_same { Changed::NOTHING } else { Changed::EVERYTHING }
    }
}

impl TenantSources for BucketSources {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        self.remote.tenant(tenant)
    }
}
