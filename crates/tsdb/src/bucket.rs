//! The bucket of a server: blocks that queries read, requests of uploads.
//!
//! Invariants: opening it sends no request; requests run on a runtime of their own, and the thread that asks
//! for them waits.
//! Not here: queries (`query::bucket`, `query::blocks`), which blocks are uploaded (`upload`).

pub(crate) mod databases;
pub(crate) mod folder_source;
mod known_tenants;
mod upload_counters;
pub(crate) mod upload_state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chronolith_base::Env;
use chronolith_bucket::snapshots::{Change, Snapshots};
use chronolith_bucket::store::meter::MeterSnapshot;
use chronolith_bucket::upload::{Published, SidecarFile, UploadSnapshot, Uploader};
use chronolith_bucket::{
    BlockCatalog, BucketError, CacheSnapshot, CatalogOptions, DiskCache, DiskCacheOptions, FolderSummary,
    RequestContext, Store, StoreConfig,
};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot};
use chronolith_format::bucket::databases::DatabasesSnapshot;
use chronolith_model::TenantId;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Age of local copies at which they go unless it is set: compaction runs on blocks up to this age.
const LOCAL_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// Age of deletion marks at which their blocks are removed unless it is set, as Mimir's compactor has it.
const DELETE_DELAY: Duration = Duration::from_secs(12 * 3600);

/// Bytes of the cache directory unless they are set.
const CACHE_DIR_BYTES_MAX: u64 = 10 << 30;

/// A bucket whose blocks are read, and to which a store uploads its own.
#[derive(Debug, Clone)]
pub struct BucketOptions {
    /// Location of the bucket, and limits of requests to it.
    pub store: StoreConfig,
    /// List of its blocks, and memory of their headers.
    pub catalog: CatalogOptions,
    /// True if its blocks are served alone, without a store and without writes.
    pub is_read_only: bool,
    /// Directory of the cache on local disk; `None` for a cache in memory alone.
    pub cache_dir: Option<PathBuf>,
    /// Bytes of its files at most.
    pub cache_dir_bytes_max: u64,
    /// Age from which blocks that are in the bucket are removed locally.
    pub local_retention: Duration,
    /// Time between the replacement or expiry of a block in the bucket and its removal.
    pub delete_delay: Duration,
    /// Text between measurement and field in the names of metrics that PromQL sees of databases, on a
    /// read-only server.
    pub field_separator: String,
    /// True if blocks without a local copy are compacted.
    pub compacts: bool,
    /// Age from which they are compacted; `None`: from `local_retention` on.
    pub compaction_delay: Option<Duration>,
    /// True if the databases in the bucket are the original, which local catalogues follow, as in a cluster.
    pub has_original_databases: bool,
}

impl BucketOptions {
    /// The bucket at `url`, everything else at its default.
    #[must_use]
    pub fn new(url: &str) -> BucketOptions {
        BucketOptions {
            store: StoreConfig::new(url),
            catalog: CatalogOptions::default(),
            is_read_only: false,
            cache_dir: None,
            cache_dir_bytes_max: CACHE_DIR_BYTES_MAX,
            local_retention: LOCAL_RETENTION,
            delete_delay: DELETE_DELAY,
            field_separator: "_".to_owned(),
            compacts: true,
            compaction_delay: None,
            has_original_databases: false,
        }
    }
}

/// Rules by which blocks in the bucket and databases are kept.
#[derive(Debug, Clone)]
pub(crate) struct BucketRules {
    local_retention_ms: i64,
    delete_delay: Duration,
    compacts: bool,
    compaction_delay_ms: i64,
    has_original_databases: bool,
}

impl BucketRules {
    fn of(options: &BucketOptions) -> BucketRules {
        let as_ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        BucketRules {
            local_retention_ms: as_ms(options.local_retention),
            delete_delay: options.delete_delay,
            compacts: options.compacts,
            compaction_delay_ms: as_ms(options.compaction_delay.unwrap_or(options.local_retention)),
            has_original_databases: options.has_original_databases,
        }
    }

    /// Age from which blocks that are in the bucket are removed locally, in ms.
    pub(crate) fn local_retention_ms(&self) -> i64 {
        self.local_retention_ms
    }

