//! Checkpoint job: writes the state of the head after flushes, or when the WAL has grown large.
//!
//! Invariants: the size that makes a checkpoint due counts WAL segments only, not the checkpoint itself.
//! Not here: the checkpoint that is written continuously (`head::checkpoint`).

use super::job::{Found, Job, JobContext, JobRunner, Outcome, run_each};
use super::job_kind::JobKind;
use crate::storage::Storage;

/// Runs checkpoint jobs.
pub(super) struct CheckpointJobs;

impl JobRunner for CheckpointJobs {
    fn search(&mut self, cx: &JobContext<'_>) -> Found {
        let is_due = is_wal_large(cx.storage);
        Found::Some(is_due.then(|| Job::global(JobKind::Checkpoint, cx.now_ms)).into_iter().collect())
    }

    fn run(&mut self, cx: &JobContext<'_>, batch: Vec<Job>) -> Vec<(Job, Outcome)> {
        run_each(batch, |_| {
            let checkpointer = cx.storage.head().checkpointer();
            let written = if is_wal_large(cx.storage) {
                checkpointer.checkpoint()
            } else {
                checkpointer.checkpoint_newest()
            };
            Outcome::of(written.map(drop))
        })
    }
}

/// Returns true if the WAL is larger than the setting allows.
fn is_wal_large(storage: &Storage) -> bool {
    storage.head().statistics().stats().wal.segment_bytes > storage.options().wal.checkpoint_bytes
}
