//! Block store: the blocks of all tenants, listed in the catalogue and opened on demand.
//!
//! Invariants: every change of a tenant's list is recorded in the catalogue; no block is open without a
//! reader beyond the idle part of the pool's budget. A block is verified when it is opened: by the first
//! query or compaction that needs it, or by the scrub after the start.
//! Not here: reading the catalogue at the start (`load`), the list of a tenant (`tenant`), the budget of open
//! blocks (`block::pool`).

pub(crate) mod catalogue;
pub(crate) mod load;
pub(crate) mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::{Block, BlockEntry, BlockError, BlockPool, PoolLimits, PoolStats, open_error};
use chronolith_format::block::catalogue::BlockRecord;
use chronolith_format::block::meta::Ulid;
use chronolith_format::store_name;
use chronolith_model::{QueryError, StoreId, TimeRange};
use parking_lot::{Mutex, RwLock};

use crate::metric::{Metric, MetricValue};
use catalogue::Catalogue;
use load::LoadedBlocks;
use tenant::{BlockTotals, TenantBlocks};

/// Attempts of a query to open a list of blocks while some of them are replaced.
const LIST_TRIES_MAX: usize = 64;

/// Tenants with their blocks.
type Tenants = BTreeMap<StoreId, Arc<TenantBlocks>>;

/// Lists of the blocks of all tenants, and the pool of open ones.
pub(crate) struct BlockStore {
    env: Env,
    data_dir: PathBuf,
    pool: BlockPool,
    catalogue: Catalogue,
    catalogue_failures: MetricValue,
    tenants: RwLock<Tenants>,
    /// Tenants whose lists changed since compaction planned them.
    changed: Mutex<BTreeSet<StoreId>>,
    /// Tenants with directories to be removed.
    removals: Mutex<BTreeSet<StoreId>>,
    /// Blocks that compaction cannot read, until the next start, which may be of a version that can.
    compaction_refused: Mutex<BTreeSet<Ulid>>,
    /// Blocks that the start found missing or damaged.
    lost_at_start: u64,
}

/// An entry as the catalogue writes it.
struct EntryRecord(Arc<BlockEntry>);

impl AsRef<BlockRecord> for EntryRecord {
    fn as_ref(&self) -> &BlockRecord {
        self.0.record()
    }
}

impl BlockStore {
    /// A store of the blocks that a start has found.
    pub(crate) fn new(env: &Env, data_dir: &Path, limits: PoolLimits, loaded: LoadedBlocks) -> BlockStore {
        let LoadedBlocks { tenants, catalogue, lost_count } = loaded;
        let with_removals = tenants.iter().filter(|(_, blocks)| blocks.has_removals());
        BlockStore {
            env: env.clone(),
            data_dir: data_dir.to_owned(),
            pool: BlockPool::new(env, limits),
            catalogue,
            catalogue_failures: MetricValue::default(),
            changed: Mutex::default(),
            removals: Mutex::new(with_removals.map(|(tenant, _)| tenant.clone()).collect()),
            compaction_refused: Mutex::default(),
            tenants: RwLock::new(tenants),
            lost_at_start: lost_count,
        }
    }

    /// Returns the blocks of `store`; `None` if it has none.
    pub(crate) fn tenant(&self, store: &StoreId) -> Option<Arc<TenantBlocks>> {
        self.tenants.read().get(store).cloned()
    }

    /// Returns the blocks of `store`, with an empty list if it has none.
    pub(crate) fn tenant_or_new(&self, store: &StoreId) -> Arc<TenantBlocks> {
        let fresh = || Arc::new(TenantBlocks::new(&self.data_dir, store, Vec::new()));
        self.tenants.write().entry(store.clone()).or_insert_with(fresh).clone()
    }

    /// Returns true if `store` is in the map, be it without a block.
    pub(crate) fn has_tenant(&self, store: &StoreId) -> bool {
        self.tenants.read().contains_key(store)
    }

    /// Returns all tenants with their blocks, in order of their names.
    pub(crate) fn all(&self) -> Vec<(StoreId, Arc<TenantBlocks>)> {
        self.tenants.read().iter().map(|(tenant, blocks)| (tenant.clone(), blocks.clone())).collect()
    }

    /// Returns the first tenant after `tenant` with its blocks.
    pub(crate) fn next_after(&self, tenant: Option<&StoreId>) -> Option<(StoreId, Arc<TenantBlocks>)> {
        let tenants = self.tenants.read();
        let after = tenant.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = tenants.range::<StoreId, _>((after, Bound::Unbounded));
        rest.next().map(|(tenant, blocks)| (tenant.clone(), blocks.clone()))
    }

