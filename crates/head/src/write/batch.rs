//! Appends a batch: resolves known series by their wire keys, stores samples stripe by stripe, and queues one
//! WAL frame per stripe and slice, with samples of every kind in the order of memory.
//!
//! Invariants: a frame is queued under the lock of its stripe, so the WAL has the order of memory; nothing is
//! allocated per sample; no lock is held for more than a slice of a batch.
//! Not here: new series (`resolve`), storing a sample (`series::stripe`), series with histograms or start
//! times (`mixed`), series with a reorder rule (`reordered`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use chronolith_model::{Reject, WriteBatch};
use chronolith_wal::PoisonOnPanic;

use super::field_types::check_field_types;
use super::job::{AppendJob, AppendScratch, BatchSample, Target, count_appended, reject_sample};
use super::mixed::{append_mixed, is_mixed, may_have_mixed, set_relogged_start};
use super::reordered::{append_reordered, may_have_reordered};
use super::resolve::resolve_misses;
use super::slices::{queue_pending, slice_at, yield_stripe};
use crate::counters::Counter;
use crate::index::key_hash::KeyHash;
use crate::index::series_keys::ID_NONE;
use crate::series::decide::AppendOutcome;
use crate::series::stripe::{STRIPE_COUNT, Stripe, stripe_of};
use crate::series::value::Value;

/// Series that are looked up under one lock.
const LOOKUP_COUNT: usize = 512;
/// Retries of a batch whose series leave the head before their samples are stored.
const ROUND_COUNT_MAX: usize = 100;

/// Appends a batch whose known series were looked up, and queues its frames.
pub(super) fn append_batch(job: &mut AppendJob<'_>, scratch: &mut AppendScratch) {
    for _ in 0..ROUND_COUNT_MAX {
        if !scratch.misses.is_empty() {
            check_field_types(job, scratch);
            resolve_misses(job, scratch);
        }
        let starts = order_by_stripe(scratch);
        scratch.misses.clear();
        for stripe in 0..STRIPE_COUNT {
            let range = starts[stripe]..starts[stripe + 1];
            if !range.is_empty() {
                append_stripe(job, scratch, stripe, range);
            }
        }
        if scratch.misses.is_empty() {
            return;
        }
        // A window drop removed these series between lookup and append: they are created again, the others
        // are done.
        scratch.ids.fill(ID_NONE);
    }
    for &idx in &scratch.misses {
        let series = &job.batch.series[idx as usize];
        let time = job.batch.times[series.samples.start as usize];
        job.outcome.reject(Reject::SeriesLimit, series.samples.len() as u64, time, String::new);
    }
}

/// Looks up the series of a batch by their wire keys.
pub(super) fn find_known(job: &AppendJob<'_>, scratch: &mut AppendScratch) {
    let index = &job.state.index;
    scratch.keys.clear();
    scratch.ids.clear();
    scratch.misses.clear();
    let batch = job.batch;
    let shared = index.key_hash.tenant(job.tenant.name(), batch.source.protocol);
    if batch.fields.is_empty() {
        scratch.keys.extend(batch.series.iter().map(|s| index.key_hash.series(shared, batch.raw_of(s))));
    } else {
        hash_fields(batch, &index.key_hash, shared, &mut scratch.keys);
    }
    let mut series_keys = index.series_keys.read();
    let mut guess = usize::MAX;
    for (idx, (&key, series)) in scratch.keys.iter().zip(&batch.series).enumerate() {
        if idx % LOOKUP_COUNT == LOOKUP_COUNT - 1 {
            // Releases the lock for writers of the cache; otherwise they, and all readers queued after them,
            // would wait for whole batches.
            drop(series_keys);
            series_keys = index.series_keys.read();
        }
        let mut id = ID_NONE;
        if series.samples.is_empty() {
            // A series without samples is in the batch for its exemplars: the head has nothing to store or
            // refuse.
        } else if let Some(entry) = series_keys.find(key, guess) {
            guess = entry + 1;
            id = series_keys.id(entry);
        } else {
            scratch.misses.push(idx as u32);
        }
        scratch.ids.push(id);
    }
}

/// Hashes the wire keys of a batch with fields: the raw key once for the fields of a line.
fn hash_fields(batch: &WriteBatch, hash: &KeyHash, shared: u128, keys: &mut Vec<u128>) {
    let mut last_raw = u32::MAX..u32::MAX;
    let mut raw_hash = 0;
    for (idx, series) in batch.series.iter().enumerate() {
        if series.raw != last_raw {
            last_raw = series.raw.clone();
            raw_hash = hash.series(shared, batch.raw_of(series));
        }
        let field = batch.field_of(idx);
        keys.push(if field.is_empty() { raw_hash } else { hash.field(raw_hash, field, batch.kind_of(idx)) });
    }
}

