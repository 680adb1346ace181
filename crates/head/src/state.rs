//! State that all parts of the head share: index, series, WAL, counters.
//!
//! Invariant: lock order is reclaim, gate, maintenance, checkpoint, files of
//! overflow tables, overflow table of a tenant, its index, its texts in use,
//! stripe, stale keys, then the leaves (queue of the WAL, sealed files, series keys). An append shares the
//! texts in use before it takes the index. A record of the replicated log is locked before the gate by its
//! writer, and after the checkpoint by work that copies memory; once the WAL is closed, no record begins.
//! Not here: the operations on it (`write`, `read`, `checkpoint`, `evict`, `recovery`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use chronolith_base::Env;
use chronolith_base::disk::is_short_of_files;
use chronolith_model::WordKind;
use chronolith_wal::{Wal, WalError};
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::field_history::FieldHistory;
use crate::index::HeadIndex;
use crate::index::field_types::KindSet;
use crate::log_cache::LogCache;
use crate::options::{HeadError, HeadOptions, TYPED_FILE, WriteError, wal_dir};
use crate::series::SeriesStore;
use crate::texts::TextStore;

/// Index, series and WAL of the head.
pub(crate) struct HeadState {
    pub(crate) env: Env,
    pub(crate) options: HeadOptions,
    pub(crate) index: HeadIndex,
    pub(crate) series: Arc<SeriesStore>,
    pub(crate) wal: Wal,
    pub(crate) texts: TextStore,
    /// Position in the replicated log, if the WAL is a cache of it.
    pub(crate) log_cache: Option<LogCache>,
    /// Fields in blocks, if there are any.
    pub(crate) field_history: OnceLock<Box<dyn FieldHistory>>,
    /// Set once the data directory is marked as one with integers or texts.
    pub(crate) is_typed: AtomicBool,
    /// One checkpoint or window drop at a time.
    pub(crate) maintenance: Mutex<()>,
    /// While > 0, duplicates are logged like new samples: until all slices are written after this WAL
    /// position and synced. Samples that startup has read may not be on disk, whatever the last sync of the
    /// WAL reported.
    pub(crate) relog_before: AtomicU64,
    pub(crate) counters: Counters,
}

impl HeadState {
    /// Checks that appends and deletions are allowed.
    ///
    /// # Errors
    /// [`WriteError`]: writes are refused.
    pub(crate) fn admit(&self) -> Result<(), WriteError> {
        self.wal.admit()?;
        let store = &self.series.store;
        if store.is_blocked() && self.write_sealed().is_err() && store.is_blocked() {
            return Err(WriteError::NoFileDescriptor);
        }
        Ok(())
    }

    /// Marks the data directory as one that programs without integers and texts must not open, before the
    /// first series of them.
    ///
    /// # Errors
    /// [`WriteError::Marker`]: nothing is written.
    pub(crate) fn note_kinds(&self, kinds: KindSet) -> Result<(), WriteError> {
        let new = [WordKind::Integer, WordKind::Unsigned, WordKind::Text];
        if !new.into_iter().any(|kind| kinds.contains(kind)) || self.is_typed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let dir = wal_dir(&self.options.dir);
        let path = dir.join(TYPED_FILE);
        let marked = self.env.disk.create(&path).and_then(|file| {
            file.sync_data()?;
            self.env.disk.sync_dir(&dir)
        });
        marked.map_err(|error| match is_short_of_files(&error) {
            true => WriteError::NoFileDescriptor,
            false => WriteError::Marker(format!("{}: {error}", path.display())),
        })?;
        self.is_typed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns once the WAL has a durable position of the replicated log, if it is a cache of the log: copies
    /// of memory made before the call are not ahead of it.
    pub(crate) fn settle_position(&self) -> Result<(), WalError> {
        self.log_cache.as_ref().map_or(Ok(()), |cache| cache.settle(&self.wal))
    }

    /// Writes buffered sealed chunks; refuses appends if that fails.
    pub(crate) fn write_sealed(&self) -> Result<(), HeadError> {
        self.note_sealed_failure(self.series.store.write_all())
    }

    /// Writes buffered sealed chunks once there are many, so that they do not pile up in memory; otherwise as
    /// [`HeadState::write_sealed`].
    pub(crate) fn write_sealed_if_many(&self) -> Result<(), HeadError> {
        self.note_sealed_failure(self.series.store.write_if_many())
    }

    /// Makes written sealed chunks durable; refuses appends if that fails.
    pub(crate) fn sync_sealed(&self) -> Result<(), HeadError> {
        self.series.store.sync_all().inspect_err(|error| match error {
            // The directory could not be opened for its sync, so nothing was lost; a checkpoint retries.
            HeadError::Io { error, .. } if is_short_of_files(error) => {}
            error => self.wal.poison(error.to_string()),
        })
    }

    /// Refuses appends after a failure to write sealed chunks: their memory must not grow without bound.
    fn note_sealed_failure(&self, written: Result<(), HeadError>) -> Result<(), HeadError> {
        match &written {
            Err(HeadError::Io { error, .. }) if error.kind() == io::ErrorKind::StorageFull => {
                self.wal.enter_disk_full();
            }
            // The chunks stay buffered in memory; `admit` refuses writes once they are too many.
            Err(HeadError::Io { error, .. }) if is_short_of_files(error) => {}
            Err(error) => self.wal.poison(error.to_string()),
            Ok(()) => {}
        }
        written
    }
}
