//! Scans a segment for valid frames and reports damaged ranges.
//!
//! Invariant: a frame is valid only if both its checksums match and its sequence is above the previous
//! frame's; in a recycled file also above all sequences of the earlier use. After damage the scan continues
//! at the next aligned offset with a valid frame: the header checksum covers the key of the WAL, so neither
//! stale bytes of another WAL nor bytes chosen by a client pass for one.
//! Not here: payloads (`samples`, `payload`), reading files block by block (`wal`).

use std::ops::Range;

use chronolith_base::crc::crc32c;

use super::{FRAME_ALIGN_BYTES, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader};

/// A frame whose checksums match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameRef {
    /// Header.
    pub header: FrameHeader,
    /// Range of the payload in the segment.
    pub payload: Range<usize>,
}

/// Bytes that belong to no valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Start in the segment.
    pub offset: usize,
    /// Bytes up to the next valid frame or the end of the written part.
    pub len: usize,
    /// Set if a valid frame follows; otherwise this is the torn end of the WAL (or of the segment).
    pub followed: bool,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// Valid frames, sequences ascending.
    pub frames: Vec<FrameRef>,
    /// Damaged ranges, ascending.
    pub damage: Vec<Damage>,
    /// End of the last valid frame: the segment can be truncated here.
    pub end: usize,
}

/// Scans the segment `bytes` after its header.
#[must_use]
pub fn scan_segment(bytes: &[u8], header: &SegmentHeader) -> Scan {
    let stale = header.stale_sequence;
    scan_recycled(bytes, header.key, SEGMENT_HEADER_BYTES, stale, stale)
}

/// Scans a file of frames from offset `at` on, where the frames before end with `sequence`.
#[must_use]
pub fn scan_segment_from(bytes: &[u8], key: u128, at: usize, sequence: u64) -> Scan {
    scan_recycled(bytes, key, at, sequence, 0)
}

/// As [`scan_segment_from`], for a segment in whose file frames up to `stale_sequence` are left from an
/// earlier use.
///
/// After the last valid frame of a recycled file lie frames of its earlier use, the first of them overwritten
/// in part: bytes alone do not distinguish that from a torn frame, so nothing there is reported as damage.
/// Missing frames show in the sequences (`ControlRecord`, and the first frame of the next segment).
#[must_use]
pub fn scan_recycled(bytes: &[u8], key: u128, mut at: usize, mut sequence: u64, stale_sequence: u64) -> Scan {
    let mut scan = Scan { end: at, ..Scan::default() };
    let mut used_len = None;
    loop {
        if let Some(frame) = frame_at(bytes, at, key).filter(|frame| frame.header.sequence > sequence) {
            sequence = frame.header.sequence;
            at += frame.header.frame_len();
            scan.end = at.min(bytes.len());
            scan.frames.push(frame);
            continue;
        }
        // Zeros up to the end of the file are the unused rest of a preallocated segment.
        let used =
            *used_len.get_or_insert_with(|| bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1));
        if used <= at {
            break;
        }
        let offset = at;
        match next_frame(bytes, at..used, key, sequence, stale_sequence) {
            Some(found) => {
                scan.damage.push(Damage { offset, len: found - offset, followed: true });
                at = found;
            }
            None => {
                if stale_sequence == 0 {
                    scan.damage.push(Damage { offset, len: used - offset, followed: false });
                }
                break;
            }
        }
    }
    scan
}

/// Returns the frame at `at` if both checksums match.
fn frame_at(bytes: &[u8], at: usize, key: u128) -> Option<FrameRef> {
    let header = FrameHeader::decode(bytes.get(at..)?, key)?;
    let start = at + FRAME_HEADER_BYTES;
    let payload = start..start + header.payload_len as usize;
    (crc32c(bytes.get(payload.clone())?) == header.payload_crc).then_some(FrameRef { header, payload })
}

/// Returns the offset of the next frame above `sequence`. Whole frames of an earlier use are skipped: a frame
/// that was written later within one would break its checksum.
fn next_frame(
    bytes: &[u8],
    range: Range<usize>,
    key: u128,
    sequence: u64,
    stale_sequence: u64,
) -> Option<usize> {
    let mut at = range.start;
    while at < range.end {
        // A frame's header is never all zeros in its first eight bytes' kind; most gaps are zeros.
        let kind = bytes.get(at + 4).copied().unwrap_or(0);
        let found = if kind == 0 { None } else { frame_at(bytes, at, key) };
        match found {
            Some(frame) if frame.header.sequence > sequence => return Some(at),
            Some(frame) if frame.header.sequence <= stale_sequence => at += frame.header.frame_len(),
            _ => at += FRAME_ALIGN_BYTES,
        }
    }
    None
}
