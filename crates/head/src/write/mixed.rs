//! Appends series of a batch that bring native histograms, possibly mixed with floats, or start timestamps,
//! and those whose open chunk has start timestamps.
//!
//! Invariant: a start timestamp changes only with a sample that is stored; both are in one WAL frame.

use std::ops::Range;

use chronolith_model::WriteBatch;

use super::job::{AppendJob, AppendScratch, BatchSample, Target, count_appended, reject_sample};
use super::slices::yield_stripe;
use crate::series::decide::AppendOutcome;
use crate::series::stripe::Stripe;
use crate::series::value::{Sample, Value};

/// Work of an out-of-order histogram relative to an in-order float: it may decode a chunk.
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
    for at in samples.clone() {
        if target.is_due() {
            target.pin(scratch, id);
            yield_stripe(job, scratch, target);
        }
        let (time, bits) = (batch.times[at], job.values[at].to_bits());
        let at = at as u32;
        let histogram = histograms.next_if(|(idx, _)| *idx == at).map(|(_, histogram)| histogram);
        if let Some(reject) = job.bounds.refuse(time) {
            reject_sample(job, reject, series_idx, time);
            continue;
        }
        let sample = BatchSample { time, series_idx, id, at };
        let start_ms = batch.start_times.get(sample.at()).copied().unwrap_or(0);
        let value = histogram.map_or(Value::Word(bits), Value::Histogram);
        let outcome = target.stripe.append_sample(&mut job.cx, id, Sample { time, value, start_ms });
        let is_logged = count_appended(job, outcome, sample, target.relogs);
        if histogram.is_some() {
            if outcome != AppendOutcome::InOrder {
                target.work += OOO_HISTOGRAM_WORK;
            }
            job.outcome.histograms_accepted += u64::from(outcome != AppendOutcome::DuplicateTimestamp);
        }
        if is_logged {
            let start_ms = if outcome == AppendOutcome::Duplicate { 0 } else { start_ms };
            job.starts_count += u64::from(start_ms != 0);
            value.put_logged(id, time, start_ms, &mut scratch.pending);
            set_relogged_start(job, scratch, target.stripe, outcome, sample);
        }
    }
}

/// Gives a duplicate that was added to the next frame the start timestamp of the stored sample, which the WAL
/// may have lost.
pub(super) fn set_relogged_start(
    job: &AppendJob<'_>,
    scratch: &mut AppendScratch,
    stripe: &mut Stripe,
    outcome: AppendOutcome,
    sample: BatchSample,
) {
    if outcome == AppendOutcome::Duplicate {
        let start_ms = stripe.start_at(&job.cx, sample.id, sample.time);
        if start_ms != 0 {
            scratch.pending.set_last_start(start_ms);
        }
    }
}

/// Returns true if a series of the batch may be [`is_mixed`] in this stripe.
pub(super) fn may_have_mixed(batch: &WriteBatch, stripe: &Stripe) -> bool {
    !batch.histograms.is_empty() || !batch.start_times.is_empty() || stripe.has_open_starts()
}

/// Returns true if `samples` contain histograms or start timestamps, or if the open chunk of the series has
/// start timestamps.
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
    let brought = batch.start_times.get(samples).unwrap_or(&[]);
    !batch.histograms_of(&batch.series[series_idx as usize]).is_empty()
        || brought.iter().any(|&start_ms| start_ms != 0)
        || !stripe.open_starts(id).is_empty()
}
