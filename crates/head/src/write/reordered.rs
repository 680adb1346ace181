//! Appends series of a batch that have a reorder rule.
//!
//! Invariants: the WAL has a sample once it is in the buffer, at its rounded timestamp; nothing is allocated
//! per sample. A series with a buffer that comes without a rule has its buffer emptied first.
//! Not here: the buffers (`series::stripe`), choice of the rule of a series (`ingest`).

use std::ops::Range;

use chronolith_model::{Reject, WriteBatch};

use super::job::{AppendJob, AppendScratch, BatchSample, Target, count_appended, reject_sample};
use crate::reorder::Sample;
use crate::series::decide::AppendOutcome;
use crate::series::stripe::{Stripe, append_by_rule, flush};

/// Returns true if a series of the batch has a rule, or one of the stripe a buffer.
pub(super) fn may_have_reordered(batch: &WriteBatch, stripe: &Stripe) -> bool {
    !batch.reordered.is_empty() || stripe.has_reorder_buffers()
}

/// Appends `samples` of one series if it has a rule; returns false otherwise.
pub(super) fn append_reordered(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    target: &mut Target<'_, '_>,
    series_idx: u32,
    samples: Range<usize>,
) -> bool {
    let id = scratch.ids[series_idx as usize];
    let stripe = &mut **target.stripe;
    let tenant = job.tenant.idx;
    let Some(rule) = job.batch.reorder_rule_of(series_idx as usize) else {
        if stripe.is_of_tenant(id, tenant) {
            flush(stripe, &mut job.cx, id);
        }
        return false;
    };
    for at in samples {
        let time = job.batch.times[at];
        let value = job.values[at];
        if let Some(reject) = job.bounds.refuse(time) {
            reject_sample(job, reject, series_idx, time);
            continue;
        }
        let sample = Sample { time_ms: time, value };
        let Some(done) = append_by_rule(stripe, &mut job.cx, tenant, id, &rule, sample) else {
            reject_sample(job, Reject::OutOfBounds, series_idx, time);
            continue;
        };
        if done.outcome == AppendOutcome::SeriesGone {
            scratch.misses.push(series_idx);
            break;
        }
        let sample = BatchSample { time: done.time, series_idx, id, at: at as u32 };
        if count_appended(job, done.outcome, sample, target.relogs) {
            scratch.pending.push(id, done.time, value.to_bits());
        }
    }
    true
}
