//! Blocks that are known to be in the bucket, and statistics of uploads: shared by uploads, local retention
//! and deletions.
//!
//! Invariant: a block is in it only when queries see it in the bucket.
//! Not here: the uploads themselves (`upload`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_base::backoff::{Backoff, PauseBounds};
use chronolith_base::crc::crc32c;
use chronolith_block::BlockEntry;
use chronolith_bucket::snapshots::Change;
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock, Snapshot, TombstonesObject};
use chronolith_model::{DuplicatePolicy, TenantId, TimeRange};
use parking_lot::Mutex;

use super::Bucket;
use super::known_tenants::KnownTenants;
use super::upload_counters::UploadCounters;
use crate::metric::Metric;

/// Time for reading or updating the catalogue.
pub(crate) const CATALOG_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for reading a catalogue that flushes and compactions wait for, and pauses after failures.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_READ_PAUSES: PauseBounds = PauseBounds { min_ns: 60_000_000_000, max_ns: 60_000_000_000 };
/// Time for the requests of one block.
pub(crate) const BLOCK_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pauses after failures of a folder.
pub(crate) const RETRY_PAUSES: PauseBounds = PauseBounds { min_ns: 5_000_000_000, max_ns: 300_000_000_000 };

/// Position of a block of the bucket among the blocks of its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    pub(crate) ulid: Ulid,
    /// Order in which samples were written, as [`chronolith_block::precedence`].
    pub(crate) precedence: (Ulid, Ulid),
    /// In the unit of the store.
    pub(crate) range: TimeRange,
    pub(crate) split_set: Option<Ulid>,
}

impl BlockPlace {
    fn of(record: &BucketBlock) -> BlockPlace {
        let BucketBlock { ulid, range, ref ancestry, .. } = *record;
        let precedence = (ancestry.oldest_source, ulid);
        BlockPlace { ulid, precedence, range, split_set: ancestry.split_set }
    }
}

/// A block of the latest snapshot.
struct UploadedBlock {
    place: BlockPlace,
    tombstone_count: u64,
    tombstones: Option<TombstonesObject>,
    /// Local entry with the same tombstones, of a block that has some. Each deletion makes another entry.
    confirmed: Weak<BlockEntry>,
}

impl UploadedBlock {
    fn has_count_of(&self, entry: &BlockEntry) -> bool {
        self.tombstone_count == entry.record().tombstone_count
    }
}

/// Blocks in the bucket that this process knows of.
pub(crate) struct UploadState {
    bucket: Arc<Bucket>,
    clock: Arc<dyn Clock>,
    folders: Mutex<BTreeMap<Folder, BTreeMap<Ulid, UploadedBlock>>>,
    counters: UploadCounters,
    known: KnownTenants,
    /// Next attempt of [`UploadState::read_once`] after a failure.
    first_reads: Mutex<Backoff>,
    /// Wall clock time of retention, which does not follow jumps; 0 until maintenance has run.
    retention_now_ms: AtomicI64,
}

impl UploadState {
    pub(crate) fn new(bucket: Arc<Bucket>, clock: Arc<dyn Clock>) -> UploadState {
        UploadState {
            bucket,
            clock,
            folders: Mutex::default(),
            counters: UploadCounters::default(),
            known: KnownTenants::default(),
            first_reads: Mutex::default(),
            retention_now_ms: AtomicI64::new(0),
        }
    }

    pub(crate) fn bucket(&self) -> &Arc<Bucket> {
        &self.bucket
    }

    pub(crate) fn counters(&self) -> &UploadCounters {
        &self.counters
    }

    /// Tenants whose databases in the bucket are known.
    pub(crate) fn known(&self) -> &KnownTenants {
        &self.known
    }

