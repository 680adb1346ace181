//! Import of one part of the files, neighbours in the order of labels: they become blocks of their own.
//!
//! Invariants: all points that were read are written, and each series is in the part alone.
//! Memory: one file, its points, the series and open blocks of the part.
//! Not here: reading files (`reader`), the order of parts and their state (`run`).

use std::path::Path;

use chronolith_base::Env;
use chronolith_format::block::meta::Ulid;
use chronolith_model::WordKind;

use super::compare::{FileTotals, compare};
use super::error::WhisperError;
use super::points::TimeSelection;
use super::reader::SourceReader;
use super::report::WhisperReport;
use super::rules::Rules;
use super::source::WhisperFile;
use super::windows::AgeWindows;
use crate::write::head_blocks::Announce;
use crate::write::window_blocks::WindowBlocks;

/// Files after which progress is reported.
const PROGRESS_FILES: usize = 64;

/// Comparison of written blocks with their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// All points are read again and compared with the files.
    All,
    /// Nothing.
    Skipped,
}

/// Target of a part, and selection of points of its files.
pub(crate) struct PartTarget<'a> {
    pub(super) env: &'a Env,
    /// Directory of the blocks of the store.
    pub(super) blocks_dir: &'a Path,
    /// Newest block in it.
    pub(super) newest: Option<Ulid>,
    /// Called before blocks appear.
    pub(super) announce: Announce,
    pub(super) selection: TimeSelection,
    pub(super) comparison: Comparison,
    pub(super) rules: &'a Rules,
}

/// Result of a part.
#[derive(Debug, Default)]
pub(crate) struct WrittenPart {
    pub(super) ulids: Vec<Ulid>,
    pub(super) report: WhisperReport,
}

/// Imports `files` below `dir`. `progress` is called with the bytes that were read.
pub(crate) fn import(
    target: PartTarget<'_>,
    dir: &Path,
    files: &[WhisperFile],
    progress: &mut dyn FnMut(u64),
) -> Result<WrittenPart, WhisperError> {
    let PartTarget { env, blocks_dir, newest, announce, selection, comparison, rules } = target;
    let windows = AgeWindows::new(env.clock.now_ms());
    let mut blocks = WindowBlocks::new(env, blocks_dir.to_owned(), windows, newest, announce);
    let mut part = WrittenPart::default();
    let mut reader = SourceReader::new(env, dir, selection, rules);
    let mut totals = Vec::with_capacity(files.len());
    for group in files.chunks(PROGRESS_FILES) {
        for file in group {
            let Some((_, points)) = reader.read(file, &mut part.report) else { continue };
            if !points.times.is_empty() {
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
