//! Publishing of blocks whose files are written: sync, rename, sync of the directory.
//!
//! Invariant: a block gets its name after all its files and directories were synced; one that does not get
//! that far is removed, here or by `open_dir`. Several blocks take each step together: a journaling file
//! system then commits few times for all of them, not eight times for each.
//! Not here: content of the files (`writer`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chronolith_base::Env;
use chronolith_format::block::meta::{self, BlockDesc, BlockMeta, BlockStats, Compaction, Ulid};
use chronolith_model::{TimeRange, TimeUnit};

use super::sink::FileSink;
use crate::BlockError;
use crate::layout::{CHUNKS_DIR, META_FILE};

/// Provenance of a block, for its `meta.json`.
#[derive(Debug, Clone)]
pub struct BlockSource {
    /// Range that the block covers, in its unit; all samples are within it. For a block from the head that is
    /// the aligned window, not the range of its samples.
    pub range: TimeRange,
    /// 1 from the head, one more than the highest parent otherwise.
    pub level: u32,
    /// Blocks from the head that were compacted into it; empty for a block from the head, which names itself.
    pub sources: Vec<Ulid>,
    /// Blocks compacted directly.
    pub parents: Vec<BlockDesc>,
}

impl BlockSource {
    /// A block written from the head, covering `range`.
    #[must_use]
    pub fn head(range: TimeRange) -> BlockSource {
        BlockSource { range, level: 1, sources: Vec::new(), parents: Vec::new() }
    }
}

/// Blocks that share no series although they cover the same time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Split {
    /// Name of the set.
    pub(crate) set: Option<Ulid>,
    /// All blocks that were written together, if there are several.
    pub(crate) blocks: Vec<Ulid>,
}

/// Directory that is removed unless the block was completed.
pub(super) struct CreatingDir {
    pub(super) env: Env,
    pub(super) path: PathBuf,
    pub(super) complete: bool,
}

impl CreatingDir {
    /// Writes a small file, which is synced with the others.
    pub(super) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<FileSink, BlockError> {
        let mut sink = FileSink::create(&self.env, &self.path.join(name))?;
        sink.buffer().extend_from_slice(bytes);
        sink.write_out()?;
        Ok(sink)
    }
}

impl Drop for CreatingDir {
    fn drop(&mut self) {
        if !self.complete && self.env.disk.exists(&self.path) {
            // A directory that cannot be removed here is removed by `open_dir`.
            let _ = self.env.disk.remove_dir_all(&self.path);
        }
    }
}

/// A block whose files are written but neither durable nor named: see [`publish`]. It is removed if dropped.
pub struct WrittenBlock {
    pub(super) dir: CreatingDir,
    pub(super) parent_dir: PathBuf,
    pub(super) ulid: Ulid,
    pub(super) stats: BlockStats,
    pub(super) unit: TimeUnit,
    /// All files that are not durable yet: at most four.
    pub(super) files: Vec<FileSink>,
}

/// A block with its `meta.json`.
struct Complete {
    block: WrittenBlock,
    meta: BlockMeta,
}

impl WrittenBlock {
    /// Name that the block will have.
    #[must_use]
    pub fn ulid(&self) -> Ulid {
        self.ulid
    }

    fn complete(mut self, source: BlockSource, split: Split) -> Result<Complete, BlockError> {
        let meta = self.meta(source, split);
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        self.files.push(self.dir.write_file(META_FILE, &bytes)?);
        Ok(Complete { block: self, meta })
    }

    fn meta(&self, source: BlockSource, split: Split) -> BlockMeta {
        let sources = if source.sources.is_empty() { vec![self.ulid] } else { source.sources };
        let (level, parents) = (source.level, source.parents);
        let Split { set: split_set, blocks: split_blocks } = split;
        let mut meta = BlockMeta {
            ulid: self.ulid,
            min_time: 0,
            max_time: 0,
            stats: self.stats.clone(),
            compaction: Compaction {
                level,
                sources,
                parents,
                split_set,
                split_blocks,
                ..Compaction::default()
            },
            version: meta::VERSION,
            chronolith: None,
            unknown: Default::default(),
        };
        meta.set_range(self.unit, source.range);
        meta
    }
}

