//! Samples of several frames of one stripe, applied series by series instead of in the order of the log: the
//! record and the open chunk of a series are in the cache for all of its samples.
//!
//! Invariants: samples of one series stay in their order; all samples of a batch are words of one tenant and
//! window under one duplicate policy, are in no slice of the checkpoint, and have no start timestamps, so
//! that the order of the series changes no result.
//! Not here: samples that need the order of the log (`frames`).

use std::ops::Range;
use std::sync::atomic::Ordering;

use chronolith_format::head::wal::Samples;
use chronolith_model::{DuplicatePolicy, TimeRange};

use super::shared::Shared;
use crate::series::decide::AppendOutcome;
use crate::series::stripe::{AppendContext, PAGE_SLOTS, STRIPE_COUNT, Stripe, stripe_of};
use crate::series::value::Value;

/// Samples at which a batch is applied: 1.2 MiB with the memory to sort them.
const BATCH_COUNT: usize = 1 << 15;

/// Properties that the samples of a batch share.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BatchKey {
    stripe: usize,
    tenant: u32,
    window: TimeRange,
    duplicates: DuplicatePolicy,
}

/// Batch of samples, with scratch memory.
#[derive(Default)]
pub(super) struct BySeries {
    key: Option<BatchKey>,
    arrival_ms: i64,
    frame_count: usize,
    ids: Vec<u32>,
    samples: Vec<(i64, u64)>,
    /// Ranges of the samples of a frame that are not in a slice.
    ranges: Vec<Range<usize>>,
    /// End of each series in `sorted`, by position in the stripe.
    ends: Vec<u32>,
    sorted: Vec<(i64, u64)>,
}

impl BySeries {
    /// Adds the samples of a frame; returns false if they must be applied in the order of the log.
    pub(super) fn add(&mut self, samples: &Samples, sequence: u64, shared: &Shared<'_>) -> bool {
        let Some(key) = self.key_of(samples, sequence, shared) else { return false };
        if self.key.is_some_and(|known| known != key) || self.ids.len() >= BATCH_COUNT {
            self.apply(shared);
        }
        if self.key.replace(key).is_none() {
            self.arrival_ms = samples.arrival_ms;
        }
        self.arrival_ms = self.arrival_ms.min(samples.arrival_ms);
        self.frame_count += 1;
        for range in self.ranges.drain(..) {
            self.ids.extend_from_slice(&samples.ids[range.clone()]);
            let values = samples.values[range.clone()].iter();
            self.samples.extend(samples.times[range].iter().copied().zip(values.copied()));
        }
        true
    }

    /// Returns the key of the samples of a frame and puts those to be applied into `ranges`; `None` if they
    /// do not fit a batch.
    fn key_of(&mut self, samples: &Samples, sequence: u64, shared: &Shared<'_>) -> Option<BatchKey> {
        let first = *samples.ids.first()?;
        let is_plain = samples.histograms.is_empty()
            && samples.start_times.is_empty()
            && samples.values.len() == samples.ids.len();
        let (oldest, newest) =
            samples.times.iter().fold((i64::MAX, i64::MIN), |(a, b), &time| (a.min(time), b.max(time)));
        if !is_plain || !TimeRange::ALL.contains(oldest) || !TimeRange::ALL.contains(newest) {
            return None;
        }
        let stripe = stripe_of(first);
        self.ranges.clear();
        let (mut position, mut start) = (shared.positions.cursor(), 0);
        for page in samples.ids.chunk_by(|a, b| *a as usize / PAGE_SLOTS == *b as usize / PAGE_SLOTS) {
            let slice = position.slice_of(page[0]);
            let is_looked_up = slice.sequence < sequence && sequence <= slice.copied_until;
            if is_looked_up || stripe_of(page[0]) != stripe {
                return None;
            }
            let range = start..start + page.len();
            start = range.end;
            if slice.sequence < sequence {
                self.ranges.push(range);
            }
        }
        let tenant = shared.series.stripes()[stripe].lock().series(first)?.tenant;
        let window = TimeRange::window_of(oldest, shared.width_of(tenant));
        window.contains(newest).then_some(BatchKey { stripe, tenant, window, duplicates: samples.duplicates })
    }

