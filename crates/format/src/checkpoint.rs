//! Checkpoint files: the head's state as frames, whole only with its end frame. Layout: `docs/checkpoint.md`.
//!
//! Holds: every frame has its checksum; readers take untrusted bytes and never panic.
//! Not here: when a checkpoint is written, what replay does with it (`head`).

mod payload;

use chronolith_base::crc::{Crc32c, crc32c};
use chronolith_base::{ByteReader, DecodeError};

pub use payload::{
    ChunkEntry, RAW_KEY_BYTES, RawKeys, SealedEntry, WindowEntry, decode_chunks, encode_chunks,
    encode_raw_key,
};

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLCP";
/// Version of the layout.
pub const FILE_VERSION: u16 = 1;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 48;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 12;

/// Frame kind: series definitions of one tenant, as in the WAL with zero hashes.
pub const KIND_SERIES: u8 = 1;
/// Frame kind: raw-key hashes and the series they name, in order of arrival.
pub const KIND_RAW_KEYS: u8 = 2;
/// Frame kind: first arrivals of the windows of one tenant.
pub const KIND_WINDOWS: u8 = 3;
/// Frame kind: chunks of series.
pub const KIND_CHUNKS: u8 = 4;
/// Frame kind: totals; the last frame.
pub const KIND_END: u8 = 5;

/// What a checkpoint says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// First WAL segment to replay after it.
    pub segment: u64,
    /// Lowest series id that was never given out.
    pub next_id: u32,
    /// Sequence of the last frame before `segment`.
    pub sequence: u64,
    /// Key of the log.
    pub key: u128,
}

/// Totals of the end frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointTotals {
    /// Series definitions.
    pub series_count: u64,
    /// Frames before the end frame.
    pub frame_count: u64,
    /// Samples in chunks.
    pub sample_count: u64,
}

impl CheckpointHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0u8; FILE_HEADER_BYTES];
        out[..4].copy_from_slice(&FILE_MAGIC);
        out[4..6].copy_from_slice(&FILE_VERSION.to_le_bytes());
        out[8..16].copy_from_slice(&self.segment.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..40].copy_from_slice(&self.key.to_le_bytes());
        out[40..44].copy_from_slice(&self.next_id.to_le_bytes());
        let sum = crc32c(&out[..44]);
        out[44..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign, damaged or later-version bytes.
    pub fn decode(bytes: &[u8]) -> Result<CheckpointHeader, DecodeError> {
        let head = ByteReader::new(bytes).bytes("checkpoint header", FILE_HEADER_BYTES)?;
        let mut reader = ByteReader::new(head);
        let magic = reader.be_u32("checkpoint magic")?;
        if magic != u32::from_be_bytes(FILE_MAGIC) {
            let found = u64::from(magic);
            return Err(DecodeError::Invalid {
                what: "checkpoint magic",
                offset: 0,
                expected: "CLCP",
                found,
            });
        }
        let version = reader.le_u16("checkpoint version")?;
        reader.bytes("checkpoint reserved", 2)?;
        let segment = reader.le_u64("checkpoint segment")?;
        let sequence = reader.le_u64("checkpoint sequence")?;
        let (low, high) = (reader.le_u64("checkpoint key")?, reader.le_u64("checkpoint key")?);
        let next_id = reader.le_u32("checkpoint next id")?;
        let found = reader.le_u32("checkpoint checksum")?;
        let expected = crc32c(head.get(..44).unwrap_or(&[]));
        if found != expected {
            return Err(DecodeError::Checksum { what: "checkpoint header", offset: 44, expected, found });
        }
        if version != FILE_VERSION {
            let found = u64::from(version);
            return Err(DecodeError::Invalid { what: "checkpoint version", offset: 4, expected: "1", found });
        }
        Ok(CheckpointHeader { segment, next_id, sequence, key: u128::from(high) << 64 | u128::from(low) })
    }
}

/// Appends a frame.
///
/// # Panics
/// If the payload is 4 GiB or longer.
pub fn encode_frame(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    let len = u32::try_from(payload.len()).expect("frames are far below 4 GiB");
    let head = [len.to_le_bytes(), [kind, 0, 0, 0]].concat();
    let mut sum = Crc32c::new();
    sum.update(&head);
    sum.update(payload);
    out.extend_from_slice(&head);
    out.extend_from_slice(&sum.finish().to_le_bytes());
    out.extend_from_slice(payload);
}

/// Reads the frame at `offset`; gives kind, payload and the offset behind it.
///
/// # Errors
/// [`DecodeError`]: the end comes first, or the checksum does not fit.
pub fn decode_frame(bytes: &[u8], offset: usize) -> Result<(u8, &[u8], usize), DecodeError> {
    let mut reader = ByteReader::at(bytes, offset);
    let head = reader.bytes("checkpoint frame", 8)?;
    let found = reader.le_u32("checkpoint frame checksum")?;
    let mut fields = ByteReader::new(head);
    let len = fields.le_u32("checkpoint frame length")? as usize;
    let kind = fields.u8("checkpoint frame kind")?;
    let payload = reader.bytes("checkpoint frame", len)?;
    let mut sum = Crc32c::new();
    sum.update(head);
    sum.update(payload);
    let expected = sum.finish();
    if found != expected {
        return Err(DecodeError::Checksum { what: "checkpoint frame", offset, expected, found });
    }
    Ok((kind, payload, reader.offset()))
}

impl CheckpointTotals {
    /// Writes the end payload over `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        for value in [self.series_count, self.frame_count, self.sample_count] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Reads the end payload.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn decode(payload: &[u8]) -> Result<CheckpointTotals, DecodeError> {
        let mut reader = ByteReader::new(payload);
        Ok(CheckpointTotals {
            series_count: reader.le_u64("checkpoint series")?,
            frame_count: reader.le_u64("checkpoint frames")?,
            sample_count: reader.le_u64("checkpoint samples")?,
        })
    }
}

/// Whether `bytes` are a whole checkpoint: all frames good up to an end frame that counts them.
///
/// # Errors
/// [`DecodeError`] at the first place that is not.
pub fn verify(bytes: &[u8]) -> Result<(CheckpointHeader, CheckpointTotals), DecodeError> {
    let header = CheckpointHeader::decode(bytes)?;
    let (mut offset, mut frame_count) = (FILE_HEADER_BYTES, 0u64);
    loop {
        let (kind, payload, end) = decode_frame(bytes, offset)?;
        if kind == KIND_END {
            let totals = CheckpointTotals::decode(payload)?;
            if totals.frame_count != frame_count || end != bytes.len() {
                let (what, expected) = ("checkpoint end", "the count of frames, and nothing behind");
                return Err(DecodeError::Invalid { what, offset, expected, found: frame_count });
            }
            return Ok((header, totals));
        }
        offset = end;
        frame_count += 1;
    }
}

#[cfg(test)]
mod tests;
