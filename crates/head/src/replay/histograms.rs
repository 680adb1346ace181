//! Native histograms of checkpoint and log, back into memory.
//!
//! Holds: what cannot be used is left out and counted; frames apply as those of floats do (`log`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronolith_base::DecodeError;
use chronolith_format::histogram::HistogramAppender;
use chronolith_format::kinds;
use chronolith_format::sealed::RECORD_OVERHEAD_BYTES;
use chronolith_format::slice::{SealedHistogramEntry, SeriesEntry};
use chronolith_format::wal::HistogramsRef;
use chronolith_model::{Histogram, TimeRange};

use super::log::{Shared, put_windows};
use crate::head::Series;
use crate::sealed::SealedPlace;
use crate::stripe::{Applied, HistogramNode, HistogramParts, Stripe, stripe_of};
use crate::windows::WindowTally;

/// Puts the histograms of an entry beside the floats of its series, which are there already.
pub(super) fn restore(
    stripe: &mut Stripe,
    series: &Series,
    entry: &SeriesEntry<'_>,
    tally: &mut WindowTally,
    missing_files: &mut BTreeSet<u32>,
    damaged_count: &mut u64,
) {
    let found = &entry.histograms;
    let mut parts = HistogramParts { open: None, late: Vec::new(), sealed: Vec::new() };
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
        match late_histograms(found.late) {
            Some(late) => {
                late.iter().for_each(|&(time, _)| tally.add(time, 1));
                parts.late = late;
            }
            None => *damaged_count += 1,
        }
    }
    stripe.restore_histograms(&series.world(), entry.id, parts);
}

/// The window of the times `first` to `last`, if they lie in one.
fn fits_window(series: &Series, first: i64, last: i64) -> bool {
    TimeRange::ALL.contains(first)
        && first <= last
        && TimeRange::window_of(first, series.window_ms).contains(last)
}

fn sealed_node(series: &Series, chunk: &SealedHistogramEntry) -> Option<HistogramNode> {
    let max_time = chunk.min_time.checked_add(i64::from(chunk.span_ms))?;
    let is_good = kinds::is_histogram(chunk.encoding) && fits_window(series, chunk.min_time, max_time);
    let record_len = u64::from(chunk.len) + RECORD_OVERHEAD_BYTES as u64;
    let fits = u64::from(chunk.offset) + record_len;
    let file = series.store.file(chunk.file).filter(|file| is_good && fits <= file.len())?;
    file.live_count.fetch_add(1, Ordering::Relaxed);
    let place = SealedPlace { file: chunk.file, offset: chunk.offset };
    let &SealedHistogramEntry { len, count, encoding, min_time, .. } = chunk;
    Some(HistogramNode { place, min_time, max_time, len, count, encoding })
}

fn open_chunk(series: &Series, encoding: u8, bytes: &[u8]) -> Option<HistogramAppender> {
    let open = HistogramAppender::resume(encoding, bytes).ok()?;
    let (first, last) = open.times();
    fits_window(series, first, last).then_some(open)
}

fn late_histograms(payload: &[u8]) -> Option<Vec<(i64, Arc<Histogram>)>> {
    let mut found = HistogramsRef::default();
    found.decode(payload).ok()?;
    let is_good = found.times.iter().all(|&time| TimeRange::ALL.contains(time))
        && found.times.is_sorted_by(|a, b| a < b);
    is_good.then(|| found.times.into_iter().zip(found.histograms).collect())
}

/// Takes all histograms of a series out of its stripe.
pub(super) fn discard(stripe: &mut Stripe, series: &Series, id: u32, tally: &mut WindowTally) {
    stripe.discard_histograms(id, |time, count, place| {
        tally.add(time, -i64::from(count));
        if let Some(place) = place {
            series.store.release(place);
        }
    });
}

/// Replays a frame of histograms.
pub(super) fn apply(payload: &[u8], sequence: u64, shared: &Shared<'_>) -> Result<(), DecodeError> {
    let mut frame = HistogramsRef::default();
    frame.decode(payload)?;
    let series = shared.series;
    let world = series.world();
    let aliases = shared.aliases.read();
    let mut tally = WindowTally::new(series.window_ms);
    let mut position = shared.positions.cursor();
    let mut tenant = None;
    let (mut unknown, mut applied_count) = (0, 0);
    let samples = frame.ids.iter().zip(&frame.times).zip(&frame.histograms);
    for ((&id, &time), histogram) in samples {
        let canonical = aliases.get(&id).copied().unwrap_or(id);
        if sequence <= position.of(canonical) {
            continue;
        }
        let mut stripe = series.stripes[stripe_of(canonical)].lock();
        let owner = stripe.hot(canonical).map(|hot| hot.tenant);
        if owner.is_none() || !TimeRange::ALL.contains(time) {
            unknown += u64::from(!shared.positions.is_known_dead(id));
            shared.unknown_end.fetch_max(id.saturating_add(1), Ordering::Relaxed);
            continue;
        }
        if tenant != owner {
            put_windows(shared, tenant, &mut tally, frame.arrival_ms);
            tenant = owner;
        }
        let applied = stripe.append_histogram(&world, &mut tally, canonical, time, histogram);
        debug_assert!(applied != Applied::Gone, "the stripe is locked");
        applied_count += 1;
    }
    put_windows(shared, tenant, &mut tally, frame.arrival_ms);
    shared.sample_count.fetch_add(applied_count + unknown, Ordering::Relaxed);
    shared.unknown_count.fetch_add(unknown, Ordering::Relaxed);
    Ok(())
}
