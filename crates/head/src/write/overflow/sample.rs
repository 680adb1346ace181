//! Folding of one sample, a float or a native histogram, and series whose values change between both.
//!
//! Not here: sums (`index::overflow`), order of samples (`overflow`).

use std::sync::Arc;

use chronolith_model::sample::{STALE_NAN, is_stale};
use chronolith_model::{Histogram, Reject};

use super::super::job::{AppendJob, reject_sample};
use super::kinds::kind_of;
use crate::index::overflow::{Folded, OverflowState, ValueClass};

/// Sample that waits for its turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingSample {
    pub(super) time: i64,
    pub(super) value: f64,
    pub(super) entry: u32,
    /// Index into the histograms of the batch plus 1; 0 = the sample is a float.
    pub(super) histogram: u32,
}

const _: () = assert!(size_of::<PendingSample>() == 24);

impl PendingSample {
    /// Returns true if the sample is a native histogram.
    pub(super) fn is_histogram(&self) -> bool {
        self.histogram > 0
    }
}

/// Folds a sample, and adds the change to the changes of the table.
pub(super) fn fold_sample(
    job: &AppendJob<'_>,
    overflow: &mut OverflowState,
    sample: &PendingSample,
) -> Folded {
    let folded = match sample.is_histogram() {
        false => fold_float(overflow, sample),
        true => fold_histogram(job, overflow, sample),
    };
    if folded == Folded::OtherClass { fold_other(job, overflow, sample) } else { folded }
}

fn fold_float(overflow: &mut OverflowState, sample: &PendingSample) -> Folded {
    let entry = sample.entry as usize;
    let folded = overflow.table_mut().fold(entry, sample.time, sample.value);
    if folded == Folded::Changed {
        overflow.note_changed(entry, sample.time, sample.value);
    }
    folded
}

/// Folds a sample whose series had values of another class.
#[cold]
fn fold_other(job: &AppendJob<'_>, overflow: &mut OverflowState, sample: &PendingSample) -> Folded {
    match change_class(job, overflow, sample) {
        ChangedClass::Float => fold_float(overflow, sample),
        ChangedClass::Histogram => fold_histogram(job, overflow, sample),
        ChangedClass::Stale(folded) => folded,
        ChangedClass::NoSlot => Folded::Full,
    }
}

/// Returns the histogram of a sample.
fn histogram_of<'a>(job: &AppendJob<'a>, sample: &PendingSample) -> Option<&'a Arc<Histogram>> {
    let idx = (sample.histogram as usize).checked_sub(1)?;
    job.batch.histograms.get(idx).map(|(_, histogram)| histogram)
}

/// Returns the first histogram of a series that is no staleness marker, or the first one; `None` if it has
/// floats.
pub(super) fn first_of<'a>(job: &AppendJob<'a>, idx: u32) -> Option<&'a Histogram> {
    let histograms = job.batch.histograms_of(&job.batch.series[idx as usize]);
    let first = histograms.iter().find(|(_, one)| !is_stale(one.sum())).or_else(|| histograms.first());
    first.map(|(_, histogram)| &**histogram)
}

/// Returns true if a further series may have a histogram.
pub(super) fn has_room(job: &AppendJob<'_>, overflow: &OverflowState) -> bool {
    overflow.table().histogram_bytes() < job.limits.ingestion.overflow_histogram_bytes_max
}

fn fold_histogram(job: &AppendJob<'_>, overflow: &mut OverflowState, sample: &PendingSample) -> Folded {
    let Some(histogram) = histogram_of(job, sample) else { return Folded::Ignored };
    let bytes_max = job.limits.ingestion.overflow_histogram_bytes_max;
    fold(overflow, sample, histogram, bytes_max)
}

fn fold(
    overflow: &mut OverflowState,
    sample: &PendingSample,
    histogram: &Arc<Histogram>,
    bytes_max: usize,
) -> Folded {
    let entry = sample.entry as usize;
    let folded = overflow.table_mut().fold_histogram(entry, sample.time, histogram, bytes_max);
    if folded == Folded::Changed {
        overflow.note_histogram(entry, sample.time, histogram.clone());
    }
    folded
}

/// Counts a sample that the memory of histograms, or the table, has no room for.
#[cold]
pub(super) fn reject_full(job: &mut AppendJob<'_>, sample: &PendingSample) {
    let batch = job.batch;
    let at = match (sample.histogram as usize).checked_sub(1) {
        Some(idx) => batch.histograms.get(idx).map(|(at, _)| *at),
        None => {
            let is_it = |at: &u32| {
                batch.times[*at as usize] == sample.time
                    && job.values[*at as usize].to_bits() == sample.value.to_bits()
            };
            (0..batch.times.len() as u32).find(is_it)
        }
    };
    let idx = at.and_then(|at| batch.series.iter().position(|series| series.samples.contains(&at)));
    let idx = idx.unwrap_or(0);
    reject_sample(job, Reject::SeriesLimit, idx as u32, sample.time);
}

/// Class of values that a series has from now on.
enum ChangedClass {
    Float,
    Histogram,
    /// The sample was a staleness marker, which belongs to any class.
    Stale(Folded),
    /// There is no room for a slot of the class.
    NoSlot,
}

/// Moves the series of a sample to the slot of its class.
fn change_class(job: &AppendJob<'_>, overflow: &mut OverflowState, sample: &PendingSample) -> ChangedClass {
    let entry = sample.entry as usize;
    let histogram = histogram_of(job, sample);
    if is_stale(sample.value) {
        return ChangedClass::Stale(match histogram {
            None => fold(overflow, sample, &Arc::new(Histogram::stale()), usize::MAX),
            Some(_) => fold_float(overflow, &PendingSample { value: STALE_NAN, ..*sample }),
        });
    }
    let slot_idx = overflow.table().slot_of(entry);
    let Some(slot) = overflow.table().slot(slot_idx) else { return ChangedClass::NoSlot };
    let metric = slot.metric().to_owned();
    let le = slot.le().map(str::to_owned);
    let class = histogram.map_or(ValueClass::Float, |histogram| ValueClass::of(histogram));
    let kind = || kind_of(job, &metric, histogram.map(|histogram| &**histogram));
    // Frames of floats and of histograms are separate: those with the samples before come first.
    overflow.queue_changes(&job.state.wal, job.tenant.name());
    let slot = overflow.table_mut().slot_or_create(&metric, le.as_deref(), class, kind);
    let Some(slot) = slot else { return ChangedClass::NoSlot };
    overflow.table_mut().move_to(entry, slot);
    if histogram.is_some() { ChangedClass::Histogram } else { ChangedClass::Float }
}
