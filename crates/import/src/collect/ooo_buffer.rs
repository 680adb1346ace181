//! Samples that do not fit the open chunks: out-of-order ones, histograms, and floats of ranges without an
//! open block. They are buffered up to a limit, then sorted and written to blocks of their own.
//!
//! Invariant: among samples of one series with the same timestamp, the first to arrive is returned.
//! Not here: choice of the samples (`sample::decide`), writing them (`collect`).

use chronolith_model::{Columns, TimeRange};

use super::sample::Sample;
use crate::write::report::SkippedSamples;

/// Bytes of buffered samples at which they are written.
const BUFFER_BYTES_MAX: usize = 80 << 20;

/// A sample that arrived out of order, with its series.
#[derive(Debug)]
pub(super) struct BufferedSample {
    pub(super) series: u32,
    pub(super) sample: Sample,
}

/// Samples in order of arrival.
#[derive(Default)]
pub(super) struct OooBuffer {
    samples: Vec<BufferedSample>,
    bytes: usize,
}

impl OooBuffer {
    pub(super) fn push(&mut self, series: u32, sample: Sample) {
        self.bytes += size_of::<BufferedSample>() + sample.heap_bytes();
        self.samples.push(BufferedSample { series, sample });
    }

    /// Adds all samples of `columns`.
    pub(super) fn extend(&mut self, series: u32, columns: &Columns) {
        for idx in 0..columns.len() {
            self.push(series, Sample::of_columns(columns, idx));
        }
    }

    /// Returns true if the samples have to be written.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BUFFER_BYTES_MAX
    }

    /// Takes all samples, in order of arrival.
    pub(super) fn take(&mut self) -> Vec<BufferedSample> {
        self.bytes = 0;
        std::mem::take(&mut self.samples)
    }
}

/// Sorts `samples` by range, position of the series and time; removes and counts duplicates.
pub(super) fn sort_and_dedup(
    samples: &mut Vec<BufferedSample>,
    range_of: impl Fn(i64) -> TimeRange,
    positions: &[u32],
    skipped: &mut SkippedSamples,
) {
    // The sort is stable, so that the sample that arrived first comes first.
    samples.sort_by_cached_key(|BufferedSample { series, sample }| {
        (range_of(sample.time).start, positions[*series as usize], sample.time)
    });
    samples.dedup_by(|next, first| {
        let is_duplicate = (next.series, next.sample.time) == (first.series, first.sample.time);
        if is_duplicate {
            let is_same = next.sample.value.is_same(&first.sample.value);
            skipped.repeated += u64::from(is_same);
            skipped.conflicting += u64::from(!is_same);
        }
        is_duplicate
    });
}
