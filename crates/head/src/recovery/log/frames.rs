//! Replay of frames of samples and deletions under the lock of their stripe.
//!
//! Invariants: the frames of a stripe are applied in the order of the log, but for samples that do not depend
//! on their order (`by_series`); samples that a slice of the checkpoint has already are not applied again.
//! Not here: reading blocks (the parent), threads (`workers`).

use std::sync::atomic::Ordering;

use chronolith_format::head::wal::{
    DeletesRef, FrameRef, KIND_DELETES, KIND_SAMPLES, Samples, decode_samples, is_samples,
};
use chronolith_model::{TimeRange, TimeUnit};
use chronolith_wal::{FrameBlock, Segment};

use super::by_series::BySeries;
use super::shared::{SegmentBlock, Shared};
use crate::series::decide::AppendOutcome;
use crate::series::stripe::stripe_of;
use crate::series::value::{LoggedValues, Sample};

/// Scratch memory of a worker.
#[derive(Default)]
pub(super) struct Scratch {
    samples: Samples,
    by_series: BySeries,
}

/// Replays the frames of the stripes that are `worker` modulo `worker_count`, one stripe after the other.
pub(super) fn replay_blocks(
    blocks: &[SegmentBlock],
    segments: &[Segment],
    shared: &Shared<'_>,
    worker: usize,
    worker_count: usize,
    scratch: &mut Scratch,
) {
    if !shared.aliases.read().is_empty() {
        for (block, segment) in blocks {
            replay_in_log_order(block, &segments[*segment], shared, worker, worker_count, scratch);
        }
        return;
    }
    let mut frames: Vec<(&SegmentBlock, &FrameRef)> = Vec::new();
    for block in blocks {
        let is_mine = |f: &&FrameRef| usize::from(f.header.stripe) % worker_count == worker;
        frames.extend(block.0.frames.iter().filter(is_mine).map(|frame| (block, frame)));
    }
    // Stable: the frames of a stripe stay in the order of the log.
    frames.sort_by_key(|(_, frame)| frame.header.stripe);
    for run in frames.chunk_by(|a, b| a.1.header.stripe == b.1.header.stripe) {
        for &((block, segment), frame) in run {
            if frame.header.sequence > shared.positions.oldest {
                let Scratch { samples, by_series } = scratch;
                replay_frame(block, frame, &segments[*segment], shared, samples, Some(by_series));
            }
        }
        scratch.by_series.apply(shared);
    }
    write_sealed(shared);
}

/// As [`replay_blocks`] with all frames in the order of the log: frames of a series with two ids may lie in
/// two stripes.
fn replay_in_log_order(
    block: &FrameBlock,
    segment: &Segment,
    shared: &Shared<'_>,
    worker: usize,
    worker_count: usize,
    scratch: &mut Scratch,
) {
    let is_mine = |f: &&FrameRef| {
        let is_due = f.header.sequence > shared.positions.oldest;
        is_due && usize::from(f.header.stripe) % worker_count == worker
    };
    for frame in block.frames.iter().filter(is_mine) {
        // A batch applies samples under the ids of the log, not those that replace them.
        replay_frame(block, frame, segment, shared, &mut scratch.samples, None);
    }
    write_sealed(shared);
}

/// Applies a frame, or adds its samples to the batch if there is one.
fn replay_frame(
    block: &FrameBlock,
    frame: &FrameRef,
    segment: &Segment,
    shared: &Shared<'_>,
    samples: &mut Samples,
    mut by_series: Option<&mut BySeries>,
) {
    let (payload, sequence) = (block.payload(frame), frame.header.sequence);
    let outcome = match frame.header.kind {
        kind if is_samples(kind) => decode_samples(kind, payload, samples).map(|()| {
            if kind != KIND_SAMPLES {
                shared.join_old_starts(samples);
            }
            let is_added = by_series.as_mut().is_some_and(|batch| batch.add(samples, sequence, shared));
            if !is_added {
                by_series.iter_mut().for_each(|batch| batch.apply(shared));
                apply_samples(samples, sequence, shared);
            }
        }),
        KIND_DELETES => DeletesRef::decode(payload).map(|deletes| {
            by_series.iter_mut().for_each(|batch| batch.apply(shared));
            apply_deletes(&deletes, sequence, shared);
        }),
        // Series records are applied by the reader, kinds of later versions are ignored.
        _ => Ok(()),
    };
    if let Err(error) = outcome {
        let (path, offset) = (segment.path.display(), block.offset + frame.payload.start as u64);
        shared.notes.lock().push(format!("{path}: frame at offset {offset}: {error}"));
    }
}

