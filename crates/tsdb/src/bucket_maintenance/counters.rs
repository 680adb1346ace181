//! Statistics of the maintenance of the bucket since the start.

use crate::maintenance::CompactionCounters;
use crate::metric::{Metric, MetricValue};

/// Statistics that the thread of bucket maintenance keeps.
#[derive(Default)]
pub(crate) struct BucketMaintenanceCounters {
    /// Blocks whose objects were removed.
    pub(super) removed_blocks: MetricValue,
    pub(super) removed_bytes: MetricValue,
    /// Blocks that left the catalogue by age.
    pub(super) expired_blocks: MetricValue,
    /// Folders that were marked, and tombstones that were removed.
    pub(super) leftovers: MetricValue,
    /// Compactions whose outputs are in the catalogue.
    pub(super) compactions: MetricValue,
    /// Compactions that were dropped because others had replaced or changed their inputs.
    pub(super) dropped_compactions: MetricValue,
    /// Blocks whose compaction was refused because they are damaged.
    pub(super) refused_blocks: MetricValue,
    pub(super) read_bytes: MetricValue,
    pub(super) written_bytes: MetricValue,
    /// 1 while this process holds the lease of a tenant.
    pub(super) lease_held: MetricValue,
    /// Progress of the running compaction.
    pub(super) compaction: CompactionCounters,
    /// Runs of a tenant that failed.
    pub(super) failures: MetricValue,
    /// Time of the last run of a tenant that succeeded, in seconds since 1970.
    pub(super) success_seconds: MetricValue,
}

impl BucketMaintenanceCounters {
    pub(super) fn metrics(&self, foreign_count: u64) -> Vec<Metric> {
        let counter = Metric::counter;
        let gauge = Metric::gauge;
        vec![
            counter(
                "bucket_removed_blocks_total",
                "Blocks removed from the bucket because others replaced them, they expired or were left over.",
                self.removed_blocks.as_f64(),
            ),
            counter(
                "bucket_removed_bytes_total",
                "Bytes of blocks removed from the bucket.",
                self.removed_bytes.as_f64(),
            ),
            counter(
                "bucket_expired_blocks_total",
                "Blocks that left the catalogue of the bucket because of bucket.retention.",
                self.expired_blocks.as_f64(),
            ),
            counter(
                "bucket_leftovers_total",
                "Folders and tombstones found that the catalogue of the bucket does not name.",
                self.leftovers.as_f64(),
            ),
            gauge(
                "bucket_foreign_blocks",
                "Blocks of other programs that the catalogue does not name; they are not removed.",
                foreign_count as f64,
            ),
            counter(
                "bucket_compactions_total",
                "Compactions of blocks in the bucket completed.",
                self.compactions.as_f64(),
            ),
            counter(
                "bucket_compactions_dropped_total",
                "Compactions in the bucket dropped because their inputs were replaced or had deletions meanwhile.",
                self.dropped_compactions.as_f64(),
            ),
            counter(
                "bucket_compaction_refused_blocks_total",
                "Blocks in the bucket that are not compacted because they are damaged.",
                self.refused_blocks.as_f64(),
            ),
            counter(
                "bucket_compaction_read_bytes_total",
                "Bytes of blocks read by compaction in the bucket.",
                self.read_bytes.as_f64(),
            ),
            counter(
                "bucket_compaction_written_bytes_total",
                "Bytes of blocks written by compaction in the bucket.",
                self.written_bytes.as_f64(),
            ),
            gauge(
                "bucket_lease_held",
                "1 while this process compacts a tenant in the bucket.",
                self.lease_held.as_f64(),
            ),
            counter(
                "bucket_maintenance_failures_total",
                "Failed attempts to maintain the blocks of a tenant in the bucket; they are retried.",
                self.failures.as_f64(),
            ),
            gauge(
                "bucket_maintenance_success_timestamp_seconds",
                "Time of the last successful maintenance of a tenant in the bucket; 0 if there was none.",
                self.success_seconds.as_f64(),
            ),
        ]
    }
}