fn append_stripe(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    stripe_idx: usize,
    range: Range<usize>,
) {
    let state = job.state;
    let relogs = state.relog_before.load(Ordering::Relaxed) > 0;
    let mut stripe = state.series.stripes()[stripe_idx].lock();
    let _unlogged = PoisonOnPanic::new(&state.wal, "an append");
    let mut target = Target { stripe: &mut stripe, stripe_idx, relogs, work: 0 };
    let order = std::mem::take(&mut scratch.order);
    let (mut next, mut first) = (range.start, 0);
    while next < range.end {
        let slice = slice_at(job.batch, &order[..range.end], next, first);
        let series_idx = order[next];
        (next, first) = (slice.next, slice.next_first);
        if first > 0 {
            target.pin(scratch, scratch.ids[series_idx as usize]);
        }
        append_slice(job, scratch, &mut target, &order[slice.order], slice.within);
        if first > 0 && scratch.misses.last() == Some(&series_idx) {
            // The series has left the head; it is created again for all of its samples.
            (next, first) = (next + 1, 0);
        }
        if next < range.end {
            yield_stripe(job, scratch, &mut target);
        }
    }
    scratch.order = order;
    queue_pending(job, scratch, stripe_idx);
    target.unpin(scratch);
}

/// Appends the samples of the series in `order` whose index in the batch lies in `within`.
fn append_slice(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    target: &mut Target<'_, '_>,
    order: &[u32],
    within: Range<usize>,
) {
    let has_mixed = may_have_mixed(job.batch, target.stripe);
    let has_reordered = may_have_reordered(job.batch, target.stripe);
    let (relogs, tenant) = (target.relogs, job.tenant.idx);
    for &idx in order {
        let id = scratch.ids[idx as usize];
        let samples = &job.batch.series[idx as usize].samples;
        let samples = within.start.max(samples.start as usize)..within.end.min(samples.end as usize);
        if has_reordered && append_reordered(job, scratch, target, idx, samples.clone()) {
            continue;
        }
        if has_mixed && is_mixed(job.batch, idx, samples.clone(), target.stripe, id) {
            if target.stripe.is_of_tenant(id, tenant) {
                append_mixed(job, scratch, target, idx, samples);
            } else {
                scratch.misses.push(idx);
            }
            continue;
        }
        let stripe = &mut **target.stripe;
        for at in samples {
            let (time, bits) = (job.batch.times[at], job.values[at].to_bits());
            if let Some(reject) = job.bounds.refuse(time) {
                if !stripe.is_of_tenant(id, tenant) {
                    scratch.misses.push(idx);
                    break;
                }
                reject_sample(job, reject, idx, time);
                continue;
            }
            let outcome = stripe.append_in_order(&mut job.cx, tenant, id, time, bits);
            if outcome == AppendOutcome::InOrder {
                // The hot path: nearly all samples are in order.
                job.newest_time = job.newest_time.max(time);
                job.outcome.accepted_count += 1;
                scratch.pending.push(id, time, bits);
                continue;
            }
            if outcome == AppendOutcome::SeriesGone {
                // The series has left the head since the lookup. A key that resolves to a series of another
                // tenant, for whatever reason, counts as unknown as well.
                scratch.misses.push(idx);
                break;
            }
            append_other(
                job,
                scratch,
                stripe,
                BatchSample { time, series_idx: idx, id, at: at as u32 },
                relogs,
            );
        }
    }
}

/// Appends a word that is not newer than all samples of its series.
// PERF: out of line; in the loop over the samples of a batch it takes registers from samples in order.
//   cargo xtask append-path
#[cold]
#[inline(never)]
fn append_other(
    job: &mut AppendJob<'_>,
    scratch: &mut AppendScratch,
    stripe: &mut Stripe,
    sample: BatchSample,
    relogs: bool,
) {
    let bits = job.values[sample.at()].to_bits();
    let outcome = stripe.append(&mut job.cx, sample.id, sample.time, Value::Word(bits));
    if count_appended(job, outcome, sample, relogs) {
        scratch.pending.push(sample.id, sample.time, bits);
        set_relogged_start(job, scratch, stripe, outcome, sample);
    }
}

/// Leaves series of the batch out that are refused as a whole, by ascending index.
pub(super) fn leave_out(refused: &[u32], scratch: &mut AppendScratch) {
    if refused.is_empty() {
        return;
    }
    refused.iter().for_each(|&idx| scratch.ids[idx as usize] = ID_NONE);
    scratch.misses.retain(|idx| refused.binary_search(idx).is_err());
}

/// Adds the counts of an append to the counts of its tenant and of the head.
pub(super) fn count_outcome(job: &mut AppendJob<'_>) {
    job.tenant.windows.lock().merge(&mut job.cx.windows, job.now_ms);
    job.tenant.newest_time.fetch_max(job.newest_time, Ordering::Relaxed);
    let counters = &job.state.counters;
    let outcome = &job.outcome;
    counters.add(Counter::SamplesAppended, outcome.accepted_count - outcome.overflow.sample_count);
    counters.add(Counter::SamplesRepeated, outcome.repeated_count);
    counters.add(Counter::SamplesOutOfOrder, job.ooo_count);
    counters.add(Counter::SamplesReplaced, job.replaced_count);
    counters.add(Counter::SamplesWithStart, job.starts_count);
    counters.add(Counter::SeriesCreated, outcome.series_created_count);
}

/// Groups the resolved series by stripe, in the order of the batch (counting sort); returns the start of each
/// stripe.
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
