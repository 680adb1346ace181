//! Segments of one partition, and reads of their records.
//!
//! Invariants: segments ascend by offset without gap; readers see durable records only.
//! Not here: appends (`writer`).

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use chronolith_base::disk::make_dir;
use chronolith_base::{Disk, Env};
use chronolith_format::replicated_log::directory::{
    SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_name, segment_name,
};
use parking_lot::{Condvar, Mutex};

use super::open_segment::OpenSegment;
use super::scan::{Scan, ScanPoint};
use super::segment_file::SegmentFile;
use crate::error::LogError;
use crate::position::{Bounds, PartitionId, ReadLimits, Record, TopicId};

/// Places where reads ended, kept for those that continue there.
const CURSORS_MAX: usize = 8;

/// A segment and the bytes of it that are durable.
#[derive(Debug, Clone, Copy)]
struct Segment {
    first_offset: u64,
    len: u64,
}

/// End of an earlier read.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    first_offset: u64,
    point: ScanPoint,
}

struct State {
    /// At least one, the last one is appended to.
    segments: Vec<Segment>,
    end: u64,
    cursors: VecDeque<Cursor>,
}

/// Segments and visible end of one partition.
pub(super) struct Partition {
    id: PartitionId,
    topic: TopicId,
    dir: PathBuf,
    state: Mutex<State>,
    grown: Condvar,
}

impl Partition {
    /// Opens the partition below the directory of the log, and makes it if there is none. Returns it with
    /// its last segment, open for appends.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn open(
        env: &Env,
        log_dir: &Path,
        topic: TopicId,
        id: PartitionId,
    ) -> Result<(Partition, OpenSegment), LogError> {
        let dir = log_dir.join(id.to_string());
        make_dir(&*env.disk, &dir).map_err(LogError::at(&dir))?;
        let mut segments = list_segments(&*env.disk, &dir)?;
        let last = loop {
            let Some(last) = segments.last().copied() else {
                let (segment, file) = OpenSegment::create(env, &dir, topic, id, 0)?;
                segments.push(Segment { first_offset: 0, len: segment });
                break file;
            };
            if let Some(opened) = open_last(env, &dir, topic, id, last)? {
                if let Some(entry) = segments.last_mut() {
                    entry.len = opened.len();
                }
                break opened;
            }
            segments.pop();
        };
        let state = Mutex::new(State { segments, end: last.next_offset(), cursors: VecDeque::new() });
        Ok((Partition { id, topic, dir, state, grown: Condvar::new() }, last))
    }

    /// Returns true if a partition below the directory of a log has a segment.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn has_segments(env: &Env, log_dir: &Path) -> Result<bool, LogError> {
        for entry in env.disk.list(log_dir).map_err(LogError::at(log_dir))? {
            if entry.is_dir && !list_segments(&*env.disk, &log_dir.join(&entry.name))?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the number of the partition.
    pub(super) fn id(&self) -> PartitionId {
        self.id
    }

    /// Returns the directory of the segments.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the offsets that are durable.
    pub(super) fn bounds(&self) -> Bounds {
        bounds_of(&self.state.lock())
    }

    /// Returns the bytes of all segments.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.state.lock().segments.iter().map(|segment| segment.len).sum()
    }

    /// Adds a segment that the writer has made.
    pub(super) fn add_segment(&self, first_offset: u64) {
        let len = SEGMENT_HEADER_BYTES as u64;
        self.state.lock().segments.push(Segment { first_offset, len });
    }

    /// Makes the records before `end` visible to readers; the last segment has `len` durable bytes.
    pub(super) fn publish(&self, end: u64, len: u64) {
        let mut state = self.state.lock();
        assert!(end >= state.end, "offsets ascend");
        state.end = end;
        if let Some(last) = state.segments.last_mut() {
            last.len = len;
        }
        drop(state);
        self.grown.notify_all();
    }

    /// Reads records from offset `from` on, waiting for a first one.
    ///
    /// # Errors
    /// As [`crate::ReplicatedLog::read`].
    pub(super) fn read(
        &self,
        disk: &dyn Disk,
        from: u64,
        limits: ReadLimits,
    ) -> Result<Vec<Record>, LogError> {
        let mut state = self.state.lock();
        self.grown.wait_while_for(&mut state, |state| state.end == from, limits.wait);
        let bounds = bounds_of(&state);
        if from < bounds.start || from > bounds.end {
            return Err(LogError::OffsetOutOfRange { partition: self.id, offset: from, bounds });
        }
        if from == bounds.end {
            return Ok(Vec::new());
        }
        let idx = state.segments.partition_point(|segment| segment.first_offset <= from).saturating_sub(1);
        let Some(segment) = state.segments.get(idx).copied() else { return Ok(Vec::new()) };
        let end = state.segments.get(idx + 1).map_or(bounds.end, |next| next.first_offset);
        let start = state.take_cursor(segment.first_offset, from);
        drop(state);
        let path = self.dir.join(segment_name(segment.first_offset));
        let file = SegmentFile::open(disk, path, segment.len)?;
        let mut scan = Scan { file, topic: self.topic, partition: self.id };
        let mut records = Vec::new();
        let point = scan.read(start, from..end, limits.bytes_max, &mut records)?;
        self.state.lock().keep_cursor(Cursor { first_offset: segment.first_offset, point });
        Ok(records)
    }

    /// Removes segments whose records are all before `offset`, never the last one; returns their bytes.
    ///
    /// # Errors
    /// [`LogError::File`].
    pub(super) fn trim(&self, disk: &dyn Disk, offset: u64) -> Result<u64, LogError> {
        let mut freed_bytes = 0;
        loop {
            let mut state = self.state.lock();
            let [first, second, ..] = state.segments.as_slice() else { break };
            if second.first_offset > offset {
                break;
            }
            let path = self.dir.join(segment_name(first.first_offset));
            let bytes = first.len;
            disk.remove_file(&path).map_err(LogError::at(&path))?;
            state.segments.remove(0);
            freed_bytes += bytes;
        }
        if freed_bytes > 0 {
            disk.sync_dir(&self.dir).map_err(LogError::at(&self.dir))?;
        }
        Ok(freed_bytes)
    }
}

