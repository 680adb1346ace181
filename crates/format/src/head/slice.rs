//! Checkpoint slices: the state of some pages of one stripe at one position of the WAL.
//!
//! Invariants: a slice is valid as a whole or not at all: its header has the number of its frames, and the
//! sequence of each frame binds it to this write of the slice; readers take untrusted bytes and never panic.
//! Not here: writing and loading of slices (`head`). Layout: `docs/head/slice.md`.

mod entry;
mod old_entry;
mod reader;

use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

pub use entry::{
    OooPayload, OpenChunk, SealedEntry, SeriesEntry, WindowEntry, decode_tenants, encode_entry,
    encode_tenants,
};
pub use reader::{EntryReader, decode_ooo};

use crate::head::wal::FrameHeader;

/// First bytes of a file.
pub const FILE_MAGIC: [u8; 4] = *b"CLSL";
/// Version of the layout that is written for slices without stores.
pub const FILE_VERSION: u16 = 4;
/// Version of slices with stores, whose ids no earlier program accepts.
const VERSION_WITH_STORES: u16 = 5;
/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = 80;

/// Frame kind: tenants of the slice and first arrivals of their windows.
pub const KIND_TENANTS: u8 = 96;
/// Frame kind of version 1: series, ids ascending.
pub const KIND_OLD_SERIES: u8 = 97;
/// Frame kind: series, ids ascending.
pub const KIND_SERIES: u8 = 98;

/// Returns true if frames of `kind` hold series ([`EntryReader`]).
#[must_use]
pub fn is_series(kind: u8) -> bool {
    matches!(kind, KIND_SERIES | KIND_OLD_SERIES)
}

/// Limit of the frames of a slice; their index is part of their sequence.
pub const FRAME_COUNT_MAX: u32 = 1 << 16;

/// Header of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceHeader {
    /// Number of the slice, as in its file name.
    pub slice: u32,
    /// Increases with each write of the slice.
    pub generation: u64,
    /// Sequence of the WAL up to which the slice has all samples of its series.
    pub sequence: u64,
    /// Key of the WAL.
    pub key: u128,
    /// Series from this id on are not in the slice.
    pub id_end: u32,
    /// Number of frames after the header.
    pub frame_count: u32,
    /// Bytes of header and frames; bytes after them are left from an earlier write.
    pub byte_len: u64,
    /// Series in the slice.
    pub series_count: u32,
    /// Samples in the slice.
    pub sample_count: u64,
    /// Frames of the WAL after `sequence` of which the slice may have samples, because they were appended
    /// while it was copied; [`LATER_FRAMES_UNKNOWN`] in version 1.
    pub later_frames: u32,
    /// Set if a store of the slice is of a database or of Graphite clients, or a sealed chunk has a bound
    /// instead of a span.
    pub has_stores: bool,
}

/// See [`SliceHeader::later_frames`].
pub const LATER_FRAMES_UNKNOWN: u32 = u32::MAX;

