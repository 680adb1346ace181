//! Segment files: created from a spare (or preallocated), written in order, synced, and recycled.
//!
//! Invariants: a segment is synced before the next one receives frames; a frame never spans two segments; a
//! file gets the name of a segment only once its header is durable; the control file names a segment before
//! it receives frames, and stops naming it before it is removed.
//! Not here: creating spares (`spare`).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::disk::is_short_of_files;
use chronolith_base::{Clock, Disk, DiskFile, Env};
use chronolith_format::head::wal::ControlRecord;
use chronolith_format::head::wal::{
    FRAME_ALIGN_BYTES, FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader,
};

use crate::control::ControlFile;
use crate::counters::WalCounters;
use crate::group_commit::{Shortage, WriteFailure};
use crate::options::{SyncMode, WalOptions};
use crate::spare::{SPARE_COUNT_MAX, Spare, SpareOrder};

/// Shortest time between two checks of the free space.
const FREE_CHECK_NS: u64 = 1_000_000_000;

/// A finished segment.
#[derive(Debug, Clone)]
pub(crate) struct SegmentFile {
    number: u64,
    bytes: u64,
    /// Sequence of its last frame; 0 if it has none.
    last_sequence: u64,
}

impl SegmentFile {
    pub(crate) fn new(number: u64, bytes: u64, last_sequence: u64) -> SegmentFile {
        SegmentFile { number, bytes, last_sequence }
    }

    /// Length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        segment_path(dir, self.number)
    }

    /// Turns the file into a spare. The caller syncs the directory before the spare is used.
    pub(crate) fn retire(&self, disk: &dyn Disk, dir: &Path) -> io::Result<Spare> {
        Spare::retire(disk, dir, &self.path(dir), self.number, self.last_sequence)
    }
}

/// State of the log at the end of recovery.
pub(crate) struct WalStart {
    key: u128,
    sequence: u64,
    /// Number of the first segment to write.
    segment: u64,
    /// Older segments that are still needed.
    kept: Vec<SegmentFile>,
    control: ControlFile,
    spares: VecDeque<Spare>,
}

impl WalStart {
    /// Returns a start after frame `sequence`: `segment` is the number of the first segment to write, `kept`
    /// are older ones that are still needed.
    pub(crate) fn new(
        key: u128,
        sequence: u64,
        segment: u64,
        kept: Vec<SegmentFile>,
        control: ControlFile,
        spares: VecDeque<Spare>,
    ) -> WalStart {
        WalStart { key, sequence, segment, kept, control, spares }
    }
}

struct Current {
    file: Box<dyn DiskFile>,
    number: u64,
    offset: u64,
    len: u64,
    is_dirty: bool,
}

/// The segments of the log; only the current one is written.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    sync: SyncMode,
    free_bytes_min: u64,
    segment_bytes: u64,
    key: u128,
    current: Option<Current>,
    next_number: u64,
    last_sequence: u64,
    older: VecDeque<SegmentFile>,
    control: ControlFile,
    spares: VecDeque<Spare>,
    synced_ns: u64,
    space_checked_ns: Option<u64>,
}

impl Segments {
    pub(crate) fn new(env: &Env, options: &WalOptions, start: WalStart, counters: &WalCounters) -> Segments {
        counters.set_spares(start.spares.len(), options.segment_bytes);
        counters.note_segments(start.kept.iter().map(SegmentFile::bytes).sum());
        Segments {
            disk: env.disk.clone(),
            clock: env.clock.clone(),
            dir: options.dir.clone(),
            sync: options.sync,
            free_bytes_min: options.free_bytes_min,
            segment_bytes: options.segment_bytes,
            key: start.key,
            current: None,
            next_number: start.segment,
            last_sequence: start.sequence,
            older: start.kept.into(),
            control: start.control,
            spares: start.spares,
            synced_ns: env.clock.mono_ns(),
            space_checked_ns: None,
        }
    }

    /// Writes `bytes` (whole frames) and syncs as the sync mode requires.
    pub(crate) fn commit(&mut self, bytes: &[u8], counters: &WalCounters) -> Result<(), WriteFailure> {
        let written = match self.check_space(counters) {
            Ok(()) => self.write(bytes, counters),
            full => full,
        };
        if let Err(WriteFailure::Failed(_)) = written {
            return written;
        }
        match self.sync {
            SyncMode::Fsync if written.is_ok() => self.sync(counters)?,
            SyncMode::Interval(ms) => {
                // Even without space: frames acknowledged before must not wait for it.
                let due_ns = self.synced_ns.saturating_add(ms.saturating_mul(1_000_000));
                if self.clock.mono_ns() >= due_ns {
                    self.sync(counters)?;
                }
            }
            SyncMode::Fsync | SyncMode::Os => {}
        }
        written
    }

