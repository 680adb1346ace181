//! Appends series of a batch that bring native histograms, possibly mixed with floats, or that have start
//! timestamps.
//!
//! Invariant: a start timestamp changes only with a sample that is stored, or with a duplicate under
//! last-wins; both are in one WAL frame.

use std::ops::Range;

use chronolith_model::{DuplicatePolicy, Reject, WriteBatch};

use super::job::{AppendJob, AppendScratch, BatchSample, Target, count_appended, reject_sample};
use super::slices::yield_stripe;
use crate::series::decide::{AppendOutcome, Value};
use crate::series::stripe::{START_RUNS_MAX, Stripe};

/// Work of an out-of-order histogram relative to that of a float in order: it may decode a chunk.
const OOO_HISTOGRAM_WORK: usize = 256;

/// Appends `samples` of one series that has histograms or start timestamps.
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
            // Another writer may have added start timestamps meanwhile.
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
            Some(histogram) => stripe.append(&mut job.cx, id, time, Value::Histogram(histogram)),
            None => stripe.append(&mut job.cx, id, time, Value::Word(bits)),
        };
        let mut is_logged = count_appended(job, outcome, sample, target.relogs);
        let start = if has_starts { new_start(job, target, sample, outcome) } else { None };
        if let Some(start_ms) = start {
            target.stripe.set_start(id, time, start_ms);
            job.starts_count += u64::from(start_ms != 0);
            is_logged = true;
        }
        if histogram.is_some() {
            if outcome != AppendOutcome::InOrder {
                target.work += OOO_HISTOGRAM_WORK;
            }
            job.outcome.histograms_accepted += u64::from(outcome != AppendOutcome::DuplicateTimestamp);
        }
        if is_logged {
            match histogram {
                Some(histogram) => scratch.pending.push_histogram(id, time, histogram.clone()),
                None => scratch.pending.push(id, time, bits),
            }
            if let Some(start_ms) = start {
                scratch.pending.set_last_start(start_ms);
            }
        }
    }
}

/// Returns true if a series of the batch may be [`is_mixed`] in this stripe.
pub(super) fn may_have_mixed(batch: &WriteBatch, stripe: &Stripe) -> bool {
    !batch.histograms.is_empty() || !batch.start_times.is_empty() || stripe.has_starts()
}

/// Returns true if `samples` contain histograms, or if the series has or `samples` contain start timestamps.
// PERF: out of line; in the loop over the series of a batch it takes registers from plain series: 7
// instructions per sample.
//   cargo bench -p chronolith-head --bench append_speed -- 20000 46 100, below callgrind
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

/// Returns true if the series has start timestamps, or `samples` contain some.
fn has_some(batch: &WriteBatch, samples: Range<usize>, stripe: &Stripe, id: u32) -> bool {
    let brought = batch.start_times.get(samples).unwrap_or(&[]);
    brought.iter().any(|&start_ms| start_ms != 0) || stripe.starts_of(id).is_some()
}

fn start_of(batch: &WriteBatch, at: usize) -> i64 {
    batch.start_times.get(at).copied().unwrap_or(0)
}

/// Rejects a sample with a new start timestamp if the series has no room for one; returns true if it was
/// rejected.
fn refuse_start(job: &mut AppendJob<'_>, target: &Target<'_, '_>, sample: BatchSample) -> bool {
    let Some(starts) = target.stripe.starts_of(sample.id) else { return false };
    let time = sample.time;
    if starts.run_count() < START_RUNS_MAX || starts.at(time) == start_of(job.batch, sample.at()) {
        return false;
    }
    reject_sample(job, Reject::StartTimeLimit, sample.series_idx, time);
    true
}

/// Returns the start timestamp to set for an appended sample; `None` if it does not change.
fn new_start(
    job: &AppendJob<'_>,
    target: &Target<'_, '_>,
    sample: BatchSample,
    outcome: AppendOutcome,
) -> Option<i64> {
    match outcome {
        AppendOutcome::InOrder | AppendOutcome::OutOfOrder | AppendOutcome::Replaced => {}
        AppendOutcome::Duplicate if job.cx.duplicates == DuplicatePolicy::LastWins => {}
        AppendOutcome::Duplicate if target.relogs => {
            let starts = target.stripe.starts_of(sample.id);
            return Some(starts.map_or(0, |starts| starts.at(sample.time)));
        }
        _ => return None,
    }
    Some(start_of(job.batch, sample.at()))
}
