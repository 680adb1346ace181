//! Block removal job: removes the files of compacted and expired blocks of one tenant.
//!
//! Invariants: the removal is in the block catalogue before the files go; the files of a tenant go in the
//! order in which their blocks left the list.
//! Not here: the decision which blocks leave the list (`retention`, `compaction`).

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;

/// Runs block removal jobs.
pub(super) struct BlockRemovalJobs;

impl JobRunner for BlockRemovalJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let tenants = cx.storage.blocks().tenants_with_removals();
        let job = |tenant| Job::of_tenant(JobKind::BlockRemoval, tenant, cx.now_ms, 0);
        Found::Some(tenants.into_iter().map(job).collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        let store = cx.storage.blocks();
        run_each(batch, |job| {
            let blocks = job.key.tenant.as_ref().and_then(|tenant| store.tenant(tenant));
            Outcome::of(blocks.map_or(Ok(()), |blocks| store.remove_files(&blocks)))
        })
    }
}
