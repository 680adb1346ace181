//! Tenant cleanup job: forgets tenants without series, blocks and requests in progress, and frees series ids.
//!
//! Invariants: a tenant with data stays; one that is forgotten comes back with its next write.
//! Not here: data that expires (`retention`).

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;

/// Runs tenant cleanup jobs.
pub(super) struct TenantCleanupJobs;

impl JobRunner for TenantCleanupJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        Found::Some(vec![Job::global(JobKind::TenantCleanup, cx.now_ms)])
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        let (head, blocks) = (cx.storage.head(), cx.storage.blocks());
        run_each(batch, |_| {
            head.windows().forget_unused_tenants();
            blocks.forget_unused_tenants();
            let reclaimed = head.reclaim_ids();
            let is_gone = |tenant: &_| !blocks.has_tenant(tenant) && !head.statistics().has_tenant(tenant);
            cx.storage.changes().forget(is_gone);
            // The next search tries again.
            let failed = |error| Outcome::Abandoned(format!("ids of removed series: {error}"));
            reclaimed.map_or_else(failed, |()| Outcome::Done)
        })
    }
}
