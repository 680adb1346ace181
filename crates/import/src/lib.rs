//! Reads a stopped or copied Prometheus data directory into blocks of a tenant.
//!
//! Holds: blocks are copied as they are; the head (m-mapped chunks, checkpoint, log, out-of-order log) becomes blocks
//! in one pass, without going through a log of our own (ADR 0018). What is left out is counted in the report. An
//! import that is interrupted or repeated brings nothing twice.
//! Not here: the bytes of the files (`format`), locking the data directory (the caller).

mod copy;
mod gather;
mod log;
mod open;
mod output;
mod pump;
mod refs;
mod report;
mod series;
mod slab;
mod source;

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_base::crc::Crc32c;
use chronolith_block::BlockError;
use chronolith_format::block::imports::{HeadState, ImportState};
use chronolith_format::block::meta::{BlockMeta, META_BYTES_MAX, Ulid};
use chronolith_model::BlockEncoding;

pub use log::{LogEntry, walk_logs};

use gather::{Gather, Log, MappedChunks};
use output::Output;
use pump::{Batch, Pump};
pub use report::{DAMAGES_NAMED_MAX, Damage, HeadCounts, ImportReport};
use source::Source;

/// Blocks that say so cover no time of the head.
const HINTS_BESIDE_HEAD: [&str; 3] = ["from-out-of-order", "from-stale-series", "from-selected-series"];

/// What to import, and where to.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// Prometheus's data directory.
    pub source: PathBuf,
    /// Directory of the tenant's blocks.
    pub blocks_dir: PathBuf,
    /// File that says what has been imported for this tenant; its directory is made if it is missing.
    pub state_path: PathBuf,
    /// Encoding of the blocks that are made of the head.
    pub encoding: BlockEncoding,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Bytes of the source that have been read.
    pub done_bytes: u64,
    /// Bytes of the source that are going to be read.
    pub total_bytes: u64,
}

/// Why an import ended early. What was complete stays; running it again goes on.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A directory or a file of our own cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// As the operating system says.
        error: std::io::Error,
    },
    /// The state of earlier imports is damaged.
    #[error("{path}: {what}; move it away to import everything again")]
    State {
        /// File.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// There is nothing of a Prometheus in the directory.
    #[error("{0} holds neither blocks nor a write-ahead log of Prometheus")]
    Empty(PathBuf),
    /// A block cannot be written.
    #[error("{0}")]
    Block(#[from] BlockError),
    /// The reading thread panicked.
    #[error("reading the log failed")]
    Reader,
}

/// Imports `options.source`. `progress` is called every few megabytes.
///
/// # Errors
/// [`ImportError`]. Damage in the source is no error: it is in the report.
pub fn run(
    env: &Env,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportReport, ImportError> {
    let source =
        Source::look(env, &options.source).map_err(|(path, error)| ImportError::Io { path, error })?;
    if source.blocks.is_empty() && source.head_bytes() == 0 {
        return Err(ImportError::Empty(options.source.clone()));
    }
    make_dir(env, &options.blocks_dir)?;
    if let Some(dir) = options.state_path.parent() {
        make_dir(env, dir)?;
    }
    let state = read_state(env, &options.state_path)?;
    let mut import = Import { env, options, state, report: ImportReport::default() };
    import.remove_pending()?;
    import.report.notes.clone_from(&source.notes);
    let mut progress = Meter { progress, now: Progress::default() };
    let (blocks, min_time) = import.look_at_blocks(&source, &mut progress.now)?;
    progress.now.total_bytes += source.head_bytes();
    for (ulid, path) in &blocks {
        import.copy(*ulid, path, &mut progress)?;
    }
    import.head(&source, min_time, &mut progress)?;
    Ok(import.report)
}

struct Meter<'a> {
    progress: &'a mut dyn FnMut(Progress),
    now: Progress,
}

impl Meter<'_> {
    fn add(&mut self, bytes: u64) {
        self.now.done_bytes += bytes;
        (self.progress)(self.now);
    }
}

struct Import<'a> {
    env: &'a Env,
    options: &'a ImportOptions,
    state: ImportState,
    report: ImportReport,
}

