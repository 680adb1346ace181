//! Upload: local blocks are copied to the bucket, entered in its catalogue and, after a time, removed
//! locally.
//!
//! Invariants: blocks that were made of the same blocks from the head enter the catalogue in one snapshot,
//! which drops the blocks that they replace; a local copy goes only when the catalogue has its block with all
//! its deletions, and queries know that. A failure is logged, counted and retried, and does not stop other
//! tenants.
//! Not here: requests (`bucket::upload`), removal of local copies (`maintenance::local_retention`).

pub(crate) mod adoption;
mod database_downloads;
pub(crate) mod databases;
mod expiry;
pub(crate) mod groups;
pub(crate) mod sidecar;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::backoff::Backoff;
use chronolith_block::{BlockEntry, TOMBSTONES_FILE};
use chronolith_bucket::Folder;
use chronolith_bucket::upload::Published;
use chronolith_format::bucket::catalogue::BucketBlock;
use chronolith_model::{DuplicatePolicy, StoreId};
use parking_lot::Mutex;

use crate::blocks::tenant::TenantBlocks;
use crate::bucket::upload_state::{BLOCK_TIMEOUT, RETRY_PAUSES, UploadState, text};
use crate::storage::Storage;
use database_downloads::DatabaseDownloads;
use databases::DatabaseUploads;
use expiry::Expiry;
use groups::{BlockGroup, groups_of};
use sidecar::make_sidecar;

/// Time from the start of a block for which its upload waits for its roll-ups.
const ROLLUPS_WAIT_MS: i64 = 3_600_000;

/// Uploads of all tenants, by one thread.
#[derive(Default)]
pub(crate) struct Uploads {
    /// Progress of tenants with local blocks.
    tenants: Mutex<BTreeMap<StoreId, Progress>>,
    databases: DatabaseUploads,
    downloads: DatabaseDownloads,
    expiry: Expiry,
    has_started: AtomicBool,
    is_stopped: AtomicBool,
}

/// Progress of one tenant.
#[derive(Clone, Default)]
struct Progress {
    /// The local list that is in the bucket as a whole.
    done: Option<Arc<Vec<Arc<BlockEntry>>>>,
    backoff: Backoff,
}

/// Work on one tenant.
struct TenantUpload<'a> {
    storage: &'a Storage,
    state: &'a UploadState,
    tenant: &'a StoreId,
    folder: Folder,
    blocks: &'a TenantBlocks,
}

impl Uploads {
    /// Ends the running upload at its next request, and starts no other.
    pub(crate) fn stop(&self, state: &UploadState) {
        self.is_stopped.store(true, Ordering::SeqCst);
        state.bucket().stop_uploads();
    }

    /// Uploads the blocks of all tenants that are not in the bucket. Blocks the thread until then.
    pub(crate) fn run(&self, storage: &Storage, state: &UploadState) {
        if !self.has_started.swap(true, Ordering::SeqCst) {
            remove_old_sidecars(storage);
        }
        let is_original_in_bucket = state.bucket().rules().has_original_databases();
        match is_original_in_bucket {
            true => self.downloads.run(storage, state, &self.is_stopped),
            false => self.databases.run(storage, state, &self.is_stopped),
        }
        let all = storage.blocks().all();
        self.tenants.lock().retain(|tenant, _| storage.blocks().has_tenant(tenant));
        for (tenant, blocks) in &all {
            if self.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            // The databases of the bucket name a store before it gets its first block.
            let Some(folder) = storage.folder_of(tenant) else { continue };
            if is_original_in_bucket || self.databases.has_recorded(&folder) {
                self.run_tenant(&TenantUpload { storage, state, tenant, folder, blocks });
            }
        }
        self.expiry.run(storage, state);
        count_waiting(storage, state);
    }

