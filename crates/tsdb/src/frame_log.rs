//! Group commit of entries that are kept in memory and in a frame log: changes are queued in order, and
//! one of the waiting threads writes and syncs for all.
//!
//! Invariants: a change is as durable as the sync mode promises once [`CommittedLog::wait`] has returned;
//! after a failed write the next one replaces the file by all entries.
//! Not here: the entries and their limits (`metadata`, `graphite`), reading of the file (`copies`).

pub(crate) mod copies;

use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::AppendFile;
use chronolith_head::{SyncMode, WriteError};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use copies::write_error;

/// Entries in memory, and the frames of those that are not in the file yet.
pub(crate) trait FrameQueue {
    /// Number of changes since the start.
    fn change_count(&self) -> u64;

    /// Returns true if there is nothing to write.
    fn has_no_entries(&self) -> bool;

    /// Bytes of the queued frames.
    fn queued_bytes(&self) -> usize;

    /// Empties the queue; later frames continue its sequence.
    fn take_queued(&mut self) -> Vec<u8>;

    /// Returns the bytes of a file with all entries, and empties the queue.
    fn whole_file(&mut self) -> Vec<u8>;
}

/// Entries with their file.
pub(crate) struct CommittedLog<Q> {
    queue: RwLock<Q>,
    /// Taken before `queue` where both are.
    file: Mutex<AppendFile>,
    /// Number of changes that are as durable as the sync mode promises.
    committed: AtomicU64,
    sync: SyncMode,
}

impl<Q: FrameQueue> CommittedLog<Q> {
    pub(crate) fn new(queue: Q, file: AppendFile, sync: SyncMode) -> CommittedLog<Q> {
        let queue = RwLock::new(queue);
        CommittedLog { queue, file: Mutex::new(file), committed: AtomicU64::new(0), sync }
    }

    /// Locks the entries for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Q> {
        self.queue.read()
    }

    /// Locks the entries for changes.
    pub(crate) fn change(&self) -> RwLockWriteGuard<'_, Q> {
        self.queue.write()
    }

    /// Replaces both copies if the start found one of them missing, incomplete or damaged. `content` names
    /// the entries in a note about a failure.
    pub(crate) fn repair(&self, content: &str, notes: &mut Vec<String>) {
        let mut file = self.file.lock();
        if !self.queue.read().has_no_entries()
            && file.must_be_replaced(0)
            && let Err(error) = self.write(&mut file)
        {
            notes.push(format!("{content}: one copy is complete, writing the other one failed: {error}"));
        }
    }

    /// Returns once change number `change` is as durable as the sync mode promises.
    ///
    /// # Errors
    /// [`WriteError`]: it may or may not become durable; the next wait tries again.
    pub(crate) fn wait(&self, change: u64) -> Result<(), WriteError> {
        if self.committed.load(Ordering::Acquire) >= change {
            return Ok(());
        }
        let mut file = self.file.lock();
        if self.committed.load(Ordering::Acquire) >= change {
            return Ok(());
        }
        // Else this write would not have it, and the thread would believe that it is durable.
        assert!(change <= self.queue.read().change_count(), "a change is queued before it is waited for");
        self.write(&mut file)
    }

    /// Returns true if the file has frames that are not synced.
    #[cfg(test)]
    pub(crate) fn is_unsynced(&self) -> bool {
        self.file.lock().is_unsynced()
    }

    /// Syncs written frames. Cheap if there is nothing to do.
    ///
    /// # Errors
    /// As [`CommittedLog::wait`].
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        let mut file = self.file.lock();
        if !file.is_unsynced() {
            return Ok(());
        }
        if file.must_be_replaced(0) {
            return self.write(&mut file);
        }
        file.sync().map_err(|error| write_error(&file, &error))
    }

    /// Writes the queued frames, and syncs them in the sync mode that acknowledgements wait for.
    fn write(&self, file: &mut AppendFile) -> Result<(), WriteError> {
        let mut queue = self.queue.write();
        let change_count = queue.change_count();
        let is_replaced = file.must_be_replaced(queue.queued_bytes());
        let bytes = if is_replaced { queue.whole_file() } else { queue.take_queued() };
        drop(queue);
        let mut written = if is_replaced { file.replace(&bytes) } else { file.append(&bytes) };
        if self.sync == SyncMode::Fsync {
            written = written.and_then(|()| file.sync());
        }
        written.map_err(|error| write_error(file, &error))?;
        let before = self.committed.swap(change_count, Ordering::AcqRel);
        assert!(before <= change_count, "commits ascend, as one thread writes at a time");
        Ok(())
    }
}
