//! Blocks of one tenant: the list, and directories of removed blocks whose files are still there.
//!
//! Invariants: the list is sorted by precedence, which follows the order in which samples were written;
//! directories are removed in the order in which their blocks left the list.
//! Not here: the catalogue and open blocks (`blocks`), the choice of blocks to be replaced (`maintenance`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::{Disk, Env};
use chronolith_block::{BlockEntry, BlockError, block_dir};
use chronolith_format::block::meta::Ulid;
use chronolith_format::store_name;
use chronolith_model::query::ReadEstimate;
use chronolith_model::{StoreId, TimeRange};
use parking_lot::{Mutex, RwLock};

/// Directory below the data directory with one directory per tenant.
pub(crate) const TENANTS_DIR: &str = "tenants";

/// Blocks of one tenant under a lock.
pub(crate) struct TenantBlocks {
    tenant: StoreId,
    dir: PathBuf,
    list: RwLock<List>,
    /// `dir` exists and its name is durable.
    has_durable_dir: AtomicBool,
    /// Directories of blocks that left the list. The oldest is removed first: it may be hidden by a younger
    /// one only.
    pending_removals: Mutex<Vec<PathBuf>>,
}

#[derive(Default)]
struct List {
    entries: Arc<Vec<Arc<BlockEntry>>>,
    /// Ranges of the entries, in one array so that a query skips blocks of other times fast.
    ranges: Vec<TimeRange>,
    /// Newest block that was ever in the list.
    newest: Option<Ulid>,
    totals: BlockTotals,
}

/// Sums over blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BlockTotals {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) tombstones: u64,
    /// Series of the block with most series that was ever in the list.
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
        assert!(self.bytes >= record.size_bytes, "a block leaves the sums that it entered");
        self.count -= 1;
        self.bytes -= record.size_bytes;
        self.tombstones -= record.tombstone_count;
        self.samples = self.samples.saturating_sub(record.sample_count.unwrap_or(0));
        self.uncounted -= u64::from(record.sample_count.is_none());
    }

    /// Adds the sums of another tenant.
    pub(super) fn merge(&mut self, other: BlockTotals) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.tombstones += other.tombstones;
        self.series_max = self.series_max.max(other.series_max);
        self.samples = self.samples.saturating_add(other.samples);
        self.uncounted += other.uncounted;
    }

    /// Returns an upper bound of the series and samples of all blocks.
    pub(crate) fn read_estimate(&self) -> ReadEstimate {
        let samples = if self.uncounted > 0 { u64::MAX } else { self.samples };
        ReadEstimate { series: self.series_max, samples }
    }
}

impl List {
    fn insert(&mut self, entry: Arc<BlockEntry>) {
        let idx = self.entries.partition_point(|other| other.precedence() < entry.precedence());
        // Samples of a second copy would be read twice, and it would outlive its files.
        let is_new = self.entries.get(idx).is_none_or(|other| other.ulid() != entry.ulid());
        assert!(is_new, "a block is listed once");
        self.newest = self.newest.max(Some(entry.ulid()));
        self.totals.add(&entry);
        self.ranges.insert(idx, entry.range());
        Arc::make_mut(&mut self.entries).insert(idx, entry);
        assert_eq!(self.ranges.len(), self.entries.len(), "each block has its range");
    }

    fn remove(&mut self, entry: &BlockEntry) {
        let idx = self.entries.partition_point(|other| other.precedence() < entry.precedence());
        if self.entries.get(idx).is_none_or(|found| found.ulid() != entry.ulid()) {
            return;
        }
        self.ranges.remove(idx);
        let gone = Arc::make_mut(&mut self.entries).remove(idx);
        self.totals.remove(&gone);
        assert_eq!(self.totals.count, self.entries.len() as u64, "sums are those of the listed blocks");
    }
}

impl TenantBlocks {
    pub(crate) fn new(data_dir: &Path, store: &StoreId, mut entries: Vec<Arc<BlockEntry>>) -> TenantBlocks {
        entries.sort_by_key(|entry| entry.precedence());
        let ascend = entries.is_sorted_by(|a, b| a.precedence() < b.precedence());
        assert!(ascend, "a start finds each block once");
        let mut totals = BlockTotals::default();
        entries.iter().for_each(|entry| totals.add(entry));
        let list = List {
            ranges: entries.iter().map(|entry| entry.range()).collect(),
            newest: entries.iter().map(|entry| entry.ulid()).max(),
            totals,
            entries: Arc::new(entries),
        };
        let dir = tenant_dir(data_dir, store);
        TenantBlocks {
            tenant: store.clone(),
            dir,
            list: RwLock::new(list),
            has_durable_dir: AtomicBool::new(false),
            pending_removals: Mutex::default(),
        }
    }

