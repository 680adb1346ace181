//! Appending a batch: known series by their raw bytes, samples stripe by stripe, one log frame a stripe and
//! slice.
//!
//! Holds: a frame is queued under the lock of its stripe, so the log has the order of memory; nothing is
//! allocated per sample; no lock is held for more than a slice of a batch.
//! Not here: series seen for the first time (`resolve`), what a stripe does with a sample (`stripe`), series with
//! histograms (`append::histograms`) or start times (`append::starts`).

mod histograms;
mod slices;
mod starts;
mod time_order;

use chronolith_format::wal;
use chronolith_format::wal::StartEntry;
use chronolith_model::time::{TIME_MAX_MS, TIME_MIN_MS};
use chronolith_model::{LabelsBuilder, Reject, TenantId, TenantLimits, WriteBatch, WriteOutcome};

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::head::Head;
use crate::options::WriteError;
use crate::poison::PoisonOnPanic;
use crate::raw_keys::ID_NONE;
use crate::select::page_runs;
use crate::stripe::{Applied, STRIPE_COUNT, StripeWorld, stripe_of};
use crate::tenant::TenantHead;
use crate::wal::Ticket;
use crate::windows::WindowTally;
use histograms::Target;
use slices::slice_at;
use time_order::sorted_by_time;

/// Samples of one log frame; more make several frames.
const FRAME_SAMPLES_MAX: usize = 1 << 18;
/// Scratch sets kept for the next batches.
const SCRATCH_COUNT_MAX: usize = 16;
/// A scratch set that a large batch made larger is given back.
const SCRATCH_BYTES_MAX: usize = 2 << 20;
/// Series that are looked up under one lock.
const LOOKUP_COUNT: usize = 512;
/// Late samples that are looked for together.
const TOUCH_COUNT: usize = 32;
/// Work of a late sample beside that of one in order: it is looked for and may be encoded.
const LATE_WORK: usize = 8;
/// How often a batch may meet series that leave the head before their samples are stored.
const ROUND_COUNT_MAX: usize = 100;

const _: () = assert!(FRAME_SAMPLES_MAX * 24 < wal::FRAME_PAYLOAD_BYTES_MAX);

/// A sample of the batch, and its series there and in the head.
#[derive(Debug, Clone, Copy, Default)]
struct BatchSample {
    time: i64,
    series_idx: u32,
    id: u32,
    at: u32,
}

impl BatchSample {
    fn at(&self) -> usize {
        self.at as usize
    }
}

/// Memory of one append, reused.
#[derive(Default)]
pub(crate) struct AppendScratch {
    pub(crate) keys: Vec<u128>,
    /// Series id of each series of the batch, or [`ID_NONE`]; a series without samples never has one.
    pub(crate) ids: Vec<u32>,
    /// Series of the batch to resolve; each has samples.
    pub(crate) misses: Vec<u32>,
    /// Series of the batch by stripe.
    order: Vec<u32>,
    sample_ids: Vec<u32>,
    times: Vec<i64>,
    values: Vec<u64>,
    /// Histograms for the log: series and index into the batch.
    histograms: Vec<(u32, u32)>,
    /// Start times for the log.
    starts: Vec<StartEntry>,
    /// Samples of a stripe that are not later than the last ones of their series.
    behind: Vec<BatchSample>,
    /// Series of this batch that are pinned in the stripe.
    pinned: Vec<u32>,
    pub(crate) payload: Vec<u8>,
    pub(crate) builder: LabelsBuilder,
    pub(crate) members: Vec<u32>,
    pub(crate) created: Vec<u32>,
}

