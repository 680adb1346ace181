//! Frames of an answer: kind, length, checksum, payload.
//!
//! Invariants: a frame is returned when all of its bytes are there and their checksum is right; the buffer
//! has the bytes of one frame and of one push at most.
//! Not here: content of the frames (`encode`, `decode`).

use chronolith_base::crc::Crc32c;
use chronolith_base::{ByteReader, DecodeError};

use super::content::SelectEncodeError;
use crate::record::invalid;

/// Bytes of the longest payload. Writers end a frame of series at some hundred kB.
pub const FRAME_BYTES_MAX: usize = 32 << 20;

/// Payload bytes from which writers end a frame.
pub(super) const FRAME_BYTES_FULL: usize = 256 << 10;
/// Bytes of the labels of a series, or of a text or chunk.
pub(super) const ITEM_BYTES_MAX: usize = 16 << 20;

/// Kind: header, the first frame.
pub(super) const KIND_HEADER: u8 = 0;
/// Kind: texts that series name by number.
pub(super) const KIND_TEXTS: u8 = 1;
/// Kind: series with their samples.
pub(super) const KIND_SERIES: u8 = 2;
/// Kind: a part of a list.
pub(super) const KIND_LIST: u8 = 3;
/// Kind: an estimate.
pub(super) const KIND_ESTIMATE: u8 = 4;
/// Kind: warnings of the sources.
pub(super) const KIND_WARNINGS: u8 = 5;
/// Kind: the failure that ends the answer.
pub(super) const KIND_FAILURE: u8 = 6;
/// Kind: counts, which end the answer.
pub(super) const KIND_END: u8 = 7;
/// Kind: a part of the metadata.
pub(super) const KIND_METADATA: u8 = 8;
/// Kind: a part of the exemplars.
pub(super) const KIND_EXEMPLARS: u8 = 9;
/// Kind: a part of the ranges of time.
pub(super) const KIND_RANGES: u8 = 10;

/// Kind, length and checksum.
const HEAD_BYTES: usize = 1 + 4 + 4;
const WHAT: &str = "frame of a select answer";

fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(&[kind]);
    sum.update(&(payload.len() as u32).to_le_bytes());
    sum.update(payload);
    sum.finish()
}

/// Appends a frame.
///
/// # Panics
/// If the payload is longer than [`FRAME_BYTES_MAX`].
pub(super) fn put_frame(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    assert!(payload.len() <= FRAME_BYTES_MAX, "writers end their frames before the limit");
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum(kind, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Checks the length of an item.
///
/// # Errors
/// [`SelectEncodeError::TooLong`].
pub(super) fn check_len(what: &'static str, bytes: usize) -> Result<(), SelectEncodeError> {
    match bytes {
        0..=ITEM_BYTES_MAX => Ok(()),
        _ => Err(SelectEncodeError::TooLong { what, bytes, max: ITEM_BYTES_MAX }),
    }
}

/// A frame with a right checksum.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    /// Offset of the payload in the answer.
    pub(super) offset: usize,
    pub(super) payload: Vec<u8>,
}

/// Bytes of an answer that are no whole frame yet.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer whose frames were returned.
    read_bytes: usize,
    /// Offset of the buffer in the answer.
    offset: usize,
}

impl FrameReader {
    /// Appends bytes of the answer.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read_bytes);
        self.offset = self.offset.saturating_add(self.read_bytes);
        self.read_bytes = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame; `None` if it is not complete.
    ///
    /// # Errors
    /// [`DecodeError`] for a length above the limit and a wrong checksum.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, DecodeError> {
        let start = self.offset.saturating_add(self.read_bytes);
        let mut reader = ByteReader::at(&self.buffer, self.read_bytes);
        if reader.remaining() < HEAD_BYTES {
            return Ok(None);
        }
        let kind = reader.u8(WHAT)?;
        let len = reader.le_u32(WHAT)?;
        let found = reader.le_u32(WHAT)?;
        if len as usize > FRAME_BYTES_MAX {
            return Err(invalid(WHAT, start, "at most 32 MiB", len.into()));
        }
        if reader.remaining() < len as usize {
            return Ok(None);
        }
        let payload = reader.bytes(WHAT, len as usize)?;
        let expected = checksum(kind, payload);
        if found != expected {
            return Err(DecodeError::Checksum { what: WHAT, offset: start, expected, found });
        }
        self.read_bytes = reader.offset();
        debug_assert!(self.read_bytes <= self.buffer.len(), "a reader ends at the end of its bytes");
        let payload = payload.to_vec();
        Ok(Some(Frame { kind, offset: start.saturating_add(HEAD_BYTES), payload }))
    }

    /// Bytes that are no whole frame yet.
    pub(super) fn pending_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.read_bytes)
    }

    /// Bytes of the buffer.
    pub(super) fn heap_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Offset of the next frame in the answer.
    pub(super) fn offset(&self) -> usize {
        self.offset.saturating_add(self.read_bytes)
    }
}
