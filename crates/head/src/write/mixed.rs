//! Appends series of a batch that bring native histograms, possibly mixed with floats, or that have start
//! times.
//!
//! Invariant: a start time changes only with a sample that is stored, or with a duplicate under last-wins; it
//! is logged with its sample and before it.

use std::ops::Range;

use chronolith_format::head::wal::StartEntry;
use chronolith_model::{DuplicatePolicy, Reject, WriteBatch};

use super::frames::{queue_floats, queue_histograms};
use super::job::{
    AppendJob, AppendScratch, BatchSample, Logged, Target, count_appended, record_outcome, reject_sample,
};
use super::slices::yield_stripe;
use crate::series::decide::AppendOutcome;
use crate::series::stripe::{START_RUNS_MAX, Stripe};

/// Work of an out-of-order histogram relative to that of a float in order: it may decode a chunk.
const OOO_HISTOGRAM_WORK: usize = 256;

/// Appends `samples` of one series that has histograms or start times.
pub(super) fn append_mixed(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    target: &mut Target<'_, '_>,
    series_idx: u32,
    samples: Range<usize>,
) {
    let batch = job.batch;
    let id = scratch.ids[series_idx as usize];
    let histograms = batch.histograms_of(&batch.series[series_idx as usize]);
    let first = histograms.partition_point(|(idx, _)| (*idx as usize) < samples.start);
    let mut histograms = histograms[first..].iter().peekable();
    let mut has_starts = has_some(batch, samples.clone(), target.stripe, id);
    for at in samples.clone() {
        if target.is_due() {
            target.pin(scratch, id);
            yield_stripe(job, scratch, target);
            // Another writer may have added start times meanwhile.
            has_starts = has_some(batch, samples.clone(), target.stripe, id);
        }
        let (time, bits) = (batch.times[at], batch.values[at].to_bits());
        let at = at as u32;
        let histogram = histograms.next_if(|(idx, _)| *idx == at).map(|(_, histogram)| histogram);
        if let Some(reject) = job.bounds.refuse(time) {
            reject_sample(job, reject, series_idx, time);
            continue;
        }
        let sample = BatchSample { time, series_idx, id, at };
        if has_starts && refuse_start(job, target, sample) {
            continue;
        }
        let stripe = &mut **target.stripe;
        let outcome = match histogram {
            Some(histogram) => stripe.append_histogram_unmerged(&mut job.cx, id, time, histogram),
            None => stripe.append_unmerged(&mut job.cx, id, time, bits),
        };
        if has_starts {
            keep_start(job, scratch, target, sample, outcome);
        }
        if histogram.is_none() {
            if outcome == AppendOutcome::Replaced {
                queue_histograms(job, scratch, target.stripe_idx);
            }
            record_outcome(job, scratch, outcome, sample, target.relogs);
            continue;
        }
        if outcome != AppendOutcome::InOrder {
            target.work += OOO_HISTOGRAM_WORK;
        }
        if outcome == AppendOutcome::Replaced {
            queue_floats(job, scratch, target.stripe_idx);
        }
        if count_appended(job, outcome, sample, target.relogs) == Logged::Yes {
            scratch.histograms.push((id, at));
        }
        job.outcome.histograms_accepted += u64::from(outcome != AppendOutcome::DuplicateTimestamp);
    }
}

/// Returns true if a series of the batch may be [`is_mixed`] in this stripe.
pub(super) fn may_have_mixed(batch: &WriteBatch, stripe: &Stripe) -> bool {
    !batch.histograms.is_empty() || !batch.start_times.is_empty() || stripe.has_starts()
}

/// Returns true if `samples` contain histograms, or if the series has or `samples` contain start times.
// PERF: out of line; in the loop over the series of a batch it takes registers from plain series: 7
// instructions per sample.
//   valgrind --tool=callgrind target/release/examples/append_speed 20000 46 100
#[cold]
pub(super) fn is_mixed(
    batch: &WriteBatch,
    series_idx: u32,
    samples: Range<usize>,
    stripe: &Stripe,
    id: u32,
) -> bool {
    !batch.histograms_of(&batch.series[series_idx as usize]).is_empty()
        || has_some(batch, samples, stripe, id)
}

/// Returns true if the series has start times, or `samples` contain some.
fn has_some(batch: &WriteBatch, samples: Range<usize>, stripe: &Stripe, id: u32) -> bool {
    let brought = batch.start_times.get(samples).unwrap_or(&[]);
    brought.iter().any(|&start_ms| start_ms != 0) || stripe.starts_of(id).is_some()
}

fn start_of(batch: &WriteBatch, at: usize) -> i64 {
    batch.start_times.get(at).copied().unwrap_or(0)
}

/// Rejects a sample with a new start time if the series has no room for one; returns true if it was rejected.
fn refuse_start(job: &mut AppendJob<'_>, target: &Target<'_, '_>, sample: BatchSample) -> bool {
    let Some(starts) = target.stripe.starts_of(sample.id) else { return false };
    let time = sample.time;
    if starts.run_count() < START_RUNS_MAX || starts.at(time) == start_of(job.batch, sample.at()) {
        return false;
    }
    reject_sample(job, Reject::StartTimeLimit, sample.series_idx, time);
    true
}

/// Stores and logs the start time of an appended sample.
fn keep_start(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    target: &mut Target<'_, '_>,
    sample: BatchSample,
    outcome: AppendOutcome,
) {
    let BatchSample { id, time, .. } = sample;
    let mut start_ms = start_of(job.batch, sample.at());
    match outcome {
        AppendOutcome::InOrder | AppendOutcome::OutOfOrder | AppendOutcome::Replaced => {}
        AppendOutcome::Duplicate if job.cx.duplicates == DuplicatePolicy::LastWins => {}
        AppendOutcome::Duplicate if target.relogs => {
            start_ms = target.stripe.starts_of(id).map_or(0, |starts| starts.at(time));
        }
        _ => return,
    }
    if outcome != AppendOutcome::InOrder && target.stripe.starts_of(id).is_none() {
        // The first start time of a series does not apply to later samples: the WAL must have those first.
        queue_floats(job, scratch, target.stripe_idx);
        queue_histograms(job, scratch, target.stripe_idx);
    }
    target.stripe.set_start(id, time, start_ms);
    job.starts_count += u64::from(start_ms != 0);
    scratch.starts.push(StartEntry { id, time, start_ms });
}
