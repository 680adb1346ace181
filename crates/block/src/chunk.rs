//! Chunks of a block: raw bytes verified, samples decoded, by the encoding byte of each.

use std::sync::Arc;

use chronolith_base::DecodeError;
use chronolith_format::block::chunks::{ChunkRef, decode_chunk, read_chunk_unverified, sample_count_claimed};
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::chunk::RawChunk;
use chronolith_format::{chunk::dense, chunk::histogram, chunk::kinds, chunk::xor, chunk::xor2};
use chronolith_model::{Columns, QueryError, TimeRange};

use crate::error::query_error;
use crate::source::{BlockFile, RangeBytes};

/// Damage of a chunk.
pub(crate) enum ChunkError {
    /// Damage at an offset of the segment.
    Segment(DecodeError),
    /// The chunk's own bytes are damaged, or of an unknown encoding.
    Content(String),
}

fn content_error(error: DecodeError) -> ChunkError {
    ChunkError::Content(error.to_string())
}

fn bytes_at(bytes: &RangeBytes, chunk_ref: ChunkRef) -> &[u8] {
    bytes.at(BlockFile::Segment(chunk_ref.segment_idx()), u64::from(chunk_ref.offset()))
}

/// Returns a chunk with its checksum verified.
pub(crate) fn raw_chunk(bytes: &RangeBytes, chunk_ref: ChunkRef) -> Result<RawChunk<'_>, DecodeError> {
    let found = bytes_at(bytes, chunk_ref);
    if found.is_empty() && bytes.files().len(BlockFile::Segment(chunk_ref.segment_idx())).is_none() {
        return Err(DecodeError::Invalid {
            what: "chunk segment",
            offset: chunk_ref.offset() as usize,
            expected: "a segment that exists",
            found: u64::from(chunk_ref.segment_idx()) + 1,
        });
    }
    decode_chunk(found, chunk_ref.offset())
}

/// Number of samples that a chunk claims, not verified; 0 if that cannot be read. Only good for sizing
/// buffers.
pub(crate) fn claimed_samples(bytes: &RangeBytes, chunk_ref: ChunkRef) -> usize {
    sample_count_claimed(bytes_at(bytes, chunk_ref), chunk_ref.offset()).map_or(0, usize::from)
}

/// Encoding byte that a chunk claims, not verified; `None` if that cannot be read.
pub(crate) fn claimed_encoding(bytes: &RangeBytes, chunk_ref: ChunkRef) -> Option<u8> {
    let chunk = read_chunk_unverified(bytes_at(bytes, chunk_ref), chunk_ref.offset());
    chunk.ok().map(|chunk| chunk.encoding)
}

/// Returns the number of samples of an XOR chunk whose first and last times are `times`; `None` for other
/// chunks. Cost: all samples are read, and none is kept.
pub(crate) fn xor_sample_count(chunk: RawChunk<'_>, times: (i64, i64)) -> Option<usize> {
    if chunk.encoding != xor::ENCODING_XOR || xor::first_time(chunk.bytes).ok()? != times.0 {
        return None;
    }
    let end = xor::XorState::resume(chunk.bytes).ok()?;
    (end.time() == times.1).then_some(usize::from(end.count()))
}

/// Offset of the chunk of the same segment that has the times of this one, if they are not its own.
pub(crate) fn times_chunk_of(chunk: RawChunk<'_>) -> Option<u32> {
    times_offset(chunk).ok().flatten()
}

/// As [`times_chunk_of`].
///
/// # Errors
/// [`DecodeError`] when the head of the chunk is damaged.
pub(crate) fn times_offset(chunk: RawChunk<'_>) -> Result<Option<u32>, DecodeError> {
    match chunk.encoding {
        dense::ENCODING_PACKED => dense::shared_times_offset(chunk.bytes),
        dense::ENCODING_INTEGERS => dense::shared_times_offset_of_integers(chunk.bytes),
        dense::ENCODING_TEXTS => dense::shared_times_offset_of_texts(chunk.bytes),
        dense::ENCODING_DENSE_STARTS => dense::shared_times_offset_of_starts(chunk.bytes),
        _ => Ok(None),
    }
}

