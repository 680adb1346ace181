//! Catalog of the blocks in the bucket: which blocks a tenant has, refreshed in the background.
//!
//! Invariants: a tenant is looked up at its first query, which waits for the listing within its deadline; a
//! list younger than the poll interval is complete, an older one is used while it is refreshed. A failed
//! refresh keeps the list. A block stays the same object over refreshes.
//! Not here: the listing itself (`catalog::listing`), reading blocks (`block`).

mod listing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_base::hash::HashMap;
use chronolith_model::{QueryError, Queryable, ReadContext, TenantId, TimeRange};
use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use crate::block::BucketBlock;
use crate::headers::HeaderBudget;
use crate::remote::{Remote, query_error};
use crate::store::request::{Purpose, RequestContext};
use crate::{BucketError, Store};
use listing::{Listed, Listing};

/// Tenants whose lists are in memory; of more, those that were read least recently are forgotten.
const TENANTS_MAX: usize = 10_000;
/// Blocks that one question for labels reads at the same time.
const BLOCKS_AT_ONCE: usize = 32;
/// Time of a refresh in the background.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(300);

/// Options of a catalog.
#[derive(Debug, Clone)]
pub struct CatalogOptions {
    /// Age from which a list of blocks is refreshed.
    pub poll: Duration,
    /// Memory of the index headers of all blocks.
    pub header_bytes_max: u64,
}

impl Default for CatalogOptions {
    fn default() -> CatalogOptions {
        CatalogOptions { poll: Duration::from_secs(30), header_bytes_max: 256 << 20 }
    }
}

/// Blocks of all tenants in a bucket.
pub struct BlockCatalog {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    handle: Handle,
    poll_ns: u64,
    headers: Arc<HeaderBudget>,
    tenants: Mutex<HashMap<TenantId, Arc<TenantBlocks>>>,
}

/// Blocks of one tenant.
#[derive(Default)]
struct TenantBlocks {
    list: RwLock<Option<BlockList>>,
    /// Held by the one that lists.
    listing: tokio::sync::Mutex<()>,
    /// Time of the last use, ns.
    used_ns: AtomicU64,
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
}

