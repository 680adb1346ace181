//! The control file of the log on disk: written behind each sync, synced where a segment comes or goes.
//!
//! Holds: a record never speaks of frames that are not durable, or of a segment whose name is not. Two slots
//! take the synced records in turn and one the others, so that a power cut leaves a good one.
//! Not here: bytes (`format::wal`), what a start makes of it (`replay`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile};
use chronolith_format::wal::{CONTROL_BYTES, CONTROL_FILE, ControlRecord, SLOT_COUNT};

/// Slot of records that are not synced.
const UNSYNCED_SLOT: usize = SLOT_COUNT - 1;

/// See the module.
pub(crate) struct ControlFile {
    file: Box<dyn DiskFile>,
    record: ControlRecord,
    /// Slot of the next synced record.
    next_slot: usize,
    is_dirty: bool,
}

impl ControlFile {
    /// Writes the file anew with `record` in it: all its slots are good afterwards.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, record: ControlRecord) -> io::Result<ControlFile> {
        let (path, tmp) = (control_path(dir), dir.join("control.tmp"));
        let file = disk.create(&tmp)?;
        let mut bytes = vec![0; CONTROL_BYTES];
        for slot in 0..SLOT_COUNT {
            let (at, encoded) = record.encode(slot);
            let at = at as usize;
            bytes[at..at + encoded.len()].copy_from_slice(&encoded);
        }
        file.write_at(&bytes, 0)?;
        file.sync_data()?;
        disk.rename(&tmp, &path)?;
        disk.sync_dir(dir)?;
        Ok(ControlFile { file, record, next_slot: 0, is_dirty: false })
    }

    /// Records what `change` makes of the last record, and syncs it.
    pub(crate) fn record_synced(&mut self, change: impl FnOnce(&mut ControlRecord)) -> io::Result<()> {
        change(&mut self.record);
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % UNSYNCED_SLOT;
        self.write(slot)?;
        self.sync()
    }

    /// Records that frames up to `sequence` are durable; the record itself becomes so by the next sync.
    pub(crate) fn record_durable(&mut self, sequence: u64) {
        self.record.sequence = self.record.sequence.max(sequence);
        // Nothing acknowledged depends on it: only damage is found less surely until the next one.
        if let Err(error) = self.write(UNSYNCED_SLOT) {
            tracing::warn!(%error, "the control file of the log cannot be written");
        }
    }

    fn write(&mut self, slot: usize) -> io::Result<()> {
        self.record.generation += 1;
        self.is_dirty = true;
        let (at, bytes) = self.record.encode(slot);
        self.file.write_at(&bytes, at)
    }

    /// Makes the last record durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.file.sync_data()?;
            self.is_dirty = false;
        }
        Ok(())
    }
}

/// Path of the control file.
pub(crate) fn control_path(dir: &Path) -> PathBuf {
    dir.join(CONTROL_FILE)
}
