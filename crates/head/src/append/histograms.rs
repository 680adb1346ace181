//! Appending the series of a batch that bring native histograms, perhaps among floats, or have start times; log frames of
//! histograms.
//!
//! Holds: frames of both kinds replay to what memory has: at most the samples that replace one of the other kind must
//! stand behind it in the log, so the frame of the other kind is queued first.

use std::ops::Range;

use chronolith_format::wal::{self, HistogramsWriter};

use super::{
    AppendJob, AppendScratch, BatchSample, Logged, count_applied, note_applied, reject_sample, starts,
};
use crate::head::Head;
use crate::stripe::{Applied, Stripe, StripeWorld};
use crate::sync::MutexGuard;

/// Bytes of a frame at which the next one is begun: one histogram more always fits.
const FRAME_BYTES_FULL: usize = 4 << 20;
/// No histogram takes more: 2^16 buckets and spans a sign and 2^16 bounds, ten bytes a number at most.
const HISTOGRAM_BYTES_MAX: usize = 7 << 20;

/// Work of an out-of-order histogram beside that of a float in order: it may decode a chunk.
const LATE_HISTOGRAM_WORK: usize = 256;

const _: () = assert!(FRAME_BYTES_FULL + HISTOGRAM_BYTES_MAX < wal::FRAME_PAYLOAD_BYTES_MAX);

/// Where the samples of a batch go in one stripe.
pub(super) struct Target<'a, 'w> {
    pub(super) stripe: &'a mut MutexGuard<'w, Stripe>,
    pub(super) world: &'a StripeWorld<'w>,
    pub(super) stripe_idx: usize,
    /// Whether repeats are logged like fresh samples.
    pub(super) relogs: bool,
    /// Samples appended since the stripe was locked, late ones by their cost.
    pub(super) work: usize,
    /// Whether others had the stripe since this batch was begun.
    pub(super) has_let_others_in: bool,
    /// Of how many of the samples that are held back the series are pinned.
    pub(super) pinned_count: usize,
}

impl Head {
    /// Appends `samples` of one series, which has histograms or start times.
    pub(super) fn append_mixed(
        &self,
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
        let mut has_starts = starts::has_some(batch, samples.clone(), target.stripe, id);
        for at in samples.clone() {
            if target.is_due() {
                target.pin(scratch, id);
                self.let_others_in(job, scratch, target);
                // Somebody else may have brought start times meanwhile.
                has_starts = starts::has_some(batch, samples.clone(), target.stripe, id);
            }
            let (time, bits) = (batch.times[at], batch.values[at].to_bits());
            let at = at as u32;
            let histogram = histograms.next_if(|(idx, _)| *idx == at).map(|(_, histogram)| histogram);
            if let Some(reject) = job.bounds.refuse(time) {
                reject_sample(job, reject, series_idx, time);
                continue;
            }
            let sample = BatchSample { time, series_idx, id, at };
            if has_starts && self.refuse_start(job, target, sample) {
                continue;
            }
            let stripe = &mut **target.stripe;
            let applied = match histogram {
                Some(histogram) => {
                    stripe.append_histogram_unsealed(target.world, &mut job.windows, id, time, histogram)
                }
                None => stripe.append_unsealed(target.world, &mut job.windows, id, time, bits),
            };
            if has_starts {
                self.keep_start(job, scratch, target, sample, applied);
            }
            if histogram.is_none() {
                if applied == Applied::Replaced {
                    self.queue_histograms(job, scratch, target.stripe_idx);
                }
                note_applied(job, scratch, applied, sample, target.relogs);
                continue;
            }
            if applied != Applied::InOrder {
                target.work += LATE_HISTOGRAM_WORK;
            }
            if applied == Applied::Replaced {
                self.queue_floats(job, scratch, target.stripe_idx);
            }
            if count_applied(job, applied, sample, target.relogs) == Logged::Yes {
                scratch.histograms.push((id, at));
            }
            job.outcome.histograms_accepted += u64::from(applied != Applied::Conflict);
        }
    }

    /// Queues the frames of the histograms that wait.
    pub(super) fn queue_histograms(
        &self,
        job: &AppendJob<'_>,
        scratch: &mut AppendScratch,
        stripe_idx: usize,
    ) {
        if scratch.histograms.is_empty() {
            return;
        }
        let batch = job.batch;
        let mut waiting = std::mem::take(&mut scratch.histograms);
        let mut rest = waiting.iter().peekable();
        while rest.peek().is_some() {
            let mut writer = HistogramsWriter::begin(job.now_ms, &mut scratch.payload);
            while writer.byte_len() < FRAME_BYTES_FULL
                && let Some(&(id, at)) = rest.next()
            {
                let place = batch.histograms.binary_search_by_key(&at, |(idx, _)| *idx);
                let (_, histogram) = &batch.histograms[place.expect("only histograms wait")];
                writer.put(id, batch.times[at as usize], histogram);
            }
            self.wal.queue(wal::KIND_HISTOGRAMS, stripe_idx as u8, &scratch.payload);
        }
        waiting.clear();
        scratch.histograms = waiting;
    }
}
