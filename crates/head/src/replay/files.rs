//! Which files a start reads: definitions, slices, segments; and what it leaves of the log's end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile, Env};
use chronolith_format::definitions::{FILE_HEADER_BYTES, FileHeader};
use chronolith_format::slice::{self, SliceHeader};
use chronolith_format::wal::{ControlRecord, LostFrames, SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::options::{HeadError, HeadOptions};
use crate::progress::ReplayReport;
use crate::sealed::sealed_dir;
use crate::wal::{
    ControlFile, SegmentFile, WalStart, control_path, is_spare, keep_spares, opened_record, wal_dir,
};

/// A segment of the log.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) len: u64,
    /// `None` if it cannot be read.
    pub(super) header: Option<SegmentHeader>,
}

impl Segment {
    /// Returns true if the file was used before: bytes behind the last frame are then no damage.
    pub(super) fn is_recycled(&self) -> bool {
        self.header.is_some_and(|header| header.stale_sequence > 0)
    }
}

/// What reading a segment has shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SegmentEnd {
    pub(super) first_sequence: u64,
    pub(super) last_sequence: u64,
    /// Where the last good frame ends.
    pub(super) end: u64,
    /// Whether bytes behind that, or between frames, belong to no frame.
    pub(super) is_damaged: bool,
    /// Whether those stand at the end only.
    pub(super) is_torn: bool,
}

/// The files of the log's directory.
pub(super) struct LogFiles {
    pub(super) dir: PathBuf,
    pub(super) segments: Vec<Segment>,
    /// Which copies of each slice there are.
    pub(super) slices: BTreeMap<u32, [bool; 2]>,
    /// Which copies of the definitions there are, by generation.
    pub(super) definitions: BTreeMap<u64, [bool; 2]>,
    pub(super) key: u128,
    /// What the control file says; `None` without a good one.
    control: Option<ControlRecord>,
    has_control: bool,
    /// Spare segments: name and length.
    spares: Vec<(String, u64)>,
}

impl LogFiles {
    /// Makes the directories if they are not there, removes what was never finished, lists the rest.
    pub(super) fn find(env: &Env, data_dir: &Path, report: &mut ReplayReport) -> Result<LogFiles, HeadError> {
        let disk = &*env.disk;
        let dir = wal_dir(data_dir);
        for path in [&dir, &sealed_dir(data_dir)] {
            disk.create_dir_all(path).map_err(HeadError::io(path))?;
        }
        disk.sync_dir(data_dir).map_err(HeadError::io(data_dir))?;
        let mut files = LogFiles {
            dir: dir.clone(),
            segments: Vec::new(),
            slices: BTreeMap::new(),
            definitions: BTreeMap::new(),
            key: 0,
            control: None,
            has_control: false,
            spares: Vec::new(),
        };
        for entry in disk.list(&dir).map_err(HeadError::io(&dir))? {
            files.take_entry(disk, &entry.name, entry.len)?;
        }
        files.segments.sort_by_key(|s| s.number);
        files.read_headers(env, report)?;
        Ok(files)
    }

    fn take_entry(&mut self, disk: &dyn Disk, name: &str, len: u64) -> Result<(), HeadError> {
        let path = self.dir.join(name);
        let number = |suffix: &str| name.strip_suffix(suffix).and_then(|n| n.parse::<u64>().ok());
        if name.ends_with(".tmp") {
            disk.remove_file(&path).map_err(HeadError::io(&path))?;
        } else if name.starts_with("checkpoint.") {
            let what =
                "is a checkpoint of an unreleased version that this one cannot read; stop that version \
                        cleanly after all windows became blocks, or move the directory away"
                    .to_owned();
            return Err(HeadError::Corrupt { path, what });
        } else if let Some(number) = number(".seg") {
            self.segments.push(Segment { number, path, len, header: None });
        } else if is_spare(name) {
            self.spares.push((name.to_owned(), len));
        } else if path == control_path(&self.dir) {
            self.has_control = true;
        } else if let Some(number) = number(".definitions") {
            self.definitions.entry(number).or_default()[0] = true;
        } else if let Some(number) = number(".definitions-mirror") {
            self.definitions.entry(number).or_default()[1] = true;
        } else {
            for place in 0..2 {
                let slice = number(&format!(".slice{place}")).and_then(|n| u32::try_from(n).ok());
                if let Some(slice) = slice {
                    self.slices.entry(slice).or_default()[place] = true;
                }
            }
        }
        Ok(())
    }

