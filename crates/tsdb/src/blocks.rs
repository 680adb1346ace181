//! The blocks of all tenants: known from the catalogue, opened on demand.
//!
//! Holds: nothing is open that nobody reads, beyond the idle part of the pool's budget. A block is verified
//! when it is opened: by the first query or compaction that needs it, else by the scrub after the start.
//! Not here: reading the catalogue at the start (`load`), the list of a tenant (`tenant`), the budget
//! (`block::pool`), reading all of each block (`scrub`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::Env;
use chronolith_block::{Block, BlockEntry, BlockError, BlockPool, PoolLimits, open_error};
use chronolith_format::block::catalogue::BlockRecord;
use chronolith_model::{QueryError, TenantId, TimeRange};
use parking_lot::RwLock;

use crate::catalogue::Catalogue;
use crate::metric::Metric;
use crate::scrub::Scrub;
use crate::tenant::{BlockTotals, TenantBlocks};

/// Tenants with their blocks.
pub(crate) type Tenants = RwLock<BTreeMap<TenantId, Arc<TenantBlocks>>>;

/// A query that meets removed blocks looks at the list again, this often.
const LIST_TRIES_MAX: usize = 64;

/// The blocks of all tenants.
pub(crate) struct BlockStore {
    pub(crate) env: Env,
    pub(crate) pool: BlockPool,
    pub(crate) catalogue: Catalogue,
    pub(crate) tenants: Arc<Tenants>,
    /// Directories at the start whose `meta.json` cannot be read, and records without a directory.
    pub(crate) lost_at_start: u64,
    catalogue_failures: AtomicU64,
    pub(crate) scrub: Scrub,
}

/// An entry as the catalogue writes it.
pub(crate) struct EntryRecord(Arc<BlockEntry>);

impl AsRef<BlockRecord> for EntryRecord {
    fn as_ref(&self) -> &BlockRecord {
        self.0.record()
    }
}

impl BlockStore {
    pub(crate) fn new(
        env: &Env,
        limits: PoolLimits,
        catalogue: Catalogue,
        tenants: Arc<Tenants>,
        lost_at_start: u64,
    ) -> BlockStore {
        BlockStore {
            env: env.clone(),
            pool: BlockPool::new(env, limits),
            catalogue,
            tenants,
            lost_at_start,
            catalogue_failures: AtomicU64::new(0),
            scrub: Scrub::default(),
        }
    }

