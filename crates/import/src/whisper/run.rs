//! One run of an import of whisper files: parts in parallel, each with its state.
//!
//! Invariants: a part is recorded as imported when its blocks are durable; blocks of a part that did not end
//! are removed when the import begins again.
//! Not here: the points of a part (`part`), its bounds (`plan`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronolith_base::{Env, thread};
use chronolith_block::{BlockError, is_leftover};
use chronolith_format::block::imports::HeadState;
use chronolith_format::block::meta::Ulid;

use super::error::WhisperError;
use super::header::Header;
use super::part::{self, Comparison, PartTarget, WrittenPart};
use super::plan::{Part, block_part_files, divide};
use super::points::{FilePoints, TimeSelection};
use super::reader::SourceReader;
use super::report::WhisperReport;
use super::rules::Rules;
use super::source::{WhisperFile, WhisperSource};
use crate::Progress;
use crate::write::head_blocks::Announce;
use crate::write::state::{StateFile, make_dir};

/// Messages about progress that wait at most.
const PROGRESS_QUEUE: usize = 64;

/// Target of an import, and selection of files and points.
#[derive(Debug, Clone)]
pub struct WhisperOptions {
    /// Directory of the blocks of the store.
    pub blocks_dir: PathBuf,
    /// File that lists the imported files. Its directory is created if it is missing.
    pub state_path: PathBuf,
    /// Times to take.
    pub selection: TimeSelection,
    /// Comparison after blocks were written.
    pub comparison: Comparison,
    /// Rules that files are compared with.
    pub rules: Arc<Rules>,
    /// Parts at a time; the blocks of each take up to 300 MB of memory.
    pub worker_count: usize,
}

/// State that workers share.
struct Shared<'a> {
    env: &'a Env,
    options: &'a WhisperOptions,
    source: &'a WhisperSource,
    parts: &'a [Part],
    newest: Option<Ulid>,
    state: Arc<Mutex<StateFile>>,
    next_part: AtomicUsize,
    has_failed: AtomicBool,
}

/// Imports the files of `source`. `progress` is called every few files.
///
/// # Errors
/// [`WhisperError`]. Damage in the source is not an error: it is listed in the report.
pub fn run(
    env: &Env,
    source: &WhisperSource,
    options: &WhisperOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<WhisperReport, WhisperError> {
    make_dir(env, &options.blocks_dir)?;
    if let Some(dir) = options.state_path.parent() {
        make_dir(env, dir)?;
    }
    let mut state = StateFile::open(env, &options.state_path)?;
    state.remove_pending_blocks(env, &options.blocks_dir)?;
    remove_leftovers(env, &options.blocks_dir)?;
    let worker_count = options.worker_count.max(1);
    let mut report = WhisperReport::default();
    let mut current = Progress { done_bytes: 0, total_bytes: source.byte_count() };
    let recorded = state.heads().iter().map(|head| head.source.as_str());
    let files_max = block_part_files(source.files.len(), worker_count);
    let all = divide(source, options.selection, recorded, files_max);
    let (present, parts): (Vec<Part>, Vec<Part>) =
        all.into_iter().partition(|part| state.has_head(&part.source, &part.fingerprint));
    for part in &present {
        report.files_present += part.files.len() as u64;
        let files = source.files_of(part);
        current.done_bytes += files.iter().map(|file| file.len).sum::<u64>();
    }
    let shared = Shared {
        env,
        options,
        source,
        parts: &parts,
        newest: crate::import::newest_block(env, &options.blocks_dir)?,
        state: Arc::new(Mutex::new(state)),
        next_part: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
    };
    for part in shared.run(worker_count, current, progress)? {
        report.add(part);
    }
    Ok(report)
}

/// Removes directories of blocks that were not complete when an import ended.
fn remove_leftovers(env: &Env, blocks_dir: &Path) -> Result<(), WhisperError> {
    let failed = |error| WhisperError::Io { path: blocks_dir.to_owned(), error };
    for entry in env.disk.list(blocks_dir).map_err(failed)? {
        if is_leftover(&entry.name) {
            env.disk.remove_dir_all(&blocks_dir.join(entry.name)).map_err(failed)?;
        }
    }
    Ok(())
}

fn lock(state: &Mutex<StateFile>) -> MutexGuard<'_, StateFile> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared<'_> {
    /// Imports all parts and returns their reports.
    fn run(
        &self,
        worker_count: usize,
        mut current: Progress,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<WhisperReport>, WhisperError> {
        let (bytes_read, received) = sync_channel(PROGRESS_QUEUE);
        let results = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..worker_count.min(self.parts.len()))
                .map(|_| {
                    let bytes_read = bytes_read.clone();
                    scope.spawn(move || self.work(&bytes_read))
                })
                .collect();
            drop(bytes_read);
            for bytes in received {
                current.done_bytes += bytes;
                progress(current);
            }
            let joined = workers.into_iter().map(|worker| worker.join().unwrap_or(Err(WhisperError::Worker)));
            joined.collect::<Result<Vec<_>, _>>()
        });
        Ok(results?.into_iter().flatten().collect())
    }

    /// Imports one part after the other until none is left or a worker has failed.
    fn work(&self, bytes_read: &SyncSender<u64>) -> Result<Vec<WhisperReport>, WhisperError> {
        let mut reports = Vec::new();
        while !self.has_failed.load(Ordering::Relaxed) {
            let next = self.next_part.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.parts.get(next) else { break };
            let imported = self.import(part, bytes_read);
            if imported.is_err() {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            reports.push(imported?);
        }
        Ok(reports)
    }

    fn import(&self, part: &Part, bytes_read: &SyncSender<u64>) -> Result<WhisperReport, WhisperError> {
        let WhisperOptions { blocks_dir, selection, comparison, rules, .. } = self.options;
        let target = PartTarget {
            env: self.env,
            blocks_dir,
            newest: self.newest,
            announce: self.announce(),
            selection: *selection,
            comparison: *comparison,
            rules,
        };
        let files = self.source.files_of(part);
        // The receiver lives until all workers have ended.
        let mut progress = |bytes| {
            let _ = bytes_read.send(bytes);
        };
        let written = part::import(target, &self.source.dir, files, &mut progress)?;
        let WrittenPart { ulids, report } = written;
        // A part with a file that could not be read is imported again by the next run.
        let fingerprint = match report.files_unreadable {
            0 => part.fingerprint.clone(),
            _ => format!("{}-incomplete", part.fingerprint),
        };
        let head = HeadState { source: part.source.clone(), fingerprint, blocks: ulids };
        lock(&self.state).complete(self.env, blocks_dir, head)?;
        Ok(report)
    }

    /// Returns a function that records blocks as pending before they appear.
    fn announce(&self) -> Announce {
        let state = self.state.clone();
        let env = self.env.clone();
        Box::new(move |ulids: &[Ulid]| -> Result<(), BlockError> { lock(&state).announce(&env, ulids) })
    }
}

/// Returns how many parts a machine imports at a time.
#[must_use]
pub fn default_worker_count() -> usize {
    thread::core_count()
}

/// Reads all files without a target and counts their points. `visit` is called with each file that can be
/// read.
pub fn inspect(
    env: &Env,
    source: &WhisperSource,
    selection: TimeSelection,
    rules: &Rules,
    visit: &mut dyn FnMut(&WhisperFile, &Header, &FilePoints),
) -> WhisperReport {
    let mut report = WhisperReport::default();
    let mut reader = SourceReader::new(env, &source.dir, selection, rules);
    for file in &source.files {
        if let Some((header, points)) = reader.read(file, &mut report) {
            visit(file, header, points);
        }
    }
    report
}
