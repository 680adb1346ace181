//! An open block.
//!
//! Invariants: chunks, series and postings are verified when read, not when opened; a reader that was
//! returned keeps the files mapped, so a block may be removed while queries run on it.

use std::path::Path;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_format::block::catalogue::{BlockRecord, ImmutableBytes};
use chronolith_format::block::meta::BlockMeta;
use chronolith_model::query::{
    LabelValueScan, Opened as OpenedRead, Read, ReadEstimate, SoleLabelValues, Source, Wanted,
};
use chronolith_model::{Labels, Matcher, QueryError, ReadContext, Selector, TimeRange};

use crate::BlockError;
use crate::contents::BlockContents;
use crate::label_search::BlockValues;
use crate::layout::{CHUNKS_DIR, INDEX_FILE, META_FILE};
use crate::open::{OpenOptions, Opened, check_name, open_mapped, open_ranged, open_remote};
use crate::postings::PostingsPlan;
use crate::record::record_of;
use crate::selection::Selection;
use crate::source::{BlockFile, ByteSource, RangeBytes};
use crate::{label_queries, select};

/// A block that can be queried.
pub struct Block {
    contents: Arc<BlockContents>,
    /// Bytes of `meta.json` and tombstones.
    mutable_bytes: u64,
}

impl Block {
    /// Opens the block in directory `dir`, its files mapped. Cost: one pass over symbols and postings offset
    /// table of the index; chunk segments are touched at their first page.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open(env: &Env, dir: &Path) -> Result<Arc<Block>, BlockError> {
        Block::open_with(env, dir, &OpenOptions::default())
    }

    pub(crate) fn open_with(env: &Env, dir: &Path, options: &OpenOptions) -> Result<Arc<Block>, BlockError> {
        open_mapped(env, dir, options).map(Block::new)
    }

    /// Opens a block whose index and chunks are read from `source`, and whose small files (`meta.json`,
    /// tombstones) are in `dir`. Cost: two waves, and memory for symbols and postings offset table.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open_source(env: &Env, dir: &Path, source: Box<dyn ByteSource>) -> Result<Arc<Block>, BlockError> {
        open_ranged(env, dir, source).map(Block::new)
    }

    /// Opens a block whose files are all read from `source`, except for those that are given: `meta`, and
    /// the tombstones as they are stored, `None` without. Cost: two waves, and memory for symbols and
    /// postings offset table.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn open_remote(
        meta: BlockMeta,
        tombstones: Option<&[u8]>,
        source: Box<dyn ByteSource>,
    ) -> Result<Arc<Block>, BlockError> {
        open_remote(meta, tombstones, source).map(Block::new)
    }

    fn new(opened: Opened) -> Arc<Block> {
        let Opened { contents, mutable_bytes } = opened;
        Arc::new(Block { contents: Arc::new(contents), mutable_bytes })
    }

    pub(crate) fn contents(&self) -> &Arc<BlockContents> {
        &self.contents
    }

    /// Content of `meta.json`.
    #[must_use]
    pub fn meta(&self) -> &BlockMeta {
        self.contents.meta()
    }

    /// Directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.contents.dir()
    }

    /// Time that it covers.
    #[must_use]
    pub fn range(&self) -> TimeRange {
        self.contents.range()
    }

    /// Bytes on disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let ImmutableBytes { index, chunks } = self.immutable_bytes();
        self.mutable_bytes + index + chunks
    }

    /// Bytes on disk of files that never change.
    #[must_use]
    pub fn immutable_bytes(&self) -> ImmutableBytes {
        let files = self.contents.files();
        let index = files.len(BlockFile::Index).unwrap_or(0);
        ImmutableBytes { index, chunks: files.chunks_bytes() }
    }

    /// Catalogue record of the block.
    #[must_use]
    pub fn record(&self) -> BlockRecord {
        let bytes = Some(self.immutable_bytes());
        record_of(self.meta(), self.size_bytes(), bytes, self.tombstone_count() as u64)
    }

    /// Compares the sizes of index and chunk segments with the record.
    ///
    /// # Errors
    /// [`BlockError::Mismatch`].
    pub fn compare_sizes(&self, record: &BlockRecord) -> Result<(), BlockError> {
        let found = self.immutable_bytes();
        let Some(expected) = record.immutable_bytes else { return Ok(()) };
        let both = [(INDEX_FILE, expected.index, found.index), (CHUNKS_DIR, expected.chunks, found.chunks)];
        match both.into_iter().find(|(_, expected, found)| expected != found) {
            None => Ok(()),
            Some((name, expected, found)) => {
                let (expected, found) = (expected as i64, found as i64);
                Err(BlockError::Mismatch { path: self.dir().join(name), what: "bytes", expected, found })
            }
        }
    }

    /// Compares the name and time range in `meta.json`, which has no checksum, with the record: a query would
    /// not look for samples outside of the range.
    ///
    /// # Errors
    /// [`BlockError::Mismatch`], [`BlockError::OtherBlock`].
    pub fn compare_meta(&self, record: &BlockRecord) -> Result<(), BlockError> {
        let meta = self.meta();
        check_name(self.dir(), record.ulid, meta)?;
        let range = meta.range();
        let both = [("minTime", record.min_time, range.start), ("maxTime", record.max_time, range.end)];
        match both.into_iter().find(|(_, expected, found)| expected != found) {
            None => Ok(()),
            Some((what, expected, found)) => {
                let path = self.dir().join(META_FILE);
                Err(BlockError::Mismatch { path, what, expected, found })
            }
        }
    }

    /// Returns true if a series of the block has the label.
    #[must_use]
    pub fn has_label_name(&self, name: &str) -> bool {
        self.contents.header().label_value_count(name) > 0
    }

    /// Memory of the index header.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.contents.header().heap_bytes()
    }

    /// Memory of the regex cache.
    #[must_use]
    pub fn regex_cache_bytes(&self) -> usize {
        self.contents.regex_cache().heap_bytes()
    }

    /// Returns true if a part of its roll-ups was found that cannot be read.
    #[must_use]
    pub fn has_damaged_rollups(&self) -> bool {
        self.contents.rollups().is_some_and(|rollups| rollups.is_damaged())
    }

    /// Bytes of its roll-up files.
    #[must_use]
    pub fn rollup_bytes(&self) -> u64 {
        self.contents.rollups().map_or(0, |rollups| rollups.size_bytes())
    }

    /// A verification of its roll-ups that has read nothing yet.
    #[must_use]
    pub fn rollup_verification(&self) -> crate::RollupVerification {
        self.contents.rollup_verification()
    }

    /// Reads and checks its roll-ups; returns at most 1000 damages. Cost: one pass over their bytes.
    #[must_use]
    pub fn verify_rollups(&self) -> Vec<crate::Damage> {
        self.contents.rollup_verification().finish()
    }

    /// Deleted intervals of all its series.
    #[must_use]
    pub fn tombstone_count(&self) -> usize {
        self.contents.tombstones().interval_count()
    }

    /// Returns true if a query or a verification reads the block, or holds its files open.
    pub(crate) fn has_readers(&self) -> bool {
        Arc::strong_count(&self.contents) > 1 || self.contents.has_readers()
    }

    /// Names the postings lists that a selection by `matchers` needs; `None` if no series fits. The first
    /// step of a selection whose driver reads the waves.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`].
    pub fn plan_postings<'m>(&self, matchers: &'m [Matcher]) -> Result<Option<PostingsPlan<'m>>, QueryError> {
        PostingsPlan::new(&self.contents, matchers)
    }

    /// The selection that follows from the `bytes` of the wave of `plan`, with chunks in `range`.
    ///
    /// # Errors
    /// [`QueryError::Corrupt`], [`QueryError::Memory`].
    pub fn select_planned(
        &self,
        plan: &PostingsPlan<'_>,
        bytes: RangeBytes,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Selection, QueryError> {
        let refs = plan.refs(&self.contents, bytes)?;
        Selection::new(&self.contents, refs, range, ctx)
    }

    /// About how many series fit, and how many samples they have in the range: as many as the average series,
    /// evenly over the block. Cost: postings.
    ///
    /// # Errors
    /// As [`Queryable::select`].
    pub fn estimate_read(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<ReadEstimate, QueryError> {
        select::estimate(&self.contents, selector, ctx)
    }
}

impl Block {
    /// Returns a search in label values; `None` if the block does not overlap the range.
    #[must_use]
    pub fn sole_label_values(&self, search: &SoleLabelValues<'_>, ctx: &ReadContext) -> Option<BlockValues> {
        BlockValues::new(&self.contents, search, ctx)
    }
}

impl Block {
    /// Calls `visit` with the labels of each series until it returns `false`. Cost: the index.
    ///
    /// # Errors
    /// [`QueryError`] if the index is damaged, or from the disk.
    pub fn for_each_labels(&self, visit: &mut dyn FnMut(&Labels) -> bool) -> Result<(), QueryError> {
        label_queries::for_each_labels(&self.contents, visit)
    }
}

impl Source for Block {
    /// Lists are read here; the labels of series and their samples when they are pulled.
    fn open(&self, read: Read, ctx: &ReadContext) -> Result<OpenedRead, QueryError> {
        let Read { request, wanted } = read;
        let selector = request.selector();
        let contents = &self.contents;
        Ok(match wanted {
            Wanted::Series => OpenedRead::Series(request.filter(select::select(contents, &selector, ctx)?)),
            Wanted::Estimate => OpenedRead::Estimate(Some(self.estimate_read(&selector, ctx)?)),
            Wanted::LabelNames => {
                OpenedRead::listed(label_queries::label_names(contents, &selector, request.limit, ctx)?)
            }
            Wanted::LabelValues { name } => OpenedRead::listed(label_queries::label_values(
                contents,
                &name,
                &selector,
                request.limit,
                ctx,
            )?),
            Wanted::EachLabelValue { name, prefix } => {
                let contents = contents.clone();
                let ctx = ctx.clone();
                let range = request.range;
                OpenedRead::Visit(Box::new(move |visit| {
                    let scan = LabelValueScan { name: &name, prefix: &prefix, range };
                    label_queries::scan_label_values(&contents, &scan, &ctx, visit)
                }))
            }
            Wanted::SoleLabelValues { .. } => OpenedRead::Cursor(None),
        })
    }
}
