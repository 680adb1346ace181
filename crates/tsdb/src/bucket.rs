//! The bucket of a server: blocks that queries read, requests of uploads.
//!
//! Invariants: opening it sends no request; requests run on a runtime of their own, and the thread that asks
//! for them waits.
//! Not here: queries (`query::bucket`, `query::blocks`), which blocks are uploaded (`upload`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_bucket::snapshots::{Change, Snapshots};
use chronolith_bucket::store::list::ListOptions;
use chronolith_bucket::store::meter::MeterSnapshot;
use chronolith_bucket::upload::{Published, SidecarFile, UploadSnapshot, Uploader};
use chronolith_bucket::{
    BlockCatalog, BucketError, CacheSnapshot, CatalogOptions, RequestContext, Store, StoreConfig,
};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_model::change::{ChangeWatch, Changed};
use chronolith_model::query::TenantSources;
use chronolith_model::{Queryable, TenantId};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::query::bucket::TenantBucket;

/// Age of local copies at which they go unless it is set: compaction runs on blocks up to this age.
const LOCAL_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// Age of deletion marks at which their blocks are removed unless it is set, as Mimir's compactor has it.
const DELETE_DELAY: Duration = Duration::from_secs(12 * 3600);

/// A bucket whose blocks are read, and to which a store uploads its own.
#[derive(Debug, Clone)]
pub struct BucketOptions {
    /// Where it is.
    pub store: StoreConfig,
    /// List of its blocks, and memory of their headers.
    pub catalog: CatalogOptions,
    /// Whether its blocks are served alone, without a store and without writes.
    pub is_read_only: bool,
    /// Age from which blocks that are in the bucket are removed locally.
    pub local_retention: Duration,
    /// Time between the replacement or expiry of a block in the bucket and its removal.
    pub delete_delay: Duration,
    /// Whether blocks without a local copy are compacted.
    pub compacts: bool,
}

impl BucketOptions {
    /// The bucket at `url`, everything else at its default.
    #[must_use]
    pub fn new(url: &str) -> BucketOptions {
        BucketOptions {
            store: StoreConfig::new(url),
            catalog: CatalogOptions::default(),
            is_read_only: false,
            local_retention: LOCAL_RETENTION,
            delete_delay: DELETE_DELAY,
            compacts: true,
        }
    }
}

/// Blocks in a bucket as the source of all tenants.
pub struct BucketSources {
    catalog: Arc<BlockCatalog>,
    store: Arc<Store>,
    is_read_only: bool,
    local_retention: Duration,
    delete_delay: Duration,
    compacts: bool,
    uploader: Uploader,
    handle: Handle,
    /// Becomes true when uploads are to end.
    upload_end: watch::Sender<bool>,
}

impl BucketSources {
    /// The blocks in the bucket; requests run on the runtime of `handle`. Sends no request.
    ///
    /// # Errors
    /// [`BucketError::Config`].
    pub fn open(options: &BucketOptions, env: &Env, handle: &Handle) -> Result<BucketSources, BucketError> {
        let store = Arc::new(Store::open(&options.store, env, handle.clone())?);
        let catalog = BlockCatalog::new(store.clone(), env.clock.clone(), handle.clone(), &options.catalog);
        let BucketOptions { is_read_only, local_retention, delete_delay, compacts, .. } = *options;
        Ok(BucketSources {
            uploader: Uploader::new(store.clone(), env, handle.clone()),
            handle: handle.clone(),
            upload_end: watch::Sender::new(false),
            catalog,
            store,
            is_read_only,
            local_retention,
            delete_delay,
            compacts,
        })
    }

    /// Returns true if its blocks are served alone.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Age from which blocks that are in the bucket are removed locally, in ms.
    pub(crate) fn local_retention_ms(&self) -> i64 {
        i64::try_from(self.local_retention.as_millis()).unwrap_or(i64::MAX)
    }

    /// Time between the replacement or expiry of a block in the bucket and its removal.
    pub(crate) fn delete_delay(&self) -> Duration {
        self.delete_delay
    }

    /// Returns true if blocks without a local copy are compacted.
    pub(crate) fn compacts(&self) -> bool {
        self.compacts
    }

    /// Requests to the bucket.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Catalogues of the bucket.
    pub(crate) fn snapshots(&self) -> &Snapshots {
        self.uploader.publisher().snapshots()
    }

    /// Blocks of all tenants.
    pub(crate) fn catalog(&self) -> &Arc<BlockCatalog> {
        &self.catalog
    }

    /// Uploads the block in the directory `dir`; returns its record for the catalogue. Waits on the calling
    /// thread.
    ///
    /// # Errors
    /// As [`Uploader::upload`]; [`BucketError::Canceled`] after [`BucketSources::stop_uploads`].
    pub(crate) fn upload(
        &self,
        request: &RequestContext,
        dir: &Path,
        sidecar: SidecarFile,
    ) -> Result<BucketBlock, BucketError> {
        self.wait(self.uploader.upload(request, dir, Some(sidecar)))
    }

    /// Enters the blocks that the bucket has in the catalogue of the tenant of `request`, if there is none.
    ///
    /// # Errors
    /// As [`chronolith_bucket::upload::Publisher::create_catalogue`]; [`BucketError::Canceled`] after
    /// [`BucketSources::stop_uploads`].
    pub(crate) fn create_catalogue(&self, request: &RequestContext) -> Result<usize, BucketError> {
        self.wait(self.uploader.publisher().create_catalogue(request))
    }

