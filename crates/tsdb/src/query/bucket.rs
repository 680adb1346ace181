//! Queries over blocks in a bucket alone: no head, no local blocks.
//!
//! Invariants: all blocks of a query are fetched at the same time; a block that cannot be read fails the
//! query, never shortens its answer.
//! Not here: which blocks a tenant has, and reading them (`bucket`).

use std::sync::Arc;

use chronolith_bucket::BlockCatalog;
use chronolith_model::query::{SelectHints, VecBatches};
use chronolith_model::{
    DuplicatePolicy, KIND_LABEL, Matcher, QueryError, Queryable, ReadContext, Selector, SeriesBatches,
    TenantId, TimeRange,
};

use super::blocks::LabelQuestion;
use super::kinds;
use super::merged::{MergedBatches, merged};

/// Blocks of one tenant in the bucket.
pub(crate) struct TenantBucket {
    catalog: Arc<BlockCatalog>,
    tenant: TenantId,
}

impl TenantBucket {
    pub(crate) fn new(catalog: Arc<BlockCatalog>, tenant: &TenantId) -> TenantBucket {
        TenantBucket { catalog, tenant: tenant.clone() }
    }

    /// Text series are no numbers, so that PromQL reads no labels of theirs.
    fn question(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
        limit: usize,
        ctx: &ReadContext,
    ) -> LabelQuestion {
        LabelQuestion::new(&kinds::without_texts(matchers, true), range, limit, ctx)
    }

    /// Returns the union of the lists of all blocks, sorted, at most `limit` entries (0 = all).
    fn union(
        &self,
        question: LabelQuestion,
        list: impl Fn(&dyn Queryable, &LabelQuestion) -> Result<Vec<String>, QueryError> + Clone + Send + 'static,
    ) -> Result<Vec<String>, QueryError> {
        question.ctx.begin_wait()?;
        let blocks = self.catalog.blocks_in(&self.tenant, question.range, &question.ctx)?;
        let limit = question.limit;
        let ctx = question.ctx.clone();
        let question = Arc::new(question);
        let lists = self.catalog.for_each_opened(&blocks, &ctx, move |_, block| list(block, &question))?;
        let mut all = lists.into_iter().fold(Vec::new(), merged);
        if limit > 0 {
            all.truncate(limit);
        }
        Ok(all)
    }
}

impl Queryable for TenantBucket {
    fn select(
        &self,
        selector: &Selector<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        self.select_with(selector, &SelectHints::default(), ctx)
    }

    fn select_with(
        &self,
        selector: &Selector<'_>,
        hints: &SelectHints<'_>,
        ctx: &ReadContext,
    ) -> Result<Box<dyn SeriesBatches>, QueryError> {
        let none = || Box::new(VecBatches::new(Vec::new()));
        let Some(matchers) = kinds::visible(selector.matchers) else { return Ok(none()) };
        let range = selector.range;
        let mut sources: Vec<Box<dyn SeriesBatches>> = Vec::new();
        ctx.begin_wait()?;
        // Each selection starts to fetch at once; only the merge waits.
        for block in self.catalog.blocks_in(&self.tenant, range, ctx)? {
            for kind in kinds::kinds_in(block.may_have_label_name(KIND_LABEL), hints.column_type) {
                let matchers = kinds::with_kind(&matchers, kind);
                let batches = block.select(&Selector { matchers: &matchers, range }, ctx);
                sources.push(kinds::without_label(kind, hints.column_type, batches));
            }
        }
        let batches: Box<dyn SeriesBatches> = match sources.len() {
            0 => none(),
            1 => sources.remove(0),
            _ => Box::new(MergedBatches::new(sources, DuplicatePolicy::default(), ctx.clone())?),
        };
        Ok(hints.filter(batches))
    }

    fn label_names(
        &self,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let Some(matchers) = kinds::visible(selector.matchers) else { return Ok(Vec::new()) };
        // One more name in case that one of them is hidden.
        let limit_each = if limit == 0 { 0 } else { limit.saturating_add(1) };
        let question = self.question(&matchers, selector.range, limit_each, ctx);
        let names =
            |block: &dyn Queryable, q: &LabelQuestion| block.label_names(&q.selector(), q.limit, &q.ctx);
        let mut all = self.union(question, names)?;
        all.retain(|name| name != KIND_LABEL);
        all.truncate(if limit == 0 { usize::MAX } else { limit });
        Ok(all)
    }

    fn label_values(
        &self,
        name: &str,
        selector: &Selector<'_>,
        limit: usize,
        ctx: &ReadContext,
    ) -> Result<Vec<String>, QueryError> {
        let matchers = kinds::visible(selector.matchers).filter(|_| name != KIND_LABEL);
        let Some(matchers) = matchers else { return Ok(Vec::new()) };
        let question = self.question(&matchers, selector.range, limit, ctx);
        let name = name.to_owned();
        self.union(question, move |block, q| block.label_values(&name, &q.selector(), q.limit, &q.ctx))
    }
}
