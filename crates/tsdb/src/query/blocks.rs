//! Blocks that a query of one tenant reads: local ones, and those that only the bucket has.
//!
//! Invariants: the local list is read before the bucket's, so a block whose local copy is being removed
//! is seen at least once; a bucket block is left out if local blocks have its samples. A block that cannot be
//! read fails the query, but for bucket blocks and their list in one that allows a partial result: they are
//! named in its warnings.
//! Not here: which blocks there are (`crate::blocks`, `bucket::BlockCatalog`), the merge of series
//! (`merged`).

use std::collections::BTreeSet;
use std::sync::Arc;

use chronolith_block::Block;
use chronolith_bucket::{BlockCatalog, BucketBlock, check_first_batches};
use chronolith_format::block::meta::Ulid;
use chronolith_model::query::{LabelValueScan, PendingList, Read, SelectRequest, Source, Wanted};
use chronolith_model::{
    KIND_LABEL, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches, StoreId, TimeRange,
};

use super::failure::{FailurePolicy, source_error};
use super::kinds;
use super::merged::{merged, truncated};
use crate::blocks::BlockStore;
use crate::bucket::folder_source::FolderSource;

/// A block on the local disk or in the bucket.
pub(super) enum QueryBlock {
    Local(Arc<Block>),
    Bucket(Arc<BucketBlock>),
}

impl QueryBlock {
    /// Order in which samples were written, as [`chronolith_block::precedence`].
    fn precedence(&self) -> (Ulid, Ulid) {
        match self {
            QueryBlock::Local(block) => chronolith_block::precedence(block.meta()),
            QueryBlock::Bucket(block) => block.precedence(),
        }
    }

    /// Returns false if no series has the label; true if one has it, or that is not known yet.
    pub(super) fn may_have_label_name(&self, name: &str) -> bool {
        match self {
            QueryBlock::Local(block) => block.has_label_name(name),
            QueryBlock::Bucket(block) => block.may_have_label_name(name),
        }
    }

    /// Selects the series of `matchers` for `request`. A bucket block returns at once and is fetched in the
    /// background, the windows of the request's roll-ups instead of samples where it has them.
    pub(super) fn select(
        &self,
        matchers: &[Matcher],
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        match self {
            QueryBlock::Local(block) => block.select(&Selector { matchers, range: request.range }, ctx),
            QueryBlock::Bucket(block) => Ok(select_in_bucket(block, matchers, request, ctx)),
        }
    }
}

/// Checks that the first batches of the bucket blocks among `blocks` can be in memory.
///
/// # Errors
/// As [`check_first_batches`].
pub(super) fn check_memory(
    blocks: &[QueryBlock],
    selector: &Selector<'_>,
    ctx: &ReadContext,
) -> Result<(), QueryError> {
    let in_bucket = |block: &QueryBlock| match block {
        QueryBlock::Local(_) => None,
        QueryBlock::Bucket(block) => Some(block.clone()),
    };
    let in_bucket: Vec<Arc<BucketBlock>> = blocks.iter().filter_map(in_bucket).collect();
    check_first_batches(&in_bucket, selector, ctx)
}

/// Selects the series of `matchers` in a bucket block, up to its failure if `request` allows a partial
/// result.
pub(super) fn select_in_bucket(
    block: &Arc<BucketBlock>,
    matchers: &[Matcher],
    request: &SelectRequest,
    ctx: &ReadContext,
) -> Box<dyn SeriesBatches> {
    let selector = Selector { matchers, range: request.range };
    let batches = block.select_rolled_up(&selector, &request.rollups, ctx);
    if request.allows_partial { failure_of(block).batches(batches, ctx) } else { batches }
}

/// Handling of errors of a block in a query that allows a partial result.
fn failure_of(block: &BucketBlock) -> FailurePolicy {
    FailurePolicy::new(&block.description(), false)
}

/// A read of label names or values, owned by the threads that run it.
pub(super) struct LabelQuery {
    pub(super) read: Read,
    /// Leaves out text series, which PromQL does not see.
    pub(super) is_without_texts: bool,
    pub(super) ctx: ReadContext,
}

impl LabelQuery {
    /// A query of PromQL, which does not see text series.
    pub(super) fn without_texts(read: Read, ctx: &ReadContext) -> LabelQuery {
        LabelQuery { read, is_without_texts: true, ctx: ctx.clone() }
    }

