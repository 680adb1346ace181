//! Appends to series with a reorder rule: a sample goes to the buffer of its series, and to chunks, in order,
//! once the window of the buffer has moved past it. One that is older than the window takes the path of
//! out-of-order samples.
//!
//! Invariant: before samples of a series are sealed, deleted or appended without a rule, its buffer is
//! emptied ([`flush`]).
//! Not here: the buffers of a stripe (`reorder_buffers`), the WAL (`write`).

use chronolith_model::time::TIME_MAX_MS;
use chronolith_model::{ReorderRule, TimeRange};

use super::reorder_buffers::NotBuffered;
use super::state::{AppendContext, Stripe};
use crate::reorder::{Added, Refused, Sample};
use crate::series::decide::AppendOutcome;
use crate::series::value::Value;

/// Outcome of an append by a rule.
pub(crate) struct Reordered {
    pub(crate) outcome: AppendOutcome,
    /// Timestamp of the sample, rounded up to the interval of its rule.
    pub(crate) time: i64,
}

/// Appends a sample of a series with a rule. `None` if the interval has no valid timestamp after `time`.
///
/// The policy of the rule applies to a second value inside the window, the policy of `cx` to all others.
pub(crate) fn append_by_rule(
    stripe: &mut Stripe,
    cx: &mut AppendContext<'_>,
    tenant: u32,
    id: u32,
    rule: &ReorderRule,
    sample: Sample,
) -> Option<Reordered> {
    let Sample { time_ms, value } = sample;
    if time_ms > TIME_MAX_MS - rule.interval_ms().cast_signed() {
        return None;
    }
    if !stripe.is_of_tenant(id, tenant) {
        return Some(Reordered { outcome: AppendOutcome::SeriesGone, time: time_ms });
    }
    stripe.touch(id);
    let time = rule.round_up(time_ms);
    let mut added = stripe.reorder_buffers.add(id, rule, time, value);
    if matches!(added, Err(NotBuffered::OtherRule)) {
        flush(stripe, cx, id);
        added = stripe.reorder_buffers.add(id, rule, time, value);
    }
    let outcome = match added {
        Ok(Added::Newest(emitted_count)) => {
            cx.windows.add(time, 1);
            emit(stripe, cx, tenant, id, emitted_count as usize);
            AppendOutcome::InOrder
        }
        Ok(Added::Late) => {
            cx.windows.add(time, 1);
            AppendOutcome::OutOfOrder
        }
        Ok(Added::Updated) => AppendOutcome::Replaced,
        Err(NotBuffered::Refused(Refused::TimestampTaken)) => AppendOutcome::DuplicateTimestamp,
        Err(NotBuffered::Refused(Refused::OutOfBounds)) => return None,
        Err(NotBuffered::Refused(Refused::TooOld) | NotBuffered::NoRoom | NotBuffered::OtherRule) => {
            append_out_of_window(stripe, cx, id, time, value)
        }
    };
    Some(Reordered { outcome, time })
}

/// Appends a sample that is not buffered.
#[cold]
fn append_out_of_window(
    stripe: &mut Stripe,
    cx: &mut AppendContext<'_>,
    id: u32,
    time: i64,
    value: f64,
) -> AppendOutcome {
    stripe.append(cx, id, time, Value::Word(value.to_bits()))
}

/// Appends the first `count` emitted samples to the chunks of their series.
fn emit(stripe: &mut Stripe, cx: &mut AppendContext<'_>, tenant: u32, id: u32, count: usize) {
    for idx in 0..count {
        let Some(&Sample { time_ms, value }) = stripe.reorder_buffers.emitted.get(idx) else { return };
        append_emitted(stripe, cx, tenant, id, Sample { time_ms, value });
    }
}

/// Appends a sample that was buffered, and counted.
fn append_emitted(stripe: &mut Stripe, cx: &mut AppendContext<'_>, tenant: u32, id: u32, sample: Sample) {
    let bits = sample.value.to_bits();
    let outcome = stripe.append_in_order(cx, tenant, id, sample.time_ms, bits);
    if outcome == AppendOutcome::NotNewest {
        stripe.append(cx, id, sample.time_ms, Value::Word(bits));
    }
    // The append has counted it again, unless the series has it already.
    cx.windows.add(sample.time_ms, -1);
}

/// Moves the buffered samples of a series to its chunks; `cx` is the context of its tenant.
pub(crate) fn flush(stripe: &mut Stripe, cx: &mut AppendContext<'_>, id: u32) {
    let Some(buffer) = stripe.reorder_buffers.remove(id) else { return };
    let Some(tenant) = stripe.series(id).map(|series| series.tenant) else { return };
    for sample in buffer.iter() {
        append_emitted(stripe, cx, tenant, id, sample);
    }
}

/// As [`flush`], if a buffered sample of the series lies in `range`.
pub(super) fn flush_range(stripe: &mut Stripe, cx: &mut AppendContext<'_>, id: u32, range: TimeRange) {
    if stripe.reorder_buffers.samples(id).any(|one| range.contains(one.time())) {
        flush(stripe, cx, id);
    }
}

/// Appends restored samples of the out-of-order log that are not older than the open chunk of their series to
/// this: they were buffered at the checkpoint. Each is counted in its window already.
pub(super) fn append_newest_out_of_order(stripe: &mut Stripe, cx: &mut AppendContext<'_>, id: u32) {
    let Some(series) = stripe.series(id) else { return };
    let tenant = series.tenant;
    let newest = series.newest_time();
    let mut samples = stripe.take_newest_words(id, newest);
    // Stable: the later one of a timestamp replaces the earlier one.
    samples.sort_by_key(|sample| sample.time_ms);
    for sample in samples {
        append_emitted(stripe, cx, tenant, id, sample);
    }
}

#[cfg(test)]
mod tests;