impl AppendScratch {
    /// Gets a sample ready for the log.
    #[inline]
    fn log(&mut self, id: u32, time: i64, bits: u64) {
        self.sample_ids.push(id);
        self.times.push(time);
        self.values.push(bits);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let ids = [
            &self.ids,
            &self.misses,
            &self.order,
            &self.sample_ids,
            &self.members,
            &self.created,
            &self.pinned,
        ];
        16 * self.keys.capacity()
            + 4 * ids.map(Vec::capacity).iter().sum::<usize>()
            + 8 * (self.times.capacity() + self.values.capacity() + self.histograms.capacity())
            + size_of::<BatchSample>() * self.behind.capacity()
            + size_of::<StartEntry>() * self.starts.capacity()
            + self.payload.capacity()
    }
}

/// Times that a tenant may write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeBounds {
    earliest: i64,
    /// Earlier samples are too far behind the newest one of the tenant.
    earliest_in_order: i64,
    latest: i64,
}

impl TimeBounds {
    /// The bounds at `now_ms` for a tenant whose newest sample is of `newest_ms`.
    pub(crate) fn new(limits: &TenantLimits, now_ms: i64, newest_ms: i64) -> TimeBounds {
        let earliest =
            if limits.retention_ms > 0 { now_ms.saturating_sub(limits.retention_ms) } else { i64::MIN };
        let latest =
            if limits.future_ms_max > 0 { now_ms.saturating_add(limits.future_ms_max) } else { i64::MAX };
        let earliest_in_order = if limits.out_of_order_ms > 0 {
            newest_ms.saturating_sub(limits.out_of_order_ms)
        } else {
            i64::MIN
        };
        TimeBounds { earliest: earliest.max(TIME_MIN_MS), earliest_in_order, latest: latest.min(TIME_MAX_MS) }
    }

    /// Why a sample of this time is refused.
    pub(crate) fn refuse(self, time: i64) -> Option<Reject> {
        if (self.earliest..=self.latest).contains(&time) {
            (time < self.earliest_in_order).then_some(Reject::OutOfOrder)
        } else if time > self.latest || time < TIME_MIN_MS {
            Some(Reject::OutOfBounds)
        } else {
            Some(Reject::TooOld)
        }
    }
}

/// What all steps of one append share.
pub(crate) struct AppendJob<'a> {
    pub(crate) tenant: &'a TenantHead,
    pub(crate) limits: &'a TenantLimits,
    pub(crate) bounds: TimeBounds,
    pub(crate) now_ms: i64,
    pub(crate) batch: &'a WriteBatch,
    pub(crate) outcome: WriteOutcome,
    windows: WindowTally,
    late_count: u64,
    replaced_count: u64,
    starts_count: u64,
    newest_ms: i64,
}

impl Head {
    /// Applies a batch to memory and queues its log frames; durable only after [`Head::wait`] on the ticket.
    /// Cost: one hash and one predicted lookup a series, one lock a stripe.
    ///
    /// # Errors
    /// [`WriteError`]: nothing was applied. Rejected samples are no error: see the outcome.
    pub fn append(
        &self,
        tenant: &TenantId,
        limits: &TenantLimits,
        now_ms: i64,
        batch: &WriteBatch,
    ) -> Result<(WriteOutcome, Ticket), WriteError> {
        let _open = self.gate.read();
        let _ids = self.ids.use_ids();
        self.admit()?;
        let _unlogged = PoisonOnPanic::new(&self.wal, "an append");
        let Some(tenant) = self.tenant_or_create(tenant) else {
            let mut outcome = WriteOutcome::default();
            let time = batch.times.first().copied().unwrap_or(0);
            outcome.reject(Reject::SeriesLimit, batch.sample_count() as u64, time, String::new);
            return Ok((outcome, self.wal.ticket()));
        };
        let sorted = sorted_by_time(batch);
        let batch = sorted.as_ref().unwrap_or(batch);
        let newest_ms = if limits.out_of_order_ms > 0 { self.newest_ms(&tenant) } else { i64::MIN };
        let bounds = TimeBounds::new(limits, now_ms, newest_ms);
        let mut job = AppendJob {
            tenant: &tenant,
            limits,
            bounds,
            now_ms,
            batch,
            outcome: WriteOutcome::default(),
            windows: WindowTally::new(self.options.window_ms),
            late_count: 0,
            replaced_count: 0,
            starts_count: 0,
            newest_ms: i64::MIN,
        };
        let mut scratch = self.scratch.lock().pop().unwrap_or_default();
        self.find_known(&job, &mut scratch);
        let reserved = self.reserve_memory(batch, &scratch);
        if reserved.is_ok() {
            self.run(&mut job, &mut scratch);
        }
        let mut pool = self.scratch.lock();
        if pool.len() < SCRATCH_COUNT_MAX && scratch.heap_bytes() <= SCRATCH_BYTES_MAX {
            pool.push(scratch);
        }
        drop(pool);
        if let Err(refused) = reserved {
            self.forget_if_unused(tenant);
            return Err(refused);
        }
        self.finish(&mut job);
        let outcome = job.outcome;
        if outcome.accepted_count == 0 {
            self.forget_if_unused(tenant);
        }
        // A failure shows in the next append; this batch is in memory and in the log's queue.
        let _ = self.note_sealed_failure(self.series.store.write_if_many());
        Ok((outcome, self.wal.ticket()))
    }

