//! Encoder of samples to chunks of a block being written, in the block's encoding.
//!
//! Invariant: series with the same times (usually of one scrape target) have them once per segment, if the
//! encoding supports it; a chunk refers to times only in its own segment, and to a chunk that has its own.
//! Memory: 24 bytes for each distinct column of times of a segment, at most 6 MiB.
//! Not here: the choice of samples (`compact`, `tsdb`), chunk bytes (`format`).

use std::sync::Arc;

use chronolith_base::hash::{HashMap, HashSet};
use chronolith_format::block::chunks::ChunkRef;
use chronolith_format::chunk::RawChunk;
use chronolith_format::chunk::dense::{self, ChunkTimes, DenseScratch, PackedChunk};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::{self, StartRun};
use chronolith_format::chunk::xor;
use chronolith_model::{BlockEncoding, TimeUnit, WordKind};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{BlockWriter, ChunkView};
use crate::BlockError;

/// Samples of a dense chunk at most: beyond it chunks hardly shrink, and a read of a few minutes decodes more
/// than it needs (4096 samples: 10 us).
///
/// PERF: `cargo bench -p chronolith-format --bench dense_speed`, bytes per sample of the regular
/// mix: 0.553 with 1024 samples, 0.534 with 2048, 0.528 with 4096, 0.524 with 8192.
pub(crate) const DENSE_SAMPLES_MAX: usize = 4096;
/// Times that take fewer bytes are written again: times of a steady scrape take about ten.
const SHARED_TIMES_BYTES_MIN: usize = 24;
/// Distinct columns of times that are shared; further ones are written where they occur.
const TIMES_COLUMNS_MAX: usize = 1 << 18;

const _: () = assert!(DENSE_SAMPLES_MAX <= dense::SAMPLES_MAX, "the count of a chunk is a u16");

/// Samples of a chunk, of `total` that a series has: chunks of about equal length.
pub(crate) fn chunk_samples(encoding: BlockEncoding, total: usize) -> usize {
    match encoding {
        BlockEncoding::Prometheus => xor::SAMPLES_PER_CHUNK,
        BlockEncoding::Dense => total.div_ceil(total.div_ceil(DENSE_SAMPLES_MAX).max(1)).max(1),
    }
}

/// Bytes of distinct texts of a chunk, unless it has one only: a read of one of them decodes all.
const CHUNK_TEXT_BYTES: usize = 1 << 20;

/// Encodes chunk after chunk with reused buffers.
pub(super) struct SampleEncoder {
    pub(super) encoding: BlockEncoding,
    /// Kind of the words of the current series.
    pub(super) kind: WordKind,
    scratch: DenseScratch,
    bytes: Vec<u8>,
    /// Columns of times in the current segment: their keyed hash, and the offset of the chunk that has them.
    times_offsets: HashMap<u128, u32>,
    segment_idx: u32,
    /// Secret, so that no client can make two columns collide.
    hash_seed: u64,
    times_bytes: Vec<u8>,
    /// Start times of the chunk; none if nothing is known.
    runs: Vec<StartRun>,
    /// Bytes of a chunk before start times are added.
    inner: Vec<u8>,
}

impl SampleEncoder {
    pub(super) fn new(encoding: BlockEncoding, hash_seed: u64) -> SampleEncoder {
        SampleEncoder {
            encoding,
            kind: WordKind::Float,
            scratch: DenseScratch::new(),
            bytes: Vec::new(),
            times_offsets: HashMap::default(),
            segment_idx: 0,
            hash_seed,
            times_bytes: Vec::new(),
            runs: Vec::new(),
            inner: Vec::new(),
        }
    }

    pub(super) fn set_time_unit(&mut self, unit: TimeUnit) {
        self.scratch.set_time_unit(unit);
    }

    fn key_of(&mut self, times: &[i64]) -> u128 {
        self.times_bytes.clear();
        self.times_bytes.extend(times.iter().flat_map(|time| time.to_le_bytes()));
        xxh3_128_with_seed(&self.times_bytes, self.hash_seed)
    }

    /// Returns the encoding of the current series. Integers and texts are never in encodings of Prometheus,
    /// which would read their words as floats.
    fn series_encoding(&self) -> BlockEncoding {
        match self.kind {
            WordKind::Integer | WordKind::Unsigned | WordKind::Text => BlockEncoding::Dense,
            _ => self.encoding,
        }
    }

    /// Encodes booleans without start times and returns true; false for all other words.
    fn encode_booleans(&mut self, times: &[i64], values: &[f64]) -> bool {
        self.bytes.clear();
        self.kind == WordKind::Boolean
            && self.runs.is_empty()
            && dense::encode_boolean(times, values, &mut self.scratch, &mut self.bytes)
    }

    fn encode_texts(&mut self, times: ChunkTimes<'_>, texts: &[Arc<[u8]>]) -> PackedChunk {
        self.bytes.clear();
        dense::encode_texts(times, texts, &mut self.scratch, &mut self.bytes)
    }

