//! Catalog of the blocks in the bucket: which blocks a folder has, refreshed in the background.
//!
//! Invariants: a folder with catalogue snapshots has the blocks of the newest one, and no other; without them
//! it is listed, but for a writer's folder in Thanos's layout, which is empty then. It is looked up at its
//! first query, which waits within its deadline; a list younger than the poll interval is complete, an older
//! one is used while it is refreshed, for an hour. A failed refresh keeps the list. A block stays
//! the same object over refreshes.
//! Not here: the listing itself (`catalog::listing`), snapshots (`snapshots`), reading blocks (`block`).

mod listing;
mod started;
mod writers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_base::hash::HashMap;
use chronolith_block::Block;
use chronolith_model::{DuplicatePolicy, QueryError, Queryable, ReadContext, TimeRange};
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::block::{BlockReader, BucketBlock, OpenedBlock, ReaderChoice};
use crate::buffers::BufferPool;
use crate::cache::{BlockCache, CacheSnapshot, DiskCache};
use crate::folder::Folder;
use crate::remote::{ReadRules, Remote, query_error};
use crate::sidecar_queue::SidecarQueue;
use crate::snapshots::{Latest, SnapshotReader};
use crate::store::request::{Purpose, RequestContext};
use crate::{BucketError, Store};
use listing::{Listed, Listing};
pub use started::StartedWork;
use started::run_opened;
use writers::WriterCatalogues;

/// Folders whose lists are in memory; of more, those that were read least recently are forgotten.
const FOLDERS_MAX: usize = 10_000;
/// Blocks that one question for labels reads at the same time.
const BLOCKS_AT_ONCE: usize = 32;
/// Age from which a list is not used: blocks that it names may be removed, the soonest two hours after others
/// replaced them.
const LIST_AGE_MAX: Duration = Duration::from_secs(60 * 60);
/// As [`LIST_AGE_MAX`], of a list with a damaged `meta.json`, which the next query looks at again: queries
/// succeed soon after it was replaced.
const DAMAGED_LIST_AGE_MAX: Duration = Duration::from_secs(1);
/// Time of a refresh in the background.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(300);

/// Options of a catalog.
#[derive(Debug, Clone)]
pub struct CatalogOptions {
    /// Age from which a list of blocks is refreshed.
    pub poll: Duration,
    /// Memory of index headers and ranges of all blocks, requests in flight included.
    pub memory_bytes_max: u64,
    /// Keeps ranges of chunks in memory, not only ranges of the index.
    pub keeps_chunks: bool,
    /// Verifies the checksums of chunks when they are fetched, not only when they are decoded.
    pub verifies_chunks: bool,
}

/// Part of the memory that free buffers may have.
const BUFFERS_FRACTION: u64 = 4;

impl Default for CatalogOptions {
    fn default() -> CatalogOptions {
        CatalogOptions {
            poll: Duration::from_secs(30),
            memory_bytes_max: 256 << 20,
            keeps_chunks: true,
            verifies_chunks: false,
        }
    }
}

/// Blocks of all folders of a bucket.
pub struct BlockCatalog {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    writers: WriterCatalogues,
    poll_ns: u64,
    /// Lists whose listing began earlier are not used, by the monotonic clock.
    valid_from_ns: AtomicU64,
    cache: Arc<BlockCache>,
    snapshots: SnapshotReader,
    rules: ReadRules,
    buffers: Arc<BufferPool>,
    sidecars: Arc<SidecarQueue>,
    folders: Mutex<HashMap<Folder, Arc<FolderBlocks>>>,
}

/// Blocks of one folder.
#[derive(Default)]
struct FolderBlocks {
    list: RwLock<Option<BlockList>>,
    /// Newest catalogue snapshot; `None` if the list comes from a listing.
    latest: Mutex<Option<Latest>>,
    /// Held by the task that lists.
    listing: tokio::sync::Mutex<()>,
    /// Time of the last use, ns.
    used_ns: AtomicU64,
}