impl SliceHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut out = [0u8; FILE_HEADER_BYTES];
        out[..4].copy_from_slice(&FILE_MAGIC);
        let version = if self.has_stores { VERSION_WITH_STORES } else { FILE_VERSION };
        out[4..6].copy_from_slice(&version.to_le_bytes());
        out[8..12].copy_from_slice(&self.slice.to_le_bytes());
        out[12..16].copy_from_slice(&self.id_end.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..48].copy_from_slice(&self.key.to_le_bytes());
        out[48..52].copy_from_slice(&self.frame_count.to_le_bytes());
        out[52..56].copy_from_slice(&self.series_count.to_le_bytes());
        out[56..64].copy_from_slice(&self.byte_len.to_le_bytes());
        out[64..72].copy_from_slice(&self.sample_count.to_le_bytes());
        out[72..76].copy_from_slice(&self.later_frames.to_le_bytes());
        let sum = crc32c(&out[..76]);
        out[76..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header at the start of `bytes`, of this version or an earlier one.
    ///
    /// # Errors
    /// [`DecodeError`] for short, foreign or damaged bytes, and for bytes of a later version
    /// ([`SliceHeader::is_of_later_version`]).
    pub fn decode(bytes: &[u8]) -> Result<SliceHeader, DecodeError> {
        let head = ByteReader::new(bytes).bytes("slice header", FILE_HEADER_BYTES)?;
        let mut reader = ByteReader::new(head);
        let magic = reader.be_u32("slice magic")?;
        if magic != u32::from_be_bytes(FILE_MAGIC) {
            let what = "slice magic";
            let found = u64::from(magic);
            return Err(DecodeError::Invalid { what, offset: 0, expected: "CLSL", found });
        }
        let version = reader.le_u16("slice version")?;
        reader.bytes("slice reserved", 2)?;
        let mut header = SliceHeader {
            slice: reader.le_u32("slice number")?,
            id_end: reader.le_u32("slice id end")?,
            generation: reader.le_u64("slice generation")?,
            sequence: reader.le_u64("slice sequence")?,
            key: {
                let low = reader.le_u64("slice key")?;
                let high = reader.le_u64("slice key")?;
                u128::from(high) << 64 | u128::from(low)
            },
            frame_count: reader.le_u32("slice frames")?,
            series_count: reader.le_u32("slice series")?,
            byte_len: reader.le_u64("slice length")?,
            sample_count: reader.le_u64("slice samples")?,
            later_frames: reader.le_u32("slice later frames")?,
            has_stores: version == VERSION_WITH_STORES,
        };
        if version == 1 {
            header.later_frames = LATER_FRAMES_UNKNOWN;
        }
        let found = reader.le_u32("slice checksum")?;
        let expected = crc32c(head.get(..76).unwrap_or(&[]));
        if found != expected {
            return Err(DecodeError::Checksum { what: "slice header", offset: 76, expected, found });
        }
        if !(1..=VERSION_WITH_STORES).contains(&version) {
            let what = SLICE_VERSION;
            let expected = "1 to 5";
            let found = u64::from(version);
            return Err(DecodeError::Invalid { what, offset: 4, expected, found });
        }
        Ok(header)
    }

    /// Returns true if `error` says that a slice is intact and of a later version.
    #[must_use]
    pub fn is_of_later_version(error: &DecodeError) -> bool {
        let latest = u64::from(VERSION_WITH_STORES);
        matches!(error, DecodeError::Invalid { what: SLICE_VERSION, found, .. } if *found > latest)
    }

    /// Returns the sequence of frame `frame_idx`.
    #[must_use]
    pub fn frame_sequence(generation: u64, frame_idx: u32) -> u64 {
        generation << 16 | u64::from(frame_idx & (FRAME_COUNT_MAX - 1))
    }
}

const SLICE_VERSION: &str = "slice version";

/// Kind and payload of a frame.
pub type SliceFrame<'a> = (u8, &'a [u8]);

/// Verifies header, frames and all checksums of a slice; returns the header, and kind and payload of each
/// frame.
///
/// # Errors
/// [`DecodeError`] at the first offset that does not match the header.
pub fn decode_slice(bytes: &[u8]) -> Result<(SliceHeader, Vec<SliceFrame<'_>>), DecodeError> {
    let header = SliceHeader::decode(bytes)?;
    if (bytes.len() as u64) < header.byte_len {
        let what = "slice";
        let left = bytes.len();
        let needed = usize::try_from(header.byte_len).unwrap_or(usize::MAX);
        return Err(DecodeError::Short { what, offset: 0, needed, left });
    }
    let mut frames = Vec::with_capacity(header.frame_count.min(FRAME_COUNT_MAX) as usize);
    let mut offset = FILE_HEADER_BYTES;
    for frame_idx in 0..header.frame_count {
        let sequence = SliceHeader::frame_sequence(header.generation, frame_idx);
        let broken =
            |what, found| DecodeError::Invalid { what, offset, expected: "a frame of this slice", found };
        let frame = bytes.get(offset..).and_then(|b| FrameHeader::decode(b, header.key));
        let frame = frame.ok_or_else(|| broken("slice frame header", 0))?;
        if frame.sequence != sequence {
            return Err(broken("slice frame", frame.sequence));
        }
        let payload = ByteReader::at(bytes, offset + crate::head::wal::FRAME_HEADER_BYTES)
            .bytes("slice frame", frame.payload_len as usize)?;
        let expected = crc32c(payload);
        if expected != frame.payload_crc {
            let found = frame.payload_crc;
            return Err(DecodeError::Checksum { what: "slice frame", offset, expected, found });
        }
        frames.push((frame.kind, payload));
        offset += frame.frame_len();
    }
    if offset as u64 != header.byte_len {
        let what = "slice length";
        let expected = "the end of the last frame";
        return Err(DecodeError::Invalid { what, offset, expected, found: header.byte_len });
    }
    Ok((header, frames))
}

#[cfg(test)]
mod tests;
