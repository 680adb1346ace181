//! Metadata job: writes the order of metadata entries that changed since the last one.
//!
//! Invariants: entries themselves are durable before their write is acknowledged; only their order waits for
//! this job.
//! Not here: the file (`crate::metadata`).

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;

/// Runs metadata jobs.
pub(super) struct MetadataJobs;

impl JobRunner for MetadataJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        Found::Some(vec![Job::global(JobKind::Metadata, cx.now_ms)])
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |_| Outcome::of(cx.storage.metadata().write_order()))
    }
}
