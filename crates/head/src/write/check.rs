//! Check of a series by its wire key alone, for processes without a head that take writes.
//!
//! Invariant: a series that passes is refused by the head only for its samples, or for limits that need an
//! index.
//! Not here: limits of series, types of fields, times (`resolve`, `job`).

use chronolith_model::{LabelsBuilder, Reject, TenantLimits, WriteBatch, WriteOutcome};

use super::job::series_text;
use super::reached::note_label_limit;
use super::resolve::check_labels;

/// Returns true if the labels of a series are valid; otherwise its samples are counted as rejected.
/// `builder` is memory for the labels. Cost: parses the wire key.
pub fn check_series(
    batch: &WriteBatch,
    series_idx: u32,
    limits: &TenantLimits,
    builder: &mut LabelsBuilder,
    outcome: &mut WriteOutcome,
) -> bool {
    builder.clear();
    let parsed = (batch.source.parse)(batch.key_of(series_idx as usize), builder);
    builder.sort();
    let checked = parsed.and_then(|()| {
        let pairs = check_labels(builder, limits, batch.source.is_typed);
        pairs.map(drop).inspect_err(|kind| note_label_limit(outcome, builder, limits, *kind))
    });
    let Err(reject) = checked else { return true };
    reject_series(batch, series_idx, reject, outcome);
    false
}

/// Counts all samples of a series of a batch as rejected.
pub fn reject_series(batch: &WriteBatch, series_idx: u32, reject: Reject, outcome: &mut WriteOutcome) {
    let samples = &batch.series[series_idx as usize].samples;
    for &time in &batch.times[samples.start as usize..samples.end as usize] {
        outcome.reject(reject, 1, time, || series_text(batch, series_idx));
    }
}
