//! Frame log: entries in memory, with a file of their frames in two copies, and group commit: changes are
//! queued in order, and one of the waiting threads writes and syncs for all.
//!
//! Invariants: a change is as durable as the sync mode promises once [`FrameLog::wait`] has returned; after a
//! failed write the next one replaces the file by all entries; acknowledged entries are in both copies.
//! Not here: the entries and their limits (`metadata`, `graphite`), growth of the file
//! (`base::append_file`).

pub(crate) mod copies;
pub(crate) mod frames;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronolith_base::{AppendFile, Env, Rng};
use chronolith_head::{SyncMode, WriteError};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use crate::options::OpenError;
use copies::{Findings, LogFormat, write_error};
use frames::LogFrames;

/// Entries of a log in memory.
pub(crate) trait LogEntries {
    /// Format of the file.
    const FORMAT: &'static LogFormat;

    /// Returns true if there is nothing to write.
    fn is_empty(&self) -> bool;

    /// Puts all entries into frames.
    fn put_all(&mut self, frames: &mut LogFrames);
}

/// Entries with their file.
pub(crate) struct FrameLog<E> {
    state: RwLock<LogState<E>>,
    /// Taken before `state` where both are.
    file: Mutex<AppendFile>,
    /// Number of changes that are as durable as the sync mode promises.
    committed: AtomicU64,
    sync: SyncMode,
    /// Source of the key of a new file.
    rng: Arc<Rng>,
}

/// Entries in memory, and the frames of those that are not in the file yet.
struct LogState<E> {
    entries: E,
    frames: LogFrames,
    /// Number of changes since the start.
    change_count: u64,
}

impl<E: LogEntries> LogState<E> {
    /// Returns the bytes of a file with all entries, and empties the queue.
    fn whole_file(&mut self, rng: &Rng) -> Vec<u8> {
        // The first file of a log whose start without one draws no random numbers.
        let key = if self.frames.key() == 0 { draw_key(rng) } else { self.frames.key() };
        self.frames = self.frames.restarted(key);
        self.entries.put_all(&mut self.frames);
        self.frames.take()
    }
}

impl<E: LogEntries> FrameLog<E> {
    /// Reads the better copy of the file in `data_dir`, if there is one, and calls `load` with kind and
    /// payload of each frame; an error of it is a note for operators. Replaces both copies if one of them is
    /// missing, incomplete or damaged.
    ///
    /// # Errors
    /// [`OpenError`] if the file cannot be read or is of a later version.
    pub(crate) fn open(
        env: &Env,
        data_dir: &Path,
        sync: SyncMode,
        mut entries: E,
        findings: &mut Findings<'_>,
        mut load: impl FnMut(&mut E, u8, &[u8]) -> Result<(), String>,
    ) -> Result<FrameLog<E>, OpenError> {
        let paths = E::FORMAT.names.map(|name| data_dir.join(name));
        let fresh_key = if E::FORMAT.draws_key_at_open { draw_key(&env.rng) } else { 0 };
        let keep = |kind, payload: &[u8]| load(&mut entries, kind, payload);
        let (file, frames) = copies::load(env, E::FORMAT, fresh_key, paths, findings, keep)?;
        let state = LogState { entries, frames: LogFrames::new(E::FORMAT, frames), change_count: 0 };
        let log = FrameLog {
            state: RwLock::new(state),
            file: Mutex::new(file),
            committed: AtomicU64::new(0),
            sync,
            rng: env.rng.clone(),
        };
        log.repair(findings.notes);
        Ok(log)
    }

    /// Locks the entries for reading.
    pub(crate) fn entries(&self) -> MappedRwLockReadGuard<'_, E> {
        RwLockReadGuard::map(self.state.read(), |state| &state.entries)
    }

    /// Returns the number of the last change if the entries fulfil `is_known`: other threads may still be
    /// writing them.
    pub(crate) fn last_change_if(&self, is_known: impl FnOnce(&E) -> bool) -> Option<u64> {
        let state = self.state.read();
        is_known(&state.entries).then_some(state.change_count)
    }

    /// Changes the entries and queues their frames. Returns the result of `change`, and the number of the
    /// last change for [`FrameLog::wait`]; a call that queues nothing is no change.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut E, &mut LogFrames) -> T) -> (T, u64) {
        let mut state = self.state.write();
        let LogState { entries, frames, change_count } = &mut *state;
        let queued_bytes = frames.len();
        let result = change(entries, frames);
        *change_count += u64::from(frames.len() > queued_bytes);
        (result, *change_count)
    }

    /// Returns the bytes of a file with the entries that `put` puts into frames; `None` if it puts none.
    pub(crate) fn file_with(&self, put: impl FnOnce(&E, &mut LogFrames)) -> Option<Vec<u8>> {
        let state = self.state.read();
        let mut frames = state.frames.restarted(state.frames.key());
        let header_len = frames.len();
        put(&state.entries, &mut frames);
        (frames.len() > header_len).then(|| frames.take())
    }

    /// Replaces both copies if the start found one of them missing, incomplete or damaged.
    fn repair(&self, notes: &mut Vec<String>) {
        let mut file = self.file.lock();
        if !self.state.read().entries.is_empty()
            && file.must_be_replaced(0)
            && let Err(error) = self.write(&mut file)
        {
            let entries = E::FORMAT.entries;
            notes.push(format!("{entries}: one copy is complete, writing the other one failed: {error}"));
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
        assert!(change <= self.state.read().change_count, "a change is queued before it is waited for");
        self.write(&mut file)
    }

    /// Returns true if the file has frames that are not synced.
    #[cfg(test)]
    pub(crate) fn is_unsynced(&self) -> bool {
        self.file.lock().is_unsynced()
    }

    /// Changes the entries, replaces the file by them, and returns when that is on disk, whatever the sync
    /// mode: nothing of a removed entry is left in the file then.
    ///
    /// # Errors
    /// As [`FrameLog::wait`].
    pub(crate) fn rewrite(&self, change: impl FnOnce(&mut E)) -> Result<(), WriteError> {
        let mut file = self.file.lock();
        let mut state = self.state.write();
        change(&mut state.entries);
        let change_count = state.change_count;
        let bytes = state.whole_file(&self.rng);
        drop(state);
        let written = file.replace(&bytes).and_then(|()| file.sync());
        written.map_err(|error| write_error(&file, &error))?;
        self.committed.fetch_max(change_count, Ordering::AcqRel);
        Ok(())
    }

    /// Syncs written frames. Cheap if there is nothing to do.
    ///
    /// # Errors
    /// As [`FrameLog::wait`].
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
        let mut state = self.state.write();
        let change_count = state.change_count;
        let is_replaced = file.must_be_replaced(state.frames.len());
        let bytes = if is_replaced { state.whole_file(&self.rng) } else { state.frames.take() };
        drop(state);
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

/// Returns a new key of a file.
fn draw_key(rng: &Rng) -> u128 {
    u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())
}
