//! Writing of the roll-up files of a block: one pass over its samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chronolith_base::{Env, MemoryBudget};
use chronolith_format::block::rollup::{
    ROLLUPS_DIR, encode_header, encode_section, encode_trailer, file_name, put_entry,
};
use chronolith_format::chunk::dense::DenseScratch;
use chronolith_model::rollup::{
    RolledWindows, RollupArchive, RollupFacts, RollupMethod, RollupMethods, RollupRules, RollupSpan,
};
use chronolith_model::{Columns, SampleSource as _, TimeRange};

use crate::compact::{CompactError, Pace};
use crate::contents::BlockContents;
use crate::layout::SUFFIX_ROLLUPS_CREATING;
use crate::postings::all_refs;
use crate::series::BlockSeries;
use crate::series_reader::{SeriesReader, is_deleted};
use crate::writer::sink::FileSink;
use crate::{Block, BlockError};

/// Files of a block at most; archives of further spans are computed from samples.
const FILES_MAX: usize = 32;
/// Counter resets are kept for series with at least this many windows per reset; others are no counters.
const RESETS_PART: f64 = 8.0;

/// Counts of a block's roll-ups that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RolledUp {
    /// Files, one per span and slot.
    pub files: u64,
    /// Windows of all series and files.
    pub windows: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// Returns true if the block in `dir` has roll-ups, or none of its series has an archive.
#[must_use]
pub fn has_rollups(env: &Env, dir: &Path) -> bool {
    env.disk.exists(&dir.join(ROLLUPS_DIR))
}

/// Writes roll-ups of all series of `block` that have archives by `rules`, instead of those that are
/// there. Durable when it returns; blocks that are opened afterwards read them. At most one call per block
/// at a time. Cost: one pass over the samples; memory of one series and 16 bytes per series and file.
///
/// # Errors
/// [`CompactError`]; the block has the roll-ups that it had, or none.
pub fn write_rollups(
    env: &Env,
    block: &Block,
    rules: &dyn RollupRules,
    pace: &dyn Pace,
) -> Result<RolledUp, CompactError> {
    let mut writer = RollupWriter::create(env, block.dir())?;
    writer.add_all(block.contents(), rules, pace)?;
    Ok(writer.finish()?)
}

/// File of an archive that is being written.
struct ArchiveFile {
    sink: FileSink,
    table: Vec<u8>,
}

/// Roll-up files that are being written; they are removed if it is dropped before they are complete.
struct RollupWriter {
    env: Env,
    block_dir: PathBuf,
    creating_dir: PathBuf,
    files: BTreeMap<RollupSpan, ArchiveFile>,
    scratch: DenseScratch,
    section: Vec<u8>,
    written: RolledUp,
}

impl RollupWriter {
    fn create(env: &Env, block_dir: &Path) -> Result<RollupWriter, BlockError> {
        let creating_dir = block_dir.join(format!("{ROLLUPS_DIR}{SUFFIX_ROLLUPS_CREATING}"));
        // A process that ended may have left some.
        if env.disk.exists(&creating_dir) {
            env.disk.remove_dir_all(&creating_dir).map_err(BlockError::io(&creating_dir))?;
        }
        env.disk.create_dir_all(&creating_dir).map_err(BlockError::io(&creating_dir))?;
        Ok(RollupWriter {
            env: env.clone(),
            block_dir: block_dir.to_owned(),
            creating_dir,
            files: BTreeMap::new(),
            scratch: DenseScratch::new(),
            section: Vec::new(),
            written: RolledUp::default(),
        })
    }

    fn add_all(
        &mut self,
        contents: &BlockContents,
        rules: &dyn RollupRules,
        pace: &dyn Pace,
    ) -> Result<(), CompactError> {
        let budget = MemoryBudget::new("roll-ups", u64::MAX);
        let mut series = SeriesReader::new(all_refs(contents, &budget).map_err(CompactError::Read)?);
        let mut archives = Vec::new();
        let mut samples = Columns::default();
        while let Some(series_ref) = series.next_ref(contents, &budget).map_err(CompactError::Read)? {
            let entry = series.decode_checked(contents, series_ref).map_err(CompactError::Read)?;
            let deleted = contents.deleted(series_ref);
            entry.chunks.retain(|chunk| !is_deleted(deleted, chunk));
            entry.chunks.sort_by_key(|chunk| chunk.min_time);
            let chunks = std::mem::take(&mut entry.chunks);
            let labels = series.ascending_labels(contents, series_ref).map_err(CompactError::Read)?;
            archives.clear();
            rules.archives_of(&labels, &mut archives);
            if archives.is_empty() || chunks.is_empty() {
                continue;
            }
            let wave = [chunks.as_slice()];
            let bytes = contents.read(&contents.chunk_wave(&wave), &budget).map_err(CompactError::Read)?;
            samples.clear();
            let source = BlockSeries::new(bytes, chunks.into(), Box::from(deleted));
            source.read(contents.range(), &mut samples).map_err(CompactError::Read)?;
            // A NaN makes no window, but may be newer than the value of another block at its time.
            if !samples.histograms.is_empty() || samples.values.iter().any(|value| value.is_nan()) {
                continue;
            }
            for archive in &archives {
                self.add_series(series_ref, archive, &samples, contents.range())?;
            }
            if pace.spend((samples.times.len() * size_of::<u16>()) as u64).is_break() {
                return Err(CompactError::Stopped);
            }
        }
        Ok(())
    }

