//! Folds samples of series beyond a limit into the overflow series of their metric.
//!
//! Invariants: a folded series is found by its wire key before labels are parsed; the frame of a change is
//! queued under the lock of the table and before the samples of the overflow series, so a total is never on
//! disk without the last samples that it contains.
//! Not here: the table (`overflow`), decision about a new series (`resolve`).

mod kinds;
mod room;
mod sample;

use std::sync::Arc;

use chronolith_model::{METRIC_NAME, OverflowPolicy, Reject, WordKind};

use super::job::{AppendJob, AppendScratch, OverflowValue, reject_sample};
use crate::index::overflow::{Folded, IDLE_MS, OverflowState, OverflowTable, SWEEP_MS, ValueClass, step_of};
use kinds::kind_of;
use room::Room;
use sample::{PendingSample, first_of, fold_sample, has_room, reject_full};

/// Samples of one batch that are folded under one lock.
#[derive(Default)]
pub(super) struct Folding {
    pending: Vec<PendingSample>,
    last_entry: usize,
}

/// Returns true if series of the batch may be folded.
pub(super) fn may_fold(job: &AppendJob<'_>) -> bool {
    job.limits.ingestion.overflow == OverflowPolicy::Fold && job.tenant.id.is_default()
}

/// Folds the samples of those missing series that were folded before, and for which there is still no room.
pub(super) fn fold_known(job: &mut AppendJob<'_>, scratch: &mut AppendScratch) {
    let tenant = job.tenant;
    if scratch.misses.is_empty() {
        return;
    }
    // Read first: a series that is added in between changes it.
    let insert_count = tenant.overflow().insert_count();
    if !tenant.overflow().is_used() {
        job.unfolded_at = Some(insert_count);
        return;
    }
    if !may_fold(job) {
        return;
    }
    let mut overflow = tenant.overflow().lock();
    let insert_count = tenant.overflow().insert_count();
    let mut room = Room::of(tenant, job.limits);
    let mut folding = Folding::default();
    let mut has_returning = false;
    let misses = std::mem::take(&mut scratch.misses);
    for &idx in &misses {
        let found = overflow.table().find(scratch.keys[idx as usize], folding.last_entry);
        let folded = found.filter(|&entry| {
            is_foldable(job, idx) && !room.take(overflow.table(), overflow.table().slot_of(entry))
        });
        match folded {
            Some(entry) => folding.collect(job, idx, entry),
            None => {
                has_returning |= found.is_some();
                scratch.misses.push(idx);
            }
        }
    }
    drop(room);
    job.unfolded_at = (!has_returning).then_some(insert_count);
    folding.finish(job, &mut overflow);
}

/// Returns true if the samples of a series can be folded: floats and native histograms.
pub(super) fn is_foldable(job: &AppendJob<'_>, idx: u32) -> bool {
    job.batch.kind_of(idx as usize) == WordKind::Float
}

/// Returns the entry of a series that a limit refuses, created if there is room for it.
pub(super) fn entry_or_create(
    job: &AppendJob<'_>,
    overflow: &mut OverflowState,
    idx: u32,
    key: u128,
    pairs: &[(&str, &str)],
) -> Option<usize> {
    if let Some(entry) = overflow.table().find(key, usize::MAX) {
        return Some(entry);
    }
    if overflow.table().series_count() >= job.limits.ingestion.overflow_series_max {
        return None;
    }
    let value_of = |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1);
    let metric = value_of(METRIC_NAME)?;
    let le = value_of("le").filter(|_| metric.ends_with("_bucket"));
    let first = first_of(job, idx);
    if first.is_some() && !has_room(job, overflow) {
        return None;
    }
    let class = first.map_or(ValueClass::Float, ValueClass::of);
    let kind = || kind_of(job, metric, first);
    let slot = overflow.table_mut().slot_or_create(metric, le, class, kind)?;
    job.tenant.overflow().note_used();
    add_label_values(job, overflow, metric, pairs);
    Some(overflow.table_mut().insert(key, slot))
}

