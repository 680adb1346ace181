//! Scan of the records of a segment, over damage.
//!
//! Invariant: every offset between the start and the end of a segment is returned, or reported as lost.

use std::ops::Range;

use bytes::Bytes;
use chronolith_format::replicated_log::directory::{
    RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, find_record, read_record, read_record_header,
};

use super::segment_file::SegmentFile;
use crate::error::LogError;
use crate::position::{PartitionId, Record, TopicId};

/// Bytes that a search for the next record looks at in one step.
const SEARCH_BYTES: usize = 1 << 20;

/// Place between two records of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanPoint {
    /// Byte within the file.
    pub(super) at: u64,
    /// Offset of the record that begins there.
    pub(super) offset: u64,
}

impl ScanPoint {
    /// Returns the place of the first record of a segment.
    pub(super) fn first(first_offset: u64) -> ScanPoint {
        ScanPoint { at: SEGMENT_HEADER_BYTES as u64, offset: first_offset }
    }
}

/// Result of looking at one place of a segment.
enum Step {
    /// A record, whose value was read if it is wanted.
    Record { next: ScanPoint, timestamp_ms: i64, value: Option<Bytes> },
    /// No record; the next one that is intact, if there is one.
    Damage { next: Option<ScanPoint> },
}

/// Scan of one segment.
pub(super) struct Scan {
    pub(super) file: SegmentFile,
    pub(super) topic: TopicId,
    pub(super) partition: PartitionId,
}

impl Scan {
    /// Adds records from offset `from` on to `out`, at most `bytes_max` bytes beyond a first record; `start`
    /// is at or before `from`, and the segment has the offsets up to `end`. Returns the place after the last
    /// record.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if `out` is empty and the record at `from` is lost; [`LogError::File`].
    pub(super) fn read(
        &mut self,
        start: ScanPoint,
        wanted: Range<u64>,
        bytes_max: usize,
        out: &mut Vec<Record>,
    ) -> Result<ScanPoint, LogError> {
        let mut point = start;
        let mut left_bytes = bytes_max;
        while point.offset < wanted.end {
            let is_wanted = point.offset >= wanted.start;
            let (lost, next) = match self.step(point, is_wanted)? {
                Step::Record { next, timestamp_ms, value } => {
                    if let Some(value) = value {
                        if value.len() > left_bytes && !out.is_empty() {
                            return Ok(point);
                        }
                        left_bytes = left_bytes.saturating_sub(value.len());
                        out.push(Record { offset: point.offset, timestamp_ms, value });
                    }
                    point = next;
                    continue;
                }
                Step::Damage { next: Some(next) } => (point.offset..next.offset.min(wanted.end), next),
                Step::Damage { next: None } => {
                    (point.offset..wanted.end, ScanPoint { at: self.file.len(), offset: wanted.end })
                }
            };
            if lost.end > wanted.start {
                if out.is_empty() {
                    return Err(self.damaged(lost.start.max(wanted.start)..lost.end, point));
                }
                return Ok(point);
            }
            point = next;
        }
        Ok(point)
    }

    /// Returns the place after the last intact record of the last segment. Damage that intact records follow
    /// is logged.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn find_end(&mut self, first_offset: u64) -> Result<ScanPoint, LogError> {
        let mut point = ScanPoint::first(first_offset);
        while point.at < self.file.len() {
            match self.step(point, true)? {
                Step::Record { next, .. } => point = next,
                Step::Damage { next: Some(next) } => {
                    let damaged = self.damaged(point.offset..next.offset, point);
                    tracing::error!(error = %damaged, "replicated log is damaged");
                    point = next;
                }
                Step::Damage { next: None } => break,
            }
        }
        Ok(point)
    }

    fn step(&mut self, point: ScanPoint, is_wanted: bool) -> Result<Step, LogError> {
        let topic = self.topic;
        let head = self.file.bytes_at(point.at, RECORD_HEADER_BYTES)?;
        let header = read_record_header(&topic.0, head, 0).ok().filter(|h| h.offset == point.offset);
        let Some(header) = header else { return self.search(point) };
        let len = RECORD_HEADER_BYTES + header.value_len;
        if point.at + len as u64 > self.file.len() {
            return self.search(point);
        }
        let next = ScanPoint { at: point.at + len as u64, offset: point.offset.saturating_add(1) };
        if !is_wanted {
            return Ok(Step::Record { next, timestamp_ms: header.timestamp_ms, value: None });
        }
        match read_record(&topic.0, self.file.bytes_at(point.at, len)?, 0) {
            Ok(record) => {
                let value = Some(Bytes::copy_from_slice(record.value));
                Ok(Step::Record { next, timestamp_ms: record.timestamp_ms, value })
            }
            Err(_) => self.search(point),
        }
    }

    /// Searches for the next intact record after damage at `point`.
    fn search(&mut self, point: ScanPoint) -> Result<Step, LogError> {
        let topic = self.topic;
        let mut at = point.at + 1;
        while at + RECORD_HEADER_BYTES as u64 <= self.file.len() {
            let bytes = self.file.bytes_at(at, SEARCH_BYTES)?;
            if let Some(found) = find_record(&topic.0, bytes, 0, point.offset)
                && let Ok(header) = read_record_header(&topic.0, bytes, found)
            {
                let next = ScanPoint { at: at + found as u64, offset: header.offset };
                return Ok(Step::Damage { next: Some(next) });
            }
            // A header may begin in the last bytes of this step.
            at += (bytes.len() + 1).saturating_sub(RECORD_HEADER_BYTES).max(1) as u64;
        }
        Ok(Step::Damage { next: None })
    }

    fn damaged(&self, lost: Range<u64>, point: ScanPoint) -> LogError {
        let path = self.file.path().display();
        let what = format!("{path} has no record with offset {} at byte {}", point.offset, point.at);
        LogError::Damaged { partition: self.partition, lost, what }
    }
}
