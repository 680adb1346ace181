//! Write-ahead log bytes: segment header, frames, and the payloads of series, samples, histograms and start times.
//!
//! Holds: every byte that is used is under a checksum; a reader takes untrusted bytes and never panics; the
//! checksum of a frame header covers the log's random key, so bytes that a client sends never look like a frame.
//! Not here: files, group commit, what a sample does (`head`). Layout: `docs/head/wal.md`.

mod control;
mod histograms;
mod payload;
mod scan;
mod starts;

use chronolith_base::crc::{Crc32c, crc32c};
use chronolith_base::{ByteReader, DecodeError};

pub use control::{CONTROL_BYTES, CONTROL_FILE, ControlRecord, LostFrames, SLOT_COUNT};
pub use histograms::{HistogramsRef, HistogramsWriter};
pub use payload::{
    DeletesRef, SamplesRef, SeriesRecord, SeriesRef, encode_deletes, encode_samples, encode_series,
};
pub use scan::{Damage, FrameRef, Scan, scan_recycled, scan_segment, scan_segment_from};
pub use starts::{StartEntry, StartsRef, encode_starts};

/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 4] = *b"CLWL";
/// Version of the segment layout that is written.
pub const SEGMENT_VERSION: u16 = 2;
/// Bytes of the segment header.
pub const SEGMENT_HEADER_BYTES: usize = 40;
/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 24;
/// Frames start at multiples of this; zeros fill the gap.
pub const FRAME_ALIGN_BYTES: usize = 8;
/// A frame's payload is never longer.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Frame kind: series definitions of one tenant.
pub const KIND_SERIES: u8 = 1;
/// Frame kind: samples of one stripe.
pub const KIND_SAMPLES: u8 = 2;
/// Frame kind: native histograms of one stripe.
pub const KIND_HISTOGRAMS: u8 = 3;
/// Frame kind: start times of samples of one stripe.
pub const KIND_STARTS: u8 = 4;
/// Frame kind: samples of series of one stripe that were deleted.
pub const KIND_DELETES: u8 = 8;
/// Codec: payload as it is. The only one of version 1.
pub const CODEC_NONE: u8 = 0;
/// Stripe byte of frames that belong to none.
pub const STRIPE_NONE: u8 = 0xff;

/// What a segment says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Number of the segment, as in its file name.
    pub segment: u32,
    /// Random key of the log: mixed into frame checksums and raw-key hashes.
    pub key: u128,
    /// Frames with this sequence or a lower one are left from an earlier use of the file; 0 in a file that was
    /// never used before.
    pub stale_sequence: u64,
}

impl SegmentHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0u8; SEGMENT_HEADER_BYTES];
        out[..4].copy_from_slice(&SEGMENT_MAGIC);
        out[4..6].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out[8..12].copy_from_slice(&self.segment.to_le_bytes());
        out[12..28].copy_from_slice(&self.key.to_le_bytes());
        out[28..36].copy_from_slice(&self.stale_sequence.to_le_bytes());
        let sum = crc32c(&out[..36]);
        out[36..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`, of this version or the one before.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign, damaged or later-version bytes.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let head = reader.bytes("WAL segment header", SEGMENT_HEADER_BYTES)?;
        let mut reader = ByteReader::new(head);
        let magic = reader.be_u32("WAL magic")?;
        if magic != u32::from_be_bytes(SEGMENT_MAGIC) {
            let found = u64::from(magic);
            return Err(DecodeError::Invalid { what: "WAL magic", offset: 0, expected: "CLWL", found });
        }
        let sums = (crc32c(head.get(..36).unwrap_or(&[])), crc_at(head, 36));
        if let (expected, Some(found)) = sums
            && found != expected
        {
            return Err(DecodeError::Checksum { what: "WAL segment header", offset: 36, expected, found });
        }
        let version = reader.le_u16("WAL version")?;
        reader.bytes("WAL reserved", 2)?;
        let segment = reader.le_u32("WAL segment number")?;
        if version == 1 {
            // Numbers had 64 bits; no log has had as many segments.
            reader.bytes("WAL segment number", 4)?;
        } else if version != SEGMENT_VERSION {
            let found = u64::from(version);
            return Err(DecodeError::Invalid { what: "WAL version", offset: 4, expected: "1 or 2", found });
        }
        let (low, high) = (reader.le_u64("WAL key")?, reader.le_u64("WAL key")?);
        let stale_sequence = if version == 1 { 0 } else { reader.le_u64("WAL stale sequence")? };
        Ok(SegmentHeader { segment, key: u128::from(high) << 64 | u128::from(low), stale_sequence })
    }
}

fn crc_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Fields of a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub payload_len: u32,
    /// What the payload is.
    pub kind: u8,
    /// Stripe of the samples, or [`STRIPE_NONE`].
    pub stripe: u8,
    /// How the payload is packed.
    pub codec: u8,
    /// Ascends by one from frame to frame over all segments.
    pub sequence: u64,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

impl FrameHeader {
    /// The header of `payload`.
    ///
    /// # Panics
    /// If the payload is longer than [`FRAME_PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub fn for_payload(kind: u8, stripe: u8, payload: &[u8]) -> FrameHeader {
        assert!(payload.len() <= FRAME_PAYLOAD_BYTES_MAX, "writers split frames");
        let (payload_len, payload_crc) = (payload.len() as u32, crc32c(payload));
        FrameHeader { payload_len, kind, stripe, codec: CODEC_NONE, sequence: 0, payload_crc }
    }

    /// Appends header, payload and padding to `out`.
    pub fn put_frame(&self, key: u128, payload: &[u8], out: &mut Vec<u8>) {
        let mut head = [0u8; FRAME_HEADER_BYTES];
        head[..4].copy_from_slice(&self.payload_len.to_le_bytes());
        (head[4], head[5], head[6]) = (self.kind, self.stripe, self.codec);
        head[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        head[16..20].copy_from_slice(&self.payload_crc.to_le_bytes());
        let sum = header_crc(&head[..20], key);
        head[20..].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
        out.resize(out.len().next_multiple_of(FRAME_ALIGN_BYTES), 0);
    }

    /// Reads a header; `None` if its checksum does not fit or its length is impossible.
    #[must_use]
    pub fn decode(bytes: &[u8], key: u128) -> Option<FrameHeader> {
        let head: &[u8; FRAME_HEADER_BYTES] = bytes.first_chunk()?;
        let mut reader = ByteReader::new(head);
        let header = FrameHeader {
            payload_len: reader.le_u32("frame length").ok()?,
            kind: reader.u8("frame kind").ok()?,
            stripe: reader.u8("frame stripe").ok()?,
            codec: reader.u8("frame codec").ok()?,
            sequence: {
                reader.u8("frame reserved").ok()?;
                reader.le_u64("frame sequence").ok()?
            },
            payload_crc: reader.le_u32("frame payload checksum").ok()?,
        };
        let sum = reader.le_u32("frame checksum").ok()?;
        let fits = header.payload_len as usize <= FRAME_PAYLOAD_BYTES_MAX;
        (fits && sum == header_crc(head.get(..20)?, key)).then_some(header)
    }

    /// Bytes of the whole frame, padding included.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        (FRAME_HEADER_BYTES + self.payload_len as usize).next_multiple_of(FRAME_ALIGN_BYTES)
    }
}

fn header_crc(head: &[u8], key: u128) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(head);
    sum.update(&key.to_le_bytes());
    sum.finish()
}

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(FRAME_ALIGN_BYTES));

#[cfg(test)]
mod tests;