    fn run_tenant(&self, upload: &TenantUpload<'_>) {
        let list = upload.blocks.list();
        let clock = &upload.storage.env().clock;
        let before = self.tenants.lock().get(upload.tenant).cloned().unwrap_or_default();
        let is_done = before.done.as_ref().is_some_and(|done| Arc::ptr_eq(done, &list));
        if is_done || list.is_empty() || !before.backoff.is_due(clock.mono_ns()) {
            return;
        }
        let progress = match upload.upload_all() {
            Ok(Uploaded::All) => Progress { done: Some(list), ..Progress::default() },
            Ok(Uploaded::Part) => Progress::default(),
            Err(_) if self.is_stopped.load(Ordering::SeqCst) => return,
            Err(error) => {
                let backoff = before.backoff.after_failure(clock.mono_ns(), RETRY_PAUSES);
                let folder = &upload.folder;
                let retry_s = backoff.pause_s();
                tracing::error!(%folder, error, retry_s, "uploading blocks failed, retrying after retry_s");
                upload.state.counters().count_failure();
                Progress { done: None, backoff }
            }
        };
        self.tenants.lock().insert(upload.tenant.clone(), progress);
    }
}

/// Removes sidecars of an earlier process.
fn remove_old_sidecars(storage: &Storage) {
    let dir = storage.options().data_dir.join(sidecar::DIR);
    if storage.env().disk.exists(&dir)
        && let Err(error) = storage.env().disk.remove_dir_all(&dir)
    {
        tracing::warn!(path = %dir.display(), %error, "removing sidecars of an earlier upload failed");
    }
}

/// Counts the local blocks that the bucket does not have.
fn count_waiting(storage: &Storage, state: &UploadState) {
    let mut count = 0;
    let mut bytes = 0;
    let mut oldest_end_ms = i64::MAX;
    let is_dropped = |store: &StoreId| !store.is_default() && storage.databases().owner_of(store).is_none();
    let tenants = storage.blocks().all();
    for (tenant, blocks) in tenants.iter().filter(|(tenant, _)| !is_dropped(tenant)) {
        for entry in blocks.list().iter().filter(|entry| !storage.is_uploaded(tenant, entry)) {
            count += 1;
            bytes += entry.size_bytes();
            oldest_end_ms = oldest_end_ms.min(tenant.time_unit().to_ms_ceil(entry.range().end));
        }
    }
    let oldest_end_s = if count == 0 { 0 } else { u64::try_from(oldest_end_ms / 1000).unwrap_or(0) };
    state.counters().set_waiting(count, bytes, oldest_end_s);
}

/// Part of the blocks of a tenant that an upload sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uploaded {
    All,
    /// Others wait for their roll-ups.
    Part,
}

