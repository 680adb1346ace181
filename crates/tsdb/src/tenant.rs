//! The blocks of one tenant, and the directory they lie in.
//! Holds: the list is sorted by block id, which is by time of creation. Not here: what a block is (`block`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_block::Block;
use chronolith_format::meta::Ulid;
use chronolith_model::TenantId;
use parking_lot::RwLock;

/// Directory below the data directory that holds one directory a tenant.
pub(crate) const TENANTS_DIR: &str = "tenants";

/// Blocks of one tenant.
pub(crate) struct TenantBlocks {
    /// `DATA/tenants/<id>`.
    pub(crate) dir: PathBuf,
    blocks: RwLock<Vec<Arc<Block>>>,
}

impl TenantBlocks {
    pub(crate) fn new(data_dir: &Path, tenant: &TenantId, mut blocks: Vec<Arc<Block>>) -> TenantBlocks {
        blocks.sort_by_key(|b| b.meta().ulid);
        TenantBlocks { dir: tenant_dir(data_dir, tenant), blocks: RwLock::new(blocks) }
    }

    /// All blocks, earlier created first.
    pub(crate) fn list(&self) -> Vec<Arc<Block>> {
        self.blocks.read().clone()
    }

    /// The name of the block that was created last: the next one gets a later name.
    pub(crate) fn newest_ulid(&self) -> Option<Ulid> {
        self.blocks.read().last().map(|b| b.meta().ulid)
    }

    pub(crate) fn add(&self, block: Arc<Block>) {
        let mut blocks = self.blocks.write();
        blocks.push(block);
        blocks.sort_by_key(|b| b.meta().ulid);
    }

    /// Takes a block out of the list; queries that hold it go on reading.
    pub(crate) fn remove(&self, ulid: Ulid) -> Option<Arc<Block>> {
        let mut blocks = self.blocks.write();
        let at = blocks.iter().position(|b| b.meta().ulid == ulid)?;
        Some(blocks.remove(at))
    }
}

/// `DATA/tenants/<id>`.
pub(crate) fn tenant_dir(data_dir: &Path, tenant: &TenantId) -> PathBuf {
    data_dir.join(TENANTS_DIR).join(tenant.as_str())
}
