//! Deletion job: applies the pending deletions of one block by rewriting it without the deleted samples.
//!
//! Invariants: only blocks of which many series have deleted samples are rewritten, and only if no compaction
//! of the tenant is planned, which applies deletions too. The compaction search adds the jobs.
//! Not here: tombstones (`block`), deletion requests (`admin`).

use chronolith_model::StoreId;

use super::compaction::rewrite::Rewrite;
use super::compaction::{next_with_deletions, run_step};
use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;

/// Runs deletion jobs.
pub(super) struct DeletionJobs;

impl DeletionJobs {
    fn run_one(cx: &JobContext<'_>, store: &StoreId) -> Outcome {
        let Some(blocks) = cx.storage.blocks().tenant(store) else { return Outcome::Done };
        let next = || next_with_deletions(cx.storage, &blocks, store, cx.now_ms);
        let Some(block) = next() else { return Outcome::Done };
        let step = Rewrite { tenant: store.clone(), blocks: blocks.clone(), inputs: vec![block] };
        let outcome = run_step(cx, &step);
        if matches!(outcome, Outcome::Done | Outcome::Abandoned(_))
            && let Some(block) = next()
        {
            cx.add(Job::of_tenant(JobKind::Deletion, store.clone(), cx.now_ms, block.size_bytes()));
        }
        outcome
    }
}

impl JobRunner for DeletionJobs {
    fn search(&mut self, _: &JobContext<'_>) -> Found {
        Found::Some(Vec::new())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |job| {
            job.key.tenant.as_ref().map_or(Outcome::Done, |tenant| Self::run_one(cx, tenant))
        })
    }
}
