//! Restores native histograms from the checkpoint and the WAL.
//!
//! Invariant: unusable parts are left out and counted; frames apply as those of floats do (`log`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_base::DecodeError;
use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_format::chunk::kinds;
use chronolith_format::head::sealed::RECORD_OVERHEAD_BYTES;
use chronolith_format::head::slice::{SealedHistogramEntry, SeriesEntry};
use chronolith_format::head::wal::HistogramsRef;
use chronolith_model::{Histogram, TimeRange};

use super::log::{Shared, put_windows};
use crate::series::SeriesStore;
use crate::series::decide::AppendOutcome;
use crate::series::sealed::ChunkRef;
use crate::series::stripe::{HistogramParts, SealedHistogramChunk, Stripe};
use crate::series::windows::WindowTally;

/// Restores the histograms of an entry; the floats of its series are restored already.
pub(super) fn restore(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    missing_files: &mut BTreeSet<u32>,
    damaged_count: &mut u64,
) {
    let found = &entry.histograms;
    let mut parts = HistogramParts { open: None, ooo: Vec::new(), sealed: Vec::new() };
    for chunk in &found.sealed {
        match sealed_node(series, chunk) {
            Some(node) => {
                tally.add_chunk(node.min_time, node.max_time, i64::from(node.count));
                parts.sealed.push(node);
            }
            None => {
                missing_files.insert(chunk.file);
                *damaged_count += 1;
            }
        }
    }
    if let Some((encoding, bytes)) = found.open {
        match open_chunk(series, encoding, bytes) {
            Some(open) => {
                let (oldest, newest) = open.times();
                tally.add_chunk(oldest, newest, i64::from(open.count()));
                parts.open = Some(open);
            }
            None => *damaged_count += 1,
        }
    }
    if !found.late.is_empty() {
        match ooo_histograms(found.late) {
            Some(late) => {
                late.iter().for_each(|&(time, _)| tally.add(time, 1));
                parts.ooo = late;
            }
            None => *damaged_count += 1,
        }
    }
    stripe.restore_histograms(&series.replay_context(), entry.id, parts);
}

/// Returns true if the timestamps `first` to `last` lie in one window.
fn fits_window(series: &SeriesStore, first: i64, last: i64) -> bool {
    TimeRange::ALL.contains(first)
        && first <= last
        && TimeRange::window_of(first, series.window_ms).contains(last)
}

fn sealed_node(series: &SeriesStore, chunk: &SealedHistogramEntry) -> Option<SealedHistogramChunk> {
    let max_time = chunk.min_time.checked_add(i64::from(chunk.span_ms))?;
    let is_good = kinds::is_histogram(chunk.encoding) && fits_window(series, chunk.min_time, max_time);
    let record_len = u64::from(chunk.len) + RECORD_OVERHEAD_BYTES as u64;
    let fits = u64::from(chunk.offset) + record_len;
    let file = series.store.file(chunk.file).filter(|file| is_good && fits <= file.len())?;
    file.live_count.fetch_add(1, Ordering::Relaxed);
    let chunk_ref = ChunkRef { file: chunk.file, offset: chunk.offset };
    let &SealedHistogramEntry { len, count, encoding, min_time, .. } = chunk;
    Some(SealedHistogramChunk { chunk_ref, min_time, max_time, len, count, encoding })
}

fn open_chunk(series: &SeriesStore, encoding: u8, bytes: &[u8]) -> Option<HistogramAppender> {
    let open = HistogramAppender::resume(encoding, bytes).ok()?;
    let (first, last) = open.times();
    fits_window(series, first, last).then_some(open)
}

fn ooo_histograms(payload: &[u8]) -> Option<Vec<(i64, Arc<Histogram>)>> {
    let mut found = HistogramsRef::default();
    found.decode(payload).ok()?;
    let is_good = found.times.iter().all(|&time| TimeRange::ALL.contains(time))
        && found.times.is_sorted_by(|a, b| a < b);
    is_good.then(|| found.times.into_iter().zip(found.histograms).collect())
}

/// Removes all histograms of a series from its stripe.
pub(super) fn discard(stripe: &mut Stripe, series: &SeriesStore, id: u32, tally: &mut WindowTally) {
    stripe.discard_histograms(id, |time, count, chunk_ref| {
        tally.add(time, -i64::from(count));
        if let Some(chunk_ref) = chunk_ref {
            series.store.release(chunk_ref);
        }
    });
}

/// Replays a frame of histograms.
pub(super) fn apply(payload: &[u8], sequence: u64, shared: &Shared<'_>) -> Result<(), DecodeError> {
    let mut frame = HistogramsRef::default();
    frame.decode(payload)?;
    let series = shared.series;
    let mut cx = series.replay_context();
    let aliases = shared.aliases.read();
    let mut position = shared.positions.cursor();
    let mut tenant = None;
    let (mut unknown, mut applied_count) = (0, 0);
    let samples = frame.ids.iter().zip(&frame.times).zip(&frame.histograms);
    for ((&id, &time), histogram) in samples {
        let canonical = aliases.get(&id).copied().unwrap_or(id);
        if sequence <= position.of(canonical) {
            continue;
        }
        let mut stripe = series.lock(canonical);
        let owner = stripe.series(canonical).map(|record| record.tenant);
        if owner.is_none() || !TimeRange::ALL.contains(time) {
            unknown += u64::from(!shared.positions.is_known_dead(id));
            shared.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
            continue;
        }
        if tenant != owner {
            put_windows(shared, tenant, &mut cx.windows, frame.arrival_ms);
            tenant = owner;
        }
        let outcome = stripe.append_histogram(&mut cx, canonical, time, histogram);
        debug_assert!(outcome != AppendOutcome::SeriesGone, "the stripe is locked");
        applied_count += 1;
    }
    put_windows(shared, tenant, &mut cx.windows, frame.arrival_ms);
    shared.sample_count.fetch_add(applied_count + unknown, Ordering::Relaxed);
    shared.unknown_count.fetch_add(unknown, Ordering::Relaxed);
    Ok(())
}
