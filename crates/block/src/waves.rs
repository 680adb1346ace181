//! The waves in which a query reads a block: postings lists, series entries, chunks.
//!
//! Invariant: the ranges of a wave follow from the index header and the waves before it.
//! Not here: reading them (`source`), the content of the items (`format`).

use std::ops::Range;

use chronolith_format::block::chunks::{ChunkRef, chunk_len, decode_chunk, read_chunk_unverified};
use chronolith_format::block::index::{ChunkMeta, IndexHeader, postings_len, series_len};

use crate::chunk::times_chunk_of;
use crate::own_times::OwnTimes;
use crate::source::{BlockFile, ByteRange, FetchedRanges, Wave};

/// The chunk after this one of the same series tells where this one ends, unless it lies further away.
const CHUNK_BYTES_NEAR: u64 = 64 << 10;
/// A run with as many chunks tells the length of its last one better than the average of the block.
const RUN_CHUNKS_MIN: usize = 8;

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
    /// Bytes that an entry is taken to have.
    pub(crate) entry_bytes_estimate: u64,
}

impl Wave for SeriesWave<'_> {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        let range_of = |series_ref: &u32| self.header.series_range(*series_ref, self.entry_bytes_estimate);
        out.extend(self.refs.iter().map(|series_ref| index_range(&range_of(series_ref))));
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
    /// Ranges without chunks that refer to others; `None` to look at each chunk.
    pub(crate) own_times: Option<&'a OwnTimes>,
}

fn segment_of(chunk_ref: ChunkRef) -> BlockFile {
    BlockFile::Segment(chunk_ref.segment_idx())
}

/// Chunks of one series, each of which starts where the one before it ends or a little further on.
struct ChunkRun<'a> {
    chunks: &'a [ChunkMeta],
    /// The longest distance between two of them.
    chunk_bytes_max: u64,
}

impl ChunkRun<'_> {
    /// The bytes from the first to the first byte of the last chunk.
    fn heads(&self) -> Option<ByteRange> {
        let first = self.chunks.first()?.chunk_ref;
        let last = self.chunks.last()?.chunk_ref;
        let end = u64::from(last.offset()) + 1;
        Some(ByteRange { file: segment_of(first), start: u64::from(first.offset()), end })
    }

    /// Appends the rest of the last chunk, if it is longer than was guessed.
    fn push_rest_of_last(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        let Some(last) = self.chunks.last().map(|chunk| chunk.chunk_ref) else { return };
        let file = segment_of(last);
        let offset = u64::from(last.offset());
        let len = chunk_len(fetched.at(file, offset));
        out.extend(len.and_then(|len| fetched.missing(file, offset, len)));
    }

    /// The bytes of the run. The end of its last chunk is a guess from the others, so that few bytes are read
    /// in vain.
    fn range(&self, estimate: u64) -> Option<ByteRange> {
        let first = self.chunks.first()?.chunk_ref;
        let last = self.chunks.last()?.chunk_ref;
        let last_bytes = match self.chunks.len() {
            RUN_CHUNKS_MIN.. => self.chunk_bytes_max + self.chunk_bytes_max / 16 + 16,
            // Too few chunks for an estimate: reading some bytes in vain costs less than another request.
            _ => estimate.max(self.chunk_bytes_max),
        };
        let end = u64::from(last.offset()) + last_bytes;
        Some(ByteRange { file: segment_of(first), start: u64::from(first.offset()), end })
    }
}

/// Splits the chunks of one series to runs. Its chunks are mostly written one after the other.
fn chunk_runs(chunks: &[ChunkMeta]) -> impl Iterator<Item = ChunkRun<'_>> {
    let mut rest = chunks;
    std::iter::from_fn(move || {
        let mut last = rest.first()?.chunk_ref;
        let mut chunk_bytes_max = 0;
        let mut count = 1;
        for chunk in rest.get(1..)? {
            let next = chunk.chunk_ref;
            let distance = u64::from(next.offset()).wrapping_sub(u64::from(last.offset()));
            if next.segment_idx() != last.segment_idx() || !(1..=CHUNK_BYTES_NEAR).contains(&distance) {
                break;
            }
            chunk_bytes_max = distance.max(chunk_bytes_max);
            last = next;
            count += 1;
        }
        let (chunks, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(ChunkRun { chunks, chunk_bytes_max })
    })
}

/// Appends the ranges of the chunks of one series.
pub(crate) fn push_chunk_ranges(chunks: &[ChunkMeta], estimate: u64, out: &mut Vec<ByteRange>) {
    out.extend(chunk_runs(chunks).filter_map(|run| run.range(estimate)));
}

impl<S: AsRef<[ChunkMeta]> + Sync> Wave for ChunkWave<'_, S> {
    fn ranges(&self, out: &mut Vec<ByteRange>) {
        for series in self.series {
            push_chunk_ranges(series.as_ref(), self.chunk_bytes_estimate, out);
        }
    }

    fn missing(&self, fetched: &FetchedRanges, out: &mut Vec<ByteRange>) {
        let known = self.own_times.map(OwnTimes::read);
        let mut found = Vec::new();
        for run in self.series.iter().flat_map(|series| chunk_runs(series.as_ref())) {
            match run.heads().filter(|heads| known.as_ref().is_some_and(|known| known.has(*heads))) {
                Some(_) => run.push_rest_of_last(fetched, out),
                None => found.extend(self.push_missing_of_run(&run, fetched, out)),
            }
        }
        drop(known);
        if let Some(own_times) = self.own_times {
            own_times.add(&found);
        }
        out.sort_unstable();
        out.dedup();
    }
}

impl<S> ChunkWave<'_, S> {
    /// Appends the missing ranges of a run. Returns its bytes if each chunk is complete, has times of its own
    /// and is undamaged.
    // PERF: one search for the bytes of a run instead of one per chunk.
    fn push_missing_of_run(
        &self,
        run: &ChunkRun<'_>,
        fetched: &FetchedRanges,
        out: &mut Vec<ByteRange>,
    ) -> Option<ByteRange> {
        let first = run.chunks.first()?.chunk_ref;
        let file = segment_of(first);
        let start = u64::from(first.offset());
        let bytes = fetched.at(file, start);
        let rest = |offset: u32, bytes: &[u8]| fetched.missing(file, u64::from(offset), chunk_len(bytes)?);
        let mut own_times_end = Some(start);
        for chunk in run.chunks {
            let offset = chunk.chunk_ref.offset();
            let in_run = bytes.get((offset - first.offset()) as usize..).unwrap_or_default();
            // The last chunk of a run may have been read apart, where it is longer than was guessed.
            let apart = || read_chunk_unverified(fetched.at(file, u64::from(offset)), offset);
            let Ok(chunk) = read_chunk_unverified(in_run, offset).or_else(|_| apart()) else {
                out.extend(rest(offset, in_run));
                own_times_end = None;
                continue;
            };
            let Some(times_offset) = times_chunk_of(chunk) else {
                let verified_len = || chunk_len(in_run).filter(|_| decode_chunk(in_run, offset).is_ok());
                let len = own_times_end.filter(|_| self.own_times.is_some()).and_then(|_| verified_len());
                own_times_end = len.map(|len| u64::from(offset) + len);
                continue;
            };
            own_times_end = None;
            match fetched.at(file, u64::from(times_offset)) {
                [] => {
                    let start = u64::from(times_offset);
                    let end = start + self.chunk_bytes_estimate;
                    out.extend(fetched.missing(file, start, end - start));
                }
                bytes => out.extend(rest(times_offset, bytes)),
            }
        }
        own_times_end.map(|end| ByteRange { file, start, end })
    }
}