/// Summary of the listed blocks of one folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSummary {
    /// Key of the folder, without a slash at its end.
    pub folder: String,
    /// Blocks that queries read.
    pub block_count: usize,
    /// Bytes of index and chunks of those that a catalogue records.
    pub bytes: u64,
    /// From the start of the first to the end of the last block, in milliseconds since 1970.
    pub range_ms: Option<TimeRange>,
    /// Objects that look like blocks and are left out.
    pub left_out_count: usize,
    /// Blocks whose `meta.json` is damaged, so that queries fail.
    pub damaged_count: usize,
    /// Time since the list was read.
    pub age: Duration,
}

impl FolderSummary {
    fn of(folder: &Folder, list: &BlockList, now_ns: u64) -> FolderSummary {
        let ranges =
            || list.blocks.iter().filter(|block| !block.is_meta_damaged()).map(|block| block.range_ms());
        let start = ranges().map(|range| range.start).min();
        let end = ranges().map(|range| range.end).max();
        FolderSummary {
            folder: folder.to_string(),
            block_count: list.blocks.len(),
            bytes: list
                .blocks
                .iter()
                .filter_map(|block| block.record())
                .map(|record| record.files.bytes())
                .sum(),
            range_ms: start.zip(end).map(|(start, end)| TimeRange::new(start, end)),
            left_out_count: list.left_out.len(),
            damaged_count: list.damaged_count(),
            age: Duration::from_nanos(now_ns.saturating_sub(list.listed_ns)),
        }
    }
}

/// A list of blocks at one moment.
#[derive(Clone)]
struct BlockList {
    /// By precedence: blocks whose samples were written earlier come first.
    blocks: Arc<[Arc<BucketBlock>]>,
    /// Objects that look like blocks and cannot be read, with the reason.
    left_out: Arc<[String]>,
    /// Start of the listing, by the monotonic clock.
    listed_ns: u64,
    /// Ascends with each list that differs from the one before.
    generation: u64,
    /// Policy for several samples with one timestamp.
    duplicates: DuplicatePolicy,
    /// Number of the catalogue that has the blocks; 0 without one.
    catalogue_number: u64,
    /// True once the newest catalogue was found damaged: blocks may be missing.
    is_outdated: bool,
    /// True if the `meta.json` of a block is damaged.
    has_damage: bool,
}

impl BlockList {
    /// Blocks whose `meta.json` is damaged.
    fn damaged_count(&self) -> usize {
        self.blocks.iter().filter(|block| block.is_meta_damaged()).count()
    }
}

impl BlockCatalog {
    /// An empty catalog, without a request. Requests run on the runtime of `handle`.
    #[must_use]
    pub fn new(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        handle: Handle,
        options: &CatalogOptions,
    ) -> Arc<BlockCatalog> {
        BlockCatalog::with_disk_cache(store, clock, handle, options, None)
    }

    /// As [`BlockCatalog::new`], with a cache directory for ranges that are not in memory.
    #[must_use]
    pub fn with_disk_cache(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        handle: Handle,
        options: &CatalogOptions,
        disk_cache: Option<Arc<DiskCache>>,
    ) -> Arc<BlockCatalog> {
        let snapshots = SnapshotReader::new(store.clone(), clock.clone());
        let writers = WriterCatalogues::new(store.clone(), clock.clone());
        Arc::new(BlockCatalog {
            store,
            clock,
            handle,
            writers,
            poll_ns: u64::try_from(options.poll.as_nanos()).unwrap_or(u64::MAX),
            valid_from_ns: AtomicU64::new(0),
            cache: BlockCache::new(options.memory_bytes_max, disk_cache),
            snapshots,
            rules: ReadRules { keeps_chunks: options.keeps_chunks, verifies_chunks: options.verifies_chunks },
            buffers: BufferPool::new(options.memory_bytes_max / BUFFERS_FRACTION),
            sidecars: Arc::default(),
            folders: Mutex::default(),
        })
    }

    /// Returns the blocks in `folder` with samples in `range`; those whose samples were written earlier come
    /// first. The first call for a folder waits on the calling thread, which is none of the runtime.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer the first call; as [`ReadContext::check`].
    pub fn blocks_in(
        self: &Arc<BlockCatalog>,
        folder: impl Into<Folder>,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        ctx.check()?;
        let list = self.list(&folder.into(), ctx)?;
        Ok(list.blocks.iter().filter(|block| block.range().overlaps(range)).cloned().collect())
    }

