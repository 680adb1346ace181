//! Jobs of the log, each of which a server calls on a thread of its own: syncs, new segments, slices of the
//! checkpoint.
//!
//! Invariants: none of them waits for maintenance, which may be writing a block.
//! Not here: the log (`wal`), the checkpoint (`head`), writes that wait for a sync (`head`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chronolith_head::{SyncMode, WriteError};

use crate::maintenance::Maintenance;
use crate::storage::Storage;

/// Bounds of the pause between two calls of [`WalJobs::sync`].
const SYNC_PAUSE_MIN: Duration = Duration::from_millis(5);
const SYNC_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time between two measurements of the head's memory, for its limit.
const MEASURE_INTERVAL_NS: u64 = 900_000_000;

/// Jobs of the log, see [`crate::Tsdb::wal_jobs`].
pub struct WalJobs<'a> {
    pub(super) storage: &'a Storage,
    pub(super) maintenance: &'a Maintenance,
    /// Monotonic time of the last measurement of the head's memory.
    pub(super) measured_ns: &'a AtomicU64,
}

impl WalJobs<'_> {
    /// Pause between two calls of [`WalJobs::prepare_segment`].
    pub const PREPARE_PAUSE: Duration = Duration::from_millis(100);

    /// Returns the pause between two calls of [`WalJobs::sync`]: in interval mode it bounds the loss at a
    /// power cut.
    #[must_use]
    pub fn sync_pause(&self) -> Duration {
        match self.storage.options().sync {
            SyncMode::Interval(ms) => Duration::from_millis(ms / 4).clamp(SYNC_PAUSE_MIN, SYNC_PAUSE_MAX),
            SyncMode::Fsync | SyncMode::Os => SYNC_PAUSE_MAX,
        }
    }

    /// Prepares the next WAL segment, on a thread of its own: it may write as many zeros as a segment has
    /// bytes. Cheap if there is nothing to do.
    pub fn prepare_segment(&self) {
        if let Err(error) = self.storage.head().prepare_segment() {
            tracing::warn!(%error, "creating the next WAL segment ahead failed, retrying when it is needed");
        }
    }

    /// Syncs the WAL in interval mode, accepts writes again once a full disk has space, and measures memory
    /// once per second. Cheap if there is nothing to do; never waits for [`Maintenance::run`], which may be
    /// writing a block. A panic poisons the WAL: without these syncs no acknowledged sample would become
    /// durable.
    pub fn sync(&self) {
        let head = self.storage.head();
        head.poison_on_panic("syncing at the interval", || {
            head.recover_space();
            if matches!(self.storage.options().sync, SyncMode::Interval(_)) {
                self.count_metadata_error(self.storage.metadata().sync());
                self.count_metadata_error(self.storage.graphite().sync());
            }
        });
        let now_ns = self.storage.env().clock.mono_ns();
        if now_ns.saturating_sub(self.measured_ns.load(Ordering::Relaxed)) >= MEASURE_INTERVAL_NS {
            self.measured_ns.store(now_ns, Ordering::Relaxed);
            head.statistics().measure_memory();
        }
    }

    /// Writes the due slices of the checkpoint. To be called every second or more often, on a thread of its
    /// own: never waits for [`Maintenance::run`], which may be writing a block.
    pub fn roll_checkpoint(&self) {
        let head = self.storage.head();
        head.verify_next_sealed_file();
        if let Err(error) = head.checkpointer().roll_checkpoint() {
            self.maintenance.counters().errors.increment();
            tracing::error!(%error, "writing a part of the checkpoint failed, retrying");
        }
    }

    /// Brings the files of metadata and events up to date.
    pub(super) fn close_side_stores(&self) {
        self.count_metadata_error(self.storage.metadata().close());
        self.count_metadata_error(self.storage.graphite().sync());
    }

    /// Counts and logs a failed write of metadata, which a later call retries.
    fn count_metadata_error(&self, written: Result<(), WriteError>) {
        if let Err(error) = written {
            self.maintenance.counters().errors.increment();
            tracing::error!(%error, "writing metadata failed, retrying");
        }
    }
}
