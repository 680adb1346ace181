//! The waves in which a query reads a block: postings lists, series entries, chunks.
//!
//! Invariant: the ranges of a wave follow from the index header and the waves before it.
//! Not here: reading them (`source`), the content of the items (`format`).

use std::ops::Range;

use chronolith_format::block::chunks::{ChunkRef, chunk_len, decode_chunk};
use chronolith_format::block::index::{ChunkMeta, IndexHeader, postings_len, series_len};

use crate::chunk::times_chunk_of;
use crate::source::{BlockFile, ByteRange, FetchedRanges, Wave};

/// The chunk after this one of the same series tells where this one ends, unless it lies further away.
const CHUNK_BYTES_NEAR: u64 = 64 << 10;

fn index_range(range: &Range<u64>) -> ByteRange {
    ByteRange { file: BlockFile::Index, start: range.start, end: range.end }
}

/// Wave of ranges whose lengths are known.
pub(crate) struct ExactWave(pub(crate) Vec<ByteRange>);

impl Wave for ExactWave {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        out.extend_from_slice(&self.0);
    }

    fn missing(&self, _fetched: &FetchedRanges, _out: &mut Vec<ByteRange>) {}
}

/// Wave of postings lists, by their ranges in the index.
pub(crate) struct PostingsWave<'a>(pub(crate) &'a [Range<u64>]);

impl Wave for PostingsWave<'_> {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        out.extend(self.0.iter().map(index_range));
    }

    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        out.extend(self.0.iter().filter_map(|list| {
            let len = postings_len(fetched.at(BlockFile::Index, list.start))?;
            fetched.missing(BlockFile::Index, list.start, len)
        }));
    }
}

/// Wave of series entries, by their refs.
pub(crate) struct SeriesWave<'a> {
    pub(crate) header: &'a IndexHeader,
    pub(crate) refs: &'a [u32],
}

impl Wave for SeriesWave<'_> {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        out.extend(self.refs.iter().map(|series_ref| index_range(&self.header.series_range(*series_ref))));
    }

    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        out.extend(self.refs.iter().filter_map(|series_ref| {
            let start = self.header.series_offset(*series_ref);
            let len = series_len(fetched.at(BlockFile::Index, start))?;
            fetched.missing(BlockFile::Index, start, len)
        }));
    }
}

/// Wave of the chunks of several series.
pub(crate) struct ChunkWave<'a, S> {
    /// Series, each with its chunks.
    pub(crate) series: &'a [S],
    /// Bytes that a chunk is taken to have if no chunk follows it.
    pub(crate) chunk_bytes_estimate: u64,
}

impl<S: AsRef<[ChunkMeta]>> ChunkWave<'_, S> {
    fn chunk_refs(&self) -> impl Iterator<Item = ChunkRef> {
        self.series.iter().flat_map(|series| series.as_ref()).map(|chunk| chunk.chunk_ref)
    }
}

fn segment_of(chunk_ref: ChunkRef) -> BlockFile {
    BlockFile::Segment(chunk_ref.segment_idx())
}

/// Appends the ranges of the chunks of one series. Its chunks are mostly written one after the other.
pub(crate) fn push_chunk_ranges(chunks: &[ChunkMeta], estimate: u64, out: &mut Vec<ByteRange>) {
    let next = chunks.iter().skip(1).map(|chunk| Some(chunk.chunk_ref)).chain([None]);
    out.extend(chunks.iter().zip(next).map(|(chunk, next)| {
        let (file, start) = (segment_of(chunk.chunk_ref), u64::from(chunk.chunk_ref.offset()));
        let next = next.filter(|next| segment_of(*next) == file).map(|next| u64::from(next.offset()));
        let is_near = |end: &u64| *end > start && *end - start <= CHUNK_BYTES_NEAR;
        ByteRange { file, start, end: next.filter(is_near).unwrap_or(start + estimate) }
    }));
}

impl<S: AsRef<[ChunkMeta]> + Sync> Wave for ChunkWave<'_, S> {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        for series in self.series {
            push_chunk_ranges(series.as_ref(), self.chunk_bytes_estimate, out);
        }
    }

    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        for chunk_ref in self.chunk_refs() {
            let (file, offset) = (segment_of(chunk_ref), chunk_ref.offset());
            let bytes = fetched.at(file, u64::from(offset));
            let rest =
                |offset: u32, bytes: &[u8]| fetched.missing(file, u64::from(offset), chunk_len(bytes)?);
            if let Some(rest) = rest(offset, bytes) {
                out.push(rest);
                continue;
            }
            let Ok(chunk) = decode_chunk(bytes, offset) else { continue };
            let Some(times_offset) = times_chunk_of(chunk) else { continue };
            match fetched.at(file, u64::from(times_offset)) {
                [] => {
                    let start = u64::from(times_offset);
                    let end = start + self.chunk_bytes_estimate;
                    out.extend(fetched.missing(file, start, end - start));
                }
                bytes => out.extend(rest(times_offset, bytes)),
            }
        }
        out.sort_unstable();
        out.dedup();
    }
}