    fn check_space(&mut self, counters: &WalCounters) -> Result<(), WriteFailure> {
        let now_ns = self.clock.mono_ns();
        let is_due = self.space_checked_ns.is_none_or(|at| now_ns.saturating_sub(at) >= FREE_CHECK_NS);
        if self.free_bytes_min == 0 || !is_due {
            return Ok(());
        }
        match self.disk.free_bytes(&self.dir) {
            Some(free) if free < self.free_bytes_min => {
                self.remove_spares(counters);
                Err(WriteFailure::Short { done_bytes: 0, shortage: Shortage::Space })
            }
            _ => {
                self.space_checked_ns = Some(now_ns);
                Ok(())
            }
        }
    }

    /// Makes the next commit check the free space again.
    pub(crate) fn check_space_again(&mut self) {
        self.space_checked_ns = None;
    }

    /// Writes `bytes` (whole frames), starting the next segment where one is full.
    pub(crate) fn write(&mut self, bytes: &[u8], counters: &WalCounters) -> Result<(), WriteFailure> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let room = self.current.as_ref().map_or(0, |c| c.len - c.offset);
            let (len, sequence) = frames_within(rest, room);
            if len == 0 {
                self.sync(counters)?;
                let needed = SEGMENT_HEADER_BYTES as u64 + frame_len(rest) as u64;
                self.start_segment(needed, counters).map_err(|e| with_done(e, at))?;
                continue;
            }
            let Some(current) = &mut self.current else { continue };
            current.is_dirty = true;
            current.file.write_at(&rest[..len], current.offset).map_err(|error| {
                // Writing the same bytes at the same offset again is safe as long as no sync has failed.
                failure(error, at, "writing", &segment_path(&self.dir, current.number))
            })?;
            current.offset += len as u64;
            self.last_sequence = sequence;
            counters.note_write(len);
            at += len;
        }
        if !bytes.is_empty() {
            counters.note_commit();
        }
        Ok(())
    }

    /// Makes everything written durable.
    pub(crate) fn sync(&mut self, counters: &WalCounters) -> Result<(), WriteFailure> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if !current.is_dirty {
            return Ok(());
        }
        let start_ns = self.clock.mono_ns();
        current.file.sync_data().map_err(|error| {
            let path = segment_path(&self.dir, current.number);
            WriteFailure::Failed(format!("syncing {}: {error}", path.display()))
        })?;
        current.is_dirty = false;
        self.control.record_durable(self.last_sequence);
        self.synced_ns = self.clock.mono_ns();
        counters.note_sync(self.synced_ns - start_ns);
        Ok(())
    }

    /// Ends the current segment if it has frames.
    pub(crate) fn finish_segment(&mut self) {
        let header = SEGMENT_HEADER_BYTES as u64;
        if let Some(current) = self.current.take_if(|c| c.offset > header) {
            self.older.push_back(SegmentFile {
                number: current.number,
                bytes: current.len,
                last_sequence: self.last_sequence,
            });
        }
    }

    /// Returns the key that all frames carry.
    pub(crate) fn key(&self) -> u128 {
        self.key
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    fn start_segment(&mut self, needed: u64, counters: &WalCounters) -> Result<(), WriteFailure> {
        self.finish_segment();
        let number = self.next_number;
        let path = segment_path(&self.dir, number);
        let len = self.segment_bytes.max(needed);
        let spare = if len == self.segment_bytes { self.spares.pop_front() } else { None };
        counters.set_spares(self.spares.len(), self.segment_bytes);
        let made = self.make_segment(&path, number, len, spare, counters).and_then(|file| {
            self.control.record_synced(|record| record.last_segment = header_number(number))?;
            Ok(file)
        });
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                // The incomplete file would only take space; the next attempt creates it again.
                let _ = self.disk.remove_file(&path);
                return Err(failure(error, 0, "creating", &path));
            }
        };
        // An empty segment that was too small for the frame stays, with its header only.
        if let Some(old) = self.current.take() {
            self.older.push_back(SegmentFile { number: old.number, bytes: old.len, last_sequence: 0 });
        }
        let offset = SEGMENT_HEADER_BYTES as u64;
        self.current = Some(Current { file, number, offset, len, is_dirty: false });
        self.next_number = number + 1;
        counters.note_segments(len);
        Ok(())
    }

    /// Creates a durable segment from `spare`, or preallocates it.
    fn make_segment(
        &self,
        path: &Path,
        number: u64,
        len: u64,
        spare: Option<Spare>,
        counters: &WalCounters,
    ) -> io::Result<Box<dyn DiskFile>> {
        counters.note_origin(spare.is_some());
        let spare = match spare {
            Some(spare) => spare,
            None => Spare::reserved(&*self.disk, &path.with_extension("tmp"), len)?,
        };
        let stale_sequence = spare.stale_sequence();
        let header = SegmentHeader { segment: header_number(number), key: self.key, stale_sequence };
        spare.into_segment(&*self.disk, &self.dir, path, &header.encode())
    }

    /// Returns true if a finished segment has no frame after `sequence`.
    pub(crate) fn has_segment_through(&self, sequence: u64) -> bool {
        self.older.front().is_some_and(|s| s.last_sequence <= sequence)
    }

    /// Removes the oldest segments without a frame after `sequence` from the list and returns them; the
    /// caller deletes them.
    pub(crate) fn take_removable(&mut self, sequence: u64) -> io::Result<Vec<SegmentFile>> {
        let is_removable = |s: &&SegmentFile| s.last_sequence <= sequence;
        let count = self.older.iter().take_while(is_removable).count();
        let start_sequence = self.older.iter().take(count).map(|s| s.last_sequence).max();
        let Some(start_sequence) = start_sequence else { return Ok(Vec::new()) };
        let is_empty = count == self.older.len() && self.current.is_none();
        self.control.record_synced(|record| {
            record.start_sequence = record.start_sequence.max(start_sequence);
            record.last_segment = if is_empty { 0 } else { record.last_segment };
        })?;
        Ok(self.older.drain(..count).collect())
    }

    /// Puts segments back that could not be removed.
    pub(crate) fn put_back(&mut self, segments: &[SegmentFile]) {
        segments.iter().rev().for_each(|segment| self.older.push_front(segment.clone()));
    }

    /// Returns true if a freed segment should become a spare, in addition to `more` others.
    pub(crate) fn wants_freed(&self, segment: &SegmentFile, more: usize) -> bool {
        segment.bytes == self.segment_bytes && self.spares.len() + more < SPARE_COUNT_MAX
    }

    /// Returns the spare to create ahead of need, if none is left.
    pub(crate) fn spare_order(&self) -> Option<SpareOrder> {
        let has_room = |free: u64| free >= self.free_bytes_min.saturating_add(2 * self.segment_bytes);
        let is_wanted = self.spares.is_empty() && self.disk.free_bytes(&self.dir).is_none_or(has_room);
        is_wanted.then(|| SpareOrder::new(self.next_number, self.segment_bytes))
    }

    /// Adds a spare whose name is durable, or may be lost.
    pub(crate) fn add_spare(&mut self, spare: Spare, counters: &WalCounters) {
        if self.spares.len() < SPARE_COUNT_MAX {
            self.spares.push_back(spare);
        } else {
            spare.remove(&*self.disk);
        }
        counters.set_spares(self.spares.len(), self.segment_bytes);
    }

    /// Removes all spares to free their space.
    pub(crate) fn remove_spares(&mut self, counters: &WalCounters) {
        for spare in self.spares.drain(..) {
            spare.remove(&*self.disk);
        }
        counters.set_spares(self.spares.len(), self.segment_bytes);
    }

    /// Records that the log is closed and complete.
    pub(crate) fn record_closed(&mut self) -> io::Result<()> {
        let sequence = self.last_sequence;
        self.control.record_synced(|record| {
            record.sequence = record.sequence.max(sequence);
            record.is_closed = true;
        })
    }

    /// Makes the last record of the control file durable.
    pub(crate) fn sync_control(&mut self) -> io::Result<()> {
        self.control.sync()
    }

    pub(crate) fn disk_and_dir(&self) -> (Arc<dyn Disk>, PathBuf) {
        (self.disk.clone(), self.dir.clone())
    }
}

