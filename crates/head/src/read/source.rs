//! Chunks of a selected series: open chunks and out-of-order samples are copied, sealed chunks are
//! referenced.
//!
//! Invariant: overlapping chunks are resolved in the order of their arrival: in-order chunks, out-of-order
//! chunks by age, the out-of-order log.
//! Not here: copying under the lock of a stripe (`copy`), series of several chunks (`samples`).

use std::sync::Arc;

use chronolith_base::Disk;
use chronolith_format::chunk::kinds;
use chronolith_format::chunk::xor::EncodedChunk;
use chronolith_model::query::{SamplesPart, StoredChunk, VisitSamples};
use chronolith_model::{Columns, DuplicatePolicy, QueryError, TimeRange};

use crate::series::sealed::SealedFile;
use crate::series::sealed_chunks::{ChunkOrder, ChunkRef, SealedChunk};
use crate::series::stripe::Arrivals;

/// One chunk of a series.
pub(crate) enum HeadChunk {
    /// A chunk in a sealed file.
    Sealed { file: Arc<SealedFile>, node: SealedChunk },
    /// A copy of the open chunk, with its bytes in the bytes of its list.
    Open(OpenChunkCopy),
    /// A copy of the out-of-order samples that were accepted under one policy, never empty.
    OutOfOrder(Box<Columns>, DuplicatePolicy),
    /// The newest sample alone, for callers that need no other.
    Newest { time: i64, value: f64, start_ms: i64 },
}

// There is one per chunk of every selected series.
const _: () = assert!(size_of::<HeadChunk>() <= 48);

/// Copy of an open chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenChunkCopy {
    pub(crate) min_time: i64,
    pub(crate) max_time: i64,
    /// Offset of its bytes in the bytes of its list.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) count: u16,
    pub(crate) encoding: u8,
}

/// Memory and files from which chunks are decoded.
#[derive(Clone, Copy)]
pub(crate) struct ChunkMemory<'a> {
    /// Has the sealed files.
    pub(crate) disk: &'a dyn Disk,
    /// Bytes of the copies of open chunks.
    pub(crate) open_bytes: &'a [u8],
}

impl OpenChunkCopy {
    fn bytes<'a>(&self, open_bytes: &'a [u8]) -> &'a [u8] {
        &open_bytes[self.start as usize..][..self.len as usize]
    }

    fn decode(&self, open_bytes: &[u8], range: TimeRange, out: &mut Columns) -> Result<(), QueryError> {
        kinds::decode(self.encoding, self.bytes(open_bytes), range, out).map_err(|error| {
            QueryError::Corrupt { path: "head memory".to_owned(), what: format!("open chunk: {error}") }
        })
    }
}

