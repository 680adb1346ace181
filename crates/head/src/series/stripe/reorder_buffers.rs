//! Reorder buffers of the series of one stripe: samples that are in the WAL and not yet in chunks.
//!
//! A sample of a series with a rule goes to the buffer of the series, and to chunks, in order, once the window
//! of the buffer has moved past it. One that is older than the window takes the path of out-of-order samples.
//! Queries and checkpoints read buffered samples like those of the out-of-order log; a restart has them there
//! or, if they are the newest of their series, in the open chunk.
//!
//! Invariants: a buffered sample is counted in its window; buffered samples arrived after all others of their
//! timestamp. Before samples of a series are sealed, deleted or appended without a rule, its buffer is emptied
//! ([`flush`]). The slots of a stripe are bounded; without one, samples take the out-of-order path.
//! Not here: the buffer itself (`crate::reorder`), the WAL (`write`).

use chronolith_base::hash::HashMap;
use chronolith_model::time::TIME_MAX_MS;
use chronolith_model::{DuplicatePolicy, ReorderRule, TimeRange};

use super::ooo_log::OooSample;
use super::state::{AppendContext, Stripe};
use crate::memory_part::MemoryPart;
use crate::reorder::{Added, Refused, ReorderBuffer, Sample};
use crate::series::decide::AppendOutcome;
use crate::series::value::{SampleValue, Value};

/// Slots of all buffers of a stripe: 16 bytes each, half a gigabyte in all stripes.
const SLOT_COUNT_MAX: usize = 2 << 20;

/// Reorder buffers of one stripe.
#[derive(Default)]
pub(crate) struct ReorderBuffers {
    by_series: HashMap<u32, ReorderBuffer>,
    slot_count: usize,
    /// Receives emitted samples; as long as the longest window.
    emitted: Vec<Sample>,
}

impl ReorderBuffers {
    /// Returns true if no series has a buffer.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    /// Returns true if a series has buffered samples.
    pub(crate) fn has(&self, id: u32) -> bool {
        !self.is_empty() && self.by_series.contains_key(&id)
    }

    /// Returns the buffered samples of a series, ascending.
    pub(super) fn samples(&self, id: u32) -> impl Iterator<Item = OooSample> {
        let found = if self.is_empty() { None } else { self.by_series.get(&id) };
        found.into_iter().flat_map(ReorderBuffer::iter).map(|one| {
            let value = SampleValue::Word(one.value.to_bits());
            OooSample::new(one.time_ms, value, 0, DuplicatePolicy::LastWins)
        })
    }

    /// Returns the timestamp of the newest buffered sample of a series.
    pub(super) fn newest_time(&self, id: u32) -> Option<i64> {
        if self.is_empty() { None } else { self.by_series.get(&id)?.newest_ms() }
    }

    /// Number of buffers, and their bytes.
    pub(super) fn memory(&self) -> MemoryPart {
        let bytes = self.by_series.capacity() * size_of::<(u32, ReorderBuffer)>()
            + (self.slot_count + self.emitted.capacity()) * size_of::<Sample>();
        MemoryPart::new("reorder_buffers", bytes as u64, self.by_series.len() as u64)
    }

    /// Removes the buffer of a series.
    pub(super) fn remove(&mut self, id: u32) -> Option<ReorderBuffer> {
        let removed = if self.is_empty() { None } else { self.by_series.remove(&id) }?;
        self.slot_count -= removed.rule().window_len();
        if self.by_series.is_empty() {
            *self = ReorderBuffers::default();
        }
        Some(removed)
    }

    /// Adds a sample to the buffer of a series, which is created if there is room; emitted samples are then
    /// at the start of `self.emitted`.
    fn add(&mut self, id: u32, rule: &ReorderRule, time: i64, value: f64) -> Result<Added, NotBuffered> {
        let emitted = &mut self.emitted;
        match self.by_series.get_mut(&id) {
            Some(found) if found.rule() == rule => {
                found.add(time, value, emitted).map_err(NotBuffered::Refused)
            }
            Some(_) => Err(NotBuffered::OtherRule),
            None => self.create(id, rule, time, value),
        }
    }

    #[cold]
    fn create(&mut self, id: u32, rule: &ReorderRule, time: i64, value: f64) -> Result<Added, NotBuffered> {
        if self.slot_count + rule.window_len() > SLOT_COUNT_MAX {
            return Err(NotBuffered::NoRoom);
        }
        self.slot_count += rule.window_len();
        if self.emitted.len() < rule.window_len() {
            self.emitted.resize(rule.window_len(), Sample::EMPTY);
        }
        let created = self.by_series.entry(id).or_insert_with(|| ReorderBuffer::new(*rule));
        created.add(time, value, &mut self.emitted).map_err(NotBuffered::Refused)
    }
}

/// Reasons why a sample is not in the buffer of its series.
enum NotBuffered {
    Refused(Refused),
    /// The buffers of the stripe are as large as they may be.
    NoRoom,
    /// The rule has changed since the buffer was created.
    OtherRule,
}

/// Outcome of an append by a rule.
pub(crate) struct Reordered {
    pub(crate) outcome: AppendOutcome,
    /// Timestamp of the sample, rounded up to the interval of its rule.
    pub(crate) time: i64,
}

/// Appends a sample of a series with a rule. `None` if the interval has no valid timestamp after `time`.
///
/// The policy of the rule applies to a second value inside the window, that of `cx` to all others.
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

/// Moves the buffered samples of a series to its chunks; `cx` is that of its tenant.
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
    let (tenant, newest) = (series.tenant, series.newest_time());
    let mut samples = stripe.take_newest_words(id, newest);
    // Stable: the later one of a timestamp replaces the earlier one.
    samples.sort_by_key(|sample| sample.time_ms);
    for sample in samples {
        append_emitted(stripe, cx, tenant, id, sample);
    }
}

#[cfg(test)]
mod tests;
