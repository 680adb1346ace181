//! Restores one series from its entry in a checkpoint slice, and discards a series that was restored.
//!
//! Invariant: a part that is not usable (a chunk outside of its file or window, bytes that do not decode) is
//! left out and counted; the other parts are restored.

use std::collections::BTreeSet;

use chronolith_base::ByteReader;
use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::{self, StartRun};
use chronolith_format::head::sealed::RECORD_OVERHEAD_BYTES;
use chronolith_format::head::slice::{OpenChunk, SealedEntry, SeriesEntry, decode_ooo};
use chronolith_format::head::wal::Samples;
use chronolith_model::TimeRange;

use crate::series::SeriesStore;
use crate::series::sealed_chunks::ChunkRef;
use crate::series::sealed_chunks::{ChunkMeta, SealedChunk, max_time_of, split_stored_count};
use crate::series::stripe::{OooSample, Stripe};
use crate::series::value::{HISTOGRAM_BITS, LoggedValues};
use crate::series::windows::WindowTally;

/// Parts of entries that are not usable.
#[derive(Default)]
pub(super) struct Damage {
    /// Sealed files that entries refer to and that do not exist, or are too short.
    pub(super) missing_files: BTreeSet<u32>,
    pub(super) count: u64,
}

/// Adds an entry to its series, which is in the stripe; `samples` is scratch memory.
pub(super) fn restore(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    damage: &mut Damage,
    samples: &mut Samples,
) {
    restore_open_words(stripe, entry, tally, damage);
    restore_sealed(stripe, series, entry, tally, damage);
    restore_open_histograms(stripe, series, entry, tally, damage);
    restore_ooo(stripe, series, entry, tally, damage, samples);
    if let Some(runs) = start_runs(entry.open_starts, damage) {
        stripe.restore_open_starts(entry.id, &runs);
    }
    if let Some(runs) = start_runs(entry.old_starts, damage) {
        stripe.restore_old_starts(&series.replay_context_for(tally.width()), entry.id, &runs);
    }
}

/// Decodes start timestamps; `None` if there are none.
fn start_runs(bytes: &[u8], damage: &mut Damage) -> Option<Vec<StartRun>> {
    if bytes.is_empty() {
        return None;
    }
    let mut runs = Vec::new();
    let decoded = starts::decode(&mut ByteReader::new(bytes), &mut runs);
    damage.count += u64::from(decoded.is_err());
    decoded.is_ok().then_some(runs)
}

fn restore_sealed(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    damage: &mut Damage,
) {
    for chunk in &entry.sealed {
        let &SealedEntry { min_time, span, len, encoding, .. } = chunk;
        let chunk_ref = ChunkRef::new(chunk.file, chunk.offset);
        let max_time = max_time_of(min_time, span, chunk.count);
        let (count, order) = split_stored_count(chunk.count);
        let meta = ChunkMeta::in_order(encoding, count, min_time, max_time, len as usize).with_order(order);
        let node = SealedChunk::new(chunk_ref, &meta).filter(|node| fits_sealed(tally, node));
        let end = u64::from(chunk.offset) + u64::from(len) + RECORD_OVERHEAD_BYTES as u64;
        let file = series.store.file(chunk.file).filter(|file| end <= file.len());
        let (Some(file), Some(node)) = (file, node) else {
            damage.missing_files.insert(chunk.file);
            damage.count += 1;
            continue;
        };
        file.add_reference();
        tally.add_chunk(min_time, max_time, i64::from(count));
        stripe.link_sealed(entry.id, node);
        if kinds::is_histogram(encoding) && !node.is_bound() {
            // Entries of earlier versions have the last word, but not the last histogram; nor have they
            // chunks of which only a bound is known.
            stripe.restore_last(entry.id, max_time, HISTOGRAM_BITS);
        }
    }
}

fn restore_open_words(
    stripe: &mut Stripe,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    damage: &mut Damage,
) {
    stripe.with_open_words(entry.id, |record, buffers, _| {
        record.end_open(buffers);
        record.set_newest(entry.last);
    });
    for chunk in &entry.open {
        match *chunk {
            OpenChunk::Words(state, first, bytes) if fits_window(tally, first, state.time()) => {
                tally.add_chunk(first, state.time(), i64::from(state.count()));
                let window_end = tally.window_of(first).end;
                stripe.with_open_words(entry.id, |record, buffers, _| {
                    record.restore_open(buffers, state, bytes, first, window_end);
                });
            }
            OpenChunk::Words(..) => damage.count += 1,
            OpenChunk::Histograms(..) => {}
        }
    }
}

fn restore_open_histograms(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    damage: &mut Damage,
) {
    for chunk in &entry.open {
        let OpenChunk::Histograms(encoding, bytes) = *chunk else { continue };
        let resumed = HistogramAppender::resume(encoding, bytes).ok();
        match resumed.filter(|open| fits_window(tally, open.times().0, open.times().1)) {
            Some(open) => {
                tally.add_chunk(open.times().0, open.times().1, i64::from(open.count()));
                stripe.restore_open_histograms(&series.replay_context_for(tally.width()), entry.id, open);
            }
            None => damage.count += 1,
        }
    }
}

fn restore_ooo(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    damage: &mut Damage,
    samples: &mut Samples,
) {
    let decoded = decode_ooo(entry, samples);
    if decoded.is_err() || !samples.times.iter().all(|&time| TimeRange::ALL.contains(time)) {
        damage.count += 1;
        return;
    }
    if samples.times.is_empty() {
        return;
    }
    samples.times.iter().for_each(|&time| tally.add(time, 1));
    let mut values = LoggedValues::new(samples);
    let sample = |(idx, &time): (usize, &i64)| {
        let start_ms = samples.start_times.get(idx).copied().unwrap_or(0);
        Some(OooSample::new(time, values.get(idx)?.to_owned(), start_ms, samples.duplicates))
    };
    let mut ooo: Vec<OooSample> = samples.times.iter().enumerate().filter_map(sample).collect();
    ooo.sort_by_key(OooSample::time);
    stripe.restore_ooo(&series.replay_context_for(tally.width()), entry.id, ooo);
}

/// Ends the restore of a series with out-of-order samples, after all of its entries.
pub(super) fn finish(stripe: &mut Stripe, series: &SeriesStore, id: u32, tally: &mut WindowTally) {
    let mut cx = series.replay_context_for(tally.width());
    stripe.finish_restore(&mut cx, id);
    tally.merge(&mut cx.windows);
}

/// Returns true if the timestamps `first` to `last` lie in one window.
fn fits_window(tally: &WindowTally, first: i64, last: i64) -> bool {
    TimeRange::ALL.contains(first) && first <= last && tally.window_of(first).contains(last)
}

/// Returns true if a sealed chunk lies in one window; the bound of its last timestamp may be after it.
fn fits_sealed(tally: &WindowTally, node: &SealedChunk) -> bool {
    let first = node.min_time();
    let mut last = node.max_time();
    if node.is_bound() {
        last = last.min(tally.window_of(first).end.saturating_sub(1));
    }
    fits_window(tally, first, last)
}

/// Removes a series with all its samples from its stripe.
pub(super) fn discard(stripe: &mut Stripe, series: &SeriesStore, id: u32, tally: &mut WindowTally) {
    stripe.discard(id, |time, count, chunk_ref| {
        tally.add(time, -i64::from(count));
        if let Some(chunk_ref) = chunk_ref {
            series.store.release(chunk_ref);
        }
    });
}
