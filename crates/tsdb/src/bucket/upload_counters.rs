//! Statistics of uploads since the start.

use chronolith_bucket::upload::{UploadOutcome, UploadSnapshot};

use crate::metric::{Metric, MetricValue};

/// Statistics that the thread of uploads keeps.
#[derive(Default)]
pub(crate) struct UploadCounters {
    /// Attempts of a tenant that failed.
    failures: MetricValue,
    /// Local blocks that are not in the bucket yet.
    waiting_blocks: MetricValue,
    waiting_bytes: MetricValue,
    /// End of the oldest of them, in seconds since 1970; 0 if there is none.
    oldest_waiting_end: MetricValue,
    /// Local copies that were removed.
    removed_copies: MetricValue,
}

impl UploadCounters {
    /// Counts a failed attempt, which is retried.
    pub(crate) fn count_failure(&self) {
        self.failures.increment();
    }

    /// Sets the local blocks that are not in the bucket yet, and the end of the oldest of them in seconds
    /// since 1970; 0 if there is none.
    pub(crate) fn set_waiting(&self, block_count: u64, bytes: u64, oldest_end_s: u64) {
        self.waiting_blocks.set(block_count);
        self.waiting_bytes.set(bytes);
        self.oldest_waiting_end.set(oldest_end_s);
    }

    /// Counts local copies that were removed because the bucket has them.
    pub(crate) fn count_removed_copies(&self, count: u64) {
        self.removed_copies.add(count);
    }

    /// Metrics of these and of the uploads themselves.
    pub(super) fn metrics(&self, uploads: &UploadSnapshot) -> [Metric; 10] {
        let counter = Metric::counter;
        let gauge = Metric::gauge;
        let completed = UploadOutcome::Completed as usize;
        let seconds = uploads.duration_ns.get(completed).copied().unwrap_or(0) as f64 / 1e9;
        [
            counter(
                "bucket_uploaded_blocks_total",
                "Blocks uploaded and entered in the catalogue.",
                uploads.published as f64,
            ),
            counter(
                "bucket_dropped_blocks_total",
                "Uploaded blocks that were not entered in the catalogue because others had replaced them.",
                uploads.dropped as f64,
            ),
            counter("bucket_uploaded_bytes_total", "Bytes sent by uploads.", uploads.sent_bytes as f64),
            counter(
                "bucket_upload_skipped_bytes_total",
                "Bytes that uploads did not send again because the bucket had them.",
                uploads.present_bytes as f64,
            ),
            counter("bucket_upload_seconds_total", "Time of completed uploads.", seconds),
            counter(
                "bucket_upload_failures_total",
                "Failed attempts to upload the blocks of a tenant; they are retried.",
                self.failures.as_f64(),
            ),
            gauge(
                "bucket_upload_waiting_blocks",
                "Local blocks that are not in the bucket yet.",
                self.waiting_blocks.as_f64(),
            ),
            gauge(
                "bucket_upload_waiting_bytes",
                "Bytes of local blocks that are not in the bucket yet.",
                self.waiting_bytes.as_f64(),
            ),
            gauge(
                "bucket_upload_oldest_waiting_end_timestamp_seconds",
                "End of the oldest local block that is not in the bucket yet; 0 if there is none.",
                self.oldest_waiting_end.as_f64(),
            ),
            counter(
                "bucket_removed_local_copies_total",
                "Local blocks removed because the bucket has them.",
                self.removed_copies.as_f64(),
            ),
        ]
    }
}