    /// Time between the replacement or expiry of a block in the bucket and its removal.
    pub(crate) fn delete_delay(&self) -> Duration {
        self.delete_delay
    }

    /// Returns true if blocks without a local copy are compacted.
    pub(crate) fn compacts(&self) -> bool {
        self.compacts
    }

    /// Age from which blocks without a local copy are compacted, in ms.
    pub(crate) fn compaction_delay_ms(&self) -> i64 {
        self.compaction_delay_ms
    }

    /// Returns true if local catalogues of databases follow the databases of the bucket.
    pub(crate) fn has_original_databases(&self) -> bool {
        self.has_original_databases
    }
}

/// A bucket of blocks: its catalogue, its cache, uploads to it.
pub struct Bucket {
    catalog: Arc<BlockCatalog>,
    store: Arc<Store>,
    memory_bytes_max: u64,
    is_read_only: bool,
    rules: BucketRules,
    uploader: Uploader,
    databases: Snapshots<DatabasesSnapshot>,
    handle: Handle,
    /// Becomes true when uploads are to end.
    upload_end: watch::Sender<bool>,
}

/// Owner of a folder in the bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FolderOwner {
    /// Store of a retention policy.
    Store,
    /// Tenant, with all databases.
    Tenant,
}

impl Bucket {
    /// The bucket of `options`; requests run on the runtime of `handle`. Sends no request.
    ///
    /// # Errors
    /// [`BucketError::Config`].
    pub fn open(options: &BucketOptions, env: &Env, handle: &Handle) -> Result<Bucket, BucketError> {
        let store = Arc::new(Store::open(&options.store, env, handle.clone())?);
        Ok(Bucket::over(store, options, env, handle))
    }

    /// As [`Bucket::open`], with requests to `store`.
    #[must_use]
    pub fn over(store: Arc<Store>, options: &BucketOptions, env: &Env, handle: &Handle) -> Bucket {
        let catalog = BlockCatalog::with_disk_cache(
            store.clone(),
            env.clock.clone(),
            handle.clone(),
            &options.catalog,
            open_disk_cache(options, env, handle),
        );
        Bucket {
            uploader: Uploader::new(store.clone(), env, handle.clone()),
            databases: Snapshots::of_kind(store.clone(), env),
            handle: handle.clone(),
            upload_end: watch::Sender::new(false),
            catalog,
            store,
            memory_bytes_max: options.catalog.memory_bytes_max,
            is_read_only: options.is_read_only,
            rules: BucketRules::of(options),
        }
    }

    /// Returns true if its blocks are served alone.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Rules by which blocks and databases are kept.
    pub(crate) fn rules(&self) -> &BucketRules {
        &self.rules
    }

    /// Requests to the bucket.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
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
    /// As [`Uploader::upload`]; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
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
    /// [`Bucket::stop_uploads`].
    pub(crate) fn create_catalogue(&self, request: &RequestContext) -> Result<usize, BucketError> {
        self.wait(self.uploader.publisher().create_catalogue(request))
    }

