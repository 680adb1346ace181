//! Blocks that are known to be in the bucket, and statistics of uploads: shared by uploads, local retention
//! and deletions.
//!
//! Invariant: a block is in it only when queries see it in the bucket.
//! Not here: the uploads themselves (`upload`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chronolith_base::Clock;
use chronolith_block::BlockEntry;
use chronolith_bucket::{BucketError, Purpose, RequestContext};
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::Snapshot;
use chronolith_model::TenantId;
use parking_lot::Mutex;

use super::counters::UploadCounters;
use crate::bucket::BucketSources;
use crate::metric::Metric;

/// Time for reading or updating the catalogue.
pub(super) const CATALOG_TIMEOUT: Duration = Duration::from_secs(120);

/// Deleted intervals of each block of a tenant, by the latest snapshot.
type Deletions = BTreeMap<Ulid, u64>;

/// Blocks in the bucket, as far as this process knows.
pub(crate) struct UploadState {
    bucket: Arc<BucketSources>,
    clock: Arc<dyn Clock>,
    tenants: Mutex<BTreeMap<TenantId, Deletions>>,
    counters: UploadCounters,
}

impl UploadState {
    pub(crate) fn new(bucket: Arc<BucketSources>, clock: Arc<dyn Clock>) -> UploadState {
        UploadState { bucket, clock, tenants: Mutex::default(), counters: UploadCounters::default() }
    }

    pub(crate) fn bucket(&self) -> &Arc<BucketSources> {
        &self.bucket
    }

    pub(crate) fn counters(&self) -> &UploadCounters {
        &self.counters
    }

    pub(crate) fn metrics(&self) -> [Metric; 10] {
        self.counters.metrics(&self.bucket.uploads())
    }

    /// Returns true if the bucket has the block with all its deletions, and queries know that.
    pub(crate) fn has(&self, tenant: &TenantId, entry: &BlockEntry) -> bool {
        let tenants = self.tenants.lock();
        let deletions = tenants.get(tenant).and_then(|blocks| blocks.get(&entry.ulid()));
        deletions == Some(&entry.record().tombstone_count)
    }

    /// Reads the catalogue of a tenant and records its blocks as uploaded; `None` if it has none.
    pub(super) fn read(&self, tenant: &TenantId) -> Result<Option<Arc<Snapshot>>, BucketError> {
        let snapshot = self.bucket.snapshot(&self.catalog_request(tenant))?;
        if let Some(snapshot) = &snapshot {
            self.record(tenant, snapshot)?;
        }
        Ok(snapshot)
    }

    /// Records the blocks of a snapshot as uploaded, after queries see them.
    pub(crate) fn record(&self, tenant: &TenantId, snapshot: &Snapshot) -> Result<(), BucketError> {
        self.bucket.refresh(&self.catalog_request(tenant))?;
        let deletions = snapshot.blocks.iter().map(|block| (block.ulid, block.counts.tombstones));
        self.tenants.lock().insert(tenant.clone(), deletions.collect());
        Ok(())
    }

    pub(super) fn catalog_request(&self, tenant: &TenantId) -> RequestContext {
        self.request(tenant, CATALOG_TIMEOUT)
    }

    pub(super) fn request(&self, tenant: &TenantId, timeout: Duration) -> RequestContext {
        RequestContext::with_timeout(&*self.clock, tenant.clone(), timeout, Purpose::Upload)
    }
}
