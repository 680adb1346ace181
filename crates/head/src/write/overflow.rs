//! Folds samples of series beyond a limit into the overflow series of their metric.
//!
//! Invariants: a folded series is found by its wire key before labels are parsed; the frame of a change is
//! queued under the lock of the table and before the samples of the overflow series, so a total is never on
//! disk without the last samples that it contains.
//! Not here: the table (`overflow`), decision about a new series (`resolve`).

mod room;

use chronolith_format::head::wal::OVERFLOW_SAMPLES_MAX;
use chronolith_model::{METRIC_NAME, MetricKind, OverflowPolicy, Reject, WordKind};

use super::job::{AppendJob, AppendScratch, OverflowValue, reject_sample};
use crate::index::overflow::{Folded, IDLE_MS, OverflowState, OverflowTable, SWEEP_MS, SlotKind, step_of};
use room::Room;

/// Suffixes of the series of a metric family.
const FAMILY_SUFFIXES: [&str; 4] = ["_bucket", "_count", "_sum", "_total"];

/// Sample that waits for its turn.
#[derive(Debug, Clone, Copy)]
struct PendingSample {
    time: i64,
    value: f64,
    entry: u32,
}

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

/// Returns true if the samples of a series can be folded: floats.
pub(super) fn is_foldable(job: &AppendJob<'_>, idx: u32) -> bool {
    let batch = job.batch;
    batch.kind_of(idx as usize) == WordKind::Float
        && batch.histograms_of(&batch.series[idx as usize]).is_empty()
}

/// Returns the entry of a series that a limit refuses, created if there is room for it.
pub(super) fn entry_or_create(
    job: &AppendJob<'_>,
    overflow: &mut OverflowState,
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
    let kind = || SlotKind::of(metric, known_kind(job, metric));
    let slot = overflow.table_mut().slot_or_create(metric, le, kind)?;
    job.tenant.overflow().note_used();
    Some(overflow.table_mut().insert(key, slot))
}

/// Returns the type of a metric by the batch or the stored metadata.
fn known_kind(job: &AppendJob<'_>, metric: &str) -> Option<MetricKind> {
    let of_family = |family: &str| {
        let sent = job.batch.metadata.iter().find(|entry| entry.metric == family).map(|entry| entry.kind);
        sent.or_else(|| job.state.index.metric_kinds()?.kind_of(&job.tenant.id, family))
            .filter(|kind| *kind != MetricKind::Unknown)
    };
    let family = || FAMILY_SUFFIXES.iter().find_map(|suffix| metric.strip_suffix(suffix));
    of_family(metric).or_else(|| of_family(family()?))
}

impl Folding {
    /// Adds the samples of a series that are within the bounds of the tenant.
    pub(super) fn collect(&mut self, job: &mut AppendJob<'_>, idx: u32, entry: usize) {
        let samples = &job.batch.series[idx as usize].samples;
        for at in samples.start as usize..samples.end as usize {
            let time = job.batch.times[at];
            let refused = job.bounds.refuse(time).or_else(|| {
                let fits = OverflowTable::takes_time(time);
                (!fits).then_some(Reject::OutOfBounds)
            });
            match refused {
                Some(reject) => reject_sample(job, reject, idx, time),
                None => self.pending.push(PendingSample { time, value: job.values[at], entry: entry as u32 }),
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
        let mut repeated_count = 0;
        for group in self.pending.chunk_by(|a, b| step_of(a.time) == step_of(b.time)) {
            repeated_count += fold_group(job, overflow, group, &mut values);
        }
        overflow.queue_changes(&job.state.wal, job.tenant.name());
        let count = self.pending.len() as u64;
        job.outcome.accepted_count += count;
        job.outcome.repeated_count += repeated_count;
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

/// Folds samples of one step, and adds the sums of their slots to `values`; returns the number of repeats.
fn fold_group(
    job: &AppendJob<'_>,
    overflow: &mut OverflowState,
    group: &[PendingSample],
    values: &mut Vec<OverflowValue>,
) -> u64 {
    let mut repeated_count = 0;
    overflow.begin_group();
    for sample in group {
        let entry = sample.entry as usize;
        match overflow.table_mut().fold(entry, sample.time, sample.value) {
            Folded::Changed => overflow.note_changed(entry, sample.time, sample.value),
            Folded::Repeated => repeated_count += 1,
            Folded::Ignored => {}
        }
        if overflow.pending_count() >= OVERFLOW_SAMPLES_MAX {
            overflow.queue_changes(&job.state.wal, job.tenant.name());
        }
    }
    for &slot in overflow.touched() {
        values.extend(overflow.table().slot(slot).map(|found| OverflowValue {
            slot,
            time: found.time(),
            sum: found.sum(),
            active_count: found.active_count(),
        }));
    }
    repeated_count
}

#[cfg(test)]
mod tests;
