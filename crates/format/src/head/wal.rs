//! Write-ahead log bytes: segment header, frames, and the payloads of series, samples and deletions.
//!
//! Invariants: every byte in use is covered by a checksum; a reader takes untrusted bytes and never panics;
//! the checksum of a frame header covers the random key of the log, so bytes that a client sends never look
//! like a frame.
//! Not here: files, group commit (`wal`), applying samples (`head`). Layout: `docs/head/wal.md`.

mod control;
mod histograms;
mod old_samples;
mod overflow;
mod overflow_histograms;
mod payload;
mod position;
mod samples;
mod scan;
mod texts;

use chronolith_base::crc::{Crc32c, crc32c};
use chronolith_base::{ByteReader, DecodeError};
use chronolith_model::DuplicatePolicy;

pub use control::{CONTROL_BYTES, CONTROL_FILE, ControlRecord, LostFrames, SLOT_COUNT};
pub(crate) use histograms::{BoundedHistogramDecoder, HistogramEncoder, encoded_len_max};
pub use histograms::{put_histogram, read_histogram};
pub use overflow::{OVERFLOW_SAMPLES_MAX, OverflowChanges, OverflowRef, OverflowSample, OverflowSlot};
pub(super) use overflow::{read_key, read_slot};
pub use overflow_histograms::{OverflowHistogram, OverflowHistogramChanges, OverflowHistogramsRef};
pub(super) use overflow_histograms::{put_overflow_histograms, read_overflow_histograms};
pub(super) use payload::text;
pub use payload::{DeletesRef, SeriesRecord, SeriesRef, encode_deletes, encode_series};
pub use position::{POSITION_BYTES, PositionFrame};
pub use samples::Samples;
pub use scan::{Damage, FrameRef, Scan, scan_recycled, scan_segment, scan_segment_from};
pub use texts::{TextsRef, encode_texts, put_text};

/// First bytes of a segment.
pub const SEGMENT_MAGIC: [u8; 4] = *b"CLWS";
/// First bytes of a segment of version 1 or 2.
const OLD_SEGMENT_MAGIC: [u8; 4] = *b"CLWL";
/// Version of the segment layout that is written.
pub const SEGMENT_VERSION: u16 = 3;
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
/// Frame kind of segments of version 1 and 2: floats of one stripe.
pub const KIND_OLD_FLOATS: u8 = 2;
/// Frame kind of segments of version 1 and 2: native histograms of one stripe.
pub const KIND_OLD_HISTOGRAMS: u8 = 3;
/// Frame kind of segments of version 1 and 2: start timestamps of samples of one stripe.
pub const KIND_OLD_STARTS: u8 = 4;
/// Frame kind: samples of one stripe, of every kind of value.
pub const KIND_SAMPLES: u8 = 5;
/// Frame kind: deletions of samples of one stripe.
pub const KIND_DELETES: u8 = 8;
/// Frame kind: texts of one tenant and window, in front of the samples that refer to them.
pub const KIND_TEXTS: u8 = 9;
/// Frame kind: changes of the overflow table of one tenant.
pub const KIND_OVERFLOW: u8 = 10;
/// Frame kind: native histograms that were folded into the overflow table of one tenant.
pub const KIND_OVERFLOW_HISTOGRAMS: u8 = 11;
/// Frame kind: position in the replicated log up to which the frames before have its records.
pub const KIND_POSITION: u8 = 12;
/// Codec of an uncompressed payload; no other is defined.
pub const CODEC_NONE: u8 = 0;
/// Stripe byte of frames that belong to no stripe.
pub const STRIPE_NONE: u8 = 0xff;

/// Returns true if frames of `kind` hold samples ([`decode_samples`]).
#[must_use]
pub fn is_samples(kind: u8) -> bool {
    matches!(kind, KIND_SAMPLES | KIND_OLD_FLOATS | KIND_OLD_HISTOGRAMS | KIND_OLD_STARTS)
}