    /// Finds the key of the log, which all its files carry.
    fn read_headers(&mut self, env: &Env, report: &mut ReplayReport) -> Result<(), HeadError> {
        let disk = &*env.disk;
        let mut known = None;
        for (&generation, places) in self.definitions.iter().rev() {
            for place in (0..2).filter(|&place| places[place]) {
                let path = crate::checkpoint::definitions_path(&self.dir, generation, place);
                let head = read_head(disk, &path, FILE_HEADER_BYTES)?;
                known = known.or(FileHeader::decode(&head).ok().map(|h| h.key));
            }
        }
        for (&slice, places) in &self.slices {
            if known.is_some() {
                break;
            }
            for place in (0..2).filter(|&place| places[place]) {
                let path = crate::checkpoint::slice_path(&self.dir, slice, place);
                let head = read_head(disk, &path, slice::FILE_HEADER_BYTES)?;
                known = known.or(SliceHeader::decode(&head).ok().map(|h| h.key));
            }
        }
        for segment in &mut self.segments {
            let head = read_head(disk, &segment.path, SEGMENT_HEADER_BYTES)?;
            match SegmentHeader::decode(&head) {
                Ok(header) => segment.header = Some(header),
                // A segment that was made but not synced before the power went holds nothing.
                Err(_) if is_zeros(disk, segment)? => {}
                Err(error) => report.notes.push(format!("{}: {error}", segment.path.display())),
            }
        }
        let fresh = || u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        if self.has_control {
            let path = control_path(&self.dir);
            let file = disk.read(&path).map_err(HeadError::io(&path))?;
            self.control = ControlRecord::newest(&file);
        }
        let in_headers = self.segments.iter().find_map(|s| s.header).map(|header| header.key);
        let in_control = self.control.map(|record| record.key);
        self.key = known.or(in_headers).or(in_control).unwrap_or_else(fresh);
        self.note_control(report);
        for pair in self.segments.windows(2) {
            if pair[1].number != pair[0].number + 1 {
                let (missing, path) = (pair[0].number + 1, pair[1].path.display());
                report.notes.push(format!("{path}: segments from {missing:08} on are missing before it"));
            }
        }
        Ok(())
    }

    /// Notes a control file that is missing or cannot be used. Directories of earlier versions have none.
    fn note_control(&mut self, report: &mut ReplayReport) {
        let path = control_path(&self.dir);
        self.control = self.control.filter(|record| record.key == self.key);
        let is_expected = !self.spares.is_empty() || self.segments.iter().any(Segment::is_recycled);
        let what = match (&self.control, self.has_control) {
            (Some(_), _) => return,
            (None, true) => "is damaged",
            (None, false) if is_expected => "is missing",
            (None, false) => return,
        };
        report
            .notes
            .push(format!("{}: {what}: lost frames at the end of the log would not show", path.display()));
    }

    /// Frames up to this one cannot be in `segment`, whatever its bytes: they are of an earlier use of the file.
    pub(super) fn stale_sequence(&self, segment: &Segment, sequence_before: u64) -> u64 {
        if let Some(header) = segment.header {
            return header.stale_sequence;
        }
        // Segments that came after the record have later frames only.
        let recorded = self.control.filter(|record| segment.number > u64::from(record.last_segment));
        sequence_before.max(recorded.map_or(0, |record| record.sequence))
    }

    /// Notes frames and segments that must be there and are not; `needed_from` is the first frame that some slice
    /// needs.
    pub(super) fn note_lost(&self, ends: &[SegmentEnd], needed_from: u64, report: &mut ReplayReport) {
        let Some(record) = self.control else { return };
        let found = || ends.iter().filter(|end| end.last_sequence > 0);
        let first = found().next().map_or(0, |end| end.first_sequence);
        let last = found().map(|end| end.last_sequence).max().unwrap_or(0);
        let was_closed = if record.is_closed { "after a clean stop" } else { "after a kill" };
        for lost in [record.lost_before(first), record.lost_behind(last)].into_iter().flatten() {
            let LostFrames { first, last } = LostFrames { first: lost.first.max(needed_from), ..lost };
            if first <= last {
                let (dir, count) = (self.dir.display(), last - first + 1);
                report
                    .notes
                    .push(format!("{dir}: {count} frames are missing {was_closed}: {first} to {last}"));
            }
        }
        let newest = u64::from(record.last_segment);
        if newest > 0 && self.segments.iter().all(|segment| segment.number != newest) {
            let path = self.dir.join(format!("{newest:08}.seg"));
            report.notes.push(format!("{}: the newest segment of the log is missing", path.display()));
        }
    }

