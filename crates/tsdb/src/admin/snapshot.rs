//! Snapshots: a directory below the data directory that is a data directory itself, made of hard links to
//! blocks and of blocks with the samples of the head.
//!
//! Invariants: a snapshot is there completely or not at all (written under a temporary name, synced,
//! renamed); writing one changes no query result. Every sample acknowledged before the call is in it, unless
//! the head is left out, and the metadata of the tenants.
//! Not here: removal of snapshots, which is left to the operator.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::utc::UtcTime;
use chronolith_block::{BlockSource, BlockWriter};
use chronolith_format::block::meta::Ulid;
use chronolith_format::store_name;
use chronolith_head::WindowSeries;
use chronolith_model::{StoreId, TenantId, TimeRange};

use super::error::AdminError;
use crate::blocks::tenant::{TENANTS_DIR, tenant_dir};
use crate::databases::FILE_NAMES as DATABASES_FILES;
use crate::encoding::SeriesEncoder;
use crate::storage::Storage;
use crate::window::BlockRanges;
use crate::{graphite, metadata};

/// Directory below the data directory with one directory per snapshot.
const SNAPSHOTS_DIR: &str = "snapshots";
/// Suffix of the name of an incomplete snapshot.
const SUFFIX_CREATING: &str = ".tmp";

/// Treatment of the head by a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotHead {
    /// The samples of the head are written to blocks of the snapshot.
    Include,
    /// The snapshot has the blocks only.
    Skip,
}

/// Removes an incomplete snapshot when dropped.
struct CreatingDir<'a> {
    env: &'a Env,
    path: PathBuf,
    complete: bool,
}

impl Drop for CreatingDir<'_> {
    fn drop(&mut self) {
        if !self.complete && self.env.disk.exists(&self.path) {
            // The next start removes it if this fails.
            let _ = self.env.disk.remove_dir_all(&self.path);
        }
    }
}

/// Writes snapshots of the storage.
pub(crate) struct SnapshotWriter<'a> {
    storage: &'a Storage,
}

impl<'a> SnapshotWriter<'a> {
    pub(crate) fn new(storage: &'a Storage) -> SnapshotWriter<'a> {
        SnapshotWriter { storage }
    }

    /// Writes a snapshot of `stores` and returns its name. The caller keeps maintenance out.
    ///
    /// # Errors
    /// [`AdminError`]; the incomplete snapshot is removed.
    pub(crate) fn write(&self, stores: &[StoreId], head: SnapshotHead) -> Result<String, AdminError> {
        let env = self.storage.env();
        let (disk, data_dir) = (&env.disk, &self.storage.options().data_dir);
        let name =
            format!("{}-{:016x}", UtcTime::of_ms(env.clock.now_ms()).basic_format(), env.rng.next_u64() >> 1);
        let parent = data_dir.join(SNAPSHOTS_DIR);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| AdminError::Io { path, error }
        };
        let tmp = parent.join(format!("{name}{SUFFIX_CREATING}"));
        disk.create_dir_all(&tmp.join(TENANTS_DIR)).map_err(io(&tmp))?;
        disk.sync_dir(data_dir).map_err(io(data_dir))?;
        let mut creating = CreatingDir { env, path: tmp.clone(), complete: false };
        let tenants: Vec<TenantId> = stores.iter().filter_map(StoreId::tenant).cloned().collect();
        for store in self.with_stores_of(stores, &tenants) {
            self.write_tenant(&store, &tenant_dir(&tmp, &store), head)?;
        }
        if let Some(bytes) = self.storage.metadata().file_of(stores) {
            for name in metadata::FORMAT.names {
                disk.write_atomic(&tmp.join(name), &bytes).map_err(io(&tmp))?;
            }
        }
        if let Some(bytes) = self.storage.graphite().file_of(&tenants) {
            for name in graphite::FORMAT.names {
                disk.write_atomic(&tmp.join(name), &bytes).map_err(io(&tmp))?;
            }
        }
        if let Some(bytes) = self.storage.databases().file_of(&tenants) {
            for name in DATABASES_FILES {
                disk.write_atomic(&tmp.join(name), &bytes).map_err(io(&tmp))?;
            }
        }
        disk.sync_dir(&tmp.join(TENANTS_DIR)).map_err(io(&tmp))?;
        disk.sync_dir(&tmp).map_err(io(&tmp))?;
        disk.rename(&tmp, &parent.join(&name)).map_err(io(&parent))?;
        creating.complete = true;
        disk.sync_dir(&parent).map_err(io(&parent))?;
        Ok(name)
    }