    fn tenant_or_create(&self, id: &TenantId) -> Option<std::sync::Arc<TenantHead>> {
        if let Some(found) = self.tenant(id) {
            return Some(found);
        }
        self.tenants.write().get_or_create(id, self.env.rng.next_u64())
    }

    /// Forgets the tenant of a refused write if it has nothing else, so that writes under ever new names leave none.
    #[cold]
    fn forget_if_unused(&self, tenant: std::sync::Arc<TenantHead>) {
        if tenant.tables.read().live_count() == 0 {
            let id = tenant.id.clone();
            // Only the list's own reference may be left.
            drop(tenant);
            self.tenants.write().remove_unused(&id);
        }
    }

    /// Time of the newest sample of a tenant. The first call after a start looks at each of its series.
    fn newest_ms(&self, tenant: &TenantHead) -> i64 {
        if !tenant.newest_is_whole.load(Ordering::Acquire) {
            for run in page_runs(&tenant.series_ids()) {
                let stripe = self.series.stripes[stripe_of(run[0])].lock();
                if let Some(newest) = run.iter().filter_map(|&id| stripe.newest_time(id)).max() {
                    tenant.newest_ms.fetch_max(newest, Ordering::Relaxed);
                }
            }
            tenant.newest_is_whole.store(true, Ordering::Release);
        }
        tenant.newest_ms.load(Ordering::Relaxed)
    }

    fn run(&self, job: &mut AppendJob<'_>, scratch: &mut AppendScratch) {
        count_histograms(job);
        for _ in 0..ROUND_COUNT_MAX {
            if !scratch.misses.is_empty() {
                self.resolve_misses(job, scratch);
            }
            let starts = order_by_stripe(scratch);
            scratch.misses.clear();
            for stripe in 0..STRIPE_COUNT {
                let range = starts[stripe]..starts[stripe + 1];
                if !range.is_empty() {
                    self.append_stripe(job, scratch, stripe, range);
                }
            }
            if scratch.misses.is_empty() {
                return;
            }
            // A window drop took these series between lookup and append: they are made again, the others are done.
            scratch.ids.fill(ID_NONE);
        }
        for &idx in &scratch.misses {
            let series = &job.batch.series[idx as usize];
            let time = job.batch.times[series.samples.start as usize];
            job.outcome.reject(Reject::SeriesLimit, series.samples.len() as u64, time, String::new);
        }
    }