    /// A query over all series.
    pub(super) fn of_all(read: Read, ctx: &ReadContext) -> LabelQuery {
        LabelQuery { read, is_without_texts: false, ctx: ctx.clone() }
    }

    /// Starts the query on the blocks of `source` alone.
    pub(super) fn start_in(self, source: &FolderSource) -> Result<PendingList, QueryError> {
        self.ctx.begin_wait()?;
        let blocks = source.blocks_in(self.read.request.range, &self.ctx)?;
        Ok(Arc::new(self).start_in_bucket(&source.catalog, &blocks))
    }

    fn limit(&self) -> usize {
        self.read.request.limit
    }

    /// The read for a source, in which series of texts may be.
    fn read_in(&self, may_be_typed: bool) -> Read {
        let mut read = self.read.clone();
        if self.is_without_texts && may_be_typed {
            read.request.matchers = kinds::without_texts(&read.request.matchers, true).into_owned();
        }
        read
    }

    fn run_local(&self, block: &Block) -> Result<Vec<String>, QueryError> {
        let read = self.read_in(block.has_label_name(KIND_LABEL));
        // The index has deleted series until the block is compacted. Prometheus lists their labels as long.
        if block.tombstone_count() > 0 {
            return self.run_on_series(&read, block);
        }
        block.open(read, &self.ctx)?.into_list()()
    }

    /// Runs the query on the series of a block that are not deleted. Cost: all series that the matchers
    /// select, whose labels are read.
    fn run_on_series(&self, read: &Read, block: &Block) -> Result<Vec<String>, QueryError> {
        let mut batches = block.select(&read.request.selector(), &self.ctx)?;
        let mut found = BTreeSet::new();
        let mut batch = Vec::new();
        let mut has_more = true;
        while has_more {
            self.ctx.check()?;
            has_more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                if let Wanted::LabelValues { name } = &read.wanted {
                    let value = series.labels.get(name).filter(|value| !found.contains(*value));
                    found.extend(value.map(str::to_owned));
                } else {
                    let new = series.labels.iter().map(|(name, _)| name);
                    let new: Vec<String> =
                        new.filter(|name| !found.contains(*name)).map(str::to_owned).collect();
                    found.extend(new);
                }
            }
        }
        Ok(truncated(found.into_iter().collect(), self.limit()))
    }

    /// Starts the query on `blocks`, several at the same time. The list is the union of the results,
    /// sorted, at most as many entries as the read wants.
    fn start_in_bucket(self: &Arc<Self>, bucket: &BlockCatalog, blocks: &[Arc<BucketBlock>]) -> PendingList {
        if blocks.is_empty() {
            return Box::new(|| Ok(Vec::new()));
        }
        let limit = self.limit();
        let ctx = self.ctx.clone();
        let allows_partial = self.read.request.allows_partial;
        let recover = move |block: &BucketBlock, error| match allows_partial {
            true => failure_of(block).or_warn(Err(source_error(error, &ctx)), Vec::new, &ctx),
            false => Err(error),
        };
        let query = self.clone();
        let run = move |block: &BucketBlock, reader: &dyn Queryable| {
            let read = query.read_in(block.may_have_label_name(KIND_LABEL));
            reader.open(read, &query.ctx)?.into_list()()
        };
        let started = bucket.start_on_opened(blocks, &self.ctx, run, recover);
        Box::new(move || Ok(truncated(started.wait()?.into_iter().fold(Vec::new(), merged), limit)))
    }
}

/// Blocks of one tenant.
#[derive(Clone)]
pub(super) struct QueryBlocks {
    tenant: StoreId,
    /// Blocks of all tenants: this one may get its first block while a query runs.
    local: Arc<BlockStore>,
    bucket: Option<FolderSource>,
}

impl QueryBlocks {
    pub(super) fn new(store: &StoreId, local: &Arc<BlockStore>, bucket: Option<FolderSource>) -> QueryBlocks {
        QueryBlocks { tenant: store.clone(), local: local.clone(), bucket }
    }

    /// Local blocks of all tenants.
    pub(super) fn local(&self) -> &Arc<BlockStore> {
        &self.local
    }

