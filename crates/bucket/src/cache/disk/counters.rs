//! Counters of the cache directory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the cache directory at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCacheSnapshot {
    /// False without a directory, or after an error of its disk.
    pub is_on: bool,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Ranges in it.
    pub entry_count: u64,
    /// Estimated memory of its index.
    pub index_bytes: u64,
    /// Memory of ranges that wait to be written.
    pub waiting_bytes: u64,
    /// Ranges that were read from it.
    pub hits: u64,
    /// Bytes of these.
    pub hit_bytes: u64,
    /// Ranges that were neither in memory nor in it.
    pub misses: u64,
    /// Bytes of ranges that were written.
    pub written_bytes: u64,
    /// Ranges that were not written because too many waited.
    pub dropped_writes: u64,
    /// Ranges that were dropped for lack of room.
    pub evictions: u64,
    /// Entries and segments that failed a checksum, or were cut when a process was killed.
    pub damages: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) file_bytes: AtomicU64,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    misses: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) dropped_writes: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) damages: AtomicU64,
}

impl Counters {
    pub(super) fn note_hit(&self, bytes: u64) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.hit_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note_misses(&self, count: usize) {
        self.misses.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Snapshot without what index and queue have.
    pub(super) fn snapshot(&self) -> DiskCacheSnapshot {
        DiskCacheSnapshot {
            file_bytes: self.file_bytes.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            hit_bytes: self.hit_bytes.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            dropped_writes: self.dropped_writes.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            damages: self.damages.load(Ordering::Relaxed),
            ..DiskCacheSnapshot::default()
        }
    }
}
