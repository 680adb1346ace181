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
pub(crate) type BlockGroup = Vec<Arc<BlockEntry>>;

/// Sorts a tenant's undamaged blocks into groups; the one with the oldest source comes first. A block that
/// left the list meanwhile is left out. Cost: reads one small file per block.
pub(crate) fn groups_of(env: &Env, blocks: &TenantBlocks) -> Result<Vec<BlockGroup>, BlockError> {
    let mut groups: BTreeMap<Vec<Ulid>, BlockGroup> = BTreeMap::new();
    for entry in blocks.list().iter().filter(|entry| !entry.is_damaged()) {
        let ulid = entry.ulid();
        let mut sources = match read_record(env, &blocks.block_dir(ulid), ulid) {
            Ok((_, meta)) => meta.compaction.sources,
            Err(_) if !blocks.has(entry) => continue,
            Err(error) => return Err(error),
        };
        sources.sort_unstable();
        if sources.is_empty() {
            sources.push(ulid);
        }
        groups.entry(sources).or_default().push(entry.clone());
    }
    Ok(groups.into_values().collect())
}
