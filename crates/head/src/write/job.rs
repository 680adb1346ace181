//! State of one running append: batch, scratch memory, and counts by outcome.
//!
//! Not here: the order in which samples are appended (`batch`), their frames (`slices`).

use std::sync::Arc;

use chronolith_base::sync::MutexGuard;
use chronolith_format::head::wal::Samples;
use chronolith_model::{Histogram, LabelsBuilder, Reject, TenantLimits, TimeUnit, WriteBatch, WriteOutcome};

use crate::index::field_types::FieldKey;
use crate::index::overflow::OverflowTable;
use crate::index::tenant::TenantHead;
use crate::series::decide::AppendOutcome;
use crate::series::stripe::{AppendContext, Stripe};
use crate::state::HeadState;

/// Samples that are appended under one lock: a third of a millisecond if they are in order.
pub(super) const SLICE_SAMPLES: usize = 8192;

/// Sums of a slot at one time.
#[derive(Debug, Clone)]
pub(super) struct OverflowValue {
    pub(super) slot: usize,
    pub(super) time: i64,
    pub(super) sum: Option<f64>,
    pub(super) histogram: Option<Arc<Histogram>>,
    pub(super) active_count: Option<u64>,
}

/// Appends sums of a table to the overflow series.
pub(super) type Emit = fn(&mut AppendJob<'_>, &OverflowTable, &[OverflowValue]);

/// State shared by all steps of one append.
pub(super) struct AppendJob<'a> {
    pub(super) state: &'a HeadState,
    pub(super) tenant: &'a TenantHead,
    pub(super) limits: &'a TenantLimits,
    pub(super) bounds: TimeBounds,
    pub(super) now_ms: i64,
    pub(super) batch: &'a WriteBatch,
    /// Values of the batch; of texts, their ids.
    pub(super) values: &'a [f64],
    pub(super) outcome: WriteOutcome,
    pub(super) cx: AppendContext<'a>,
    pub(super) ooo_count: u64,
    pub(super) replaced_count: u64,
    pub(super) starts_count: u64,
    pub(super) newest_time: i64,
    /// Appends the sums of folded samples; `None` for these sums, which are written under the lock of their
    /// table.
    pub(super) emit: Option<Emit>,
    /// Number of series that the overflow table had got when none of the missing series was in it; `None` if
    /// one is, or may be.
    pub(super) unfolded_at: Option<u64>,
}

/// Sample of the batch, with its series in the batch and in the head.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchSample {
    pub(super) time: i64,
    pub(super) series_idx: u32,
    pub(super) id: u32,
    pub(super) at: u32,
}

impl BatchSample {
    pub(super) fn at(&self) -> usize {
        self.at as usize
    }
}

/// Reusable memory of one append.
#[derive(Default)]
pub(super) struct AppendScratch {
    pub(super) keys: Vec<u128>,
    /// Series id of each series of the batch, or [`ID_NONE`]; a series without samples always has
    /// [`ID_NONE`].
    pub(super) ids: Vec<u32>,
    /// Indexes of series of the batch to resolve; each has samples.
    pub(super) misses: Vec<u32>,
    /// Indexes of series of the batch, grouped by stripe.
    pub(super) order: Vec<u32>,
    /// Samples for the next WAL frame, in the order in which they were appended to memory.
    pub(super) pending: Samples,
    /// Series that this batch has pinned in the stripe.
    pub(super) pinned: Vec<u32>,
    pub(super) payload: Vec<u8>,
    pub(super) builder: LabelsBuilder,
    pub(super) members: Vec<u32>,
    pub(super) created: Vec<u32>,
    /// Fields of series of the batch that were not known, by ascending index.
    pub(super) fields: Vec<(u32, FieldKey)>,
}

impl AppendScratch {
    pub(super) fn heap_bytes(&self) -> usize {
        let ids = [&self.ids, &self.misses, &self.order, &self.members, &self.created, &self.pinned];
        16 * self.keys.capacity()
            + 4 * ids.map(Vec::capacity).iter().sum::<usize>()
            + self.pending.heap_bytes()
            + self.payload.capacity()
    }
}

/// Timestamps that a tenant may write, in its unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeBounds {
    /// The earliest and the latest that the unit has.
    first: i64,
    last: i64,
    earliest: i64,
    /// Earlier samples are outside the out-of-order window of the tenant.
    earliest_in_order: i64,
    latest: i64,
}

impl TimeBounds {
    /// Returns the bounds at `now_ms` for a tenant whose newest sample is at `newest`, in `unit`.
    pub(super) fn new(limits: &TenantLimits, unit: TimeUnit, now_ms: i64, newest: i64) -> TimeBounds {
        let earliest = if limits.retention_ms > 0 {
            unit.from_ms(now_ms.saturating_sub(limits.retention_ms))
        } else {
            i64::MIN
        };
        let latest = if limits.future_ms_max > 0 {
            unit.from_ms(now_ms.saturating_add(limits.future_ms_max))
        } else {
            i64::MAX
        };
        let earliest_in_order = if limits.out_of_order_ms > 0 {
            newest.saturating_sub(unit.from_ms(limits.out_of_order_ms))
        } else {
            i64::MIN
        };
        let (first, last) = unit.sample_times().into_inner();
        TimeBounds { first, last, earliest: earliest.max(first), earliest_in_order, latest: latest.min(last) }
    }

