//! One run of an import: copies blocks, then turns the head into blocks.
//!
//! Invariants: a block is named in the state file as pending before it appears, and stops being pending when
//! the state that names it as imported is durable; blocks that replace others are durable before those are
//! removed.
//! Not here: parsing records (`read`), samples (`collect`), the bytes of blocks (`write`).

use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_block::BlockError;
use chronolith_format::block::imports::HeadState;
use chronolith_format::block::meta::Ulid;

use crate::collect::Collector;
use crate::read::block_metas::{SourceBlock, list_blocks};
use crate::read::data_dir::{DataDir, SourceFile};
use crate::read::head_chunks::HeadChunkIndex;
use crate::read::log_reader::{Log, LogReader};
use crate::write::block_set::BlockSet;
use crate::write::copy::copy_block;
use crate::write::head_blocks::HeadBlocks;
use crate::write::report::{Damage, HeadCounts, ImportReport};
use crate::write::state::{StateFile, make_dir};
use crate::{ImportError, ImportOptions, Progress};

/// A running import.
pub(crate) struct Import<'a> {
    env: &'a Env,
    options: &'a ImportOptions,
    state: StateFile,
    report: ImportReport,
    progress: ProgressMeter<'a>,
}

struct ProgressMeter<'a> {
    report: &'a mut dyn FnMut(Progress),
    current: Progress,
}

impl ProgressMeter<'_> {
    fn add(&mut self, bytes: u64) {
        self.current.done_bytes += bytes;
        (self.report)(self.current);
    }
}

