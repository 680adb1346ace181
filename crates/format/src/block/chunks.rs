//! Chunk segment files of a block, as Prometheus writes them (`docs/block/chunks.md`).
//!
//! Invariants: a decoder never panics on any bytes; a chunk is returned only after its checksum was verified.
//! Not here: encodings of chunks (`chunk`), the segment that a chunk is written to, reading bytes (`block`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::Crc32c;
use chronolith_base::{ByteReader, DecodeError};

use super::file_offset::in_file;
use crate::chunk::RawChunk;

/// First four bytes of a segment.
pub const MAGIC: u32 = 0x85BD_40DD;
/// Version that is written and read.
pub const VERSION: u8 = 1;
/// Magic, version, three bytes of padding.
pub const HEADER_BYTES: usize = 8;
/// A segment ends before the chunk that would make it longer.
pub const SEGMENT_BYTES_MAX: u64 = 512 << 20;
/// Bytes of a chunk besides its data, at most: length (5), encoding (1), checksum (4).
pub const CHUNK_OVERHEAD_BYTES_MAX: u64 = 10;
const ENCODING_BYTES: usize = 1;
const CHECKSUM_BYTES: usize = 4;

/// Position of a chunk: number of its segment (from 0) and offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkRef(pub u64);

impl ChunkRef {
    /// Segment `segment_idx` (file `000001` is 0), byte `offset`.
    #[must_use]
    pub fn new(segment_idx: u32, offset: u32) -> ChunkRef {
        ChunkRef(u64::from(segment_idx) << 32 | u64::from(offset))
    }

    /// Number of the segment, from 0.
    #[must_use]
    pub fn segment_idx(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Offset within the segment.
    #[must_use]
    pub fn offset(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }
}

/// Name of the file of segment `segment_idx`: six digits, counting from 1.
#[must_use]
pub fn segment_name(segment_idx: u32) -> String {
    format!("{:06}", u64::from(segment_idx) + 1)
}

/// Appends the header of a segment.
pub fn put_header(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC.to_be_bytes());
    out.extend_from_slice(&[VERSION, 0, 0, 0]);
}

/// Appends one chunk.
pub fn put_chunk(out: &mut Vec<u8>, encoding: u8, bytes: &[u8]) {
    put_uvarint(out, bytes.len() as u64);
    out.push(encoding);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&checksum(encoding, bytes).to_be_bytes());
}

fn checksum(encoding: u8, bytes: &[u8]) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(&[encoding]);
    sum.update(bytes);
    sum.finish()
}

/// Verifies the first [`HEADER_BYTES`] of a segment.
///
/// # Errors
/// [`DecodeError`] if they are not the header of a segment, or of a version that cannot be read.
pub fn check_header(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut r = ByteReader::new(bytes);
    let magic = r.be_u32("chunk segment magic")?;
    if magic != MAGIC {
        let (what, expected) = ("chunk segment magic", "0x85bd40dd");
        return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(magic) });
    }
    let version = r.u8("chunk segment version")?;
    if version != VERSION {
        let (what, expected) = ("chunk segment version", "1");
        return Err(DecodeError::Invalid { what, offset: 4, expected, found: u64::from(version) });
    }
    r.bytes("chunk segment padding", 3)?;
    Ok(())
}

/// Returns the chunk that `bytes` begin with, its checksum verified; they start at `offset` of the segment
/// and may go on after the chunk. Cost: one pass over its bytes.
///
/// # Errors
/// [`DecodeError`] with an offset of the segment if the chunk is longer than `bytes` or its checksum is
/// wrong.
pub fn decode_chunk(bytes: &[u8], offset: u32) -> Result<RawChunk<'_>, DecodeError> {
    let file_offset = u64::from(offset);
    let (chunk, mut r) = read_chunk(bytes, offset).map_err(|error| in_file(error, file_offset))?;
    let found = r.be_u32("chunk checksum").map_err(|error| in_file(error, file_offset))?;
    let expected = checksum(chunk.encoding, chunk.bytes);
    if found != expected {
        let offset = offset as usize;
        return Err(DecodeError::Checksum { what: "chunk checksum", offset, expected, found });
    }
    Ok(chunk)
}

/// Returns the chunk that `bytes` begin with, complete but not verified: good for looking which other chunk
/// it refers to before it is decoded.
///
/// # Errors
/// [`DecodeError`] if the chunk is longer than `bytes`.
pub fn read_chunk_unverified(bytes: &[u8], offset: u32) -> Result<RawChunk<'_>, DecodeError> {
    let (chunk, mut r) = read_chunk(bytes, offset)?;
    r.bytes("chunk checksum", CHECKSUM_BYTES)?;
    Ok(chunk)
}

/// Number of samples that the chunk at `offset` claims, not verified. Only good for sizing buffers.
#[must_use]
pub fn sample_count_claimed(bytes: &[u8], offset: u32) -> Option<u16> {
    let (chunk, _) = read_chunk(bytes, offset).ok()?;
    chunk.sample_count().ok()
}

/// Returns the number of bytes of the chunk that `bytes` begin with; `None` if there are too few bytes to
/// tell.
#[must_use]
pub fn chunk_len(bytes: &[u8]) -> Option<u64> {
    let mut r = ByteReader::new(bytes);
    let len = r.uvarint("chunk length").ok()?;
    len.checked_add((r.offset() + ENCODING_BYTES + CHECKSUM_BYTES) as u64)
}

/// Reads a chunk without its checksum; offsets of errors count in `bytes`.
fn read_chunk(bytes: &[u8], offset: u32) -> Result<(RawChunk<'_>, ByteReader<'_>), DecodeError> {
    if (offset as usize) < HEADER_BYTES {
        let (what, expected) = ("chunk offset", "after the segment header");
        return Err(DecodeError::Invalid { what, offset: 0, expected, found: u64::from(offset) });
    }
    let mut r = ByteReader::new(bytes);
    let len = r.length("chunk length")?;
    let encoding = r.u8("chunk encoding")?;
    let bytes = r.bytes("chunk bytes", len)?;
    Ok((RawChunk { encoding, bytes }, r))
}

#[cfg(test)]
mod tests;
