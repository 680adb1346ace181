//! Store removal job: removes the samples of one dropped store from head and blocks.
//!
//! Invariants: only stores that the database catalogue lists as dropped are removed. They stay in the list
//! until a start finds nothing of them, because a start before the next checkpoint replays their samples.
//! Not here: the drop itself, one entry of the catalogue (`databases`); removal of files (`block_removal`).

use chronolith_format::store_name;
use chronolith_model::StoreId;

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::storage::Storage;

/// Runs store removal jobs.
pub(super) struct StoreRemovalJobs;

/// Returns true if head or blocks have something of a store.
fn has_samples(storage: &Storage, store: &StoreId) -> bool {
    storage.head().statistics().has_tenant(store)
        || storage.blocks().tenant(store).is_some_and(|blocks| blocks.totals().count > 0)
}

/// Forgets dropped stores of which nothing is left. To be called once, after the head was replayed.
pub(crate) fn forget_removed(storage: &Storage) {
    let catalog = storage.databases().catalog();
    let removed: Vec<StoreId> =
        catalog.dropped.iter().filter(|store| !has_samples(storage, store)).cloned().collect();
    if removed.is_empty() {
        return;
    }
    if let Err(error) = storage.databases().forget_dropped(&removed) {
        tracing::warn!(%error, "dropped stores stay in the database catalogue until the next start");
    }
}

fn remove(cx: &JobContext<'_>, store: &StoreId) -> Outcome {
    let windows = cx.storage.head().windows();
    let mut sample_count = 0;
    for window in windows.list_of(store) {
        match windows.snapshot(store, window.range) {
            Ok(snapshot) => sample_count += windows.drop(snapshot).sample_count,
            Err(error) => return Outcome::Failed(error.to_string()),
        }
    }
    let mut block_count = 0;
    if let Some(blocks) = cx.storage.blocks().tenant(store) {
        let list = blocks.list();
        block_count = list.len();
        cx.storage.blocks().replace(&blocks, &list, Vec::new());
        let dirs: Vec<_> = list.iter().map(|block| blocks.block_dir(block.ulid())).collect();
        cx.storage.blocks().schedule_removal(&blocks, dirs);
        cx.add(Job::of_tenant(JobKind::BlockRemoval, store.clone(), cx.now_ms, 0));
    }
    cx.storage.changes().note_range(store, chronolith_model::TimeRange::ALL);
    // The WAL and the sealed chunks of the store leave the disk with it.
    cx.add(Job::global(JobKind::Checkpoint, cx.now_ms));
    if sample_count > 0 || block_count > 0 {
        tracing::info!(store = %store_name(store), sample_count, block_count, "dropped store removed");
    }
    Outcome::Done
}

impl JobRunner for StoreRemovalJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let catalog = cx.storage.databases().catalog();
        let left = catalog.dropped.iter().filter(|store| has_samples(cx.storage, store));
        let job = |store: &StoreId| Job::of_tenant(JobKind::StoreRemoval, store.clone(), cx.now_ms, 0);
        Found::All(left.map(job).collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| job.key.tenant.as_ref().map_or(Outcome::Done, |store| remove(cx, store)))
    }
}