    /// Returns `stores` and the stores of the databases of `tenants`, without dropped stores.
    fn with_stores_of(&self, stores: &[StoreId], tenants: &[TenantId]) -> BTreeSet<StoreId> {
        let catalog = self.storage.databases().catalog();
        let of_tenants = catalog.policies().filter(|(owner, _)| tenants.contains(owner));
        let of_tenants = of_tenants.map(|(_, policy)| &policy.store);
        let all = stores.iter().chain(of_tenants);
        all.filter(|store| !catalog.dropped.contains(store)).cloned().collect()
    }

    fn write_tenant(&self, store: &StoreId, dir: &Path, head: SnapshotHead) -> Result<(), AdminError> {
        let (disk, windows) = (&self.storage.env().disk, self.storage.head().windows());
        let io = |error| AdminError::Io { path: dir.to_owned(), error };
        disk.create_dir_all(dir).map_err(io)?;
        let blocks = self.storage.blocks().tenant_or_new(store);
        for block in blocks.list().iter() {
            chronolith_block::link_block(self.storage.env(), blocks.dir(), block.ulid(), dir)?;
        }
        if head == SnapshotHead::Include {
            let mut previous = blocks.newest_ulid();
            let ranges: Vec<TimeRange> = windows.list_of(store).iter().map(|window| window.range).collect();
            let of_tenant = BlockRanges::new(store, self.storage.env().clock.now_ms());
            let width = of_tenant.width_of_old(&ranges);
            let mut blocks: Vec<_> =
                ranges.into_iter().map(|range| of_tenant.widened(range, width)).collect();
            blocks.dedup();
            for range in blocks {
                previous = self.write_window(store, range, dir, previous)?.or(previous);
            }
        }
        disk.sync_dir(dir).map_err(io)
    }

    /// Writes a window of the head to a block of the snapshot; its samples stay in the head.
    fn write_window(
        &self,
        store: &StoreId,
        range: TimeRange,
        dir: &Path,
        previous: Option<Ulid>,
    ) -> Result<Option<Ulid>, AdminError> {
        let window = self.storage.head().windows().snapshot(store, range)?;
        let writer = BlockWriter::create_after(self.storage.env(), dir, previous)?;
        let encoding = self.storage.block_encoding_of(store);
        let mut writer = writer.with_unit(store.time_unit()).with_encoding(encoding);
        let mut encoder = SeriesEncoder::default();
        for series in window.series_with_later() {
            let WindowSeries { labels, chunks, texts, damages } = series?;
            for damage in damages {
                tracing::error!(tenant = %store_name(store), %labels, %damage, "damaged chunk omitted from the snapshot");
            }
            encoder.put::<AdminError>(&labels, &chunks, texts.as_ref(), &mut writer)?;
        }
        Ok(writer.finish(BlockSource::head(range))?.map(|meta| meta.ulid))
    }
}

/// Removes snapshots that a crash left incomplete.
pub(crate) fn remove_incomplete(env: &Env, data_dir: &Path) -> std::io::Result<()> {
    let parent = data_dir.join(SNAPSHOTS_DIR);
    let entries = match env.disk.list(&parent) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        listed => listed?,
    };
    for entry in entries.iter().filter(|entry| entry.is_dir && entry.name.ends_with(SUFFIX_CREATING)) {
        env.disk.remove_dir_all(&parent.join(&entry.name))?;
    }
    Ok(())
}