impl<'a> Import<'a> {
    /// Creates the directories, reads the state of earlier imports and removes what an interrupted one has
    /// left.
    pub(crate) fn begin(
        env: &'a Env,
        options: &'a ImportOptions,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Import<'a>, ImportError> {
        make_dir(env, &options.blocks_dir)?;
        if let Some(dir) = options.state_path.parent() {
            make_dir(env, dir)?;
        }
        let mut state = StateFile::open(env, &options.state_path)?;
        state.remove_pending_blocks(env, &options.blocks_dir)?;
        let progress = ProgressMeter { report: progress, current: Progress::default() };
        Ok(Import { env, options, state, report: ImportReport::default(), progress })
    }

    pub(crate) fn run(mut self, source: &DataDir) -> Result<ImportReport, ImportError> {
        self.report.notes.clone_from(&source.notes);
        let blocks = list_blocks(self.env, source, &mut self.report);
        let min_time = blocks.iter().filter_map(|block| block.head_min_time).max().unwrap_or(i64::MIN);
        let missing = self.missing_blocks(&blocks);
        self.progress.current.total_bytes = source.head_bytes()
            + missing.iter().map(|block| dir_bytes(self.env, &block.path, 2)).sum::<u64>();
        for block in missing {
            self.copy_block(block)?;
        }
        if source.head_bytes() != 0 {
            self.import_head(source, min_time)?;
        }
        Ok(self.report)
    }

    /// Blocks that are neither compacted into another block of the source nor imported.
    fn missing_blocks<'b>(&mut self, blocks: &'b [SourceBlock]) -> Vec<&'b SourceBlock> {
        let mut missing = Vec::new();
        for block in blocks {
            if block.is_replaced {
                self.report.blocks_replaced += 1;
            } else if self.state.has_block(block.ulid) {
                self.report.blocks_present += 1;
            } else {
                self.report.block_samples += block.sample_count;
                missing.push(block);
            }
        }
        missing
    }

    fn copy_block(&mut self, block: &SourceBlock) -> Result<(), ImportError> {
        let target = self.options.blocks_dir.join(block.ulid.to_string());
        if self.env.disk.exists(&target) {
            self.report.blocks_present += 1;
        } else {
            let progress = &mut self.progress;
            match copy_block(self.env, &block.path, &target, &mut |bytes| progress.add(bytes)) {
                Ok(()) => self.report.blocks_copied.push(block.ulid),
                // A failed write to our own disk ends the import; an unreadable source block is damage.
                Err(BlockError::Io { path, error }) if path.starts_with(&self.options.blocks_dir) => {
                    return Err(ImportError::Io { path, error });
                }
                Err(error) => {
                    self.report.damage(&block.path, 0, error);
                    return Ok(());
                }
            }
        }
        self.state.add_block(self.env, block.ulid)
    }

    /// Turns the head into blocks, unless it is unchanged since an earlier import.
    fn import_head(&mut self, source: &DataDir, min_time: i64) -> Result<(), ImportError> {
        let name = self.options.source.display().to_string();
        let fingerprint = source.fingerprint();
        if self.state.has_head(&name, &fingerprint) {
            self.report.head_present = true;
            return Ok(());
        }
        let (counts, blocks) = self.write_head_blocks(source, min_time)?;
        self.report.head = counts;
        self.report.head_blocks.clone_from(&blocks);
        self.state.replace_head(self.env, HeadState { source: name, fingerprint, blocks })?;
        self.state.remove_pending_blocks(self.env, &self.options.blocks_dir)
    }

    fn write_head_blocks(
        &mut self,
        source: &DataDir,
        min_time: i64,
    ) -> Result<(HeadCounts, Vec<Ulid>), ImportError> {
        let newest = newest_block(self.env, &self.options.blocks_dir)?;
        let blocks = BlockSet::new(self.env, &self.options.blocks_dir, self.options.encoding, newest);
        let chunks = HeadChunkIndex::open(self.env, &source.head_chunks, &mut self.report);
        self.progress.add(source.head_chunks.iter().map(|file| file.len).sum());
        let announce = self.state.pending_writer(self.env);
        let mut collector = Collector::new(HeadBlocks::new(blocks, announce), chunks, min_time);
        let damages = self.read_logs(source, &mut collector)?;
        self.report_log_damages(source, damages);
        Ok(collector.finish()?)
    }

    /// Appends all records of WAL and WBL to `collector`; returns damage of segments.
    fn read_logs(&mut self, source: &DataDir, collector: &mut Collector) -> Result<Vec<Damage>, ImportError> {
        let wal = source.wal.iter().map(|file| (Log::Wal, file.clone()));
        let files: Vec<_> = wal.chain(source.wbl.iter().map(|file| (Log::Wbl, file.clone()))).collect();
        let reader = LogReader::start(self.env, files.clone())
            .map_err(|error| ImportError::Io { path: self.options.source.clone(), error })?;
        let mut damages = Vec::new();
        while let Ok(mut batch) = reader.batches.recv() {
            self.progress.add(batch.read_bytes);
            for record in batch.records() {
                if let Some(what) = collector.append_record(batch.log, record)? {
                    let path = files.get(batch.file_idx).map(|(_, file)| file.path.as_path());
                    self.report.damage(path.unwrap_or(&self.options.source), 0, what);
                }
            }
            damages.append(&mut batch.damages);
            reader.reuse(batch);
        }
        if reader.join() { Ok(damages) } else { Err(ImportError::Reader) }
    }

    /// Reports damage as loss, except where a crash cut off the end of a log: Prometheus had not acknowledged
    /// that.
    fn report_log_damages(&mut self, source: &DataDir, damages: Vec<Damage>) {
        let ends = [source.wal.last(), source.wbl.last()];
        for damage in damages {
            let is_torn_end = ends.iter().flatten().any(|file| {
                let SourceFile { path, len } = file;
                let tail = len.saturating_sub(chronolith_format::prometheus::segment::PAGE_BYTES as u64);
                *path == damage.path && damage.offset >= tail
            });
            if is_torn_end {
                let path = damage.path.display();
                let note = format!("{path}: offset {}: torn end: {}", damage.offset, damage.what);
                self.report.notes.push(note);
            } else {
                self.report.damage(damage.path, damage.offset, damage.what);
            }
        }
    }
}

fn dir_bytes(env: &Env, dir: &Path, depth: usize) -> u64 {
    let entries = env.disk.list(dir).unwrap_or_default();
    let below = |name: &str| if depth > 0 { dir_bytes(env, &dir.join(name), depth - 1) } else { 0 };
    entries.iter().map(|entry| if entry.is_dir { below(&entry.name) } else { entry.len }).sum()
}

/// Returns the newest block in `dir`.
pub(crate) fn newest_block(env: &Env, dir: &Path) -> Result<Option<Ulid>, ImportError> {
    let io = |error| ImportError::Io { path: PathBuf::from(dir), error };
    Ok(env.disk.list(dir).map_err(io)?.iter().filter_map(|entry| entry.name.parse().ok()).max())
}
