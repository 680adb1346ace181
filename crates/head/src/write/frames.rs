//! WAL frames for the samples of one stripe.
//!
//! Invariant: replaying the frames yields the state of memory: floats, histograms and start times are queued
//! in an order in which a sample that replaces one of another kind follows it.

use chronolith_format::head::wal::{self, HistogramsWriter};

use super::job::{AppendJob, AppendScratch};

/// Samples of one WAL frame; more make several frames.
const FRAME_SAMPLES_MAX: usize = 1 << 18;
/// Bytes of a histogram frame at which the next one is begun: one more histogram always fits.
const FRAME_BYTES_FULL: usize = 4 << 20;
/// Upper bound of an encoded histogram: 2^16 buckets and spans per sign and 2^16 bounds, at most ten bytes
/// per number.
const HISTOGRAM_BYTES_MAX: usize = 7 << 20;
/// Upper bound of an encoded start time: three numbers of 64 bits.
const START_BYTES_MAX: usize = 30;

const _: () = assert!(FRAME_SAMPLES_MAX * 24 < wal::FRAME_PAYLOAD_BYTES_MAX);
const _: () = assert!(FRAME_BYTES_FULL + HISTOGRAM_BYTES_MAX < wal::FRAME_PAYLOAD_BYTES_MAX);
const _: () = assert!(FRAME_SAMPLES_MAX * START_BYTES_MAX + 10 < wal::FRAME_PAYLOAD_BYTES_MAX);

/// Queues the frames of all pending samples.
pub(super) fn queue_frames(job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
    // Start times precede their samples: a torn tail leaves at most a start time, which the retried sample
    // brings again.
    queue_starts(job, scratch, stripe_idx);
    queue_floats(job, scratch, stripe_idx);
    queue_histograms(job, scratch, stripe_idx);
}

/// Queues the frames of the pending floats.
pub(super) fn queue_floats(job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
    let columns = scratch.sample_ids.chunks(FRAME_SAMPLES_MAX).zip(scratch.times.chunks(FRAME_SAMPLES_MAX));
    for ((ids, times), values) in columns.zip(scratch.values.chunks(FRAME_SAMPLES_MAX)) {
        wal::encode_samples(job.now_ms, ids, times, values, &mut scratch.payload);
        job.state.wal.append(wal::KIND_SAMPLES, stripe_idx as u8, &scratch.payload);
    }
    scratch.sample_ids.clear();
    scratch.times.clear();
    scratch.values.clear();
}

/// Queues the frames of the pending histograms.
pub(super) fn queue_histograms(job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
    if scratch.histograms.is_empty() {
        return;
    }
    let batch = job.batch;
    let mut waiting = std::mem::take(&mut scratch.histograms);
    let mut rest = waiting.iter().peekable();
    while rest.peek().is_some() {
        let mut writer = HistogramsWriter::begin(job.now_ms, &mut scratch.payload);
        while writer.byte_len() < FRAME_BYTES_FULL
            && let Some(&(id, at)) = rest.next()
        {
            let found = batch.histograms.binary_search_by_key(&at, |(idx, _)| *idx);
            let (_, histogram) = &batch.histograms[found.expect("only histograms are pending")];
            writer.put(id, batch.times[at as usize], histogram);
        }
        job.state.wal.append(wal::KIND_HISTOGRAMS, stripe_idx as u8, &scratch.payload);
    }
    waiting.clear();
    scratch.histograms = waiting;
}

/// Queues the frames of the pending start times.
pub(super) fn queue_starts(job: &AppendJob<'_>, scratch: &mut AppendScratch, stripe_idx: usize) {
    for entries in scratch.starts.chunks(FRAME_SAMPLES_MAX) {
        wal::encode_starts(entries, &mut scratch.payload);
        job.state.wal.append(wal::KIND_STARTS, stripe_idx as u8, &scratch.payload);
    }
    scratch.starts.clear();
}
