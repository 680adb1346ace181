//! Start times of the samples of a batch, and their log frames.
//!
//! Holds: a start time changes only with a sample that is stored, or repeated where the last value wins; it is logged
//! with its sample, in front of it, and the frames replay to the function that memory has.

use chronolith_format::wal::{self, StartEntry};
use chronolith_model::{DuplicatePolicy, Reject, WriteBatch};

use std::ops::Range;

use super::histograms::Target;
use super::{AppendJob, AppendScratch, BatchSample, FRAME_SAMPLES_MAX, reject_sample};
use crate::head::Head;
use crate::stripe::{Applied, START_RUNS_MAX, Stripe};

/// Bytes of an entry at most: three numbers of 64 bits.
const ENTRY_BYTES_MAX: usize = 30;

const _: () = assert!(FRAME_SAMPLES_MAX * ENTRY_BYTES_MAX + 10 < wal::FRAME_PAYLOAD_BYTES_MAX);

/// Whether a series of the batch may be [`is_mixed`] here.
pub(super) fn may_have_mixed(batch: &WriteBatch, stripe: &Stripe) -> bool {
    !batch.histograms.is_empty() || !batch.start_times.is_empty() || stripe.has_starts()
}

/// Whether `samples` of a series bring histograms, or the series has or they bring start times.
// PERF: in the loop over the series of a batch it would take registers from those that are not: 7 instructions a sample.
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

/// Whether the series has start times, or `samples` of it bring some.
pub(super) fn has_some(batch: &WriteBatch, samples: Range<usize>, stripe: &Stripe, id: u32) -> bool {
    let brought = batch.start_times.get(samples).unwrap_or(&[]);
    brought.iter().any(|&start_ms| start_ms != 0) || stripe.starts_of(id).is_some()
}

fn start_of(batch: &WriteBatch, at: usize) -> i64 {
    batch.start_times.get(at).copied().unwrap_or(0)
}

impl Head {
    /// Refuses a sample whose start time the series has no room for; whether it has.
    pub(super) fn refuse_start(
        &self,
        job: &mut AppendJob<'_>,
        target: &Target<'_, '_>,
        sample: BatchSample,
    ) -> bool {
        let Some(track) = target.stripe.starts_of(sample.id) else { return false };
        let time = sample.time;
        if track.run_count() < START_RUNS_MAX || track.at(time) == start_of(job.batch, sample.at()) {
            return false;
        }
        reject_sample(job, Reject::StartTimeLimit, sample.series_idx, time);
        true
    }

    /// Stores and logs the start time of a sample of which `applied` has become.
    pub(super) fn keep_start(
        &self,
        job: &mut AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
        sample: BatchSample,
        applied: Applied,
    ) {
        let BatchSample { id, time, .. } = sample;
        let mut start_ms = start_of(job.batch, sample.at());
        match applied {
            Applied::InOrder | Applied::Late | Applied::Replaced => {}
            Applied::Repeat if target.world.duplicates == DuplicatePolicy::LastWins => {}
            Applied::Repeat if target.relogs => {
                start_ms = target.stripe.starts_of(id).map_or(0, |track| track.at(time));
            }
            _ => return,
        }
        if applied != Applied::InOrder && target.stripe.starts_of(id).is_none() {
            // The first start time of a series says nothing of later samples: the log must tell of those first.
            self.queue_floats(job, scratch, target.stripe_idx);
            self.queue_histograms(job, scratch, target.stripe_idx);
        }
        target.stripe.set_start(id, time, start_ms);
        job.starts_count += u64::from(start_ms != 0);
        scratch.starts.push(StartEntry { id, time, start_ms });
    }

    /// Queues the frames of the start times that wait.
    pub(super) fn queue_starts(&self, scratch: &mut AppendScratch, stripe_idx: usize) {
        for entries in scratch.starts.chunks(FRAME_SAMPLES_MAX) {
            wal::encode_starts(entries, &mut scratch.payload);
            self.wal.queue(wal::KIND_STARTS, stripe_idx as u8, &scratch.payload);
        }
        scratch.starts.clear();
    }
}