    /// Enters uploaded blocks in the catalogue of the tenant of `request`.
    ///
    /// # Errors
    /// As [`chronolith_bucket::upload::Publisher::publish`]; [`BucketError::Canceled`] after
    /// [`BucketSources::stop_uploads`].
    pub(crate) fn publish(
        &self,
        request: &RequestContext,
        records: &[BucketBlock],
    ) -> Result<Published, BucketError> {
        self.wait(self.uploader.publisher().publish(request, records))
    }

    /// Replaces blocks of the catalogue of the tenant of `request` by others that were made of them.
    ///
    /// # Errors
    /// As [`chronolith_bucket::upload::Publisher::replace`]; [`BucketError::Canceled`] after
    /// [`BucketSources::stop_uploads`].
    pub(crate) fn replace(
        &self,
        request: &RequestContext,
        inputs: &[BucketBlock],
        outputs: &[BucketBlock],
    ) -> Result<Published, BucketError> {
        self.wait(self.uploader.publisher().replace(request, inputs, outputs))
    }

    /// Changes the catalogue of the tenant of `request`; returns it as it is then.
    ///
    /// # Errors
    /// As [`chronolith_bucket::snapshots::Snapshots::update`]; [`BucketError::Canceled`] after
    /// [`BucketSources::stop_uploads`].
    pub(crate) fn update(
        &self,
        request: &RequestContext,
        change: impl FnMut(&mut Snapshot) -> Change,
    ) -> Result<Option<Arc<Snapshot>>, BucketError> {
        Ok(self.wait(self.uploader.publisher().snapshots().update(request, change))?.snapshot)
    }

    /// Returns the catalogue of the tenant of `request`; `None` if it has none.
    ///
    /// # Errors
    /// As other requests; [`BucketError::Canceled`] after [`BucketSources::stop_uploads`].
    pub(crate) fn snapshot(&self, request: &RequestContext) -> Result<Option<Arc<Snapshot>>, BucketError> {
        Ok(self
            .wait(self.uploader.publisher().snapshots().reader().read_latest(request))?
            .map(|latest| latest.snapshot))
    }

    /// Lets queries see the catalogue of the tenant of `request` as it is now.
    ///
    /// # Errors
    /// As [`BlockCatalog::refresh_now`]; [`BucketError::Canceled`] after [`BucketSources::stop_uploads`].
    pub(crate) fn refresh(&self, request: &RequestContext) -> Result<(), BucketError> {
        self.wait(self.catalog.refresh_now(&request.tenant, request.deadline_ns))
    }

    /// Writes the object `name` next to the files of the block `ulid` of the tenant of `request`.
    ///
    /// # Errors
    /// As [`Store::put`]; [`BucketError::Canceled`] after [`BucketSources::stop_uploads`].
    pub(crate) fn write_object(
        &self,
        request: &RequestContext,
        ulid: Ulid,
        name: &str,
        body: Bytes,
    ) -> Result<(), BucketError> {
        let key = format!("{}/{ulid}/{name}", request.tenant);
        self.wait(self.store.put(request, &key, body))
    }

    /// Tenants with objects in the bucket.
    ///
    /// # Errors
    /// As [`Store::list`]; [`BucketError::Canceled`] after [`BucketSources::stop_uploads`].
    pub(crate) fn tenants(&self, request: &RequestContext) -> Result<Vec<TenantId>, BucketError> {
        let options = ListOptions { is_delimited: true, ..ListOptions::default() };
        let page = self.wait(self.store.list(request, &options))?;
        Ok(page.prefixes.iter().filter_map(|key| TenantId::stored(key.trim_end_matches('/')).ok()).collect())
    }

    /// Ends uploads, maintenance and updates of the catalogue, also those that run.
    pub(crate) fn stop_uploads(&self) {
        self.upload_end.send_replace(true);
    }

    /// Returns true after [`BucketSources::stop_uploads`].
    pub(crate) fn is_stopped(&self) -> bool {
        *self.upload_end.borrow()
    }

    /// Runs requests and waits for them on the calling thread.
    ///
    /// # Errors
    /// Those of `work`; [`BucketError::Canceled`] after [`BucketSources::stop_uploads`].
    pub(crate) fn wait<T, E: From<BucketError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut end = self.upload_end.subscribe();
        self.handle.block_on(async {
            tokio::select! {
                done = work => done,
                _ = end.wait_for(|is_ended| *is_ended) => {
                    Err(BucketError::Canceled { what: "upload".to_owned() }.into())
                }
            }
        })
    }

    /// Counters of uploads.
    #[must_use]
    pub fn uploads(&self) -> UploadSnapshot {
        self.uploader.counters()
    }

    /// Counters of requests to the bucket.
    #[must_use]
    pub fn requests(&self) -> MeterSnapshot {
        self.store.counters()
    }

    /// Counters of the cache of index headers and ranges.
    #[must_use]
    pub fn cache(&self) -> CacheSnapshot {
        self.catalog.cache()
    }
}

impl ChangeWatch for BucketSources {
    fn generation(&self, tenant: &TenantId) -> u64 {
        self.catalog.generation(tenant)
    }

    fn changed_since(&self, tenant: &TenantId, generation: u64) -> Changed {
        // A query that waits for the first listing sees the blocks of generation 1.
        let is_same = generation > 0 && self.catalog.generation(tenant) == generation;
        if is_same { Changed::NOTHING } else { Changed::EVERYTHING }
    }
}

impl TenantSources for BucketSources {
    fn queryable(&self, tenant: &TenantId) -> Arc<dyn Queryable> {
        Arc::new(TenantBucket::new(self.catalog.clone(), tenant))
    }
}
