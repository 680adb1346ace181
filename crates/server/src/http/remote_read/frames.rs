//! Frames of a streamed answer, each with chunks of one series.
//!
//! Invariants: chunks of a series ascend; a series has no frame if it has no samples. A frame is larger
//! than its limit by the rest of a chunk at most, as Prometheus's are.
//! Not here: bytes of frames (`ingest::remote_read`), the body (`stream`).

use chronolith_ingest::remote_read::encode::{ChunkOut, put_chunk, put_frame, put_labels};
use chronolith_model::query::SamplesPart;
use chronolith_model::{Labels, ReadContext};
use chronolith_tsdb::prometheus_chunks;

use crate::http::error::ApiError;
use crate::http::stream::Parts;
use crate::limits::ANSWER_PART_BYTES;

/// Encoding byte of XOR chunks, which every version of Prometheus reads.
const ENCODING_XOR: u8 = 1;

/// Returns true for chunks that are sent without decoding them.
pub(super) fn is_sent_as_it_is(encoding: u8) -> bool {
    encoding == ENCODING_XOR
}

/// Frames that are not handed over yet.
pub(super) struct Frames<'a> {
    parts: &'a Parts,
    ctx: &'a ReadContext,
    frame_bytes_max: usize,
    query_idx: usize,
    label_fields: Vec<u8>,
    chunk_fields: Vec<u8>,
    sample_count: usize,
    out: Vec<u8>,
}

impl<'a> Frames<'a> {
    pub(super) fn new(frame_bytes_max: usize, parts: &'a Parts, ctx: &'a ReadContext) -> Frames<'a> {
        Frames {
            parts,
            ctx,
            frame_bytes_max,
            query_idx: 0,
            label_fields: Vec::new(),
            chunk_fields: Vec::new(),
            sample_count: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn ctx(&self) -> &'a ReadContext {
        self.ctx
    }

    /// Starts a series of the query `query_idx`.
    pub(super) fn start_series(&mut self, query_idx: usize, labels: &Labels) {
        assert!(self.chunk_fields.is_empty(), "the series before has ended");
        self.query_idx = query_idx;
        self.sample_count = 0;
        self.label_fields.clear();
        put_labels(&mut self.label_fields, labels.iter());
    }

    /// Adds samples of the series.
    pub(super) fn put(&mut self, part: SamplesPart<'_>) -> Result<(), ApiError> {
        match part {
            SamplesPart::Stored(chunk) => {
                self.sample_count += chunk.sample_count;
                self.put_chunk(ChunkOut {
                    min_time_ms: chunk.min_time,
                    max_time_ms: chunk.max_time,
                    encoding: chunk.encoding,
                    bytes: chunk.bytes,
                })
            }
            SamplesPart::Decoded(samples) => {
                self.sample_count += samples.len();
                prometheus_chunks(samples).try_for_each(|chunk| {
                    self.put_chunk(ChunkOut {
                        min_time_ms: chunk.min_time,
                        max_time_ms: chunk.max_time,
                        encoding: chunk.encoding,
                        bytes: &chunk.bytes,
                    })
                })
            }
        }
    }

    fn put_chunk(&mut self, chunk: ChunkOut<'_>) -> Result<(), ApiError> {
        put_chunk(&mut self.chunk_fields, chunk);
        let chunk_bytes_max = self.frame_bytes_max.saturating_sub(self.label_fields.len());
        if self.chunk_fields.len() >= chunk_bytes_max { self.end_frame() } else { Ok(()) }
    }

    fn end_frame(&mut self) -> Result<(), ApiError> {
        put_frame(&mut self.out, self.query_idx, &self.label_fields, &self.chunk_fields);
        self.chunk_fields.clear();
        if self.out.len() < ANSWER_PART_BYTES {
            return Ok(());
        }
        self.parts.send(std::mem::take(&mut self.out), self.ctx)
    }

    /// Ends the series; returns the number of its samples.
    pub(super) fn end_series(&mut self) -> Result<usize, ApiError> {
        if !self.chunk_fields.is_empty() {
            self.end_frame()?;
        }
        Ok(self.sample_count)
    }

    /// Hands over the rest.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        if self.out.is_empty() { Ok(()) } else { self.parts.send(self.out, self.ctx) }
    }
}
