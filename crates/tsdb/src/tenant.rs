//! The blocks of one tenant, and the directory they lie in.
//! Holds: the list is sorted by precedence, which is by when the samples were written; each change of it is
//! noted in the catalogue. Not here: what a block is (`block`), which blocks are replaced (`compaction`),
//! which are open (`blocks`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::Disk;
use chronolith_block::{BlockEntry, BlockError, block_dir};
use chronolith_format::block::meta::Ulid;
use chronolith_model::query::ReadEstimate;
use chronolith_model::{TenantId, TimeRange};
use parking_lot::{Mutex, RwLock};

use crate::blocks::BlockStore;
use crate::store::Tsdb;

/// Directory below the data directory that holds one directory a tenant.
pub(crate) const TENANTS_DIR: &str = "tenants";

/// Blocks of one tenant.
pub(crate) struct TenantBlocks {
    tenant: TenantId,
    /// `DATA/tenants/<id>`.
    pub(crate) dir: PathBuf,
    list: RwLock<List>,
    /// Whether `dir` is there and its name durable.
    has_durable_dir: AtomicBool,
    /// Directories of blocks that are not in the list any more and must go before a younger block does.
    doomed: Mutex<Vec<PathBuf>>,
}

#[derive(Default)]
struct List {
    /// By precedence.
    entries: Arc<Vec<Arc<BlockEntry>>>,
    /// Of the entries, apart so that a query passes over those of other times fast.
    ranges: Vec<TimeRange>,
    /// Of all blocks that were ever in the list.
    newest: Option<Ulid>,
    totals: BlockTotals,
}

/// Makes the names of directories durable, with one sync for all tenants that have none yet. Once in a
/// process for each: an earlier one may have ended, or failed, before the sync.
///
/// # Errors
/// As the disk reports; the next call tries again.
pub(crate) fn sync_new_dirs<'a>(
    disk: &dyn Disk,
    tenants: impl Iterator<Item = &'a TenantBlocks>,
) -> io::Result<()> {
    let new: Vec<_> = tenants.filter(|blocks| !blocks.has_durable_dir.load(Ordering::Acquire)).collect();
    for parent in new.iter().filter_map(|blocks| blocks.dir.parent()).collect::<BTreeSet<_>>() {
        disk.sync_dir(parent)?;
    }
    new.iter().for_each(|blocks| blocks.note_durable_dir());
    Ok(())
}

/// Sums over blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BlockTotals {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) tombstones: u64,
    /// Series of the largest block that was ever in the list.
    pub(crate) series_max: u64,
    /// Samples of those blocks whose number is known.
    pub(crate) samples: u64,
    /// Blocks whose number of samples is not known.
    pub(crate) uncounted: u64,
}

impl BlockTotals {
    fn add(&mut self, entry: &BlockEntry) {
        let record = entry.record();
        self.count += 1;
        self.bytes += record.size_bytes;
        self.tombstones += record.tombstone_count;
        self.series_max = self.series_max.max(record.series_count);
        self.samples = self.samples.saturating_add(record.sample_count.unwrap_or(0));
        self.uncounted += u64::from(record.sample_count.is_none());
    }

    fn remove(&mut self, entry: &BlockEntry) {
        let record = entry.record();
        self.count -= 1;
        self.bytes -= record.size_bytes;
        self.tombstones -= record.tombstone_count;
        self.samples = self.samples.saturating_sub(record.sample_count.unwrap_or(0));
        self.uncounted -= u64::from(record.sample_count.is_none());
    }

    /// No less than what all blocks hold.
    pub(crate) fn read_estimate(&self) -> ReadEstimate {
        let samples = if self.uncounted > 0 { u64::MAX } else { self.samples };
        ReadEstimate { series: self.series_max, samples }
    }
}

impl List {
    fn insert(&mut self, entry: Arc<BlockEntry>) {
        let place = self.entries.partition_point(|other| other.precedence() < entry.precedence());
        self.newest = self.newest.max(Some(entry.ulid()));
        self.totals.add(&entry);
        self.ranges.insert(place, entry.range());
        Arc::make_mut(&mut self.entries).insert(place, entry);
    }

    fn remove(&mut self, entry: &BlockEntry) {
        let place = self.entries.partition_point(|other| other.precedence() < entry.precedence());
        if self.entries.get(place).is_none_or(|found| found.ulid() != entry.ulid()) {
            return;
        }
        self.ranges.remove(place);
        let gone = Arc::make_mut(&mut self.entries).remove(place);
        self.totals.remove(&gone);
    }
}

impl TenantBlocks {
    pub(crate) fn new(data_dir: &Path, tenant: &TenantId, mut entries: Vec<Arc<BlockEntry>>) -> TenantBlocks {
        entries.sort_by_key(|entry| entry.precedence());
        let mut totals = BlockTotals::default();
        entries.iter().for_each(|entry| totals.add(entry));
        let list = List {
            ranges: entries.iter().map(|entry| entry.range()).collect(),
            newest: entries.iter().map(|entry| entry.ulid()).max(),
            totals,
            entries: Arc::new(entries),
        };
        let dir = tenant_dir(data_dir, tenant);
        TenantBlocks {
            tenant: tenant.clone(),
            dir,
            list: RwLock::new(list),
            has_durable_dir: AtomicBool::new(false),
            doomed: Mutex::default(),
        }
    }

    /// Makes the directory; its name is durable only after [`sync_new_dirs`].
    ///
    /// # Errors
    /// As the disk reports; the next call tries again.
    pub(crate) fn make_dir(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.has_durable_dir.load(Ordering::Acquire) { Ok(()) } else { disk.create_dir_all(&self.dir) }
    }

