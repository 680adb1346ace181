//! Blocks of Graphite stores in the bucket that expire by the schemas of their series.
//!
//! Invariant: a block whose times overlap a local one stays, as it may have been made of it.
//! Not here: the rules (`crate::schema_retention`), local blocks (`maintenance::retention`).

use std::sync::Arc;

use chronolith_bucket::BucketBlock;
use chronolith_bucket::maintenance::retention::expire;
use chronolith_bucket::snapshots::Change;
use chronolith_format::block::meta::Ulid;
use chronolith_format::bucket::catalogue::{BucketBlock as BlockRecord, Snapshot};
use chronolith_model::{ReadContext, TimeRange};

use super::StoreRun;
use crate::schema_retention::OldBlock;

impl StoreRun<'_> {
    /// Lets expired blocks of a Graphite store leave the catalogue. Cost: the indexes of some old blocks;
    /// further ones are looked at by the next call.
    pub(super) fn expire_by_schema(&self, snapshot: &Snapshot) -> Result<(), String> {
        let storage = self.parts.storage;
        let rules = storage.rollup_rules().filter(|_| self.store.is_graphite());
        let Some(rules) = rules else { return Ok(()) };
        let Some(shortest_ms) = rules.shortest_retention_ms() else { return Ok(()) };
        let local = self.local_blocks();
        let oldest_ms = self.now_ms.saturating_sub(shortest_ms);
        let is_old = |block: &&BlockRecord| {
            block.range.end <= oldest_ms && !local.iter().any(|entry| entry.range().overlaps(block.range))
        };
        let old: Vec<&BlockRecord> = snapshot.blocks.iter().filter(is_old).collect();
        let mut all = self.owner.retentions.lock();
        let retentions = all.entry(self.store.clone()).or_default();
        retentions.set_rules(&rules);
        retentions.retain(|ulid| old.iter().any(|block| block.ulid == ulid));
        if old.is_empty() {
            return Ok(());
        }
        let readable = self.readable_blocks(oldest_ms)?;
        let ages = old.iter().map(|block| OldBlock { ulid: block.ulid, end_ms: block.range.end });
        let expired = retentions.expired(ages, self.now_ms, |ulid, visit| {
            let found = readable.iter().find(|block| block.ulid() == ulid);
            let block = found.ok_or_else(|| "the block is not in the list of queries".to_owned())?;
            block.for_each_labels(&self.read_context(), visit).map_err(|error| error.to_string())
        });
        drop(all);
        if expired.is_empty() { Ok(()) } else { self.retire(&expired) }
    }

    /// Blocks that begin before `end_ms`, as queries see them.
    fn readable_blocks(&self, end_ms: i64) -> Result<Vec<Arc<BucketBlock>>, String> {
        let Some(source) = self.parts.storage.bucket_blocks(self.store) else { return Ok(Vec::new()) };
        let range = TimeRange::new(i64::MIN, end_ms);
        source.blocks_in(range, &self.read_context()).map_err(|error| error.to_string())
    }

    fn read_context(&self) -> ReadContext {
        ReadContext::unlimited(self.parts.storage.env().clock.clone())
    }

    /// Takes blocks out of the catalogue and marks them.
    fn retire(&self, expired: &[Ulid]) -> Result<(), String> {
        let mut expired_count = 0;
        let updated = self.bucket().update(&self.request(), |snapshot| {
            expired_count = expire(snapshot, self.now_ms, |block| expired.contains(&block.ulid)).len();
            if expired_count > 0 { Change::Write } else { Change::Keep }
        });
        let updated = updated.map_err(|error| error.to_string())?;
        if expired_count > 0
            && let Some(snapshot) = updated
        {
            self.parts.state.record(&self.folder, &snapshot).map_err(|error| error.to_string())?;
            self.owner.counters.expired_blocks.add(expired_count as u64);
            tracing::info!(folder = %self.folder, expired_count, "expired blocks of a Graphite store removed from the catalogue");
        }
        Ok(())
    }
}