/// Replaces `out` by the samples of a frame of this version or an earlier one.
///
/// # Errors
/// [`DecodeError`]; the columns are then not usable.
pub fn decode_samples(kind: u8, payload: &[u8], out: &mut Samples) -> Result<(), DecodeError> {
    out.clear();
    let reader = ByteReader::new(payload);
    if kind == KIND_SAMPLES {
        return out.decode(reader);
    }
    // The later one of two values at a timestamp replaces the other: only accepted samples are in the WAL.
    (out.arrival_ms, out.duplicates) = (0, DuplicatePolicy::LastWins);
    match kind {
        KIND_OLD_FLOATS => old_samples::decode_floats(out, reader),
        KIND_OLD_HISTOGRAMS => old_samples::decode_histograms(out, reader),
        KIND_OLD_STARTS => old_samples::decode_starts(out, reader),
        _ => {
            let (what, expected, found) = ("frame kind", "a frame of samples", u64::from(kind));
            Err(DecodeError::Invalid { what, offset: 0, expected, found })
        }
    }
}

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Number of the segment, as in its file name.
    pub segment: u32,
    /// Random key of the WAL: part of frame checksums and of hashes of wire keys.
    pub key: u128,
    /// Frames with this sequence or a lower one are left from an earlier use of the file; 0 in a file without
    /// one.
    pub stale_sequence: u64,
}

impl SegmentHeader {
    /// Encodes the header.
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

    /// Reads the header at the start of `bytes`, of this version or an earlier one.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign or damaged bytes, and for bytes of a later version
    /// ([`SegmentHeader::is_of_later_version`]).
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let mut reader = ByteReader::new(bytes);
        let head = reader.bytes("WAL segment header", SEGMENT_HEADER_BYTES)?;
        let mut reader = ByteReader::new(head);
        let magic = reader.be_u32("WAL magic")?;
        let is_old = magic == u32::from_be_bytes(OLD_SEGMENT_MAGIC);
        if !is_old && magic != u32::from_be_bytes(SEGMENT_MAGIC) {
            let (expected, found) = ("CLWS or CLWL", u64::from(magic));
            return Err(DecodeError::Invalid { what: "WAL magic", offset: 0, expected, found });
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
        if is_old && version == 1 {
            // Numbers had 64 bits; no log has had as many segments.
            reader.bytes("WAL segment number", 4)?;
        } else if version != if is_old { 2 } else { SEGMENT_VERSION } {
            let (expected, found) = (if is_old { "1 or 2" } else { "3" }, u64::from(version));
            return Err(DecodeError::Invalid { what: WAL_VERSION, offset: 4, expected, found });
        }
        let (low, high) = (reader.le_u64("WAL key")?, reader.le_u64("WAL key")?);
        let stale_sequence = if version == 1 { 0 } else { reader.le_u64("WAL stale sequence")? };
        Ok(SegmentHeader { segment, key: u128::from(high) << 64 | u128::from(low), stale_sequence })
    }

    /// Returns true if `error` says that a segment is intact and of a later version, which this one must not
    /// touch.
    #[must_use]
    pub fn is_of_later_version(error: &DecodeError) -> bool {
        let later = u64::from(SEGMENT_VERSION);
        matches!(error, DecodeError::Invalid { what: WAL_VERSION, found, .. } if *found > later)
    }
}

const WAL_VERSION: &str = "WAL version";

fn crc_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Fields of a frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub payload_len: u32,
    /// Kind of the payload: `KIND_*`.
    pub kind: u8,
    /// Stripe of the samples, or [`STRIPE_NONE`].
    pub stripe: u8,
    /// Compression of the payload: [`CODEC_NONE`].
    pub codec: u8,
    /// Increases by one from frame to frame over all segments.
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

    /// Reads a header; `None` if its checksum does not match or its length is above the limit.
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
