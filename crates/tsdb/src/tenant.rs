//! The blocks of one tenant, and the directory they lie in.
//! Holds: the list is sorted by precedence, which is by when the samples were written. Not here: what a block is
//! (`block`), which blocks are replaced (`compaction`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chronolith_base::{Disk, Env};
use chronolith_block::{Block, BlockError, precedence};
use chronolith_format::meta::Ulid;
use chronolith_model::TenantId;
use parking_lot::{Mutex, RwLock};

use crate::store::Tsdb;

/// Directory below the data directory that holds one directory a tenant.
pub(crate) const TENANTS_DIR: &str = "tenants";

/// Blocks of one tenant.
pub(crate) struct TenantBlocks {
    /// `DATA/tenants/<id>`.
    pub(crate) dir: PathBuf,
    blocks: RwLock<Vec<Arc<Block>>>,
    /// Whether `dir` is there and its name durable.
    has_durable_dir: AtomicBool,
    /// Directories of blocks that are not in the list any more and must go before a younger block does.
    doomed: Mutex<Vec<PathBuf>>,
}

impl TenantBlocks {
    pub(crate) fn new(data_dir: &Path, tenant: &TenantId, mut blocks: Vec<Arc<Block>>) -> TenantBlocks {
        blocks.sort_by_key(|b| precedence(b.meta()));
        let dir = tenant_dir(data_dir, tenant);
        let has_durable_dir = AtomicBool::new(false);
        TenantBlocks { dir, blocks: RwLock::new(blocks), has_durable_dir, doomed: Mutex::default() }
    }

    /// Makes the directory and its name durable, once in a process: an earlier one may have ended, or failed, between the two.
    ///
    /// # Errors
    /// As the disk reports; the next call tries again.
    pub(crate) fn make_dir(&self, disk: &dyn Disk) -> std::io::Result<()> {
        if self.has_durable_dir.load(Ordering::Acquire) {
            return Ok(());
        }
        disk.create_dir_all(&self.dir)?;
        if let Some(parent) = self.dir.parent() {
            disk.sync_dir(parent)?;
        }
        self.note_durable_dir();
        Ok(())
    }

    /// Notes that the directory is there and its name durable.
    pub(crate) fn note_durable_dir(&self) {
        self.has_durable_dir.store(true, Ordering::Release);
    }

    /// All blocks, earlier written samples first.
    pub(crate) fn list(&self) -> Vec<Arc<Block>> {
        self.blocks.read().clone()
    }

    /// The name of the block that was created last: the next one gets a later name.
    pub(crate) fn newest_ulid(&self) -> Option<Ulid> {
        self.blocks.read().iter().map(|b| b.meta().ulid).max()
    }

    pub(crate) fn add(&self, block: Arc<Block>) {
        self.replace(&[], Some(block));
    }

    /// Takes blocks out of the list and puts one in, in one change: no reader sees both or neither.
    pub(crate) fn replace(&self, old: &[Ulid], new: Option<Arc<Block>>) {
        let mut blocks = self.blocks.write();
        blocks.retain(|b| !old.contains(&b.meta().ulid));
        blocks.extend(new);
        blocks.sort_by_key(|b| precedence(b.meta()));
    }

    /// Notes directories of blocks that left the list for [`TenantBlocks::remove_doomed`].
    pub(crate) fn doom(&self, dirs: impl IntoIterator<Item = PathBuf>) {
        self.doomed.lock().extend(dirs);
    }

    /// Removes the noted directories, in their order.
    ///
    /// # Errors
    /// Of the first one that cannot be removed; it and those behind it stay noted.
    pub(crate) fn remove_doomed(&self, env: &Env) -> Result<(), BlockError> {
        let mut doomed = self.doomed.lock();
        while let Some(dir) = doomed.first() {
            chronolith_block::remove(env, dir)?;
            doomed.remove(0);
        }
        Ok(())
    }

    /// Returns true if there is no block, and no files of one that are still to be removed.
    fn is_empty(&self) -> bool {
        self.blocks.read().is_empty() && self.doomed.lock().is_empty()
    }

    /// Takes a block out of the list; queries that hold it go on reading.
    pub(crate) fn remove(&self, ulid: Ulid) -> Option<Arc<Block>> {
        let mut blocks = self.blocks.write();
        let at = blocks.iter().position(|b| b.meta().ulid == ulid)?;
        Some(blocks.remove(at))
    }
}

impl Tsdb {
    /// Forgets tenants without series, blocks and requests under way; they come back when they are written to.
    pub(crate) fn forget_tenants(&self) {
        self.head.forget_tenants();
        let is_unused = |blocks: &Arc<TenantBlocks>| Arc::strong_count(blocks) == 1 && blocks.is_empty();
        let all = self.tenants.read();
        let unused: Vec<TenantId> =
            all.iter().filter(|(_, blocks)| is_unused(blocks)).map(|(tenant, _)| tenant.clone()).collect();
        drop(all);
        for tenant in unused {
            // Whoever is about to add a block has a reference.
            let mut all = self.tenants.write();
            if all.get(&tenant).is_some_and(is_unused) {
                all.remove(&tenant);
            }
        }
        if let Err(error) = self.head.reclaim_ids() {
            self.count_upkeep_error();
            tracing::error!(%error, "ids of departed series cannot be used again yet; it is tried again");
        }
        let blocks = self.tenants.read();
        self.changes.forget(|tenant| !blocks.contains_key(tenant) && !self.head.has_tenant(tenant));
    }
}

/// Where the blocks of a tenant lie: `DATA/tenants/<id>`.
#[must_use]
pub fn tenant_dir(data_dir: &Path, tenant: &TenantId) -> PathBuf {
    data_dir.join(TENANTS_DIR).join(tenant.as_str())
}