    /// Syncs the names of directories of `tenants` that are not durable yet, with one sync for all of them.
    /// Once per process for each: an earlier process may have ended, or failed, before the sync.
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

    pub(crate) fn tenant(&self) -> &StoreId {
        &self.tenant
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory; its name is durable only after [`TenantBlocks::sync_new_dirs`].
    ///
    /// # Errors
    /// As the disk reports; the next call tries again.
    pub(crate) fn make_dir(&self, disk: &dyn Disk) -> io::Result<()> {
        if self.has_durable_dir.load(Ordering::Acquire) { Ok(()) } else { disk.create_dir_all(&self.dir) }
    }

    /// Records that the directory exists and its name is durable.
    pub(crate) fn note_durable_dir(&self) {
        self.has_durable_dir.store(true, Ordering::Release);
    }

    /// Returns all blocks, earlier written samples first.
    pub(crate) fn list(&self) -> Arc<Vec<Arc<BlockEntry>>> {
        self.list.read().entries.clone()
    }

    /// Returns the blocks that overlap `range`, earlier written samples first.
    pub(crate) fn in_range(&self, range: TimeRange) -> Vec<Arc<BlockEntry>> {
        let list = self.list.read();
        let both = list.ranges.iter().zip(list.entries.iter());
        both.filter(|(of_block, _)| of_block.overlaps(range)).map(|(_, entry)| entry.clone()).collect()
    }

    /// Returns the earliest start of the blocks that overlap `range`. Cost: reads 16 bytes per block.
    pub(crate) fn first_start_in(&self, range: TimeRange) -> Option<i64> {
        let list = self.list.read();
        list.ranges.iter().filter(|of_block| of_block.overlaps(range)).map(|of_block| of_block.start).min()
    }

    /// Returns true if `entry` is in the list.
    pub(crate) fn has(&self, entry: &Arc<BlockEntry>) -> bool {
        let list = self.list.read();
        let idx = list.entries.partition_point(|other| other.precedence() < entry.precedence());
        list.entries.get(idx).is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    /// Returns true if a block of this name is in the list. Cost: a pass over the list.
    pub(super) fn lists(&self, ulid: Ulid) -> bool {
        self.list.read().entries.iter().any(|entry| entry.ulid() == ulid)
    }

    pub(crate) fn totals(&self) -> BlockTotals {
        self.list.read().totals
    }

    /// Returns the name of the block that was created last: the next one gets a later name.
    pub(crate) fn newest_ulid(&self) -> Option<Ulid> {
        self.list.read().newest
    }

    /// Returns the directory of the block `ulid`.
    pub(crate) fn block_dir(&self, ulid: Ulid) -> PathBuf {
        block_dir(&self.dir, ulid)
    }

    /// Replaces `old` by `new` in one change: no reader sees both or neither. Queries that have opened an old
    /// block go on reading it.
    pub(super) fn replace(&self, old: &[Arc<BlockEntry>], new: &[Arc<BlockEntry>]) {
        let mut list = self.list.write();
        old.iter().for_each(|entry| list.remove(entry));
        new.iter().for_each(|entry| list.insert(entry.clone()));
    }

    /// Adds directories of blocks that left the list.
    pub(super) fn push_removals(&self, dirs: impl IntoIterator<Item = PathBuf>) {
        self.pending_removals.lock().extend(dirs);
    }

    /// Returns true if directories are still to be removed.
    pub(super) fn has_removals(&self) -> bool {
        !self.pending_removals.lock().is_empty()
    }

    /// Removes the directories in their order.
    ///
    /// # Errors
    /// The error of the first directory that cannot be removed; it and the ones after it stay pending.
    pub(super) fn remove_dirs(&self, env: &Env) -> Result<(), BlockError> {
        let mut pending = self.pending_removals.lock();
        while let Some(dir) = pending.first() {
            chronolith_block::remove(env, dir)?;
            pending.remove(0);
        }
        Ok(())
    }

    /// Returns true if there is neither a block nor a directory to be removed.
    pub(super) fn is_empty(&self) -> bool {
        self.list.read().entries.is_empty() && !self.has_removals()
    }
}

/// Returns the directory of a tenant's blocks: `DATA/tenants/<id>`.
#[must_use]
pub fn tenant_dir(data_dir: &Path, store: &StoreId) -> PathBuf {
    data_dir.join(TENANTS_DIR).join(&*store_name(store))
}