impl State {
    /// Takes the end of an earlier read in this segment at `from`, or the place of the first record.
    fn take_cursor(&mut self, first_offset: u64, from: u64) -> ScanPoint {
        let is_there = |cursor: &Cursor| cursor.first_offset == first_offset && cursor.point.offset == from;
        let found = self.cursors.iter().position(is_there).and_then(|idx| self.cursors.remove(idx));
        found.map_or(ScanPoint::first(first_offset), |cursor| cursor.point)
    }

    fn keep_cursor(&mut self, cursor: Cursor) {
        if self.cursors.len() == CURSORS_MAX {
            self.cursors.pop_front();
        }
        self.cursors.push_back(cursor);
    }
}

fn bounds_of(state: &State) -> Bounds {
    let start = state.segments.first().map_or(state.end, |segment| segment.first_offset);
    Bounds { start, end: state.end }
}

/// Lists the segments of a directory by their first offset.
fn list_segments(disk: &dyn Disk, dir: &Path) -> Result<Vec<Segment>, LogError> {
    let entries = disk.list(dir).map_err(LogError::at(dir))?;
    let segments = entries.iter().filter(|entry| !entry.is_dir).filter_map(|entry| {
        parse_segment_name(&entry.name).map(|first_offset| Segment { first_offset, len: entry.len })
    });
    Ok(segments.collect())
}

/// Opens the last segment for appends, and cuts off an append that a crash interrupted. `None` if the
/// segment was cut while it was made: then it is removed.
fn open_last(
    env: &Env,
    dir: &Path,
    topic: TopicId,
    partition: PartitionId,
    last: Segment,
) -> Result<Option<OpenSegment>, LogError> {
    let path = dir.join(segment_name(last.first_offset));
    let mut file = SegmentFile::open(&*env.disk, path.clone(), last.len)?;
    let want = SegmentHeader { topic: topic.0, partition: partition.0, first_offset: last.first_offset };
    match SegmentHeader::decode(file.bytes_at(0, SEGMENT_HEADER_BYTES)?) {
        Ok(header) if header == want => {}
        Ok(header) => {
            let why = format!("is a segment of another log or place: expected {want:?}, found {header:?}");
            return Err(LogError::File { path, why });
        }
        Err(_) if last.len <= SEGMENT_HEADER_BYTES as u64 => {
            tracing::warn!(path = %path.display(), "removed a log segment whose creation was interrupted");
            env.disk.remove_file(&path).map_err(LogError::at(&path))?;
            env.disk.sync_dir(dir).map_err(LogError::at(dir))?;
            return Ok(None);
        }
        Err(error) => return Err(LogError::File { path, why: error.to_string() }),
    }
    let mut scan = Scan { file, topic, partition };
    let end = scan.find_end(last.first_offset)?;
    let cut_bytes = last.len.saturating_sub(end.at);
    if cut_bytes > 0 {
        let path = path.display();
        tracing::warn!(%path, offset = end.offset, byte = end.at, cut_bytes, "truncated a replicated log after an interrupted append");
    }
    OpenSegment::open(env, path, end, cut_bytes > 0).map(Some)
}
