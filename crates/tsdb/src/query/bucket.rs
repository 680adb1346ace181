//! Queries over blocks in a bucket alone: no head, no local blocks.
//!
//! Invariants: all blocks of a query are fetched at the same time; a block that cannot be read fails the
//! query, or is named in the warnings of one that allows a partial result. Without a list of blocks there is
//! nothing to answer from: every query fails.
//! Not here: which blocks a tenant has, and reading them (`bucket`).

use chronolith_bucket::check_first_batches;
use chronolith_model::query::{SelectHints, VecBatches};
use chronolith_model::{
    DuplicatePolicy, KIND_LABEL, QueryError, Queryable, ReadContext, Selector, SeriesBatches,
};

use super::blocks::{FolderSource, LabelList, LabelQuery, select_in_bucket};
use super::counted::counted;
use super::kinds;
use super::merged::MergedBatches;

/// Blocks of one store in the bucket.
pub(crate) struct TenantBucket {
    source: FolderSource,
    /// `None` = as the catalogue says.
    duplicates: Option<DuplicatePolicy>,
}

impl TenantBucket {
    /// A default store, of which the catalogue says which of several samples with one timestamp is read.
    pub(crate) fn of_tenant(source: FolderSource) -> TenantBucket {
        TenantBucket { source, duplicates: None }
    }

    /// The store of a retention policy, where the last sample with a timestamp counts.
    pub(crate) fn of_policy(source: FolderSource) -> TenantBucket {
        TenantBucket { source, duplicates: Some(DuplicatePolicy::LastWins) }
    }

    fn label_query(&self, query: LabelQuery) -> Result<Vec<String>, QueryError> {
        self.source.label_query(query)
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
        let blocks = self.source.blocks_in(range, ctx)?;
        check_first_batches(&blocks, &Selector { matchers: &matchers, range }, ctx)?;
        for block in blocks {
            for kind in kinds::kinds_in(block.may_have_label_name(KIND_LABEL), hints.column_type) {
                let matchers = kinds::with_kind(&matchers, kind);
                let selector = Selector { matchers: &matchers, range };
                let batches = select_in_bucket(&block, &selector, hints.rollups, ctx);
                sources.push(kinds::without_label(kind, hints.column_type, batches));
            }
        }
        let batches: Box<dyn SeriesBatches> = match sources.len() {
            0 => none(),
            1 => sources.remove(0),
            _ => {
                let duplicates = self.duplicates.unwrap_or_else(|| self.source.duplicates());
                Box::new(MergedBatches::new(sources, duplicates, ctx.clone())?)
            }
        };
        Ok(hints.filter(counted(batches, ctx)))
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
        let query = LabelQuery::without_texts(LabelList::Names, &matchers, selector.range, limit_each, ctx);
        let mut all = self.label_query(query)?;
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
        let list = LabelList::Values(name.to_owned());
        self.label_query(LabelQuery::without_texts(list, &matchers, selector.range, limit, ctx))
    }
}
