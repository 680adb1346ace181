//! Counters of the log.
//!
//! Invariant: counters of one commit may differ by that commit while it runs; nothing is decided from them
//! but whether a spare segment is missing.
//! Not here: sizes of the queue (`group_commit`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// Bytes of frames that this thread has queued, in all logs.
    static QUEUED_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// Returns the bytes of frames that this thread has queued since its start. An append queues frames of
/// several kinds under locks of their own; the difference of two calls is the size of all of them.
#[must_use]
pub fn queued_bytes_of_thread() -> u64 {
    QUEUED_BYTES.get()
}

/// Counts a frame that this thread has queued.
pub(crate) fn note_queued(bytes: usize) {
    QUEUED_BYTES.set(QUEUED_BYTES.get() + bytes as u64);
}

/// Counters and sizes of the log since startup.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalStats {
    /// Syncs of segments.
    pub sync_count: u64,
    /// Nanoseconds spent in syncs.
    pub sync_ns: u64,
    /// Group commits that wrote at least one frame.
    pub batch_count: u64,
    /// Bytes of frames written.
    pub written_bytes: u64,
    /// Size of all segments, preallocated space included.
    pub segment_bytes: u64,
    /// Recycled segments ready for use.
    pub spare_count: u64,
    /// Size of the recycled segments.
    pub spare_bytes: u64,
    /// Segments created from a recycled one.
    pub spare_used_count: u64,
    /// Segments created without one, because none was ready.
    pub spare_missing_count: u64,
    /// Bytes appended and not yet written.
    pub pending_bytes: u64,
    /// Capacity of the buffers of the queue in bytes.
    pub buffer_bytes: u64,
    /// Set if a write or sync has failed: appends are refused until a restart.
    pub is_poisoned: bool,
    /// Set if appends are refused because the disk is full.
    pub is_disk_full: bool,
}

/// Counters that the threads of the log update.
#[derive(Debug, Default)]
pub(crate) struct WalCounters {
    sync_count: AtomicU64,
    sync_ns: AtomicU64,
    commit_count: AtomicU64,
    written_bytes: AtomicU64,
    segment_bytes: AtomicU64,
    spare_count: AtomicU64,
    spare_bytes: AtomicU64,
    spare_used_count: AtomicU64,
    spare_missing_count: AtomicU64,
}

impl WalCounters {
    /// Counts frames that were written.
    pub(crate) fn note_write(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a commit that wrote frames.
    pub(crate) fn note_commit(&self) {
        self.commit_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sync of a segment.
    pub(crate) fn note_sync(&self, duration_ns: u64) {
        self.sync_count.fetch_add(1, Ordering::Relaxed);
        self.sync_ns.fetch_add(duration_ns, Ordering::Relaxed);
    }

    /// Counts segments of `bytes` in all that exist from now on.
    pub(crate) fn note_segments(&self, bytes: u64) {
        self.segment_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a segment that was removed or recycled.
    pub(crate) fn note_freed(&self, bytes: u64) {
        self.segment_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a segment by its origin.
    pub(crate) fn note_origin(&self, is_spare: bool) {
        let counter = if is_spare { &self.spare_used_count } else { &self.spare_missing_count };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the number of spare segments of `segment_bytes` each.
    pub(crate) fn set_spares(&self, count: usize, segment_bytes: u64) {
        self.spare_count.store(count as u64, Ordering::Relaxed);
        self.spare_bytes.store(count as u64 * segment_bytes, Ordering::Relaxed);
    }

    /// Returns true if a spare segment is ready.
    pub(crate) fn has_spare(&self) -> bool {
        self.spare_count.load(Ordering::Relaxed) > 0
    }

    /// Bytes of frames written since startup.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns all counters; size and state of the queue are left at their defaults.
    pub(crate) fn stats(&self) -> WalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            sync_count: load(&self.sync_count),
            sync_ns: load(&self.sync_ns),
            batch_count: load(&self.commit_count),
            written_bytes: load(&self.written_bytes),
            segment_bytes: load(&self.segment_bytes),
            spare_count: load(&self.spare_count),
            spare_bytes: load(&self.spare_bytes),
            spare_used_count: load(&self.spare_used_count),
            spare_missing_count: load(&self.spare_missing_count),
            ..WalStats::default()
        }
    }
}
