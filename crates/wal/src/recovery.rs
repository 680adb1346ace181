//! Recovery of the log at startup: lists segments, reads their frames in order, and cuts a torn tail.
//!
//! Invariants: frames are read in the order of the log; a recycled file is never read beyond its own frames;
//! all missing or damaged parts are reported in a note (file, offset, extent).
//! Not here: the content of frames, and the sequence from which they are needed (the caller).

use std::io;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile, Env};
use chronolith_format::head::wal::{ControlRecord, LostFrames, SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::control::{ControlFile, control_path};
use crate::found_segment::{Segment, SegmentEnd, read_head};
use crate::frame_stream::{BlockBuffers, FrameBlock, FrameStream, zeros_to_end};
use crate::last_position::{FoundPosition, PositionSearch, RemovedFrames};
use crate::log::Wal;
use crate::options::{FileError, WalOptions};
use crate::segment::{SegmentFile, WalStart, opened_record};
use crate::skip;
use crate::spare::{is_spare, keep_spares};

/// The log found in a directory, before it is open for appends.
pub struct Recovery {
    dir: PathBuf,
    segments: Vec<Segment>,
    key: u128,
    /// Newest valid record of the control file.
    control: Option<ControlRecord>,
    has_control: bool,
    /// Spare segments: name and length.
    spares: Vec<(String, u64)>,
    /// Frames that starts of a cache of the replicated log have removed.
    removed: Vec<RemovedFrames>,
    /// No later frame may have this sequence or a lower one; 0 unless frames are removed.
    removed_through: u64,
}

impl Recovery {
    /// Lists the segments in `dir`. `known_key` is the key of the files that belong to the log, if there are
    /// any.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error. Damage is noted.
    pub fn open(
        env: &Env,
        dir: &Path,
        known_key: Option<u128>,
        notes: &mut Vec<String>,
    ) -> Result<Recovery, FileError> {
        let disk = &*env.disk;
        let mut recovery = Recovery {
            dir: dir.to_owned(),
            segments: Vec::new(),
            key: 0,
            control: None,
            has_control: false,
            spares: Vec::new(),
            removed: Vec::new(),
            removed_through: 0,
        };
        for entry in disk.list(dir).map_err(FileError::at(dir))? {
            recovery.take_entry(&entry.name, entry.len);
        }
        recovery.segments.sort_by_key(|s| s.number);
        recovery.read_headers(disk, notes)?;
        recovery.read_control(disk)?;
        let in_headers = recovery.segments.iter().find_map(Segment::header).map(|header| header.key);
        let in_control = recovery.control.map(|record| record.key);
        let fresh = || u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        recovery.key = known_key.or(in_headers).or(in_control).unwrap_or_else(fresh);
        recovery.note_control(notes);
        recovery.note_missing_segments(notes);
        Ok(recovery)
    }

    fn take_entry(&mut self, name: &str, len: u64) {
        let path = self.dir.join(name);
        let number = name.strip_suffix(".seg").and_then(|n| n.parse::<u64>().ok());
        if let Some(number) = number {
            self.segments.push(Segment::new(number, path, len));
        } else if is_spare(name) {
            self.spares.push((name.to_owned(), len));
        } else if path == control_path(&self.dir) {
            self.has_control = true;
        }
    }

    fn read_headers(&mut self, disk: &dyn Disk, notes: &mut Vec<String>) -> Result<(), FileError> {
        for segment in &mut self.segments {
            let head = read_head(disk, &segment.path, SEGMENT_HEADER_BYTES)?;
            match SegmentHeader::decode(&head) {
                Ok(header) => segment.set_header(header),
                // A segment that was created but not synced before a power failure is empty.
                Err(_) if is_zeros(disk, segment)? => {}
                Err(error) if SegmentHeader::is_of_later_version(&error) => {
                    let error = io::Error::new(io::ErrorKind::Unsupported, error.to_string());
                    return Err(FileError { path: segment.path.clone(), error });
                }
                Err(error) => notes.push(format!("{}: {error}", segment.path.display())),
            }
        }
        Ok(())
    }

    fn read_control(&mut self, disk: &dyn Disk) -> Result<(), FileError> {
        if self.has_control {
            let path = control_path(&self.dir);
            let file = disk.read(&path).map_err(FileError::at(&path))?;
            self.control = ControlRecord::newest(&file);
        }
        Ok(())
    }

    /// Notes a control file that is missing or damaged. Directories of earlier versions have none.
    fn note_control(&mut self, notes: &mut Vec<String>) {
        let path = control_path(&self.dir);
        self.control = self.control.filter(|record| record.key == self.key);
        let is_expected = !self.spares.is_empty() || self.segments.iter().any(Segment::is_recycled);
        let what = match (&self.control, self.has_control) {
            (Some(_), _) => return,
            (None, true) => "is damaged",
            (None, false) if is_expected => "is missing",
            (None, false) => return,
        };
        notes.push(format!("{}: {what}: lost frames at the end of the log would not show", path.display()));
    }

    fn note_missing_segments(&self, notes: &mut Vec<String>) {
        for pair in self.segments.windows(2) {
            if pair[1].number != pair[0].number + 1 {
                let (missing, path) = (pair[0].number + 1, pair[1].path.display());
                notes.push(format!("{path}: segments from {missing:08} on are missing before it"));
            }
        }
    }

    /// Returns the key that all frames of the log carry, and the files that belong to it.
    #[must_use]
    pub fn key(&self) -> u128 {
        self.key
    }

    /// Returns the segments in order of their numbers.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Reads the frames of all segments in order and passes them to `visit`, with the index of their segment.
    /// The memory of blocks that `visit` puts into `buffers` is used again.
    /// Segments whose frames all lie at or before `needed_after` are not read, if the log proves it; frames
    /// of other segments are passed on whatever their sequence.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error, or an error of `visit`.
    pub fn replay_after<E: From<FileError>>(
        &self,
        disk: &dyn Disk,
        needed_after: u64,
        buffers: &BlockBuffers,
        notes: &mut Vec<String>,
        mut visit: impl FnMut(usize, FrameBlock) -> Result<(), E>,
    ) -> Result<Vec<SegmentEnd>, E> {
        let mut ends: Vec<SegmentEnd> = Vec::with_capacity(self.segments.len());
        let skipped = skip::ends_of_skipped(disk, &self.segments, needed_after)?;
        for ((idx, segment), skipped) in self.segments.iter().enumerate().zip(skipped) {
            if let Some(end) = skipped {
                ends.push(end);
                continue;
            }
            let before = ends.iter().map(|end| end.last_sequence).max().unwrap_or(0);
            let mut stream = self.open_segment(disk, segment, before, buffers)?;
            while let Some(block) = stream.next_block()? {
                visit(idx, block)?;
            }
            let is_last = idx + 1 == self.segments.len();
            note_damage(&stream, segment, is_last, notes);
            ends.push(end_of(&stream));
        }
        self.note_gaps(&ends, notes);
        Ok(ends)
    }

    /// Returns the last position of the replicated log that no gap comes before, of the frames after
    /// `needed_after` and after those that the log has freed. Cost: reads all frames that a replay after
    /// `needed_after` reads.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error.
    pub fn find_position(
        &mut self,
        disk: &dyn Disk,
        needed_after: u64,
    ) -> Result<Option<FoundPosition>, FileError> {
        // A slice that was never written needs all frames that are kept, which the control file knows.
        let freed = self.control.map_or(0, |record| record.start_sequence);
        let needed_after = needed_after.max(freed);
        let buffers = BlockBuffers::default();
        let mut search = PositionSearch::new(needed_after);
        let skipped = skip::ends_of_skipped(disk, &self.segments, needed_after)?;
        let mut before = 0;
        for ((idx, segment), skipped) in self.segments.iter().enumerate().zip(skipped) {
            if let Some(end) = skipped {
                before = end.last_sequence.max(before);
                continue;
            }
            let mut stream = self.open_segment(disk, segment, before, &buffers)?;
            while let Some(block) = stream.next_block()? {
                search.take(idx, &block);
                buffers.put(block);
            }
            before = search.last_sequence().max(before);
        }
        self.removed_through = before;
        let (found, removed) = search.finish();
        self.removed = removed;
        Ok(found)
    }

    /// Returns true if the log has frames, or had some that are lost. [`Recovery::find_position`] has
    /// searched them.
    #[must_use]
    pub fn had_frames(&self) -> bool {
        self.removed_through > 0 || self.control.is_some_and(|record| record.sequence > 0)
    }

    /// Removes all frames after a position, durably. Their sequences are not used again.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error; some of the frames may be left, and the next start finds
    /// the same position.
    pub fn cut_after(&mut self, disk: &dyn Disk, position: &FoundPosition) -> Result<(), FileError> {
        if let Some(control) = &mut self.control {
            self.removed_through = self.removed_through.max(control.sequence);
            control.sequence = control.sequence.min(position.sequence);
        }
        if position.later_count == 0 {
            return Ok(());
        }
        // The last ones first: what a failure leaves begins with the frame after the position.
        while self.segments.len() > position.segment_idx() + 1
            && let Some(segment) = self.segments.pop()
        {
            disk.remove_file(&segment.path).map_err(FileError::at(&segment.path))?;
        }
        disk.sync_dir(&self.dir).map_err(FileError::at(&self.dir))?;
        if let Some(segment) = self.segments.last_mut() {
            let at = FileError::at(&segment.path);
            let cut = |file: Box<dyn DiskFile>| {
                file.set_len(position.end())?;
                file.sync_data()
            };
            disk.open(&segment.path).and_then(cut).map_err(at)?;
            segment.len = position.end();
        }
        if let Some(control) = &mut self.control {
            let last = self.segments.last().map_or(0, |segment| segment.number);
            control.last_segment = control.last_segment.min(u32::try_from(last).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Opens a segment; `sequence_before` is the last sequence of the segments before it.
    fn open_segment<'a>(
        &self,
        disk: &'a dyn Disk,
        segment: &Segment,
        sequence_before: u64,
        buffers: &'a BlockBuffers,
    ) -> Result<FrameStream<'a>, FileError> {
        let key = segment.header().map_or(self.key, |header| header.key);
        let stale = self.stale_sequence(segment, sequence_before);
        FrameStream::open_recycled(disk, &segment.path, key, SEGMENT_HEADER_BYTES, stale, buffers)
    }

    /// Returns the sequence up to which frames cannot belong to `segment`: they are of an earlier use of the
    /// file.
    fn stale_sequence(&self, segment: &Segment, sequence_before: u64) -> u64 {
        if let Some(header) = segment.header() {
            return header.stale_sequence;
        }
        // Segments created after the record contain later frames only.
        let recorded = self.control.filter(|record| segment.number > u64::from(record.last_segment));
        sequence_before.max(recorded.map_or(0, |record| record.sequence))
    }

    /// Notes frames that are missing between segments.
    fn note_gaps(&self, ends: &[SegmentEnd], notes: &mut Vec<String>) {
        let mut before = None;
        for (segment, end) in self.segments.iter().zip(ends).filter(|(_, end)| end.last_sequence > 0) {
            if let Some(before) = before
                && end.first_sequence > before + 1
                && !self.removed.contains(&RemovedFrames::new(before, end.first_sequence))
            {
                let (path, missing) = (segment.path.display(), end.first_sequence - before - 1);
                notes.push(format!("{path}: {missing} frames are missing before it"));
            }
            before = Some(end.last_sequence);
        }
    }

    /// Notes frames and segments that the control file records and that do not exist; frames before
    /// `needed_from` are not needed.
    pub fn note_lost(&self, ends: &[SegmentEnd], needed_from: u64, notes: &mut Vec<String>) {
        let Some(record) = self.control else { return };
        let found = || ends.iter().filter(|end| end.last_sequence > 0);
        let first = found().next().map_or(0, |end| end.first_sequence);
        let last = found().map(|end| end.last_sequence).max().unwrap_or(0);
        let was_closed = if record.is_closed { "after a clean stop" } else { "after a kill" };
        for lost in [record.lost_before(first), record.lost_behind(last)].into_iter().flatten() {
            let LostFrames { first, last } = LostFrames { first: lost.first.max(needed_from), ..lost };
            if first <= last {
                let (dir, count) = (self.dir.display(), last - first + 1);
                notes.push(format!("{dir}: {count} frames are missing {was_closed}: {first} to {last}"));
            }
        }
        let newest = u64::from(record.last_segment);
        if newest > 0 && self.segments.iter().all(|segment| segment.number != newest) {
            let path = self.dir.join(format!("{newest:08}.seg"));
            notes.push(format!("{}: the newest segment of the log is missing", path.display()));
        }
    }

    /// Cuts the torn end of the last segment, removes segments without frames, and opens the log for appends
    /// after all frames that were read and after `sequence`, the newest one of the checkpoint.
    ///
    /// # Errors
    /// [`FileError`] if the disk reports an error.
    pub fn finish(
        self,
        env: &Env,
        options: &WalOptions,
        ends: &[SegmentEnd],
        sequence: u64,
    ) -> Result<Wal, FileError> {
        let disk = &*env.disk;
        let recorded = self.control.unwrap_or_default();
        let (mut kept, mut unused) = (Vec::new(), Vec::new());
        let mut sequence = sequence.max(recorded.sequence).max(self.removed_through);
        let (mut next_segment, mut last_segment) = (1, 0);
        for (idx, (segment, end)) in self.segments.iter().zip(ends).enumerate() {
            let Segment { number, path, len, .. } = segment;
            let keep = |bytes| SegmentFile::new(*number, bytes, end.last_sequence);
            sequence = sequence.max(end.last_sequence);
            if end.last_sequence == 0 && !end.is_damaged {
                // The number of the segment is reused, so that the log has no gap.
                next_segment = next_segment.max(*number);
                unused.push(path);
                continue;
            }
            (next_segment, last_segment) = (next_segment.max(number + 1), *number);
            if end.last_sequence == 0 {
                kept.push(keep(*len));
            } else if idx + 1 == self.segments.len() {
                kept.push(keep(cut_tail(disk, segment, end)?));
            } else {
                kept.push(keep(*len));
            }
        }
        let first =
            ends.iter().find(|end| end.last_sequence > 0).map(|end| end.first_sequence.saturating_sub(1));
        let record = opened_record(self.key, first.unwrap_or(sequence), sequence, last_segment);
        let record = ControlRecord { generation: recorded.generation, ..record };
        let control = ControlFile::create(disk, &self.dir, record).map_err(FileError::at(&self.dir))?;
        for path in unused {
            disk.remove_file(path).map_err(FileError::at(path))?;
        }
        let spares = keep_spares(disk, &self.dir, &self.spares, options.segment_bytes, sequence);
        let spares = spares.map_err(FileError::at(&self.dir))?;
        let start = WalStart::new(self.key, sequence, next_segment, kept, control, spares);
        Ok(Wal::new(env, options, start))
    }
}

/// Cuts the torn end of the last segment and syncs it; returns its size in bytes.
///
/// A torn frame was never acknowledged; without it the next startup has nothing to note. A process that is
/// restarted and killed repeatedly must not leave that many files of full length.
fn cut_tail(disk: &dyn Disk, segment: &Segment, end: &SegmentEnd) -> Result<u64, FileError> {
    let Segment { path, len, .. } = segment;
    let mut bytes = *len;
    let file = disk.open(path).map_err(FileError::at(path))?;
    if end.is_torn || end.end < len / 2 {
        bytes = end.end.max(SEGMENT_HEADER_BYTES as u64);
        file.set_len(bytes).map_err(FileError::at(path))?;
    }
    // A killed process may not have synced its last frames; from here on, duplicates of them are
    // acknowledged.
    file.sync_data().map_err(FileError::at(path))?;
    Ok(bytes)
}

fn end_of(stream: &FrameStream<'_>) -> SegmentEnd {
    SegmentEnd {
        first_sequence: stream.first_sequence,
        last_sequence: stream.last_sequence(),
        end: stream.end,
        is_damaged: !stream.damage.is_empty(),
        is_torn: stream.damage.iter().any(|damage| !damage.followed),
    }
}

fn note_damage(stream: &FrameStream<'_>, segment: &Segment, is_last: bool, notes: &mut Vec<String>) {
    let path = segment.path.display();
    for damage in &stream.damage {
        let (offset, len) = (damage.offset, damage.len);
        let what = if is_last && !damage.followed { "torn tail" } else { "damaged" };
        notes.push(format!("{path}: {what} at offset {offset}: {len} bytes are left out"));
    }
}

fn is_zeros(disk: &dyn Disk, segment: &Segment) -> Result<bool, FileError> {
    let file = disk.open(&segment.path).map_err(FileError::at(&segment.path))?;
    zeros_to_end(&*file, 0, segment.len).map_err(FileError::at(&segment.path))
}
