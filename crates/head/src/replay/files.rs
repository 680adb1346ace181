//! Which files a start reads: definitions, slices, segments; and what it leaves of the log's end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::{Disk, DiskFile, Env};
use chronolith_format::definitions::{FILE_HEADER_BYTES, FileHeader};
use chronolith_format::slice::{self, SliceHeader};
use chronolith_format::wal::{SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::options::HeadError;
use crate::progress::ReplayReport;
use crate::sealed::sealed_dir;
use crate::wal::{SegmentFile, WalStart, wal_dir};

/// A segment of the log.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) len: u64,
    /// What its header says; `None` if it cannot be read.
    pub(super) key: Option<u128>,
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
            self.segments.push(Segment { number, path, len, key: None });
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
                Ok(header) => segment.key = Some(header.key),
                // A segment that was made but not synced before the power went holds nothing.
                Err(_) if is_zeros(disk, segment)? => {}
                Err(error) => report.notes.push(format!("{}: {error}", segment.path.display())),
            }
        }
        let fresh = || u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        self.key = known.or(self.segments.iter().find_map(|s| s.key)).unwrap_or_else(fresh);
        for pair in self.segments.windows(2) {
            if pair[1].number != pair[0].number + 1 {
                let (missing, path) = (pair[0].number + 1, pair[1].path.display());
                report.notes.push(format!("{path}: segments from {missing:08} on are missing before it"));
            }
        }
        Ok(())
    }

    /// Cuts the unused and torn end of the last segment, removes segments without frames, and says where the
    /// log goes on. `sequence` is that of the newest slice.
    pub(super) fn finish(
        &self,
        env: &Env,
        ends: &[SegmentEnd],
        sequence: u64,
    ) -> Result<WalStart, HeadError> {
        let mut start = WalStart { key: self.key, sequence, segment: 1, kept: Vec::new() };
        for (idx, (segment, end)) in self.segments.iter().zip(ends).enumerate() {
            let Segment { number, path, len, .. } = segment;
            let kept = |bytes| SegmentFile { number: *number, bytes, last_sequence: end.last_sequence };
            if end.last_sequence == 0 {
                if end.is_damaged {
                    start.segment = start.segment.max(number + 1);
                    start.kept.push(kept(*len));
                } else {
                    // Its number is used again, so that the log has no gap.
                    env.disk.remove_file(path).map_err(HeadError::io(path))?;
                    start.segment = start.segment.max(*number);
                }
                continue;
            }
            start.segment = start.segment.max(number + 1);
            start.sequence = start.sequence.max(end.last_sequence);
            let mut bytes = *len;
            if idx + 1 == self.segments.len() {
                // The torn end was never acknowledged; without it the next start has nothing to note.
                let file = env.disk.open(path).map_err(HeadError::io(path))?;
                if end.is_torn {
                    bytes = end.end.max(SEGMENT_HEADER_BYTES as u64);
                    file.set_len(bytes).map_err(HeadError::io(path))?;
                }
                // A killed process may not have synced what it wrote; from here on it answers repeats.
                file.sync_data().map_err(HeadError::io(path))?;
            }
            start.kept.push(kept(bytes));
        }
        Ok(start)
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
