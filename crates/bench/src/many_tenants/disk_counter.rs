//! Counts syncs and created files of an [`crate::observed_disk::ObservedDisk`].
//! Not here: counting bytes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::observed_disk::{DiskObserver, FileObserver};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DiskCounts {
    pub(super) files: u64,
    pub(super) file_syncs: u64,
    pub(super) dir_syncs: u64,
}

impl DiskCounts {
    pub(super) fn since(self, earlier: DiskCounts) -> DiskCounts {
        DiskCounts {
            files: self.files - earlier.files,
            file_syncs: self.file_syncs - earlier.file_syncs,
            dir_syncs: self.dir_syncs - earlier.dir_syncs,
        }
    }

    pub(super) fn add(&mut self, other: DiskCounts) {
        self.files += other.files;
        self.file_syncs += other.file_syncs;
        self.dir_syncs += other.dir_syncs;
    }
}

/// Counts the operations of a disk.
#[derive(Default)]
pub(super) struct DiskCounter {
    files: AtomicU64,
    file_syncs: Arc<AtomicU64>,
    dir_syncs: AtomicU64,
}

impl DiskCounter {
    pub(super) fn counts(&self) -> DiskCounts {
        DiskCounts {
            files: self.files.load(Ordering::Relaxed),
            file_syncs: self.file_syncs.load(Ordering::Relaxed),
            dir_syncs: self.dir_syncs.load(Ordering::Relaxed),
        }
    }
}

impl DiskObserver for DiskCounter {
    fn creates_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    fn syncs_dir(&self) {
        self.dir_syncs.fetch_add(1, Ordering::Relaxed);
    }

    fn observe_file(&self, _path: &Path) -> Option<Box<dyn FileObserver>> {
        Some(Box::new(SyncCounter(self.file_syncs.clone())))
    }
}

struct SyncCounter(Arc<AtomicU64>);

impl FileObserver for SyncCounter {
    fn synced(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