    /// Forgets tenants without blocks and without readers.
    pub(crate) fn forget_unused_tenants(&self) {
        let is_unused = |blocks: &Arc<TenantBlocks>| Arc::strong_count(blocks) == 1 && blocks.is_empty();
        let tenants = self.tenants.read();
        let unused = tenants.iter().filter(|(_, blocks)| is_unused(blocks));
        let unused: Vec<StoreId> = unused.map(|(tenant, _)| tenant.clone()).collect();
        drop(tenants);
        for tenant in unused {
            // A thread that is about to add a block has a reference.
            let mut tenants = self.tenants.write();
            if tenants.get(&tenant).is_some_and(is_unused) {
                tenants.remove(&tenant);
            }
        }
    }

    pub(crate) fn add(&self, blocks: &TenantBlocks, entry: Arc<BlockEntry>) {
        self.replace(blocks, &[], vec![entry]);
    }

    /// Replaces `old` by `new` in one change: no reader sees both or neither. Durable after
    /// [`BlockStore::commit`].
    pub(crate) fn replace(&self, blocks: &TenantBlocks, old: &[Arc<BlockEntry>], new: Vec<Arc<BlockEntry>>) {
        blocks.replace(old, &new);
        // A block whose tombstones changed is both old and new: its record replaces the earlier one.
        let is_gone = |entry: &&Arc<BlockEntry>| new.iter().all(|other| other.ulid() != entry.ulid());
        let gone: Vec<Ulid> = old.iter().filter(is_gone).map(|entry| entry.ulid()).collect();
        let added = new.iter().map(|entry| entry.record());
        // Files of `gone` are removed: a block that stays in the list must not be among them.
        assert!(gone.iter().all(|ulid| !blocks.lists(*ulid)), "a replaced block has left the list");
        self.catalogue.note(blocks.tenant(), gone.iter().copied(), added);
        old.iter().for_each(|entry| self.pool.close(entry));
        self.changed.lock().insert(blocks.tenant().clone());
        let mut refused = self.compaction_refused.lock();
        for ulid in &gone {
            refused.remove(ulid);
        }
        drop(refused);
        if self.catalogue.is_overdue() {
            self.commit();
        }
    }

    /// Schedules directories of blocks that are not in the list for [`BlockStore::remove_files`].
    pub(crate) fn schedule_removal(&self, blocks: &TenantBlocks, dirs: impl IntoIterator<Item = PathBuf>) {
        blocks.push_removals(dirs);
        self.removals.lock().insert(blocks.tenant().clone());
    }

    /// Removes the scheduled directories of a tenant in their order.
    ///
    /// # Errors
    /// The error of the first directory that cannot be removed; it and the ones after it stay scheduled.
    pub(crate) fn remove_files(&self, blocks: &TenantBlocks) -> Result<(), BlockError> {
        if !blocks.has_removals() {
            return Ok(());
        }
        // Else a start would miss the removed blocks. On a full disk the catalogue cannot be written, and the
        // space is needed: then a start reports blocks as lost that were removed, at worst.
        self.commit();
        blocks.remove_dirs(&self.env)?;
        self.removals.lock().remove(blocks.tenant());
        Ok(())
    }

    /// Returns the tenants with directories to be removed.
    pub(crate) fn tenants_with_removals(&self) -> Vec<StoreId> {
        self.removals.lock().iter().cloned().collect()
    }

    /// Takes the set of tenants whose lists changed since the last call.
    pub(crate) fn take_changed(&self) -> BTreeSet<StoreId> {
        std::mem::take(&mut *self.changed.lock())
    }

    /// Marks `store` for compaction to plan it again.
    pub(crate) fn mark_changed(&self, store: &StoreId) {
        self.changed.lock().insert(store.clone());
    }

    /// Marks the tenants for which `is_changed` holds for compaction to plan them again.
    pub(crate) fn mark_changed_if(&self, is_changed: impl Fn(&StoreId) -> bool) {
        let changed: Vec<_> =
            self.tenants.read().keys().filter(|tenant| is_changed(tenant)).cloned().collect();
        self.changed.lock().extend(changed);
    }

    /// Excludes blocks from compaction until the next start.
    pub(crate) fn refuse_compaction(&self, ulids: Vec<Ulid>) {
        self.compaction_refused.lock().extend(ulids);
    }

    /// Returns the blocks that are excluded from compaction.
    pub(crate) fn compaction_refused(&self) -> BTreeSet<Ulid> {
        self.compaction_refused.lock().clone()
    }

