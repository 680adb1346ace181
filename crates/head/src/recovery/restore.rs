//! Restores one series from its entry in a checkpoint slice, and discards a series that was restored.
//!
//! Invariant: a part that is not usable (a chunk outside of its file or window, bytes that do not decode) is
//! left out and counted; the other parts are restored.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use chronolith_base::ByteReader;
use chronolith_format::chunk::histogram::HistogramAppender;
use chronolith_format::chunk::xor::{ENCODING_XOR, XorState};
use chronolith_format::chunk::{kinds, starts};
use chronolith_format::head::sealed::RECORD_OVERHEAD_BYTES;
use chronolith_format::head::slice::{OpenChunk, SealedEntry, SeriesEntry, decode_ooo};
use chronolith_format::head::wal::Samples;
use chronolith_model::TimeRange;

use crate::series::SeriesStore;
use crate::series::chunk_buffer::ChunkBuffer;
use crate::series::sealed::ChunkRef;
use crate::series::stripe::{
    HistogramParts, NONE, OooSample, SampleValue, SealedChunk, SealedHistogramChunk, Stripe,
};
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
    let mut histograms = HistogramParts { open: None, ooo: Vec::new(), sealed: Vec::new() };
    restore_sealed(stripe, series, entry, &mut histograms, tally, damage);
    restore_open(stripe, series, entry, &mut histograms, tally, damage);
    let has_histograms = histograms.open.is_some() || !histograms.sealed.is_empty();
    // Those of an earlier entry of the series count as well: they keep floats off the fast path.
    if has_histograms || stripe.histograms_of(entry.id).is_some() {
        stripe.restore_histograms(&series.replay_context(), entry.id, histograms);
    }
    restore_ooo(stripe, series, entry, tally, damage, samples);
    if !entry.starts.is_empty() {
        let mut runs = Vec::new();
        match starts::decode(&mut ByteReader::new(entry.starts), &mut runs) {
            Ok(()) => stripe.restore_starts(entry.id, &runs),
            Err(_) => damage.count += 1,
        }
    }
}

fn restore_sealed(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    histograms: &mut HistogramParts,
    tally: &mut WindowTally,
    damage: &mut Damage,
) {
    let Some(mut sealed) = stripe.series(entry.id).map(|record| record.sealed) else { return };
    for chunk in &entry.sealed {
        let &SealedEntry { min_time, span_ms, len, count, encoding, .. } = chunk;
        let chunk_ref = ChunkRef { file: chunk.file, offset: chunk.offset };
        let max_time = min_time.saturating_add(i64::from(span_ms));
        let float_len = u16::try_from(len).ok().filter(|_| encoding == ENCODING_XOR);
        let is_known = float_len.is_some() || kinds::is_histogram(encoding);
        let end = u64::from(chunk.offset) + u64::from(len) + RECORD_OVERHEAD_BYTES as u64;
        let file = series.store.file(chunk.file).filter(|file| end <= file.len());
        let Some(file) = file.filter(|_| is_known && fits_window(series, min_time, max_time)) else {
            damage.missing_files.insert(chunk.file);
            damage.count += 1;
            continue;
        };
        file.live_count.fetch_add(1, Ordering::Relaxed);
        tally.add_chunk(min_time, max_time, i64::from(count));
        if let Some(len) = float_len {
            let node = SealedChunk::restored(chunk_ref, min_time, span_ms, len, count);
            sealed = stripe.sealed_chunks.push(node, sealed);
        } else {
            let node = SealedHistogramChunk { chunk_ref, min_time, max_time, len, count, encoding };
            histograms.sealed.push(node);
        }
    }
    if let Some(record) = stripe.series_mut(entry.id) {
        record.sealed = sealed;
    }
}

fn restore_open(
    stripe: &mut Stripe,
    series: &SeriesStore,
    entry: &SeriesEntry<'_>,
    histograms: &mut HistogramParts,
    tally: &mut WindowTally,
    damage: &mut Damage,
) {
    let mut state = entry.last.map_or(XorState::new(), |(time, value)| XorState::ended(time, value));
    let (mut open, mut open_min, mut window_end) = (ChunkBuffer::NONE, 0, 0);
    for chunk in &entry.open {
        match *chunk {
            OpenChunk::Xor(resumed, first, bytes) if fits_window(series, first, resumed.time()) => {
                open = stripe.chunk_buffers.store(bytes);
                tally.add_chunk(first, resumed.time(), i64::from(resumed.count()));
                window_end = TimeRange::window_of(first, series.window_ms).end;
                (state, open_min) = (resumed, first);
            }
            OpenChunk::Xor(..) => damage.count += 1,
            OpenChunk::Histograms(encoding, bytes) => {
                let resumed = HistogramAppender::resume(encoding, bytes).ok();
                let times = |chunk: &HistogramAppender| chunk.times();
                match resumed.filter(|chunk| fits_window(series, times(chunk).0, times(chunk).1)) {
                    Some(chunk) => {
                        tally.add_chunk(times(&chunk).0, times(&chunk).1, i64::from(chunk.count()));
                        histograms.open = Some(chunk);
                    }
                    None => damage.count += 1,
                }
            }
        }
    }
    if let Some(record) = stripe.series_mut(entry.id) {
        (record.xor, record.open, record.open_min, record.window_end) = (state, open, open_min, window_end);
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
    let duplicates = samples.duplicates;
    let mut histograms = samples.histograms.drain(..).peekable();
    let words = samples.times.iter().zip(&samples.values).enumerate();
    let mut ooo: Vec<OooSample> = words
        .map(|(at, (&time, &bits))| {
            let histogram = histograms.next_if(|(idx, _)| *idx as usize == at);
            let value = histogram.map_or(SampleValue::Word(bits), |(_, one)| SampleValue::Histogram(one));
            OooSample { time, value, duplicates }
        })
        .collect();
    ooo.sort_by_key(|sample| sample.time);
    stripe.restore_ooo(&series.replay_context(), entry.id, ooo);
}

/// Returns true if the timestamps `first` to `last` lie in one window.
fn fits_window(series: &SeriesStore, first: i64, last: i64) -> bool {
    TimeRange::ALL.contains(first)
        && first <= last
        && TimeRange::window_of(first, series.window_ms).contains(last)
}

/// Removes a series with all its samples from its stripe.
pub(super) fn discard(stripe: &mut Stripe, series: &SeriesStore, id: u32, tally: &mut WindowTally) {
    let Some(record) = stripe.series(id).cloned() else { return };
    stripe.discard_histograms(id, |time, count, chunk_ref| {
        tally.add(time, -i64::from(count));
        if let Some(chunk_ref) = chunk_ref {
            series.store.release(chunk_ref);
        }
    });
    stripe.discard_ooo(id).iter().for_each(|sample| tally.add(sample.time, -1));
    stripe.sealed_chunks.remove(record.sealed, |node| {
        tally.add(node.min_time, -i64::from(node.count));
        series.store.release(node.chunk_ref);
        true
    });
    if !record.open.is_none() {
        tally.add(record.open_min, -i64::from(record.xor.count()));
        stripe.chunk_buffers.free(record.open);
    }
    if let Some(record) = stripe.series_mut(id) {
        (record.open, record.sealed) = (ChunkBuffer::NONE, NONE);
    }
    stripe.remove(id);
}
