//! Compaction of several blocks of one tenant: a k-way merge of series by labels and of their samples by
//! time, into one block or, if that would grow too large, into several with different series.
//!
//! Invariant: the output answers every query as its inputs did together. At equal timestamps the block that
//! was written first wins (`precedence`), or last if that is the tenant's policy; tombstones of the inputs
//! are applied, each output names its inputs as parents and is complete and durable when `compact` returns.
//! Memory: one series at a time of every input, 4 bytes per series of every input, and the memory of
//! `BlockWriter`.
//! Not here: choice of the blocks and removal of the inputs (`tsdb`), the merge of chunks (`series_merge`).

mod output;
mod series_merge;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::{Env, KWayMerge, MemoryBudget};
use chronolith_format::block::index::ChunkMeta;
use chronolith_format::block::meta::{BlockDesc, BlockMeta, Ulid};
use chronolith_model::{BlockEncoding, DuplicatePolicy, Labels, QueryError, TimeRange, TimeUnit, WordKind};

use crate::contents::BlockContents;
use crate::postings::all_refs;
use crate::series_reader::{SeriesReader, is_deleted};
use crate::{Block, BlockError, BlockSource, encoding_for, precedence};
use output::Outputs;
use series_merge::{MergeChunk, SeriesMerge};

/// Error of a compaction. The inputs are as they were, and unless the error lists outputs, nothing of them is
/// left.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The output cannot be written; with room on the disk it may be tried again.
    #[error("{0}")]
    Write(#[from] BlockError),
    /// An input is damaged; trying again gives the same.
    #[error("{0}")]
    Read(QueryError),
    /// Outputs were complete when the disk failed, and could not be removed again. They name the inputs as
    /// their parents; they have to be removed before one of the inputs is compacted into another block.
    #[error("{error}; outputs are still to be removed: {dirs:?}")]
    LeftBehind {
        /// Directories of the outputs.
        dirs: Vec<PathBuf>,
        /// The first failure.
        error: BlockError,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Rate limit of compaction.
pub trait Pace {
    /// Called after every series with the bytes that were read and written for it. Waits as long as the limit
    /// requires; `Break` ends the compaction with [`CompactError::Stopped`].
    fn spend(&self, bytes: u64) -> ControlFlow<()>;
}

/// Rules of a compaction.
#[derive(Debug, Clone, Copy)]
pub struct MergeRules {
    /// Encoding of the output.
    pub encoding: BlockEncoding,
    /// Policy for two samples of a series with the same time.
    pub duplicates: DuplicatePolicy,
    /// An output of at least this size ends with the current series; the next series begins another output.
    pub output_bytes_max: u64,
}

/// Compacts `inputs` (at least one) into blocks below `parent_dir` whose names sort after `previous` and all
/// inputs, and opens them; none if nothing is left of the inputs. Asks `pace` after every series. Cost: one
/// pass over all bytes; full chunks that overlap nothing are copied, others are decoded and encoded again.
///
/// # Errors
/// [`CompactError`].
pub fn compact(
    env: &Env,
    parent_dir: &Path,
    previous: Option<Ulid>,
    inputs: &[Arc<Block>],
    rules: MergeRules,
    pace: &dyn Pace,
) -> Result<Vec<Arc<Block>>, CompactError> {
    let mut inputs: Vec<&Block> = inputs.iter().map(Arc::as_ref).collect();
    inputs.sort_by_key(|block| precedence(block.meta()));
    let newest = inputs.iter().map(|block| block.meta().ulid).chain(previous).max();
    let unit = inputs.first().map_or(TimeUnit::Milli, |block| block.meta().time_unit());
    assert!(inputs.iter().all(|block| block.meta().time_unit() == unit), "blocks of one store");
    let rules = MergeRules { encoding: encoding_for(unit, rules.encoding), ..rules };
    let source = source_of(&inputs);
    let mut outputs = Outputs::new(env, parent_dir, newest, source, set_of(&inputs), unit, rules)?;
    let mut cursors = Vec::with_capacity(inputs.len());
    for (input, block) in (0u32..).zip(&inputs) {
        cursors.push(Cursor::new(block.contents(), input)?);
    }
    merge_series(&mut cursors, &mut outputs, rules, pace)?;
    outputs.finish()
}

/// Returns the provenance of the output, for its `meta.json`.
fn source_of(inputs: &[&Block]) -> BlockSource {
    let metas = || inputs.iter().map(|block| block.meta());
    let start = metas().map(|m| m.range().start).min().unwrap_or_default();
    let end = metas().map(|m| m.range().end).max().unwrap_or_default();
    let highest = metas().map(|m| m.compaction.level).max().unwrap_or_default();
    // Compaction of a single block only rewrites it without deleted samples.
    let level = if inputs.len() == 1 { highest } else { highest.saturating_add(1) };
    let mut sources: Vec<Ulid> = metas().flat_map(|m| &m.compaction.sources).copied().collect();
    sources.sort_unstable();
    sources.dedup();
    let desc = |m: &BlockMeta| BlockDesc { ulid: m.ulid, min_time: m.min_time, max_time: m.max_time };
    let mut parents: Vec<BlockDesc> = metas().map(desc).collect();
    parents.sort_by_key(|parent| (parent.min_time, parent.ulid));
    BlockSource { range: TimeRange::new(start, end), level, sources, parents }
}

/// The split set that all inputs belong to: the outputs share no series with the other blocks of the set
/// either.
fn set_of(inputs: &[&Block]) -> Option<Ulid> {
    let set = inputs.first()?.meta().compaction.split_set;
    set.filter(|_| inputs.iter().all(|block| block.meta().compaction.split_set == set))
}

fn merge_series(
    cursors: &mut [Cursor<'_>],
    outputs: &mut Outputs<'_>,
    rules: MergeRules,
    pace: &dyn Pace,
) -> Result<(), CompactError> {
    let mut order = KWayMerge::with_capacity(cursors.len());
    for (input, cursor) in cursors.iter_mut().enumerate() {
        if let Some(labels) = cursor.next()? {
            order.push(labels, input);
        }
    }
    let (mut chunks, mut equal) = (Vec::new(), Vec::new());
    let mut merge = SeriesMerge::new(rules);
    while let Some(labels) = order.pop(&mut equal) {
        chunks.clear();
        // In order of the inputs: the chunks of the block written first come first.
        for &input in &equal {
            let Some(cursor) = cursors.get_mut(input) else { continue };
            cursor.push_chunks(&mut chunks)?;
            if let Some(labels) = cursor.next()? {
                order.push(labels, input);
            }
        }
        let writer = outputs.next()?;
        let written_before = writer.chunk_bytes();
        writer.set_kind(WordKind::of(&labels));
        let read_bytes = merge.run(&mut chunks, writer)?;
        writer.end_series(&labels)?;
        if pace.spend(read_bytes + writer.chunk_bytes() - written_before).is_break() {
            return Err(CompactError::Stopped);
        }
    }
    Ok(())
}

/// The series of one input, in order.
struct Cursor<'a> {
    contents: &'a BlockContents,
    budget: MemoryBudget,
    /// Position among the inputs.
    input: u32,
    series: SeriesReader,
    series_ref: u32,
    chunks: Vec<ChunkMeta>,
}

impl<'a> Cursor<'a> {
    fn new(contents: &'a BlockContents, input: u32) -> Result<Cursor<'a>, CompactError> {
        let budget = MemoryBudget::new("compaction", u64::MAX);
        let refs = all_refs(contents, &budget).map_err(CompactError::Read)?;
        let series = SeriesReader::new(refs);
        Ok(Cursor { contents, budget, input, series, series_ref: 0, chunks: Vec::new() })
    }

    /// Goes to the next series; returns its labels.
    fn next(&mut self) -> Result<Option<Labels>, CompactError> {
        self.next_series().map_err(CompactError::Read)
    }

    fn next_series(&mut self) -> Result<Option<Labels>, QueryError> {
        let contents = self.contents;
        let Some(series_ref) = self.series.next_ref(contents, &self.budget)? else { return Ok(None) };
        self.series_ref = series_ref;
        let entry = self.series.decode_checked(contents, series_ref)?;
        std::mem::swap(&mut self.chunks, &mut entry.chunks);
        self.series.ascending_labels(contents, series_ref).map(Some)
    }

    /// Appends the chunks of the current series that are not wholly deleted, by start.
    fn push_chunks(&mut self, out: &mut Vec<MergeChunk<'a>>) -> Result<(), CompactError> {
        let deleted = self.contents.deleted(self.series_ref);
        self.chunks.retain(|chunk| !is_deleted(deleted, chunk));
        self.chunks.sort_by_key(|chunk| chunk.min_time);
        let wave = [self.chunks.as_slice()];
        let read = self.contents.read(&self.contents.chunk_wave(&wave), &self.budget);
        let bytes = read.map_err(CompactError::Read)?;
        for (idx, chunk) in (0u32..).zip(&self.chunks) {
            out.push(MergeChunk { bytes: bytes.clone(), deleted, meta: *chunk, input: self.input, idx });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