/// Result of work on a block.
struct Worked<T> {
    value: Result<T, QueryError>,
    /// Damage of the sidecar by which the block was read.
    damage: Option<String>,
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
        Arc::new(BlockCatalog {
            store,
            clock,
            handle,
            poll_ns: u64::try_from(options.poll.as_nanos()).unwrap_or(u64::MAX),
            headers: Arc::new(HeaderBudget::new(options.header_bytes_max)),
            tenants: Mutex::default(),
        })
    }

    /// Returns the blocks of `tenant` with samples in `range`; those whose samples were written earlier come
    /// first. The first call for a tenant waits on the calling thread, which is none of the runtime.
    ///
    /// # Errors
    /// [`QueryError::Unavailable`] if the bucket does not answer the first call; as [`ReadContext::check`].
    pub fn blocks_in(
        self: &Arc<BlockCatalog>,
        tenant: &TenantId,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        ctx.check()?;
        let list = self.list(tenant, ctx)?;
        Ok(list.blocks.iter().filter(|block| block.range().overlaps(range)).cloned().collect())
    }

    /// Runs `work` for each block on threads that may wait, several at the same time, after its header was
    /// read. Returns the results in the order of `blocks`. Waits on the calling thread, which is none of the
    /// runtime.
    ///
    /// # Errors
    /// The first error in the order of `blocks`.
    pub fn for_each_opened<T: Send + 'static>(
        &self,
        blocks: &[Arc<BucketBlock>],
        ctx: &ReadContext,
        work: impl Fn(&dyn Queryable) -> Result<T, QueryError> + Clone + Send + 'static,
    ) -> Result<Vec<T>, QueryError> {
        let results = stream::iter(blocks).map(|block| {
            let work = work.clone();
            async move {
                let result = self.run_opened(block, ctx, work.clone()).await?;
                match (result.value, result.damage) {
                    (Err(_), Some(damage)) => {
                        block.drop_sidecar(&damage);
                        self.run_opened(block, ctx, work).await?.value
                    }
                    (value, _) => value,
                }
            }
        });
        self.handle.block_on(results.buffered(BLOCKS_AT_ONCE).try_collect())
    }

    /// Runs `work` for a block after its header was read.
    async fn run_opened<T: Send + 'static>(
        &self,
        block: &Arc<BucketBlock>,
        ctx: &ReadContext,
        work: impl Fn(&dyn Queryable) -> Result<T, QueryError> + Send + 'static,
    ) -> Result<Worked<T>, QueryError> {
        let opened = block.open(block.deadline_ns(ctx)).await?;
        let working = opened.clone();
        // Such a thread waits for nothing but requests, which need no thread of its kind.
        let task = self.handle.spawn_blocking(move || work(working.reader.queryable()));
        let value = task.await.map_err(|_| QueryError::Canceled)?;
        block.note_memory(&opened);
        let damage = opened.reader.sidecar_damage().map(str::to_owned);
        Ok(Worked { value, damage })
    }

    /// Generation of the list of `tenant`, which ascends when its blocks change; 0 before its first query.
    #[must_use]
    pub fn generation(&self, tenant: &TenantId) -> u64 {
        let slot = self.tenants.lock().get(tenant).cloned();
        slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.generation)).unwrap_or(0)
    }

    /// Index headers in memory, and their bytes.
    #[must_use]
    pub fn headers(&self) -> (usize, u64) {
        self.headers.usage()
    }

    /// Objects that look like blocks of `tenant` and are left out, with the reason; none before its first
    /// query.
    #[must_use]
    pub fn left_out(&self, tenant: &TenantId) -> Arc<[String]> {
        let slot = self.tenants.lock().get(tenant).cloned();
        slot.and_then(|slot| slot.list.read().as_ref().map(|list| list.left_out.clone())).unwrap_or_default()
    }

    fn list(self: &Arc<BlockCatalog>, tenant: &TenantId, ctx: &ReadContext) -> Result<BlockList, QueryError> {
        let slot = self.slot(tenant);
        let current = slot.list.read().clone();
        let Some(list) = current else {
            let left_ns = ctx.remaining_ns().min(as_ns(REFRESH_TIMEOUT));
            let deadline_ns = self.clock.mono_ns().saturating_add(left_ns);
            return self.handle.block_on(self.first_list(tenant, &slot, deadline_ns));
        };
        if self.clock.mono_ns().saturating_sub(list.listed_ns) >= self.poll_ns {
            self.refresh(tenant.clone(), slot);
        }
        Ok(list)
    }

    fn slot(&self, tenant: &TenantId) -> Arc<TenantBlocks> {
        let now_ns = self.clock.mono_ns();
        let mut tenants = self.tenants.lock();
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant) {
            let unused = tenants.iter().min_by_key(|(_, slot)| slot.used_ns.load(Ordering::Relaxed));
            let unused = unused.map(|(tenant, _)| tenant.clone());
            unused.and_then(|tenant| tenants.remove(&tenant));
        }
        let slot = tenants.entry(tenant.clone()).or_default();
        slot.used_ns.store(now_ns, Ordering::Relaxed);
        slot.clone()
    }

    async fn first_list(
        &self,
        tenant: &TenantId,
        slot: &TenantBlocks,
        deadline_ns: u64,
    ) -> Result<BlockList, QueryError> {
        let _listing = slot.listing.lock().await;
        // Another query may have listed them meanwhile.
        if let Some(list) = slot.list.read().clone() {
            return Ok(list);
        }
        self.read_list(tenant, slot, deadline_ns).await.map_err(|error| match query_error(error) {
            QueryError::Timeout => {
                let what = format!("listing the blocks of tenant {tenant} took too long; try again");
                QueryError::Unavailable { what }
            }
            other => other,
        })
    }

    /// Lists in the background, unless that is being done.
    fn refresh(self: &Arc<BlockCatalog>, tenant: TenantId, slot: Arc<TenantBlocks>) {
        if slot.listing.try_lock().is_err() {
            return;
        }
        let catalog = self.clone();
        self.handle.spawn(async move {
            let Ok(_listing) = slot.listing.try_lock() else { return };
            let deadline_ns = catalog.clock.mono_ns().saturating_add(as_ns(REFRESH_TIMEOUT));
            if let Err(error) = catalog.read_list(&tenant, &slot, deadline_ns).await {
                tracing::warn!(%tenant, %error, "listing the blocks in the bucket failed, the last list stays in use");
            }
        });
    }

    async fn read_list(
        &self,
        tenant: &TenantId,
        slot: &TenantBlocks,
        deadline_ns: u64,
    ) -> Result<BlockList, BucketError> {
        let listed_ns = self.clock.mono_ns();
        let known = slot.list.read().as_ref().map(|list| list.blocks.clone()).unwrap_or_default();
        let request = RequestContext { tenant: tenant.clone(), deadline_ns, purpose: Purpose::Catalog };
        let remote = self.remote(tenant);
        let listing = Listing { remote: &remote, request: &request, headers: &self.headers, known: &known };
        let Listed { blocks, left_out } = listing.run().await?;
        let is_same =
            blocks.len() == known.len() && blocks.iter().zip(&*known).all(|(a, b)| Arc::ptr_eq(a, b));
        let mut current = slot.list.write();
        let last_generation = current.as_ref().map_or(0, |list| list.generation);
        let generation = last_generation + u64::from(!is_same || last_generation == 0);
        let list = BlockList { blocks: blocks.into(), left_out: left_out.into(), listed_ns, generation };
        *current = Some(list.clone());
        Ok(list)
    }

    fn remote(&self, tenant: &TenantId) -> Remote {
        Remote {
            store: self.store.clone(),
            clock: self.clock.clone(),
            handle: self.handle.clone(),
            tenant: tenant.clone(),
            key: tenant.to_string(),
        }
    }
}

fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
