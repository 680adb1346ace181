//! Blocks of Graphite stores that expire by the schemas of their series.
//!
//! Invariants: a block expires when the longest retention of its series has passed since its end; one whose
//! labels cannot be read is kept. The retention of a block is looked up once per version of the rules.
//! Not here: which schema a series has (`server`), removal of blocks (`retention`).

use std::collections::BTreeMap;
use std::sync::Arc;

use chronolith_block::BlockEntry;
use chronolith_format::block::meta::Ulid;
use chronolith_model::TenantId;
use chronolith_model::rollup::RollupRules;

use crate::blocks::tenant::TenantBlocks;
use crate::storage::Storage;

/// Blocks whose labels one search reads at most.
const READS_MAX: usize = 4;
/// Retention of a block of which a series is kept for ever.
const FOR_EVER: i64 = i64::MAX;

/// Retentions of blocks, by the rules in effect.
#[derive(Default)]
pub(super) struct SchemaRetentions {
    rules: Option<Arc<dyn RollupRules>>,
    /// Longest retention of the series of a block in milliseconds.
    longest_ms: BTreeMap<Ulid, i64>,
}

impl SchemaRetentions {
    /// Returns the blocks of Graphite stores that have expired at `now_ms`. Cost: the labels of some old
    /// blocks; further ones are looked at by the next call.
    pub(super) fn expired(&mut self, storage: &Storage, now_ms: i64) -> Vec<(TenantId, Arc<BlockEntry>)> {
        let Some(rules) = storage.rollup_rules() else { return Vec::new() };
        if !self.rules.as_ref().is_some_and(|known| Arc::ptr_eq(known, &rules)) {
            self.rules = Some(rules.clone());
            self.longest_ms.clear();
        }
        let Some(shortest_ms) = rules.shortest_retention_ms() else { return Vec::new() };
        let catalog = storage.databases().catalog();
        let mut old = Vec::new();
        for (_, own) in catalog.tenants() {
            let Some(store) = own.graphite.as_ref().map(|policy| &policy.store) else { continue };
            let Some(blocks) = storage.blocks().tenant(store) else { continue };
            let list = blocks.list();
            let is_old = |entry: &&Arc<BlockEntry>| entry.range().end <= now_ms.saturating_sub(shortest_ms);
            old.extend(
                list.iter().filter(is_old).map(|entry| (store.clone(), blocks.clone(), entry.clone())),
            );
        }
        self.longest_ms.retain(|ulid, _| old.iter().any(|(.., entry)| entry.ulid() == *ulid));
        let mut reads_left = READS_MAX;
        let mut expired = Vec::new();
        for (store, blocks, entry) in old {
            let known_ms = self.longest_ms.get(&entry.ulid()).copied();
            let longest_ms = match known_ms {
                Some(known_ms) => known_ms,
                None if reads_left == 0 => continue,
                None => {
                    reads_left -= 1;
                    let longest_ms = longest_retention_ms(storage, &blocks, &entry, &*rules);
                    self.longest_ms.insert(entry.ulid(), longest_ms);
                    longest_ms
                }
            };
            if entry.range().end <= now_ms.saturating_sub(longest_ms) {
                expired.push((store, entry));
            }
        }
        expired
    }
}

fn longest_retention_ms(
    storage: &Storage,
    blocks: &TenantBlocks,
    entry: &Arc<BlockEntry>,
    rules: &dyn RollupRules,
) -> i64 {
    let mut longest_ms = 0;
    let read = storage.blocks().open(blocks, entry).map_err(|error| error.to_string()).and_then(|block| {
        let visited = block.for_each_labels(&mut |labels| {
            longest_ms = longest_ms.max(rules.retention_ms(labels).unwrap_or(FOR_EVER));
            longest_ms < FOR_EVER
        });
        visited.map_err(|error| error.to_string())
    });
    match read {
        Ok(()) => longest_ms,
        Err(error) => {
            tracing::warn!(block = %entry.ulid(), error, "the retention of a block is not known, it is kept");
            FOR_EVER
        }
    }
}
