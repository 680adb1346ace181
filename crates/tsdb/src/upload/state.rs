//! Blocks that are known to be in the bucket, and statistics of uploads: shared by uploads, local retention
//! and deletions.
//!
//! Invariant: a block is in it only when queries see it in the bucket.
//! Not here: the uploads themselves (`upload`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_block::BlockEntry;
use chronolith_bucket::{BucketError, Folder, Purpose, RequestContext};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::Snapshot;
use parking_lot::Mutex;

use super::counters::UploadCounters;
use super::known::KnownTenants;
use crate::bucket::BucketSources;
use crate::metric::Metric;

/// Time for reading or updating the catalogue.
pub(super) const CATALOG_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for the requests of one block.
pub(super) const BLOCK_TIMEOUT: Duration = Duration::from_secs(3600);

/// Deleted intervals of each block of a folder, by the latest snapshot.
type Deletions = BTreeMap<Ulid, u64>;

/// Blocks in the bucket, as far as this process knows.
pub(crate) struct UploadState {
    bucket: Arc<BucketSources>,
    clock: Arc<dyn Clock>,
    folders: Mutex<BTreeMap<Folder, Deletions>>,
    counters: UploadCounters,
    known: KnownTenants,
    /// Wall clock time of retention, which does not follow jumps; 0 until maintenance has run.
    retention_now_ms: AtomicI64,
}

impl UploadState {
    pub(crate) fn new(bucket: Arc<BucketSources>, clock: Arc<dyn Clock>) -> UploadState {
        UploadState {
            bucket,
            clock,
            folders: Mutex::default(),
            counters: UploadCounters::default(),
            known: KnownTenants::default(),
            retention_now_ms: AtomicI64::new(0),
        }
    }

    pub(crate) fn bucket(&self) -> &Arc<BucketSources> {
        &self.bucket
    }

    pub(crate) fn counters(&self) -> &UploadCounters {
        &self.counters
    }

    /// Tenants whose databases in the bucket are known.
    pub(super) fn known(&self) -> &KnownTenants {
        &self.known
    }

    /// Takes the time of local retention, by which blocks in the bucket expire.
    pub(crate) fn set_retention_now(&self, now_ms: i64) {
        self.retention_now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Time in nanoseconds before which samples of a policy with this duration are expired; `None` until
    /// maintenance has run.
    pub(super) fn expired_end(&self, duration_ns: i64) -> Option<i64> {
        match self.retention_now_ms.load(Ordering::Relaxed) {
            0 => None,
            now_ms => Some(now_ms.saturating_mul(1_000_000).saturating_sub(duration_ns)),
        }
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    pub(crate) fn metrics(&self) -> [Metric; 10] {
        self.counters.metrics(&self.bucket.uploads())
    }

    /// Returns true if the bucket has the block with all its deletions, and queries know that.
    pub(crate) fn has(&self, folder: &Folder, entry: &BlockEntry) -> bool {
        let folders = self.folders.lock();
        let deletions = folders.get(folder).and_then(|blocks| blocks.get(&entry.ulid()));
        deletions == Some(&entry.record().tombstone_count)
    }

    /// Reads the catalogue of a folder and records its blocks as uploaded; `None` if it has none.
    pub(super) fn read(&self, folder: &Folder) -> Result<Option<Arc<Snapshot>>, BucketError> {
        let snapshot = self.bucket.snapshot(&self.catalog_request(folder))?;
        if let Some(snapshot) = &snapshot {
            self.record(folder, snapshot)?;
        }
        Ok(snapshot)
    }

    /// Records the blocks of a snapshot as uploaded, after queries see them.
    pub(crate) fn record(&self, folder: &Folder, snapshot: &Snapshot) -> Result<(), BucketError> {
        self.bucket.refresh(&self.catalog_request(folder))?;
        let deletions = snapshot.blocks.iter().map(|block| (block.ulid, block.counts.tombstones));
        self.folders.lock().insert(folder.clone(), deletions.collect());
        Ok(())
    }

    /// Forgets the blocks of a store that was dropped.
    pub(super) fn forget(&self, folder: &Folder) {
        self.folders.lock().remove(folder);
    }

    pub(super) fn catalog_request(&self, folder: &Folder) -> RequestContext {
        self.request(folder, CATALOG_TIMEOUT)
    }

    pub(super) fn request(&self, folder: &Folder, timeout: Duration) -> RequestContext {
        RequestContext::with_timeout(&*self.clock, folder, timeout, Purpose::Upload)
    }
}

pub(super) fn text(error: impl Display) -> String {
    error.to_string()
}