    fn encode(&mut self, times: ChunkTimes<'_>, values: &[f64]) -> PackedChunk {
        self.bytes.clear();
        if self.runs.is_empty() {
            let scratch = &mut self.scratch;
            let bytes = &mut self.bytes;
            return match self.kind {
                WordKind::Integer | WordKind::Unsigned => {
                    dense::encode_integers(times, values, self.kind, scratch, bytes)
                }
                _ => dense::encode_packed(times, values, scratch, bytes),
            };
        }
        self.inner.clear();
        let chunk = dense::encode_packed(times, values, &mut self.scratch, &mut self.inner);
        let inner = RawChunk { encoding: chunk.encoding, bytes: &self.inner };
        dense::encode_starts(&self.runs, inner, &mut self.bytes);
        PackedChunk { encoding: dense::ENCODING_DENSE_STARTS, ..chunk }
    }
}

/// Returns how many of the first texts fit a chunk, at least one.
fn texts_within(texts: &[Arc<[u8]>]) -> usize {
    let mut bytes = 0;
    let mut seen = HashSet::default();
    for (count, text) in texts.iter().enumerate() {
        if seen.insert(text) {
            bytes += text.len();
            if bytes > CHUNK_TEXT_BYTES && count > 0 {
                return count;
            }
        }
    }
    texts.len()
}

impl BlockWriter {
    /// Number of samples per chunk for a series of `total` samples.
    pub(crate) fn chunk_samples(&self, total: usize) -> usize {
        chunk_samples(self.samples.series_encoding(), total)
    }

    /// Adds samples as the next chunk of the series; at most [`BlockWriter::chunk_samples`], at least one.
    ///
    /// A start time of 0, or a missing one, is unknown.
    pub(crate) fn add_chunk_of(
        &mut self,
        times: &[i64],
        values: &[f64],
        start_times: &[i64],
    ) -> Result<(), BlockError> {
        if self.samples.series_encoding() == BlockEncoding::Prometheus {
            let mut chunks = Vec::new();
            kinds::encode_floats(times, values, start_times, &mut chunks);
            for chunk in &chunks {
                self.add_chunk(&ChunkView::from(chunk))?;
            }
            return Ok(());
        }
        self.samples.runs.clear();
        starts::runs_of(times, start_times, &mut self.samples.runs);
        if self.samples.encode_booleans(times, values) {
            return self.add_encoded(dense::ENCODING_BOOLEAN, times).map(drop);
        }
        self.add_with_times(times, |samples, times| samples.encode(times, values))
    }

    /// Adds texts as the next chunks of the series that the next [`BlockWriter::end_series`] names.
    ///
    /// # Errors
    /// [`BlockError`]; the block cannot be completed then.
    ///
    /// # Panics
    /// As [`BlockWriter::add_samples`], and if a text is longer than [`dense::TEXT_BYTES_MAX`].
    pub fn push_texts(&mut self, times: &[i64], texts: &[Arc<[u8]>]) -> Result<(), BlockError> {
        let chunk_samples = chunk_samples(BlockEncoding::Dense, times.len());
        let mut start = 0;
        while start < texts.len() {
            let end = start + texts_within(&texts[start..texts.len().min(start + chunk_samples)]);
            self.samples.runs.clear();
            let texts = &texts[start..end];
            self.add_with_times(&times[start..end], |samples, times| samples.encode_texts(times, texts))?;
            start = end;
        }
        Ok(())
    }

    /// Adds the chunk that `encode` makes of its times, which an earlier chunk may have already.
    fn add_with_times(
        &mut self,
        times: &[i64],
        encode: impl Fn(&mut SampleEncoder, ChunkTimes<'_>) -> PackedChunk,
    ) -> Result<(), BlockError> {
        let key = self.samples.key_of(times);
        let mut shared = None;
        if self.segments.segment_idx_of(0) == self.samples.segment_idx {
            shared = self.samples.times_offsets.get(&key).copied();
        }
        let chunk_times = shared.map_or(ChunkTimes::Own(times), |offset| ChunkTimes::Shared { offset });
        let mut chunk = encode(&mut self.samples, chunk_times);
        let segment_idx = self.segments.segment_idx_of(self.samples.bytes.len());
        if shared.is_some() && segment_idx != self.samples.segment_idx {
            // The chunk does not fit into the segment of the chunk that has its times.
            shared = None;
            chunk = encode(&mut self.samples, ChunkTimes::Own(times));
        }
        let chunk_ref = self.add_encoded(chunk.encoding, times)?;
        if self.samples.segment_idx != chunk_ref.segment_idx() {
            self.samples.segment_idx = chunk_ref.segment_idx();
            self.samples.times_offsets.clear();
        }
        // Chunks do not refer to a chunk with start times.
        let is_new =
            shared.is_none() && self.samples.runs.is_empty() && chunk.times_bytes >= SHARED_TIMES_BYTES_MIN;
        if is_new && self.samples.times_offsets.len() < TIMES_COLUMNS_MAX {
            self.samples.times_offsets.insert(key, chunk_ref.offset());
        }
        Ok(())
    }

    /// Adds the chunk that the encoder holds.
    fn add_encoded(&mut self, encoding: u8, times: &[i64]) -> Result<ChunkRef, BlockError> {
        let (Some(&min_time), Some(&max_time)) = (times.first(), times.last()) else {
            unreachable!("a chunk has a sample");
        };
        let count = u16::try_from(times.len()).expect("the count is a u16");
        let bytes = std::mem::take(&mut self.samples.bytes);
        let added = self.add_chunk(&ChunkView { encoding, min_time, max_time, count, bytes: &bytes });
        self.samples.bytes = bytes;
        added
    }
}
