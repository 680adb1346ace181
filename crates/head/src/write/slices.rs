//! Splits large batches into slices: between two slices the stripe lock is released for other writers and
//! queries.
//!
//! Invariants: all appended samples are queued for the WAL before the lock is released, so the WAL has the
//! order of memory; series with more samples to come are pinned meanwhile. A query may see part of a batch,
//! as it may between two stripes; the batch is acknowledged once all of it is in the WAL.

use std::ops::Range;

use chronolith_format::head::wal;
use chronolith_model::WriteBatch;

use super::job::{AppendJob, AppendScratch, SLICE_SAMPLES, Target};
use chronolith_base::sync::MutexGuard;

/// As [`SLICE_SAMPLES`], for batches with histograms or start times.
const MIXED_SLICE_SAMPLES: usize = 1024;

/// Series of a batch that are appended under one lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Range of indexes into the order by stripe.
    pub(super) order: Range<usize>,
    /// Samples to append, by index into the batch: all, unless one series is larger than a slice.
    pub(super) within: Range<usize>,
    /// Start of the next slice: index of its first series, and index of the first sample of that series.
    pub(super) next: usize,
    pub(super) next_first: usize,
}

/// Returns the slice that starts at index `start` of `order`, without samples of that series before index
/// `first` of the batch.
pub(super) fn slice_at(batch: &WriteBatch, order: &[u32], start: usize, first: usize) -> Slice {
    let is_plain = batch.histograms.is_empty() && batch.start_times.is_empty();
    let count_max = if is_plain { SLICE_SAMPLES } else { MIXED_SLICE_SAMPLES };
    let all =
        Slice { order: start..order.len(), within: first..usize::MAX, next: order.len(), next_first: 0 };
    if batch.sample_count() <= count_max {
        return all;
    }
    let samples = |idx: usize| &batch.series[order[idx] as usize].samples;
    let (from, end) = (first.max(samples(start).start as usize), samples(start).end as usize);
    if end - from > count_max {
        let next_first = from + count_max;
        return Slice { order: start..start + 1, within: from..next_first, next: start, next_first };
    }
    let mut count = end - from;
    for idx in start + 1..order.len() {
        count += samples(idx).len();
        if count > count_max {
            // The first series may be the rest of a split one; samples of others lie anywhere in the batch.
            let next = if first > 0 { start + 1 } else { idx };
            return Slice { order: start..next, within: first..usize::MAX, next, next_first: 0 };
        }
    }
    if first > 0 { Slice { order: start..start + 1, next: start + 1, ..all } } else { all }
}

/// Queues the pending samples for the WAL.
pub(super) fn queue_pending(job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
    let AppendScratch { pending, payload, .. } = scratch;
    (pending.arrival_ms, pending.duplicates) = (job.now_ms, job.cx.duplicates);
    pending.encode_frames(payload, |frame| {
        job.state.wal.append(wal::KIND_SAMPLES, stripe_idx as u8, frame);
    });
    pending.clear();
}

/// Queues the pending samples for the WAL and releases the lock for waiting threads.
pub(super) fn yield_stripe(job: &AppendJob<'_>, scratch: &mut AppendScratch, target: &mut Target<'_, '_>) {
    queue_pending(job, scratch, target.stripe_idx);
    target.work = 0;
    MutexGuard::unlocked_fair(target.stripe, || {
        // Sealed chunks must not pile up in memory; a failure is reported by the next append.
        let _ = job.state.write_sealed_if_many();
    });
}

#[cfg(test)]
mod tests;
