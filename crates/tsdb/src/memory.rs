//! Memory of the storage by part. Cost: a visit of each tenant, block and exemplar.
//!
//! Not here: memory of the server, resident memory (from the operating system).

use chronolith_head::{MemoryPart, TenantMemory};

use crate::exemplars::ExemplarStorage;
use crate::storage::Storage;

/// Approximate memory of a listed block: its entry, a pointer and a range in the list.
const BLOCK_ENTRY_BYTES: u64 = 280;

/// Memory of the storage by part.
#[derive(Debug, Clone, Default)]
pub struct TsdbMemory {
    /// Heap of the head.
    pub head: Vec<MemoryPart>,
    /// Other heap of the storage.
    pub store: Vec<MemoryPart>,
    /// Sizes of files that may be mapped; their resident pages count as file cache.
    pub mapped: Vec<MemoryPart>,
    /// Tenants with most memory in the head.
    pub tenants: Vec<TenantMemory>,
}

/// Returns the memory by part, and the `tenant_count` tenants with most in the head.
pub(crate) fn collect(storage: &Storage, exemplars: &ExemplarStorage, tenant_count: usize) -> TsdbMemory {
    let (head, blocks) = (storage.head().statistics(), storage.blocks());
    let (pool, block_count) = (blocks.pool_stats(), blocks.totals().count);
    let (exemplar_bytes, exemplar_count) = exemplars.heap_bytes();
    let (metadata_bytes, metadata_count) = storage.metadata().heap_bytes();
    let (graphite_bytes, graphite_count) = storage.graphite().heap_bytes();
    let stats = head.stats();
    TsdbMemory {
        head: head.memory(),
        store: vec![
            MemoryPart::new("block_catalogue", BLOCK_ENTRY_BYTES * block_count, block_count),
            MemoryPart::new("blocks_open", pool.bytes, pool.open_blocks),
            MemoryPart::new("block_regex_cache", blocks.regex_cache_bytes(), pool.open_blocks),
            MemoryPart::new("exemplars", exemplar_bytes, exemplar_count),
            MemoryPart::new("metadata", metadata_bytes, metadata_count),
            MemoryPart::new("graphite_events", graphite_bytes, graphite_count),
        ],
        mapped: vec![
            MemoryPart::new("sealed_files", stats.sealed_bytes, stats.sealed_files),
            MemoryPart::new("blocks", pool.mapped_bytes, pool.open_blocks),
        ],
        tenants: head.memory_by_tenant(tenant_count),
    }
}