    fn find_known(&self, job: &AppendJob<'_>, scratch: &mut AppendScratch) {
        scratch.keys.clear();
        scratch.ids.clear();
        scratch.misses.clear();
        let batch = job.batch;
        let shared = self.key_hash.tenant(job.tenant.id.as_str(), batch.source.protocol);
        scratch.keys.extend(batch.series.iter().map(|s| self.key_hash.series(shared, batch.raw_of(s))));
        let mut raw_keys = self.raw_keys.read();
        let mut guess = usize::MAX;
        for (idx, (&key, series)) in scratch.keys.iter().zip(&batch.series).enumerate() {
            if idx % LOOKUP_COUNT == LOOKUP_COUNT - 1 {
                // Who adds keys gets a turn; otherwise it, and everybody behind it, would wait for whole batches.
                drop(raw_keys);
                raw_keys = self.raw_keys.read();
            }
            let mut id = ID_NONE;
            if series.samples.is_empty() {
                // Only there for its exemplars: the head has nothing to store or to refuse of it.
            } else if let Some(entry) = raw_keys.find(key, guess) {
                guess = entry + 1;
                id = raw_keys.id(entry);
            } else {
                scratch.misses.push(idx as u32);
            }
            scratch.ids.push(id);
        }
    }

    fn append_stripe(
        &self,
        job: &mut AppendJob<'_>,
        scratch: &mut AppendScratch,
        stripe_idx: usize,
        range: Range<usize>,
    ) {
        let relogs = self.relog_before.load(Ordering::Relaxed) > 0;
        let world = StripeWorld { duplicates: job.limits.duplicates, ..self.series.world() };
        let mut stripe = self.series.stripes[stripe_idx].lock();
        let _unlogged = PoisonOnPanic::new(&self.wal, "an append");
        let mut target = Target {
            stripe: &mut stripe,
            world: &world,
            stripe_idx,
            relogs,
            work: 0,
            has_let_others_in: false,
            pinned_count: 0,
        };
        let order = std::mem::take(&mut scratch.order);
        let (mut next, mut first) = (range.start, 0);
        while next < range.end {
            let slice = slice_at(job.batch, &order[..range.end], next, first);
            let series_idx = order[next];
            (next, first) = (slice.next, slice.next_first);
            if first > 0 {
                target.pin(scratch, scratch.ids[series_idx as usize]);
            }
            self.append_slice(job, scratch, &mut target, &order[slice.order], slice.within);
            if first > 0 && scratch.misses.last() == Some(&series_idx) {
                // It is gone, and is made again for all of its samples.
                (next, first) = (next + 1, 0);
            }
            if next < range.end {
                self.let_others_in(job, scratch, &mut target);
            }
        }
        scratch.order = order;
        // Behind all others, so that they are looked for together. What is late stays late.
        self.append_behind(job, scratch, &mut target);
        self.queue_frames(job, scratch, stripe_idx);
        target.unpin(scratch);
    }

    /// Appends those samples of the series `order` of the batch that lie `within`.
    fn append_slice(
        &self,
        job: &mut AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
        order: &[u32],
        within: Range<usize>,
    ) {
        let has_mixed = starts::may_have_mixed(job.batch, target.stripe);
        let (world, relogs) = (target.world, target.relogs);
        for &idx in order {
            let id = scratch.ids[idx as usize];
            // A key that leads to a series of another tenant, whatever the reason, leads nowhere.
            if target.stripe.hot(id).is_none_or(|hot| hot.tenant != job.tenant.idx) {
                scratch.misses.push(idx);
                continue;
            }
            let samples = &job.batch.series[idx as usize].samples;
            let samples = within.start.max(samples.start as usize)..within.end.min(samples.end as usize);
            if has_mixed && starts::is_mixed(job.batch, idx, samples.clone(), target.stripe, id) {
                // What is held back may be of the same series and times, and comes first in the batch.
                self.append_behind(job, scratch, target);
                self.append_mixed(job, scratch, target, idx, samples);
                self.seal_due(job, scratch, target);
                continue;
            }
            let stripe = &mut **target.stripe;
            for at in samples {
                let (time, bits) = (job.batch.times[at], job.batch.values[at].to_bits());
                if let Some(reject) = job.bounds.refuse(time) {
                    reject_sample(job, reject, idx, time);
                    continue;
                }
                let applied = stripe.append_ahead(world, &mut job.windows, id, time, bits);
                if applied == Applied::InOrder {
                    // Nearly all samples come here.
                    job.newest_ms = job.newest_ms.max(time);
                    job.outcome.accepted_count += 1;
                    scratch.log(id, time, bits);
                    continue;
                }
                let sample = BatchSample { time, series_idx: idx, id, at: at as u32 };
                if applied == Applied::Behind {
                    scratch.behind.push(sample);
                } else {
                    if applied == Applied::Replaced {
                        self.queue_histograms(job, scratch, target.stripe_idx);
                    }
                    note_applied(job, scratch, applied, sample, relogs);
                }
            }
        }
    }

