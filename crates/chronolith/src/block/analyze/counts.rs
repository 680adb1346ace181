//! Counters of one block by label, metric and encoding.
//!
//! Invariant: every series is counted once.

use std::collections::BTreeMap;

use chronolith_base::hash::HashMap;
use chronolith_block::ChunkStats;
use chronolith_model::Labels;

/// Most samples per chunk of each bucket of the histogram of chunk lengths, ascending; the last one has all
/// that are longer. 120 is where Prometheus cuts.
pub(super) const CHUNK_SAMPLES_MAX: [u64; 10] = [1, 10, 30, 60, 90, 119, 120, 240, 480, u64::MAX];

/// Series, chunks, samples and bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) series: u64,
    pub(super) chunks: u64,
    pub(super) samples: u64,
    pub(super) bytes: u64,
}

impl Cost {
    fn add_chunks(&mut self, chunks: &[ChunkStats]) {
        self.series += 1;
        self.chunks += chunks.len() as u64;
        self.samples += chunks.iter().map(|chunk| chunk.sample_count).sum::<u64>();
        self.bytes += chunks.iter().map(|chunk| chunk.data_bytes).sum::<u64>();
    }

    /// Bytes per sample; 0 without samples.
    pub(super) fn bytes_per_sample(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.bytes as f64 / self.samples as f64 }
    }
}

/// Counters of a label name or of a label pair.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LabelCount {
    /// Series that have it.
    pub(super) series: u64,
    /// Sum over them of the ticks from their first to their last sample.
    pub(super) covered: u64,
}

/// Counters of one label name.
#[derive(Debug, Default, Clone)]
pub(super) struct NameCount {
    pub(super) count: LabelCount,
    pub(super) values: HashMap<String, LabelCount>,
}

/// Counters of one block.
#[derive(Debug, Default)]
pub(super) struct BlockCounts {
    pub(super) series: u64,
    pub(super) total: Cost,
    pub(super) names: BTreeMap<String, NameCount>,
    /// By metric name.
    pub(super) metrics: HashMap<String, Cost>,
    /// Cost by encoding byte; the number of series counts series with a chunk of the encoding.
    pub(super) encodings: BTreeMap<u8, Cost>,
    /// Chunks by their number of samples, see [`CHUNK_SAMPLES_MAX`].
    pub(super) chunk_lengths: [u64; CHUNK_SAMPLES_MAX.len()],
}

impl BlockCounts {
    /// Counts a series and its chunks, which are in order of time.
    pub(super) fn add_series(&mut self, labels: &Labels, chunks: &[ChunkStats]) {
        self.series += 1;
        self.total.add_chunks(chunks);
        let covered = covered_ticks(chunks);
        for (name, value) in labels.iter() {
            let names = &mut self.names;
            let of_name = match names.get_mut(name) {
                Some(found) => found,
                None => names.entry(name.to_owned()).or_default(),
            };
            of_name.count.series += 1;
            of_name.count.covered += covered;
            let of_value = match of_name.values.get_mut(value) {
                Some(found) => found,
                None => of_name.values.entry(value.to_owned()).or_default(),
            };
            of_value.series += 1;
            of_value.covered += covered;
        }
        let metric = labels.metric_name().unwrap_or_default();
        match self.metrics.get_mut(metric) {
            Some(cost) => cost.add_chunks(chunks),
            None => self.metrics.entry(metric.to_owned()).or_default().add_chunks(chunks),
        }
        self.add_encodings(chunks);
    }

    fn add_encodings(&mut self, chunks: &[ChunkStats]) {
        for (idx, chunk) in chunks.iter().enumerate() {
            let cost = self.encodings.entry(chunk.encoding).or_default();
            let is_first = !chunks.iter().take(idx).any(|before| before.encoding == chunk.encoding);
            cost.series += u64::from(is_first);
            cost.chunks += 1;
            cost.samples += chunk.sample_count;
            cost.bytes += chunk.data_bytes;
            let bucket_idx = CHUNK_SAMPLES_MAX.partition_point(|&max| max < chunk.sample_count);
            if let Some(count) = self.chunk_lengths.get_mut(bucket_idx) {
                *count += 1;
            }
        }
    }
}

/// Ticks from the first to the last sample.
fn covered_ticks(chunks: &[ChunkStats]) -> u64 {
    match (chunks.first(), chunks.last()) {
        (Some(first), Some(last)) => (last.range.end - 1).saturating_sub(first.range.start).unsigned_abs(),
        _ => 0,
    }
}
