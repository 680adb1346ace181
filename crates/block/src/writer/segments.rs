//! Chunk segments of a block being written: appends chunks, cuts a new file where the next chunk would not
//! fit.
//!
//! Invariant: a full segment is synced before the next one is begun; the last one is synced with the other
//! files of the block.

use std::path::PathBuf;

use chronolith_base::Env;
use chronolith_format::block::chunks::{
    self, CHUNK_OVERHEAD_BYTES_MAX, ChunkRef, HEADER_BYTES, SEGMENT_BYTES_MAX,
};

use super::sink::FileSink;
use crate::BlockError;

pub(super) struct SegmentsWriter {
    env: Env,
    dir: PathBuf,
    current: Option<FileSink>,
    /// Number of segments begun.
    segment_count: u32,
    pub(super) bytes_max: u64,
    /// Bytes of all chunks.
    pub(super) written_bytes: u64,
}

impl SegmentsWriter {
    pub(super) fn new(env: &Env, dir: PathBuf) -> SegmentsWriter {
        let bytes_max = SEGMENT_BYTES_MAX;
        SegmentsWriter { env: env.clone(), dir, current: None, segment_count: 0, bytes_max, written_bytes: 0 }
    }

    /// Writes a chunk; returns its position.
    pub(super) fn add(&mut self, encoding: u8, bytes: &[u8]) -> Result<ChunkRef, BlockError> {
        let chunk_bytes_max = bytes.len() as u64 + CHUNK_OVERHEAD_BYTES_MAX;
        if HEADER_BYTES as u64 + chunk_bytes_max > self.bytes_max {
            let (path, limit) = (self.dir.clone(), self.bytes_max);
            return Err(BlockError::TooLarge { path, what: "chunk", limit });
        }
        let full = |sink: &FileSink| sink.position() + chunk_bytes_max > self.bytes_max;
        if self.current.as_ref().is_some_and(full)
            && let Some(mut sink) = self.current.take()
        {
            sink.sync()?;
        }
        let sink = match &mut self.current {
            Some(sink) => sink,
            none => none.insert(begin(&self.env, &self.dir, &mut self.segment_count)?),
        };
        let offset = u32::try_from(sink.position()).expect("a segment has at most 512 MiB");
        chunks::put_chunk(sink.buffer(), encoding, bytes);
        self.written_bytes += sink.position() - u64::from(offset);
        sink.drain()?;
        Ok(ChunkRef::new(self.segment_count - 1, offset))
    }

    /// Returns the segment that a chunk of `len` bytes would be written to.
    pub(super) fn segment_idx_of(&self, len: usize) -> u32 {
        let chunk_bytes_max = len as u64 + CHUNK_OVERHEAD_BYTES_MAX;
        match &self.current {
            Some(sink) if sink.position() + chunk_bytes_max <= self.bytes_max => self.segment_count - 1,
            _ => self.segment_count,
        }
    }

    /// Ends the segments: the last one is not durable yet.
    pub(super) fn finish(&mut self) -> Option<FileSink> {
        self.current.take()
    }
}

fn begin(env: &Env, dir: &std::path::Path, segment_count: &mut u32) -> Result<FileSink, BlockError> {
    let mut sink = FileSink::create(env, &dir.join(chunks::segment_name(*segment_count)))?;
    *segment_count += 1;
    chunks::put_header(sink.buffer());
    Ok(sink)
}
