//! Store removal job: removes the samples of one dropped store from head and blocks.
//!
//! Invariants: only stores that the database catalogue lists as dropped are removed. They stay in the list
//! until a start finds nothing of them, because a start before the next checkpoint replays their samples.
//! Not here: the drop itself, one entry of the catalogue (`databases`); removal of files (`block_removal`).

use chronolith_format::store_name;
use chronolith_head::HeadError;
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

/// Samples and blocks that were removed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RemovedSamples {
    pub(crate) sample_count: u64,
    pub(crate) block_count: u64,
}

/// Removes the samples of a store from the head, and its blocks from the list; the caller has their files
/// removed, and a checkpoint written, without which the next start reads the samples of the head again.
///
/// # Errors
/// [`HeadError`]; part of the samples may be removed.
pub(crate) fn remove_samples(storage: &Storage, store: &StoreId) -> Result<RemovedSamples, HeadError> {
    let windows = storage.head().windows();
    let mut removed = RemovedSamples::default();
    for window in windows.list_of(store) {
        removed.sample_count += windows.drop(windows.snapshot(store, window.range)?).sample_count;
    }
    if let Some(blocks) = storage.blocks().tenant(store) {
        let list = blocks.list();
        removed.block_count = list.len() as u64;
        storage.blocks().replace(&blocks, &list, Vec::new());
        let dirs: Vec<_> = list.iter().map(|block| blocks.block_dir(block.ulid())).collect();
        storage.blocks().schedule_removal(&blocks, dirs);
    }
    storage.changes().note_range(store, chronolith_model::TimeRange::ALL);
    Ok(removed)
}

fn remove(cx: &JobContext<'_>, store: &StoreId) -> Outcome {
    let RemovedSamples { sample_count, block_count } = match remove_samples(cx.storage, store) {
        Ok(removed) => removed,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    if cx.storage.blocks().tenant(store).is_some() {
        cx.add(Job::of_tenant(JobKind::BlockRemoval, store.clone(), cx.now_ms, 0));
    }
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