    /// Makes what was noted in the catalogue durable. A failure is logged and counted, and the file written
    /// anew at the next call.
    pub(crate) fn commit(&self) {
        let all = || {
            let tenants: Vec<_> = self.tenants.read().iter().map(|(t, b)| (t.clone(), b.list())).collect();
            let records = |list: &Vec<Arc<BlockEntry>>| list.iter().cloned().map(EntryRecord).collect();
            tenants.into_iter().map(|(tenant, list)| (tenant, records(&list))).collect()
        };
        if let Err(error) = self.catalogue.commit::<EntryRecord>(all) {
            self.catalogue_failures.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%error, "writing the block catalogue failed, it is written anew later");
        }
    }

    /// Opens `entry`.
    pub(crate) fn open(
        &self,
        blocks: &TenantBlocks,
        entry: &Arc<BlockEntry>,
    ) -> Result<Arc<Block>, BlockError> {
        self.pool.open(&blocks.dir, entry)
    }

    /// Returns true if `tenant` has blocks in `range`; opens none.
    pub(crate) fn any_in_range(&self, tenant: &TenantId, range: TimeRange) -> bool {
        let blocks = self.tenants.read().get(tenant).cloned();
        blocks.is_some_and(|blocks| !blocks.in_range(range).is_empty())
    }

    /// The open blocks of `tenant` in `range`, earlier written samples first; they stay open while they are held.
    pub(crate) fn open_in_range(
        &self,
        tenant: &TenantId,
        range: TimeRange,
    ) -> Result<Vec<Arc<Block>>, QueryError> {
        self.fold_in_range(tenant, range, Vec::new, |blocks, block| {
            blocks.push(block);
            Ok(())
        })
    }

    /// Calls `visit` with a fresh value and each block of `tenant` in `range`, opened one after another.
    /// Begins anew when a block was replaced by others before it could be opened: the value must not outlive
    /// `visit`'s blocks.
    pub(crate) fn fold_in_range<T>(
        &self,
        tenant: &TenantId,
        range: TimeRange,
        fresh: impl Fn() -> T,
        mut visit: impl FnMut(&mut T, Arc<Block>) -> Result<(), QueryError>,
    ) -> Result<T, QueryError> {
        let mut tries = 0;
        'list: loop {
            let mut value = fresh();
            let Some(blocks) = self.tenants.read().get(tenant).cloned() else { return Ok(value) };
            for entry in blocks.in_range(range) {
                match self.open(&blocks, &entry) {
                    Ok(block) => visit(&mut value, block)?,
                    // Its samples are in the block that took its place, or expired.
                    Err(_) if !blocks.has(&entry) && tries < LIST_TRIES_MAX => {
                        tries += 1;
                        continue 'list;
                    }
                    Err(error) => {
                        tracing::warn!(%tenant, block = %entry.ulid(), %error, "opening a block for a query failed");
                        return Err(open_error(error));
                    }
                }
            }
            return Ok(value);
        }
    }

    /// Sums over all tenants.
    pub(crate) fn totals(&self) -> BlockTotals {
        let mut all = BlockTotals::default();
        for blocks in self.tenants.read().values() {
            let one = blocks.totals();
            all.count += one.count;
            all.bytes += one.bytes;
            all.tombstones += one.tombstones;
        }
        all
    }

    /// Metrics of known and open blocks.
    pub(crate) fn metrics(&self) -> [Metric; 14] {
        let (pool, totals) = (self.pool.stats(), self.totals());
        let lists: Vec<_> = self.tenants.read().values().map(|blocks| blocks.list()).collect();
        let entries = || lists.iter().flat_map(|list| list.iter());
        let damaged = entries().filter(|entry| entry.is_damaged()).count();
        let unverified = entries().filter(|entry| !entry.are_contents_verified()).count();
        let pending = if self.scrub.is_done() { 0 } else { unverified };
        let failures = self.catalogue_failures.load(Ordering::Relaxed) as f64;
        let (gauge, counter) = (Metric::gauge, Metric::counter);
        [
            gauge("block_tombstones", "Tombstones of all blocks.", totals.tombstones as f64),
            gauge("block_catalogue_entries", "Blocks in the catalogue.", totals.count as f64),
            counter("block_catalogue_failures_total", "Writes of the block catalogue that failed.", failures),
            gauge(
                "blocks_lost_at_start",
                "Blocks that the last start found missing or damaged.",
                self.lost_at_start as f64,
            ),
            gauge(
                "blocks_damaged",
                "Blocks in which damage was found; queries that need a damaged part fail.",
                damaged as f64,
            ),
            gauge(
                "block_scrub_pending_blocks",
                "Blocks whose contents were not verified yet since the start.",
                pending as f64,
            ),
            gauge("blocks_open", "Blocks that are open.", pool.open_blocks as f64),
            gauge("block_maps", "Memory maps of open blocks.", pool.maps as f64),
            gauge("block_mapped_bytes", "Size of the mapped files of open blocks.", pool.mapped_bytes as f64),
            gauge("block_open_bytes", "Memory of open blocks, mapped files aside.", pool.bytes as f64),
            counter("block_opens_total", "Blocks opened by queries and compactions.", pool.opens as f64),
            counter(
                "block_open_failures_total",
                "Blocks that could not be opened.",
                pool.open_failures as f64,
            ),
            counter(
                "block_open_refusals_total",
                "Blocks not opened because of open-block-maps or open-block-memory.",
                pool.refusals as f64,
            ),
            counter("block_evictions_total", "Open blocks closed to make room.", pool.evictions as f64),
        ]
    }
}
