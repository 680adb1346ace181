//! Merges several blocks of one tenant into one: series by labels, samples by time.
//!
//! Holds: the output answers every query as its inputs did together. Of equal timestamps the block that was
//! written first wins (`precedence`), or last where that is the tenant's policy; deletions of the inputs are applied, the output names its inputs as parents
//! and is complete and durable when `compact` returns.
//! Memory: one series at a time of every input, 4 bytes a series of every input, and what `BlockWriter` needs.
//! Not here: which blocks are merged and when the inputs go (`tsdb`), how chunks are joined (`sweep`).

mod sweep;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::index::SeriesEntry;
use chronolith_format::meta::{BlockDesc, BlockMeta, Ulid};
use chronolith_model::{BlockEncoding, DuplicatePolicy, Labels, QueryError, TimeRange};

use crate::block::BlockFiles;
use crate::select::{has_repeated_chunk, is_deleted};
use crate::{Block, BlockError, BlockSource, BlockWriter, INDEX_FILE, directory};
use sweep::{Piece, Sweep};

/// Why blocks are not merged. The inputs are as they were, and nothing of the output is left unless it is said.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The output cannot be written; with room on the disk it may be tried again.
    #[error("{0}")]
    Write(#[from] BlockError),
    /// An input is damaged; trying again gives the same.
    #[error("{0}")]
    Read(QueryError),
    /// The output was complete when the disk failed, and could not be removed again. It names the inputs as its
    /// parents; it has to go before one of them is merged into another block.
    #[error("{error}; the output {dir} is still to be removed")]
    LeftBehind {
        /// Where the output lies.
        dir: PathBuf,
        /// What failed first.
        error: BlockError,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

/// How fast blocks may be merged.
pub trait Pace {
    /// Called after every series with the bytes that were read and written for it. Waits as long as they ask for;
    /// `Break` ends the merge with [`CompactError::Stopped`].
    fn spend(&self, bytes: u64) -> ControlFlow<()>;
}

/// How blocks are merged.
#[derive(Debug, Clone, Copy)]
pub struct MergeRules {
    /// How the samples of the output are encoded.
    pub encoding: BlockEncoding,
    /// Which of two samples of a series and time stays.
    pub duplicates: DuplicatePolicy,
}

/// Sorts blocks by when their samples were written: of two blocks with the same timestamp of a series, the one
/// with the lower precedence is right. That is the oldest block from the head that went in, so a merged block stands
/// where its first input stood, provided that no overlapping block stood between its inputs.
#[must_use]
pub fn precedence(meta: &BlockMeta) -> (Ulid, Ulid) {
    (meta.compaction.sources.iter().min().copied().unwrap_or(meta.ulid), meta.ulid)
}

/// Merges `inputs` (at least one) into a block below `parent_dir` whose name sorts behind `previous` and all inputs, and
/// opens it. `None` if nothing is left of them. Asks `pace` after every series. Cost: one pass over all bytes; full
/// chunks that overlap nothing are copied, others are decoded and encoded again.
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
) -> Result<Option<Arc<Block>>, CompactError> {
    let mut inputs: Vec<&Block> = inputs.iter().map(Arc::as_ref).collect();
    inputs.sort_by_key(|block| precedence(block.meta()));
    let newest = inputs.iter().map(|block| block.meta().ulid).chain(previous).max();
    let mut writer = BlockWriter::create_after(env, parent_dir, newest)?.with_encoding(rules.encoding);
    let mut cursors = Vec::with_capacity(inputs.len());
    for (place, block) in (0u32..).zip(&inputs) {
        cursors.push(Cursor::new(&block.files, place)?);
    }
    merge_series(&mut cursors, &mut writer, rules, pace)?;
    let dir = parent_dir.join(writer.ulid().to_string());
    let opened = match writer.finish(source_of(&inputs)) {
        Ok(None) => return Ok(None),
        Ok(Some(_)) => Block::open(env, &dir),
        Err(error) => Err(error),
    };
    opened.map(Some).map_err(|error| match directory::remove(env, &dir) {
        Ok(()) => CompactError::Write(error),
        Err(_) => CompactError::LeftBehind { dir, error },
    })
}

/// What the output's `meta.json` says about its inputs.
fn source_of(inputs: &[&Block]) -> BlockSource {
    let metas = || inputs.iter().map(|block| block.meta());
    let start = metas().map(|m| m.min_time).min().unwrap_or_default();
    let end = metas().map(|m| m.max_time).max().unwrap_or_default();
    let highest = metas().map(|m| m.compaction.level).max().unwrap_or_default();
    // A single block is only rewritten without what is deleted.
    let level = if inputs.len() == 1 { highest } else { highest.saturating_add(1) };
    let mut sources: Vec<Ulid> = metas().flat_map(|m| &m.compaction.sources).copied().collect();
    sources.sort_unstable();
    sources.dedup();
    let desc = |m: &BlockMeta| BlockDesc { ulid: m.ulid, min_time: m.min_time, max_time: m.max_time };
    let mut parents: Vec<BlockDesc> = metas().map(desc).collect();
    parents.sort_by_key(|parent| (parent.min_time, parent.ulid));
    BlockSource { range: TimeRange::new(start, end), level, sources, parents }
}

fn merge_series(
    cursors: &mut [Cursor<'_>],
    writer: &mut BlockWriter,
    rules: MergeRules,
    pace: &dyn Pace,
) -> Result<(), CompactError> {
    let mut order = BinaryHeap::with_capacity(cursors.len());
    for (place, cursor) in cursors.iter_mut().enumerate() {
        order.extend(cursor.next()?.map(|labels| Reverse((labels, place))));
    }
    let mut pieces = Vec::new();
    let mut sweep = Sweep::new(rules);
    while let Some(Reverse((labels, first))) = order.pop() {
        pieces.clear();
        let mut place = first;
        loop {
            // Equal labels come in order of the inputs, so the pieces of the block written first come first.
            if let Some(cursor) = cursors.get_mut(place) {
                cursor.put_pieces(&mut pieces);
                order.extend(cursor.next()?.map(|labels| Reverse((labels, place))));
            }
            match order.peek() {
                Some(Reverse((next, same))) if *next == labels => place = *same,
                _ => break,
            }
            order.pop();
        }
        let written_before = writer.chunk_bytes();
        let read_bytes = sweep.run(&mut pieces, writer)?;
        writer.end_series(&labels)?;
        if pace.spend(read_bytes + writer.chunk_bytes() - written_before).is_break() {
            return Err(CompactError::Stopped);
        }
    }
    Ok(())
}

/// The series of one input, in order.
struct Cursor<'a> {
    files: &'a BlockFiles,
    /// Among the inputs.
    place: u32,
    refs: std::vec::IntoIter<u32>,
    series_ref: u32,
    entry: SeriesEntry,
    labels: Option<Labels>,
}

impl<'a> Cursor<'a> {
    fn new(files: &'a BlockFiles, place: u32) -> Result<Cursor<'a>, CompactError> {
        let postings = files.index.all_postings().map_err(|e| CompactError::Read(files.index_error(&e)))?;
        let refs: Vec<u32> = postings.iter().collect();
        let refs = refs.into_iter();
        Ok(Cursor { files, place, refs, series_ref: 0, entry: SeriesEntry::new(), labels: None })
    }

    /// Goes to the next series.
    fn next(&mut self) -> Result<Option<Labels>, CompactError> {
        let Some(series_ref) = self.refs.next() else { return Ok(None) };
        self.series_ref = series_ref;
        let read = self.files.index.series(series_ref, &mut self.entry);
        read.map_err(|e| CompactError::Read(self.files.index_error(&e)))?;
        if has_repeated_chunk(&self.entry.chunks) {
            return Err(self.corrupt("names a chunk twice"));
        }
        let labels = self.entry.labels();
        if self.labels.as_ref().is_some_and(|last| *last >= labels) {
            return Err(self.corrupt("is out of order"));
        }
        self.labels = Some(labels.clone());
        Ok(Some(labels))
    }

    /// Appends the chunks of the current series that are not wholly deleted, by start.
    fn put_pieces(&mut self, out: &mut Vec<Piece<'a>>) {
        let files = self.files;
        let deleted = files.tombstones.get(u64::from(self.series_ref));
        self.entry.chunks.sort_by_key(|chunk| chunk.min_time);
        let kept = self.entry.chunks.iter().filter(|chunk| !is_deleted(deleted, chunk));
        for (place, chunk) in (0u32..).zip(kept) {
            out.push(Piece { files, deleted, chunk: *chunk, block: self.place, place });
        }
    }

    #[cold]
    fn corrupt(&self, what: &str) -> CompactError {
        let path = self.files.dir.join(INDEX_FILE).display().to_string();
        let offset = self.files.index.series_offset(self.series_ref);
        CompactError::Read(QueryError::Corrupt { path, what: format!("series at offset {offset} {what}") })
    }
}

#[cfg(test)]
mod tests;