/// Returns the control record of a log that continues after startup.
pub(crate) fn opened_record(
    key: u128,
    start_sequence: u64,
    sequence: u64,
    last_segment: u64,
) -> ControlRecord {
    let last_segment = header_number(last_segment);
    ControlRecord { key, start_sequence, sequence, last_segment, ..ControlRecord::default() }
}

/// Returns the number of a segment as stored in its header.
fn header_number(number: u64) -> u32 {
    u32::try_from(number).expect("a log has fewer segments: 2^32 hold 256 PiB")
}

/// Returns the path of segment `number`.
pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.seg"))
}

fn failure(error: io::Error, done_bytes: usize, doing: &str, path: &Path) -> WriteFailure {
    if error.kind() == io::ErrorKind::StorageFull || error.kind() == io::ErrorKind::QuotaExceeded {
        return WriteFailure::Short { done_bytes, shortage: Shortage::Space };
    }
    // Nothing was opened, so nothing is in an unknown state.
    if is_short_of_files(&error) {
        return WriteFailure::Short { done_bytes, shortage: Shortage::Descriptors };
    }
    WriteFailure::Failed(format!("{doing} {}: {error}", path.display()))
}

fn with_done(failure: WriteFailure, done: usize) -> WriteFailure {
    match failure {
        WriteFailure::Short { shortage, .. } => WriteFailure::Short { done_bytes: done, shortage },
        failed @ WriteFailure::Failed(_) => failed,
    }
}

/// Returns the length of the frame at the start of `bytes`, which this process encoded.
fn frame_len(bytes: &[u8]) -> usize {
    let payload = bytes.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
    (FRAME_HEADER_BYTES + payload as usize).next_multiple_of(FRAME_ALIGN_BYTES)
}

/// Returns the bytes of the whole frames at the start of `bytes` that fit `room`, and the sequence of the
/// last of them.
fn frames_within(bytes: &[u8], room: u64) -> (usize, u64) {
    let (mut len, mut sequence) = (0, 0);
    while let Some(rest) = bytes.get(len..).filter(|r| !r.is_empty()) {
        let frame = frame_len(rest);
        if (len + frame) as u64 > room {
            break;
        }
        sequence = rest.get(8..).and_then(|r| r.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
        len += frame;
    }
    (len, sequence)
}