impl TenantUpload<'_> {
    fn upload_all(&self) -> Result<Uploaded, String> {
        let bucket = self.state.bucket();
        let recorded =
            bucket.create_catalogue(&self.state.request(&self.folder, BLOCK_TIMEOUT)).map_err(text)?;
        if recorded > 0 {
            tracing::info!(folder = %self.folder, blocks = recorded, "blocks of the bucket entered in a new catalogue");
        }
        let snapshot = self.state.read(&self.folder).map_err(text)?;
        let duplicates = self.storage.limits_of(self.tenant).duplicates;
        if snapshot.map_or(DuplicatePolicy::default(), |snapshot| snapshot.duplicates) != duplicates {
            self.state.record_duplicates(&self.folder, duplicates).map_err(text)?;
        }
        self.confirm_deletions(&self.blocks.list())?;
        let mut uploaded = Uploaded::All;
        for group in groups_of(self.storage.env(), self.blocks).map_err(text)? {
            if group.blocks.iter().any(|entry| self.waits_for_rollups(entry)) {
                uploaded = Uploaded::Part;
                continue;
            }
            self.upload_group(&group)?;
        }
        Ok(uploaded)
    }

    /// Returns true if the roll-ups of a block are still to be written. A block whose roll-ups are not there
    /// after some time is uploaded without.
    fn waits_for_rollups(&self, entry: &Arc<BlockEntry>) -> bool {
        let env = self.storage.env();
        if !self.tenant.is_graphite() || self.storage.rollup_rules().is_none() {
            return false;
        }
        let is_new = env.clock.now_ms().saturating_sub(entry.ulid().time_ms()) < ROLLUPS_WAIT_MS;
        let dir = self.blocks.block_dir(entry.ulid());
        is_new && !self.state.has(&self.folder, entry) && !chronolith_block::has_rollups(env, &dir)
    }

    fn upload_group(&self, group: &BlockGroup) -> Result<(), String> {
        let mut records = Vec::new();
        let blocks = &group.blocks;
        if blocks.iter().all(|entry| self.state.has(&self.folder, entry)) {
            return Ok(());
        }
        if !group.is_complete() {
            let folder = &self.folder;
            let ulids = names_of(blocks);
            tracing::warn!(%folder, ulids, "blocks not uploaded: another block of the same compaction is damaged or missing");
            return Ok(());
        }
        for entry in blocks {
            // Compaction may have replaced it meanwhile: the block that it wrote is uploaded instead.
            match self.upload_block(entry) {
                Ok(record) => records.push(record),
                Err(_) if !self.blocks.has(entry) => return Ok(()),
                Err(error) => return Err(format!("block {}: {error}", entry.ulid())),
            }
        }
        // Part of a group would replace all inputs of its compaction in the catalogue.
        assert_eq!(records.len(), blocks.len(), "a group is published as a whole");
        let request = self.state.catalog_request(&self.folder);
        let snapshot = match self.state.bucket().publish(&request, &records).map_err(text)? {
            Published::Recorded(snapshot) => snapshot,
            Published::InputsGone(_) | Published::Superseded(_) => return Ok(()),
        };
        let Some(snapshot) = snapshot else { return Ok(()) };
        self.state.record(&self.folder, &snapshot).map_err(text)?;
        self.confirm_deletions(blocks)?;
        let bytes: u64 = blocks.iter().map(|entry| entry.size_bytes()).sum();
        let folder = &self.folder;
        let ulids = names_of(blocks);
        tracing::info!(%folder, ulids, bytes, snapshot = snapshot.number, "blocks uploaded");
        Ok(())
    }

    /// Compares the tombstones of blocks that the bucket has with as many deleted intervals.
    fn confirm_deletions(&self, entries: &[Arc<BlockEntry>]) -> Result<(), String> {
        for entry in entries.iter().filter(|entry| self.state.is_unconfirmed(&self.folder, entry)) {
            let path = self.blocks.block_dir(entry.ulid()).join(TOMBSTONES_FILE);
            match self.storage.env().disk.read(&path) {
                Ok(tombstones) => self.state.confirm(&self.folder, entry, &tombstones),
                // Compaction has replaced the block.
                Err(_) if !self.blocks.has(entry) => {}
                Err(error) => return Err(format!("reading {}: {error}", path.display())),
            }
        }
        Ok(())
    }

    fn upload_block(&self, entry: &Arc<BlockEntry>) -> Result<BucketBlock, String> {
        let env = self.storage.env();
        let dir = self.storage.options().data_dir.join(sidecar::DIR);
        let block = self.storage.blocks().open(self.blocks, entry).map_err(text)?;
        let sidecar = make_sidecar(env, &dir, &block)?;
        drop(block);
        let request = self.state.request(&self.folder, BLOCK_TIMEOUT);
        let path = sidecar.path.clone();
        let uploaded = self.state.bucket().upload(&request, &self.blocks.block_dir(entry.ulid()), sidecar);
        if let Err(error) = env.disk.remove_file(&path) {
            tracing::warn!(path = %path.display(), %error, "removing an uploaded sidecar failed");
        }
        uploaded.map_err(text)
    }
}

fn names_of(blocks: &[Arc<BlockEntry>]) -> String {
    let names: Vec<String> = blocks.iter().map(|entry| entry.ulid().to_string()).collect();
    names.join(" ")
}
