//! Segments that a start need not read: they are kept for the older copies of slices only.
//!
//! Holds: a segment is skipped only if every frame of it is in the copies and definitions that were loaded,
//! which the sequence of the next segment's first frame proves. Damage in a skipped segment loses nothing;
//! `chronolith check` names it.

use chronolith_format::wal::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::files::{LogFiles, Segment, SegmentEnd, read_head};
use super::positions::Positions;
use crate::head::Series;
use crate::options::HeadError;

/// What reading each segment would show, for those that need not be read.
pub(super) fn ends_of_skipped(
    series: &Series,
    files: &LogFiles,
    positions: &Positions,
) -> Result<Vec<Option<SegmentEnd>>, HeadError> {
    let loaded_sequence = positions.oldest.min(positions.defined_sequence);
    let mut ends = vec![None; files.segments.len()];
    if loaded_sequence == 0 {
        return Ok(ends);
    }
    let mut before = None;
    for (idx, segment) in files.segments.iter().enumerate() {
        let first = first_sequence(series, segment)?;
        if let (Some(first), Some(before_idx)) = (first, before)
            && first <= loaded_sequence.saturating_add(1)
        {
            let before: &Segment = &files.segments[before_idx];
            let first_sequence = first_sequence(series, before)?.unwrap_or(first - 1);
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

/// Sequence of the first frame of a segment; `None` if no good one stands there.
fn first_sequence(series: &Series, segment: &Segment) -> Result<Option<u64>, HeadError> {
    // Without its header nobody knows which frames are of an earlier use of the file.
    let Some(SegmentHeader { key, stale_sequence, .. }) = segment.header else { return Ok(None) };
    let head = read_head(&*series.env.disk, &segment.path, SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES)?;
    let frame = head.get(SEGMENT_HEADER_BYTES..).unwrap_or(&[]);
    let first = FrameHeader::decode(frame, key).map(|header| header.sequence);
    Ok(first.filter(|&sequence| sequence > stale_sequence))
}