    /// Cuts the torn end of the last segment, removes segments without frames, and says where the log goes on.
    /// `sequence` is that of the newest slice.
    pub(super) fn finish(
        &self,
        env: &Env,
        options: &HeadOptions,
        ends: &[SegmentEnd],
        sequence: u64,
    ) -> Result<WalStart, HeadError> {
        let disk = &*env.disk;
        let recorded = self.control.unwrap_or_default();
        let (mut kept, mut unused) = (Vec::new(), Vec::new());
        let mut sequence = sequence.max(recorded.sequence);
        let mut next_segment = 1;
        for (idx, (segment, end)) in self.segments.iter().zip(ends).enumerate() {
            let Segment { number, path, len, .. } = segment;
            let keep = |bytes| SegmentFile { number: *number, bytes, last_sequence: end.last_sequence };
            sequence = sequence.max(end.last_sequence);
            if end.last_sequence == 0 && !end.is_damaged {
                // Its number is used again, so that the log has no gap.
                next_segment = next_segment.max(*number);
                unused.push(path);
                continue;
            }
            next_segment = next_segment.max(number + 1);
            if end.last_sequence == 0 {
                kept.push(keep(*len));
                continue;
            }
            let mut bytes = *len;
            if idx + 1 == self.segments.len() {
                // The torn end was never acknowledged; without it the next start has nothing to note. A process that
                // is started and killed again and again must not leave as many files of full length.
                let file = disk.open(path).map_err(HeadError::io(path))?;
                if end.is_torn || end.end < len / 2 {
                    bytes = end.end.max(SEGMENT_HEADER_BYTES as u64);
                    file.set_len(bytes).map_err(HeadError::io(path))?;
                }
                // A killed process may not have synced what it wrote; from here on it answers repeats.
                file.sync_data().map_err(HeadError::io(path))?;
            }
            kept.push(keep(bytes));
        }
        let first =
            ends.iter().find(|end| end.last_sequence > 0).map(|end| end.first_sequence.saturating_sub(1));
        let last_segment = kept.last().map_or(0, |segment| segment.number);
        let record = opened_record(self.key, first.unwrap_or(sequence), sequence, last_segment);
        let record = ControlRecord { generation: recorded.generation, ..record };
        let control = ControlFile::create(disk, &self.dir, record).map_err(HeadError::io(&self.dir))?;
        for path in unused {
            disk.remove_file(path).map_err(HeadError::io(path))?;
        }
        let spares = keep_spares(disk, &self.dir, &self.spares, options.wal_segment_bytes, sequence);
        let spares = spares.map_err(HeadError::io(&self.dir))?;
        Ok(WalStart { key: self.key, sequence, segment: next_segment, kept, control, spares })
    }
}

/// The first `len` bytes of a file, fewer if it is shorter.
pub(super) fn read_head(disk: &dyn Disk, path: &Path, len: usize) -> Result<Vec<u8>, HeadError> {
    let file = disk.open(path).map_err(HeadError::io(path))?;
    let file_len = file.len().map_err(HeadError::io(path))?;
    let mut head = vec![0; len.min(usize::try_from(file_len).unwrap_or(len))];
    file.read_at(&mut head, 0).map_err(HeadError::io(path))?;
    Ok(head)
}

fn is_zeros(disk: &dyn Disk, segment: &Segment) -> Result<bool, HeadError> {
    let file = disk.open(&segment.path).map_err(HeadError::io(&segment.path))?;
    zeros_to_end(&*file, 0, segment.len).map_err(HeadError::io(&segment.path))
}

/// Whether all bytes of `file` from `at` to `len` are zeros.
pub(super) fn zeros_to_end(file: &dyn DiskFile, mut at: u64, len: u64) -> std::io::Result<bool> {
    let mut buffer = vec![0; usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(1 << 18)];
    while at < len {
        let part_len = usize::try_from(len - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = &mut buffer[..part_len];
        file.read_at(part, at)?;
        if part.iter().any(|&b| b != 0) {
            return Ok(false);
        }
        at += part_len as u64;
    }
    Ok(true)
}