fn write_sealed(shared: &Shared<'_>) {
    if let Err(error) = shared.series.store.write_if_many() {
        *shared.failure.lock() = Some(error);
    }
}

/// Appends the samples of a frame under the duplicate policy under which they were accepted: samples that a
/// slice has beyond its position are duplicates here.
fn apply_samples(samples: &Samples, sequence: u64, shared: &Shared<'_>) {
    let series = shared.series;
    let mut cx = series.context(TimeUnit::Milli, samples.duplicates);
    // Duplicates that are not looked up cost memory until their window is flushed, but are not wrong.
    let mut lookups_left = u32::try_from(samples.ids.len()).unwrap_or(u32::MAX);
    let aliases = shared.aliases.read();
    let mut tenant = None;
    let mut applied_count = 0;
    let mut at = 0;
    let mut values = LoggedValues::new(samples);
    let target = |id: u32| if aliases.is_empty() { id } else { aliases.get(&id).copied().unwrap_or(id) };
    let mut position = shared.positions.cursor();
    while let Some(&first) = samples.ids.get(at) {
        let stripe_idx = stripe_of(target(first));
        let mut stripe = series.stripes()[stripe_idx].lock();
        while let Some(&id) = samples.ids.get(at) {
            let canonical = target(id);
            if stripe_of(canonical) != stripe_idx {
                break;
            }
            let idx = at;
            let (time, value) = (samples.times[idx], values.get(idx));
            at += 1;
            // Samples in the slice of the series are not applied again: later frames that the slice also
            // covers would not follow to revert a change made here.
            let slice = position.slice_of(canonical);
            if sequence <= slice.sequence {
                continue;
            }
            let owner = stripe.series(canonical).map(|record| record.tenant);
            if owner.is_none() || !TimeRange::ALL.contains(time) {
                shared.note_unknown(id, usize::from(value.is_some()));
                continue;
            }
            if let Some(new) = owner
                && tenant != owner
            {
                shared.put_windows(tenant, &mut cx.windows, samples.arrival_ms);
                cx.set_width(shared.width_of(new));
                tenant = owner;
            }
            let start_ms = samples.start_times.get(idx).copied().unwrap_or(0);
            let Some(value) = value else {
                // A frame of start timestamps alone, of an earlier version: the sample is in the next frame,
                // or a duplicate under last-wins.
                stripe.set_start(&mut cx, canonical, time, start_ms);
                continue;
            };
            // Only samples that were appended while the slice was copied may be in it already.
            let is_looked_up = sequence <= slice.copied_until;
            cx.lookups_left = if is_looked_up { lookups_left } else { 0 };
            let outcome = stripe.append_sample(&mut cx, canonical, Sample { time, value, start_ms });
            if is_looked_up {
                lookups_left = cx.lookups_left;
            }
            debug_assert!(outcome != AppendOutcome::SeriesGone, "the stripe is locked");
            applied_count += 1;
        }
    }
    shared.put_windows(tenant, &mut cx.windows, samples.arrival_ms);
    shared.sample_count.fetch_add(applied_count, Ordering::Relaxed);
}

/// Deletes at the same point of the order as when the frame was written.
fn apply_deletes(deletes: &DeletesRef, sequence: u64, shared: &Shared<'_>) {
    let series = shared.series;
    let mut cx = series.replay_context(TimeUnit::Milli);
    let aliases = shared.aliases.read();
    let mut position = shared.positions.cursor();
    for &id in &deletes.ids {
        let id = aliases.get(&id).copied().unwrap_or(id);
        if sequence <= position.of(id) {
            continue;
        }
        let mut stripe = series.lock(id);
        // An unknown series has lost its record, or left the head with all its samples.
        let Some(tenant) = stripe.series(id).map(|record| record.tenant) else { continue };
        cx.set_width(shared.width_of(tenant));
        stripe.erase(&mut cx, id, deletes.range);
        shared.put_windows(Some(tenant), &mut cx.windows, i64::MAX);
    }
}
