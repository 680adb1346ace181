//! Blocks that a query of one tenant reads: local ones, and those that only the bucket has.
//!
//! Invariants: the local list is read before that of the bucket, so a block whose local copy is being removed
//! is seen at least once; a bucket block is left out if local blocks have its samples. A block that cannot be
//! read fails the query.
//! Not here: which blocks there are (`crate::blocks`, `bucket::BlockCatalog`), the merge of series
//! (`merged`).

use std::sync::Arc;

use chronolith_block::Block;
use chronolith_bucket::{BlockCatalog, BucketBlock};
use chronolith_format::block::meta::Ulid;
use chronolith_model::{
    KIND_LABEL, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches, TenantId, TimeRange,
};

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

    /// Selects series. A bucket block returns at once and is fetched in the background.
    pub(super) fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        match self {
            QueryBlock::Local(block) => block.select(selector, ctx),
            QueryBlock::Bucket(block) => Ok(block.select(selector, ctx)),
        }
    }
}

/// A question for label names or values, owned by the threads that answer it.
pub(super) struct LabelQuestion {
    pub(super) matchers: Vec<Matcher>,
    pub(super) range: TimeRange,
    /// 0 = all.
    pub(super) limit: usize,
    pub(super) ctx: ReadContext,
}

impl LabelQuestion {
    pub(super) fn new(
        matchers: &[Matcher],
        range: TimeRange,
        limit: usize,
        ctx: &ReadContext,
    ) -> LabelQuestion {
        LabelQuestion { matchers: matchers.to_vec(), range, limit, ctx: ctx.clone() }
    }

    pub(super) fn selector(&self) -> Selector<'_> {
        Selector { matchers: &self.matchers, range: self.range }
    }
}

/// A block that is asked for labels.
pub(super) struct LabelSource<'a> {
    pub(super) reader: &'a dyn Queryable,
    /// False if no series has a kind.
    pub(super) may_be_typed: bool,
}

impl LabelSource<'_> {
    fn local(block: &Block) -> LabelSource<'_> {
        LabelSource { reader: block, may_be_typed: block.has_label_name(KIND_LABEL) }
    }
}

/// Blocks of one tenant.
pub(super) struct QueryBlocks {
    tenant: TenantId,
    /// Blocks of all tenants: this one may get its first block while a query runs.
    local: Arc<BlockStore>,
    bucket: Option<Arc<BlockCatalog>>,
}

impl QueryBlocks {
    pub(super) fn new(
        tenant: &TenantId,
        local: &Arc<BlockStore>,
        bucket: Option<Arc<BlockCatalog>>,
    ) -> QueryBlocks {
        QueryBlocks { tenant: tenant.clone(), local: local.clone(), bucket }
    }

    /// Local blocks of all tenants.
    pub(super) fn local(&self) -> &BlockStore {
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
        bucket.known_overlap(&self.tenant, range).unwrap_or(true)
    }

    /// Returns the blocks in the bucket that overlap `range` and whose samples are in no block of `local`.
    fn only_in_bucket(
        &self,
        local: &[Arc<Block>],
        range: TimeRange,
        ctx: &ReadContext,
    ) -> Result<Vec<Arc<BucketBlock>>, QueryError> {
        let Some(bucket) = &self.bucket else { return Ok(Vec::new()) };
        let mut blocks = bucket.blocks_in(&self.tenant, range, ctx)?;
        let has_samples_of = |block: &Arc<Block>, other: &BucketBlock| {
            block.meta().ulid == other.ulid() || block.meta().replaces(other.ulid(), other.sources())
        };
        blocks.retain(|block| !local.iter().any(|of_local| has_samples_of(of_local, block)));
        if !blocks.is_empty() {
            ctx.begin_wait()?;
        }
        Ok(blocks)
    }

    /// Returns the union of `from_head` and the lists of all blocks, sorted, at most `limit` entries (0 =
    /// all).
    ///
    /// # Errors
    /// As [`QueryBlocks::in_range`], and those of `list`.
    pub(super) fn union(
        &self,
        question: LabelQuestion,
        from_head: Vec<String>,
        list: impl Fn(&LabelSource<'_>, &LabelQuestion) -> Result<Vec<String>, QueryError>
        + Clone
        + Send
        + 'static,
    ) -> Result<Vec<String>, QueryError> {
        let LabelQuestion { range, limit, .. } = question;
        let mut all = match &self.bucket {
            None => {
                let fresh = || from_head.clone();
                self.local.fold_in_range(&self.tenant, range, fresh, |all, block| {
                    *all = merged(std::mem::take(all), list(&LabelSource::local(&block), &question)?);
                    Ok(())
                })?
            }
            Some(bucket) => self.union_with_bucket(bucket, question, from_head, list)?,
        };
        if limit > 0 {
            all.truncate(limit);
        }
        Ok(all)
    }

    fn union_with_bucket(
        &self,
        bucket: &BlockCatalog,
        question: LabelQuestion,
        from_head: Vec<String>,
        list: impl Fn(&LabelSource<'_>, &LabelQuestion) -> Result<Vec<String>, QueryError>
        + Clone
        + Send
        + 'static,
    ) -> Result<Vec<String>, QueryError> {
        let local = self.local.open_in_range(&self.tenant, question.range)?;
        let in_bucket = self.only_in_bucket(&local, question.range, &question.ctx)?;
        let mut all = from_head;
        for block in &local {
            all = merged(all, list(&LabelSource::local(block), &question)?);
        }
        if in_bucket.is_empty() {
            return Ok(all);
        }
        let ctx = question.ctx.clone();
        let question = Arc::new(question);
        let lists = bucket.for_each_opened(&in_bucket, &ctx, move |block, reader| {
            let may_be_typed = block.may_have_label_name(KIND_LABEL);
            list(&LabelSource { reader, may_be_typed }, &question)
        })?;
        Ok(lists.into_iter().fold(all, merged))
    }
}