impl Import<'_> {
    /// Takes away what an interrupted import has left.
    fn remove_pending(&mut self) -> Result<(), ImportError> {
        for ulid in std::mem::take(&mut self.state.pending) {
            let dir = self.options.blocks_dir.join(ulid.to_string());
            if self.env.disk.exists(&dir) {
                chronolith_block::remove(self.env, &dir)?;
            }
        }
        self.save()
    }

    fn save(&self) -> Result<(), ImportError> {
        write_state(self.env, &self.options.state_path, &self.state)?;
        Ok(())
    }

    /// The blocks to copy, and the time from which on the head is imported. Adds their bytes to `total`.
    fn look_at_blocks(
        &mut self,
        source: &Source,
        total: &mut Progress,
    ) -> Result<(Vec<(Ulid, PathBuf)>, i64), ImportError> {
        let mut metas = Vec::new();
        for (ulid, path) in &source.blocks {
            match read_meta(self.env, path) {
                Ok(meta) => metas.push((*ulid, path, meta)),
                Err(what) => self.report.damage(path, 0, what),
            }
        }
        let parents: Vec<Ulid> = metas
            .iter()
            .flat_map(|(ulid, _, meta)| meta.compaction.parents.iter().map(move |p| (ulid, p.ulid)))
            .filter(|(child, parent)| parent < child)
            .map(|(_, parent)| parent)
            .collect();
        let mut blocks = Vec::new();
        let mut min_time = i64::MIN;
        for (ulid, path, meta) in metas {
            let hints = &meta.compaction.hints;
            if !hints.iter().any(|hint| HINTS_BESIDE_HEAD.contains(&hint.as_str())) {
                min_time = min_time.max(meta.max_time);
            }
            if parents.contains(&ulid) {
                self.report.blocks_replaced += 1;
            } else if self.state.blocks.contains(&ulid) {
                self.report.blocks_present += 1;
            } else {
                total.total_bytes += dir_bytes(self.env, path, 2);
                self.report.block_samples += meta.stats.num_samples;
                blocks.push((ulid, path.clone()));
            }
        }
        Ok((blocks, min_time))
    }

    fn copy(&mut self, ulid: Ulid, from: &Path, progress: &mut Meter<'_>) -> Result<(), ImportError> {
        let to = self.options.blocks_dir.join(ulid.to_string());
        if !self.env.disk.exists(&to) {
            match copy::copy_block(self.env, from, &to, &mut |bytes| progress.add(bytes)) {
                Ok(()) => self.report.blocks_copied.push(ulid),
                // What the source gives is damage there; what our own disk refuses ends the import.
                Err(BlockError::Io { path, error }) if path.starts_with(&self.options.blocks_dir) => {
                    return Err(ImportError::Io { path, error });
                }
                Err(error) => {
                    self.report.damage(from, 0, error);
                    return Ok(());
                }
            }
        } else {
            self.report.blocks_present += 1;
        }
        self.state.blocks.push(ulid);
        self.save()
    }

    fn head(&mut self, source: &Source, min_time: i64, progress: &mut Meter<'_>) -> Result<(), ImportError> {
        if source.head_bytes() == 0 {
            return Ok(());
        }
        let name = self.options.source.display().to_string();
        let fingerprint = fingerprint(source);
        let before = self.state.heads.iter().position(|head| head.source == name);
        if before.is_some_and(|at| self.state.heads[at].fingerprint == fingerprint) {
            self.report.head_present = true;
            return Ok(());
        }
        let (counts, blocks) = self.gather(source, min_time, progress)?;
        self.report.head = counts;
        self.report.head_blocks.clone_from(&blocks);
        // The blocks that an earlier import made of this head are replaced: the state that names the new ones is
        // durable before the old ones go, and names the old ones as pending until they are gone.
        let old = before.map(|at| self.state.heads.remove(at).blocks).unwrap_or_default();
        self.state.heads.push(HeadState { source: name, fingerprint, blocks });
        self.state.pending = old;
        self.save()?;
        self.remove_pending()
    }

    fn gather(
        &mut self,
        source: &Source,
        min_time: i64,
        progress: &mut Meter<'_>,
    ) -> Result<(HeadCounts, Vec<Ulid>), ImportError> {
        let newest = newest_block(self.env, &self.options.blocks_dir)?;
        let output = Output::new(self.env, &self.options.blocks_dir, self.options.encoding, newest);
        let paths: Vec<PathBuf> = source.head_chunks.iter().map(|file| file.path.clone()).collect();
        let chunks = MappedChunks::read(self.env, &paths, &mut self.report);
        progress.add(source.head_chunks.iter().map(|file| file.len).sum());
        let mut state = self.state.clone();
        let announce = {
            let (env, path) = (self.env.clone(), self.options.state_path.clone());
            Box::new(move |ulids: &[Ulid]| {
                state.pending.extend_from_slice(ulids);
                write_state(&env, &path, &state)
            })
        };
        let mut gather = Gather::new(output, chunks, min_time, announce);
        let logs = source.wal.iter().map(|file| (Log::Wal, file.clone()));
        let files: Vec<_> =
            logs.chain(source.wbl.iter().map(|file| (Log::OutOfOrder, file.clone()))).collect();
        let pump = Pump::start(self.env, files.clone())
            .map_err(|error| ImportError::Io { path: self.options.source.clone(), error })?;
        let mut torn = Vec::new();
        while let Ok(batch) = pump.batches.recv() {
            progress.add(batch.read_bytes);
            let path = files.get(batch.file).map(|(_, file)| file.path.as_path());
            self.take(&mut gather, &batch, path.unwrap_or(&self.options.source), &mut torn)?;
            pump.reuse(batch);
        }
        if !pump.finish() {
            return Err(ImportError::Reader);
        }
        self.end_of_logs(source, torn);
        Ok(gather.finish()?)
    }

    /// Gives a batch to `gather`. Damage waits in `torn` until it is known whether records follow.
    fn take(
        &mut self,
        gather: &mut Gather,
        batch: &Batch,
        path: &Path,
        torn: &mut Vec<Damage>,
    ) -> Result<(), ImportError> {
        for record in batch.records() {
            if let Some(what) = gather.record(batch.log, record)? {
                self.report.damage(path, 0, what);
            }
        }
        torn.extend(batch.damages.iter().cloned());
        Ok(())
    }

    /// The end of a log's last segment that a crash cut off is no loss: nobody was told that it is stored.
    fn end_of_logs(&mut self, source: &Source, damages: Vec<Damage>) {
        let last = [source.wal.last(), source.wbl.last()];
        for damage in damages {
            let is_end = last.iter().flatten().any(|file| {
                let tail = file.len.saturating_sub(chronolith_format::prometheus::segment::PAGE_BYTES as u64);
                file.path == damage.path && damage.offset >= tail
            });
            if is_end {
                let path = damage.path.display();
                self.report
                    .notes
                    .push(format!("{path}: offset {}: torn end: {}", damage.offset, damage.what));
            } else {
                self.report.damage(damage.path, damage.offset, damage.what);
            }
        }
    }
}

