//! Cuts of head windows by the owner of a partition: taking the samples of a window, writing their block, and
//! dropping them (ADR 0136).
//!
//! Invariants: a block has exactly the samples that were taken, whatever is written meanwhile; samples leave
//! the head only by [`Cuts::drop_windows`]; blocks are in no list of local blocks, so nothing else uploads,
//! reads or compacts them.
//! Not here: which windows are cut and when they may leave (`cluster::owner`), upload and catalogue.

use std::path::{Path, PathBuf};

use chronolith_block::{Block, BlockSource, BlockWriter};
use chronolith_bucket::Folder;
use chronolith_bucket::upload::SidecarFile;
use chronolith_format::block::meta::Ulid;
use chronolith_format::record::RecordStore;
use chronolith_head::{HeadError, WindowSnapshot, WindowStat};
use chronolith_model::{StoreId, TenantId, TimeRange};

use crate::maintenance::Maintenance;
use crate::maintenance::flush::writer::{FlushError, FlushWriter};
use crate::storage::Storage;
use crate::upload::sidecar::make_sidecar;
use crate::window::WINDOW_MS;

/// Directory of the blocks of cuts, below the data directory.
const DIR: &str = "cut-blocks";

/// Cuts of windows, see [`crate::Tsdb::cuts`].
pub struct Cuts<'a> {
    pub(super) storage: &'a Storage,
    pub(super) maintenance: &'a Maintenance,
}

/// Samples of a window of a store that were there when it was cut.
pub struct CutWindow(WindowSnapshot);

impl CutWindow {
    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &StoreId {
        self.0.tenant()
    }

    /// Returns the times of the window, in the unit of the store.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        self.0.window()
    }
}

/// Files of a block of a cut.
#[derive(Debug)]
pub struct CutBlock {
    /// Directory of the block.
    pub dir: PathBuf,
    /// Sidecar of the block, in a file outside of the directory.
    pub sidecar: SidecarFile,
}

/// Writing a block of a cut failed; the samples stay in the head.
#[derive(Debug, thiserror::Error)]
#[error("block of a cut: {0}")]
pub struct CutError(String);

impl From<FlushError> for CutError {
    fn from(error: FlushError) -> CutError {
        CutError(error.to_string())
    }
}

impl Cuts<'_> {
    /// Returns the directory of the data.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.storage.options().data_dir
    }

    /// Returns the time between the end of a window, or its first sample if that came later, and its cut.
    #[must_use]
    pub fn delay_ms(&self) -> i64 {
        self.storage.options().flush.delay_ms
    }

    /// Returns the windows of the head, by store and time.
    #[must_use]
    pub fn windows(&self) -> Vec<WindowStat> {
        self.storage.head().windows().list()
    }

    /// Returns the window of a time of `store`, in its unit.
    #[must_use]
    pub fn window_of(store: &StoreId, time: i64) -> TimeRange {
        TimeRange::window_of(time, store.time_unit().from_ms(WINDOW_MS))
    }

    /// Returns the folder of `store` in the bucket; `None` if the store was dropped.
    #[must_use]
    pub fn folder_of(&self, store: &StoreId) -> Option<Folder> {
        self.storage.folder_of(store)
    }

    /// Returns the store that records name, if the directory knows it.
    #[must_use]
    pub fn store_of(&self, tenant: &TenantId, store: RecordStore) -> Option<StoreId> {
        self.storage.databases().store_of_record(tenant, store)
    }

    /// Takes the samples of the window that starts at `start`, but for the samples of an `earlier` cut of the
    /// window that are still in the head: its open chunks are sealed. Cost: a lock of a page of series at a
    /// time, about 1 µs per series with samples; blocks no reader.
    ///
    /// # Errors
    /// [`HeadError::Io`] if sealed chunks cannot be written.
    pub fn take(
        &self,
        store: &StoreId,
        start: i64,
        earlier: Option<&CutWindow>,
    ) -> Result<CutWindow, HeadError> {
        let window = Cuts::window_of(store, start);
        let snapshot = self.storage.head().windows().snapshot(store, window)?;
        Ok(CutWindow(match earlier {
            Some(CutWindow(earlier)) => snapshot.after(earlier),
            None => snapshot,
        }))
    }

    /// Writes the block `ulid` of the samples of `window`; `None` if there is none. Files of an earlier
    /// attempt are replaced. May run while samples are written.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn write(&self, window: &CutWindow, ulid: Ulid) -> Result<Option<CutBlock>, CutError> {
        let env = self.storage.env();
        let store = window.store();
        let parent = self.data_dir().join(DIR);
        let dir = parent.join(ulid.to_string());
        if env.disk.exists(&dir) {
            env.disk.remove_dir_all(&dir).map_err(FlushError::Io)?;
        }
        let writer = BlockWriter::create_named(env, &parent, ulid).map_err(FlushError::Block)?;
        let unit = store.time_unit();
        let mut writer = writer.with_unit(unit).with_encoding(self.storage.block_encoding_of(store));
        let flush = FlushWriter::new(self.storage, &self.maintenance.counters().flush);
        flush.put_series(store, &window.0, &mut writer)?;
        let written = writer.finish(BlockSource::head(window.range())).map_err(FlushError::Block)?;
        if written.is_none() {
            return Ok(None);
        }
        let block = Block::open(env, &dir).map_err(FlushError::Block)?;
        let sidecar = make_sidecar(env, &parent, &block).map_err(CutError)?;
        Ok(Some(CutBlock { dir, sidecar }))
    }

    /// Removes the files of all blocks of cuts, which are in the bucket or will be written again.
    ///
    /// # Errors
    /// [`std::io::Error`]; the same call again removes the rest.
    pub fn remove_files(&self) -> std::io::Result<()> {
        let disk = &self.storage.env().disk;
        let dir = self.data_dir().join(DIR);
        if disk.exists(&dir) { disk.remove_dir_all(&dir) } else { Ok(()) }
    }

    /// Drops the samples that were taken from the head, with the samples of earlier cuts of the same windows,
    /// and from its checkpoint, so that no start has them. `windows` are the latest cuts of their windows.
    ///
    /// # Errors
    /// [`HeadError`]: the samples have left the head, and may come back with a start.
    pub fn drop_windows(&self, windows: Vec<CutWindow>) -> Result<(), HeadError> {
        let head = self.storage.head();
        for CutWindow(snapshot) in windows {
            head.windows().drop(snapshot);
        }
        head.checkpointer().checkpoint().map(drop)
    }
}
