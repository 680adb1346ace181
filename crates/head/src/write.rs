//! Writes: appends batches, creates series, deletes samples; each change with its WAL frame.
//!
//! Invariant: a frame is queued under the lock of the stripe that it changes, so the WAL has the order of
//! memory.

mod batch;
pub(crate) mod check;
pub(crate) mod decode;
pub(crate) mod delete;
mod emit;
mod field_types;
mod job;
mod memory_limit;
mod mixed;
mod overflow;
mod reached;
mod reordered;
mod resolve;
mod slices;
mod texts;
mod time_order;

use std::sync::Arc;

use chronolith_model::{
    Matcher, Reject, StoreId, TenantLimits, TimeRange, WordKind, WriteBatch, WriteOutcome,
};
use chronolith_wal::{PoisonOnPanic, WalPosition};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use crate::checkpoint::overflow::prepare;
use crate::index::field_types::KindSet;
use crate::memory_part::MemoryPart;
use crate::options::{HeadOptions, WriteError};
use crate::state::HeadState;
use batch::{append_batch, count_outcome, find_known, leave_out};
use decode::{DecodedSeries, decode};
use delete::{DeleteProgress, DeleteStats, delete};
use emit::emit;
use field_types::find_contested;
use job::{AppendJob, AppendScratch, TimeBounds};
use memory_limit::MemoryLimit;
use overflow::fold_known;
use reached::note_time_limits;
use texts::{BatchTexts, intern_texts};
use time_order::sorted_by_time;

/// Scratch sets kept for reuse by later batches.
const SCRATCH_COUNT_MAX: usize = 16;
/// A scratch set that a large batch grew beyond this is freed.
const SCRATCH_BYTES_MAX: usize = 2 << 20;

/// Samples of a request per lookup that it has.
const SAMPLES_PER_LOOKUP: usize = 512;

/// Appends batches and deletes samples.
pub(crate) struct Writer {
    state: Arc<HeadState>,
    /// Writes hold it shared, so that closing waits for them.
    gate: RwLock<()>,
    scratch: Mutex<Vec<AppendScratch>>,
    memory_limit: MemoryLimit,
}

impl Writer {
    pub(crate) fn new(state: Arc<HeadState>) -> Writer {
        let memory_limit =
            MemoryLimit::new(state.options.memory_bytes_max, state.options.tenant_memory_percent);
        Writer { state, gate: RwLock::new(()), scratch: Mutex::default(), memory_limit }
    }

    /// Appends a batch, see [`crate::Head::append`].
    pub(crate) fn append(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        now_ms: i64,
        batch: &WriteBatch,
    ) -> Result<(WriteOutcome, WalPosition), WriteError> {
        let state = &*self.state;
        let _open = self.gate.read();
        let _ids = state.index.ids.use_ids();
        state.admit()?;
        let _unlogged = PoisonOnPanic::new(&state.wal, "an append");
        let Some(store) = state.index.tenant_or_create(store, || state.env.rng.next_u64()) else {
            let mut outcome = WriteOutcome::default();
            let time = batch.times.first().copied().unwrap_or(0);
            outcome.reject(Reject::SeriesLimit, batch.sample_count() as u64, time, String::new);
            return Ok((outcome, state.wal.position()));
        };
        let sorted = sorted_by_time(batch);
        let batch = sorted.as_ref().unwrap_or(batch);
        let newest = if limits.out_of_order_ms > 0 { store.newest_time(&state.series) } else { i64::MIN };
        let bounds = TimeBounds::new(limits, store.unit, now_ms, newest);
        let kinds = KindSet::of_batch(batch);
        state.note_kinds(kinds)?;
        prepare(state, limits)?;
        let mut outcome = WriteOutcome::default();
        let mut texts = BatchTexts::default();
        if kinds.contains(WordKind::Text) {
            texts = intern_texts(state, &store, bounds, batch, &mut outcome);
        }
        let mut job = AppendJob {
            state,
            tenant: &store,
            limits,
            bounds,
            now_ms,
            batch,
            values: if texts.values.is_empty() { &batch.values } else { &texts.values },
            outcome,
            cx: state
                .series
                .context(store.unit, limits.duplicates)
                .with_lookups(lookups_of(&state.options, batch)),
            ooo_count: 0,
            replaced_count: 0,
            starts_count: 0,
            newest_time: i64::MIN,
            emit: Some(emit),
            unfolded_at: None,
        };
        if batch.source.is_typed {
            find_contested(&job);
        }
        let mut scratch = self.scratch.lock().pop().unwrap_or_default();
        find_known(&job, &mut scratch);
        leave_out(&texts.refused, &mut scratch);
        fold_known(&mut job, &mut scratch);
        let reserved = self.memory_limit.reserve_batch(&store, batch, &scratch.misses);
        if reserved.is_ok() {
            append_batch(&mut job, &mut scratch);
        }
        self.keep_scratch(scratch);
        if let Err(refused) = reserved {
            drop(texts);
            state.index.forget_if_unused(store);
            return Err(refused);
        }
        count_outcome(&mut job);
        note_time_limits(&mut job.outcome, bounds, limits, store.unit);
        let outcome = job.outcome;
        drop(texts);
        // The types of new fields in shard groups that were refused hold for the next batch.
        if outcome.accepted_count == 0 && !outcome.has_refused_shard_group {
            state.index.forget_if_unused(store);
        }
        // A failure is reported by the next append; this batch is in memory and in the queue of the WAL.
        let _ = state.write_sealed_if_many();
        Ok((outcome, state.wal.position()))
    }

    fn keep_scratch(&self, scratch: AppendScratch) {
        let mut pool = self.scratch.lock();
        if pool.len() < SCRATCH_COUNT_MAX && scratch.heap_bytes() <= SCRATCH_BYTES_MAX {
            pool.push(scratch);
        }
    }

    /// Decodes a batch, see [`crate::Head::decode`].
    pub(crate) fn decode(
        &self,
        store: &StoreId,
        limits: &TenantLimits,
        now_ms: i64,
        batch: &WriteBatch,
    ) -> Result<(Vec<DecodedSeries>, WriteOutcome), WriteError> {
        let _open = self.gate.read();
        decode(&self.state, store, limits, now_ms, batch)
    }

    /// Deletes samples, see [`crate::Head::delete`].
    pub(crate) fn delete(
        &self,
        store: &StoreId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        progress: &DeleteProgress,
    ) -> Result<(DeleteStats, WalPosition), WriteError> {
        let _open = self.gate.read();
        delete(&self.state, store, selectors, range, progress)
    }

    /// Waits for running writes and refuses later ones as long as the guard is held.
    pub(crate) fn stop_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Returns the memory limit of the head.
    pub(crate) fn memory_limit(&self) -> &MemoryLimit {
        &self.memory_limit
    }

    /// Returns the memory of the scratch sets kept for the next batches.
    pub(crate) fn memory(&self) -> MemoryPart {
        let scratch = self.scratch.lock();
        let bytes = scratch.iter().map(|one| one.heap_bytes() as u64).sum();
        MemoryPart::new("append_scratch", bytes, scratch.len() as u64)
    }
}
/// Chunks that an append may decode to compare out-of-order samples with stored
/// ones: small requests, whose senders look at each error, are decided before the response; of large ones a
/// part, so that the cost per sample stays the same.
fn lookups_of(options: &HeadOptions, batch: &WriteBatch) -> u32 {
    let of_size = u32::try_from(batch.sample_count() / SAMPLES_PER_LOOKUP).unwrap_or(u32::MAX);
    of_size.max(options.ooo_lookups_min)
}