    /// Appends the late floats that were held back, those of a series by time: neighbours are looked for in
    /// the same chunk.
    fn append_behind(
        &self,
        job: &mut AppendJob<'_>,
        scratch: &mut AppendScratch,
        target: &mut Target<'_, '_>,
    ) {
        if scratch.behind.is_empty() {
            return;
        }
        self.sort_behind(job, scratch, target);
        for start in (0..scratch.behind.len()).step_by(TOUCH_COUNT) {
            self.let_others_in_if_due(job, scratch, target);
            let end = scratch.behind.len().min(start + TOUCH_COUNT);
            let mut copied = [BatchSample::default(); TOUCH_COUNT];
            let group = &mut copied[..end - start];
            group.copy_from_slice(&scratch.behind[start..end]);
            target.work += LATE_WORK * group.len();
            target.stripe.touch_late(target.world, group.iter().map(|one| (one.id, one.time)));
            for &one in &*group {
                if target.has_let_others_in && target.stripe.starts_of(one.id).is_some() {
                    // Somebody else brought start times meanwhile.
                    let at = one.at()..one.at() + 1;
                    self.append_mixed(job, scratch, target, one.series_idx, at);
                    continue;
                }
                let bits = job.batch.values[one.at()].to_bits();
                let applied =
                    target.stripe.append_late(target.world, &mut job.windows, one.id, one.time, bits);
                if applied == Applied::Replaced {
                    self.queue_histograms(job, scratch, target.stripe_idx);
                }
                note_applied(job, scratch, applied, one, target.relogs);
            }
            self.seal_due(job, scratch, target);
        }
        scratch.behind.clear();
        target.pinned_count = 0;
    }

    /// Queues the frames of all that waits.
    fn queue_frames(&self, job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
        // In front of their samples: of a torn tail at most a start time is left, which its sample brings again.
        self.queue_starts(scratch, stripe_idx);
        self.queue_floats(job, scratch, stripe_idx);
        self.queue_histograms(job, scratch, stripe_idx);
    }

    /// Queues the frames of the floats that wait.
    fn queue_floats(&self, job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
        let columns =
            scratch.sample_ids.chunks(FRAME_SAMPLES_MAX).zip(scratch.times.chunks(FRAME_SAMPLES_MAX));
        for ((ids, times), values) in columns.zip(scratch.values.chunks(FRAME_SAMPLES_MAX)) {
            wal::encode_samples(job.now_ms, ids, times, values, &mut scratch.payload);
            self.wal.queue(wal::KIND_SAMPLES, stripe_idx as u8, &scratch.payload);
        }
        scratch.sample_ids.clear();
        scratch.times.clear();
        scratch.values.clear();
    }

