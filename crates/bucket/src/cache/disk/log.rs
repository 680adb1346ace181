//! Log of the cache directory: segments of bounded size, appended to one after the other.
//!
//! Invariants: the files have at most `bytes_max` bytes together, and `entry_count_max` entries; a segment
//! never outgrows its size with its table, so that it can be closed at any time. Nothing is synced: what a
//! power cut loses fails its checksum.
//! Not here: which entries count (`index`), reading segments again (`recover`).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::disk::{Disk, DiskFile, LockGuard};
use chronolith_base::hash::HashMap;
use chronolith_format::bucket::cache_segment::{SegmentTable, put_entry, put_header};

use super::index::{Position, SegmentNumber};

/// Bytes of a segment, unless the directory is so large that it would have more than `SEGMENTS_MAX` of them.
const SEGMENT_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
const SEGMENTS_MAX: u64 = 1024;
/// Segments of a small directory.
const SEGMENTS_MIN: u64 = 16;
/// Bytes of the directory per entry at least, which bounds the memory of the index.
const BYTES_PER_ENTRY_MIN: u64 = 8 << 10;
/// Bytes of an entry at most: a read of any part of it reads and verifies all of them.
const PIECE_BYTES_MAX: u64 = 256 << 10;

/// Sizes of a cache directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) bytes_max: u64,
    pub(super) segment_bytes_max: u64,
    pub(super) piece_bytes_max: u64,
    pub(super) entry_count_max: u64,
}

impl Geometry {
    /// Sizes of a directory of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Geometry {
        let large = (bytes_max / SEGMENTS_MAX).clamp(SEGMENT_BYTES, SEGMENT_BYTES_MAX);
        let segment_bytes_max = large.min(bytes_max / SEGMENTS_MIN);
        Geometry {
            bytes_max,
            segment_bytes_max,
            piece_bytes_max: PIECE_BYTES_MAX.min(segment_bytes_max / 4),
            entry_count_max: bytes_max / BYTES_PER_ENTRY_MIN,
        }
    }

    /// Entries of a segment at most.
    fn segment_entry_count_max(&self) -> u64 {
        let segments = (self.bytes_max / self.segment_bytes_max.max(1)).max(1);
        (self.entry_count_max / segments).max(1)
    }
}

/// Closed segments and the open segment.
pub(super) struct SegmentLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    geometry: Geometry,
    /// The oldest one is the first.
    closed: VecDeque<ClosedSegment>,
    closed_bytes: u64,
    closed_entry_count: u64,
    active: Option<ActiveSegment>,
    next_number: SegmentNumber,
    buffer: Vec<u8>,
    _lock: Box<dyn LockGuard>,
}

/// A segment with its table.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClosedSegment {
    pub(super) number: SegmentNumber,
    pub(super) file_bytes: u64,
    pub(super) entry_count: u64,
}

struct ActiveSegment {
    number: SegmentNumber,
    file: Arc<dyn DiskFile>,
    table: SegmentTable,
    key_idxs: HashMap<Arc<str>, u32>,
}