fn make_dir(env: &Env, dir: &Path) -> Result<(), ImportError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| ImportError::Io { path, error }
    };
    env.disk.create_dir_all(dir).map_err(io(dir))?;
    match dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => env.disk.sync_dir(parent).map_err(io(parent)),
        None => Ok(()),
    }
}

fn read_state(env: &Env, path: &Path) -> Result<ImportState, ImportError> {
    if !env.disk.exists(path) {
        return Ok(ImportState::new());
    }
    let text = env.disk.read(path).map_err(|error| ImportError::Io { path: path.to_owned(), error })?;
    ImportState::decode(&text)
        .map_err(|error| ImportError::State { path: path.to_owned(), what: error.to_string() })
}

fn write_state(env: &Env, path: &Path, state: &ImportState) -> Result<(), BlockError> {
    env.disk.write_atomic(path, &state.encode()).map_err(copy::io(path))
}

fn read_meta(env: &Env, dir: &Path) -> Result<BlockMeta, String> {
    let path = dir.join("meta.json");
    let file = env.disk.open_read(&path).map_err(|error| error.to_string())?;
    let len = file.len().map_err(|error| error.to_string())?;
    if len > META_BYTES_MAX as u64 {
        return Err(format!("meta.json has {len} bytes"));
    }
    let mut text = vec![0; len as usize];
    file.read_at(&mut text, 0).map_err(|error| error.to_string())?;
    BlockMeta::decode(&text).map_err(|error| error.to_string())
}

fn dir_bytes(env: &Env, dir: &Path, depth: usize) -> u64 {
    let entries = env.disk.list(dir).unwrap_or_default();
    let below = |name: &str| if depth > 0 { dir_bytes(env, &dir.join(name), depth - 1) } else { 0 };
    entries.iter().map(|entry| if entry.is_dir { below(&entry.name) } else { entry.len }).sum()
}

fn newest_block(env: &Env, dir: &Path) -> Result<Option<Ulid>, ImportError> {
    let entries = env.disk.list(dir).map_err(|error| ImportError::Io { path: dir.to_owned(), error })?;
    Ok(entries.iter().filter_map(|entry| entry.name.parse().ok()).max())
}

/// Names and lengths of the head's files.
fn fingerprint(source: &Source) -> String {
    let mut sum = Crc32c::new();
    let mut total = 0;
    for file in source.head_chunks.iter().chain(&source.wal).chain(&source.wbl) {
        sum.update(file.path.as_os_str().as_encoded_bytes());
        sum.update(&file.len.to_le_bytes());
        total += file.len;
    }
    format!("{:08x}-{total}", sum.finish())
}