impl HeadChunk {
    pub(crate) fn min_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.min_time(),
            HeadChunk::Open(chunk) => chunk.min_time,
            HeadChunk::OutOfOrder(samples, _) => samples.times.first().copied().unwrap_or(i64::MAX),
            HeadChunk::Newest { time, .. } => *time,
        }
    }

    pub(crate) fn max_time(&self) -> i64 {
        match self {
            HeadChunk::Sealed { node, .. } => node.max_time(),
            HeadChunk::Open(chunk) => chunk.max_time,
            HeadChunk::OutOfOrder(samples, _) => samples.times.last().copied().unwrap_or(i64::MIN),
            HeadChunk::Newest { time, .. } => *time,
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            HeadChunk::Sealed { node, .. } => usize::from(node.count()),
            HeadChunk::Open(chunk) => usize::from(chunk.count),
            HeadChunk::OutOfOrder(samples, _) => samples.len(),
            HeadChunk::Newest { .. } => 1,
        }
    }

    /// Returns the reference of a sealed chunk.
    pub(crate) fn chunk_ref(&self) -> Option<ChunkRef> {
        match self {
            HeadChunk::Sealed { node, .. } => Some(node.chunk_ref()),
            _ => None,
        }
    }

    /// Returns a copy of a sealed chunk if it has no start timestamps. Chunks with start timestamps are
    /// encoded for blocks together with the samples.
    pub(crate) fn copy_plain(&self, disk: &dyn Disk) -> Result<Option<EncodedChunk>, QueryError> {
        match self {
            HeadChunk::Sealed { file, node } if !node.has_starts() => file.copy(disk, node).map(Some),
            _ => Ok(None),
        }
    }

    fn order(&self) -> ChunkOrder {
        match self {
            HeadChunk::Sealed { node, .. } => node.order(),
            HeadChunk::Open(_) | HeadChunk::Newest { .. } => ChunkOrder::InOrder,
            HeadChunk::OutOfOrder(_, duplicates) => ChunkOrder::OutOfOrder(*duplicates),
        }
    }

    /// Returns true if the samples win against earlier arrivals. In-order chunks overlap only chunks of an
    /// earlier version, which they replace.
    fn replaces(&self) -> bool {
        self.order() != ChunkOrder::OutOfOrder(DuplicatePolicy::KeepFirst)
    }

    /// Returns a key that sorts chunks by the arrival of their samples.
    fn arrival(&self) -> (bool, ChunkRef) {
        (self.order() != ChunkOrder::InOrder, self.chunk_ref().unwrap_or(ChunkRef::MAX))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<HeadChunk>()
            + match self {
                HeadChunk::Sealed { .. } | HeadChunk::Newest { .. } => 0,
                HeadChunk::Open(chunk) => chunk.len as usize,
                HeadChunk::OutOfOrder(samples, _) => {
                    let words = 16 * samples.len() + 8 * samples.start_times.len();
                    size_of::<Columns>() + words + samples.histogram_bytes()
                }
            }
    }

    /// Calls `visit` with the chunk as it is if `range` has all of its samples and `accepts` takes its
    /// encoding; returns false otherwise.
    ///
    /// # Errors
    /// As [`HeadChunk::decode`], and the error of `visit`.
    pub(super) fn visit_stored(
        &self,
        memory: ChunkMemory<'_>,
        range: TimeRange,
        accepts: &dyn Fn(u8) -> bool,
        visit: &mut VisitSamples<'_>,
    ) -> Result<bool, QueryError> {
        if !range.contains(self.min_time()) || !range.contains(self.max_time()) {
            return Ok(false);
        }
        match self {
            HeadChunk::Sealed { file, node } if accepts(node.encoding()) => {
                let EncodedChunk { encoding, min_time, max_time, count, bytes } =
                    file.copy(memory.disk, node)?;
                let sample_count = count.into();
                let chunk = StoredChunk { min_time, max_time, sample_count, encoding, bytes: &bytes };
                visit(SamplesPart::Stored(chunk)).map(|()| true)
            }
            HeadChunk::Open(open) if accepts(open.encoding) => {
                let chunk = StoredChunk {
                    min_time: open.min_time,
                    max_time: open.max_time,
                    sample_count: open.count.into(),
                    encoding: open.encoding,
                    bytes: open.bytes(memory.open_bytes),
                };
                visit(SamplesPart::Stored(chunk)).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Appends the samples in `range` to `out`.
    pub(crate) fn decode(
        &self,
        memory: ChunkMemory<'_>,
        range: TimeRange,
        out: &mut Columns,
    ) -> Result<(), QueryError> {
        match self {
            HeadChunk::Sealed { file, node } => file.decode(memory.disk, node, range, out),
            HeadChunk::Open(chunk) => chunk.decode(memory.open_bytes, range, out),
            HeadChunk::OutOfOrder(samples, _) => {
                out.extend_from(samples, samples.indices_in(range));
                Ok(())
            }
            HeadChunk::Newest { time, value, start_ms } => {
                if range.contains(*time) {
                    out.push(*time, *value);
                    if *start_ms != 0 {
                        out.set_start_time(*start_ms);
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns the length of the run of overlapping chunks at the start of `chunks` (sorted by first timestamp).
pub(crate) fn overlapping_len(chunks: &[HeadChunk]) -> usize {
    let mut max_time = chunks.first().map_or(i64::MIN, HeadChunk::max_time);
    let mut len = 1;
    while let Some(chunk) = chunks.get(len).filter(|c| c.min_time() <= max_time) {
        max_time = max_time.max(chunk.max_time());
        len += 1;
    }
    len
}

/// Merges the samples of overlapping chunks into `out`, one per timestamp.
pub(crate) fn merge_chunks(
    memory: ChunkMemory<'_>,
    chunks: &[HeadChunk],
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), QueryError> {
    let mut by_arrival: Vec<&HeadChunk> =
        chunks.iter().filter(|chunk| range.overlaps_inclusive(chunk.min_time(), chunk.max_time())).collect();
    by_arrival.sort_by_key(|chunk| chunk.arrival());
    let sample_count = by_arrival.iter().map(|chunk| chunk.count()).sum();
    let (mut in_order, mut later) = (Arrivals::with_capacity(sample_count), Arrivals::default());
    for chunk in by_arrival {
        let arrivals = if chunk.order() == ChunkOrder::InOrder { &mut in_order } else { &mut later };
        arrivals.add(chunk.replaces(), |samples| chunk.decode(memory, range, samples))?;
    }
    in_order.resolve();
    later.resolve();
    in_order.merge(&later, range, out);
    Ok(())
}

#[cfg(test)]
mod tests;