    /// Returns how far a rejected sample is beyond a limit of the tenant, in ticks, and the limit in
    /// milliseconds; `None` if `kind` is no limit of time, or `time` is one that cannot be stored.
    pub(super) fn excess(self, kind: Reject, time: i64, limits: &TenantLimits) -> Option<(i64, i64)> {
        let (excess, limit_ms) = match kind {
            Reject::OutOfBounds if self.latest < self.last => {
                (time.saturating_sub(self.latest), limits.future_ms_max)
            }
            Reject::TooOld => (self.earliest.saturating_sub(time), limits.retention_ms),
            Reject::OutOfOrder => (self.earliest_in_order.saturating_sub(time), limits.out_of_order_ms),
            _ => return None,
        };
        (excess > 0).then_some((excess, limit_ms))
    }

    /// Returns the reject of a sample at `time`, or `None` if it is within the bounds.
    pub(super) fn refuse(self, time: i64) -> Option<Reject> {
        if (self.earliest..=self.latest).contains(&time) {
            (time < self.earliest_in_order).then_some(Reject::OutOfOrder)
        } else if time > self.latest || time < self.first {
            Some(Reject::OutOfBounds)
        } else {
            Some(Reject::TooOld)
        }
    }
}

/// Destination of the samples of a batch in one stripe.
pub(super) struct Target<'a, 'w> {
    pub(super) stripe: &'a mut MutexGuard<'w, Stripe>,
    pub(super) stripe_idx: usize,
    /// If set, duplicates are logged like new samples.
    pub(super) relogs: bool,
    /// Samples appended since the stripe was locked; out-of-order samples count with their cost.
    pub(super) work: usize,
}

impl Target<'_, '_> {
    /// Returns true if the lock must be released for other writers and queries.
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

    /// Unpins all series of this batch.
    pub(super) fn unpin(&mut self, scratch: &mut AppendScratch) {
        scratch.pinned.drain(..).for_each(|id| self.stripe.unpin(id));
    }
}

/// Counts a sample by its outcome. Returns true if it is logged: it is stored, or a duplicate and `relogs` is
/// set.
pub(super) fn count_appended(
    job: &mut AppendJob<'_>,
    outcome: AppendOutcome,
    sample: BatchSample,
    relogs: bool,
) -> bool {
    let time = sample.time;
    let is_logged = match outcome {
        AppendOutcome::InOrder | AppendOutcome::OutOfOrder | AppendOutcome::Replaced => {
            job.newest_time = job.newest_time.max(time);
            job.ooo_count += u64::from(outcome == AppendOutcome::OutOfOrder);
            job.replaced_count += u64::from(outcome == AppendOutcome::Replaced);
            true
        }
        AppendOutcome::Duplicate => {
            job.outcome.repeated_count += 1;
            relogs
        }
        AppendOutcome::DuplicateTimestamp => {
            reject_sample(job, Reject::DuplicateTimestamp, sample.series_idx, time);
            return false;
        }
        AppendOutcome::NotNewest | AppendOutcome::SeriesGone => {
            unreachable!("the stripe is locked and the series is in it")
        }
    };
    job.outcome.accepted_count += 1;
    is_logged
}

#[cold]
pub(super) fn reject_sample(job: &mut AppendJob<'_>, reject: Reject, series_idx: u32, time: i64) {
    let batch = job.batch;
    job.outcome.reject(reject, 1, time, || series_text(batch, series_idx));
}

/// Bytes of a series in messages.
const SERIES_TEXT_BYTES_MAX: usize = 1024;
/// Bytes of a wire key of which no label can be read, in messages.
const KEY_SHOWN_BYTES_MAX: usize = 256;

/// Formats a series of the batch for messages: one line of bounded length.
pub(super) fn series_text(batch: &WriteBatch, series_idx: u32) -> String {
    let key = batch.key_of(series_idx as usize);
    let mut builder = LabelsBuilder::new();
    let parsed = (batch.source.parse)(key, &mut builder);
    // A parser that fails leaves the labels that it could read.
    if parsed.is_err() && builder.is_empty() {
        let shown = key.raw.get(..KEY_SHOWN_BYTES_MAX).unwrap_or(key.raw);
        return String::from_utf8_lossy(shown).escape_debug().to_string();
    }
    let mut text = builder.finish().to_string();
    if text.len() > SERIES_TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SERIES_TEXT_BYTES_MAX));
        text.push_str("...");
    }
    text
}