    /// Applies all samples.
    pub(super) fn apply(&mut self, shared: &Shared<'_>) {
        let Some(key) = self.key.take() else { return };
        let mut cx = shared.series.context(shared.unit_of(key.tenant), key.duplicates);
        // The samples are in no slice, so none of them is stored yet.
        cx.lookups_left = 0;
        let mut target = Target { shared, cx, tenant: None, arrival_ms: self.arrival_ms, applied_count: 0 };
        let mut stripe = shared.series.stripes()[key.stripe].lock();
        match self.sort(key.stripe) {
            Some(first_position) => {
                let mut start = 0;
                for (position, &end) in (first_position..).zip(&self.ends) {
                    let run = &self.sorted[start..end as usize];
                    start = end as usize;
                    if !run.is_empty() {
                        target.append(&mut stripe, id_at(position, key.stripe), run);
                    }
                }
            }
            None => {
                for (&id, sample) in self.ids.iter().zip(&self.samples) {
                    target.append(&mut stripe, id, std::slice::from_ref(sample));
                }
            }
        }
        drop(stripe);
        target.finish();
        self.frame_count = 0;
        self.ids.clear();
        self.samples.clear();
    }

    /// Sorts the samples by position of their series in the stripe and returns the first position; `None` if
    /// that is not worth it, because hardly any series has several samples.
    fn sort(&mut self, stripe: usize) -> Option<u32> {
        if self.frame_count == 1 {
            return None;
        }
        let (first, last) = self
            .ids
            .iter()
            .map(|&id| position_of(id))
            .fold((u32::MAX, 0), |(first, last), position| (first.min(position), last.max(position)));
        let count = last.checked_sub(first)? as usize + 1;
        if count > self.ids.len() {
            return None;
        }
        debug_assert!(self.ids.iter().all(|&id| stripe_of(id) == stripe), "a batch is of one stripe");
        self.ends.clear();
        self.ends.resize(count, 0);
        for &id in &self.ids {
            self.ends[(position_of(id) - first) as usize] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.sorted.resize(self.samples.len(), (0, 0));
        for (&id, &sample) in self.ids.iter().zip(&self.samples) {
            let end = &mut self.ends[(position_of(id) - first) as usize];
            self.sorted[*end as usize] = sample;
            *end += 1;
        }
        Some(first)
    }
}

/// Stripe that takes the samples of a batch.
struct Target<'a> {
    shared: &'a Shared<'a>,
    cx: AppendContext<'a>,
    /// Tenant of the samples that are counted in `cx`.
    tenant: Option<u32>,
    arrival_ms: i64,
    applied_count: u64,
}

impl Target<'_> {
    /// Appends samples of one series.
    fn append(&mut self, stripe: &mut Stripe, id: u32, samples: &[(i64, u64)]) {
        let Some(owner) = stripe.series(id).map(|record| record.tenant) else {
            return self.shared.note_unknown(id, samples.len());
        };
        if self.tenant != Some(owner) {
            self.shared.put_windows(self.tenant, &mut self.cx.windows, self.arrival_ms);
            self.tenant = Some(owner);
            self.cx.set_width(self.shared.width_of(owner));
        }
        let has_starts = !stripe.open_starts(id).is_empty();
        for &(time, bits) in samples {
            if has_starts
                || stripe.append_in_order(&mut self.cx, owner, id, time, bits) == AppendOutcome::NotNewest
            {
                stripe.append(&mut self.cx, id, time, Value::Word(bits));
            }
        }
        self.applied_count += samples.len() as u64;
    }

    fn finish(mut self) {
        self.shared.put_windows(self.tenant, &mut self.cx.windows, self.arrival_ms);
        self.shared.sample_count.fetch_add(self.applied_count, Ordering::Relaxed);
    }
}

/// Returns the position of a series in its stripe.
fn position_of(id: u32) -> u32 {
    let (page, slot) = (id / PAGE_SLOTS as u32, id % PAGE_SLOTS as u32);
    page / STRIPE_COUNT as u32 * PAGE_SLOTS as u32 + slot
}

/// Returns the id of the series at a position of a stripe.
fn id_at(position: u32, stripe: usize) -> u32 {
    let (page, slot) = (position / PAGE_SLOTS as u32, position % PAGE_SLOTS as u32);
    (page * STRIPE_COUNT as u32 + stripe as u32) * PAGE_SLOTS as u32 + slot
}
