//! The control file of the log: written after each sync, synced whenever a segment is created or removed.
//!
//! Invariant: a record covers only frames that are durable and segments whose names are. Synced records
//! alternate between two slots and all others use a third, so a power failure leaves a valid one.
//! Not here: bytes (`format::head::wal`), the use by recovery (`recovery`).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile};
use chronolith_format::head::wal::{CONTROL_BYTES, CONTROL_FILE, ControlRecord, SLOT_COUNT};

/// Slot of records that are not synced.
const UNSYNCED_SLOT: usize = SLOT_COUNT - 1;

/// The open control file.
pub(crate) struct ControlFile {
    file: Box<dyn DiskFile>,
    record: ControlRecord,
    /// Slot of the next synced record.
    next_slot: usize,
    is_dirty: bool,
}

impl ControlFile {
    /// Writes a new file with `record` in all slots.
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

    /// Applies `change` to the last record, then writes and syncs it.
    pub(crate) fn record_synced(&mut self, change: impl FnOnce(&mut ControlRecord)) -> io::Result<()> {
        change(&mut self.record);
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % UNSYNCED_SLOT;
        self.write(slot)?;
        self.sync()
    }

    /// Records that frames up to `sequence` are durable; the record itself becomes durable with the next
    /// sync.
    pub(crate) fn record_durable(&mut self, sequence: u64) {
        self.record.sequence = self.record.sequence.max(sequence);
        // No acknowledgement depends on it: until the next one, damage at the end of the log may be taken for
        // a torn tail.
        if let Err(error) = self.write(UNSYNCED_SLOT) {
            tracing::warn!(%error, "writing the control file of the WAL failed");
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

/// Returns the path of the control file.
pub(crate) fn control_path(dir: &Path) -> PathBuf {
    dir.join(CONTROL_FILE)
}
