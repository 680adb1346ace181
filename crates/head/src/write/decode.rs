//! Series of a batch as labels and samples, checked as an append checks them, for a block that is written
//! past the head.
//!
//! Invariants: the head does not change; series ascend by labels, each once, with one sample per timestamp;
//! a sample is in a series or in the outcome's rejects.
//! Not here: the block (`tsdb`), limits of the number of series, which hold for the head.

use std::collections::BTreeMap;

use chronolith_model::{
    Columns, DuplicatePolicy, Labels, LabelsBuilder, Reject, StoreId, TenantLimits, WriteBatch, WriteOutcome,
};

use super::job::{TimeBounds, series_text};
use super::reached::{note_label_limit, note_time_limits};
use super::resolve::check_labels;
use crate::options::WriteError;
use crate::series::stripe::Arrivals;
use crate::state::HeadState;

/// A series of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedSeries {
    /// Name and labels.
    pub labels: Labels,
    /// Samples of every kind, one per timestamp.
    pub samples: Columns,
}

/// Decodes a batch, see [`crate::Head::decode`].
pub(super) fn decode(
    state: &HeadState,
    store: &StoreId,
    limits: &TenantLimits,
    now_ms: i64,
    batch: &WriteBatch,
) -> Result<(Vec<DecodedSeries>, WriteOutcome), WriteError> {
    state.admit()?;
    let tenant = state.index.tenant(store).filter(|_| limits.out_of_order_ms > 0);
    let newest = tenant.map_or(i64::MIN, |tenant| tenant.newest_time(&state.series));
    let bounds = TimeBounds::new(limits, store.time_unit(), now_ms, newest);
    let mut outcome = WriteOutcome::default();
    let mut builder = LabelsBuilder::new();
    let mut by_labels: BTreeMap<Labels, Arrivals> = BTreeMap::new();
    for (idx, series) in (0..).zip(&batch.series) {
        if series.samples.is_empty() {
            continue;
        }
        match parse(batch, idx, limits, &mut builder, &mut outcome) {
            Ok(labels) => {
                let arrivals = by_labels.entry(labels).or_default();
                add_samples(batch, idx, bounds, limits.duplicates, arrivals, &mut outcome);
            }
            Err(reject) => {
                let time = batch.times[series.samples.start as usize];
                outcome.reject(reject, series.samples.len() as u64, time, || series_text(batch, idx));
            }
        }
    }
    note_time_limits(&mut outcome, bounds, limits, store.time_unit());
    let resolved = by_labels.into_iter().map(|(labels, mut arrivals)| {
        arrivals.resolve();
        DecodedSeries { labels, samples: arrivals.into_samples() }
    });
    Ok((resolved.filter(|series| !series.samples.is_empty()).collect(), outcome))
}

/// Returns the labels of a series of the batch; `builder` is scratch memory.
fn parse(
    batch: &WriteBatch,
    idx: u32,
    limits: &TenantLimits,
    builder: &mut LabelsBuilder,
    outcome: &mut WriteOutcome,
) -> Result<Labels, Reject> {
    builder.clear();
    (batch.source.parse)(batch.key_of(idx as usize), builder)?;
    builder.sort();
    check_labels(builder, limits, batch.source.is_typed)
        .inspect_err(|kind| note_label_limit(outcome, builder, limits, *kind))?;
    Ok(builder.finish())
}

/// Adds the samples of a series that are within the bounds.
fn add_samples(
    batch: &WriteBatch,
    idx: u32,
    bounds: TimeBounds,
    duplicates: DuplicatePolicy,
    arrivals: &mut Arrivals,
    outcome: &mut WriteOutcome,
) {
    let series = &batch.series[idx as usize];
    let mut histograms = batch.histograms_of(series).iter().peekable();
    for at in series.samples.clone() {
        let time = batch.times[at as usize];
        let histogram = histograms.next_if(|(of, _)| *of == at).map(|(_, histogram)| histogram.clone());
        if let Some(reject) = bounds.refuse(time) {
            outcome.reject(reject, 1, time, || series_text(batch, idx));
            continue;
        }
        outcome.accepted_count += 1;
        outcome.histograms_accepted += u64::from(histogram.is_some());
        arrivals.add(duplicates == DuplicatePolicy::LastWins, |samples| {
            match histogram {
                Some(histogram) => samples.push_histogram(time, histogram),
                None => samples.push(time, batch.values[at as usize]),
            }
            let start_ms = batch.start_times.get(at as usize).copied().unwrap_or(0);
            if start_ms != 0 {
                samples.set_start_time(start_ms);
            }
        });
    }
}
