//! Where the store's memory is: the head's parts and its own. Cost: a look at each tenant, block and
//! exemplar.
//!
//! Not here: what the server keeps, what is resident (the operating system says).

use chronolith_head::{MemoryPart, TenantMemory};

use crate::store::Tsdb;

/// A known block takes about this much: its entry, a pointer and a range in the list.
const BLOCK_ENTRY_BYTES: u64 = 280;

/// Memory of the store by part.
#[derive(Debug, Clone, Default)]
pub struct TsdbMemory {
    /// On the heap of the head.
    pub head: Vec<MemoryPart>,
    /// On the heap beside it.
    pub store: Vec<MemoryPart>,
    /// Files that may be mapped, with all their bytes; those that are resident count as pages of files.
    pub mapped: Vec<MemoryPart>,
    /// Tenants with most in the head.
    pub tenants: Vec<TenantMemory>,
}

impl Tsdb {
    /// Where memory is, and the `tenant_count` tenants with most of it.
    #[must_use]
    pub fn memory(&self, tenant_count: usize) -> TsdbMemory {
        let (pool, block_count) = (self.blocks.pool.stats(), self.blocks.totals().count);
        let (exemplar_bytes, exemplar_count) = self.exemplars.heap_bytes();
        let (metadata_bytes, metadata_count) = self.metadata.heap_bytes();
        let head = self.head.statistics().stats();
        TsdbMemory {
            head: self.head.statistics().memory(),
            store: vec![
                MemoryPart::new("block_catalogue", BLOCK_ENTRY_BYTES * block_count, block_count),
                MemoryPart::new("blocks_open", pool.bytes, pool.open_blocks),
                MemoryPart::new("block_searches", self.blocks.pool.regex_cache_bytes(), pool.open_blocks),
                MemoryPart::new("exemplars", exemplar_bytes, exemplar_count),
                MemoryPart::new("metadata", metadata_bytes, metadata_count),
            ],
            mapped: vec![
                MemoryPart::new("sealed_files", head.sealed_bytes, head.sealed_files),
                MemoryPart::new("blocks", pool.mapped_bytes, pool.open_blocks),
            ],
            tenants: self.head.statistics().memory_by_tenant(tenant_count),
        }
    }
}
