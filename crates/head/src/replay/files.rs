//! Which files a start reads: the newest checkpoint that is whole, and the segments behind it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use chronolith_base::{Env, Mapped};
use chronolith_format::checkpoint::{self, CheckpointHeader};
use chronolith_format::wal::{SEGMENT_HEADER_BYTES, Scan, SegmentHeader, scan_segment};
use parking_lot::Mutex;

use crate::checkpoint::checkpoint_number;
use crate::head::replay_thread_count;
use crate::options::HeadError;
use crate::progress::{ReplayProgress, ReplayReport};
use crate::sealed::sealed_dir;
use crate::wal::{SegmentFile, WalStart, wal_dir};

/// A segment, mapped.
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) bytes: Mapped,
    key: Option<u128>,
}

/// The files of the log.
pub(super) struct LogFiles {
    checkpoint: Option<Mapped>,
    /// Kinds and payloads of its good frames.
    frames: Vec<(u8, Range<usize>)>,
    /// Whether the checkpoint is whole, or there was never one.
    pub(super) is_whole: bool,
    pub(super) checkpoint_header: Option<CheckpointHeader>,
    pub(super) segments: Vec<Segment>,
    pub(super) key: u128,
}

impl LogFiles {
    /// Makes the directories if they are not there, removes what an unfinished checkpoint left, maps the rest.
    pub(super) fn find(env: &Env, data_dir: &Path, report: &mut ReplayReport) -> Result<LogFiles, HeadError> {
        let disk = &*env.disk;
        let dir = wal_dir(data_dir);
        for path in [&dir, &sealed_dir(data_dir)] {
            disk.create_dir_all(path).map_err(HeadError::io(path))?;
        }
        disk.sync_dir(data_dir).map_err(HeadError::io(data_dir))?;
        let (mut checkpoints, mut segments) = (Vec::new(), Vec::new());
        for entry in disk.list(&dir).map_err(HeadError::io(&dir))? {
            let path = dir.join(&entry.name);
            if entry.name.ends_with(".tmp") {
                disk.remove_file(&path).map_err(HeadError::io(&path))?;
            } else if let Some(number) = checkpoint_number(&entry.name) {
                checkpoints.push((number, path));
            } else if let Some(number) = entry.name.strip_suffix(".seg").and_then(|n| n.parse::<u64>().ok()) {
                segments.push((number, path));
            }
        }
        checkpoints.sort();
        segments.sort();
        let (checkpoint, is_whole) = choose_checkpoint(env, &checkpoints, report)?;
        let checkpoint_header = checkpoint.as_ref().and_then(|c| CheckpointHeader::decode(c).ok());
        let frames = checkpoint.as_deref().map(good_frames).unwrap_or_default();
        let mut files =
            LogFiles { checkpoint, frames, is_whole, checkpoint_header, segments: Vec::new(), key: 0 };
        let first = checkpoint_header.filter(|_| is_whole).map_or(0, |h| h.segment);
        if segments.first().is_some_and(|(number, _)| *number < first) {
            // The checkpoint's name must not be lost when what it replaces is gone.
            disk.sync_dir(&dir).map_err(HeadError::io(&dir))?;
        }
        for (number, path) in segments {
            if number < first {
                // A crash came between the checkpoint and the removal of what it holds.
                disk.remove_file(&path).map_err(HeadError::io(&path))?;
                continue;
            }
            let bytes = disk.map(&path).map_err(HeadError::io(&path))?;
            files.segments.push(Segment { number, path, key: None, bytes });
        }
        files.read_headers(env, report);
        Ok(files)
    }

    /// Payloads of the good frames of the checkpoint of one kind.
    pub(super) fn checkpoint_frames(&self, kind: u8) -> impl Iterator<Item = &[u8]> {
        let bytes = self.checkpoint.as_deref().unwrap_or(&[]);
        self.frames.iter().filter(move |f| f.0 == kind).filter_map(|f| bytes.get(f.1.clone()))
    }