impl SegmentLog {
    /// A log in `dir`, which `lock` holds, after the segments `closed`, oldest first.
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        geometry: Geometry,
        closed: VecDeque<ClosedSegment>,
        lock: Box<dyn LockGuard>,
    ) -> SegmentLog {
        let ascend = closed.iter().is_sorted_by(|a, b| a.number < b.number);
        assert!(ascend, "the segments of a log are oldest first, as the first one is removed first");
        SegmentLog {
            disk,
            dir: dir.to_owned(),
            geometry,
            closed_bytes: closed.iter().map(|segment| segment.file_bytes).sum(),
            closed_entry_count: closed.iter().map(|segment| segment.entry_count).sum(),
            next_number: closed.back().map_or(0, |segment| segment.number) + 1,
            closed,
            active: None,
            buffer: Vec::new(),
            _lock: lock,
        }
    }

    /// Bytes of all files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.closed_bytes + self.active.as_ref().map_or(0, |active| active.table.end())
    }

    pub(super) fn piece_bytes_max(&self) -> u64 {
        self.geometry.piece_bytes_max
    }

    /// Returns true if the active segment has room for an entry, and half of it is free if
    /// `spares_half` is set.
    pub(super) fn has_room(&self, key: &str, len: u32, spares_half: bool) -> bool {
        let parts = if spares_half { 2 } else { 1 };
        self.active.as_ref().is_some_and(|active| {
            active.table.segment_len_with(key, len) <= self.geometry.segment_bytes_max / parts
                && (active.table.entry_count() as u64) < self.geometry.segment_entry_count_max() / parts
        })
    }

    /// Appends an entry, for which there is room.
    ///
    /// # Errors
    /// As the disk returns; nothing of the entry counts then.
    pub(super) fn append(&mut self, key: &Arc<str>, start: u64, bytes: &[u8]) -> io::Result<Position> {
        let Some(active) = &mut self.active else { return Err(io::ErrorKind::NotFound.into()) };
        let offset = active.table.end();
        let narrow = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let position = Position { segment: active.number, offset: u32::try_from(offset).map_err(narrow)? };
        let len = u32::try_from(bytes.len()).map_err(narrow)?;
        self.buffer.clear();
        put_entry(key, start, bytes, &mut self.buffer);
        active.file.write_at(&self.buffer, offset)?;
        let key_idx = match active.key_idxs.get(key) {
            Some(idx) => *idx,
            None => {
                let idx = active.table.add_key(key);
                active.key_idxs.insert(key.clone(), idx);
                idx
            }
        };
        active.table.add_entry(key_idx, start, len);
        Ok(position)
    }

    /// Closes the active segment and begins the next one; returns its number and file.
    ///
    /// # Errors
    /// As the disk returns.
    pub(super) fn start_segment(&mut self) -> io::Result<(SegmentNumber, Arc<dyn DiskFile>)> {
        if let Some(active) = &self.active {
            self.buffer.clear();
            active.table.encode(&mut self.buffer);
            active.file.write_at(&self.buffer, active.table.end())?;
            active.file.start_writeback();
            let closed = ClosedSegment {
                number: active.number,
                file_bytes: active.table.end() + self.buffer.len() as u64,
                entry_count: active.table.entry_count() as u64,
            };
            self.closed_bytes += closed.file_bytes;
            self.closed_entry_count += closed.entry_count;
            self.closed.push_back(closed);
            self.active = None;
        }
        let number = self.next_number;
        self.next_number = number.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
        let file: Arc<dyn DiskFile> = self.disk.create(&self.dir.join(file_name(number)))?.into();
        self.buffer.clear();
        put_header(&mut self.buffer);
        file.write_at(&self.buffer, 0)?;
        let table = SegmentTable::new();
        let key_idxs = HashMap::default();
        self.active = Some(ActiveSegment { number, file: file.clone(), table, key_idxs });
        Ok((number, file))
    }

    /// The oldest segment, if it has to go for the active one and the next one to fit.
    pub(super) fn excess(&self) -> Option<SegmentNumber> {
        let bytes = self.closed_bytes + 2 * self.geometry.segment_bytes_max;
        let entry_count = self.closed_entry_count + 2 * self.geometry.segment_entry_count_max();
        let is_full = bytes > self.geometry.bytes_max || entry_count > self.geometry.entry_count_max;
        self.closed.front().filter(|_| is_full).map(|segment| segment.number)
    }

    /// Removes the oldest segment.
    ///
    /// # Errors
    /// As the disk returns; the segment stays.
    pub(super) fn remove_oldest(&mut self) -> io::Result<()> {
        let Some(&segment) = self.closed.front() else { return Ok(()) };
        self.disk.remove_file(&self.dir.join(file_name(segment.number)))?;
        self.closed.pop_front();
        self.closed_bytes -= segment.file_bytes;
        self.closed_entry_count -= segment.entry_count;
        Ok(())
    }
}

/// Name of a segment, in the order of numbers.
pub(super) fn file_name(number: SegmentNumber) -> String {
    format!("{number:010}.cache")
}

/// Number of the segment with this name; `None` of other files.
pub(super) fn number_of(name: &str) -> Option<SegmentNumber> {
    let number: SegmentNumber = name.strip_suffix(".cache")?.parse().ok()?;
    (file_name(number) == name).then_some(number)
}
