//! State that all parts of the head share: index, series, WAL, counters.
//!
//! Invariant: lock order is reclaim, gate, maintenance, checkpoint, index of a tenant, stripe, stale keys,
//! then the leaves (queue of the WAL, sealed files, series keys).
//! Not here: the operations on it (`write`, `read`, `checkpoint`, `evict`, `recovery`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use chronolith_base::Env;
use chronolith_wal::Wal;
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::index::HeadIndex;
use crate::options::{HeadError, HeadOptions, WriteError};
use crate::series::SeriesStore;
use crate::series::sealed::is_short_of_files;

/// Index, series and WAL of the head.
pub(crate) struct HeadState {
    pub(crate) env: Env,
    pub(crate) options: HeadOptions,
    pub(crate) index: HeadIndex,
    pub(crate) series: Arc<SeriesStore>,
    pub(crate) wal: Wal,
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

    /// Writes buffered sealed chunks; refuses appends if that fails.
    pub(crate) fn write_sealed(&self) -> Result<(), HeadError> {
        self.note_sealed_failure(self.series.store.write_all())
    }

    /// Writes buffered sealed chunks once there are many, so that they do not pile up in memory; otherwise as
    /// [`HeadState::write_sealed`].
    pub(crate) fn write_sealed_if_many(&self) -> Result<(), HeadError> {
        self.note_sealed_failure(self.series.store.write_if_many())
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
