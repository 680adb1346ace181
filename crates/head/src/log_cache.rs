//! Cache of a partition of the replicated log: the position of the head in it, which the WAL has after the
//! frames of each record (ADR 0138).
//!
//! Invariants: while no record is being applied, the newest frame of the WAL is a position or is queued by
//! work that changes no sample; the frames of a record come before its position; there is a position in the
//! segments that are kept.
//! Not here: records (`tsdb`), the last position at a start (`recovery::log_cache`).

use chronolith_format::head::wal::{KIND_POSITION, PositionFrame, STRIPE_NONE};
use chronolith_model::log_position::{LogPartition, Position};
use chronolith_wal::{FoundPosition, Wal, WalError, WalPosition};
use parking_lot::{Mutex, MutexGuard};

use crate::options::WriteError;

/// Empty file in the directory of the WAL of an owner. Programs that do not know positions refuse to start
/// where a file is named `checkpoint.*`; they would take parts of records for whole ones.
pub(crate) const LOG_CACHE_FILE: &str = "checkpoint.replicated-log";

/// Newest position in the WAL.
struct NewestPosition {
    /// `None` before the first one.
    next_offset: Option<u64>,
    /// Sequence of its frame.
    sequence: u64,
}

/// Position of the head in its partition.
pub(crate) struct LogCache {
    partition: LogPartition,
    /// Locked while a record is applied.
    newest: Mutex<NewestPosition>,
}

impl LogCache {
    /// Returns the cache of a partition after a start that found the position `found` in the WAL, and queues
    /// the first frame after it.
    pub(crate) fn new(partition: LogPartition, found: Option<&FoundPosition>, wal: &Wal) -> LogCache {
        let next_offset = found.map(|found| found.frame.next.offset);
        let mut newest = NewestPosition { next_offset, sequence: 0 };
        if let Some(found) = found {
            newest.put(partition, Some(found.sequence), wal);
        }
        LogCache { partition, newest: Mutex::new(newest) }
    }

    /// Waits for a record that is being applied, and keeps out later ones until the guard is dropped.
    pub(crate) fn pause(&self) -> impl Sized + '_ {
        self.newest.lock()
    }

    /// Returns once a position after everything queued so far is synced: a copy of memory made before the
    /// call is not ahead of the position that a start finds.
    pub(crate) fn settle(&self, wal: &Wal) -> Result<(), WalError> {
        let mut newest = self.newest.lock();
        newest.put_if_behind(self.partition, wal);
        let position = wal.position();
        drop(newest);
        wal.sync_through(position)
    }

    /// Writes the position again and syncs it, so that segments before may be removed.
    pub(crate) fn repeat(&self, wal: &Wal) -> Result<(), WalError> {
        let mut newest = self.newest.lock();
        newest.put(self.partition, None, wal);
        let position = wal.position();
        drop(newest);
        wal.sync_through(position)
    }
}

impl NewestPosition {
    /// Queues a frame with the position, if there is one.
    fn put(&mut self, partition: LogPartition, resumes_after: Option<u64>, wal: &Wal) {
        let Some(offset) = self.next_offset else { return };
        let frame = PositionFrame { next: partition.at(offset), resumes_after };
        self.sequence = wal.append(KIND_POSITION, STRIPE_NONE, &frame.encode());
    }

    fn put_if_behind(&mut self, partition: LogPartition, wal: &Wal) {
        if wal.position().0 != self.sequence {
            self.put(partition, None, wal);
        }
    }
}

/// A head whose WAL is a cache of a partition of the replicated log, see [`crate::Head::log_cache`].
pub struct CachedLog<'a> {
    cache: &'a LogCache,
    wal: &'a Wal,
}

impl<'a> CachedLog<'a> {
    pub(crate) fn new(cache: &'a LogCache, wal: &'a Wal) -> CachedLog<'a> {
        CachedLog { cache, wal }
    }

    /// Returns the partition.
    #[must_use]
    pub fn partition(&self) -> LogPartition {
        self.cache.partition
    }

    /// Returns the position of the next record; `None` before [`CachedLog::start`]. Waits for a record that
    /// is being applied.
    #[must_use]
    pub fn next(&self) -> Option<Position> {
        self.cache.newest.lock().next_offset.map(|offset| self.cache.partition.at(offset))
    }

    /// Sets the offset of the first record that will be applied, in a head without samples, durably.
    ///
    /// # Errors
    /// [`WriteError`]: the WAL refuses frames.
    ///
    /// # Panics
    /// If the head has a position.
    pub fn start(&self, next_offset: u64) -> Result<(), WriteError> {
        let mut newest = self.cache.newest.lock();
        assert_eq!(newest.next_offset, None, "an owner continues from its position");
        self.wal.admit()?;
        newest.next_offset = Some(next_offset);
        newest.put(self.cache.partition, None, self.wal);
        let position = WalPosition(newest.sequence);
        drop(newest);
        Ok(self.wal.sync_through(position)?)
    }

    /// Begins a record: everything that is written until [`RecordGuard::finish`] belongs to it. The caller
    /// writes from one thread.
    ///
    /// # Errors
    /// [`WriteError`]: the WAL refuses frames.
    ///
    /// # Panics
    /// Before [`CachedLog::start`], and if `offset` is before the next record.
    pub fn begin_record(&self, offset: u64) -> Result<RecordGuard<'a>, WriteError> {
        let newest = self.cache.newest.lock();
        let next = newest.next_offset.expect("an owner has a position before its first record");
        assert!(offset >= next, "records are applied in order: {offset} after {next}");
        self.wal.admit()?;
        Ok(RecordGuard { partition: self.cache.partition, wal: self.wal, newest, offset })
    }
}

/// A record that is being applied. Dropped without [`RecordGuard::finish`], the record counts as not applied:
/// the caller has written none of its samples.
#[must_use = "the record is applied once it is finished"]
pub struct RecordGuard<'a> {
    partition: LogPartition,
    wal: &'a Wal,
    newest: MutexGuard<'a, NewestPosition>,
    offset: u64,
}

impl RecordGuard<'_> {
    /// Queues the position after the record.
    pub fn finish(mut self) -> WalPosition {
        self.newest.next_offset = Some(self.offset + 1);
        self.newest.put(self.partition, None, self.wal);
        WalPosition(self.newest.sequence)
    }
}

impl Drop for RecordGuard<'_> {
    fn drop(&mut self) {
        // Definitions of series may be queued although the samples were refused.
        self.newest.put_if_behind(self.partition, self.wal);
    }
}
