//! Import of one part of the files, neighbours in the order of labels: they become blocks of their own.
//!
//! Invariants: a file is read once as a whole, and only that copy counts, so that carbon may write on; damage
//! of a file costs its points alone and is in the report.
//! Memory: one file, its points, the series and open blocks of the part.
//! Not here: the points of a file (`points`), the order of parts and their state (`run`).

use std::io;
use std::path::Path;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;
use chronolith_model::WordKind;

use super::compare::{FileTotals, compare};
use super::error::WhisperError;
use super::header::FILE_BYTES_MAX;
use super::points::{FilePoints, TimeSelection};
use super::report::WhisperReport;
use super::source::WhisperFile;
use super::windows::AgeWindows;
use crate::write::head_blocks::Announce;
use crate::write::window_blocks::WindowBlocks;

/// Files after which progress is reported.
const PROGRESS_FILES: usize = 64;

/// What is done with blocks after they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// All points are read again and compared with the files.
    All,
    /// Nothing.
    Skipped,
}

/// Target of a part, and what is taken of its files.
pub(crate) struct PartTarget<'a> {
    pub(crate) env: &'a Env,
    /// Directory of the blocks of the store.
    pub(crate) blocks_dir: &'a Path,
    /// Newest block in it.
    pub(crate) newest: Option<Ulid>,
    /// Called before blocks appear.
    pub(crate) announce: Announce,
    pub(crate) selection: TimeSelection,
    pub(crate) comparison: Comparison,
}

/// Result of a part.
#[derive(Debug, Default)]
pub(crate) struct WrittenPart {
    pub(crate) ulids: Vec<Ulid>,
    pub(crate) report: WhisperReport,
    /// Set if all files could be read, whatever was in them.
    pub(crate) is_whole: bool,
}

/// Reads files, each in place of the one before.
#[derive(Default)]
pub struct FileReader {
    bytes: Vec<u8>,
}

impl FileReader {
    /// Reads a file as a whole.
    ///
    /// # Errors
    /// As the operating system reports; also for a file that is too large or gets shorter meanwhile.
    pub fn read(&mut self, env: &Env, path: &Path) -> io::Result<&[u8]> {
        let file = env.disk.open_read(path)?;
        let len = file.len()?;
        if len > FILE_BYTES_MAX {
            let what = format!("{len} bytes long, at most {FILE_BYTES_MAX} are read");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        self.bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
        file.read_at(&mut self.bytes, 0)?;
        Ok(&self.bytes)
    }
}

/// Imports `files` below `dir`. `progress` is called with the bytes that were read.
pub(crate) fn import(
    target: PartTarget<'_>,
    dir: &Path,
    files: &[WhisperFile],
    progress: &mut dyn FnMut(u64),
) -> Result<WrittenPart, WhisperError> {
    let PartTarget { env, blocks_dir, newest, announce, selection, comparison } = target;
    let windows = AgeWindows::new(env.clock.now_ms());
    let mut blocks = WindowBlocks::new(env, blocks_dir.to_owned(), windows, newest, announce);
    let mut part = WrittenPart { is_whole: true, ..WrittenPart::default() };
    let mut reader = FileReader::default();
    let mut points = FilePoints::default();
    let mut totals = Vec::with_capacity(files.len());
    for group in files.chunks(PROGRESS_FILES) {
        for file in group {
            let path = dir.join(&file.relative);
            let is_read = read_points(env, &path, selection, &mut reader, &mut points, &mut part);
            if is_read && !points.times.is_empty() {
                blocks.push(WordKind::Float, &points.times, &points.values)?;
                blocks.end_series(&file.labels)?;
                totals.push(FileTotals { file, count: points.times.len() as u64, sum: points.sum() });
            }
        }
        progress(group.iter().map(|file| file.len).sum());
    }
    blocks.finish()?;
    let written = blocks.into_written();
    let taken = part.report.slots.taken;
    assert!(taken == written.sample_count, "{taken} points read, {} written", written.sample_count);
    part.ulids = written.ulids;
    part.report.blocks = part.ulids.len() as u64;
    if comparison == Comparison::All {
        compare(env, blocks_dir, &part.ulids, &totals, &mut part.report)?;
    }
    Ok(part)
}

/// Reads the points of a file; returns false if it has none that can be read.
fn read_points(
    env: &Env,
    path: &Path,
    selection: TimeSelection,
    reader: &mut FileReader,
    points: &mut FilePoints,
    part: &mut WrittenPart,
) -> bool {
    let report = &mut part.report;
    let bytes = match reader.read(env, path) {
        Ok(bytes) => bytes,
        Err(error) => {
            part.is_whole = false;
            report.damage(path, 0, format!("{error}: all points of the file are lost"));
            return false;
        }
    };
    report.files += 1;
    report.bytes += bytes.len() as u64;
    let now_s = env.clock.now_ms().div_euclid(1000);
    if let Err(damage) = points.read(bytes, now_s, selection) {
        let what = format!("{}: all points of the file are lost", damage.what);
        report.damage(path, damage.offset as u64, what);
        return false;
    }
    points.archives.iter().for_each(|counts| report.slots.add(counts));
    for damage in &points.damages {
        report.damage(path, damage.offset as u64, &damage.what);
    }
    true
}