    /// Takes the time of local retention, by which blocks in the bucket expire.
    pub(crate) fn set_retention_now(&self, now_ms: i64) {
        self.retention_now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Time in nanoseconds before which samples of a policy with this duration are expired; `None` until
    /// maintenance has run.
    pub(crate) fn expired_end(&self, duration_ns: i64) -> Option<i64> {
        match self.retention_now_ms.load(Ordering::Relaxed) {
            0 => None,
            now_ms => Some(now_ms.saturating_mul(1_000_000).saturating_sub(duration_ns)),
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    pub(crate) fn metrics(&self) -> [Metric; 10] {
        self.counters.metrics(&self.bucket.uploads())
    }

    /// Returns true if the bucket has the block with all its deletions, and queries know that.
    pub(crate) fn has(&self, folder: &Folder, entry: &Arc<BlockEntry>) -> bool {
        let folders = self.folders.lock();
        let Some(block) = folders.get(folder).and_then(|blocks| blocks.get(&entry.ulid())) else {
            return false;
        };
        // Two sets of tombstones can have the same number of intervals.
        let is_confirmed = || std::ptr::eq(block.confirmed.as_ptr(), Arc::as_ptr(entry));
        block.has_count_of(entry) && (block.tombstone_count == 0 || is_confirmed())
    }

    /// Returns the blocks of a folder; `None` until its catalogue was read.
    pub(crate) fn places(&self, folder: &Folder) -> Option<Vec<BlockPlace>> {
        let folders = self.folders.lock();
        Some(folders.get(folder)?.values().map(|block| block.place).collect())
    }

    /// Reads the catalogue of a folder unless that was done; nothing soon after a failure. Waits on the
    /// calling thread for at most [`FIRST_READ_TIMEOUT`].
    pub(crate) fn read_once(&self, folder: &Folder) {
        let before = *self.first_reads.lock();
        if self.folders.lock().contains_key(folder) || !before.is_due(self.clock.mono_ns()) {
            return;
        }
        *self.first_reads.lock() = match self.read_within(folder, FIRST_READ_TIMEOUT) {
            Ok(_) => Backoff::default(),
            Err(error) => {
                tracing::warn!(%folder, %error, "reading the list of blocks in the bucket failed");
                before.after_failure(self.clock.mono_ns(), FIRST_READ_PAUSES)
            }
        };
    }

    /// Returns the latest name of the known blocks of a folder; `None` before its catalogue was read.
    pub(crate) fn newest_ulid(&self, folder: &Folder) -> Option<Ulid> {
        self.folders.lock().get(folder)?.keys().next_back().copied()
    }

    /// Returns true if the bucket may have all deletions of the block, which is known once the tombstones are
    /// compared.
    pub(crate) fn is_unconfirmed(&self, folder: &Folder, entry: &Arc<BlockEntry>) -> bool {
        let folders = self.folders.lock();
        let block = folders.get(folder).and_then(|blocks| blocks.get(&entry.ulid()));
        let has_count = block.is_some_and(|block| block.tombstone_count > 0 && block.has_count_of(entry));
        drop(folders);
        has_count && !self.has(folder, entry)
    }

    /// Compares `tombstones`, the local file of `entry`, with the bucket's: if they are equal, the bucket has
    /// all deletions of the block.
    pub(crate) fn confirm(&self, folder: &Folder, entry: &Arc<BlockEntry>, tombstones: &[u8]) {
        let mut folders = self.folders.lock();
        let block = folders.get_mut(folder).and_then(|blocks| blocks.get_mut(&entry.ulid()));
        let Some(block) = block else { return };
        let is_same = |object: &TombstonesObject| {
            object.len == tombstones.len() as u64 && object.crc == crc32c(tombstones)
        };
        if block.tombstones.as_ref().is_some_and(is_same) {
            block.confirmed = Arc::downgrade(entry);
        }
    }

    /// Reads the catalogue of a folder and records its blocks as uploaded; `None` if it has none.
    pub(crate) fn read(&self, folder: &Folder) -> Result<Option<Arc<Snapshot>>, BucketError> {
        self.read_within(folder, CATALOG_TIMEOUT)
    }

    fn read_within(&self, folder: &Folder, timeout: Duration) -> Result<Option<Arc<Snapshot>>, BucketError> {
        let request = self.request(folder, timeout);
        let snapshot = self.bucket.snapshot(&request)?;
        match &snapshot {
            Some(snapshot) => self.record_by(&request, snapshot)?,
            None => drop(self.folders.lock().entry(folder.clone()).or_default()),
        }
        Ok(snapshot)
    }

    /// Lets the catalogue of a folder say which of several samples with one timestamp is read.
    pub(crate) fn record_duplicates(
        &self,
        folder: &Folder,
        duplicates: DuplicatePolicy,
    ) -> Result<(), BucketError> {
        let updated = self.bucket.update(&self.catalog_request(folder), |snapshot| {
            let before = std::mem::replace(&mut snapshot.duplicates, duplicates);
            if before == duplicates { Change::Keep } else { Change::Write }
        })?;
        updated.map_or(Ok(()), |snapshot| self.record(folder, &snapshot))
    }

    /// Records the blocks of a snapshot as uploaded, after queries see them.
    pub(crate) fn record(&self, folder: &Folder, snapshot: &Snapshot) -> Result<(), BucketError> {
        self.record_by(&self.catalog_request(folder), snapshot)
    }

    /// As [`UploadState::record`], within the deadline of `request`.
    fn record_by(&self, request: &RequestContext, snapshot: &Snapshot) -> Result<(), BucketError> {
        self.bucket.refresh(request)?;
        let folder = &request.folder;
        let mut folders = self.folders.lock();
        let mut before = folders.remove(folder).unwrap_or_default();
        let blocks = snapshot.blocks.iter().map(|record| {
            let same = before.remove(&record.ulid).filter(|block| block.tombstones == record.tombstones);
            let block = UploadedBlock {
                place: BlockPlace::of(record),
                tombstone_count: record.counts.tombstones,
                tombstones: record.tombstones.clone(),
                confirmed: same.map(|block| block.confirmed).unwrap_or_default(),
            };
            (record.ulid, block)
        });
        let blocks: BTreeMap<Ulid, UploadedBlock> = blocks.collect();
        assert_eq!(blocks.len(), snapshot.blocks.len(), "a snapshot names each block once");
        folders.insert(folder.clone(), blocks);
        Ok(())
    }

    /// Forgets the blocks of a store that was dropped.
    pub(crate) fn forget(&self, folder: &Folder) {
        self.folders.lock().remove(folder);
    }

    /// Forgets the blocks of all stores of a tenant that was deleted.
    pub(crate) fn forget_tenant(&self, tenant: &TenantId) {
        self.folders.lock().retain(|folder, _| folder.tenant() != tenant);
    }

    pub(crate) fn catalog_request(&self, folder: &Folder) -> RequestContext {
        self.request(folder, CATALOG_TIMEOUT)
    }

    pub(crate) fn request(&self, folder: &Folder, timeout: Duration) -> RequestContext {
        RequestContext::with_timeout(&*self.clock, folder, timeout, Purpose::Upload)
    }
}

pub(crate) fn text(error: impl Display) -> String {
    error.to_string()
}
