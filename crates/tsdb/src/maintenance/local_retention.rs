//! Local retention job: local copies of blocks that the bucket has leave the list of their tenant once they
//! are old enough.
//!
//! Invariants: a copy goes only when the bucket's block has all its deletions and queries know that block;
//! blocks with the same sources go together, so that a local one never stands for one that only the bucket
//! has.
//! Not here: upload (`upload`), expiry (`retention`), removal of files (`block_removal`).

use std::sync::Arc;

use chronolith_block::{BlockEntry, BlockError};
use chronolith_format::store_name;
use chronolith_model::StoreId;

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::blocks::tenant::TenantBlocks;
use crate::storage::Storage;
use crate::upload::groups::{BlockGroup, groups_of};

/// Runs local retention jobs.
pub(super) struct LocalRetentionJobs;

impl JobRunner for LocalRetentionJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let Some(bucket) = cx.storage.bucket() else { return Found::All(Vec::new()) };
        let oldest_ms = cx.now_ms.saturating_sub(bucket.rules().local_retention_ms());
        let tenants = cx.storage.blocks().all();
        let job = |(tenant, blocks): &(StoreId, Arc<TenantBlocks>)| {
            let list = blocks.list();
            let removable = || list.iter().filter(|block| is_removable(cx.storage, tenant, block, oldest_ms));
            let bytes = removable().map(|block| block.size_bytes()).sum();
            removable().next()?;
            Some(Job::of_tenant(JobKind::LocalRetention, tenant.clone(), cx.now_ms, bytes))
        };
        Found::All(tenants.iter().filter_map(job).collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| {
            let tenant = job.key.tenant.as_ref();
            Outcome::of(tenant.map_or(Ok(()), |tenant| remove_copies(cx, tenant)))
        })
    }
}

/// Returns true if the bucket has `block` and it ended before `oldest_ms`.
fn is_removable(storage: &Storage, store: &StoreId, block: &Arc<BlockEntry>, oldest_ms: i64) -> bool {
    let end_ms = store.time_unit().to_ms_ceil(block.range().end);
    end_ms <= oldest_ms && storage.is_uploaded(store, block)
}

fn remove_copies(cx: &JobContext<'_>, tenant: &StoreId) -> Result<(), BlockError> {
    let store = cx.storage.blocks();
    let (Some(blocks), Some(bucket)) = (store.tenant(tenant), cx.storage.bucket()) else { return Ok(()) };
    let oldest_ms = cx.now_ms.saturating_sub(bucket.rules().local_retention_ms());
    let is_removable = |block: &Arc<BlockEntry>| is_removable(cx.storage, tenant, block, oldest_ms);
    let groups = groups_of(cx.storage.env(), &blocks)?;
    let is_removable = |group: &BlockGroup| group.is_complete() && group.blocks.iter().all(is_removable);
    for BlockGroup { blocks: group, .. } in groups.into_iter().filter(is_removable) {
        store.replace(&blocks, &group, Vec::new());
        store.schedule_removal(&blocks, group.iter().map(|block| blocks.block_dir(block.ulid())));
        for block in &group {
            tracing::info!(tenant = %store_name(tenant), block = %block.ulid(), "local block removed, the bucket has it");
        }
        if let Some(uploads) = cx.storage.uploads() {
            uploads.counters().count_removed_copies(group.len() as u64);
        }
    }
    cx.add(Job::of_tenant(JobKind::BlockRemoval, tenant.clone(), cx.now_ms, 0));
    Ok(())
}