    fn finish(&self, job: &mut AppendJob<'_>) {
        job.tenant.windows.lock().merge(&mut job.windows, job.now_ms);
        job.tenant.newest_ms.fetch_max(job.newest_ms, Ordering::Relaxed);
        let counters = &self.counters;
        let outcome = &job.outcome;
        counters.samples_appended.fetch_add(outcome.accepted_count, Ordering::Relaxed);
        counters.samples_repeated.fetch_add(outcome.repeated_count, Ordering::Relaxed);
        counters.samples_late.fetch_add(job.late_count, Ordering::Relaxed);
        counters.samples_replaced.fetch_add(job.replaced_count, Ordering::Relaxed);
        counters.samples_with_start.fetch_add(job.starts_count, Ordering::Relaxed);
        counters.series_created.fetch_add(outcome.series_created_count, Ordering::Relaxed);
    }
}

/// Counts those that whoever filled the batch did not keep.
fn count_histograms(job: &mut AppendJob<'_>) {
    for (idx, series) in job.batch.series.iter().enumerate() {
        if series.histogram_count > 0 {
            let text = || series_text(job.batch, idx as u32);
            job.outcome.reject(Reject::HistogramUnsupported, u64::from(series.histogram_count), 0, text);
        }
    }
}

/// Counts what became of a sample and gets it ready for the log; a repeat as well if it `relogs`.
fn note_applied(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    applied: Applied,
    sample: BatchSample,
    relogs: bool,
) {
    if count_applied(job, applied, sample, relogs) == Logged::Yes {
        scratch.log(sample.id, sample.time, job.batch.values[sample.at()].to_bits());
    }
}

/// Whether a sample goes to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logged {
    Yes,
    No,
}

/// Counts what became of a sample.
fn count_applied(job: &mut AppendJob<'_>, applied: Applied, sample: BatchSample, relogs: bool) -> Logged {
    let time = sample.time;
    let is_logged = match applied {
        Applied::InOrder | Applied::Late | Applied::Replaced => {
            job.newest_ms = job.newest_ms.max(time);
            job.late_count += u64::from(applied == Applied::Late);
            job.replaced_count += u64::from(applied == Applied::Replaced);
            true
        }
        Applied::Repeat => {
            job.outcome.repeated_count += 1;
            relogs
        }
        Applied::Conflict => {
            reject_sample(job, Reject::DuplicateTimestamp, sample.series_idx, time);
            return Logged::No;
        }
        Applied::Behind | Applied::Gone => unreachable!("the stripe is locked and the series is in it"),
    };
    job.outcome.accepted_count += 1;
    if is_logged { Logged::Yes } else { Logged::No }
}

#[cold]
fn reject_sample(job: &mut AppendJob<'_>, reject: Reject, series_idx: u32, time: i64) {
    let batch = job.batch;
    job.outcome.reject(reject, 1, time, || series_text(batch, series_idx));
}

/// A series of the batch for people.
pub(crate) fn series_text(batch: &WriteBatch, series_idx: u32) -> String {
    let raw = batch.raw_of(&batch.series[series_idx as usize]);
    let mut builder = LabelsBuilder::new();
    match (batch.source.parse)(raw, &mut builder) {
        Ok(()) => builder.finish().to_string(),
        Err(_) => String::from_utf8_lossy(&raw[..raw.len().min(256)]).into_owned(),
    }
}

/// Groups the resolved series by stripe, in the order of the batch; gives where each stripe starts.
fn order_by_stripe(scratch: &mut AppendScratch) -> [usize; STRIPE_COUNT + 1] {
    let mut starts = [0usize; STRIPE_COUNT + 1];
    for &id in scratch.ids.iter().filter(|&&id| id != ID_NONE) {
        starts[stripe_of(id) + 1] += 1;
    }
    for stripe in 0..STRIPE_COUNT {
        starts[stripe + 1] += starts[stripe];
    }
    let mut next = starts;
    scratch.order.clear();
    scratch.order.resize(starts[STRIPE_COUNT], 0);
    for (idx, &id) in scratch.ids.iter().enumerate().filter(|(_, id)| **id != ID_NONE) {
        let at = &mut next[stripe_of(id)];
        scratch.order[*at] = idx as u32;
        *at += 1;
    }
    starts
}
