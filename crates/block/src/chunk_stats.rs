//! Sizes, encodings and sample counts of all chunks of a block, for tools.
//!
//! Invariant: a chunk is counted after its checksum was verified.
//! Not here: samples (`series`), sums over a block (the tools).

use chronolith_base::MemoryBudget;
use chronolith_model::{Labels, QueryError, TimeRange};

use crate::Block;
use crate::chunk::{ChunkError, chunk_error, raw_chunk};
use crate::postings::all_refs;
use crate::series_reader::SeriesReader;

/// One chunk, without its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkStats {
    /// Encoding byte.
    pub encoding: u8,
    /// Bytes without length, encoding byte and checksum. Times that are stored in another chunk are not
    /// among them.
    pub data_bytes: u64,
    /// Samples, deleted ones included.
    pub sample_count: u64,
    /// Times of its samples by the index.
    pub range: TimeRange,
}

/// Calls `visit` with each series of `block`, in order of labels, and its chunks in order of time. Cost: one
/// pass over index and chunks, whose samples are not decoded.
///
/// # Errors
/// [`QueryError::Corrupt`], [`QueryError::Io`].
pub fn visit_chunks(block: &Block, visit: &mut dyn FnMut(&Labels, &[ChunkStats])) -> Result<(), QueryError> {
    let contents = block.contents();
    let budget = MemoryBudget::new("chunk sizes", u64::MAX);
    let mut series = SeriesReader::new(all_refs(contents, &budget)?);
    let mut chunks = Vec::new();
    while let Some(series_ref) = series.next_ref(contents, &budget)? {
        let entry = series.decode_checked(contents, series_ref)?;
        let wave = [entry.chunks.as_slice()];
        let bytes = contents.read(&contents.chunk_wave(&wave), &budget)?;
        chunks.clear();
        for chunk in &entry.chunks {
            let failed = |error| chunk_error(&bytes, chunk.chunk_ref, ChunkError::Segment(error));
            let raw = raw_chunk(&bytes, chunk.chunk_ref).map_err(failed)?;
            chunks.push(ChunkStats {
                encoding: raw.encoding,
                data_bytes: raw.bytes.len() as u64,
                sample_count: u64::from(raw.sample_count().map_err(failed)?),
                range: TimeRange::inclusive(chunk.min_time, chunk.max_time),
            });
        }
        let labels = series.ascending_labels(contents, series_ref)?;
        visit(&labels, &chunks);
    }
    Ok(())
}
