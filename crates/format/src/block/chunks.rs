//! Chunk segment files of a block, as Prometheus writes them (`docs/block/chunks.md`).
//!
//! Holds: a reader never panics on any bytes; a chunk is handed out only after its checksum fits.
//! Not here: what the bytes of a chunk mean (`xor`), which segment a chunk goes to (`block`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::Crc32c;
use chronolith_base::{ByteReader, DecodeError, Mapped};

/// First four bytes of a segment.
pub const MAGIC: u32 = 0x85BD_40DD;
/// The only version there is.
pub const VERSION: u8 = 1;
/// Magic, version, three bytes of padding.
pub const HEADER_BYTES: usize = 8;
/// A segment is cut before it grows beyond this.
pub const SEGMENT_BYTES_MAX: u64 = 512 << 20;
/// What a chunk adds to its data at most: length (5), encoding (1), checksum (4).
pub const CHUNK_OVERHEAD_BYTES_MAX: u64 = 10;

/// Histograms with start times, whose count has 14 bits.
const ENCODINGS_SHORT_COUNT: [u8; 2] = [5, 6];

/// Where a chunk lies: number of its segment (from 0) and offset in it.
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

/// A chunk within its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawChunk<'a> {
    /// Encoding byte.
    pub encoding: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl RawChunk<'_> {
    /// Number of samples, with which every encoding begins: a big-endian u16, of which those of histograms with start
    /// times use the upper two bits for something else.
    ///
    /// # Errors
    /// [`DecodeError`] for a chunk that is too short to say it.
    pub fn sample_count(&self) -> Result<u16, DecodeError> {
        let count = ByteReader::new(self.bytes).be_u16("chunk sample count")?;
        Ok(if ENCODINGS_SHORT_COUNT.contains(&self.encoding) { count & 0x3fff } else { count })
    }
}

/// Reads one segment.
pub struct Segment {
    bytes: Mapped,
}

impl Segment {
    /// Checks the header. Cost: one page.
    ///
    /// # Errors
    /// [`DecodeError`] if it is no segment of a known version.
    pub fn open(bytes: Mapped) -> Result<Segment, DecodeError> {
        let mut r = ByteReader::new(&bytes);
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
        Ok(Segment { bytes })
    }

    /// Size of the file.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The chunk at `offset`, its checksum verified. Cost: one pass over its bytes.
    ///
    /// # Errors
    /// [`DecodeError`] if it does not fit the file or its checksum does not fit its bytes.
    pub fn chunk(&self, offset: u32) -> Result<RawChunk<'_>, DecodeError> {
        let (chunk, mut r) = self.unchecked(offset)?;
        let found = r.be_u32("chunk checksum")?;
        let expected = checksum(chunk.encoding, chunk.bytes);
        if found != expected {
            let offset = offset as usize;
            return Err(DecodeError::Checksum { what: "chunk checksum", offset, expected, found });
        }
        Ok(chunk)
    }

    /// Number of samples that the chunk at `offset` claims, unchecked. Only good for sizing buffers.
    #[must_use]
    pub fn sample_count_claimed(&self, offset: u32) -> Option<u16> {
        let (chunk, _) = self.unchecked(offset).ok()?;
        chunk.sample_count().ok()
    }

    fn unchecked(&self, offset: u32) -> Result<(RawChunk<'_>, ByteReader<'_>), DecodeError> {
        let start = offset as usize;
        if start < HEADER_BYTES {
            let (what, expected) = ("chunk offset", "behind the segment header");
            return Err(DecodeError::Invalid { what, offset: start, expected, found: u64::from(offset) });
        }
        let mut r = ByteReader::at(&self.bytes, start);
        let len = r.length("chunk length")?;
        let encoding = r.u8("chunk encoding")?;
        let bytes = r.bytes("chunk bytes", len)?;
        Ok((RawChunk { encoding, bytes }, r))
    }
}

#[cfg(test)]
mod tests;