impl Complete {
    fn sync_files(mut self) -> Result<Complete, BlockError> {
        for mut file in self.block.files.drain(..) {
            file.sync()?;
        }
        Ok(self)
    }

    fn sync_dirs(self) -> Result<Complete, BlockError> {
        let disk = &self.block.dir.env.disk;
        let chunks_dir = self.block.dir.path.join(CHUNKS_DIR);
        disk.sync_dir(&chunks_dir).map_err(BlockError::io(&chunks_dir))?;
        disk.sync_dir(&self.block.dir.path).map_err(BlockError::io(&self.block.dir.path))?;
        Ok(self)
    }

    fn rename(mut self) -> Result<Named, BlockError> {
        let WrittenBlock { dir, parent_dir, ulid, .. } = &mut self.block;
        let path = parent_dir.join(ulid.to_string());
        dir.env.disk.rename(&dir.path, &path).map_err(BlockError::io(&path))?;
        dir.complete = true;
        Ok(Named { env: dir.env.clone(), parent_dir: parent_dir.clone(), meta: self.meta })
    }
}

/// A block whose name is not durable yet.
struct Named {
    env: Env,
    parent_dir: PathBuf,
    meta: BlockMeta,
}

fn sync_parent(env: &Env, dir: &Path) -> Result<(), BlockError> {
    env.disk.sync_dir(dir).map_err(BlockError::io(dir))
}

/// Makes blocks durable under their names, each with its source; one that fails does not stop the others.
/// Cost: their files should be few and small, as all of them stay open until the first step is done.
///
/// # Errors
/// [`BlockError::Io`] per block; nothing of it is left then, unless the last sync failed: it may exist under
/// its name and is complete.
#[must_use]
pub fn publish(blocks: Vec<(WrittenBlock, BlockSource)>) -> Vec<Result<BlockMeta, BlockError>> {
    // Collected after each step: all blocks take it before the next one begins.
    let completed: Vec<_> =
        blocks.into_iter().map(|(block, source)| block.complete(source, Split::default())).collect();
    let synced: Vec<_> = completed.into_iter().map(|block| block?.sync_files()).collect();
    let synced: Vec<_> = synced.into_iter().map(|block| block?.sync_dirs()).collect();
    let named: Vec<_> = synced.into_iter().map(|block| block?.rename()).collect();
    named
        .into_iter()
        .map(|named| named.and_then(|n| sync_parent(&n.env, &n.parent_dir).map(|()| n.meta)))
        .collect()
}

/// Makes the blocks that one compaction wrote durable under their names. None has one before all are durable.
///
/// # Errors
/// The first [`BlockError::Io`]; some of them may have their names then.
pub(crate) fn publish_set(
    blocks: Vec<WrittenBlock>,
    source: &BlockSource,
    split: &Split,
) -> Result<Vec<BlockMeta>, BlockError> {
    let completed = blocks.into_iter().map(|block| block.complete(source.clone(), split.clone()));
    let completed = completed.collect::<Result<Vec<_>, _>>()?;
    let synced = completed.into_iter().map(Complete::sync_files).collect::<Result<Vec<_>, _>>()?;
    let synced = synced.into_iter().map(Complete::sync_dirs).collect::<Result<Vec<_>, _>>()?;
    let named = synced.into_iter().map(Complete::rename).collect::<Result<Vec<_>, _>>()?;
    for dir in named.iter().map(|named| &named.parent_dir).collect::<BTreeSet<_>>() {
        if let Some(named) = named.first() {
            sync_parent(&named.env, dir)?;
        }
    }
    Ok(named.into_iter().map(|named| named.meta).collect())
}