    /// Bytes of the checkpoint.
    pub(super) fn checkpoint_len(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |c| c.len() as u64)
    }

    fn read_headers(&mut self, env: &Env, report: &mut ReplayReport) {
        for segment in &mut self.segments {
            match SegmentHeader::decode(&segment.bytes) {
                Ok(header) => segment.key = Some(header.key),
                // A segment that was made but not synced before the power went holds nothing.
                Err(_) if segment.bytes.iter().all(|&b| b == 0) => {}
                Err(error) => report.notes.push(format!("{}: {error}", segment.path.display())),
            }
        }
        let fresh = || u128::from(env.rng.next_u64()) << 64 | u128::from(env.rng.next_u64());
        let known = self.segments.iter().find_map(|s| s.key);
        self.key = self.checkpoint_header.map(|h| h.key).or(known).unwrap_or_else(fresh);
        for pair in self.segments.windows(2) {
            if pair[1].number != pair[0].number + 1 {
                let (missing, path) = (pair[0].number + 1, pair[1].path.display());
                report.notes.push(format!("{path}: segments from {missing:08} on are missing before it"));
            }
        }
    }

    /// Tells how much there is to do.
    pub(super) fn announce(&self, progress: &ReplayProgress) {
        let number = |s: Option<&Segment>| s.map_or(0, |s| s.number);
        progress.segment_first.store(number(self.segments.first()), Ordering::Relaxed);
        progress.segment_last.store(number(self.segments.last()), Ordering::Relaxed);
        progress.segment_now.store(number(self.segments.first()), Ordering::Relaxed);
        let checkpoint_bytes = self.checkpoint_len();
        let bytes: u64 = self.segments.iter().map(|s| s.bytes.len() as u64).sum();
        progress.bytes_total.store(bytes + checkpoint_bytes, Ordering::Relaxed);
        progress.bytes_done.store(checkpoint_bytes, Ordering::Relaxed);
    }

    /// Finds the frames of all segments, several at a time, and notes damage.
    pub(super) fn scan(&self, progress: &ReplayProgress, report: &mut ReplayReport) -> Vec<Scan> {
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<Option<Scan>>> = Mutex::new(self.segments.iter().map(|_| None).collect());
        let work = || {
            while let Some((idx, segment)) = {
                let idx = next.fetch_add(1, Ordering::Relaxed);
                self.segments.get(idx).map(|s| (idx, s))
            } {
                progress.segment_now.fetch_max(segment.number, Ordering::Relaxed);
                let scan = scan_segment(&segment.bytes, segment.key.unwrap_or(self.key));
                progress.bytes_done.fetch_add(segment.bytes.len() as u64, Ordering::Relaxed);
                found.lock()[idx] = Some(scan);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..replay_thread_count().min(self.segments.len()) {
                // Without another thread this one does all.
                let _ = std::thread::Builder::new().name("replay-scan".to_owned()).spawn_scoped(scope, work);
            }
            work();
        });
        let scans: Vec<Scan> = found.into_inner().into_iter().map(Option::unwrap_or_default).collect();
        self.note_damage(&scans, report);
        scans
    }

    fn note_damage(&self, scans: &[Scan], report: &mut ReplayReport) {
        let mut sequence = self.checkpoint_header.map(|h| h.sequence);
        for (idx, (segment, scan)) in self.segments.iter().zip(scans).enumerate() {
            report.bytes += scan.end as u64;
            let path = segment.path.display();
            let is_last = idx + 1 == self.segments.len();
            for damage in &scan.damage {
                let (offset, len) = (damage.offset, damage.len);
                let what = if is_last && !damage.followed { "torn tail" } else { "damaged" };
                report.notes.push(format!("{path}: {what} at offset {offset}: {len} bytes are left out"));
            }
            if let (Some(before), Some(first)) = (sequence, scan.frames.first())
                && first.header.sequence > before + 1
            {
                let missing = first.header.sequence - before - 1;
                report.notes.push(format!("{path}: {missing} frames are missing before it"));
            }
            sequence = scan.frames.last().map(|f| f.header.sequence).or(sequence);
        }
    }

    /// Cuts the unused and torn end of the last segment, removes segments without frames, and says where the
    /// log goes on.
    pub(super) fn finish(&self, env: &Env, scans: &[Scan]) -> Result<WalStart, HeadError> {
        let mut start = WalStart {
            key: self.key,
            sequence: self.checkpoint_header.map_or(0, |h| h.sequence),
            segment: self.checkpoint_header.map_or(1, |h| h.segment),
            kept: Vec::new(),
        };
        for (idx, (segment, scan)) in self.segments.iter().zip(scans).enumerate() {
            let Segment { number, path, bytes, .. } = segment;
            let Some(last) = scan.frames.last() else {
                if scan.damage.is_empty() {
                    // Its number is used again, so that the log has no gap.
                    env.disk.remove_file(path).map_err(HeadError::io(path))?;
                    start.segment = start.segment.max(*number);
                } else {
                    start.segment = start.segment.max(number + 1);
                    start.kept.push(SegmentFile { number: *number, bytes: bytes.len() as u64 });
                }
                continue;
            };
            start.segment = start.segment.max(number + 1);
            start.sequence = start.sequence.max(last.header.sequence);
            let mut len = bytes.len() as u64;
            if idx + 1 == self.segments.len() {
                // The torn end was never acknowledged; without it the next start has nothing to note.
                let is_torn = scan.end < bytes.len();
                len = if is_torn { scan.end.max(SEGMENT_HEADER_BYTES) as u64 } else { len };
                let file = env.disk.open(path).map_err(HeadError::io(path))?;
                if is_torn {
                    file.set_len(len).map_err(HeadError::io(path))?;
                }
                // A killed process may not have synced what it wrote; from here on it answers repeats.
                file.sync_data().map_err(HeadError::io(path))?;
            }
            start.kept.push(SegmentFile { number: *number, bytes: len });
        }
        Ok(start)
    }
}

/// The newest whole checkpoint, or failing that the newest whose header is good; whether it is whole.
fn choose_checkpoint(
    env: &Env,
    checkpoints: &[(u64, PathBuf)],
    report: &mut ReplayReport,
) -> Result<(Option<Mapped>, bool), HeadError> {
    let mut salvage = None;
    for (_, path) in checkpoints.iter().rev() {
        let bytes = env.disk.map(path).map_err(HeadError::io(path))?;
        match checkpoint::verify(&bytes) {
            Ok(_) => return Ok((Some(bytes), true)),
            Err(error) => {
                report.notes.push(format!("{}: checkpoint is damaged: {error}", path.display()));
                if salvage.is_none() && CheckpointHeader::decode(&bytes).is_ok() {
                    salvage = Some(bytes);
                }
            }
        }
    }
    Ok((salvage, checkpoints.is_empty()))
}

/// Kinds and payloads of the frames up to the first damaged one.
fn good_frames(bytes: &[u8]) -> Vec<(u8, Range<usize>)> {
    let mut frames = Vec::new();
    let mut offset = checkpoint::FILE_HEADER_BYTES;
    while let Ok((kind, payload, end)) = checkpoint::decode_frame(bytes, offset) {
        frames.push((kind, end - payload.len()..end));
        offset = end;
    }
    frames
}
