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
use chronolith_bucket::{BlockCatalog, BucketBlock, Folder, check_first_batches};
use chronolith_format::block::meta::Ulid;
use chronolith_model::query::LabelValueScan;
use chronolith_model::rollup::RollupSpan;
use chronolith_model::{
    DuplicatePolicy, KIND_LABEL, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches,
    StoreId, TimeRange,
};

use super::failure::{FailurePolicy, source_error};
use super::kinds;
use super::merged::merged;
use crate::blocks::BlockStore;

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

    /// Selects series. A bucket block returns at once and is fetched in the background, the windows of
    /// `rollups` instead of samples where it has them.
    pub(super) fn select(
        &self,
        selector: &Selector<'_>,
        rollups: &[RollupSpan],
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        match self {
            QueryBlock::Local(block) => block.select(selector, ctx),
            QueryBlock::Bucket(block) => Ok(select_in_bucket(block, selector, rollups, ctx)),
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

/// Selects series of a bucket block, up to its failure if the query allows a partial result.
pub(super) fn select_in_bucket(
    block: &Arc<BucketBlock>,
    selector: &Selector<'_>,
    rollups: &[RollupSpan],
    ctx: &ReadContext,
) -> Box<dyn SeriesBatches> {
    let batches = block.select_rolled_up(selector, rollups, ctx);
    if ctx.allows_partial() { failure_of(block).batches(batches, ctx) } else { batches }
}

/// Handling of errors of a block in a query that allows a partial result.
fn failure_of(block: &BucketBlock) -> FailurePolicy {
    FailurePolicy::new(&block.description(), false)
}

/// List of label names, or of the values of one label.
pub(super) enum LabelList {
    Names,
    Values(String),
}

/// A label query, owned by the threads that run it.
pub(super) struct LabelQuery {
    pub(super) list: LabelList,
    pub(super) matchers: Vec<Matcher>,
    pub(super) range: TimeRange,
    /// 0 = all.
    pub(super) limit: usize,
    /// Leaves out text series, which PromQL does not see.
    pub(super) is_without_texts: bool,
    pub(super) ctx: ReadContext,
}

impl LabelQuery {
    /// A query of PromQL, which does not see text series.
    pub(super) fn without_texts(
        list: LabelList,
        matchers: &[Matcher],
        range: TimeRange,
        limit: usize,
        ctx: &ReadContext,
    ) -> LabelQuery {
        LabelQuery { is_without_texts: true, ..LabelQuery::of_all(list, matchers, range, limit, ctx) }
    }

    /// A query over all series.
    pub(super) fn of_all(
        list: LabelList,
        matchers: &[Matcher],
        range: TimeRange,
        limit: usize,
        ctx: &ReadContext,
    ) -> LabelQuery {
        let matchers = matchers.to_vec();
        LabelQuery { list, matchers, range, limit, is_without_texts: false, ctx: ctx.clone() }
    }

    /// Runs the query on one block. `may_be_typed` is false if none of its series has a kind.
    fn run(&self, block: &dyn Queryable, may_be_typed: bool) -> Result<Vec<String>, QueryError> {
        let matchers = kinds::without_texts(&self.matchers, self.is_without_texts && may_be_typed);
        let selector = Selector { matchers: &matchers, range: self.range };
        match &self.list {
            LabelList::Names => block.label_names(&selector, self.limit, &self.ctx),
            LabelList::Values(name) => block.label_values(name, &selector, self.limit, &self.ctx),
        }
    }

    fn run_local(&self, block: &Block) -> Result<Vec<String>, QueryError> {
        // The index has deleted series until the block is compacted. Prometheus lists their labels as long.
        if block.tombstone_count() > 0 {
            return self.run_on_series(block);
        }
        self.run(block, block.has_label_name(KIND_LABEL))
    }

    /// Runs the query on the series of a block that are not deleted. Cost: all series that the matchers
    /// select, whose labels are read.
    fn run_on_series(&self, block: &Block) -> Result<Vec<String>, QueryError> {
        let hides_texts = self.is_without_texts && block.has_label_name(KIND_LABEL);
        let matchers = kinds::without_texts(&self.matchers, hides_texts);
        let selector = Selector { matchers: &matchers, range: self.range };
        let mut batches = block.select(&selector, &self.ctx)?;
        let mut found = BTreeSet::new();
        let mut batch = Vec::new();
        let mut has_more = true;
        while has_more {
            self.ctx.check()?;
            has_more = batches.next_batch(&mut batch)?;
            for series in batch.drain(..) {
                match &self.list {
                    LabelList::Names => {
                        let new = series.labels.iter().map(|(name, _)| name);
                        let new: Vec<String> =
                            new.filter(|name| !found.contains(*name)).map(str::to_owned).collect();
                        found.extend(new);
                    }
                    LabelList::Values(name) => {
                        let value = series.labels.get(name).filter(|value| !found.contains(*value));
                        found.extend(value.map(str::to_owned));
                    }
                }
            }
        }
        Ok(truncated(found.into_iter().collect(), self.limit))
    }

    /// Runs the query on `blocks`, several at the same time. Returns the union of `all` and the results,
    /// sorted, at most `limit` entries.
    ///
    /// # Errors
    /// As [`BlockCatalog::for_each_opened`].
    pub(super) fn run_in_bucket(
        self,
        bucket: &BlockCatalog,
        blocks: &[Arc<BucketBlock>],
        mut all: Vec<String>,
    ) -> Result<Vec<String>, QueryError> {
        let limit = self.limit;
        if !blocks.is_empty() {
            let ctx = self.ctx.clone();
            let query = Arc::new(self);
            let run = move |block: &BucketBlock, reader: &dyn Queryable| {
                query.run(reader, block.may_have_label_name(KIND_LABEL))
            };
            let recover = |block: &BucketBlock, error| match ctx.allows_partial() {
                true => failure_of(block).or_warn(Err(source_error(error, &ctx)), Vec::new, &ctx),
                false => Err(error),
            };
            let results = bucket.for_each_opened(blocks, &ctx, run, recover)?;
            all = results.into_iter().fold(all, merged);
        }
        Ok(truncated(all, limit))
    }
}

/// Returns the first `limit` entries of a list; 0 = all.
fn truncated(mut list: Vec<String>, limit: usize) -> Vec<String> {
    if limit > 0 {
        list.truncate(limit);
    }
    list
}

/// Blocks of one tenant.
pub(super) struct QueryBlocks {
    tenant: StoreId,
    /// Blocks of all tenants: this one may get its first block while a query runs.
    local: Arc<BlockStore>,
    bucket: Option<FolderSource>,
}

/// Blocks that the bucket has of one store.
#[derive(Clone)]
pub(crate) struct FolderSource {
    pub(crate) catalog: Arc<BlockCatalog>,
    pub(crate) folder: Folder,
    /// Time, in the unit of the store, at which expired samples end: blocks that end before are left out, as
    /// retention removes them locally. `i64::MIN` without a retention.
    pub(crate) expired_end: i64,
}

impl FolderSource {
    /// As [`BlockCatalog::blocks_in`], without expired blocks.
    pub(crate) fn blocks_in(
        &self,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        let mut blocks = self.catalog.blocks_in(&self.folder, range, ctx)?;
        blocks.retain(|block| block.range().end > self.expired_end);
        Ok(blocks)
    }

    /// Policy for several samples with one timestamp, from the catalogue.
    pub(super) fn duplicates(&self) -> DuplicatePolicy {
        self.catalog.duplicates(&self.folder)
    }

    /// Runs a label query on its blocks alone.
    pub(super) fn label_query(&self, query: LabelQuery) -> Result<Vec<String>, QueryError> {
        query.ctx.begin_wait()?;
        let blocks = self.blocks_in(query.range, &query.ctx)?;
        query.run_in_bucket(&self.catalog, &blocks, Vec::new())
    }
}

impl QueryBlocks {
    pub(super) fn new(store: &StoreId, local: &Arc<BlockStore>, bucket: Option<FolderSource>) -> QueryBlocks {
        QueryBlocks { tenant: store.clone(), local: local.clone(), bucket }
    }

    /// Local blocks of all tenants.
    pub(super) fn local(&self) -> &Arc<BlockStore> {
        &self.local
    }

    /// Returns the blocks that overlap `range`, earlier written samples first. Local blocks stay open as long
    /// as they are referenced.
    ///
    /// # Errors
    /// As the local blocks, and as [`BlockCatalog::blocks_in`].
    pub(super) fn in_range(
        &self,
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<QueryBlock>, QueryError> {
        let local = self.local.open_in_range(&self.tenant, range)?;
        let in_bucket = self.only_in_bucket(&local, range, ctx)?;
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

    /// Returns the blocks in the bucket that overlap `range` and whose samples are in no block of `local`.
    fn only_in_bucket(
        &self,
        local: &[Arc<Block>],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        let Some(bucket) = &self.bucket else { return Ok(Vec::new()) };
        let mut blocks = match bucket.blocks_in(range, ctx) {
            Err(error) if ctx.allows_partial() => {
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
                let list = LabelList::Values(scan.name.to_owned());
                let values = LabelQuery::without_texts(list, &[], scan.range, 0, ctx).run_local(&block)?;
                scan.visit_listed(&values, &ctx.budget, visit)
            },
        )
    }

    /// Runs a label query on all blocks. Returns the union of `from_head` and the results, sorted, at most
    /// `limit` entries.
    ///
    /// # Errors
    /// As [`QueryBlocks::in_range`], and errors of the blocks.
    pub(super) fn label_query(
        &self,
        query: LabelQuery,
        from_head: Vec<String>,
    ) -> Result<Vec<String>, QueryError> {
        let Some(bucket) = &self.bucket else {
            let fresh = || from_head.clone();
            let all = self.local.fold_in_range(&self.tenant, query.range, fresh, |all, block| {
                *all = merged(std::mem::take(all), query.run_local(&block)?);
                Ok(())
            })?;
            return Ok(truncated(all, query.limit));
        };
        let local = self.local.open_in_range(&self.tenant, query.range)?;
        let in_bucket = self.only_in_bucket(&local, query.range, &query.ctx)?;
        let mut all = from_head;
        for block in &local {
            all = merged(all, query.run_local(block)?);
        }
        query.run_in_bucket(&bucket.catalog, &in_bucket, all)
    }
}