/// Adds the labels of a new folded series to the estimates of their values.
fn add_label_values(job: &AppendJob<'_>, overflow: &mut OverflowState, metric: &str, pairs: &[(&str, &str)]) {
    let name_at = pairs.iter().position(|pair| pair.0 == METRIC_NAME).unwrap_or(pairs.len());
    let (before, after) = pairs.split_at(name_at);
    let hash = |value: &str| job.state.index.key_hash.series(0, value.as_bytes()) as u64;
    for labels in [before, after.get(1..).unwrap_or(&[])] {
        overflow.label_values_mut().add(metric, labels, job.now_ms, hash);
    }
}

impl Folding {
    /// Adds the samples of a series that are within the bounds of the tenant.
    pub(super) fn collect(&mut self, job: &mut AppendJob<'_>, idx: u32, entry: usize) {
        let batch = job.batch;
        let samples = &batch.series[idx as usize].samples;
        let mut next = batch.histograms.partition_point(|(at, _)| *at < samples.start);
        for at in samples.start as usize..samples.end as usize {
            let is_histogram = batch.histograms.get(next).is_some_and(|(idx, _)| *idx as usize == at);
            next += usize::from(is_histogram);
            let histogram = if is_histogram { next as u32 } else { 0 };
            let time = batch.times[at];
            let refused = job.bounds.refuse(time).or_else(|| {
                let fits = OverflowTable::takes_time(time);
                (!fits).then_some(Reject::OutOfBounds)
            });
            match refused {
                Some(reject) => reject_sample(job, reject, idx, time),
                None => {
                    let value = job.values[at];
                    self.pending.push(PendingSample { time, value, entry: entry as u32, histogram });
                }
            }
        }
        self.last_entry = entry + 1;
    }

    /// Folds the samples in order of time, queues the changes, and appends the sums to the overflow series.
    pub(super) fn finish(mut self, job: &mut AppendJob<'_>, overflow: &mut OverflowState) {
        if self.pending.is_empty() {
            return;
        }
        if !self.pending.is_sorted_by_key(|sample| step_of(sample.time)) {
            // Stable, so samples of one series at one step keep their order.
            self.pending.sort_by_key(|sample| step_of(sample.time));
        }
        let mut values = Vec::new();
        let mut counts = FoldedCounts::default();
        for group in self.pending.chunk_by(|a, b| step_of(a.time) == step_of(b.time)) {
            fold_group(job, overflow, group, &mut values, &mut counts);
        }
        overflow.queue_changes(&job.state.wal, job.tenant.name());
        let count = self.pending.len() as u64 - counts.full;
        job.outcome.accepted_count += count;
        job.outcome.repeated_count += counts.repeated;
        job.outcome.histograms_accepted += counts.histograms;
        job.outcome.overflow.sample_count += count;
        job.tenant.overflow().add_samples(count);
        if let Some(emit) = job.emit {
            emit(job, overflow.table(), &values);
        }
        if let Some(before) = overflow.table().due_removal(IDLE_MS, SWEEP_MS) {
            overflow.remove_idle(&job.state.wal, job.tenant.name(), before);
        }
    }
}

/// Samples of a batch by outcome.
#[derive(Default)]
struct FoldedCounts {
    repeated: u64,
    histograms: u64,
    /// Rejected samples, which the memory of histograms has no room for.
    full: u64,
}

/// Folds samples of one step, and adds the sums of their slots to `values`.
fn fold_group(
    job: &mut AppendJob<'_>,
    overflow: &mut OverflowState,
    group: &[PendingSample],
    values: &mut Vec<OverflowValue>,
    counts: &mut FoldedCounts,
) {
    overflow.begin_group();
    for sample in group {
        let folded = fold_sample(job, overflow, sample);
        match folded {
            Folded::Changed | Folded::Ignored | Folded::OtherClass => {}
            Folded::Repeated => {
                counts.repeated += 1;
                overflow.note_repeated(sample.entry as usize);
            }
            Folded::Full => {
                counts.full += 1;
                reject_full(job, sample);
            }
        }
        counts.histograms += u64::from(sample.is_histogram() && folded != Folded::Full);
        if overflow.is_full() {
            overflow.queue_changes(&job.state.wal, job.tenant.name());
        }
    }
    for &slot in overflow.touched() {
        values.extend(overflow.table().slot(slot).map(|found| OverflowValue {
            slot,
            time: found.time(),
            sum: found.sum(),
            histogram: found.histogram_sum().map(Arc::new),
            active_count: found.active_count(),
        }));
    }
}

#[cfg(test)]
mod tests;
