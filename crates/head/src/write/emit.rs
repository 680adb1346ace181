//! Samples of overflow series.
//!
//! Invariant: they are appended under the lock of the table, so no older sum replaces a newer one.
//! Not here: sums (`overflow`).

use chronolith_model::{
    DuplicatePolicy, Labels, METRIC_NAME, TenantLimits, TimeRange, WriteBatch, WriteOutcome,
};

use super::batch::{append_batch, count_outcome, find_known};
use super::job::{AppendJob, AppendScratch, OverflowValue, TimeBounds};
use crate::index::overflow::{OVERFLOW_LABEL, OverflowTable};

/// Suffix of the name of the series that counts active gauges: another metric, so that a sum over the
/// gauge has no count in it.
const COUNT_SUFFIX: &str = "_overflow_active";

/// Appends sums to the overflow series of their slots, which are created beyond all limits.
pub(super) fn emit(job: &mut AppendJob<'_>, table: &OverflowTable, values: &[OverflowValue]) {
    if values.is_empty() {
        return;
    }
    let mut batch = WriteBatch::from_labels();
    batch.source.is_typed = false;
    for value in values {
        push_value(&mut batch, table, value);
    }
    let limits = TenantLimits {
        series_max: usize::MAX,
        label_name_bytes_max: usize::MAX,
        label_value_bytes_max: usize::MAX,
        future_ms_max: 0,
        duplicates: DuplicatePolicy::LastWins,
        ..TenantLimits::default()
    };
    // A sum is written again at the time of the newest one if samples of other series arrive later.
    let lookups = u32::try_from(batch.sample_count()).unwrap_or(u32::MAX);
    let mut own = AppendJob {
        state: job.state,
        tenant: job.tenant,
        limits: &limits,
        bounds: TimeBounds::new(&limits, job.tenant.unit, job.now_ms, i64::MIN),
        now_ms: job.now_ms,
        batch: &batch,
        values: &batch.values,
        outcome: WriteOutcome::default(),
        cx: job.state.series.context(job.tenant.unit, limits.duplicates).with_lookups(lookups),
        ooo_count: 0,
        replaced_count: 0,
        starts_count: 0,
        newest_time: i64::MIN,
        emit: None,
        unfolded_at: None,
    };
    let mut scratch = AppendScratch::default();
    find_known(&own, &mut scratch);
    append_batch(&mut own, &mut scratch);
    count_outcome(&mut own);
    let first = batch.times.iter().min().copied().unwrap_or(0);
    let last = batch.times.iter().max().copied().unwrap_or(0);
    let written = Some(TimeRange::new(first, last.saturating_add(1)));
    job.outcome.overflow.add(&chronolith_model::batch::OverflowOutcome { sample_count: 0, written });
}

fn push_value(batch: &mut WriteBatch, table: &OverflowTable, value: &OverflowValue) {
    let Some(slot) = table.slot(value.slot) else { return };
    let labels = |metric: &str| {
        let own = [(METRIC_NAME, metric), (OVERFLOW_LABEL, slot.label_value())];
        Labels::from_pairs(own.into_iter().chain(slot.le().map(|le| ("le", le))))
    };
    if let Some(sum) = value.sum {
        batch.push_labels(&labels(slot.metric()), &[(value.time, sum)]);
    }
    if let Some(histogram) = &value.histogram {
        batch.push_histograms(&labels(slot.metric()), &[(value.time, histogram.clone())]);
    }
    if let Some(count) = value.active_count {
        let name = format!("{}{COUNT_SUFFIX}", slot.metric());
        batch.push_labels(&labels(&name), &[(value.time, count as f64)]);
    }
}
