//! Skips segments that a replay need not read: they are kept for older copies of the checkpoint only.
//!
//! Invariant: a segment is skipped only if every frame of it is at or before the needed sequence, which the
//! first frame of the next segment proves. Damage in a skipped segment loses nothing; `chronolith check`
//! reports it.

use chronolith_base::Disk;
use chronolith_format::head::wal::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::found_segment::{Segment, SegmentEnd, read_head};
use crate::options::FileError;

/// Returns, per segment that need not be read, the result that reading it would have.
pub(crate) fn ends_of_skipped(
    disk: &dyn Disk,
    segments: &[Segment],
    needed_after: u64,
) -> Result<Vec<Option<SegmentEnd>>, FileError> {
    let mut ends = vec![None; segments.len()];
    if needed_after == 0 {
        return Ok(ends);
    }
    let mut before = None;
    for (idx, segment) in segments.iter().enumerate() {
        let first = first_sequence(disk, segment)?;
        if let (Some(first), Some(before_idx)) = (first, before)
            && first <= needed_after.saturating_add(1)
        {
            let before: &Segment = &segments[before_idx];
            let first_sequence = first_sequence(disk, before)?.unwrap_or(first - 1);
            let end = SegmentEnd {
                first_sequence,
                last_sequence: first - 1,
                end: before.len,
                ..SegmentEnd::default()
            };
            ends[before_idx] = (first > 1).then_some(end);
        }
        before = Some(idx);
    }
    Ok(ends)
}

/// Returns the sequence of the first frame of a segment; `None` if it has no valid one.
fn first_sequence(disk: &dyn Disk, segment: &Segment) -> Result<Option<u64>, FileError> {
    // Without the header, frames of an earlier use of the file cannot be recognised.
    let Some(SegmentHeader { key, stale_sequence, .. }) = segment.header() else { return Ok(None) };
    let head = read_head(disk, &segment.path, SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES)?;
    let frame = head.get(SEGMENT_HEADER_BYTES..).unwrap_or(&[]);
    let first = FrameHeader::decode(frame, key).map(|header| header.sequence);
    Ok(first.filter(|&sequence| sequence > stale_sequence))
}