    /// URL of the bucket.
    #[must_use]
    pub fn bucket_url(&self) -> &str {
        self.store.url()
    }

    /// Returns true if a block in `folder` overlaps `range`; `None` if its blocks are not known yet.
    #[must_use]
    pub fn known_overlap(&self, folder: &Folder, range: TimeRange) -> Option<bool> {
        let slot = self.folders.lock().get(folder).cloned()?;
        let list = slot.list.read();
        Some(list.as_ref()?.blocks.iter().any(|block| block.range().overlaps(range)))
    }

    /// Summaries of the folders whose blocks are known. Cost: reads the list of each.
    #[must_use]
    pub fn folders(&self) -> Vec<FolderSummary> {
        let slots: Vec<(Folder, Arc<FolderBlocks>)> =
            self.folders.lock().iter().map(|(folder, slot)| (folder.clone(), slot.clone())).collect();
        let now_ns = self.clock.mono_ns();
        let summary = |(folder, slot): &(Folder, Arc<FolderBlocks>)| {
            slot.list.read().as_ref().map(|list| FolderSummary::of(folder, list, now_ns))
        };
        slots.iter().filter_map(summary).collect()
    }

    /// Policy for several samples with one timestamp in `folder`: the first one is read, unless its catalogue
    /// is known and has another policy.
    #[must_use]
    pub fn duplicates(&self, folder: &Folder) -> DuplicatePolicy {
        let slot = self.folders.lock().get(folder).cloned();
        slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.duplicates)).unwrap_or_default()
    }

    /// Number of the catalogue that the blocks of `folder` were read from; 0 before the first read, and
    /// without a catalogue.
    #[must_use]
    pub fn catalogue_number(&self, folder: &Folder) -> u64 {
        let slot = self.folders.lock().get(folder).cloned();
        slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.catalogue_number)).unwrap_or(0)
    }

    /// Returns true if the list of `folder` is older than twice the time between two polls: owners keep the
    /// samples of new blocks for that time.
    #[must_use]
    pub fn is_older_than_seam(&self, folder: &Folder) -> bool {
        let slot = self.folders.lock().get(folder).cloned();
        let listed_ns = slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.listed_ns));
        let age_max_ns = self.poll_ns.saturating_mul(2);
        listed_ns.is_none_or(|listed_ns| self.clock.mono_ns().saturating_sub(listed_ns) > age_max_ns)
    }

    /// Makes each query that begins from now on read the list of its folder again. Sends no request.
    pub fn outdate_lists(&self) {
        self.valid_from_ns.store(self.clock.mono_ns().saturating_add(1), Ordering::Release);
    }

    /// Reads the list of `folder` again. Blocks the thread; must not be called from a task of the runtime.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer; the last list stays in use.
    pub fn refresh_waiting(&self, folder: &Folder, ctx: &ReadContext) -> Result<(), QueryError> {
        let timeout_ns = ctx.remaining_ns().min(as_ns(REFRESH_TIMEOUT));
        let deadline_ns = self.clock.mono_ns().saturating_add(timeout_ns);
        self.handle.block_on(self.refresh_now(folder, deadline_ns)).map_err(query_error)
    }

    /// Starts to run `work` for each block on threads that may wait, several at the same time, after its
    /// header was read. For a block that fails, `recover` returns the result. Results are in the order
    /// of `blocks`.
    pub fn start_on_opened<T: Send + 'static>(
        &self,
        blocks: &[Arc<BucketBlock>],
        ctx: &ReadContext,
        work: impl Fn(&BucketBlock, &dyn Queryable) -> Result<T, QueryError> + Clone + Send + 'static,
        recover: impl Fn(&BucketBlock, QueryError) -> Result<T, QueryError> + Send + Sync + 'static,
    ) -> StartedWork<T> {
        let work = move |block: &BucketBlock, opened: &OpenedBlock| {
            block.with_external_labels(opened.reader.queryable(), |source| work(block, source))
        };
        self.start(blocks, ReaderChoice::Any, ctx, work, recover)
    }

    /// As [`BlockCatalog::start_on_opened`], with the index of each block.
    pub fn start_on_indexed<T: Send + 'static>(
        &self,
        blocks: &[Arc<BucketBlock>],
        ctx: &ReadContext,
        work: impl Fn(&Block) -> Result<T, QueryError> + Clone + Send + 'static,
    ) -> StartedWork<T> {
        let work = move |_: &BucketBlock, opened: &OpenedBlock| match &opened.reader {
            BlockReader::Index(block) => work(block),
            BlockReader::Sidecar(_) => Err(QueryError::Canceled),
        };
        self.start(blocks, ReaderChoice::Index, ctx, work, |_, error| Err(error))
    }

    fn start<T: Send + 'static>(
        &self,
        blocks: &[Arc<BucketBlock>],
        choice: ReaderChoice,
        ctx: &ReadContext,
        work: impl Fn(&BucketBlock, &OpenedBlock) -> Result<T, QueryError> + Clone + Send + 'static,
        recover: impl Fn(&BucketBlock, QueryError) -> Result<T, QueryError> + Send + Sync + 'static,
    ) -> StartedWork<T> {
        let ctx = ctx.clone();
        let recover = Arc::new(recover);
        let handle = self.handle.clone();
        let results = stream::iter(blocks.to_vec()).map(move |block| {
            let recover = recover.clone();
            let time = Duration::from_nanos(ctx.source_remaining_ns());
            let running = run_opened(handle.clone(), block.clone(), choice, ctx.clone(), work.clone());
            async move {
                let result = tokio::time::timeout(time, running).await;
                result.unwrap_or(Err(QueryError::Timeout)).or_else(|error| recover(&block, error))
            }
        });
        let all = results.buffered(BLOCKS_AT_ONCE).try_collect();
        StartedWork::new(&self.handle, all)
    }

    /// Starts to read the list of `folder` if it is not known: the next query that needs it waits for that
    /// read.
    pub fn prefetch_list(self: &Arc<BlockCatalog>, folder: &Folder, ctx: &ReadContext) {
        let slot = self.slot(folder);
        if slot.list.read().is_none() {
            let timeout_ns = ctx.remaining_ns().min(as_ns(REFRESH_TIMEOUT));
            self.refresh(folder.clone(), slot, timeout_ns);
        }
    }

    /// Reads the list of `folder` again, so that queries see blocks written before the call.
    ///
    /// # Errors
    /// As other requests; the last list stays in use.
    pub async fn refresh_now(&self, folder: &Folder, deadline_ns: u64) -> Result<(), BucketError> {
        let slot = self.slot(folder);
        let _listing = slot.listing.lock().await;
        self.read_list(folder, &slot, deadline_ns).await.map(drop)
    }

    /// Blocks in all known folders whose `meta.json` is damaged. Cost: reads the list of each folder.
    #[must_use]
    pub fn damaged_meta_count(&self) -> usize {
        let slots: Vec<Arc<FolderBlocks>> = self.folders.lock().values().cloned().collect();
        slots.iter().filter_map(|slot| slot.list.read().as_ref().map(BlockList::damaged_count)).sum()
    }

    /// Generation of the list of `folder`, which ascends when its blocks change; 0 before its first query.
    #[must_use]
    pub fn generation(&self, folder: impl Into<Folder>) -> u64 {
        let slot = self.folders.lock().get(&folder.into()).cloned();
        slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.generation)).unwrap_or(0)
    }

    /// Counters of the cache of headers and ranges.
    #[must_use]
    pub fn cache(&self) -> CacheSnapshot {
        CacheSnapshot { local_sidecars: self.sidecars.snapshot(), ..self.cache.snapshot() }
    }

    /// Tasks that make sidecars.
    #[cfg(test)]
    pub(crate) fn sidecars(&self) -> &Arc<SidecarQueue> {
        &self.sidecars
    }

    /// Drops the parts of the sidecar of `block` that overlap `bytes` from memory.
    #[cfg(test)]
    pub(crate) fn drop_cached(&self, block: &BucketBlock, bytes: std::ops::Range<u64>) {
        let file = chronolith_block::source::BlockFile::Sidecar;
        let range = chronolith_block::source::ByteRange { file, start: bytes.start, end: bytes.end };
        self.cache.remove_ranges(block.cache_key(), &[range]);
    }

    /// Flips a bit in each cached byte that `picks` names by its file and offset.
    #[cfg(test)]
    pub(crate) fn corrupt_cache(&self, picks: impl Fn(chronolith_block::source::BlockFile, u64) -> bool) {
        self.cache.corrupt_bytes(picks);
    }

    /// Objects that look like blocks in `folder` and are left out, with the reason; none before its first
    /// query.
    #[must_use]
    pub fn left_out(&self, folder: impl Into<Folder>) -> Arc<[String]> {
        let slot = self.folders.lock().get(&folder.into()).cloned();
        slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.left_out.clone())).unwrap_or_default()
    }

    fn list(self: &Arc<BlockCatalog>, folder: &Folder, ctx: &ReadContext) -> Result<BlockList, QueryError> {
        let slot = self.slot(folder);
        let Some(list) = self.usable(&slot) else {
            ctx.begin_wait()?;
            let left_ns = ctx.source_remaining_ns().min(as_ns(REFRESH_TIMEOUT));
            let deadline_ns = self.clock.mono_ns().saturating_add(left_ns);
            let listing = self.first_list(folder, &slot, deadline_ns);
            // Another query that lists may have more time than this one.
            let listed = self
                .handle
                .block_on(async { tokio::time::timeout(Duration::from_nanos(left_ns), listing).await });
            return match listed {
                Ok(Err(QueryError::Timeout)) | Err(_) => {
                    let what = format!("listing the blocks of {folder} took too long; try again");
                    Err(QueryError::Unavailable { what })
                }
                Ok(result) => result,
            };
        };
        if self.clock.mono_ns().saturating_sub(list.listed_ns) >= self.poll_ns {
            self.refresh(folder.clone(), slot, as_ns(REFRESH_TIMEOUT));
        }
        Ok(list)
    }

    /// The list of a folder, unless it is missing or too old.
    fn usable(&self, slot: &FolderBlocks) -> Option<BlockList> {
        let age_max_ns = |list: &BlockList| match list.has_damage {
            true => as_ns(DAMAGED_LIST_AGE_MAX),
            false => self.poll_ns.max(as_ns(LIST_AGE_MAX)),
        };
        let age_ns = |list: &BlockList| self.clock.mono_ns().saturating_sub(list.listed_ns);
        let valid_from_ns = self.valid_from_ns.load(Ordering::Acquire);
        let is_usable = |list: &BlockList| {
            !list.is_outdated && list.listed_ns >= valid_from_ns && age_ns(list) < age_max_ns(list)
        };
        slot.list.read().clone().filter(is_usable)
    }

    fn slot(&self, folder: &Folder) -> Arc<FolderBlocks> {
        let now_ns = self.clock.mono_ns();
        let mut folders = self.folders.lock();
        if folders.len() >= FOLDERS_MAX && !folders.contains_key(folder) {
            let unused = folders.iter().min_by_key(|(_, slot)| slot.used_ns.load(Ordering::Relaxed));
            let unused = unused.map(|(folder, _)| folder.clone());
            unused.and_then(|folder| folders.remove(&folder));
        }
        let slot = folders.entry(folder.clone()).or_default();
        slot.used_ns.store(now_ns, Ordering::Relaxed);
        slot.clone()
    }

    async fn first_list(
        &self,
        folder: &Folder,
        slot: &FolderBlocks,
        deadline_ns: u64,
    ) -> Result<BlockList, QueryError> {
        let _listing = slot.listing.lock().await;
        // Another query may have listed them meanwhile.
        if let Some(list) = self.usable(slot) {
            return Ok(list);
        }
        self.read_list(folder, slot, deadline_ns).await.map_err(query_error)
    }

    /// Lists in the background, unless that is being done.
    fn refresh(self: &Arc<BlockCatalog>, folder: Folder, slot: Arc<FolderBlocks>, timeout_ns: u64) {
        if slot.listing.try_lock().is_err() {
            return;
        }
        let catalog = self.clone();
        self.handle.spawn(async move {
            let Ok(_listing) = slot.listing.try_lock() else { return };
            let deadline_ns = catalog.clock.mono_ns().saturating_add(timeout_ns);
            match catalog.read_list(&folder, &slot, deadline_ns).await {
                Ok(_) => {}
                Err(error @ BucketError::Corrupt { .. }) => {
                    tracing::error!(%folder, %error, "the list of blocks in the bucket is damaged, refusing queries");
                    if let Some(list) = slot.list.write().as_mut() {
                        list.is_outdated = true;
                    }
                }
                Err(error) => {
                    tracing::warn!(%folder, %error, "listing the blocks in the bucket failed, the last list stays in use");
                }
            }
        });
    }

    async fn read_list(
        &self,
        folder: &Folder,
        slot: &FolderBlocks,
        deadline_ns: u64,
    ) -> Result<BlockList, BucketError> {
        let listed_ns = self.clock.mono_ns();
        let known = slot.list.read().as_ref().map(|list| list.blocks.clone()).unwrap_or_default();
        let request = RequestContext { folder: folder.clone(), deadline_ns, purpose: Purpose::Catalog };
        let remote = self.remote(folder);
        let listing = Listing {
            remote: &remote,
            writers: &self.writers,
            request: &request,
            cache: &self.cache,
            known: &known,
        };
        let recorded = |latest: Latest| Listed {
            blocks: listing.recorded(&latest.snapshot, None),
            has_catalogue: true,
            ..Listed::default()
        };
        let Listed { blocks, left_out, .. } = match self.latest(&request, slot).await? {
            Some(latest) => recorded(latest),
            None => {
                let listed = listing.run().await?;
                // The first snapshot was written since the folder was looked up first.
                let latest = match listed.has_catalogue {
                    true => self.snapshots.read_latest(&request).await?,
                    false => None,
                };
                *slot.latest.lock() = latest.clone();
                latest.map_or(listed, recorded)
            }
        };
        let is_same =
            blocks.len() == known.len() && blocks.iter().zip(&*known).all(|(a, b)| Arc::ptr_eq(a, b));
        let snapshot = slot.latest.lock().as_ref().map(|latest| latest.snapshot.clone());
        let duplicates = snapshot.as_ref().map(|snapshot| snapshot.duplicates).unwrap_or_default();
        let catalogue_number = snapshot.map_or(0, |snapshot| snapshot.number);
        let mut current = slot.list.write();
        let is_same = is_same && current.as_ref().is_none_or(|list| list.duplicates == duplicates);
        let last_generation = current.as_ref().map_or(0, |list| list.generation);
        let generation = last_generation + u64::from(!is_same || last_generation == 0);
        let list = BlockList {
            has_damage: blocks.iter().any(|block| block.is_meta_damaged()),
            blocks: blocks.into(),
            left_out: left_out.into(),
            listed_ns,
            generation,
            duplicates,
            catalogue_number,
            is_outdated: false,
        };
        *current = Some(list.clone());
        Ok(list)
    }

    /// Newest catalogue snapshot; `None` without one, or if that is not known and the folder was listed
    /// before. A process that reads Thanos's layout finds the catalogues by listing.
    async fn latest(
        &self,
        request: &RequestContext,
        slot: &FolderBlocks,
    ) -> Result<Option<Latest>, BucketError> {
        let layout = self.store.layout();
        let is_flat = layout.is_flat(&request.folder);
        if is_flat && layout.writer().is_none() {
            return Ok(None);
        }
        let known = slot.latest.lock().clone();
        let is_first = slot.list.read().is_none();
        let latest = match known {
            Some(known) => self.snapshots.poll(request, &known).await?,
            None if is_first || is_flat => self.snapshots.read_latest(request).await?,
            None => None,
        };
        *slot.latest.lock() = latest.clone();
        Ok(latest)
    }

    fn remote(&self, folder: &Folder) -> Remote {
        Remote {
            store: self.store.clone(),
            clock: self.clock.clone(),
            handle: self.handle.clone(),
            folder: folder.clone(),
            key: self.store.layout().block_keys(folder).prefix().to_owned(),
            rules: self.rules,
            purpose: Purpose::Query,
            buffers: self.buffers.clone(),
            sidecars: self.sidecars.clone(),
        }
    }
}

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