    /// Enters uploaded blocks in the catalogue of the tenant of `request`.
    ///
    /// # Errors
    /// As [`chronolith_bucket::upload::Publisher::publish`]; [`BucketError::Canceled`] after
    /// [`Bucket::stop_uploads`].
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
    /// [`Bucket::stop_uploads`].
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
    /// [`Bucket::stop_uploads`].
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
    /// As other requests; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn snapshot(&self, request: &RequestContext) -> Result<Option<Arc<Snapshot>>, BucketError> {
        Ok(self
            .wait(self.uploader.publisher().snapshots().reader().read_latest(request))?
            .map(|latest| latest.snapshot))
    }

    /// Returns the databases of the tenant of `request`; `None` if the bucket has none.
    ///
    /// # Errors
    /// As other requests; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn databases(
        &self,
        request: &RequestContext,
    ) -> Result<Option<Arc<DatabasesSnapshot>>, BucketError> {
        let latest = self.wait(self.databases.reader().read_latest(request))?;
        Ok(latest.map(|latest| latest.snapshot))
    }

    /// Changes the databases of the tenant of `request`; returns them as they are then.
    ///
    /// # Errors
    /// As [`Snapshots::update`]; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn update_databases(
        &self,
        request: &RequestContext,
        change: impl FnMut(&mut DatabasesSnapshot) -> Change,
    ) -> Result<Option<Arc<DatabasesSnapshot>>, BucketError> {
        Ok(self.wait(self.databases.update(request, change))?.snapshot)
    }

    /// Returns the tenants that have a folder in the bucket.
    ///
    /// # Errors
    /// As other requests; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn tenants(&self, request: &RequestContext) -> Result<Vec<TenantId>, BucketError> {
        self.wait(chronolith_bucket::tenants(&self.store, request))
    }

    /// Removes all objects in the folder of `request`; returns their number.
    ///
    /// # Errors
    /// As other requests; part of the objects may be gone then. [`BucketError::Canceled`] after
    /// [`Bucket::stop_uploads`].
    pub(crate) fn remove_folder(
        &self,
        owner: FolderOwner,
        request: &RequestContext,
    ) -> Result<usize, BucketError> {
        match owner {
            FolderOwner::Store => self.wait(chronolith_bucket::remove_store(&self.store, request)),
            FolderOwner::Tenant => self.wait(chronolith_bucket::remove_tenant(&self.store, request)),
        }
    }

    /// Lets queries see the catalogue of the tenant of `request` as it is now.
    ///
    /// # Errors
    /// As [`BlockCatalog::refresh_now`]; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn refresh(&self, request: &RequestContext) -> Result<(), BucketError> {
        self.wait(self.catalog.refresh_now(&request.folder, request.deadline_ns))
    }

    /// Writes the object `name` next to the files of the block `ulid` of the tenant of `request`.
    ///
    /// # Errors
    /// As [`Store::put`]; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn write_object(
        &self,
        request: &RequestContext,
        ulid: Ulid,
        name: &str,
        body: Bytes,
    ) -> Result<(), BucketError> {
        let block = self.store.layout().block_keys(&request.folder).of_block(ulid);
        self.wait(self.store.put(request, &format!("{block}/{name}"), body))
    }

    /// Ends uploads, maintenance and updates of the catalogue, also those that run.
    pub(crate) fn stop_uploads(&self) {
        self.upload_end.send_replace(true);
    }

    /// Returns true after [`Bucket::stop_uploads`].
    pub(crate) fn is_stopped(&self) -> bool {
        *self.upload_end.borrow()
    }

    /// Runs requests and waits for them on the calling thread.
    ///
    /// # Errors
    /// Errors of `work`; [`BucketError::Canceled`] after [`Bucket::stop_uploads`].
    pub(crate) fn wait<T, E: From<BucketError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut end = self.upload_end.subscribe();
        self.handle.block_on(async {
            // The end first: work that needs no wait would else be done after it.
            tokio::select! {
                biased;
                _ = end.wait_for(|is_ended| *is_ended) => {
                    Err(BucketError::Canceled { what: "upload".to_owned() }.into())
                }
                done = work => done,
            }
        })
    }

    /// URL of the bucket.
    #[must_use]
    pub fn url(&self) -> &str {
        self.catalog.bucket_url()
    }

    /// As [`BlockCatalog::folders`].
    #[must_use]
    pub fn folders(&self) -> Vec<FolderSummary> {
        self.catalog.folders()
    }

    /// As [`BlockCatalog::damaged_meta_count`].
    #[must_use]
    pub fn damaged_meta_count(&self) -> usize {
        self.catalog.damaged_meta_count()
    }

    /// Memory of cached headers and ranges at most, requests in flight included.
    #[must_use]
    pub fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
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

/// Opens the cache directory. Without it queries are slower, never wrong, so an error is only logged.
fn open_disk_cache(options: &BucketOptions, env: &Env, handle: &Handle) -> Option<Arc<DiskCache>> {
    let dir = options.cache_dir.clone()?;
    let bytes_max = options.cache_dir_bytes_max;
    let disk_options = DiskCacheOptions { dir, bytes_max, bucket: options.store.url.clone() };
    let dir = disk_options.dir.display();
    match DiskCache::open(env.disk.clone(), &disk_options, handle.clone()) {
        Ok(cache) => return Some(cache),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            tracing::error!(%dir, "another process uses bucket.cache-dir, going on without a cache on disk");
        }
        Err(error) => {
            tracing::error!(%dir, %error, "opening bucket.cache-dir failed, going on without a cache on disk");
        }
    }
    None
}
