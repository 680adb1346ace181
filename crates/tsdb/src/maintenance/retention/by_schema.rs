//! Local blocks of Graphite stores that expire by the schemas of their series.
//!
//! Not here: the rules (`crate::schema_retention`), removal of blocks (`retention`).

use std::sync::Arc;

use chronolith_block::BlockEntry;
use chronolith_format::block::meta::Ulid;
use chronolith_model::{Labels, StoreId};

use crate::blocks::tenant::TenantBlocks;
use crate::schema_retention::{OldBlock, SchemaRetentions};
use crate::storage::Storage;

/// Returns the blocks of Graphite stores that have expired at `now_ms`. Cost: the labels of some old blocks;
/// further ones are looked at by the next call.
pub(super) fn expired_by_schema(
    retentions: &mut SchemaRetentions,
    storage: &Storage,
    now_ms: i64,
) -> Vec<(StoreId, Arc<BlockEntry>)> {
    let Some(rules) = storage.rollup_rules() else { return Vec::new() };
    retentions.set_rules(&rules);
    let Some(shortest_ms) = rules.shortest_retention_ms() else { return Vec::new() };
    let catalog = storage.databases().catalog();
    let mut old = Vec::new();
    for (_, own) in catalog.tenants() {
        let Some(store) = own.graphite.as_ref().map(|policy| &policy.store) else { continue };
        let Some(blocks) = storage.blocks().tenant(store) else { continue };
        let list = blocks.list();
        let is_old = |entry: &&Arc<BlockEntry>| entry.range().end <= now_ms.saturating_sub(shortest_ms);
        old.extend(list.iter().filter(is_old).map(|entry| (store.clone(), blocks.clone(), entry.clone())));
    }
    retentions.retain(|ulid| old.iter().any(|(.., entry)| entry.ulid() == ulid));
    let ages = old.iter().map(|(.., entry)| OldBlock { ulid: entry.ulid(), end_ms: entry.range().end });
    let expired = retentions.expired(ages, now_ms, |ulid, visit| {
        let found = old.iter().find(|(.., entry)| entry.ulid() == ulid);
        found.map_or(Ok(()), |(_, blocks, entry)| visit_labels(storage, blocks, entry, visit))
    });
    let is_expired = |ulid: Ulid| expired.contains(&ulid);
    let gone = old.into_iter().filter(|(.., entry)| is_expired(entry.ulid()));
    gone.map(|(store, _, entry)| (store, entry)).collect()
}

fn visit_labels(
    storage: &Storage,
    blocks: &TenantBlocks,
    entry: &Arc<BlockEntry>,
    visit: &mut dyn FnMut(&Labels) -> bool,
) -> Result<(), String> {
    let block = storage.blocks().open(blocks, entry).map_err(|error| error.to_string())?;
    block.for_each_labels(visit).map_err(|error| error.to_string())
}
