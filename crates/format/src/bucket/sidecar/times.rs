//! Ranges of the chunks whose times other chunks refer to, so that a reader fetches them together with the
//! chunks that need them.
//!
//! Invariant: ranges ascend and do not touch.

use chronolith_base::bytes::put_uvarint;
use chronolith_base::{ByteReader, DecodeError};

use crate::block::chunks::ChunkRef;

const WHAT: &str = "shared times";

/// Bytes of a segment with chunks whose times others share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentRange {
    /// Number of the segment, from 0.
    pub segment_idx: u32,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

/// Collects ranges in any order.
/// Memory: 12 bytes per range that is left after joining, twice.
#[derive(Default)]
pub(super) struct TimesBuilder {
    ranges: Vec<SegmentRange>,
    joined_count: usize,
}

/// Ranges up to which nothing is joined.
const UNJOINED_MIN: usize = 4096;

impl TimesBuilder {
    pub(super) fn push(&mut self, chunk_ref: ChunkRef, len: u32) {
        let start = chunk_ref.offset();
        let range =
            SegmentRange { segment_idx: chunk_ref.segment_idx(), start, end: start.saturating_add(len) };
        // Chunks of one target come one after another and name the same chunk.
        if self.ranges.last() == Some(&range) {
            return;
        }
        self.ranges.push(range);
        if self.ranges.len() >= UNJOINED_MIN.max(2 * self.joined_count) {
            self.join();
        }
    }

    pub(super) fn finish(mut self) -> Vec<SegmentRange> {
        self.join();
        self.ranges
    }

    fn join(&mut self) {
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, before| {
            let joins = next.segment_idx == before.segment_idx && next.start <= before.end;
            if joins {
                before.end = before.end.max(next.end);
            }
            joins
        });
        self.joined_count = self.ranges.len();
    }
}

/// Appends the ranges, which ascend and do not touch.
pub(super) fn put_ranges(ranges: &[SegmentRange], out: &mut Vec<u8>) {
    put_uvarint(out, ranges.len() as u64);
    let mut segment_idx = 0;
    let mut end = 0;
    for range in ranges {
        put_uvarint(out, u64::from(range.segment_idx - segment_idx));
        if range.segment_idx != segment_idx {
            end = 0;
        }
        put_uvarint(out, u64::from(range.start - end));
        put_uvarint(out, u64::from(range.end - range.start));
        segment_idx = range.segment_idx;
        end = range.end;
    }
}

/// Reads what [`put_ranges`] wrote.
pub(super) fn read_ranges(reader: &mut ByteReader<'_>) -> Result<Vec<SegmentRange>, DecodeError> {
    let count = reader.length(WHAT)?;
    let mut ranges: Vec<SegmentRange> = Vec::new();
    for _ in 0..count {
        let offset = reader.offset();
        let last = ranges.last().copied().unwrap_or(SegmentRange { segment_idx: 0, start: 0, end: 0 });
        let segment_delta = reader.uvarint(WHAT)?;
        let gap = reader.uvarint(WHAT)?;
        let len = reader.uvarint(WHAT)?;
        let end_before = if segment_delta == 0 { last.end } else { 0 };
        let segment_idx = u32::try_from(segment_delta).ok().and_then(|d| last.segment_idx.checked_add(d));
        let start = u32::try_from(gap).ok().and_then(|gap| end_before.checked_add(gap));
        let end = u32::try_from(len).ok().and_then(|len| start?.checked_add(len));
        let (Some(segment_idx), Some(start), Some(end)) = (segment_idx, start, end) else {
            let expected = "an ascending range of a segment";
            return Err(DecodeError::Invalid { what: WHAT, offset, expected, found: len });
        };
        ranges.push(SegmentRange { segment_idx, start, end });
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