/// Appends the samples of a chunk that lie in `range` and within the times of the chunk in the index. Values
/// of texts are indices into the dictionary of the chunk.
pub(crate) fn decode(
    bytes: &RangeBytes,
    chunk: &ChunkMeta,
    range: TimeRange,
    out: &mut Columns,
) -> Result<(), ChunkError> {
    decode_with_texts(bytes, chunk, range, &mut Vec::new(), out)
}

/// As [`decode`]; replaces `dictionary` by the chunk's, empty for a chunk of other values.
pub(crate) fn decode_with_texts(
    bytes: &RangeBytes,
    chunk: &ChunkMeta,
    range: TimeRange,
    dictionary: &mut Vec<Arc<[u8]>>,
    out: &mut Columns,
) -> Result<(), ChunkError> {
    dictionary.clear();
    let raw = raw_chunk(bytes, chunk.chunk_ref).map_err(ChunkError::Segment)?;
    // Chunks must stay in order even if the index has wrong times for one of them.
    let whole = TimeRange::inclusive(chunk.min_time, chunk.max_time);
    let reads_all = range.start <= whole.start && range.end >= whole.end && whole.start < whole.end;
    let range = match reads_all {
        // No sample is left out, so that one outside is noticed.
        true => TimeRange::ALL,
        false => TimeRange::new(range.start.max(whole.start), range.end.min(whole.end)),
    };
    let start = out.times.len();
    let times_chunk = |offset| raw_chunk(bytes, ChunkRef::new(chunk.chunk_ref.segment_idx(), offset));
    let decoded = match raw.encoding {
        xor::ENCODING_XOR => xor::decode(raw.bytes, range, out),
        dense::ENCODING_DENSE => dense::decode(raw.bytes, range, out),
        dense::ENCODING_BOOLEAN => dense::decode_boolean(raw.bytes, range, out),
        dense::ENCODING_PACKED => dense::decode_packed(raw.bytes, range, times_chunk, out),
        dense::ENCODING_INTEGERS => dense::decode_integers(raw.bytes, range, times_chunk, out),
        dense::ENCODING_TEXTS => dense::decode_texts(raw.bytes, range, times_chunk, dictionary, out),
        dense::ENCODING_DENSE_STARTS => dense::decode_starts(raw.bytes, range, times_chunk, out),
        xor2::ENCODING_XOR2 => xor2::decode(raw.bytes, range, out),
        encoding if kinds::is_histogram(encoding) => histogram::decode(encoding, raw.bytes, range, out),
        encoding => return Err(ChunkError::Content(format!("unknown chunk encoding {encoding}"))),
    };
    decoded.map_err(content_error)?;
    // The bytes may belong to another block, with a right checksum: an answer from them would be wrong.
    let found = out.times.get(start..).unwrap_or_default();
    let is_within = found
        .first()
        .zip(found.last())
        .is_some_and(|(first, last)| whole.contains(*first) && whole.contains(*last));
    if reads_all && !is_within {
        let found = found.first().zip(found.last());
        let what = format!(
            "chunk times: expected {} to {} as in the index, found {found:?}",
            chunk.min_time, chunk.max_time
        );
        out.truncate(start);
        return Err(ChunkError::Content(what));
    }
    Ok(())
}

/// The answer to a query that needs a damaged chunk.
#[cold]
pub(crate) fn chunk_error(bytes: &RangeBytes, chunk_ref: ChunkRef, error: ChunkError) -> QueryError {
    let path = bytes.files().path(BlockFile::Segment(chunk_ref.segment_idx()));
    match error {
        ChunkError::Segment(error) => query_error(&path, &error),
        ChunkError::Content(what) => {
            let what = format!("chunk at offset {}: {what}", chunk_ref.offset());
            QueryError::Corrupt { path: path.display().to_string(), what }
        }
    }
}