    /// Makes changes of the lists durable in the catalogue. A failure is logged and counted, and the next
    /// call rewrites the file.
    pub(crate) fn commit(&self) {
        let all = || {
            let records =
                |list: &Vec<Arc<BlockEntry>>| list.iter().cloned().map(EntryRecord).collect::<Vec<_>>();
            self.all().into_iter().map(|(tenant, blocks)| (tenant, records(&blocks.list()))).collect()
        };
        if let Err(error) = self.catalogue.commit::<EntryRecord>(all) {
            self.catalogue_failures.increment();
            tracing::error!(%error, "writing the block catalogue failed, the next write rewrites the whole file");
        }
    }

    /// Opens a block through the pool.
    pub(crate) fn open(
        &self,
        blocks: &TenantBlocks,
        entry: &Arc<BlockEntry>,
    ) -> Result<Arc<Block>, BlockError> {
        self.pool.open(blocks.dir(), entry)
    }

    /// Closes a block whose files changed: the next reader opens it again.
    pub(crate) fn reopen(&self, entry: &BlockEntry) {
        self.pool.close(entry);
    }

    /// Opens a block outside of the pool's budget, to verify it.
    pub(crate) fn open_unpooled(
        &self,
        blocks: &TenantBlocks,
        entry: &Arc<BlockEntry>,
    ) -> Result<Arc<Block>, BlockError> {
        self.pool.open_unpooled(blocks.dir(), entry)
    }

    /// Returns true if `store` has blocks in `range`; opens none.
    pub(crate) fn any_in_range(&self, store: &StoreId, range: TimeRange) -> bool {
        self.tenant(store).is_some_and(|blocks| !blocks.in_range(range).is_empty())
    }

    /// Opens the blocks of `store` in `range`, earlier written samples first. They stay open as long as they
    /// are referenced.
    pub(crate) fn open_in_range(
        &self,
        store: &StoreId,
        range: TimeRange,
    ) -> Result<Vec<Arc<Block>>, QueryError> {
        self.fold_in_range(store, range, Vec::new, |blocks, block| {
            blocks.push(block);
            Ok(())
        })
    }

    /// Calls `visit` with a fresh value and each block of `store` in `range`, opened one after another.
    /// Starts again with a fresh value if a block was replaced by others before it could be opened.
    pub(crate) fn fold_in_range<T>(
        &self,
        store: &StoreId,
        range: TimeRange,
        fresh: impl Fn() -> T,
        mut visit: impl FnMut(&mut T, Arc<Block>) -> Result<(), QueryError>,
    ) -> Result<T, QueryError> {
        let mut tries = 0;
        'list: loop {
            let mut value = fresh();
            let Some(blocks) = self.tenant(store) else { return Ok(value) };
            for entry in blocks.in_range(range) {
                match self.open(&blocks, &entry) {
                    Ok(block) => visit(&mut value, block)?,
                    // The samples are in the block that replaced this one, or expired.
                    Err(_) if !blocks.has(&entry) && tries < LIST_TRIES_MAX => {
                        tries += 1;
                        continue 'list;
                    }
                    Err(error) => {
                        tracing::warn!(tenant = %store_name(store), block = %entry.ulid(), %error, "opening a block for a query failed");
                        return Err(open_error(error));
                    }
                }
            }
            return Ok(value);
        }
    }

    /// Returns the sums over all tenants.
    pub(crate) fn totals(&self) -> BlockTotals {
        let mut all = BlockTotals::default();
        self.tenants.read().values().for_each(|blocks| all.merge(blocks.totals()));
        all
    }

    pub(crate) fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Returns the memory of the regex caches of open blocks.
    pub(crate) fn regex_cache_bytes(&self) -> u64 {
        self.pool.regex_cache_bytes()
    }

    /// Returns the latest end of a block.
    pub(crate) fn newest_end_ms(&self) -> Option<i64> {
        let tenants = self.tenants.read();
        let newest = |(tenant, blocks): (&StoreId, &Arc<TenantBlocks>)| {
            let end = blocks.list().iter().map(|block| block.range().end).max()?;
            Some(tenant.time_unit().to_ms_ceil(end))
        };
        tenants.iter().filter_map(newest).max()
    }

    /// Returns the metrics of known and open blocks.
    pub(crate) fn metrics(&self, is_scrub_done: bool) -> [Metric; 14] {
        let (pool, totals) = (self.pool.stats(), self.totals());
        let lists: Vec<_> = self.tenants.read().values().map(|blocks| blocks.list()).collect();
        let entries = || lists.iter().flat_map(|list| list.iter());
        let damaged = entries().filter(|entry| entry.is_damaged()).count();
        let unverified = entries().filter(|entry| !entry.are_contents_verified()).count();
        let pending = if is_scrub_done { 0 } else { unverified };
        let failures = self.catalogue_failures.as_f64();
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
