//! Encodes samples as chunks: floats dense or XOR by the blocks' encoding, histograms in Prometheus's format.
//!
//! Invariants: chunks ascend; each holds samples of one kind.
//! Not here: the encodings (`format::chunk`), the files of chunks (`block`).

use std::ops::Range;

use chronolith_block::BlockError;
use chronolith_format::chunk::RawChunk;
use chronolith_format::chunk::dense::{self, DenseScratch, ENCODING_DENSE, ENCODING_DENSE_STARTS};
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::starts::{self, StartRun};
use chronolith_format::chunk::xor::{CHUNK_BYTES_MAX, ENCODING_XOR, SAMPLES_PER_CHUNK, XorState};
use chronolith_format::chunk::xor2::{self, ENCODING_XOR2};
use chronolith_model::query::SampleKind;
use chronolith_model::{BlockEncoding, Columns};

/// Samples of a dense chunk.
const DENSE_SAMPLES: usize = 960;

const _: () = assert!(DENSE_SAMPLES <= u16::MAX as usize);

/// An encoded chunk, in memory of the encoder.
pub(crate) struct EncodedChunk<'a> {
    pub(super) kind: SampleKind,
    pub(super) encoding: u8,
    /// First and last time.
    pub(super) times: (i64, i64),
    pub(super) count: u16,
    pub(super) bytes: &'a [u8],
}

/// Receives the chunks of a series, ascending.
pub(crate) type ChunkSink<'a> = dyn FnMut(EncodedChunk<'_>) -> Result<(), BlockError> + 'a;

/// Encoder with its reused memory.
pub(crate) struct ChunkEncoder {
    encoding: BlockEncoding,
    scratch: DenseScratch,
    bytes: Vec<u8>,
    start_runs: Vec<StartRun>,
}

impl ChunkEncoder {
    pub(crate) fn new(encoding: BlockEncoding) -> ChunkEncoder {
        ChunkEncoder { encoding, scratch: DenseScratch::new(), bytes: Vec::new(), start_runs: Vec::new() }
    }

    pub(crate) fn encoding(&self) -> BlockEncoding {
        self.encoding
    }

    /// Samples of a full float chunk.
    pub(crate) fn chunk_samples(&self) -> u16 {
        match self.encoding {
            BlockEncoding::Dense => DENSE_SAMPLES as u16,
            BlockEncoding::Prometheus => SAMPLES_PER_CHUNK as u16,
        }
    }

    /// Calls `sink` with the chunks of `samples`.
    pub(crate) fn encode(&mut self, samples: &Columns, sink: &mut ChunkSink<'_>) -> Result<(), BlockError> {
        if samples.histograms.is_empty() {
            return self.encode_floats(samples, 0..samples.len(), sink);
        }
        for (run, kind) in samples.runs() {
            match kind {
                SampleKind::Float => self.encode_floats(samples, run, sink)?,
                SampleKind::Histogram => encode_histograms(samples, run, sink)?,
            }
        }
        Ok(())
    }

    fn encode_floats(
        &mut self,
        samples: &Columns,
        run: Range<usize>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), BlockError> {
        let len = usize::from(self.chunk_samples());
        let (times, values) = (&samples.times[run.clone()], &samples.values[run.clone()]);
        let known = run.start..run.end.min(samples.start_times.len());
        let mut start_times = samples.start_times.get(known).unwrap_or(&[]).chunks(len);
        for (times, values) in times.chunks(len).zip(values.chunks(len)) {
            let start_times = start_times.next().unwrap_or(&[]);
            let (Some(&first), Some(&last)) = (times.first(), times.last()) else { continue };
            let encoding = self.encode_chunk(times, values, start_times);
            sink(EncodedChunk {
                kind: SampleKind::Float,
                encoding,
                times: (first, last),
                count: times.len() as u16,
                bytes: &self.bytes,
            })?;
        }
        Ok(())
    }

    /// Replaces `bytes` by the chunk of these samples; returns its encoding byte.
    fn encode_chunk(&mut self, times: &[i64], values: &[f64], start_times: &[i64]) -> u8 {
        self.bytes.clear();
        self.start_runs.clear();
        starts::runs_of(times, start_times, &mut self.start_runs);
        let has_starts = !self.start_runs.is_empty();
        match self.encoding {
            BlockEncoding::Dense if has_starts => {
                let mut inner = Vec::new();
                dense::encode(times, values, &mut self.scratch, &mut inner);
                let inner = RawChunk { encoding: ENCODING_DENSE, bytes: &inner };
                dense::encode_starts(&self.start_runs, inner, &mut self.bytes);
                ENCODING_DENSE_STARTS
            }
            BlockEncoding::Dense => {
                dense::encode(times, values, &mut self.scratch, &mut self.bytes);
                ENCODING_DENSE
            }
            BlockEncoding::Prometheus if has_starts => {
                xor2::encode(times, values, start_times, &mut self.bytes);
                ENCODING_XOR2
            }
            BlockEncoding::Prometheus => {
                self.bytes.resize(CHUNK_BYTES_MAX, 0);
                let mut state = XorState::new();
                for (&time, &value) in times.iter().zip(values) {
                    state.append(&mut self.bytes, time, value);
                }
                self.bytes.truncate(state.byte_len());
                ENCODING_XOR
            }
        }
    }
}

fn encode_histograms(
    samples: &Columns,
    run: Range<usize>,
    sink: &mut ChunkSink<'_>,
) -> Result<(), BlockError> {
    let mut of_run = Columns::default();
    run.for_each(|idx| of_run.push_from(samples, idx));
    let mut chunks = Vec::new();
    kinds::encode(&of_run, &mut chunks);
    for chunk in &chunks {
        sink(EncodedChunk {
            kind: SampleKind::Histogram,
            encoding: chunk.encoding,
            times: (chunk.min_time, chunk.max_time),
            count: chunk.count,
            bytes: &chunk.bytes,
        })?;
    }
    Ok(())
}