    /// Adds the windows of a series that lie in the block as a whole.
    fn add_series(
        &mut self,
        series_ref: u32,
        archive: &RollupArchive,
        samples: &Columns,
        block_range: TimeRange,
    ) -> Result<(), BlockError> {
        let Some(inner) = archive.narrowed(block_range) else { return Ok(()) };
        let methods = archive.methods.union(RollupMethods::of(&[RollupMethod::Count]));
        let with_resets = methods.union(RollupMethods::of(&[RollupMethod::Resets]));
        let mut all = RolledWindows::new(with_resets);
        archive.with_methods(with_resets).roll_up(samples, &mut all);
        let total = |method| all.column(method).unwrap_or_default().iter().sum::<f64>();
        let facts = RollupFacts::of(samples, total(RollupMethod::Count) as usize);
        let is_counter = total(RollupMethod::Resets) <= all.len() as f64 / RESETS_PART;
        let methods = if is_counter { with_resets } else { methods };
        let first = all.starts().partition_point(|start| *start < inner.start);
        let end = all.starts().partition_point(|start| *start < inner.end);
        let span = archive.span();
        if first == end || !self.files.contains_key(&span) && self.files.len() >= FILES_MAX {
            return Ok(());
        }
        let mut kept = RolledWindows::new(methods);
        kept.extend_from(&all, first..end);
        self.section.clear();
        encode_section(series_ref, &kept, facts, archive.span_ms(), &mut self.scratch, &mut self.section);
        let Ok(len) = u32::try_from(self.section.len()) else { return Ok(()) };
        let section = std::mem::take(&mut self.section);
        let file = self.file(span)?;
        put_entry(series_ref, file.sink.position(), len, &mut file.table);
        file.sink.buffer().extend_from_slice(&section);
        file.sink.drain()?;
        self.section = section;
        self.written.windows += (end - first) as u64;
        Ok(())
    }

    fn file(&mut self, span: RollupSpan) -> Result<&mut ArchiveFile, BlockError> {
        match self.files.entry(span) {
            std::collections::btree_map::Entry::Occupied(file) => Ok(file.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let path = self.creating_dir.join(file_name(span));
                let mut sink = FileSink::create(&self.env, &path)?;
                sink.buffer().extend_from_slice(&encode_header(span));
                Ok(place.insert(ArchiveFile { sink, table: Vec::new() }))
            }
        }
    }

    /// Completes the files and gives the directory its name.
    fn finish(mut self) -> Result<RolledUp, BlockError> {
        for file in self.files.values_mut() {
            let trailer = encode_trailer(&file.table);
            file.sink.buffer().extend_from_slice(&file.table);
            file.sink.buffer().extend_from_slice(&trailer);
            self.written.files += 1;
            self.written.bytes += file.sink.position();
            file.sink.write_out()?;
        }
        for file in self.files.values_mut() {
            file.sink.sync()?;
        }
        let disk = &self.env.disk;
        disk.sync_dir(&self.creating_dir).map_err(BlockError::io(&self.creating_dir))?;
        let target = self.block_dir.join(ROLLUPS_DIR);
        if disk.exists(&target) {
            disk.remove_dir_all(&target).map_err(BlockError::io(&target))?;
        }
        disk.rename(&self.creating_dir, &target).map_err(BlockError::io(&target))?;
        disk.sync_dir(&self.block_dir).map_err(BlockError::io(&self.block_dir))?;
        Ok(self.written)
    }
}

impl Drop for RollupWriter {
    fn drop(&mut self) {
        if self.env.disk.exists(&self.creating_dir) {
            // The next attempt, or removal of the block, removes the files that are left.
            let _ = self.env.disk.remove_dir_all(&self.creating_dir);
        }
    }
}