    /// Returns the blocks that overlap the range of `request`, earlier written samples first. Local blocks
    /// stay open as long as they are referenced.
    ///
    /// # Errors
    /// As the local blocks, and as [`BlockCatalog::blocks_in`].
    pub(super) fn in_range(
        &self,
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Vec<QueryBlock>, QueryError> {
        let local = self.local.open_in_range(&self.tenant, request.range)?;
        let in_bucket = self.only_in_bucket(&local, request, ctx)?;
        let is_sorted = in_bucket.is_empty();
        let in_bucket = in_bucket.into_iter().map(QueryBlock::Bucket);
        let mut blocks: Vec<_> = local.into_iter().map(QueryBlock::Local).chain(in_bucket).collect();
        if !is_sorted {
            blocks.sort_by_key(QueryBlock::precedence);
        }
        Ok(blocks)
    }

    /// Returns true if a local block overlaps `range`, or one in the bucket does or may.
    pub(super) fn any_in_range(&self, range: TimeRange) -> bool {
        self.local.any_in_range(&self.tenant, range) || self.may_be_in_bucket(range)
    }

    /// Returns true if a block in the bucket overlaps `range`, or its blocks are not known yet. Blocks that
    /// are local as well count.
    pub(super) fn may_be_in_bucket(&self, range: TimeRange) -> bool {
        let Some(bucket) = &self.bucket else { return false };
        bucket.catalog.known_overlap(&bucket.folder, range).unwrap_or(true)
    }

    /// Returns the blocks in the bucket that overlap the range of `request` and whose samples are in no block
    /// of `local`.
    fn only_in_bucket(
        &self,
        local: &[Arc<Block>],
        request: &SelectRequest,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        let Some(bucket) = &self.bucket else { return Ok(Vec::new()) };
        let mut blocks = match bucket.blocks_in(request.range, ctx) {
            Err(error) if request.allows_partial => {
                let list = format!("the list of blocks in {}", bucket.catalog.bucket_url());
                FailurePolicy::new(&list, false).or_warn(Err(error), Vec::new, ctx)?
            }
            listed => listed?,
        };
        let has_samples_of = |block: &Arc<Block>, other: &BucketBlock| {
            block.meta().ulid == other.ulid() || block.meta().replaces(other.provenance())
        };
        blocks.retain(|block| !local.iter().any(|of_local| has_samples_of(of_local, block)));
        if !blocks.is_empty() {
            ctx.begin_wait()?;
        }
        Ok(blocks)
    }

    /// Visits the values of a label in each local block. Values of a block may come again if it is replaced
    /// meanwhile.
    ///
    /// # Errors
    /// As the blocks.
    pub(super) fn scan_local(
        &self,
        scan: &LabelValueScan<'_>,
        ctx: &ReadContext,
        visit: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), QueryError> {
        self.local.fold_in_range(
            &self.tenant,
            scan.range,
            || (),
            |(), block| {
                if !block.has_label_name(KIND_LABEL) && block.tombstone_count() == 0 {
                    return block.scan_label_values(scan, ctx, visit);
                }
                let selector = Selector { matchers: &[], range: scan.range };
                let read = Read::of(&selector, Wanted::LabelValues { name: scan.name.into() });
                let values = LabelQuery::without_texts(read, ctx).run_local(&block)?;
                scan.visit_listed(&values, &ctx.budget, visit)
            },
        )
    }

    /// Starts a label query on all blocks. The list is the union of `from_head` and the results, sorted,
    /// at most as many entries as the read wants. Local blocks are read here, while others are fetched.
    ///
    /// # Errors
    /// As [`QueryBlocks::in_range`], and errors of the local blocks.
    pub(super) fn start_label_query(
        &self,
        query: LabelQuery,
        from_head: Vec<String>,
    ) -> Result<PendingList, QueryError> {
        let range = query.read.request.range;
        let Some(bucket) = &self.bucket else {
            let fresh = || from_head.clone();
            let all = self.local.fold_in_range(&self.tenant, range, fresh, |all, block| {
                *all = merged(std::mem::take(all), query.run_local(&block)?);
                Ok(())
            })?;
            let limit = query.limit();
            return Ok(Box::new(move || Ok(truncated(all, limit))));
        };
        let local = self.local.open_in_range(&self.tenant, range)?;
        let in_bucket = self.only_in_bucket(&local, &query.read.request, &query.ctx)?;
        let query = Arc::new(query);
        let fetched = query.start_in_bucket(&bucket.catalog, &in_bucket);
        let mut all = from_head;
        for block in &local {
            all = merged(all, query.run_local(block)?);
        }
        let limit = query.limit();
        Ok(Box::new(move || Ok(truncated(merged(all, fetched()?), limit))))
    }
}
