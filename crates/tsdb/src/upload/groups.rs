//! Groups of local blocks that enter the catalogue together, and whose local copies go together.
//!
//! Invariant: a group has all local blocks that were made of the same blocks from the head, so an input of a
//! compaction is dropped only when all of its output is in the bucket.

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_block::{BlockEntry, BlockError, read_record};
use chronolith_format::block::meta::Ulid;

use crate::blocks::tenant::TenantBlocks;

/// Local blocks with the same sources.
#[derive(Default)]
pub(crate) struct BlockGroup {
    pub(crate) blocks: Vec<Arc<BlockEntry>>,
    /// Blocks that the compaction wrote that they are of; 0 if it wrote one, or that is not known.
    split_count: usize,
}

impl BlockGroup {
    /// Returns false if a block of the same compaction is damaged or missing. The others have only some of
    /// the series of their sources, so that they must not replace these in the bucket.
    pub(crate) fn is_complete(&self) -> bool {
        self.blocks.len() >= self.split_count
    }
}

/// Sorts a tenant's undamaged blocks into groups; the one with the oldest source comes first. A block that
/// left the list in the meantime is left out. Cost: reads one small file per block.
pub(crate) fn groups_of(env: &Env, blocks: &TenantBlocks) -> Result<Vec<BlockGroup>, BlockError> {
    let mut groups: BTreeMap<Vec<Ulid>, BlockGroup> = BTreeMap::new();
    for entry in blocks.list().iter().filter(|entry| !entry.is_damaged()) {
        let ulid = entry.ulid();
        let compaction = match read_record(env, &blocks.block_dir(ulid), ulid) {
            Ok((_, meta)) => meta.compaction,
            Err(_) if !blocks.has(entry) => continue,
            Err(error) => return Err(error),
        };
        let mut sources = compaction.sources;
        sources.sort_unstable();
        if sources.is_empty() {
            sources.push(ulid);
        }
        let group = groups.entry(sources).or_default();
        group.blocks.push(entry.clone());
        group.split_count = group.split_count.max(compaction.split_blocks.len());
    }
    Ok(groups.into_values().collect())
}
