//! Large batches in slices: between two of them whoever waits for the stripe gets it, be it another writer or
//! a query.
//!
//! Holds: all that was appended is queued for the log before the stripe is let go, so that the log has the
//! order of memory; series for which there is more stay in the stripe meanwhile, since they are pinned. A
//! reader may see a part of a batch, as it may between two stripes; the batch is acknowledged when all of it
//! is in the log.

use std::ops::Range;

use chronolith_model::{TimeRange, WriteBatch};

use super::histograms::Target;
use super::{AppendJob, AppendScratch, BatchSample};
use crate::head::Head;
use crate::stripe::Stripe;
use crate::sync::MutexGuard;
use crate::windows::WindowTally;

/// Samples that are appended under one lock: a third of a millisecond in order.
const SLICE_SAMPLES: usize = 8192;
/// As [`SLICE_SAMPLES`] for batches with histograms or start times.
const MIXED_SLICE_SAMPLES: usize = 1024;
/// Late samples that are sorted under the lock.
const LOCKED_SORT_COUNT: usize = 1024;
const ALL_TIMES: TimeRange = TimeRange { start: i64::MIN, end: i64::MAX };

/// Series of a batch that are appended under one lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// The series, by their place in the order.
    pub(super) order: Range<usize>,
    /// Their samples that are meant, by their place in the batch: all, unless one series is more than a slice.
    pub(super) within: Range<usize>,
    /// Where the next slice starts: the place of a series, and of its first sample that is meant.
    pub(super) next: usize,
    pub(super) next_first: usize,
}

/// The slice of series from place `start` of `order` on, without samples of that one before place `first` of
/// the batch.
pub(super) fn slice_at(batch: &WriteBatch, order: &[u32], start: usize, first: usize) -> Slice {
    let is_plain = batch.histograms.is_empty() && batch.start_times.is_empty();
    let count_max = if is_plain { SLICE_SAMPLES } else { MIXED_SLICE_SAMPLES };
    let all =
        Slice { order: start..order.len(), within: first..usize::MAX, next: order.len(), next_first: 0 };
    if batch.sample_count() <= count_max {
        return all;
    }
    let samples = |place: usize| &batch.series[order[place] as usize].samples;
    let (from, end) = (first.max(samples(start).start as usize), samples(start).end as usize);
    if end - from > count_max {
        let next_first = from + count_max;
        return Slice { order: start..start + 1, within: from..next_first, next: start, next_first };
    }
    let mut count = end - from;
    for place in start + 1..order.len() {
        count += samples(place).len();
        if count > count_max {
            // The first series may be the rest of one; samples of others lie anywhere in the batch.
            let next = if first > 0 { start + 1 } else { place };
            return Slice { order: start..next, within: first..usize::MAX, next, next_first: 0 };
        }
    }
    if first > 0 { Slice { order: start..start + 1, next: start + 1, ..all } } else { all }
}

impl Target<'_, '_> {
    /// Returns true if so much was done since the stripe was locked that others are to have it.
    pub(super) fn is_due(&self) -> bool {
        self.work >= SLICE_SAMPLES
    }

    /// Pins a series of this batch.
    pub(super) fn pin(&mut self, scratch: &mut AppendScratch, id: u32) {
        if scratch.pinned.last() != Some(&id) {
            self.stripe.pin(id);
            scratch.pinned.push(id);
        }
    }

    /// Pins the series of which samples are held back.
    fn pin_behind(&mut self, scratch: &mut AppendScratch) {
        for at in self.pinned_count..scratch.behind.len() {
            self.pin(scratch, scratch.behind[at].id);
        }
        self.pinned_count = scratch.behind.len();
    }

    /// Unpins all series of this batch.
    pub(super) fn unpin(&mut self, scratch: &mut AppendScratch) {
        scratch.pinned.drain(..).for_each(|id| self.stripe.unpin(id));
    }
}

impl Head {
    /// Queues what was appended and lets whoever waits have the stripe.
    pub(super) fn let_others_in(
        &self,
        job: &AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
    ) {
        self.let_others_in_during(job, scratch, target, |_| ());
    }

    /// As [`Head::let_others_in`]; `during` runs without the lock, on the samples that are held back.
    fn let_others_in_during(
        &self,
        job: &AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
        during: impl FnOnce(&mut [BatchSample]),
    ) {
        self.queue_frames(job, scratch, target.stripe_idx);
        target.pin_behind(scratch);
        (target.work, target.has_let_others_in) = (0, true);
        MutexGuard::unlocked_fair(target.stripe, || {
            during(&mut scratch.behind);
            // What is sealed does not pile up in memory; a failure shows in the next append.
            let _ = self.note_sealed_failure(self.series.store.write_if_many());
        });
    }

    /// Lets others have the stripe if much was done since it was locked.
    pub(super) fn let_others_in_if_due(
        &self,
        job: &AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
    ) {
        if target.is_due() {
            self.let_others_in(job, scratch, target);
        }
    }

    /// Sorts the samples that are held back, those of a series by time; equal ones stay in the order of the batch.
    pub(super) fn sort_behind(
        &self,
        job: &AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
    ) {
        if scratch.behind.len() <= LOCKED_SORT_COUNT {
            sort_by_series(&mut scratch.behind);
        } else {
            self.let_others_in_during(job, scratch, target, sort_by_series);
        }
    }

    /// Seals the late samples of series that have too many, slice by slice.
    pub(super) fn seal_due(
        &self,
        job: &mut AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
    ) {
        for id in target.stripe.take_due() {
            target.stripe.seal_crowded_open(target.world, &mut job.windows, id);
            let mut rest = Some(ALL_TIMES);
            while let Some(range) = rest {
                rest = target.stripe.seal_late_slice(target.world, &mut job.windows, id, range);
                if rest.is_some() {
                    self.let_others_in(job, scratch, target);
                }
            }
            target.stripe.seal_crowded_open_histograms(target.world, &mut job.windows, id);
            let mut rest = Some(ALL_TIMES);
            while let Some(range) = rest {
                rest = target.stripe.seal_late_histograms_slice(target.world, &mut job.windows, id, range);
                if rest.is_some() {
                    self.let_others_in(job, scratch, target);
                }
            }
        }
    }

    /// Seals the late samples in `range` of a series that has many, and lets others have the stripe between
    /// two slices. Callers have nothing to queue for the log.
    pub(crate) fn seal_late_in_slices(
        &self,
        stripe: &mut MutexGuard<'_, Stripe>,
        windows: &mut WindowTally,
        id: u32,
        range: TimeRange,
    ) {
        let world = self.series.world();
        let mut rest = Some(range).filter(|_| stripe.has_late_tree(id));
        while let Some(range) = rest {
            rest = stripe.seal_late_slice(&world, windows, id, range);
            if rest.is_some() {
                MutexGuard::unlocked_fair(stripe, || ());
            }
        }
        let mut rest = Some(range).filter(|_| stripe.has_many_late_histograms(id));
        while let Some(range) = rest {
            rest = stripe.seal_late_histograms_slice(&world, windows, id, range);
            if rest.is_some() {
                MutexGuard::unlocked_fair(stripe, || ());
            }
        }
    }
}

fn sort_by_series(behind: &mut [BatchSample]) {
    for run in behind.chunk_by_mut(|a, b| a.id == b.id) {
        if !run.is_sorted_by_key(|one| one.time) {
            run.sort_by_key(|one| one.time);
        }
    }
}

#[cfg(test)]
mod tests;
