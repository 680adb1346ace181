//! Jobs of the bucket, each of which a server calls on a thread of its own: uploads, and maintenance of what
//! the bucket has. Without a bucket they do nothing.
//!
//! Not here: the jobs themselves (`upload`, `bucket_maintenance`).

use crate::bucket_maintenance::{BucketMaintenance, BucketParts};
use crate::maintenance::Maintenance;
use crate::storage::Storage;
use crate::upload::Uploads;

/// Jobs of the bucket, see [`crate::Tsdb::bucket_jobs`].
pub struct BucketJobs<'a> {
    pub(super) storage: &'a Storage,
    pub(super) maintenance: &'a Maintenance,
    pub(super) uploads: &'a Uploads,
    pub(super) bucket_maintenance: &'a BucketMaintenance,
}

impl BucketJobs<'_> {
    /// Uploads the blocks that the bucket does not have. To be called every second, on a thread of its own;
    /// returns when all are uploaded. A failure is logged, counted and retried by a later call.
    pub fn upload_blocks(&self) {
        if let Some(state) = self.storage.uploads() {
            let _round = self.storage.bucket_rounds().read();
            self.uploads.run(self.storage, state);
        }
    }

    /// Runs the maintenance of the bucket that is due: retention, removal of replaced blocks, leftovers,
    /// compaction of blocks without a local copy. To be called every second, on a thread of its own. A
    /// failure is logged, counted and retried by a later call.
    pub fn maintain(&self) {
        if let (Some(state), Some(now_ms)) = (self.storage.uploads(), self.maintenance.trusted_ms()) {
            let _round = self.storage.bucket_rounds().read();
            let parts = BucketParts { storage: self.storage, state, maintenance: self.maintenance };
            self.bucket_maintenance.run(parts, now_ms);
        }
    }

    /// Ends [`BucketJobs::upload_blocks`] and [`BucketJobs::maintain`] at their next request; they do nothing
    /// more.
    pub fn stop(&self) {
        if let Some(state) = self.storage.uploads() {
            self.uploads.stop(state);
        }
    }
}