    /// Notes that the directory is there and its name durable.
    pub(crate) fn note_durable_dir(&self) {
        self.has_durable_dir.store(true, Ordering::Release);
    }

    /// All blocks, earlier written samples first.
    pub(crate) fn list(&self) -> Arc<Vec<Arc<BlockEntry>>> {
        self.list.read().entries.clone()
    }

    /// Those that cover part of `range`, earlier written samples first.
    pub(crate) fn in_range(&self, range: TimeRange) -> Vec<Arc<BlockEntry>> {
        let list = self.list.read();
        let both = list.ranges.iter().zip(list.entries.iter());
        both.filter(|(of_block, _)| of_block.overlaps(range)).map(|(_, entry)| entry.clone()).collect()
    }

    /// The earliest start of those that cover part of `range`. Cost: reads 16 bytes per block.
    pub(crate) fn first_start_in(&self, range: TimeRange) -> Option<i64> {
        let list = self.list.read();
        list.ranges.iter().filter(|of_block| of_block.overlaps(range)).map(|of_block| of_block.start).min()
    }

    /// Returns true if `entry` is in the list.
    pub(crate) fn has(&self, entry: &Arc<BlockEntry>) -> bool {
        let list = self.list.read();
        let place = list.entries.partition_point(|other| other.precedence() < entry.precedence());
        list.entries.get(place).is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    pub(crate) fn totals(&self) -> BlockTotals {
        self.list.read().totals
    }

    /// The name of the block that was created last: the next one gets a later name.
    pub(crate) fn newest_ulid(&self) -> Option<Ulid> {
        self.list.read().newest
    }

    /// Where the block `ulid` lies.
    pub(crate) fn block_dir(&self, ulid: Ulid) -> PathBuf {
        block_dir(&self.dir, ulid)
    }

    pub(crate) fn add(&self, store: &BlockStore, entry: Arc<BlockEntry>) {
        self.replace(store, &[], vec![entry]);
    }

    /// Takes blocks out of the list and puts others in, in one change: no reader sees both or neither.
    /// Queries that have one that is taken out go on reading it.
    pub(crate) fn replace(&self, store: &BlockStore, old: &[Arc<BlockEntry>], new: Vec<Arc<BlockEntry>>) {
        let mut list = self.list.write();
        old.iter().for_each(|entry| list.remove(entry));
        new.iter().for_each(|entry| list.insert(entry.clone()));
        drop(list);
        // A block whose tombstones changed is both old and new: its record replaces the one that is there.
        let is_gone = |entry: &&Arc<BlockEntry>| new.iter().all(|other| other.ulid() != entry.ulid());
        let removed = old.iter().filter(is_gone).map(|entry| entry.ulid());
        store.catalogue.note(&self.tenant, removed, new.iter().map(|entry| entry.record()));
        old.iter().for_each(|entry| store.pool.close(entry));
    }

    /// Notes directories of blocks that left the list for [`TenantBlocks::remove_doomed`].
    pub(crate) fn doom(&self, dirs: impl IntoIterator<Item = PathBuf>) {
        self.doomed.lock().extend(dirs);
    }

    /// Removes the noted directories, in their order.
    ///
    /// # Errors
    /// Of the first one that cannot be removed; it and those behind it stay noted.
    pub(crate) fn remove_doomed(&self, store: &BlockStore) -> Result<(), BlockError> {
        if self.doomed.lock().is_empty() {
            return Ok(());
        }
        // Else a start would miss what is removed here. On a full disk it cannot be written, and the space is
        // needed: then a start names blocks as lost that were removed, at worst.
        store.commit();
        let mut doomed = self.doomed.lock();
        while let Some(dir) = doomed.first() {
            chronolith_block::remove(&store.env, dir)?;
            doomed.remove(0);
        }
        Ok(())
    }

    /// Returns true if there is no block, and no files of one that are still to be removed.
    fn is_empty(&self) -> bool {
        self.list.read().entries.is_empty() && self.doomed.lock().is_empty()
    }
}

impl Tsdb {
    /// Forgets tenants without series, blocks and requests under way; they come back when they are written
    /// to.
    pub(crate) fn forget_tenants(&self) {
        self.head.windows().forget_unused_tenants();
        let is_unused = |blocks: &Arc<TenantBlocks>| Arc::strong_count(blocks) == 1 && blocks.is_empty();
        let all = self.tenants.read();
        let unused: Vec<TenantId> =
            all.iter().filter(|(_, blocks)| is_unused(blocks)).map(|(tenant, _)| tenant.clone()).collect();
        drop(all);
        for tenant in unused {
            // Whoever is about to add a block has a reference.
            let mut all = self.tenants.write();
            if all.get(&tenant).is_some_and(is_unused) {
                all.remove(&tenant);
            }
        }
        if let Err(error) = self.head.reclaim_ids() {
            self.count_upkeep_error();
            tracing::error!(%error, "ids of departed series cannot be used again yet; it is tried again");
        }
        let blocks = self.tenants.read();
        self.changes
            .forget(|tenant| !blocks.contains_key(tenant) && !self.head.statistics().has_tenant(tenant));
    }
}

/// Where the blocks of a tenant lie: `DATA/tenants/<id>`.
#[must_use]
pub fn tenant_dir(data_dir: &Path, tenant: &TenantId) -> PathBuf {
    data_dir.join(TENANTS_DIR).join(tenant.as_str())
}
