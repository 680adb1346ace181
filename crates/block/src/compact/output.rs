//! Blocks that one compaction writes: the next one begins when the current one has its size.
//!
//! Invariant: every series is whole in one block, and series ascend from block to block, so that no two
//! blocks share one. None has a name before all are complete on disk; each names all of them (`splitBlocks`
//! of `meta.json`), so that a start recognizes a set whose naming was interrupted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::meta::{BlockMeta, Ulid};
use chronolith_model::TimeUnit;

use super::{CompactError, MergeRules};
use crate::writer::WrittenBlock;
use crate::writer::written::{Split, publish_set};
use crate::{Block, BlockError, BlockSource, BlockWriter, block_dir, directory};

pub(super) struct Outputs<'a> {
    env: &'a Env,
    parent_dir: &'a Path,
    rules: MergeRules,
    unit: TimeUnit,
    source: BlockSource,
    /// The set that all inputs belong to.
    set: Option<Ulid>,
    written: Vec<WrittenBlock>,
    writer: BlockWriter,
}

impl<'a> Outputs<'a> {
    pub(super) fn new(
        env: &'a Env,
        parent_dir: &'a Path,
        previous: Option<Ulid>,
        source: BlockSource,
        set: Option<Ulid>,
        unit: TimeUnit,
        rules: MergeRules,
    ) -> Result<Outputs<'a>, BlockError> {
        let writer = begin(env, parent_dir, previous, rules)?.with_unit(unit);
        Ok(Outputs { env, parent_dir, rules, unit, source, set, written: Vec::new(), writer })
    }

    /// Returns the writer of the block that the next series goes to.
    pub(super) fn next(&mut self) -> Result<&mut BlockWriter, BlockError> {
        if self.writer.size_bytes() >= self.rules.output_bytes_max {
            let next = begin(self.env, self.parent_dir, Some(self.writer.ulid()), self.rules)?;
            let full = std::mem::replace(&mut self.writer, next.with_unit(self.unit));
            self.written.extend(full.write(self.source.range)?);
        }
        Ok(&mut self.writer)
    }

    /// Names and opens all blocks; after an error none of them is left unless the error lists it.
    pub(super) fn finish(self) -> Result<Vec<Arc<Block>>, CompactError> {
        let Outputs { env, parent_dir, source, set, mut written, writer, .. } = self;
        written.extend(writer.write(source.range)?);
        let ulids: Vec<Ulid> = written.iter().map(WrittenBlock::ulid).collect();
        let split = match ulids.as_slice() {
            [] | [_] => Split { set, blocks: Vec::new() },
            [first, ..] => Split { set: set.or(Some(*first)), blocks: ulids.clone() },
        };
        let open = |meta: BlockMeta| Block::open(env, &block_dir(parent_dir, meta.ulid));
        let named = publish_set(written, &source, &split);
        let opened = named.and_then(|metas| metas.into_iter().map(open).collect());
        opened.map_err(|error| {
            // A block whose last sync failed may have its name, too.
            let dirs = ulids.iter().map(|&ulid| block_dir(parent_dir, ulid));
            let left: Vec<PathBuf> = dirs.filter(|dir| directory::remove(env, dir).is_err()).collect();
            if left.is_empty() {
                CompactError::Write(error)
            } else {
                CompactError::LeftBehind { dirs: left, error }
            }
        })
    }
}

fn begin(
    env: &Env,
    parent_dir: &Path,
    previous: Option<Ulid>,
    rules: MergeRules,
) -> Result<BlockWriter, BlockError> {
    Ok(BlockWriter::create_after(env, parent_dir, previous)?.with_encoding(rules.encoding))
}
